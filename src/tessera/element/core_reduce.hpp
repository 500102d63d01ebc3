// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_CORE_REDUCE_HPP
#define TESSERA_ELEMENT_CORE_REDUCE_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>

#include <tessera/element/reduce_data.hpp>
#include <tessera/streaming.hpp>
#include <tessera/unroll.hpp>

// Both directions by a core. All of it is inlined for certain: what is left out of the versions for AVX2 and AVX-512 is
// compiled for the baseline.
namespace tessera::detail {

/// How many strips of columns, and bytes of rows, before it is read one is fetched: the memory works while a strip is,
/// and processors foresee neither the next page nor the next row.
inline constexpr int strips_ahead = 4;
inline constexpr std::int64_t bytes_ahead = 2048;

/// Accumulators of a loop over a row, which stay in registers. (Loops of 16 steps g++ unrolls before it could make
/// vectors of them.)
inline constexpr int row_lanes = 32, half_lanes = row_lanes / 2;

/// The two halves of a row's lanes, each beside those of other rows.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION void part_lanes(A const* value, A* low, A* high) {
  for (int j = 0; j < half_lanes; ++j) low[j] = value[j];
  for (int j = 0; j < half_lanes; ++j) high[j] = value[half_lanes + j];
}

/// Elements of short rows that are read at once, and of what is made of them.
inline constexpr int rows_strip = 1024;

/// Width accumulators of a core: a strip of the first-level cache that loops vectorise over.
template <class Exec, class In, template <class> class Step, class A>
struct Accumulators {
  static constexpr int width = reduce_width<Exec, In>;
  static_assert(is_power_of_two(width) && width >= 2 * row_lanes);

  A value[width];  // (width)

  KOKKOS_FORCEINLINE_FUNCTION Accumulators() {
    for (int j = 0; j < width; ++j) value[j] = Step<A>::identity;
  }
  /// Elements [low, high) of a pack that starts at `from`.
  KOKKOS_FORCEINLINE_FUNCTION void take(ReduceData<Exec, In, A> const& data, In const* from, std::int64_t by, int low,
                                        int high) {
    data.read.template with_strip<width>(from + low * by, by, high - low, [&](auto const* strip) TESSERA_INLINE_LAMBDA {
      for (int j = low; j < high; ++j) value[j] = Step<A>::take(value[j], static_cast<A>(strip[j - low]));
    });
  }
  /// All into the lanes of a row, in halves.
  template <int Half = width / 2>
  KOKKOS_FORCEINLINE_FUNCTION void fold(A* low, A* high) {
    for (int j = 0; j < Half; ++j) value[j] = Step<A>::combine(value[j], value[j + Half]);
    if constexpr (Half > row_lanes)
      fold<Half / 2>(low, high);
    else
      part_lanes(value, low, high);
  }
};

/// Loops over rows that lie in a strip of the first-level cache one behind the other. A row by itself is too short for
/// vectors, and joining the lanes of one would be most of the work: both are done for many rows at once.
template <template <class> class Step, class A>
struct RowsOfStrip {
  using S = Step<A>;

