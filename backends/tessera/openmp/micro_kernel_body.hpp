// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_MICRO_KERNEL_BODY_HPP
#define TESSERA_OPENMP_MICRO_KERNEL_BODY_HPP

// Included by one source per instruction set, each compiled for its own. No standard header here: an inline function
// compiled for AVX-512 and merged by the linker would run on processors without it.
#include <cstdint>

#include <tessera/openmp/micro_kernel.hpp>

namespace {

/// Leaves sums + a number times a vector to the compiler, which loads a number once for both vectors.
struct AnyProduct {
  static constexpr int rows_by_memory = 0;
  template <class Vector, class T>
  [[gnu::always_inline]] static inline Vector add(Vector sums, T left, Vector right) {
    return sums + left * right;
  }
};

/// A panel of rows x cols, of which `Rows` x `Vectors` vectors of `Bytes` are accumulated at a time: the instruction
/// set's registers must hold them.
template <class T, int Bytes, int Rows, int Vectors, int PanelRows, int PanelCols>
struct Walk {
  typedef T Vector __attribute__((vector_size(Bytes), aligned(sizeof(T)), may_alias));
  static constexpr int lanes = Bytes / static_cast<int>(sizeof(T)), rows = Rows, cols = Vectors * lanes,
                       vectors = Vectors, panel_rows = PanelRows, panel_cols = PanelCols;
  static_assert(panel_rows % rows == 0 && panel_cols % cols == 0);
};
template <class T, int Bytes, int Rows>
using WalkOfPanels =
    Walk<T, Bytes, Rows, 2, tessera::detail::openmp::panel_rows, tessera::detail::openmp::panel_cols<T>>;
template <class T, int Bytes, int Rows>
using WalkOfWide = Walk<T, Bytes, Rows, 3, tessera::detail::openmp::wide_rows, tessera::detail::openmp::wide_cols<T>>;

/// sums[r] += left[r] * right of one k. Of the first rows Product::add() reads the number itself.
template <class Walk, class Product, class T, class Vector>
[[gnu::always_inline]] inline void add_products(T const* left, T const* right,
                                                Vector (&sums)[Walk::rows][Walk::vectors]) {
  Vector b[Walk::vectors];
#pragma GCC unroll 3
  for (int v = 0; v < Walk::vectors; ++v) b[v] = *reinterpret_cast<Vector const*>(right + v * Walk::lanes);
#pragma GCC unroll 12
  for (int r = 0; r < Walk::rows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < Walk::vectors; ++v)
      if (r < Product::rows_by_memory)
        sums[r][v] = Product::add(sums[r][v], left[r], b[v]);
      else
        sums[r][v] += left[r] * b[v];
}

/// What is fetched besides the left panel that comes next, a line at a time: first what is for later, last the sums.
struct OtherLines {
  tessera::detail::openmp::PanelsAhead ahead;
  char const* sums;
  [[gnu::always_inline]] void operator()() {
    if (ahead.left_lines > 0) {
      __builtin_prefetch(ahead.left, 0, 2);
      ahead.left += 64;
      --ahead.left_lines;
    } else if (ahead.right_lines > 0) {
      __builtin_prefetch(ahead.right);
      ahead.right += 64;
      --ahead.right_lines;
    } else {
      __builtin_prefetch(sums);
      sums += 64;
    }
  }
};

/// A panel of rows times one of columns.
template <class T, class Walk, class Product = AnyProduct>
void multiply_panels(T const* a, T const* b, T* c, int k, bool add, tessera::detail::openmp::PanelsAhead ahead) {
  using Vector = typename Walk::Vector;
  constexpr int rows = Walk::panel_rows, cols = Walk::panel_cols;
  // Of two steps. A panel of fp32, which is half as long, the processor brings itself, and to ask for it too costs 5 %
  // where steps are as short as those of AVX-512.
  constexpr int next_bytes = 2 * rows * static_cast<int>(sizeof(T));
  constexpr bool fetches_next = sizeof(Vector) < 64 || sizeof(T) > 4;
  for (int j = 0; j < cols; j += Walk::cols)
    for (int i = 0; i < rows; i += Walk::rows) {
      Vector sums[Walk::rows][Walk::vectors];
      T* const at = c + i * cols + j;
#pragma GCC unroll 12
      for (int r = 0; r < Walk::rows; ++r)
#pragma GCC unroll 3
        for (int v = 0; v < Walk::vectors; ++v)
          sums[r][v] = add ? *reinterpret_cast<Vector*>(at + r * cols + v * Walk::lanes) : Vector{};
      T const* left = a + i;
      T const* right = b + j;
      int steps = k;
      // On the last of several walks over the panels.
      if (ahead.next_left != nullptr && j + Walk::cols == cols && i + Walk::rows == rows) {
        char const* next = ahead.next_left;
        OtherLines others{ahead, reinterpret_cast<char const*>(c + rows * cols)};
        for (; steps >= 2; steps -= 2, left += 2 * rows, right += 2 * cols) {
          add_products<Walk, Product>(left, right, sums);
          if constexpr (fetches_next) __builtin_prefetch(next);
          add_products<Walk, Product>(left + rows, right + cols, sums);
          if constexpr (fetches_next) {
#pragma GCC unroll 3
            for (int line = 64; line < next_bytes; line += 64) __builtin_prefetch(next + line);
            next += next_bytes;
          }
          others();
        }
      }
      for (; steps > 0; --steps, left += rows, right += cols) add_products<Walk, Product>(left, right, sums);
#pragma GCC unroll 12
      for (int r = 0; r < Walk::rows; ++r)
#pragma GCC unroll 3
        for (int v = 0; v < Walk::vectors; ++v)
          *reinterpret_cast<Vector*>(at + r * cols + v * Walk::lanes) = sums[r][v];
    }
}

template <template <class, int, int> class Walk, int Bytes, int Rows>
inline constexpr tessera::detail::openmp::MicroKernelsOfTypes kernels_of_types{
    multiply_panels<float, Walk<float, Bytes, Rows>>, multiply_panels<double, Walk<double, Bytes, Rows>>,
    multiply_panels<std::int32_t, Walk<std::int32_t, Bytes, Rows>>};

}  // namespace

#endif
