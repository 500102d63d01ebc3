// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CAST_STRIPS_HPP
#define TESSERA_CAST_STRIPS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#include <tessera/cast/convert.hpp>
#include <tessera/element/dimensions.hpp>

// Casts on a CPU: strips are widened into an array in the first-level cache and rounded from there. Both halves are
// behind pointers, so that there is one loop for each type and not one for each pair of types.
namespace tessera::detail {

template <class Through>
using ReadStrip = void (*)(void const* from, std::int64_t at, std::int64_t by, int n, Through* to);
template <class Through>
using WriteStrip = void (*)(Through const* from, int n, bool saturate, void* to, std::int64_t at, std::int64_t by);

/// to[i] = element at + i * by of `from`.
template <class Through, class In>
void read_cast_strip(void const* data, std::int64_t at, std::int64_t by, int n, Through* KOKKOS_RESTRICT to) {
  In const* const from = static_cast<In const*>(data) + at;
  auto const widened = [](In x) {
    if constexpr (std::is_same_v<In, Through>)
      return x;
    else
      return widen_bits<Through, In>(pattern_of(x));
  };
  if (by == 1)
    for (int i = 0; i < n; ++i) to[i] = widened(from[i]);
  else
    for (int i = 0; i < n; ++i) to[i] = widened(from[i * by]);
}

/// Element at + i * by of `data` becomes from[i], rounded.
template <class Through, class Out>
void write_cast_strip(Through const* KOKKOS_RESTRICT from, int n, bool saturate, void* data, std::int64_t at,
                      std::int64_t by) {
  Out* const to = static_cast<Out*>(data) + at;
  auto const overflow = cast_overflow<Out>(saturate);
  if (by == 1)
    for (int i = 0; i < n; ++i) to[i] = from_pattern<Out>(round_bits<Out>(from[i], overflow));
  else
    for (int i = 0; i < n; ++i) to[i * by] = from_pattern<Out>(round_bits<Out>(from[i], overflow));
}

template <class Through>
struct CastStrips {
  static constexpr int width = 1024;  // elements of an index of the launch

  ReadStrip<Through> read;
  WriteStrip<Through> write;
  void* out;
  void const* in;
  bool saturate;
  PackSpace<2, width> space;

  KOKKOS_FUNCTION void operator()(std::int64_t pack) const {
    auto const at = space.place(pack);
    std::int64_t const out_by = space.stride[0][0], in_by = space.stride[1][0];
    Through strip[width];  // (width)
    int const n = at.high - at.low;
    read(in, at.offset[1] + at.low * in_by, in_by, n, strip);
    write(strip, n, saturate, out, at.offset[0] + at.low * out_by, out_by);
  }
};

}  // namespace tessera::detail

#endif
