// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_HOST_MX_HPP
#define TESSERA_QUANTIZE_HOST_MX_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/element/draws.hpp>
#include <tessera/quantize/host_strips.hpp>
#include <tessera/quantize/mx_rows.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/unroll.hpp>

// Blocks of microscaling on a CPU, a strip of a row at a time.
namespace tessera::detail {

inline constexpr int mx_shift = 5, host_mx_blocks = host_strip >> mx_shift;
static_assert(mx_block == 1 << mx_shift);

/// f(row, first column, columns) for the strips of a team.
template <class F>
KOKKOS_FORCEINLINE_FUNCTION void for_mx_strips(HostSegments const& segments, int team, F const& f) {
  segments.of_team(team, [&](std::int64_t row, std::int64_t first, std::int64_t count) TESSERA_INLINE_LAMBDA {
    for_strips(first, count, [&](std::int64_t at, int n) TESSERA_INLINE_LAMBDA { f(row, at, n); });
  });
}

struct HostMxQuantize {
  static constexpr bool vectorises = true;
  MxRows rows;
  StripNarrowing narrow;
  HostSegments segments;

  KOKKOS_FUNCTION void operator()(HostTeam const& team) const {
    for_mx_strips(segments, team.league_rank(), [&](std::int64_t row, std::int64_t first, int n) TESSERA_INLINE_LAMBDA {
      float room[host_strip];
      with_strip(rows.in, row, first, n, room, [&](auto const* x) TESSERA_INLINE_LAMBDA {
        fill_strip<1>(rows.out, row, first, n,
                      [&](unsigned char* y) TESSERA_INLINE_LAMBDA { work(row, first, n, x, y); });
      });
    });
    streaming_done();
  }

 private:
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void work(std::int64_t row, std::int64_t first, int n, T const* x,
                                        unsigned char* y) const {
    constexpr int size = 1 << mx_shift;
    float factors[host_mx_blocks];
    int blocks = 0;
    for (int i = 0; i < n; i += size, ++blocks) {
      MagnitudeBits const top = n - i >= size ? largest_magnitude(x + i, size) : largest_magnitude(x + i, n - i);
      std::uint8_t const scale = mx_scale(top, rows.quantized, rows.options.scale);
      rows.scale({row, (first + i) >> mx_shift}) = scale;
      factors[blocks] = mx_factor(scale);
    }
    if (!rows.options.stochastic) return narrow(x, n, factors, mx_shift, y);
    for (int i = 0, block = 0; i < n; i += size, ++block) {
      int const count = n - i < size ? n - i : size;
      SharedDraws<size> draws;
      std::uint32_t const* const words =
          draws(rows.options.seed, rows.options.offset, rows.index(row, first + i), count);
      float products[size];
      for (int j = 0; j < count; ++j) products[j] = static_cast<float>(x[i + j]) * factors[block];
      TypeList<e4m3_t, e5m2_t>::visit(rows.quantized, [&](auto tag) TESSERA_INLINE_LAMBDA {
        using To = typename decltype(tag)::type;
        for (int j = 0; j < count; ++j) y[i + j] = round_stochastically<To>(products[j], words[j]).bits();
      });
    }
  }
};

struct HostMxDequantize {
  static constexpr bool vectorises = true;
  MxRows rows;
  StripProduct multiply;
  HostSegments segments;

  KOKKOS_FUNCTION void operator()(HostTeam const& team) const {
    WideTypes::visit(rows.out.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using Out = typename decltype(tag)::type;
      for_mx_strips(
          segments, team.league_rank(), [&](std::int64_t row, std::int64_t first, int n) TESSERA_INLINE_LAMBDA {
            float factors[host_mx_blocks];
            for (int block = 0; block << mx_shift < n; ++block)
              factors[block] = static_cast<float>(e8m0_t::from_bits(rows.scale({row, (first >> mx_shift) + block})));
            multiply.template widen<Out>(rows.in, rows.out, row, first, n, factors, mx_shift);
          });
    });
    streaming_done();
  }
};

/// Starts one of the two, with what it has beside the rows and how these are dealt out.
template <class Kernel, class Exec, class Conversion>
void start_host_mx(char const* label, Exec const& exec, MxProblem const& problem, MxRows const& rows,
                   Conversion const& conversion) {
  TileGrid const grid = row_grid(problem.in);
  Kernel kernel{rows, conversion, HostSegments(grid.rows, grid.columns, false)};
  kernel.rows.out.streamed = operand(problem.out, grid, 1, false).packed && may_stream(problem.out, grid, problem.in);
  launch<32>(label, exec, kernel.segments.teams(), 0, kernel);
}

}  // namespace tessera::detail

#endif
