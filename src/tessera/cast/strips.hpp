// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CAST_STRIPS_HPP
#define TESSERA_CAST_STRIPS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#include <tessera/cast/convert.hpp>
#include <tessera/element/dimensions.hpp>
#include <tessera/streaming.hpp>
#include <tessera/strip_rounding.hpp>

// Casts on a CPU: strips are widened into an array in the first-level cache and rounded from there. Both halves are
// behind pointers, so that there is one loop for each type and not one for each pair of types. Where one of the two
// types is the wide one itself, its elements are read or written where they lie.
namespace tessera::detail {

template <class Through>
using ReadStrip = void (*)(void const* from, std::int64_t at, std::int64_t by, int n, Through* to);
template <class Through>
using WriteStrip = void (*)(Through const* from, int n, void* to, std::int64_t at, std::int64_t by);

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
  if (by == 1) {
    // Two strips ahead, as the memory would idle while this one is rounded.
    fetch_ahead(reinterpret_cast<char const*>(from) + 2 * static_cast<std::size_t>(n) * sizeof(In),
                static_cast<std::size_t>(n) * sizeof(In));
    for (int i = 0; i < n; ++i) to[i] = widened(from[i]);
  } else {
    for (int i = 0; i < n; ++i) to[i] = widened(from[i * by]);
  }
}

/// Is there an element among `n` that a cast to a wider type does not keep as widening gives it: NaN, which becomes
/// canonical, or infinity to be saturated?
template <class In, bool Saturate>
bool any_special(In const* from, int n) {
  using Format = FloatFormat<In>;
  int special = 0;
  for (int i = 0; i < n; ++i)
    special |= (pattern_of(from[i]) & Format::nan_bits) > (Saturate ? Format::max_bits : Format::last_bits);
  return special != 0;
}

/// to[i] = element at + i * by of `data`, as a cast to Through leaves it.
template <class Through, class In, bool Saturate>
void widen_cast_strip(void const* data, std::int64_t at, std::int64_t by, int n, Through* KOKKOS_RESTRICT to) {
  In const* const from = static_cast<In const*>(data) + at;
  constexpr auto overflow = cast_overflow<Through>(Saturate);
  // Nearly always there is none, and looking costs less than selecting.
  if (by == 1 && !any_special<In, Saturate>(from, n))
    read_cast_strip<Through, In>(data, at, 1, n, to);
  else
    for (int i = 0; i < n; ++i) to[i] = convert<Through>(from[i * by], overflow);
}

/// Element at + i * by of `data` becomes from[i], rounded.
template <class Through, class Out, bool Saturate>
void write_cast_strip(Through const* KOKKOS_RESTRICT from, int n, void* data, std::int64_t at, std::int64_t by) {
  Out* const to = static_cast<Out*>(data) + at;
  constexpr auto overflow = cast_overflow<Out>(Saturate);
  if constexpr (std::is_same_v<Through, float>)
    if (RoundStrip const round = strip_rounding<Out>(Saturate); round != nullptr && by == 1) return round(from, n, to);
  if (by == 1)
    for (int i = 0; i < n; ++i) to[i] = from_pattern<Out>(round_bits<Out>(from[i], overflow));
  else
    for (int i = 0; i < n; ++i) to[i * by] = from_pattern<Out>(round_bits<Out>(from[i], overflow));
}

template <class Through>
struct CastStrips {
  static constexpr int strip = 1024;  // elements that stay in the first-level cache
  // Of an index of the launch: a core that streams waits for its stores behind each, which behind every strip would
  // take a fifth of the time.
  static constexpr int width = 8 * strip;

  ReadStrip<Through> widen;  // from input to output in one pass; if there is none,
  ReadStrip<Through> read;   // into a strip, from where `write` rounds; none: `write` takes the input where it lies
  WriteStrip<Through> write;
  void* out;
  void const* in;
  PackSpace<2, width> space;
  std::int64_t streamed = 0;  // bytes of an element of the output, which goes past the caches; 0: it does not

  KOKKOS_FUNCTION void operator()(std::int64_t pack) const {
    auto const at = space.place(pack);
    std::int64_t const out_by = space.stride[0][0], in_by = space.stride[1][0];
    std::int64_t const out_at = at.offset[0] + at.low * out_by, in_at = at.offset[1] + at.low * in_by;
    for (int done = 0, all = at.high - at.low; done < all; done += strip) {
      int const n = all - done < strip ? all - done : strip;
      if (streamed == 0)
        convert_strip(in_at + done * in_by, in_by, n, out, out_at + done * out_by, out_by);
      else
        stream_strip(in_at + done * in_by, in_by, n, out_at + done);
    }
    if (streamed != 0) streaming_done();
  }

 private:
  KOKKOS_FUNCTION void stream_strip(std::int64_t in_at, std::int64_t in_by, int n, std::int64_t out_at) const {
    alignas(line_of_memory) Through room[strip];  // for elements of at most this size
    convert_strip(in_at, in_by, n, room, 0, 1);
    stream(static_cast<char*>(out) + out_at * streamed, room, static_cast<std::size_t>(n * streamed));
  }

  KOKKOS_FUNCTION void convert_strip(std::int64_t in_at, std::int64_t in_by, int n, void* to, std::int64_t to_at,
                                     std::int64_t to_by) const {
    if (widen != nullptr) {
      widen(in, in_at, in_by, n, static_cast<Through*>(to) + to_at);
    } else if (read == nullptr) {
      write(static_cast<Through const*>(in) + in_at, n, to, to_at, to_by);
    } else {
      Through wide[strip];  // (strip)
      read(in, in_at, in_by, n, wide);
      write(wide, n, to, to_at, to_by);
    }
  }
};

}  // namespace tessera::detail

#endif
