// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_DIRECT_HPP
#define TESSERA_GEMM_DIRECT_HPP

#include <tessera/gemm/problem.hpp>
#include <tessera/machine.hpp>

namespace tessera::detail {

/// Whether the products were small ones that the machine multiplies as they lie, each by one core, and have been
/// started. The caller brings no epilogue.
template <class Exec, class Compute>
bool multiply_directly(Exec const& exec, GemmProblem const& given) {
  using Products = DirectProducts<Exec, Compute>;
  if (given.alpha != 1 || (given.beta != 0 && given.beta != 1)) return false;
  GemmProblem const turned = given.transposed();
  bool const as_given = Products::takes(given.a, given.b, given.c);
  if (!as_given && !Products::takes(turned.a, turned.b, turned.c)) return false;
  GemmProblem const& p = as_given ? given : turned;
  double const operations =
      2.0 * static_cast<double>(p.batch() * p.m()) * static_cast<double>(p.n()) * static_cast<double>(p.k());
  for_each_index("tessera::gemm", exec, p.batch(), Products(p.a, p.b, p.c, p.beta != 0), operations);
  return true;
}

}  // namespace tessera::detail

#endif
