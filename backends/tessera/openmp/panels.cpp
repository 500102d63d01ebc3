// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <tessera/detail/matrix.hpp>
#include <tessera/openmp/micro_kernel.hpp>
#include <tessera/openmp/panels.hpp>
#include <tessera/openmp/roundings.hpp>

namespace tessera::detail::openmp {
namespace {

#if __has_builtin(__builtin_shufflevector)  // GCC 12, Clang
#define TESSERA_SHUFFLES 1
#else
#define TESSERA_SHUFFLES 0
#endif

#if TESSERA_SHUFFLES
/// 16 bytes, which every x86-64 and AArch64 processor moves and shuffles at once.
template <class T>
struct Quad {
  typedef T Vector __attribute__((vector_size(16), aligned(sizeof(T)), may_alias));
  static constexpr int lanes = 16 / static_cast<int>(sizeof(T));
};

/// to[c][r] = from[r][c] for a square of as many rows as 16 bytes hold.
template <class T>
void transpose_square(T const* from, std::int64_t row_stride, T* to, int pitch) {
  using Vector = typename Quad<T>::Vector;
  auto const row = [&](int r) { return *reinterpret_cast<Vector const*>(from + r * row_stride); };
  auto const column = [&](int c) -> Vector& { return *reinterpret_cast<Vector*>(to + c * pitch); };
  if constexpr (Quad<T>::lanes == 4) {
    Vector const r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
    Vector const low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5),
                 high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
    Vector const low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5),
                 high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    column(0) = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
    column(1) = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
    column(2) = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
    column(3) = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
  } else {
    Vector const r0 = row(0), r1 = row(1);
    column(0) = __builtin_shufflevector(r0, r1, 0, 2);
    column(1) = __builtin_shufflevector(r0, r1, 1, 3);
  }
}
#endif

/// Contiguous rows into a panel, whose columns are: as many of them as whole lines of the cache have, which it returns.
/// A line at a time, of few rows: those of a large matrix often lie where they drive each other out of the cache.
template <int Width, class T>
int transpose_lines([[maybe_unused]] T const* from, [[maybe_unused]] std::int64_t row_stride, [[maybe_unused]] int n,
                    [[maybe_unused]] int k, [[maybe_unused]] T* to) {
#if TESSERA_SHUFFLES
  constexpr int lanes = Quad<T>::lanes, line = 64 / static_cast<int>(sizeof(T));
  constexpr int ahead = 8 * line;  // processors that fetch ahead follow few rows and end at pages
  int const columns = k / line * line, rows = n / lanes * lanes;
  for (int c0 = 0; c0 < columns; c0 += line) {
    for (int r = 0; r < rows; r += lanes) {
      for (int i = 0; i < lanes; ++i) __builtin_prefetch(from + (r + i) * row_stride + c0 + ahead);
      for (int c = c0; c < c0 + line; c += lanes)
        transpose_square(from + r * row_stride + c, row_stride, to + c * Width + r, Width);
    }
    for (int r = rows; r < n; ++r)
      for (int c = c0; c < c0 + line; ++c) to[c * Width + r] = from[r * row_stride + c];
  }
  return columns;
#else
  return 0;
#endif
}

Conversions const* best_conversions() {
  static Conversions const* const best = conversions();
  return best;
}
/// nullptr: there is none, and elements are converted one by one.
template <class T>
Conversions::Widen widening() {
  Conversions const* const c = best_conversions();
  if constexpr (std::is_same_v<T, fp16_t>) return c != nullptr ? c->fp16 : nullptr;
  if constexpr (std::is_same_v<T, bf16_t>) return c != nullptr ? c->bf16 : nullptr;
  if constexpr (std::is_same_v<T, e4m3_t>) return c != nullptr ? c->e4m3 : nullptr;
  if constexpr (std::is_same_v<T, e5m2_t>) return c != nullptr ? c->e5m2 : nullptr;
  return nullptr;
}
template <class T>
Conversions::Round rounding() {
  Conversions const* const c = best_conversions();
  static Roundings const* const r = roundings();
  if constexpr (std::is_same_v<T, fp16_t>)
    return c != nullptr ? c->to_fp16 : r != nullptr ? r->fp16.overflowing : nullptr;
  if constexpr (std::is_same_v<T, bf16_t>)
    return c != nullptr ? c->to_bf16 : r != nullptr ? r->bf16.overflowing : nullptr;
  if constexpr (std::is_same_v<T, e4m3_t>) return r != nullptr ? r->e4m3.overflowing : nullptr;
  if constexpr (std::is_same_v<T, e5m2_t>) return r != nullptr ? r->e5m2.overflowing : nullptr;
  return nullptr;
}

template <int Width, class T, class Compute>
void pack(T const* from, std::int64_t row_stride, std::int64_t col_stride, int n, int k, Compute* to);

