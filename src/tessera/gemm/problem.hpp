// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_PROBLEM_HPP
#define TESSERA_GEMM_PROBLEM_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/atoms.hpp>
#include <tessera/detail/matrix.hpp>
#include <tessera/epilogue.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

/// C = epilogue(alpha·A·Bᵀ + beta·C) for every plane: a is (M, K), b is (N, K), c is (M, N). Transposing an operand is
/// swapping its strides, so this one form covers every mix of layouts.
struct GemmProblem {
  MatrixStack a, b, c;
  double alpha = 1, beta = 0;
  void* workspace = nullptr;  // of the caller's, for copies of factors
  bool block_scaled = false;  // BlockScales go with it

  std::int64_t m() const { return c.rows; }
  std::int64_t n() const { return c.cols; }
  std::int64_t k() const { return a.cols; }
  std::int64_t batch() const { return c.inner; }
  /// The same product as Cᵀ = B·Aᵀ, for a C that is contiguous along its rows' index.
  GemmProblem transposed() const { return {b, a, c.transposed(), alpha, beta, workspace, block_scaled}; }
  bool operator==(GemmProblem const&) const = default;
};

/// An epilogue that the library has no kernels for: its caller compiles them.
template <class Epilogue>
inline constexpr bool own_epilogue = !std::is_same_v<Epilogue, epilogue::Identity>;

/// One element of a stack, widened.
template <class Compute>
KOKKOS_FORCEINLINE_FUNCTION Compute read(MatrixStack const& m, std::int64_t offset) {
  Compute x = 0;
  visit_scalar<Compute>(
      m.type, [&](auto tag) { x = Compute(static_cast<typename decltype(tag)::type const*>(m.data)[offset]); });
  return x;
}

/// One element of a stack, rounded.
template <class Compute>
KOKKOS_FORCEINLINE_FUNCTION void write(MatrixStack const& m, std::int64_t offset, Compute x) {
  visit_scalar<Compute>(m.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    static_cast<T*>(const_cast<void*>(m.data))[offset] = T(x);
  });
}

/// alpha, beta and the caller's epilogue, applied to accumulators in place.
template <class Compute, class Epilogue>
struct Finish {
  MatrixStack c;
  Compute alpha, beta;
  Epilogue epilogue;

  Finish(GemmProblem const& p, Epilogue const& e)
      : c(p.c), alpha(Compute(p.alpha)), beta(Compute(p.beta)), epilogue(e) {}
  /// The same for another C.
  KOKKOS_FUNCTION Finish(Finish const& f, MatrixStack const& of) : Finish(f) { c = of; }

  /// Whether C becomes the product, or C + it.
  KOKKOS_FUNCTION bool adds_or_overwrites() const {
    return !own_epilogue<Epilogue> && alpha == Compute(1) && (beta == Compute(0) || beta == Compute(1));
  }

  KOKKOS_FORCEINLINE_FUNCTION Compute user(Compute x, Plane plane, std::int64_t row, std::int64_t col,
                                           epilogue::Gathered<Epilogue>& gathered) const {
    if constexpr (epilogue::gathers<Epilogue>)
      return epilogue(x, row, col, gathered);
    else if constexpr (requires { epilogue(x, row, col, plane.inner); })
      return epilogue(x, row, col, plane.inner);
    else
      return epilogue(x, row, col);
  }

  /// One element, inside C.
  KOKKOS_FORCEINLINE_FUNCTION Compute element(Compute x, Plane plane, std::int64_t row, std::int64_t col) const {
    x *= alpha;
    if (beta != Compute(0)) x += beta * read<Compute>(c, c.offset(plane, row, col));
    epilogue::Gathered<Epilogue> gathered{};
    x = user(x, plane, row, col, gathered);
    finish_gathering(gathered);
    return x;
  }

  /// The caller's epilogue for a tile of a plane, as the atoms call it. Its rows are counted from `first`.
  struct Caller {
    Finish const& finish;
    Plane plane;
    std::int64_t first;
    epilogue::Gathered<Epilogue>& gathered;

    KOKKOS_FORCEINLINE_FUNCTION Compute operator()(Compute x, std::int64_t row, std::int64_t col) const {
      return finish.user(x, plane, row - first, col, gathered);
    }
    /// Many elements, as epilogue::read() and epilogue::apply_pack() have it.
    template <int R, int N>
    KOKKOS_FORCEINLINE_FUNCTION auto read(std::int64_t row, std::int64_t step, std::int64_t col) const {
      return epilogue::read<R, N>(finish.epilogue, row - first, step, col);
    }
    template <int R, int N, class Read>
    KOKKOS_FORCEINLINE_FUNCTION void pack(Compute (&x)[R][N], Read const& read, std::int64_t row, std::int64_t step,
                                          std::int64_t col) const {
      if constexpr (!epilogue::gathers<Epilogue> && requires { finish.epilogue(x[0][0], row, col, row); }) {
        TESSERA_UNROLL
        for (int i = 0; i < R; ++i) TESSERA_UNROLL
        for (int j = 0; j < N; ++j) x[i][j] = (*this)(x[i][j], row + i * step, col + j);
      } else {
        epilogue::apply_pack(finish.epilogue, x, read, row - first, step, col, gathered);
      }
    }
    template <int N>
    KOKKOS_FORCEINLINE_FUNCTION bool aligned() const {
      return epilogue::aligned<N>(finish.epilogue);
    }
  };

