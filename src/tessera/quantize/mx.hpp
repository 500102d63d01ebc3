// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_MX_HPP
#define TESSERA_QUANTIZE_MX_HPP

#include <limits>
#include <type_traits>

#include <tessera/launch.hpp>
#include <tessera/quantize/eight_words.hpp>
#include <tessera/quantize/host_mx.hpp>
#include <tessera/quantize/mx_rows.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/warp.hpp>

namespace tessera::detail {

/// One index a block, any layout and types.
struct MxQuantizeBlocks {
  MxRows rows;

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    MxRows::Place const at = rows.place(index);
    std::int64_t const first = at.block * mx_block;
    int const count = rows.count(at);
    WideTypes::visit(rows.in.type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T const* const from = static_cast<T const*>(rows.in.data) + at.row * rows.in.row + first * rows.in.column;
      MagnitudeBits amax = 0;
      for (int j = 0; j < count; ++j) {
        MagnitudeBits const bits = magnitude_bits(static_cast<float>(from[j * rows.in.column]));
        amax = bits > amax ? bits : amax;
      }
      std::uint8_t const scale = mx_scale(amax, rows.quantized, rows.options.scale);
      rows.scale(at) = scale;
      float const factor = mx_factor(scale);
      TypeList<e4m3_t, e5m2_t>::visit(rows.quantized, [&](auto to_tag) {
        using To = typename decltype(to_tag)::type;
        To* const to =
            static_cast<To*>(const_cast<void*>(rows.out.data)) + at.row * rows.out.row + first * rows.out.column;
        for (int j = 0; j < count; ++j)
          to[j * rows.out.column] =
              rows.template rounded<To>(static_cast<float>(from[j * rows.in.column]) * factor, at.row, first + j);
      });
    });
  }
};

struct MxDequantizeBlocks {
  MxRows rows;

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    MxRows::Place const at = rows.place(index);
    std::int64_t const first = at.block * mx_block;
    int const count = rows.count(at);
    auto const scale = static_cast<float>(e8m0_t::from_bits(rows.scale(at)));
    TypeList<e4m3_t, e5m2_t>::visit(rows.quantized, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T const* const from = static_cast<T const*>(rows.in.data) + at.row * rows.in.row + first * rows.in.column;
      WideTypes::visit(rows.out.type, [&](auto to_tag) {
        using To = typename decltype(to_tag)::type;
        To* const to =
            static_cast<To*>(const_cast<void*>(rows.out.data)) + at.row * rows.out.row + first * rows.out.column;
        for (int j = 0; j < count; ++j)
          to[j * rows.out.column] = static_cast<To>(static_cast<float>(from[j * rows.in.column]) * scale);
      });
    });
  }
};

/// Whole blocks in packs of 8 elements on machines with warps: four lanes a block, `in_flight` packs of a thread on
/// their way at the same time.
template <class Exec, class T>
struct MxPacks {
  using Eight = EightWords<Exec, T>;
  using Atoms = WarpAtoms<Exec>;
  using Words = typename Eight::Words;
  using Values = typename Eight::Values;
  using Bytes = Pack<std::uint32_t, 2>;  // eight 8-bit numbers
  static constexpr int threads = 128, width = Eight::width, lanes = static_cast<int>(mx_block) / width;
  static constexpr int in_flight = sizeof(T) == 2 ? 4 : 2, registers = 64;
  static constexpr bool starts_early = true;

  MxRows rows;
  std::int64_t all;  // blocks
  bool gapless;      // block after block in both operands and among the scales

  std::int64_t teams() const {
    constexpr std::int64_t a_team = threads / lanes * in_flight;
    return (all + a_team - 1) / a_team;
  }

  /// Where a thread's pack of a block is, and the block's scale; elements from the operands' first ones on.
  struct Spot {
    std::int64_t index, in, out, scale;
  };
  /// f(spot of the thread's i-th pack, as a function; lane): found again whenever it is asked for, as spots that are
  /// kept take registers.
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void with_spots(int team, F const& f) const {
    int const thread = Atoms::thread(), lane = thread % lanes;
    std::int64_t const first = std::int64_t{team} * (threads / lanes * in_flight) + thread / lanes;
    auto const index_of = [&](int i) { return first + i * (threads / lanes); };
    if (gapless)
      f(
          [&](int i) {
            std::int64_t const index = index_of(i), at = index * mx_block + lane * width;
            return Spot{index, at, at, index};
          },
          lane);
    else
      f(
          [&](int i) {
            std::int64_t const index = index_of(i);
            MxRows::Place const at = rows.place(index < all ? index : all - 1);
            std::int64_t const column = at.block * mx_block + lane * width;
            return Spot{index, at.row * rows.in.row + column, at.row * rows.out.row + column,
                        at.row * rows.scale_row + at.block * rows.scale_column};
          },
          lane);
  }
  template <class Element>
  KOKKOS_FORCEINLINE_FUNCTION std::uint32_t const* in(Spot const& spot) const {
    return reinterpret_cast<std::uint32_t const*>(static_cast<Element const*>(rows.in.data) + spot.in);
  }
  template <class Element>
  KOKKOS_FORCEINLINE_FUNCTION std::uint32_t* out(Spot const& spot) const {
    return reinterpret_cast<std::uint32_t*>(static_cast<Element*>(const_cast<void*>(rows.out.data)) + spot.out);
  }
};

