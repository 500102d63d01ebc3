// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_REDUCE_SHORT_ROWS_HPP
#define TESSERA_ELEMENT_REDUCE_SHORT_ROWS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/element/reduce.hpp>
#include <tessera/launch.hpp>
#include <tessera/unroll.hpp>
#include <tessera/warp.hpp>

namespace tessera::detail {

/// Rows of up to Lanes * Packs whole packs: Lanes neighbours share each of `Rows` rows, all of which is on its way at
/// once.
template <int Lanes, int Packs, int Rows>
struct ShortRowShape {
  static constexpr int lanes = Lanes, packs = Packs, rows = Rows;
};
inline constexpr std::int64_t longest_short_row = 256;  // packs

/// f(Shape{}) for rows of so many packs.
template <class F>
void with_short_row_shape(std::int64_t packs, F const& f) {
  if (packs <= 8)
    f(ShortRowShape<4, 2, 2>{});
  else if (packs <= 16)
    f(ShortRowShape<8, 2, 2>{});
  else if (packs <= 32)
    f(ShortRowShape<16, 2, 2>{});
  else if (packs <= 64)
    f(ShortRowShape<16, 4, 1>{});
  else if (packs <= 128)
    f(ShortRowShape<32, 4, 1>{});
  else
    f(ShortRowShape<32, 8, 1>{});
}

/// Those of a launch, by teams of `threads`.
template <class Exec, class T, class Shape>
struct ShortRows {
  static constexpr int lanes = Shape::lanes, packs_of_lane = Shape::packs;
  static constexpr int threads = 128, width = common_pack_size<T>(), rows_at_once = threads / lanes,
                       rows_a_team = rows_at_once * Shape::rows;
  using Atoms = WarpAtoms<Exec>;
  using Bits = PackBits<T, width>;
  using Packs = Bits[packs_of_lane];

  T const* in;
  std::int64_t stride;  // elements between rows
  int rows, packs;

  std::int64_t teams() const { return (std::int64_t{rows} + rows_a_team - 1) / rows_a_team; }
  KOKKOS_FORCEINLINE_FUNCTION static int lane() { return Atoms::thread() % lanes; }
  /// Whether this thread stores the result of a row.
  KOKKOS_FORCEINLINE_FUNCTION bool stores(int row) const { return row < rows && lane() == 0; }

  /// f(row, packs) for this thread's packs of the team's rows, `beyond` throughout where there are none.
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void each_row(TeamMember<Exec> const& team, T beyond, F const& f) const {
    int const first = team.league_rank() * rows_a_team + Atoms::thread() / lanes;
    Packs bits[Shape::rows];
    unroll<Shape::rows>([&](auto r) {
      int const row = first + r * rows_at_once;
      T const* const from = in + row * stride + lane() * width;
      unroll<packs_of_lane>([&](auto p) {
        bits[r][p] = Bits::filled(beyond);
        if (row < rows && p * lanes + lane() < packs)
          bits[r][p] = *reinterpret_cast<Bits const*>(from + p * (lanes * width));
      });
    });
    unroll<Shape::rows>([&](auto r) TESSERA_INLINE_LAMBDA { f(first + r * rows_at_once, bits[r]); });
  }

  /// Over values(pack), a pack of floats, of all packs of a row.
  template <template <class> class Step, class Values>
  KOKKOS_FORCEINLINE_FUNCTION static float reduced(Packs const& bits, Values const& values) {
    using S = Step<float>;
    Pack<float, width> value;
    unroll<width>([&](auto j) { value[j] = S::identity; });
    unroll<packs_of_lane>([&](auto p) {
      auto const x = values(bits[p]);
      unroll<width>([&](auto j) { value[j] = p == 0 ? S::first(x[j]) : S::take(value[j], x[j]); });
    });
    for (int half = width / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) value[j] = S::combine(value[j], value[j + half]);
    return Atoms::template join<lanes>(value[0],
                                       [](float a, float b) TESSERA_INLINE_LAMBDA { return S::combine(a, b); });
  }
};

/// Reductions of such rows, in fp32. They take some microseconds, in which every multiprocessor fetches the kernel's
/// text anew, so that there is one for each kind of step.
template <class Exec, class In, template <class> class Step, class Shape>
struct ReduceShortRows {
  using Rows = ShortRows<Exec, In, Shape>;
  static constexpr bool starts_early = true;

  Rows rows;
  void* out;
  std::int64_t out_stride;    // elements between results
  float count;                // what results are divided by, or 0
  bool negates, is_own_type;  // results are In, or else fp32

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    rows.each_row(team, In(Step<float>::nothing), [&](int row, auto const& packs) TESSERA_INLINE_LAMBDA {
      float const result = Rows::template reduced<Step>(
          packs, [](auto const& bits) TESSERA_INLINE_LAMBDA { return Rows::Atoms::widened(bits.pack()); });
      if (rows.stores(row)) store(row, result);
    });
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION void store(int row, float x) const {
    if (count != 0) x /= count;
    if (negates) x = -x;
    if (is_own_type)
      static_cast<In*>(out)[row * out_stride] = round_to<In>(x);
    else
      static_cast<float*>(out)[row * out_stride] = x;
  }
};

template <class In>
inline constexpr bool is_short_row_type =
    std::is_same_v<In, float> || std::is_same_v<In, fp16_t> || std::is_same_v<In, bf16_t>;

/// Starts such a kernel over `rows` rows, if they are short and results are of a type that it has.
template <class Exec, class In>
bool start_short_rows(char const* label, Exec const& exec, In const* in, std::int64_t rows, std::int64_t packs,
                      std::int64_t stride, std::int64_t out_stride, StepKind step, ReduceOutput const& out) {
  bool const is_own_type = out.type == scalar_of<In> && !std::is_same_v<In, float>;
  if (!(is_own_type || out.type == Scalar::fp32) || out.closing == Closing::root) return false;
  if (packs > longest_short_row || rows > std::numeric_limits<int>::max() - 256) return false;
  with_step<In, float>(step, [&]<template <class> class Step>() {
    with_short_row_shape(packs, [&](auto shape) {
      using Kernel = ReduceShortRows<KernelSpace<Exec>, In, Step, decltype(shape)>;
      Kernel const kernel{{in, stride, static_cast<int>(rows), static_cast<int>(packs)},
                          out.data,
                          out_stride,
                          out.closing == Closing::divide ? static_cast<float>(out.count) : 0.0f,
                          out.closing == Closing::negate,
                          is_own_type};
      launch<Kernel::Rows::threads, 12>(KernelLabel{label, "along short rows of whole packs"}, exec,
                                        kernel.rows.teams(), 0, kernel);
    });
  });
  return true;
}

}  // namespace tessera::detail

#endif
