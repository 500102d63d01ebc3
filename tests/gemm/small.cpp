// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "product.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Rows and columns around those of the pieces that kernels for any strides have, up to the largest product that is no
/// tile, and beyond.
template <class T>
void check_sizes() {
  using Exec = std::tuple_element_t<0, Spaces>;
  constexpr int rows[] = {1, 5, 6, 7, 12, 13, 64, 65}, cols[] = {1, 3, 4, 7, 8, 9, 16, 17, 31, 33, 64};
  for (int m : rows)
    for (int n : cols) {
      Product p{m, n, m * n % 64 + 1, 3};
      p.pad = n % 3, p.begin = m % 2;
      p.transpose_a = n % 2 == 0;
      p.c_by_columns = p.transpose_a && m % 2 == 0, p.transpose_b = p.c_by_columns;
      p.beta = n % 5 == 0 ? 1 : 0;
      p.one_b = n == 9;
      check_product<Exec, T, T>(p, {});
    }
}

}  // namespace

TEST_CASE("vector units: small products end where C does") {
  check_sizes<float>();
  check_sizes<double>();
}
