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

/// How many strips before it is read one is fetched: the memory works while a strip is, and processors foresee neither
/// the next page nor the next row.
inline constexpr int strips_ahead = 4;

/// Width accumulators of a core: a strip of the first-level cache that loops vectorise over.
template <class Exec, class In, template <class> class Step, class A>
struct Accumulators {
  static constexpr int width = reduce_width<Exec, In>;

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
  /// All into one, in halves.
  KOKKOS_FORCEINLINE_FUNCTION A fold() {
    static_assert(is_power_of_two(width));
    for (int half = width / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) value[j] = Step<A>::combine(value[j], value[j + half]);
    return value[0];
  }
};

/// Reductions along rows by a core.
template <class Exec, class In, template <class> class Step, class A>
struct ReduceAlong {
  using Data = ReduceData<Exec, In, A>;
  static constexpr int width = Data::width;
  Data const& data;

  KOKKOS_FORCEINLINE_FUNCTION void run(TeamMember<Exec> const& team) const {
    ReduceShape const& shape = data.shape;
    std::int64_t const part = team.league_rank() / shape.groups, group = team.league_rank() % shape.groups;
    for (int round = 0; round < shape.rounds; ++round) {
      std::int64_t const output = group * shape.rounds + round;
      if (output >= data.outputs.packs) return;
      A const value = reduce_row(output, part);
      data.out.store_many(data.outputs.place(output).offset[1] + part * shape.output_of_parts, 0, &value, 1);
    }
  }

  KOKKOS_FORCEINLINE_FUNCTION A reduce_row(std::int64_t output, std::int64_t part) const {
    auto const& row = data.row;
    In const* const from = data.in + data.outputs.place(output).offset[0];
    if (row.packs == 1) return short_row(from);
    Accumulators<Exec, In, Step, A> values;
    std::int64_t const begin = part * data.shape.part_steps;
    std::int64_t const end = begin + data.shape.part_steps < row.packs ? begin + data.shape.part_steps : row.packs;
    std::int64_t const by = row.stride[0][0];
    std::size_t const strip = bytes_of_neighbours(by, width);
    for (std::int64_t pack = begin; pack < end; ++pack) {
      auto const at = row.place(pack);
      if (pack + strips_ahead < end) fetch_ahead(from + at.offset[0] + strips_ahead * strip, strip);
      values.take(data, from + at.offset[0], by, at.low, at.high);
    }
    return values.fold();
  }

  /// A row of at most a pack needs few accumulators.
  KOKKOS_FORCEINLINE_FUNCTION A short_row(In const* from) const {
    constexpr int few = 16;
    A value[few];
    for (int j = 0; j < few; ++j) value[j] = Step<A>::identity;
    int const n = static_cast<int>(data.row.inner);
    data.read.template with_strip<width>(from, data.row.stride[0][0], n, [&](auto const* strip) TESSERA_INLINE_LAMBDA {
      int i = 0;
      for (; i + few <= n; i += few)
        for (int j = 0; j < few; ++j) value[j] = Step<A>::take(value[j], static_cast<A>(strip[i + j]));
      for (int j = 0; i + j < n; ++j) value[j] = Step<A>::take(value[j], static_cast<A>(strip[i + j]));
    });
    for (int half = few / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) value[j] = Step<A>::combine(value[j], value[j + half]);
    return value[0];
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