/// The same of elements of which neighbours along an index are neighbours in memory, by way of fp32.
template <int Width, class T>
void pack_widened(Conversions::Widen widen, T const* from, std::int64_t row_stride, std::int64_t col_stride, int n,
                  int k, float* to) {
  if (row_stride == 1 && n == Width) {
    for (int c = 0; c < k; ++c) widen(from + c * col_stride, n, to + c * Width);
    return;
  }
  constexpr int together = 64;
  float buffer[Width * together];
  if (row_stride == 1) {
    for (int c = 0; c < k; ++c) {
      widen(from + c * col_stride, n, buffer);
      for (int r = 0; r < Width; ++r) to[c * Width + r] = r < n ? buffer[r] : 0;
    }
    return;
  }
  for (int c0 = 0; c0 < k; c0 += together) {
    int const columns = std::min(together, k - c0);
    for (int r = 0; r < n; ++r) widen(from + r * row_stride + c0, columns, buffer + r * together);
    pack<Width>(buffer, together, 1, n, columns, to + c0 * Width);
  }
}

template <int Width, class T, class Compute>
void pack(T const* from, std::int64_t row_stride, std::int64_t col_stride, int n, int k, Compute* to) {
  if constexpr (std::is_same_v<Compute, float> && sizeof(T) < sizeof(float))
    if (auto const widen = widening<T>(); widen != nullptr && (row_stride == 1 || col_stride == 1))
      return pack_widened<Width>(widen, from, row_stride, col_stride, n, k, to);
  if (row_stride == 1 && n == Width) {
    for (int c = 0; c < k; ++c)
      for (int r = 0; r < Width; ++r) to[c * Width + r] = Compute(from[c * col_stride + r]);
    return;
  }
  if (n < Width)
    for (int c = 0; c < k; ++c)
      for (int r = n; r < Width; ++r) to[c * Width + r] = 0;
  if (row_stride == 1) {
    for (int c = 0; c < k; ++c)
      for (int r = 0; r < n; ++r) to[c * Width + r] = Compute(from[c * col_stride + r]);
  } else {
    int done = 0;
    if constexpr (std::is_same_v<T, Compute>)
      if (col_stride == 1) done = transpose_lines<Width>(from, row_stride, n, k, to);
    // Sixteen columns of every row before the next sixteen: both sides stay in the first-level cache.
    constexpr int columns = 16;
    for (int c0 = done; c0 < k; c0 += columns)
      for (int r = 0; r < n; ++r)
        for (int c = c0, end = std::min(k, c0 + columns); c < end; ++c)
          to[c * Width + r] = Compute(from[r * row_stride + c * col_stride]);
  }
}

/// A row of elements as micro-kernels for words have them: int8, or floats of 16 and 8 bits as bf16, without loss.
void as_words(Scalar, void const* from, std::int64_t stride, int n, std::int8_t* to) {
  for (int c = 0; c < n; ++c) to[c] = static_cast<std::int8_t const*>(from)[c * stride];
}
void as_words(Scalar type, void const* from, std::int64_t stride, int n, std::uint16_t* to) {
  if (type == Scalar::bf16) {
    for (int c = 0; c < n; ++c) to[c] = static_cast<std::uint16_t const*>(from)[c * stride];
    return;
  }
  auto const convert = [&](auto tag) {
    using T = typename decltype(tag)::type;
    T const* const row = static_cast<T const*>(from);
    constexpr int together = 64;
    float wide[together];
    auto const widen = widening<T>();
    auto const round = rounding<bf16_t>();
    for (int c0 = 0; c0 < n; c0 += together) {
      int const columns = std::min(together, n - c0);
      if (stride == 1 && widen != nullptr)
        widen(row + c0, columns, wide);
      else
        for (int c = 0; c < columns; ++c) wide[c] = float(row[(c0 + c) * stride]);
      if (round != nullptr)
        round(wide, columns, to + c0);
      else
        for (int c = 0; c < columns; ++c) to[c0 + c] = bf16_t(wide[c]).bits();
    }
  };
  if (type == Scalar::e4m3)
    convert(ScalarTag<e4m3_t>{});
  else
    convert(ScalarTag<e5m2_t>{});
}

}  // namespace

