// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_BULK_ELEMENTS_HPP
#define TESSERA_CUDA_BULK_ELEMENTS_HPP

#include <cstdint>

#include <tessera/cuda/bulk_registers.hpp>
#include <tessera/cuda/largest.hpp>
#include <tessera/cuda/mma.hpp>
#include <tessera/cuda/rounding.hpp>
#include <tessera/flags.hpp>

// What a consumer does with elements, rows and columns of its accumulators between products and before the store.
namespace tessera::detail::bulk {

template <class Element, class Sizes>
struct ElementMath : ConsumerThread {
  using Held = Registers<Element, Sizes>;
  using Compute = typename Held::Compute;
  using Weight = typename Held::Weight;
  template <int M, int N>
  using Accumulator = typename Held::template Accumulator<M, N>;
  template <int M, class T = Compute>
  using RowValues = typename Held::template RowValues<M, T>;
  template <int M, int K>
  using Rounded = typename Held::template Rounded<M, K>;
  template <int M, int N, class F>
  using Flags = typename Held::template Flags<M, N, F>;
  template <int M, int N, class Of>
  using Words = typename Held::template Words<M, N, Of>;

  template <int M, int N>
  __device__ __forceinline__ void clear(Accumulator<M, N>& acc) const {
#pragma unroll
    for (auto& block : acc.r)
#pragma unroll
      for (Compute& x : block) x = 0;
  }
  template <int M, int N, class F>
  __device__ __forceinline__ void for_each(Accumulator<M, N>& acc, F const& f) const {
#pragma unroll
    for (int block = 0; block < Accumulator<M, N>::blocks; ++block)
#pragma unroll
      for (int i = 0; i < Accumulator<M, N>::columns / 2; ++i) {
        // What f reads is on its way for so many elements at a time: for all of them there are not registers enough.
        if (i % 32 == 0) ptx::keep_order();
        f(acc.r[block][i], row<M, N>(i, block), col<M, N>(i));
      }
  }
  /// A thread's words for an (M, N) accumulator, where of(row, column) has four words for eight columns of 32: for
  /// that column, its neighbour and those 8, 16 and 24 behind the first such, a word for every two. These are the
  /// columns that a thread has. Half of them are found at once, under what follows: for all there are no registers.
  /// The question whether anybody looks at them keeps the compiler from finding them later.
  template <int M, int N, class Of>
  __device__ __forceinline__ Words<M, N, Of> words(bool wanted, Of const& of) const {
    Words<M, N, Of> all{{}, of};
    if (wanted)
#pragma unroll
      for (int block = 0; block < all.ahead; ++block) all.find(*this, block, all.r + block * 8);
    return all;
  }
  /// f(element, word, whether its column is odd)
  template <int M, int N, class Of, class F>
  __device__ __forceinline__ void for_each_of_words(Accumulator<M, N>& acc, Words<M, N, Of> const& words,
                                                    F const& f) const {
#pragma unroll
    for (int block = 0; block < N / 32; ++block) {
      std::uint32_t own[8];
      if (block >= words.ahead) words.find(*this, block, own);
#pragma unroll
      for (int i = 0; i < 16; ++i)
        f(acc.r[0][block * 16 + i], block < words.ahead ? words.r[block * 8 + i / 2] : own[i / 2], i % 2 != 0);
    }
  }
  template <int M, int N, class F>
  __device__ __forceinline__ void find_flags(F const& f, Flags<M, N, F>& flags) const {
#pragma unroll
    for (int part = 0; part < N / 64; ++part)
      flags.bits[part] = F::words_for_rows ? flags_of_rows<M, N>(f, part * 32) : flags_of_columns<M, N>(f, part * 32);
  }
  /// acc = acc scale + at + row per_row + col per_col: a number of a thread's own and multiples of constants.
  template <int M, int N>
  __device__ __forceinline__ void add_plane(Accumulator<M, N>& acc, Compute scale, Compute at, Compute per_row,
                                            Compute per_col) const {
    static_assert(Accumulator<M, N>::blocks == 1);
    Compute const first = at + per_row * Compute(row<M, N>(0)) + per_col * Compute(col<M, N>(0));
    Compute const begin[2] = {first, first + per_row * Compute(8)};
#pragma unroll
    for (int i = 0; i < Accumulator<M, N>::columns / 2; ++i)
      acc.r[0][i] = acc.r[0][i] * scale + (begin[i % 4 / 2] + per_col * Compute(i / 4 * 8 + i % 2));
  }
  /// Of this thread's in an (M, N) accumulator.
  template <int M, int N>
  __device__ __forceinline__ Compute first_column(Accumulator<M, N> const*) const {
    return Compute(col<M, N>(0));
  }
  /// acc = acc factor + column - first_column(): a multiply-add an element, with constants.
  template <int M, int N>
  __device__ __forceinline__ void add_columns(Accumulator<M, N>& acc, Compute factor) const {
    static_assert(Accumulator<M, N>::blocks == 1);
#pragma unroll
    for (int i = 0; i < Accumulator<M, N>::columns / 2; ++i)
      acc.r[0][i] = acc.r[0][i] * factor + Compute(i / 4 * 8 + i % 2);
  }
  /// acc = acc scale + f(column - row). A thread's eight rows further down have what eight columns to the left had,
  /// and its warp needs N + 16 numbers in all: each lane asks for a few, 32 side by side, and hands them round.
  template <int M, int N, class F>
  __device__ __forceinline__ void add_by_distance(Accumulator<M, N>& acc, Compute scale, F const& f) const {
    static_assert(Accumulator<M, N>::blocks == 1 && N % 16 == 0);
    constexpr int most = 7;  // rows that the first of a quad lies above the warp's last
    int const lane = thread % 32, from = lane % 4 * 2 - lane / 4 + most;
    int const first = col<M, N>() - row<M, N>() - thread / 32 * 16 - most - 8;  // distance of lane 0's first number
    Compute above[2] = {}, here[2], numbers = 0;
#pragma unroll
    for (int block = -1; block < N / 8; ++block) {
      if (block % 2 != 0) numbers = f(first + (block + 1) * 8 + lane);
#pragma unroll
      for (int e = 0; e < 2; ++e) here[e] = __shfl_sync(~0u, numbers, from + e + (block % 2 != 0 ? 0 : 8));
      if (block >= 0)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          Compute* const to = acc.r[0] + block * 4 + e;
          to[0] = to[0] * scale + here[e];
          to[2] = to[2] * scale + above[e];
        }
      above[0] = here[0], above[1] = here[1];
    }
  }
  /// acc = acc scale + tile, whose elements are of type T. Every thread of the consumer has read the tile afterwards.
  template <class T, int M, int N>
  __device__ __forceinline__ void add_tile(Accumulator<M, N>& acc, Compute scale,
                                           Boxes<std::uint16_t, M, N> const& tile) const {
    static_assert(Accumulator<M, N>::blocks == 1 && N % 16 == 0 && sizeof(T) == 2);
    int const lane = thread % 32, line = row<M, N>() + thread / 32 * 16 + lane % 16;
    std::uint32_t const first = ptx::shared_address(tile.v) + line * line_bytes;
    std::uint32_t const place = lane / 16 ^ line % 8;  // packs of eight columns are swizzled
#pragma unroll
    for (int pack = 0; pack < N / 8; pack += 2) {
      std::uint32_t x[4];
      ptx::load_matrix_x4(x, first + pack / 8 * (M * line_bytes) + (place ^ pack % 8) * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // rows in turns
        auto const pair = Kokkos::bit_cast<Pair<T>>(x[i]);
        Compute* const to = acc.r[0] + pack * 4 + i * 2;
        to[0] = to[0] * scale + static_cast<Compute>(pair.low);
        to[1] = to[1] * scale + static_cast<Compute>(pair.high);
      }
    }
    meet();
  }
  /// A thread's numbers of those of N columns, read before they are needed.
  template <int N>
  struct ColumnValues {
    float2 v[N / 8];
  };
  template <int N>
  __device__ __forceinline__ ColumnValues<N> columns(Compute const (&cols)[N]) const {
    ColumnValues<N> own;
#pragma unroll
    for (int i = 0; i < N / 8; ++i) own.v[i] = *reinterpret_cast<float2 const*>(cols + thread % 4 * 2 + i * 8);
    return own;
  }
  /// f(element, its column's value)
  template <int M, int N, class F>
  __device__ __forceinline__ void for_each_with_column(Accumulator<M, N>& acc, ColumnValues<N> const& cols,
                                                       F const& f) const {
    static_assert(Accumulator<M, N>::blocks == 1 && Accumulator<M, N>::by_rows);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) f(acc.r[0][i], i % 2 ? cols.v[i / 4].y : cols.v[i / 4].x);
  }
  /// f(element of one, element of the other, its column's value)
  template <int M, int N, class F>
  __device__ __forceinline__ void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                                  ColumnValues<N> const& cols, F const& f) const {
    static_assert(Accumulator<M, N>::blocks == 1 && Accumulator<M, N>::by_rows);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) f(acc.r[0][i], other.r[0][i], i % 2 ? cols.v[i / 4].y : cols.v[i / 4].x);
  }
  /// f(element of one, element of the other, its row's value)
  template <int M, int N, class F>
  __device__ __forceinline__ void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                                  RowValues<M> const& rows, F const& f) const {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) f(acc.r[0][i], other.r[0][i], rows.v[i % 4 / 2]);
  }
  /// f(element, its neighbour, row, column): the column is even
  template <int M, int N, class F>
  __device__ __forceinline__ void for_each_pair(Accumulator<M, N>& acc, F const& f) const {
    static_assert(Accumulator<M, N>::blocks == 1);
#pragma unroll
    for (int i = 0; i < Accumulator<M, N>::columns / 2; i += 2)
      f(acc.r[0][i], acc.r[0][i + 1], row<M, N>(i), col<M, N>(i));
  }
  /// to += from, in the columns of `to` from Col on
  template <int Col, int M, int P, int N>
  __device__ __forceinline__ void add(Accumulator<M, P> const& from, Accumulator<M, N>& to) const {
#pragma unroll
    for (int block = 0; block < Accumulator<M, P>::blocks; ++block)
#pragma unroll
      for (int i = 0; i < Accumulator<M, P>::columns / 2; ++i) to.r[block][Col / 2 + i] += from.r[block][i];
  }
  /// to(i, j) += from(i, j - Col) * rows(i) * cols[j / 64], in the columns of `to` from Col on
  template <int Col, int M, int P, int N>
  __device__ __forceinline__ void add_scaled(Accumulator<M, P> const& from, RowValues<M> const& rows,
                                             Compute const* cols, Accumulator<M, N>& to) const {
    using Acc = Accumulator<M, P>;
    constexpr int first = Col / 64, groups = Acc::columns / 64;
    static_assert(Col % 64 == 0 && Acc::columns % 64 == 0);
#pragma unroll
    for (int g = 0; g < groups; ++g)
#pragma unroll
      for (int h = 0; h < 2 * Acc::blocks; ++h) {
        Compute const col = Acc::by_rows || group == 0 ? cols[first + g] : cols[N / 64 - groups + g];
        Compute const scale = rows.v[h] * col;
        auto const& part = from.r[h / 2];
        auto& sum = to.r[h / 2];
#pragma unroll
        for (int i = g * 32 + h % 2 * 2; i < (g + 1) * 32; i += 4) {
          sum[Col / 2 + i] += part[i] * scale;
          sum[Col / 2 + i + 1] += part[i + 1] * scale;
        }
      }
  }
  template <int M, int N, class F>
  __device__ __forceinline__ void for_each_with(Accumulator<M, N>& acc, RowValues<M> const& rows, F const& f) const {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) f(acc.r[0][i], rows.v[i % 4 / 2]);
  }
  /// to(i, j) = to(i, j) * rows(i) + from(i, j - Col), in the columns of `to` from Col on
  template <int Col, int M, int P, int N>
  __device__ __forceinline__ void scale_and_add(Accumulator<M, N>& to, RowValues<M> const& rows,
                                                Accumulator<M, P> const& from) const {
#pragma unroll
    for (int i = 0; i < P / 2; ++i) to.r[0][Col / 2 + i] = to.r[0][Col / 2 + i] * rows.v[i % 4 / 2] + from.r[0][i];
  }
  /// f(element, its row's value, row, column)
  template <int M, int N, class F>
  __device__ __forceinline__ void for_each_placed(Accumulator<M, N>& acc, RowValues<M> const& rows, F const& f) const {
    static_assert(Accumulator<M, N>::blocks == 1);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) f(acc.r[0][i], rows.v[i % 4 / 2], row<M, N>(i), col<M, N>(i));
  }
  /// f(element of one, element of the other, its column's value, flag). Columns are read as in round_each().
  template <int M, int N, class Flags, class F>
  __device__ __forceinline__ void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                                  Compute const (&cols)[N], Flags flags, F const& f) const {
    separate(flags);
#pragma unroll
    for (int i = 0; i < N / 2; i += 2) {
      float2 const values = *reinterpret_cast<float2 const*>(cols + thread % 4 * 2 + i / 4 * 8);
      f(acc.r[0][i], other.r[0][i], values.x, flag_of(flags, i));
      f(acc.r[0][i + 1], other.r[0][i + 1], values.y, flag_of(flags, i + 1));
    }
  }
  /// f(element of one, element of the other, its row's value, flag)
  template <int M, int N, class Flags, class F>
  __device__ __forceinline__ void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                                  RowValues<M> const& rows, Flags flags, F const& f) const {
    separate(flags);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) f(acc.r[0][i], other.r[0][i], rows.v[i % 4 / 2], flag_of(flags, i));
  }
  template <class F, int M, class... Rows>
  __device__ __forceinline__ void for_rows(F const& f, RowValues<M>& first, Rows&... rest) const {
#pragma unroll
    for (int h = 0; h < 2 * RowValues<M>::blocks; ++h) f(first.v[h], rest.v[h]...);
  }
  /// f(value, row) by every thread that has a part in the row
  template <int M, class T, class F>
  __device__ __forceinline__ void each_row(RowValues<M, T>& rows, F const& f) const {
#pragma unroll
    for (int h = 0; h < 2 * RowValues<M>::blocks; ++h) f(rows.v[h], row<M, 128>(h % 2 * 2, h / 2));
  }
  template <int M, class F>
  __device__ __forceinline__ void once_per_row(RowValues<M> const& rows, F const& f) const {
    if (thread % 4 == 0)
#pragma unroll
      for (int h = 0; h < 2; ++h) f(rows.v[h], row<M, 64>(h * 2));
  }
  template <int M, int N>
  __device__ __forceinline__ void row_max(Accumulator<M, N> const& acc, RowValues<M>& rows) const {
    own_row_max(acc, rows);
    join_row_max(rows);
  }
  /// The largest of this thread's part of a row, and of all its threads'.
  template <int M, int N>
  __device__ __forceinline__ void own_row_max(Accumulator<M, N> const& acc, RowValues<M>& rows) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float m = rows.v[h];
      if constexpr (sizeof(Element) == 1) {
        float n = acc.r[0][h * 2];
#pragma unroll
        for (int i = h * 2; i < N / 2; i += 4) {
          m = fmaxf(m, acc.r[0][i]);
          n = fmaxf(n, acc.r[0][i + 1]);
        }
        m = fmaxf(m, n);
      } else {
#pragma unroll
        for (int i = h * 2; i < N / 2; i += 4) m = fmaxf(m, fmaxf(acc.r[0][i], acc.r[0][i + 1]));
      }
      rows.v[h] = m;
    }
  }
  template <int M>
  __device__ __forceinline__ void join_row_max(RowValues<M>& rows) const {
#pragma unroll
    for (float& row : rows.v) {
      row = fmaxf(row, __shfl_xor_sync(~0u, row, 1));
      row = fmaxf(row, __shfl_xor_sync(~0u, row, 2));
    }
  }
  /// Whether, in all rows of a warp, no element is above its row's limit; false where a limit is negative.
  template <int M, int N>
  __device__ __forceinline__ bool none_above(Accumulator<M, N> const& acc, RowValues<M> const& limits) const {
    static_assert(Accumulator<M, N>::blocks == 1);
    bool none = true;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      LargestOf<2> top;
#pragma unroll
      for (int i = h * 2; i < N / 2; i += 4) top.join(i / 4, acc.r[0][i], acc.r[0][i + 1]);
      none = none && top.within(limits.v[h]);
    }
    return holds_for_all(none);
  }
  /// For all threads that share rows with this one.
  __device__ __forceinline__ bool holds_for_all(bool own) const { return __all_sync(~0u, own); }
  /// The same place, of which the compiler does not know it: what depends on it is not computed ahead and kept.
  template <class T>
  __device__ __forceinline__ T* anew(T* place) const {
    return ptx::anew(place);
  }
  /// For all consumers.
  __device__ __forceinline__ bool holds_for_team(bool own) const {
    constexpr int consumers = Held::consumers;
    return ptx::named_all(4 + consumers, consumers * warpgroup, own);
  }
  /// Whether no element of a warpgroup is above its row's limit, or NaN.
  template <int M, int N>
  __device__ __forceinline__ bool all_within(Accumulator<M, N> const& acc, RowValues<M> const& limits) const {
    static_assert(Accumulator<M, N>::blocks == 1);
    bool within[4] = {true, true, true, true};
#pragma unroll
    for (int i = 0; i < N / 2; ++i) within[i % 4] &= acc.r[0][i] <= limits.v[i % 4 / 2];
    return ptx::named_all(4 + group, warpgroup, within[0] & within[1] & within[2] & within[3]);
  }
  /// rows = max(rows, |acc|) of this thread's part of a row, for a start that is not negative
  template <int M, int N>
  __device__ __forceinline__ void own_row_max_magnitude(Accumulator<M, N> const& acc, RowValues<M>& rows) const
      requires(sizeof(Element) == 2) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float m = rows.v[h], n = m;