  /// Before the sum of a tile: what operator() will add to it is on its way, where the atoms bring it ahead.
  template <class Accumulator, class Math, class Target>
  KOKKOS_FORCEINLINE_FUNCTION void fetch(Math& math, Target const& target, Plane plane, std::int64_t row,
                                         std::int64_t col) const {
    if constexpr (!own_epilogue<Epilogue> &&
                  requires { math.template fetch_added<Accumulator>(target, plane, row, col); })
      if (beta != Compute(0)) math.template fetch_added<Accumulator>(target, plane, row, col);
  }
  /// Stores a tile of Rows x Cols whose first element is (row, col) of C and which may hang over its edges.
  template <int Rows, int Cols, class Math, class Accumulator, class Target>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(Math& math, Accumulator& acc, Target const& target, Plane plane,
                                              std::int64_t row, std::int64_t col) const {
    if constexpr (requires { math.store_finished(acc, target, plane, row, col, alpha, beta, Unchanged{}); }) {
      if constexpr (own_epilogue<Epilogue>) {
        epilogue::Gathered<Epilogue> gathered{};
        math.store_finished(acc, target, plane, row, col, alpha, beta, Caller{*this, plane, 0, gathered});
        finish_gathering(gathered);
      } else {
        if constexpr (requires { math.store_whole(acc, target, plane, row, col, alpha, beta); })
          if (math.store_whole(acc, target, plane, row, col, alpha, beta)) return;
        math.store_finished(acc, target, plane, row, col, alpha, beta, Unchanged{});
      }
    } else {
      if (alpha != Compute(1)) math.for_each(acc, [&](Compute& x, int, int) { x *= alpha; });
      in_place<Rows, Cols>(math, acc, plane, row, col);
      math.store(acc, target, plane, row, col);
    }
  }

  /// The same for a tile of a block of rows, from `first` to `end` of C, whose rows the epilogue counts from there.
  template <int Rows, class Math, class Accumulator, class Target>
  KOKKOS_FORCEINLINE_FUNCTION void in_block(Math& math, Accumulator& acc, Target const& target, int block,
                                            std::int64_t row, std::int64_t col, std::int64_t first,
                                            std::int64_t end) const {
    Plane const whole{}, plane{0, block};
    if constexpr (own_epilogue<Epilogue>) {
      epilogue::Gathered<Epilogue> gathered{};
      math.store_finished(acc, target, whole, row, col, alpha, beta, Caller{*this, plane, first, gathered}, end);
      finish_gathering(gathered);
    } else {
      if constexpr (requires { math.store_whole(acc, target, whole, row, col, alpha, beta); })
        if (beta == Compute(0) && row + Rows <= end && math.store_whole(acc, target, whole, row, col, alpha, beta))
          return;
      math.store_finished(acc, target, whole, row, col, alpha, beta, Unchanged{}, end);
    }
  }

 private:
  /// beta·C and the epilogue, where accumulators are.
  template <int Rows, int Cols, class Math, class Accumulator>
  KOKKOS_FORCEINLINE_FUNCTION void in_place(Math& math, Accumulator& acc, Plane plane, std::int64_t row,
                                            std::int64_t col) const {
    int const rows = held(c.rows - row), cols = held(c.cols - col);
    if (beta != Compute(0)) {
      std::int64_t const at = c.offset(plane, row, col);
      auto const add = [&](auto const& element) {
        math.for_each(acc, [&](Compute& x, int i, int j) {
          if (i < rows && j < cols) x += beta * element(at + i * c.row_stride + j * c.col_stride);
        });
      };
      if constexpr (std::is_same_v<Compute, float>) {
        AnyFloat const type(c.type);
        add([&](std::int64_t offset) { return type.read(c.data, offset); });
      } else {
        add([&](std::int64_t offset) { return read<Compute>(c, offset); });
      }
    }
    if constexpr (own_epilogue<Epilogue>) {
      epilogue::Gathered<Epilogue> gathered{};
      // Without conditions what the epilogue reads is on its way for many elements at a time.
      if (rows >= Rows && cols >= Cols)
        math.for_each(acc, [&](Compute& x, int i, int j) { x = user(x, plane, row + i, col + j, gathered); });
      else
        math.for_each(acc, [&](Compute& x, int i, int j) {
          if (i < rows && j < cols) x = user(x, plane, row + i, col + j, gathered);
        });
      finish_gathering(gathered);
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION static int held(std::int64_t rest) {
    return rest < (1 << 30) ? static_cast<int>(rest) : 1 << 30;
  }
  KOKKOS_FORCEINLINE_FUNCTION void finish_gathering(epilogue::Gathered<Epilogue> const& gathered) const {
    if constexpr (epilogue::gathers<Epilogue>) epilogue.end(gathered);
  }
};

}  // namespace tessera::detail

#endif
