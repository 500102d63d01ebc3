// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_HOST_LINES_HPP
#define TESSERA_QUANTIZE_HOST_LINES_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/quantize/host_strips.hpp>
#include <tessera/quantize/rounding.hpp>

// Rows on a CPU whose scales are given or found along them.
namespace tessera::detail {

inline constexpr int host_tile_shift = 7;
static_assert(quantized_tile == 1 << host_tile_shift && host_strip % quantized_tile == 0);

/// Of a strip.
using StripScales = Divisors<(host_strip >> host_tile_shift)>;

enum class LineScales : std::uint8_t { given, of_rows, of_tiles };

struct HostQuantizeLines {
  static constexpr bool vectorises = true;

  Operand out, in;  // the output may be absent
  ScaleMap scales;
  LineScales which;
  float* amax;  // may be absent
  float largest;
  StripDivision divide;
  HostSegments segments;

  KOKKOS_FUNCTION void operator()(HostTeam const& team) const {
    MagnitudeBits top = 0;
    segments.of_team(team.league_rank(), [&](std::int64_t row, std::int64_t first, std::int64_t count)
                                             TESSERA_INLINE_LAMBDA { work(row, first, count, top); });
    if (amax != nullptr) raise(amax, canonical(top));
    streaming_done();
  }

 private:
  /// f(first, n, x) for the strips of a segment.
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void with_strips(std::int64_t row, std::int64_t first, std::int64_t count,
                                               F const& f) const {
    float room[host_strip];
    for_strips(first, count, [&](std::int64_t at, int n) TESSERA_INLINE_LAMBDA {
      with_strip(in, row, at, n, room, [&](auto const* x) TESSERA_INLINE_LAMBDA { f(at, n, x); });
    });
  }

  KOKKOS_FORCEINLINE_FUNCTION void work(std::int64_t row, std::int64_t first, std::int64_t count,
                                        MagnitudeBits& top) const {
    StripScales by;
    if (which == LineScales::of_rows) {
      MagnitudeBits row_top = 0;
      with_strips(row, first, count, [&](std::int64_t, int n, auto const* x) TESSERA_INLINE_LAMBDA {
        MagnitudeBits const bits = largest_magnitude(x, n);
        row_top = bits > row_top ? bits : row_top;
      });
      top = row_top > top ? row_top : top;
      scales(row, 0) = scale_of(canonical(row_top), largest);
      if (!out.present()) return;
    }
    with_strips(row, first, count, [&](std::int64_t at, int n, auto const* x) TESSERA_INLINE_LAMBDA {
      prepare(row, at, n, x, by, top);
      fill_strip<1>(out, row, at, n,
                    [&](unsigned char* y) TESSERA_INLINE_LAMBDA { divide(x, n, by, 0, host_tile_shift, y); });
    });
  }

  /// Finds the scales of a strip, or reads them.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void prepare(std::int64_t row, std::int64_t at, int n, T const* x, StripScales& by,
                                           MagnitudeBits& top) const {
    constexpr int tile = 1 << host_tile_shift, most = host_strip >> host_tile_shift;
    bool const found = which == LineScales::of_tiles;
    MagnitudeBits tops[most] = {};
    if (found || (which == LineScales::given && amax != nullptr))
      for (int i = 0; i < n; i += tile) {
        MagnitudeBits const bits = n - i >= tile ? largest_magnitude(x + i, tile) : largest_magnitude(x + i, n - i);
        top = bits > top ? bits : top;
        tops[i >> host_tile_shift] = bits;
      }
    find_scales_of(tops, most, largest, by.divisor);  // for tiles that are not there, 1
    for (int i = 0; i < n; i += tile) {
      float& scale = scales(row, at + i);
      if (found)
        scale = by.divisor[i >> host_tile_shift];
      else
        by.divisor[i >> host_tile_shift] = scale;
    }
    by.prepare(most);
  }
};

struct HostDequantizeLines {
  static constexpr bool vectorises = true;

  Operand out, in;
  ScaleMap scales;
  StripProduct multiply;
  HostSegments segments;

  KOKKOS_FUNCTION void operator()(HostTeam const& team) const {
    WideTypes::visit(out.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using Out = typename decltype(tag)::type;
      segments.of_team(team.league_rank(), [&](std::int64_t row, std::int64_t first, std::int64_t count)
                                               TESSERA_INLINE_LAMBDA { work<Out>(row, first, count); });
    });
    streaming_done();
  }

 private:
  template <class Out>
  KOKKOS_FORCEINLINE_FUNCTION void work(std::int64_t row, std::int64_t first, std::int64_t count) const {
    for_strips(first, count, [&](std::int64_t at, int n) TESSERA_INLINE_LAMBDA {
      float factors[host_strip >> host_tile_shift];
      for (int tile = 0; tile << host_tile_shift < n; ++tile)
        factors[tile] = scales(row, at + (tile << host_tile_shift));
      multiply.template widen<Out>(in, out, row, at, n, factors, host_tile_shift);
    });
  }
};

}  // namespace tessera::detail

#endif