template <class Exec, class T, bool Draws>
struct PackedMxQuantize : MxPacks<Exec, T> {
  using Base = MxPacks<Exec, T>;
  using Base::all, Base::in_flight, Base::lanes, Base::rows, Base::width;
  using typename Base::Atoms, typename Base::Eight, typename Base::Spot, typename Base::Values, typename Base::Words;

  PhiloxKeys keys;

  explicit PackedMxQuantize(Base const& packs) : Base(packs), keys(rows.options.seed) {}

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    this->with_spots(team.league_rank(), [&](auto const& spot, int lane) { work(spot, lane); });
  }

 private:
  template <class SpotOf>
  KOKKOS_FORCEINLINE_FUNCTION void work(SpotOf const& spot, int lane) const {
    Words raw[in_flight] = {};
    unroll<in_flight>([&](auto i) {
      Spot const at = spot(i);
      if (at.index < all) raw[i] = load_pack<Eight::words>(this->template in<T>(at));
    });
    std::uint8_t scale[in_flight];
    unroll<in_flight>([&](auto i) {
      scale[i] = scale_of_block(raw[i]);
      Spot const at = spot(i);
      if (lane == 0 && at.index < all) rows.scales[at.scale] = scale[i];
    });
    TypeList<e4m3_t, e5m2_t>::visit(rows.quantized, [&](auto tag) {
      using To = typename decltype(tag)::type;
      unroll<in_flight>([&](auto i) {
        Spot const at = spot(i);
        if (at.index >= all) return;
        float const factor = mx_factor(scale[i]);
        Values x = Eight::elements(raw[i]);
        for (int j = 0; j < width; ++j) x[j] *= factor;
        if constexpr (Draws) draw<To>(at, lane, x);
        store_pack<2>(this->template out<To>(at), Atoms::template narrowed_words<To>(x));
      });
    });
  }
  KOKKOS_FORCEINLINE_FUNCTION std::uint8_t scale_of_block(Words const& raw) const {
    auto const larger = [](std::uint32_t a, std::uint32_t b) { return Atoms::template larger_magnitudes<T>(a, b); };
    std::uint32_t top = 0;
    unroll<Eight::words>([&](auto w) { top = larger(top, Atoms::template magnitudes<T>(raw[w])); });
    top = Atoms::template join<lanes>(top, larger);
    return mx_scale(Eight::magnitude_of(top), rows.quantized, rows.options.scale);
  }
  /// Each element as what it is rounded to stochastically. All eight share an evaluation of Philox.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void draw(Spot const& spot, int lane, Values& x) const {
    // Rows are whole blocks: block `index` begins `index` blocks into Philox's sequence.
    static_assert(width == 8);
    auto const group = static_cast<std::uint64_t>(spot.index * mx_block + lane * width) / width;
    PhiloxCounter const words = keys.words(rows.options.offset, group);
    unroll<width>([&](auto j) { x[j] = static_cast<float>(round_stochastically<To>(x[j], shared_word(words, j))); });
  }
};

template <class Exec, class T>
struct PackedMxDequantize : MxPacks<Exec, T> {
  using Base = MxPacks<Exec, T>;
  using Base::all, Base::in_flight, Base::rows;
  using typename Base::Atoms, typename Base::Bytes, typename Base::Eight, typename Base::Spot, typename Base::Words;