  /// What `rows` rows of n elements come to; in `value`, or in `room`.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION static A const* reduce(T const* strip, int n, int rows, A* value, A* room) {
    if (n > half_lanes) {
      accumulate(strip, n, rows, value, room);
      return join_lanes(value, room, rows);
    }
    if ((n & (n - 1)) == 0) {
      lift(strip, n * rows, value);
      return join(value, room, rows, n);
    }
    lift(strip, n * rows, room);
    add_windows(room, n, rows, value);
    return value;
  }

  /// The same of rows whose elements j lie side by side, j = 0 .. n - 1.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION static A const* reduce_columns(T const* strip, int n, int rows, A* value) {
    lift(strip, n * rows, value);
    for (int half; n > 1; n = half) {
      half = (n + 1) / 2;
      combine(value, value + half * rows, (n - half) * rows);
    }
    return value;
  }

  /// What the lanes of each row come to, half of them in `value` and half in `room`; in either.
  KOKKOS_FORCEINLINE_FUNCTION static A const* join_lanes(A* value, A* room, int rows) {
    combine(value, room, rows * half_lanes);
    return join(value, room, rows, half_lanes);
  }

 private:
  /// What the neighbours of each row, a power of two, come to; in `value`, or in `room`.
  KOKKOS_FORCEINLINE_FUNCTION static A const* join(A* value, A* room, int rows, int neighbours) {
    for (; neighbours > 1; neighbours /= 2) {
      join_pairs(value, rows * neighbours / 2, room);
      A* const joined = room;
      room = value;
      value = joined;
    }
    return value;
  }

  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION static void lift(T const* KOKKOS_RESTRICT x, int n, A* KOKKOS_RESTRICT to) {
    for (int i = 0; i < n; ++i) to[i] = S::first(static_cast<A>(x[i]));
  }
  KOKKOS_FORCEINLINE_FUNCTION static void combine(A* KOKKOS_RESTRICT x, A const* KOKKOS_RESTRICT y, int n) {
    for (int i = 0; i < n; ++i) x[i] = S::combine(x[i], y[i]);
  }
  KOKKOS_FORCEINLINE_FUNCTION static void join_pairs(A const* KOKKOS_RESTRICT x, int n, A* KOKKOS_RESTRICT to) {
    for (int i = 0; i < n; ++i) to[i] = S::combine(x[2 * i], x[2 * i + 1]);
  }

  /// The lanes of each row.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION static void accumulate(T const* strip, int n, int rows, A* low, A* high) {
    for (int r = 0; r < rows; ++r, strip += n, low += half_lanes, high += half_lanes) {
      A value[row_lanes];
      for (int j = 0; j < row_lanes; ++j) value[j] = S::identity;
      int i = 0;
      for (; i + row_lanes <= n; i += row_lanes)
        for (int j = 0; j < row_lanes; ++j) value[j] = S::take(value[j], static_cast<A>(strip[i + j]));
      if (i < n) {
        A rest[row_lanes];  // beyond the end are elements of the next row, or what lies behind the last
        for (int j = 0; j < row_lanes; ++j) rest[j] = static_cast<A>(strip[i + j]);
        for (int j = 0; j < row_lanes; ++j) rest[j] = j < n - i ? rest[j] : S::nothing;
        for (int j = 0; j < row_lanes; ++j) value[j] = S::take(value[j], rest[j]);
      }
      part_lanes(value, low, high);
    }
  }

  /// A row is windows of 1, 2, 4 and so on elements, of those sizes whose sum is n, in this order. Windows of a size
  /// are found wherever they begin, from those of half the size, although few are those of rows: without a permutation.
  KOKKOS_FORCEINLINE_FUNCTION static void add_windows(A* window, int n, int rows, A* value) {
    int const all = n * rows;
    for (int size = 1, begin = 0; size <= n; size *= 2) {
      if (size > 1) {
        int const count = all - size + 1;
        for (int i = 0; i < count; ++i) window[i] = S::combine(window[i], window[i + size / 2]);
      }
      if ((n & size) == 0) continue;
      if (begin == 0)
        for (int r = 0; r < rows; ++r) value[r] = window[r * n];
      else
        for (int r = 0; r < rows; ++r) value[r] = S::combine(value[r], window[r * n + begin]);
      begin += size;
    }
  }
};

/// Reductions along rows by a core, many rows at a time.
template <class Exec, class In, template <class> class Step, class A>
struct ReduceAlong {
  using Data = ReduceData<Exec, In, A>;
  using Rows = RowsOfStrip<Step, A>;
  static constexpr int width = Data::width;
  static constexpr int columns = 8;  // elements of a row up to which rows that do not follow one another are columns
  static constexpr int room = rows_strip;
  static_assert(width <= room);
  Data const& data;

  KOKKOS_FORCEINLINE_FUNCTION void run(TeamMember<Exec> const& team) const {
    ReduceShape const& shape = data.shape;
    auto const& outputs = data.outputs;
    std::int64_t const part = team.league_rank() / shape.groups, group = team.league_rank() % shape.groups;
    std::int64_t const by = outputs.stride[0][0], to = part * shape.output_of_parts;
    bool const is_short = data.row.packs == 1;
    int const n = static_cast<int>(data.row.inner);
    int const at_once = room / (is_short && (n <= half_lanes || n > row_lanes) ? n : row_lanes);
    std::int64_t output = group * shape.rounds;
    std::int64_t const end = output + shape.rounds < outputs.packs ? output + shape.rounds : outputs.packs;
    while (output < end) {
      std::int64_t left = end - output;
      if (outputs.rank > 1) {  // rows of one loop
        std::int64_t const inner = outputs.inner, of_loop = inner - output % inner;
        left = of_loop < left ? of_loop : left;
      }
      int const rows = static_cast<int>(left < at_once ? left : at_once);
      auto const place = outputs.place(output);
      In const* const from = data.in + place.offset[0];
      A value[room], other[room];
      A const* result = nullptr;
      if (is_short) {
        result = short_rows(from, by, n, rows, value, other);
      } else {
        for (int r = 0; r < rows; ++r)
          long_row(from + r * by, by, part, value + r * half_lanes, other + r * half_lanes);
        result = Rows::join_lanes(value, other, rows);
      }
      data.out.store_many(place.offset[1] + to, outputs.stride[1][0], result, rows);
      output += rows;
    }
  }

