// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PORTABLE_PACK_HPP
#define TESSERA_PORTABLE_PACK_HPP

#include <Kokkos_Macros.hpp>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

// Vector loads and stores of any scalar type in plain C++: a copy of an aligned struct is one instruction per 16 bytes
// wherever the machine has such an instruction.
namespace tessera::detail {

/// The widest load of one thread on the machines at hand.
inline constexpr std::size_t pack_bytes = 16;

constexpr bool is_power_of_two(std::size_t n) { return n > 0 && (n & (n - 1)) == 0; }

/// The alignment a vector access to N elements of T needs: all their bytes, 16 at most.
template <class T, int N>
constexpr std::size_t pack_alignment() {
  constexpr std::size_t bytes = N * sizeof(T);
  if (!is_power_of_two(bytes)) return alignof(T);
  constexpr std::size_t wanted = bytes < pack_bytes ? bytes : pack_bytes;
  return wanted > alignof(T) ? wanted : alignof(T);
}

/// N consecutive elements in registers.
template <class T, int N>
struct alignas(pack_alignment<T, N>()) Pack {
  static_assert(std::is_trivially_copyable_v<T>, "packs are copied as bytes: the element type must allow that");
  static constexpr int size = N;
  T value[N];  // (N)

  KOKKOS_INLINE_FUNCTION constexpr T& operator[](int i) { return value[i]; }
  KOKKOS_INLINE_FUNCTION constexpr T const& operator[](int i) const { return value[i]; }
};

/// The largest number of elements, the same for all the types, whose widest fits in one vector access.
template <class... T>
constexpr int common_pack_size() {
  if (!(is_power_of_two(sizeof(T)) && ...)) return 1;
  std::size_t widest = 1;
  ((widest = sizeof(T) > widest ? sizeof(T) : widest), ...);
  return widest < pack_bytes ? static_cast<int>(pack_bytes / widest) : 1;
}

/// A number as a type. The one of the standard library converts in a function that is not marked for devices.
template <int I>
struct Constant {
  static constexpr int value = I;
  KOKKOS_INLINE_FUNCTION constexpr operator int() const { return I; }
};

/// f(0), f(1), ... f(N - 1) with the numbers as types: arrays indexed by them stay in registers on every compiler.
template <int N, class F>
KOKKOS_INLINE_FUNCTION constexpr void unroll(F const& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) { (f(Constant<I>{}), ...); }
  (std::make_integer_sequence<int, N>{});
}

/// Loads N elements; `from` is aligned to pack_alignment<T, N>().
template <int N, class T>
KOKKOS_INLINE_FUNCTION Pack<T, N> load_pack(T const* from) {
  return *reinterpret_cast<Pack<T, N> const*>(from);
}

/// Stores N elements; `to` is aligned to pack_alignment<T, N>().
template <int N, class T>
KOKKOS_INLINE_FUNCTION void store_pack(T* to, Pack<T, N> const& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// The bytes of a pack as words: what is loaded on one of several paths stays in registers as it came.
template <class T, int N>
struct alignas(pack_alignment<T, N>()) PackBits {
  using Word = std::conditional_t<N * sizeof(T) % 4 == 0, std::uint32_t, unsigned char>;
  static constexpr int words = static_cast<int>(N * sizeof(T) / sizeof(Word));
  Word word[words];  // (words)

  /// N times x.
  KOKKOS_INLINE_FUNCTION static PackBits filled(T const& x) {
    Pack<T, static_cast<int>(sizeof(Word) < sizeof(T) ? N : sizeof(Word) / sizeof(T))> some;
    for (T& each : some.value) each = x;
    PackBits bits;
    if constexpr (sizeof(some) == sizeof(Word))
      for (Word& each : bits.word) each = __builtin_bit_cast(Word, some);
    else
      bits = __builtin_bit_cast(PackBits, some);
    return bits;
  }
  KOKKOS_INLINE_FUNCTION Pack<T, N> pack() const { return __builtin_bit_cast(Pack<T, N>, *this); }
};

}  // namespace tessera::detail

#endif
