// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_OPTIONS_HPP
#define TESSERA_ATTENTION_OPTIONS_HPP

#include <cstdint>
#include <optional>

#include <tessera/attention_plan.hpp>
#include <tessera/view_ref.hpp>

namespace tessera {

/// The order of the extents of Q, K, V and O.
enum class AttentionLayout : std::uint8_t {
  bhsd,  ///< batch, head, sequence, feature
  bshd,  ///< batch, sequence, head, feature
};

struct AttentionOptions {
  std::optional<double> scale = {};  ///< factor of QKᵀ, finite and positive; 1/√d by default
  bool causal = false;               ///< query i sees key j ≤ i + (keys − queries): the last query sees every key
  /// A sliding window: query i sees key j with i + (keys − queries) − window_left ≤ j ≤ i + (keys − queries) +
  /// window_right, both ends included; without a number that side has no end. Any numbers, also negative ones. With
  /// `causal` no key further right than causal allows.
  std::optional<std::int64_t> window_left = {}, window_right = {};
  AttentionLayout layout = AttentionLayout::bhsd;
  /// Keys of each batch entry that count, (B); the others are as if absent, also for the causal alignment. Values
  /// beyond the extent of K count as the extent, negative ones as 0.
  ViewRef<int const, 1> key_lengths = {};
  /// ln Σ exp(score) of each query, (B, H, S_q), −∞ where every key is masked; written when given.
  ViewRef<float, 3> lse = {};
  ViewRef<double, 3> lse_fp64 = {};  ///< the same for operands of double
  AttentionAlgorithm algorithm = AttentionAlgorithm::automatic;
  bool allow_fallback =
      true;  ///< false: Error{unsupported} when the asked algorithm cannot run, instead of another one
};

}  // namespace tessera

#endif
