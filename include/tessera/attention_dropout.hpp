// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_DROPOUT_HPP
#define TESSERA_ATTENTION_DROPOUT_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/philox.hpp>

namespace tessera {

/// Dropout of attention weights: with probability p, rounded to a multiple of 2^-16, a weight becomes 0, else it is
/// divided by 1 − p. Denominators and LSE are those without dropout. Use a new offset for every layer and step.
///
/// The decision belongs to the seed, the offset and the element's batch entry b (of packed sequences the sequence),
/// query head h, query i and key j, nothing else: the same on every backend, for every layout, tile and split. An
/// evaluation of Philox4x32 with 7 rounds decides for eight keys of a query by 16 bits each: of 32 keys those that a
/// thread of a tensor core has. Weight (b, h, i, j) is dropped if
///
///     ⌊w[⌊j/8⌋ mod 4] / 2^(16 (j mod 2))⌋ mod 2^16 < p·2^16,  w = philox4x32<7>({4⌊j/32⌋ + ⌊j/2⌋ mod 4, i, h, b}, key)
///
/// with words 0 and 1 of philox4x32(offset, seed) as the key, offset and seed being their lower and upper words, the
/// offset's followed by zeros.
struct AttentionDropout {
  double p = 0;
  std::uint64_t seed = 0, offset = 0;
};

namespace detail {

/// Dropout as a kernel counts with it.
struct DropoutRule {
  PhiloxKey key = {};
  std::uint32_t dropped_below = 0;  // 2^32 p
  double factor = 1;                // 0 where all are dropped

  /// Neighbours for which one evaluation decides.
  static constexpr int keys = 32;

  DropoutRule() = default;
  KOKKOS_INLINE_FUNCTION constexpr explicit DropoutRule(AttentionDropout const& d) {
    bool const some = d.p < 1;
    auto const of_65536 = some ? static_cast<std::uint32_t>(d.p * 65536 + 0.5) : 65535u;
    std::uint32_t const dropped = of_65536 < 65536 ? of_65536 : 65535;
    dropped_below = dropped << 16;
    factor = some ? 65536.0 / (65536 - dropped) : 0;
    PhiloxCounter const words = philox4x32(
        PhiloxCounter{static_cast<std::uint32_t>(d.offset), static_cast<std::uint32_t>(d.offset >> 32), 0u, 0u},
        PhiloxKey{static_cast<std::uint32_t>(d.seed), static_cast<std::uint32_t>(d.seed >> 32)});
    key = PhiloxKey{words[0], words[1]};
  }
  /// Of key j and, word by word, of those 8, 16 and 24 behind the first such one of 32; two neighbours share a word.
  KOKKOS_FORCEINLINE_FUNCTION PhiloxCounter words(int b, int h, int i, int j) const {
    auto const at = static_cast<std::uint32_t>(j);
    return philox4x32<7>(PhiloxCounter{at / 32 * 4 + at / 2 % 4, static_cast<std::uint32_t>(i),
                                       static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(b)},
                         key);
  }
  /// By the word of a key and its neighbour: the lower half is the even key's.
  KOKKOS_FORCEINLINE_FUNCTION bool drops(std::uint32_t word, bool odd) const {
    return (odd ? word : word << 16) < dropped_below;
  }
};

}  // namespace detail

/// Whether attention() with this dropout keeps the weight of key j for query i, of batch entry b and query head h.
KOKKOS_INLINE_FUNCTION bool attention_keeps(AttentionDropout const& dropout, int b, int h, int i, int j) {
  detail::DropoutRule const rule(dropout);
  PhiloxCounter const words = rule.words(b, h, i, j);
  int const k = j / 8 % 4;
  return rule.factor > 0 &&
         !rule.drops(k < 2 ? (k == 0 ? words[0] : words[1]) : (k == 2 ? words[2] : words[3]), j % 2 != 0);
}

}  // namespace tessera

#endif
