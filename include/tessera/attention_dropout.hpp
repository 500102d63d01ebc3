// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_DROPOUT_HPP
#define TESSERA_ATTENTION_DROPOUT_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/philox.hpp>

namespace tessera {

/// Dropout of attention weights: with probability p a weight becomes 0, else it is divided by 1 − p. Denominators and
/// LSE are those without dropout. Use a new offset for every layer and step.
///
/// The decision belongs to the seed, the offset and the element's batch entry b (of packed sequences the sequence),
/// query head h, query i and key j, nothing else: the same on every backend, for every layout, tile and split. Weight
/// (b, h, i, j) is dropped if
///
///     philox4x32({⌊j/4⌋, i, h, b}, key)[j mod 4] < ⌊p·2^32⌋,  key = words 0 and 1 of philox4x32(offset, seed)
///
/// with offset and seed as their lower and upper words, the offset's followed by zeros.
struct AttentionDropout {
  double p = 0;
  std::uint64_t seed = 0, offset = 0;
};

namespace detail {

/// Dropout as a kernel counts with it.
struct DropoutRule {
  PhiloxKey key = {};
  std::uint32_t dropped_below = 0;
  double factor = 1;  // 0 where all are dropped

  DropoutRule() = default;
  KOKKOS_INLINE_FUNCTION constexpr explicit DropoutRule(AttentionDropout const& d)
      : dropped_below(d.p < 1 ? static_cast<std::uint32_t>(d.p * 4294967296.0) : 0xFFFFFFFFu),
        factor(d.p < 1 ? 1 / (1 - d.p) : 0) {
    PhiloxCounter const words = philox4x32(
        PhiloxCounter{static_cast<std::uint32_t>(d.offset), static_cast<std::uint32_t>(d.offset >> 32), 0u, 0u},
        PhiloxKey{static_cast<std::uint32_t>(d.seed), static_cast<std::uint32_t>(d.seed >> 32)});
    key = PhiloxKey{words[0], words[1]};
  }
  /// Of the keys j to j + 3, j being a multiple of 4.
  KOKKOS_FORCEINLINE_FUNCTION PhiloxCounter words(int b, int h, int i, int j) const {
    return philox4x32(PhiloxCounter{static_cast<std::uint32_t>(j) / 4, static_cast<std::uint32_t>(i),
                                    static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(b)},
                      key);
  }
};

}  // namespace detail

/// Whether attention() with this dropout keeps the weight of key j for query i, of batch entry b and query head h.
KOKKOS_INLINE_FUNCTION bool attention_keeps(AttentionDropout const& dropout, int b, int h, int i, int j) {
  detail::DropoutRule const rule(dropout);
  PhiloxCounter const words = rule.words(b, h, i, j);
  int const k = j % 4;
  return rule.factor > 0 &&
         (k < 2 ? (k == 0 ? words[0] : words[1]) : (k == 2 ? words[2] : words[3])) >= rule.dropped_below;
}

}  // namespace tessera

#endif