  /// Rows of at most a pack, `row_by` from each other.
  KOKKOS_FORCEINLINE_FUNCTION A const* short_rows(In const* from, std::int64_t row_by, int n, int rows, A* value,
                                                  A* other) const {
    std::int64_t const by = data.row.stride[0][0];
    A const* result = nullptr;
    if (row_by == n * by) {
      std::size_t const bytes = bytes_of_neighbours(by, n * rows);
      fetch_ahead(from + bytes, bytes);
      data.read.template with_strip<room + row_lanes>(from, by, n * rows, [&](auto const* strip) TESSERA_INLINE_LAMBDA {
        result = Rows::reduce(strip, n, rows, value, other);
      });
    } else if (n <= columns) {
      data.read.template with_filled<room>(
          [&](auto read, auto* strip) TESSERA_INLINE_LAMBDA {
            for (int j = 0; j < n; ++j) read(from + j * by, row_by, rows, strip + j * rows);
          },
          [&](auto const* strip) TESSERA_INLINE_LAMBDA { result = Rows::reduce_columns(strip, n, rows, value); });
    } else {
      std::size_t const bytes = bytes_of_neighbours(by, n);
      data.read.template with_filled<room + row_lanes>(
          [&](auto read, auto* strip) TESSERA_INLINE_LAMBDA {
            for (int r = 0; r < rows; ++r) {
              fetch_ahead(from + (r + rows) * row_by, bytes);
              read(from + r * row_by, by, n, strip + r * n);
            }
          },
          [&](auto const* strip) TESSERA_INLINE_LAMBDA { result = Rows::reduce(strip, n, rows, value, other); });
    }
    return result;
  }

  /// The lanes of a part of a row; the next row lies `next` from it.
  KOKKOS_FORCEINLINE_FUNCTION void long_row(In const* from, std::int64_t next, std::int64_t part, A* low,
                                            A* high) const {
    auto const& row = data.row;
    Accumulators<Exec, In, Step, A> values;
    std::int64_t const begin = part * data.shape.part_steps;
    std::int64_t const end = begin + data.shape.part_steps < row.packs ? begin + data.shape.part_steps : row.packs;
    std::int64_t const by = row.stride[0][0];
    std::size_t const strip = bytes_of_neighbours(by, width);
    std::int64_t const strips = strip == 0 ? 0 : (bytes_ahead + strip - 1) / strip;
    for (std::int64_t pack = begin; pack < end; ++pack) {
      auto const at = row.place(pack);
      std::int64_t const ahead = pack + strips - end;
      if (ahead < 0)
        fetch_ahead(from + at.offset[0] + strips * strip, strip);
      else if (data.shape.rounds > 1 && ahead < end)
        fetch_ahead(from + next + ahead * strip, strip);
      values.take(data, from + at.offset[0], by, at.low, at.high);
    }
    values.fold(low, high);
  }
};

/// Reductions of columns by a core.
template <class Exec, class In, template <class> class Step, class A>
struct ReduceAcross {
  using Data = ReduceData<Exec, In, A>;
  Data const& data;

  KOKKOS_FORCEINLINE_FUNCTION void run(TeamMember<Exec> const& team) const {
    ReduceShape const& shape = data.shape;
    std::int64_t const part = team.league_rank() / shape.groups, group = team.league_rank() % shape.groups;
    std::int64_t const begin = part * shape.part_steps;
    std::int64_t const end = begin + shape.part_steps < data.steps ? begin + shape.part_steps : data.steps;
    for (int round = 0; round < shape.rounds; ++round) {
      std::int64_t const pack = group * shape.rounds + round;
      if (pack >= data.across.packs) return;
      Accumulators<Exec, In, Step, A> values;
      auto const at = data.across.place(pack);
      std::int64_t const by = data.across.stride[0][0];
      std::size_t const strip = bytes_of_neighbours(by, at.high);
      for (std::int64_t step = begin; step < end; ++step) {
        In const* const from = data.in + at.offset[0] + step * data.stride;
        if (step + strips_ahead < end) fetch_ahead(from + strips_ahead * data.stride, strip);
        values.take(data, from, by, at.low, at.high);
      }
      std::int64_t const first = at.offset[1] + part * shape.output_of_parts, stride = data.across.stride[1][0];
      data.out.store_many(first + at.low * stride, stride, values.value + at.low, at.high - at.low);
    }
  }
};

}  // namespace tessera::detail

#endif
