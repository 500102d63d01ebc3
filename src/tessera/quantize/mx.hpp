// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_MX_HPP
#define TESSERA_QUANTIZE_MX_HPP

#include <limits>
#include <type_traits>

#include <tessera/launch.hpp>
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

/// Whole blocks in packs of 8 elements on machines with warps: four lanes a block, `in_flight` blocks of each on their
/// way at the same time.
template <class Exec, class T>
struct PackedMx {
  static constexpr int threads = 128, width = 8, lanes = static_cast<int>(mx_block) / width;
  static constexpr int in_flight = 2, registers = 64;
  static constexpr bool starts_early = true;
  using Atoms = WarpAtoms<Exec>;

  MxRows rows;
  std::int64_t all;  // blocks
  bool quantizes;

  std::int64_t teams() const {
    constexpr std::int64_t a_team = threads / lanes * in_flight;
    return (all + a_team - 1) / a_team;
  }

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    int const thread = Atoms::thread(), lane = thread % lanes;
    std::int64_t const first = std::int64_t{team.league_rank()} * (threads / lanes * in_flight) + thread / lanes;
    auto const index = [&](int i) { return first + i * (threads / lanes); };
    if (quantizes)
      quantize(index, lane);
    else
      dequantize(index, lane);
  }

 private:
  template <class Index>
  KOKKOS_FORCEINLINE_FUNCTION void quantize(Index const& index, int lane) const {
    Pack<T, width> raw[in_flight];
    unroll<in_flight>([&](auto i) {
      for (int j = 0; j < width; ++j) raw[i][j] = T(0.0f);
      if (index(i) >= all) return;
      MxRows::Place const at = rows.place(index(i));
      raw[i] = load_pack<width>(static_cast<T const*>(rows.in.data) + at.row * rows.in.row + at.block * mx_block +
                                lane * width);
    });
    unroll<in_flight>([&](auto i) {
      Pack<T, width> const mine[1] = {raw[i]};
      MagnitudeBits const amax = Atoms::template join<lanes>(
          Atoms::largest_magnitude(mine), [](MagnitudeBits a, MagnitudeBits b) { return b > a ? b : a; });
      if (index(i) >= all) return;
      MxRows::Place const at = rows.place(index(i));
      std::uint8_t const scale = mx_scale(amax, rows.quantized, rows.options.scale);
      if (lane == 0) rows.scale(at) = scale;
      float const factor = mx_factor(scale);
      Pack<float, width> x = Atoms::widened(raw[i]);
      for (int j = 0; j < width; ++j) x[j] *= factor;
      std::int64_t const column = at.block * mx_block + lane * width;
      TypeList<e4m3_t, e5m2_t>::visit(rows.quantized, [&](auto tag) {
        using To = typename decltype(tag)::type;
        To* const to = static_cast<To*>(const_cast<void*>(rows.out.data)) + at.row * rows.out.row + column;
        if (rows.options.stochastic) {
          Pack<To, width> y;
          unroll<width>([&](auto j) { y[j] = rows.template rounded<To>(x[j], at.row, column + j); });
          store_pack<width>(to, y);
        } else {
          store_pack<width>(to, Atoms::template narrowed<To>(x));
        }
      });
    });
  }

  template <class Index>
  KOKKOS_FORCEINLINE_FUNCTION void dequantize(Index const& index, int lane) const {
    unroll<in_flight>([&](auto i) {
      if (index(i) >= all) return;
      MxRows::Place const at = rows.place(index(i));
      auto const scale = static_cast<float>(e8m0_t::from_bits(rows.scale(at)));
      std::int64_t const column = at.block * mx_block + lane * width;
      TypeList<e4m3_t, e5m2_t>::visit(rows.quantized, [&](auto tag) {
        using From = typename decltype(tag)::type;
        Pack<float, width> x =
            Atoms::widened(load_pack<width>(static_cast<From const*>(rows.in.data) + at.row * rows.in.row + column));
        for (int j = 0; j < width; ++j) x[j] *= scale;
        T* const to = static_cast<T*>(const_cast<void*>(rows.out.data)) + at.row * rows.out.row + column;
        store_pack<width>(to, Atoms::template narrowed<T>(x));
      });
    });
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
    TypeList<bf16_t, fp16_t, float>::visit_on_host(type, [&](auto tag) {
      using Kernel = PackedMx<KernelSpace<Exec>, typename decltype(tag)::type>;
      Kernel const kernel{rows, problem.in.extent[2] * rows.blocks, quantizes};
      launch<Kernel::threads, 65536 / Kernel::registers / Kernel::threads>(label, exec, kernel.teams(), 0, kernel);
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
  if (!start_packed_mx(label, exec, problem, rows, true))
    for_each_index(label, exec, problem.in.extent[2] * rows.blocks,
                   std::conditional_t<Machine<Exec>::is_host, HostMxQuantize, MxQuantizeBlocks>{rows});
}

template <class Exec>
void run_mx_dequantize(Exec const& exec, MxProblem const& problem) {
  constexpr char const* label = "tessera::mx_dequantize";
  MxRows const rows = mx_rows(problem);
  if (!start_packed_mx(label, exec, problem, rows, false))
    for_each_index(label, exec, problem.in.extent[2] * rows.blocks,
                   std::conditional_t<Machine<Exec>::is_host, HostMxDequantize, MxDequantizeBlocks>{rows});
}

}  // namespace tessera::detail

#endif