#pragma unroll
      for (int i = h * 2; i < N / 2; i += 4) {
        m = fmaxf(m, fabsf(acc.r[0][i]));
        n = fmaxf(n, fabsf(acc.r[0][i + 1]));
      }
      rows.v[h] = fmaxf(m, n);
    }
  }
  template <int M, int N>
  __device__ __forceinline__ void row_add_partial(Accumulator<M, N> const& acc, RowValues<M>& rows) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = 0;
#pragma unroll
      for (int i = h * 2; i < N / 2; i += 4) sum += acc.r[0][i] + acc.r[0][i + 1];
      rows.v[h] += sum;
    }
  }
  template <int M>
  __device__ __forceinline__ void row_combine(RowValues<M>& rows) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows.v[h] += __shfl_xor_sync(~0u, rows.v[h], 1);
      rows.v[h] += __shfl_xor_sync(~0u, rows.v[h], 2);
    }
  }
  __device__ __forceinline__ static float exp2(float x) { return ptx::exp2_approximate(x); }

  /// Accumulators become a left factor without an exchange between lanes: what a thread has of their columns is what
  /// it has of the factor's, with other than 16 bits in another order (RowOrder).
  template <int M, int K>
  __device__ __forceinline__ void round(Accumulator<M, K> const& from, Rounded<M, K>& to) const {
    auto const& x = from.r[0];
    if constexpr (sizeof(Element) == 1) {
#pragma unroll
      for (int i = 0; i < K / 8; ++i) {  // rows in turns, 16 columns each two
        int const at = i / 2 * 8 + i % 2 * 2;
        to.r[i / 4][i % 4] = ptx::narrow_four(Factor<Weight>{}, x[at], x[at + 1], x[at + 4], x[at + 5]);
      }
    } else if constexpr (sizeof(Element) == 4) {
#pragma unroll
      for (int i = 0; i < K / 2; ++i)
        to.r[i / 4][i % 4] = ptx::round_to_tf32(__float_as_uint(x[i / 4 * 4 + i % 2 * 2 + i % 4 / 2]));
    } else {
#pragma unroll
      for (int i = 0; i < K / 4; ++i) to.r[i / 4][i % 4] = packed_pair<Element>(x[i * 2], x[i * 2 + 1]);
    }
  }
  template <int M, int K>
  __device__ __forceinline__ void round(Accumulator<M, K> const& from, NoFlags, Rounded<M, K>& to) const {
    round(from, to);
  }
  /// Those whose flag is not set as 0.
  template <int M, int K, class F>
  __device__ __forceinline__ void round(Accumulator<M, K> const& from, Flags<M, K, F> const& flags,
                                        Rounded<M, K>& to) const {
    static_assert(sizeof(Element) == 2);
#pragma unroll
    for (int i = 0; i < K / 4; ++i)
      to.r[i / 4][i % 4] = packed_pair<Element>(flag_of(flags, i * 2) ? from.r[0][i * 2] : Compute(0),
                                                flag_of(flags, i * 2 + 1) ? from.r[0][i * 2 + 1] : Compute(0));
  }
  /// to = what f(element, its column's value, row, column, flag) returns, which may change the element. Beside f
  /// there are no registers for all columns' values.
  template <int M, int K, class Flags, class F>
  __device__ __forceinline__ void round_each(Accumulator<M, K>& from, Compute const (&cols)[K], Flags const& flags,
                                             Rounded<M, K>& to, F const& f) const {
    static_assert(Accumulator<M, K>::blocks == 1 && sizeof(Element) == 2);
#pragma unroll
    for (int i = 0; i < K / 4; ++i) {
      int const at = i * 2, r = row<M, K>(at), c = col<M, K>(at);
      float2 const values = *reinterpret_cast<float2 const*>(cols + thread % 4 * 2 + i / 2 * 8);
      Compute const x = f(from.r[0][at], values.x, r, c, flag_of(flags, at)),
                    y = f(from.r[0][at + 1], values.y, r, c + 1, flag_of(flags, at + 1));
      to.r[i / 4][i % 4] = packed_pair<Element>(x, y);
    }
  }

 private:
  template <int M, int N, class F>
  __device__ __forceinline__ static bool flag_of(Flags<M, N, F> const& flags, int i) {
    return (flags.bits[i / 32] >> i % 32 & 1) != 0;
  }
  __device__ __forceinline__ static bool flag_of(NoFlags, int) { return true; }
  /// From here on the compiler looks at bits anew. Else it keeps what it has taken apart before, a register each.
  template <int M, int N, class F>
  __device__ __forceinline__ static void separate(Flags<M, N, F>& flags) {
    ptx::pin(flags.bits);
  }
  __device__ __forceinline__ static void separate(NoFlags) {}
  /// Of 32 elements from `first` on, words being for rows. Neighbours of a column are in lanes 4 apart and have words
  /// in common: either finds those of every other column, for both.
  template <int M, int N, class F>
  __device__ __forceinline__ std::uint32_t flags_of_rows(F const& f, int first) const {
    int const upper = row<M, N>(0), lower = row<M, N>(2);
    bool const odd = upper % 2 != 0;
    std::uint32_t of_even = 0, of_odd = 0;
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
      auto const four = f.words(upper, col<M, N>(first + i) + odd);
      std::uint32_t const words[2] = {word_of(four, upper), word_of(four, lower)};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        of_even |= std::uint32_t(f.flag(words[h], false)) << (i + 2 * h);
        of_odd |= std::uint32_t(f.flag(words[h], true)) << (i + 2 * h);
      }
    }
    std::uint32_t const own = odd ? of_odd << 1 : of_even, others = odd ? of_even << 1 : of_odd;
    return own | __shfl_xor_sync(~0u, others, 4);
  }
  /// The same, words being for columns: a thread has both neighbours, in all words.
  template <int M, int N, class F>
  __device__ __forceinline__ std::uint32_t flags_of_columns(F const& f, int first) const {
    std::uint32_t bits = 0;
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      int const at = quarter / 2 * 16 + quarter % 2 * 2;
      auto const four = f.words(row<M, N>(at), col<M, N>(first + at));
#pragma unroll
      for (int i = 0; i < 8; ++i) bits |= std::uint32_t(f.flag(four[i / 2], i % 2 != 0)) << (at + i / 2 * 4 + i % 2);
    }
    return bits;
  }
  template <int M, int N>
  __device__ __forceinline__ int row() const {
    return Accumulator<M, N>::row(*this);
  }
  template <int M, int N>
  __device__ __forceinline__ int col() const {
    return Accumulator<M, N>::col(*this);
  }
  template <int M, int N>
  __device__ __forceinline__ int row(int i, int block = 0) const {
    return Accumulator<M, N>::row(*this, i, block);
  }
  template <int M, int N>
  __device__ __forceinline__ int col(int i) const {
    return Accumulator<M, N>::col(*this, i);
  }
};

}  // namespace tessera::detail::bulk

#endif
