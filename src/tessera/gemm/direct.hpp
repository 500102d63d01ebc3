// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_DIRECT_HPP
#define TESSERA_GEMM_DIRECT_HPP

#include <tessera/gemm/problem.hpp>
#include <tessera/machine.hpp>

namespace tessera::detail {

/// Whether the products were small ones that the machine multiplies as they lie, each by one core, or of few rows or
/// columns, whose long factor it reads where it lies, and have been started. The caller brings no epilogue.
template <class Exec, class Compute>
bool multiply_directly(Exec const& exec, GemmProblem const& given) {
  using Small = DirectProducts<Exec, Compute>;
  using Thin = ThinProducts<Exec, Compute>;
  if (given.alpha != 1 || (given.beta != 0 && given.beta != 1)) return false;
  GemmProblem const turned = given.transposed();
  bool const tall = given.n() < given.m();
  double const operations = 2.0 * static_cast<double>(given.batch() * given.m()) * static_cast<double>(given.n()) *
                            static_cast<double>(given.k());
  for (GemmProblem const* p : {&given, &turned})
    if (Small::takes(p->a, p->b, p->c)) {
      for_each_index("tessera::gemm", exec, p->batch(), Small(p->a, p->b, p->c, p->beta != 0), operations);
      return true;
    }
  for (GemmProblem const* p : {tall ? &turned : &given, tall ? &given : &turned})
    if (Thin::takes(p->a, p->b, p->c)) {
      Thin const products(p->a, p->b, p->c, p->beta != 0, Machine<Exec>::concurrency(exec));
      for_each_index("tessera::gemm", exec, products.strips(), products, operations);
      return true;
    }
  return false;
}

}  // namespace tessera::detail

#endif
