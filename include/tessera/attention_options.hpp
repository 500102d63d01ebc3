// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_OPTIONS_HPP
#define TESSERA_ATTENTION_OPTIONS_HPP

#include <cstddef>
#include <cstdint>
#include <optional>

#include <tessera/attention_dropout.hpp>
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
  /// Sequences of different lengths packed one behind the other, each attended by itself, its mask aligned at its own
  /// end: sequence s is the rows [query_starts(s), query_starts(s + 1)) of Q and O and [key_starts(s), key_starts(s +
  /// 1)) of K and V, whose batch is 1. Both (sequences + 1) and not decreasing, within the rows; sequences may be
  /// empty. They are read where the kernel runs. Only host execution spaces check them; elsewhere wrong ones give wrong
  /// results, without touching memory outside of the operands. Rows of O and LSE of no sequence stay as they are. A
  /// score functor is told the sequence for b, and i and j from the sequence's first query and key on.
  ViewRef<int const, 1> query_starts = {}, key_starts = {};
  /// Keys of each batch entry (or packed sequence) that count, (B); the others are as if absent, also for the causal
  /// alignment. Values beyond the extent of K count as the extent, negative ones as 0.
  ViewRef<int const, 1> key_lengths = {};
  /// Keys in pages, as serving has them: K and V are pools (pages, H_kv, page size, d), or (pages, page size, H_kv, d)
  /// with the layout bshd, and entry (b, i) says which page has keys i · page size and on of batch entry b, (B, pages a
  /// sequence has at most). With key_lengths; entries behind a length are not used. A page that does not exist is
  /// replaced by one that does, so that no other memory is read.
  ViewRef<int const, 2> block_table = {};
  /// Error{value} for a page that does not exist, where the host can read block_table and key_lengths: at the price of
  /// reading them, and of what is still writing them having to be done.
  bool check_pages = false;
  /// Elements of Q, K and V are these times what is stored, as operands of 8 bits have it: (B, H) for Q, (B, H_kv) for
  /// K and V, of packed sequences their number in the place of B; an extent of 1 serves all. Of Q and K positive.
  ViewRef<float const, 2> q_scale = {}, k_scale = {}, v_scale = {};
  /// And times these, as quantisation by parts has it: (B, H_kv, tiles of `scale_keys` keys), B and H_kv as above, so
  /// that key j of a sequence has the scales of tile j / scale_keys; in pages, too. Packed sequences with more keys
  /// than the tiles have the last tile's for those. Positive, those of V within a factor of 2^64 of each other.
  ViewRef<float const, 3> k_tile_scale = {}, v_tile_scale = {};
  std::int64_t scale_keys = 128;
  bool allow_tf32 = false;  ///< tensor cores may multiply fp32 operands, rounded to tf32 (10 bits of fraction)
  /// A logit of each query head, (H), that has a weight in the softmax and no value: exp(sink) is one more summand of
  /// every denominator, so that weights may sum to less than 1 (as in gpt-oss; Xiao et al. 2024). It is as it is,
  /// neither scaled nor changed by a score functor nor masked. A query that sees no key gives O = 0 and LSE = its sink.
  /// −∞ is none; of +∞ and NaN the head's rows are NaN.
  ViewRef<float const, 1> sinks = {};
  /// Of the weights, p in [0, 1]: see AttentionDropout. With a score or mask of the caller's own it wants
  /// score::with_dropout(score).
  AttentionDropout dropout = {};
  /// ln Σ exp(score) of each query, its sink among them, (B, H, S_q), −∞ where every key is masked; written when given.
  ViewRef<float, 3> lse = {};
  ViewRef<double, 3> lse_fp64 = {};  ///< the same for operands of double
  /// Parts of the keys that teams of their own attend over, for few queries and many keys; 0: as many as the shape and
  /// the machine suggest and the workspace holds. The result does not depend on which team is done first.
  int splits = 0;
  /// attention_workspace_size() bytes in the memory of the execution space, aligned to 16; without, keys are not split,
  /// and 8-bit and fp32 operands not taken by the Hopper pipeline, which arranges V there.
  /// Not to be touched before the attention is done.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  AttentionAlgorithm algorithm = AttentionAlgorithm::automatic;
  bool allow_fallback =
      true;  ///< false: Error{unsupported} when the asked algorithm cannot run, instead of another one
};

}  // namespace tessera

#endif
