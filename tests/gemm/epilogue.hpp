// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_GEMM_EPILOGUE_HPP
#define TESSERA_TESTS_GEMM_EPILOGUE_HPP

#include "product.hpp"

namespace tessera::test {

/// Counts its calls by position, which must be inside C.
template <class V>
struct Counted {
  V calls;
  template <class T>
  KOKKOS_FUNCTION T operator()(T x, std::int64_t row, std::int64_t col, std::int64_t batch) const {
    calls(batch, row, col) += 1;
    return x + T(64 * batch + 8 * row + col);
  }
};

/// Products of small integers, exact in every type, with an epilogue that sees positions; factors lie either way.
template <class Exec, class T, class TC>
void check_epilogue(GemmOptions options, int k = 24) {
  int const batch = 2, m = 131, n = 137;
  auto const integers = [](std::size_t count, int seed) {
    std::vector<T> x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = T(float(int((i * 7 + seed) % 11) - 5));
    return x;
  };
  auto const ah = integers(std::size_t(batch) * m * k, 1), bh = integers(std::size_t(batch) * k * n, 2);
  for (bool const turned_a : {false, true})
    for (bool const turned_b : {false, true}) {
      options.op_a = turned_a ? Op::transpose : Op::none;
      options.op_b = turned_b ? Op::transpose : Op::none;
      ViewOf<Exec, T***> a("A", batch, turned_a ? k : m, turned_a ? m : k);
      ViewOf<Exec, T***> b("B", batch, turned_b ? n : k, turned_b ? k : n);
      ViewOf<Exec, TC***> c("C", batch, m, n);
      ViewOf<Exec, int***> calls("calls", batch, m, n);
      fill(a, turned_a ? transposed_planes(ah, batch, m, k) : ah);
      fill(b, turned_b ? transposed_planes(bh, batch, k, n) : bh);
      poison(c, 0xFF);
      Counted<decltype(calls)> const epilogue{calls};
      options.workspace = nullptr;
      options.workspace_bytes = gemm_workspace_size(Exec{}, 0.5, a, b, 0, c, options, epilogue);
      ViewOf<Exec, unsigned char*> const workspace("workspace", options.workspace_bytes);
      if (workspace.size() > 0) options.workspace = workspace.data();
      if (has_tensor_cores<Exec>())
        CHECK(gemm_plan(Exec{}, 0.5, a, b, 0, c, options, epilogue).algorithm == options.algorithm);
      gemm(Exec{}, 0.5, a, b, 0, c, options, epilogue);
      long wrong = 0;
      for (int const count : values(calls)) wrong += count != 1;
      auto const out = values(c);
      for (int p = 0; p < batch; ++p) {
        auto const r = gemm_reference(m, n, k, 0.5, plane_of(ah, p, m * k), plane_of(bh, p, k * n), 0, out);
        for (int i = 0; i < m; ++i)
          for (int j = 0; j < n; ++j)
            wrong += double(out[(std::size_t(p) * m + i) * n + j]) != r.c[std::size_t(i) * n + j] + 64 * p + 8 * i + j;
      }
      CHECK(wrong == 0);
    }
}

}  // namespace tessera::test

#endif