  explicit PackedMxDequantize(Base const& packs) : Base(packs) {}

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    this->with_spots(team.league_rank(), [&](auto const& spot, int) { work(spot); });
  }

 private:
  template <class SpotOf>
  KOKKOS_FORCEINLINE_FUNCTION void work(SpotOf const& spot) const {
    Bytes raw[in_flight] = {};
    std::uint8_t scale[in_flight] = {};
    unroll<in_flight>([&](auto i) {
      Spot const at = spot(i);
      if (at.index >= all) return;
      raw[i] = load_pack<2>(this->template in<std::uint8_t>(at));
      scale[i] = rows.scales[at.scale];
    });
    TypeList<e4m3_t, e5m2_t>::visit(rows.quantized, [&](auto tag) {
      using Four = Pack<typename decltype(tag)::type, 4>;
      unroll<in_flight>([&](auto i) {
        Spot const at = spot(i);
        if (at.index >= all) return;
        auto const factor = static_cast<float>(e8m0_t::from_bits(scale[i]));
        Words y;
        unroll<2>([&](auto half) {
          Pack<float, 4> const x = Atoms::widened(__builtin_bit_cast(Four, raw[i][half]));
          unroll<4>([&](auto j) { set<half * 4 + j>(y, x, factor); });
        });
        store_pack<Eight::words>(this->template out<T>(at), y);
      });
    });
  }
  /// Element J of eight, or that and the one behind it.
  template <int J>
  KOKKOS_FORCEINLINE_FUNCTION static void set(Words& y, Pack<float, 4> const& x, float factor) {
    if constexpr (sizeof(T) == 4)
      y[J] = __builtin_bit_cast(std::uint32_t, x[J % 4] * factor);
    else if constexpr (J % 2 == 0)
      y[J / 2] = __builtin_bit_cast(
          std::uint32_t, Atoms::template narrowed<T>(Pack<float, 2>{{x[J % 4] * factor, x[J % 4 + 1] * factor}}));
  }
};

/// Whether the problem was one of whole blocks in packs, and has been started.
template <class Exec>
bool start_packed_mx(char const* label, Exec const& exec, MxProblem const& problem, MxRows rows, bool quantizes) {
  bool started = false;
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available) {
    Scalar const type = quantizes ? problem.in.type : problem.out.type;
    if (type == Scalar::fp64 || rows.columns % mx_block != 0) return false;
    TileGrid const grid = row_grid(problem.in);
    rows.in = operand(problem.in, grid, 8, true);
    rows.out = operand(problem.out, grid, 8, true);
    if (!rows.in.packed || !rows.out.packed) return false;
    std::int64_t const height = problem.in.extent[2];
    bool const gapless =
        rows.scale_column == 1 &&
        (height == 1 || (rows.in.row == rows.columns && rows.out.row == rows.columns && rows.scale_row == rows.blocks));
    TypeList<bf16_t, fp16_t, float>::visit_on_host(type, [&](auto tag) {
      using Space = KernelSpace<Exec>;
      using T = typename decltype(tag)::type;
      using Packs = MxPacks<Space, T>;
      Packs const packs{rows, height * rows.blocks, gapless};
      auto const start = [&](auto const& kernel) {
        launch<Packs::threads, 65536 / Packs::registers / Packs::threads>(label, exec, packs.teams(), 0, kernel);
      };
      if (!quantizes)
        start(PackedMxDequantize<Space, T>(packs));
      else if (rows.options.stochastic)
        start(PackedMxQuantize<Space, T, true>(packs));
      else
        start(PackedMxQuantize<Space, T, false>(packs));
      started = true;
    });
  }
  return started;
}

inline MxRows mx_rows(MxProblem const& problem) {
  auto const plain = [](RowArray const& a) {
    return Operand{a.data, a.type, false, a.stride[0], a.stride[1], a.stride[2], a.stride[3]};
  };
  std::int64_t const columns = problem.in.extent[3], blocks = (columns + mx_block - 1) / mx_block;
  return {plain(problem.out),
          plain(problem.in),
          problem.scales,
          problem.scale_row,
          problem.scale_column,
          columns,
          blocks,
          Divisor(blocks),
          problem.in.extent[2] * blocks <= std::numeric_limits<std::int32_t>::max(),
          problem.quantized,
          problem.options};
}

template <class Exec>
void run_mx_quantize(Exec const& exec, MxProblem const& problem) {
  constexpr char const* label = "tessera::mx_quantize";
  MxRows const rows = mx_rows(problem);
  if constexpr (Machine<Exec>::is_host)
    start_host_mx<HostMxQuantize>(label, exec, problem, rows, StripNarrowing(problem.in.type, problem.out.type));
  else if (!start_packed_mx(label, exec, problem, rows, true))
    for_each_index(label, exec, problem.in.extent[2] * rows.blocks, MxQuantizeBlocks{rows});
}

template <class Exec>
void run_mx_dequantize(Exec const& exec, MxProblem const& problem) {
  constexpr char const* label = "tessera::mx_dequantize";
  MxRows const rows = mx_rows(problem);
  if constexpr (Machine<Exec>::is_host)
    start_host_mx<HostMxDequantize>(label, exec, problem, rows, StripProduct(problem.in.type, problem.out.type));
  else if (!start_packed_mx(label, exec, problem, rows, false))
    for_each_index(label, exec, problem.in.extent[2] * rows.blocks, MxDequantizeBlocks{rows});
}

}  // namespace tessera::detail

#endif
