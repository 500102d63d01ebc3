// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_ELEMENTWISE_HPP
#define TESSERA_GEMM_ELEMENTWISE_HPP

#include <tessera/gemm/problem.hpp>
#include <tessera/launch.hpp>

namespace tessera::detail {

/// The first two rungs of the ladder: one thread an element of C, straight from memory. Neighbouring threads take
/// neighbours along C's contiguous index (coalesced) or along the other one (naive).
template <class Compute, class Epilogue>
struct GemmElement {
  GemmProblem p;
  Finish<Compute, Epilogue> finish;
  bool along_rows;  // consecutive indices are consecutive rows

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    std::int64_t const per_plane = p.c.rows * p.c.cols, inner = i / per_plane, e = i % per_plane;
    std::int64_t const row = along_rows ? e % p.c.rows : e / p.c.cols, col = along_rows ? e / p.c.rows : e % p.c.cols;
    Plane const plane{0, inner};
    std::int64_t const at_a = p.a.offset(plane, row, 0), at_b = p.b.offset(plane, col, 0);
    Compute sum = 0;
    if (p.a.type == p.b.type)
      visit_scalar<Compute>(p.a.type, [&](auto tag) {
        using T = typename decltype(tag)::type;
        T const* a = static_cast<T const*>(p.a.data) + at_a;
        T const* b = static_cast<T const*>(p.b.data) + at_b;
        for (std::int64_t k = 0; k < p.a.cols; ++k)
          sum += Compute(a[k * p.a.col_stride]) * Compute(b[k * p.b.col_stride]);
      });
    else
      for (std::int64_t k = 0; k < p.a.cols; ++k)
        sum += read<Compute>(p.a, at_a + k * p.a.col_stride) * read<Compute>(p.b, at_b + k * p.b.col_stride);
    write(p.c, p.c.offset(plane, row, col), finish.element(sum, plane, row, col));
  }
};

}  // namespace tessera::detail

#endif