template <class Kernel>
void pack_words(Kernel const& kernel, bool left, Scalar type, void const* from, std::int64_t row_stride,
                std::int64_t col_stride, int n, int k, void* to) {
  using Storage = typename Kernel::Element;
  auto const pack = left ? kernel.pack_left : kernel.pack_right;
  bool const as_it_is = type == (std::is_same_v<Storage, std::int8_t> ? Scalar::int8 : Scalar::bf16);
  if (as_it_is && (row_stride == 1 || col_stride == 1))
    return pack(static_cast<Storage const*>(from), row_stride, col_stride, n, k, to);
  // By way of a few lines, contiguous along the index that is, else along K.
  constexpr int a_line = line_bytes / static_cast<int>(sizeof(Storage)), together = 4 * a_line;
  Storage words[word_panel * together];
  auto const at = [&](std::int64_t row, std::int64_t col) {
    return static_cast<char const*>(from) +
           (row * row_stride + col * col_stride) * static_cast<std::int64_t>(size_of(type));
  };
  for (int k0 = 0; k0 < k; k0 += together) {
    int const columns = std::min(together, k - k0);
    char* const lines = static_cast<char*>(to) + k0 / a_line * line_panel_bytes;
    if (row_stride == 1) {
      for (int c = 0; c < columns; ++c) as_words(type, at(0, k0 + c), 1, n, words + c * word_panel);
      pack(words, 1, word_panel, n, columns, lines);
    } else {
      for (int r = 0; r < n; ++r) as_words(type, at(r, k0), col_stride, columns, words + r * together);
      pack(words, together, 1, n, columns, lines);
    }
  }
}

template <class Compute, int Width>
void pack_panel(Scalar type, void const* from, std::int64_t row_stride, std::int64_t col_stride, int n, int k,
                Compute* to) {
  visit_scalar<Compute>(type, [&](auto tag) {
    pack<Width>(static_cast<typename decltype(tag)::type const*>(from), row_stride, col_stride, n, k, to);
  });
}

template <class Compute, int Width>
void pack_panels_across(Compute const* from, std::int64_t col_stride, int n, int k, Compute* to, std::int64_t panel) {
  constexpr int together = 4, line = 64 / static_cast<int>(sizeof(Compute));
  for (int c0 = 0; c0 < k; c0 += together)
    for (int r0 = 0; r0 < n; r0 += Width) {
      int const columns = std::min(together, k - c0), rows = std::min(Width, n - r0);
      Compute* const at = to + r0 / Width * panel + c0 * Width;
      for (int c = 0; c < columns; ++c) {
        Compute const* const column = from + (c0 + c) * col_stride + r0;
        if (c0 + c + together < k)  // the columns after these are on their way
          for (int r = 0; r < rows; r += line) __builtin_prefetch(column + together * col_stride + r);
        if (rows == Width)
          for (int r = 0; r < Width; ++r) at[c * Width + r] = column[r];
        else
          for (int r = 0; r < Width; ++r) at[c * Width + r] = r < rows ? column[r] : Compute(0);
      }
    }
}

template <class Compute>
void store_panel(Scalar type, Compute const* from, int pitch, int rows, int n, void* to, std::int64_t row_stride,
                 std::int64_t col_stride) {
  visit_scalar<Compute>(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const c = static_cast<T*>(to);
    if (col_stride != 1) {  // down the columns, of which neighbours often are neighbours in memory
      for (int j = 0; j < n; ++j)
        for (int i = 0; i < rows; ++i) c[i * row_stride + j * col_stride] = T(from[i * pitch + j]);
      return;
    }
    if constexpr (std::is_same_v<Compute, float> && sizeof(T) < sizeof(Compute))
      if (auto const round = rounding<T>(); round != nullptr) {
        for (int i = 0; i < rows; ++i) round(from + i * pitch, n, c + i * row_stride);
        return;
      }
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < n; ++j) c[i * row_stride + j] = T(from[i * pitch + j]);
  });
}

#define TESSERA_PANELS_OF(COMPUTE, WIDTH)                                                                        \
  template void pack_panel<COMPUTE, WIDTH>(Scalar, void const*, std::int64_t, std::int64_t, int, int, COMPUTE*); \
  template void pack_panels_across<COMPUTE, WIDTH>(COMPUTE const*, std::int64_t, int, int, COMPUTE*, std::int64_t);
#define TESSERA_PANELS(COMPUTE)                   \
  TESSERA_PANELS_OF(COMPUTE, 1)                   \
  TESSERA_PANELS_OF(COMPUTE, panel_rows)          \
  TESSERA_PANELS_OF(COMPUTE, panel_cols<COMPUTE>) \
  TESSERA_PANELS_OF(COMPUTE, wide_cols<COMPUTE>)  \
  template void store_panel(Scalar, COMPUTE const*, int, int, int, void*, std::int64_t, std::int64_t);
#define TESSERA_PACK_WORDS(KERNEL) \
  template void pack_words(KERNEL const&, bool, Scalar, void const*, std::int64_t, std::int64_t, int, int, void*);
TESSERA_PACK_WORDS(Bf16Kernel)
TESSERA_PACK_WORDS(Int8Kernel)
TESSERA_PANELS_OF(float, wide_rows)
TESSERA_PANELS_OF(std::int32_t, wide_rows)
static_assert(wide_rows == panel_cols<double>);
TESSERA_PANELS(float)
TESSERA_PANELS(double)
TESSERA_PANELS(std::int32_t)

}  // namespace tessera::detail::openmp
