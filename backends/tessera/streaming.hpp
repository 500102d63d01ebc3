// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_STREAMING_HPP
#define TESSERA_STREAMING_HPP

#include <Kokkos_Macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/vector_units.hpp>

#if defined(__x86_64__) && !defined(__CUDACC__)
#include <emmintrin.h>
#endif

// Stores of a CPU that go past the caches: the lines of a result that is larger than those are not read before they are
// written, which is a third of the traffic of a copy.
namespace tessera::detail {

inline constexpr int line_of_memory = 64;

/// Whether results are to be streamed by a kernel that reads and writes so many bytes, no two of which are the same.
inline bool worth_streaming(std::int64_t bytes) {
#if defined(__x86_64__) && !defined(__CUDACC__)
  return bytes > last_cache_bytes();
#else
  return static_cast<void>(bytes), false;
#endif
}

/// Copies `bytes` to memory that is not read soon. Whole lines are streamed, in order with other stores only after
/// streaming_done().
KOKKOS_FORCEINLINE_FUNCTION void stream(void* to, void const* from, std::size_t bytes) {
#if defined(__x86_64__) && !defined(__CUDACC__)
  auto* out = static_cast<char*>(to);
  auto const* in = static_cast<char const*>(from);
  std::size_t const before = (line_of_memory - reinterpret_cast<std::uintptr_t>(out) % line_of_memory) % line_of_memory;
  if (before != 0 || bytes % line_of_memory != 0) {
    std::size_t const head = before < bytes ? before : bytes;
    std::memcpy(out, in, head);
    out += head;
    in += head;
    bytes -= head;
    std::size_t const tail = bytes % line_of_memory;
    bytes -= tail;
    std::memcpy(out + bytes, in + bytes, tail);
  }
  for (std::size_t line = 0; line < bytes; line += line_of_memory) {
    auto* const to_line = reinterpret_cast<__m128i*>(out + line);
    auto const* const from_line = reinterpret_cast<__m128i const*>(in + line);
    __m128i const x0 = _mm_loadu_si128(from_line), x1 = _mm_loadu_si128(from_line + 1),
                  x2 = _mm_loadu_si128(from_line + 2), x3 = _mm_loadu_si128(from_line + 3);
    _mm_stream_si128(to_line, x0);
    _mm_stream_si128(to_line + 1, x1);
    _mm_stream_si128(to_line + 2, x2);
    _mm_stream_si128(to_line + 3, x3);
  }
#else
  static_cast<void>(to), static_cast<void>(from), static_cast<void>(bytes);
#endif
}

/// The memory is asked for `bytes` from there on, which may lie outside of any array.
KOKKOS_FORCEINLINE_FUNCTION void fetch_ahead(void const* from, std::size_t bytes) {
#if defined(__x86_64__) && !defined(__CUDACC__)
  for (std::size_t i = 0; i < bytes; i += line_of_memory) _mm_prefetch(static_cast<char const*>(from) + i, _MM_HINT_T0);
#else
  static_cast<void>(from), static_cast<void>(bytes);
#endif
}

/// What this thread has streamed is in order with what it stores next.
KOKKOS_FORCEINLINE_FUNCTION void streaming_done() {
#if defined(__x86_64__) && !defined(__CUDACC__)
  _mm_sfence();
#endif
}

}  // namespace tessera::detail

#endif
