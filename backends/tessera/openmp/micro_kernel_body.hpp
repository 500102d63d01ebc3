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

/// sums[r] += left[r] * right, Rows x 2 vectors, of one k. Of the first rows Product::add() reads the number itself.
template <class Product, class T, class Vector, int Rows>
[[gnu::always_inline]] inline void add_products(T const* left, T const* right, Vector (&sums)[Rows][2]) {
  constexpr int lanes = static_cast<int>(sizeof(Vector) / sizeof(T));
  Vector const b0 = *reinterpret_cast<Vector const*>(right), b1 = *reinterpret_cast<Vector const*>(right + lanes);
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r)
    if (r < Product::rows_by_memory) {
      sums[r][0] = Product::add(sums[r][0], left[r], b0);
      sums[r][1] = Product::add(sums[r][1], left[r], b1);
    } else {
      sums[r][0] += left[r] * b0;
      sums[r][1] += left[r] * b1;
    }
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

/// Vectors of `Bytes`; `Rows` x 2 of them are accumulated at a time, which the instruction set's registers must hold.
template <class T, int Bytes, int Rows, class Product = AnyProduct>
void multiply_panels(T const* a, T const* b, T* c, int k, bool add, tessera::detail::openmp::PanelsAhead ahead) {
  using tessera::detail::openmp::panel_cols;
  using tessera::detail::openmp::panel_rows;
  typedef T Vector __attribute__((vector_size(Bytes), aligned(sizeof(T)), may_alias));
  constexpr int lanes = Bytes / static_cast<int>(sizeof(T));
  constexpr int cols = panel_cols<T>;
  static_assert(panel_rows % Rows == 0 && cols % (2 * lanes) == 0);
  // Of two steps. A panel of fp32, which is half as long, the processor brings itself, and to ask for it too costs 5 %
  // where steps are as short as those of AVX-512.
  constexpr int next_bytes = 2 * panel_rows * static_cast<int>(sizeof(T));
  constexpr bool fetches_next = Bytes < 64 || sizeof(T) > 4;
  for (int j = 0; j < cols; j += 2 * lanes)
    for (int i = 0; i < panel_rows; i += Rows) {
      Vector acc[Rows][2];
#pragma GCC unroll 12
      for (int r = 0; r < Rows; ++r) {
        T* const from = c + (i + r) * cols + j;
        acc[r][0] = add ? *reinterpret_cast<Vector*>(from) : Vector{};
        acc[r][1] = add ? *reinterpret_cast<Vector*>(from + lanes) : Vector{};
      }
      T const* left = a + i;
      T const* right = b + j;
      int steps = k;
      // On the last of several walks over the panels.
      if (ahead.next_left != nullptr && j + 2 * lanes == cols && i + Rows == panel_rows) {
        char const* next = ahead.next_left;
        OtherLines others{ahead, reinterpret_cast<char const*>(c + panel_rows * cols)};
        for (; steps >= 2; steps -= 2, left += 2 * panel_rows, right += 2 * cols) {
          add_products<Product>(left, right, acc);
          if constexpr (fetches_next) __builtin_prefetch(next);
          add_products<Product>(left + panel_rows, right + cols, acc);
          if constexpr (fetches_next) {
            __builtin_prefetch(next + 64);
            if constexpr (next_bytes > 128) __builtin_prefetch(next + 128);
            next += next_bytes;
          }
          others();
        }
      }
      for (; steps > 0; --steps, left += panel_rows, right += cols) add_products<Product>(left, right, acc);
#pragma GCC unroll 12
      for (int r = 0; r < Rows; ++r) {
        T* const to = c + (i + r) * cols + j;
        *reinterpret_cast<Vector*>(to) = acc[r][0];
        *reinterpret_cast<Vector*>(to + lanes) = acc[r][1];
      }
    }
}

template <int Bytes, int Rows>
inline constexpr tessera::detail::openmp::MicroKernelsOfTypes kernels_of_panels{
    multiply_panels<float, Bytes, Rows>, multiply_panels<double, Bytes, Rows>,
    multiply_panels<std::int32_t, Bytes, Rows>};

}  // namespace

#endif
