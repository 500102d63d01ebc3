// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_CONFIGS_HPP
#define TESSERA_ATTENTION_CONFIGS_HPP

#include <tessera/atoms.hpp>

// Every tuning number of attention, with its reason. D is the features of a head rounded up to 64, 128 or 256.
namespace tessera::detail {

/// A row of scores is one vector of 32 lanes, so that its maximum and sum need no barrier. Tiles of 64 leave room for
/// two teams a multiprocessor (113 KB of scratch at D = 128); at D = 256 tiles of 32 fit the scratch of sm_80 too.
template <bool Host, int Features>
struct AttentionTiled {
  static constexpr int BM = Features > 128 ? 32 : 64, BN = BM, D = Features, depth = 1;
  static constexpr int thread_rows = 8, thread_cols = 32;
};
/// On a CPU: Q, K and V panels, scores and numerator (fp32, D = 128: 25 + 66 + 66 + 49 + 25 KB) stay in a second-level
/// cache; 48 queries are four panels of the micro-kernel.
template <int Features>
struct AttentionTiled<true, Features> {
  static constexpr int BM = 48, BN = 128, D = Features, depth = 1;
  static constexpr int thread_rows = 1, thread_cols = 1;
};

/// FlashAttention-3's tile for d 128, two stages each of K and V, two consumers in turns. 176 keys a step for long rows
/// (on an H200 +2 % at 4096 keys, +4 to +7 % at 16384), 128 for short ones and for causal ones up to some 8192 keys,
/// whose diagonal tiles are half empty (+8 % at 1024, even at 4096). Of d 256 two stages of 80 keys fit beside Q, and
/// their scores beside 128 registers of the numerator. Of d 64 exponentials take as long as products, and three
/// consumers keep the tensor cores busier than two (+5 to +12 % from 4096 keys on, causal 1024 -20 %).
template <int Features, int Keys, int Consumers = 2>
struct AttentionBulk : BulkSizes {
  static constexpr int consumers = Consumers, BM = 64 * Consumers, BN = Keys, D = Features, depth = 2;
  static constexpr int producer_registers = 24, consumer_registers = Consumers > 2 ? 160 : 240;
  static constexpr bool take_turns = true, staged_store = false;
};
inline constexpr int attention_long_keys = 176, attention_short_keys = 128, attention_wide_keys = 80;
inline constexpr int attention_long_from = 4096, attention_long_causal_from = 8192, attention_three_causal_from = 2048;

/// The pipeline of asynchronous copies, FlashAttention-2's tiles. A warp has `Blocks` blocks of 16 queries: two where
/// the numerator leaves room for them in registers (at D 128 it takes 128), so that what is read of K and V from
/// scratch serves twice the products. Of two teams a multiprocessor one multiplies while the other forms exponentials.
template <int Features, int Keys, int Warps, int Blocks, int Stages, int TeamsAtOnce = 2>
struct AttentionAsync {
  static constexpr int BM = 16 * Blocks * Warps, BN = Keys, D = Features, depth = Stages;
  static constexpr int warps = Warps, teams_at_once = TeamsAtOnce;
};

}  // namespace tessera::detail

#endif
