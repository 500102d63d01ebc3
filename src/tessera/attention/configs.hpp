// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_CONFIGS_HPP
#define TESSERA_ATTENTION_CONFIGS_HPP

#include <cstdint>
#include <type_traits>

#include <tessera/atoms.hpp>

// Every tuning number of attention, with its reason. D is the features of a head rounded up to 64, 128 or 256,
// sometimes to 96, 112 or 192.
namespace tessera::detail {

/// A row of scores is one vector of 32 lanes, so that its maximum and sum need no barrier. Tiles of 64 leave room for
/// two teams a multiprocessor (113 KB of scratch at D = 128); at D = 256 tiles of 32 fit the scratch of sm_80 too.
template <bool Host, int Features>
struct AttentionTiled {
  static constexpr int BM = Features > 128 ? 32 : 64, BN = BM, D = Features, depth = 1, query_depth = 1;
  static constexpr int thread_rows = 8, thread_cols = 32;
  static constexpr bool scales_keys = true;
};
/// On a CPU: Q, K and V panels, scores, weights and numerator (fp32, D = 128: 64 KB each) stay in a second-level cache;
/// what is packed of K and V serves four panels of 32 queries.
template <int Features>
struct AttentionTiled<true, Features> {
  static constexpr int BM = 128, BN = 128, D = Features, depth = 1, query_depth = 1;
  static constexpr int thread_rows = 1, thread_cols = 1;
  static constexpr bool scales_keys = true;
};

/// The same for many queries that all see the same keys: what is packed serves twice as many. Half of such a tile would
/// be hidden where causal masks begin and end.
template <int Features>
struct AttentionTiledTall : AttentionTiled<true, Features> {
  static constexpr int BM = 256;
};
inline constexpr std::int64_t attention_tall_tiles = 32;  // from so many on they are shared out evenly

/// FlashAttention-3's tile for d 128, two stages each of K and V, two consumers in turns. 176 keys a step for long
/// rows, 128 for short ones and for causal ones up to some 8192 keys, whose diagonal tiles are half empty. Of d 256 two
/// stages of 80 keys fit beside Q, and their scores beside 128 registers of the numerator; of d 192, 96 keys (112 leave
/// fewer registers). Of d 64 exponentials take as long as products, and three consumers keep the tensor cores busier
/// than two, but in short causal rows. So do they with d 96 and 112 keys, for which they have registers, and with d 112
/// and 96 keys. Results leave through shared memory where there is room, and with d 64 the next tile's queries come
/// before the last's are done with. Figures of this and the next: docs/measurements/attention-forward.md.
template <int Features, int Keys, int Consumers = 2>
struct AttentionBulk : BulkSizes {
  static constexpr int consumers = Consumers, BM = 64 * Consumers, BN = Keys, D = Features, depth = 2;
  static constexpr int query_depth = Features > 64 ? 1 : 2;
  static constexpr bool one_head_a_tile = true;  // heads together have AttentionFewQueries
  static constexpr int producer_registers = 24, consumer_registers = Consumers > 2 ? 160 : 240;
  static constexpr bool take_turns = true, staged_store = Features <= 128;
  static constexpr int store_boxes = Features > 64 && Features <= 128 && Keys > 128 ? 1 : 2;
};
/// Short rows of d 64, with a causal mask or a few tiles of queries: three teams a multiprocessor, each a consumer of
/// 64 queries, so that what a tile begins and ends with is under the others' products, and little of a tile is hidden.
/// Without a mask they gain up to 256 keys, in place of tiles of 192 queries. Up to 1024 keys teams go on to the next
/// tile.
struct AttentionShortRows : BulkSizes {
  static constexpr int consumers = 1, BM = 64, BN = 64, D = 64, depth = 2, query_depth = 2, teams_at_once = 3;
  static constexpr bool one_head_a_tile = true, few_steps = true;
  static constexpr int producer_registers = 24, consumer_registers = 136;
  static constexpr bool take_turns = true;
};
/// Where a matrix is added to the scores: tiles of it come as those of K and V do, so that no consumer waits for memory
/// (on an H200, 16384 keys causal 348 -> 476). Beside the rings of d 128 there is room for one, which both consumers
/// share. Four streams are more for the producer to count.
template <int Features>
struct AttentionBiased : AttentionBulk<Features, 128> {
  static constexpr int bias_depth = Features > 64 ? 1 : 2;
  static constexpr int producer_registers = 40, consumer_registers = 232;
};
/// What the choice of parts of the keys counts with, in steps of a tile by a team alone.
struct AttentionSplitClocks {
  double team = 2;                       // a team's first step to arrive, and its last products
  double store = 2;                      // O in fp32, written and read again: a row is as many bytes as two keys
  double merge = 2;                      // a kernel of its own
  double merge_part = 0.1;               // parts are read eight at a time
  double saturation = 0;                 // teams a multiprocessor behind which more take as much longer; 0: none
  static constexpr double worth = 0.95;  // of the time in one part, before a workspace is asked for
  static constexpr std::int64_t fewest_steps = 4, most_splits = 256;
};
/// Few queries, as in decoding, and keys in pages: what K and V take to arrive is all there is. One consumer has all
/// rows; steps of 16 KB a tile, so that two teams fit a multiprocessor, of which one begins or ends under the other's
/// copies. With 256 threads a team there are registers to spare.
template <int Features>
struct AttentionFewQueries : BulkSizes {
  static constexpr int consumers = 1, BM = 64, BN = 8192 / Features, D = Features, depth = 2, query_depth = 1;
  static constexpr int teams_at_once = 2;
  /// On an H200 a step of d 128 takes 0.76 us; 128 teams read keys at 4.2 TB/s, 256 at 4.0; a merge of 16 parts takes 4
  /// us.
  static constexpr AttentionSplitClocks split_clocks{.team = 4, .merge = 4, .saturation = 0.8};
  static constexpr bool reads_pages = true;
  static constexpr int producer_registers = 40, consumer_registers = 216;
  static constexpr bool take_turns = true, staged_store = false;
};
/// The numerator of d 256 has 128 registers, as many as a thread of two such teams: one team, and its usual two
/// consumers.
template <>
struct AttentionFewQueries<256> : BulkSizes {
  static constexpr int consumers = 2, BM = 128, BN = 64, D = 256, depth = 2, query_depth = 1;
  static constexpr bool reads_pages = true;
  static constexpr int producer_registers = 40, consumer_registers = 232;
  static constexpr bool take_turns = true, staged_store = false;
};
/// The same where there are no more tiles than multiprocessors, so that a team has one to itself.
template <int Features>
struct AttentionFewTiles : AttentionFewQueries<Features> {
  static constexpr int depth = 3, teams_at_once = 1;
  static constexpr int producer_registers = 56, consumer_registers = 240;
};
/// Q, K and V of e4m3. A step's products are added in fp32: the tensor cores cut their own sums at some 14 bits, which
/// over 16384 keys with values of one sign takes a fifth of the result. Where `columns_apart` is less than the
/// features, they are formed before the next scores and in their registers, so many columns twice: with d 128 then 256
/// keys a step fit (on an H200 +9 % at 1024, 4096 and 16384 keys; causal -4 % at 1024, +3 % at 4096, +8 % at 16384).
/// With d 256, and with d 64 in three consumers of 160 keys (+20 % over two of 128), there are registers for nothing
/// else.
template <int Features, int Keys = 128, int Consumers = 2>
struct AttentionNarrow : BulkSizes {
  static constexpr int consumers = Consumers, BM = 64 * Consumers, BN = Keys, D = Features, depth = 2, query_depth = 1;
  static constexpr int columns_apart = D > 128 || Keys > 128 ? 32 : D;
  static constexpr bool one_head_a_tile = true;  // heads together have AttentionNarrowFew
  static constexpr int producer_registers = 24, consumer_registers = Consumers > 2 ? 160 : 240;
  static constexpr bool take_turns = true;
  static constexpr int store_boxes = Consumers > 2 ? 1 : 2;
  static constexpr bool knows_scratch = Features <= 128;  // or four bytes are spilled
};
/// The same where tiles of keys have scales, or windows or sequences are to be counted with, for which there are
/// registers beside shorter products alone and, with d 256, shorter steps. A step has one scale. On an H200, d 128 and
/// 256 over 16384 keys: 557 and 604 TFLOP/s, where tiles without scales reach 939 and 1158.
template <int Features>
struct AttentionNarrowRanged : BulkSizes {
  static constexpr int consumers = 2, BM = 128, BN = Features > 128 ? 64 : 128, D = Features;
  static constexpr int depth = 2, query_depth = 1, columns_apart = 32;
  static constexpr bool one_head_a_tile = true, scales_keys = true;
  static constexpr int producer_registers = 24, consumer_registers = 240;
  static constexpr bool take_turns = true;
};
/// The same tile for few queries, of several heads together, and keys in pages, which the producer has to find: one of
/// the consumers has them all.
template <int Features>
struct AttentionNarrowFew : BulkSizes {
  static constexpr int consumers = 2, BM = 128, BN = Features > 128 ? 64 : 128, D = Features;
  static constexpr int depth = 2, query_depth = 1, columns_apart = 32;
  static constexpr bool reads_pages = true, scales_keys = true;
  static constexpr int producer_registers = 40, consumer_registers = 232;
  static constexpr bool take_turns = false;
};
inline constexpr int attention_narrow_keys = 256, attention_narrow_causal_from = 2048;
/// fp32 that the tensor cores round to tf32. Two stages each of K and V fit beside 64 KB of Q of d 128.
template <int Features>
struct AttentionTf32 : BulkSizes {
  static constexpr int consumers = 2, BM = 128, BN = 8192 / Features, D = Features, depth = 2, query_depth = 1;
  static constexpr int producer_registers = 24, consumer_registers = 240, store_boxes = 1;
  static constexpr bool take_turns = true, one_head_a_tile = true;
};
/// Few queries of them, and keys in pages: steps of 16 KB a tile.
template <int Features>
struct AttentionTf32Few : BulkSizes {
  static constexpr int consumers = 1, BM = 64, BN = 4096 / Features, D = Features, depth = 2, query_depth = 1;
  static constexpr int teams_at_once = 2;
  static constexpr int producer_registers = 40, consumer_registers = 216, store_boxes = 1;
  static constexpr bool take_turns = true, reads_pages = true;
};
inline constexpr int attention_long_keys = 176, attention_short_keys = 128, attention_wide_keys = 80;
inline constexpr int attention_keys_of_192 = 96;
inline constexpr int attention_long_from = 4096, attention_long_causal_from = 8192;
/// Three consumers have registers for the scores of so many keys.
template <int Features>
inline constexpr int attention_three_keys = Features > 64 ? (Features > 96 ? 96 : 112) : 128;
template <int Features>
using AttentionThree = AttentionBulk<Features, attention_three_keys<Features>, 3>;
/// For causal rows, of d 64 between 2560 keys, where they are slower (365 beside 403 in short tiles),
/// and 3072, where they are faster (415, 384); of d 112 they gain 1 % there, of d 72 and 96 7 and 5 % at 2048 keys.
template <int Features>
inline constexpr int attention_three_causal_from = Features == 96 ? 2048 : 3072;
/// What they gain where tiles are full, against those that are taken instead: of d 64 short ones.
template <int Features>
inline constexpr double attention_three_gain = Features > 64 ? 1.15 : 1.3;
template <int Features>
inline constexpr int attention_dropout_keys = Features > 128 ? 64 : 128;

/// The pipeline of asynchronous copies, FlashAttention-2's tiles. A warp has `Blocks` blocks of 16 queries: two where
/// the numerator leaves room for them in registers (at D 128 it takes 128), so that what is read of K and V from
/// scratch serves twice the products. Of two teams a multiprocessor one multiplies while the other forms exponentials.
template <int Features, int Keys, int Warps, int Blocks, int Stages, int TeamsAtOnce = 2>
struct AttentionAsync {
  static constexpr int BM = 16 * Blocks * Warps, BN = Keys, D = Features, depth = Stages, query_depth = 1;
  static constexpr int warps = Warps, teams_at_once = TeamsAtOnce;
  static constexpr bool one_head_a_tile = true;  // heads together have AttentionAsyncFewQueries
};
/// Few queries, as in decoding, keys in pages, and masks by functors: a block of 16 queries a warp. On an H200, one
/// query of each of 16 sequences of 8192 keys, d 128: 3500 GB/s, 2500 in tiles of 128 queries; documents of 1100
/// tokens, d 64: 431 TFLOP/s, 293 there.
template <int Features>
struct AttentionAsyncFewQueries {
  static constexpr int BM = 64, BN = 64, D = Features, depth = Features > 128 ? 1 : 2, query_depth = 1;
  static constexpr int warps = 4, teams_at_once = Features > 64 ? 2 : 3;
  static constexpr bool reads_pages = true;
};

/// Gradients: `stay` rows of accumulators, keys for dK and dV and queries for dQ, and `step` of the others a step. Four
/// tiles of D features, two of them of the step, and what is between (fp32, D = 128: 108 KB) fit the scratch of sm_80.
/// On a CPU what is packed both ways (fp32, D = 128: 64 KB each way) stays in a second-level cache.
template <bool Host, int Features, bool OfKeys>
struct BackwardTiled {
  static constexpr int stay = Host ? 48 : (Features > 128 ? 32 : 64), step = Host ? 64 : 32;
  static constexpr int BM = OfKeys ? step : stay, BN = OfKeys ? stay : step, D = Features;
  static constexpr int depth = 1, output_depth = 1, value_depth = 1;
  static constexpr int thread_rows = Host ? 1 : 8, thread_cols = Host ? 1 : 32;
  static constexpr bool adds = false, keys_alone = false, values_alone = false, rows_in_memory = false;
  static constexpr bool scales_heads = true;
};

/// The same on a CPU with dQ added up in memory: what is packed of Q and dO serves eight panels of 32 keys, and what is
/// packed of K and V all queries (fp32, D = 128: 1.2 MB with all that is held). Half as many keys where causal masks
/// hide much of a tile (16 cores of a Xeon, bf16, 1024 keys: 7 to 22 % less time; 4096 keys: 2 to 16 % more).
template <int Features>
struct BackwardInPlace {
  static constexpr int BM = Features > 128 ? 64 : 128, BN = Features > 128 ? 64 : 256, D = Features;
  static constexpr int few_keys = 2048, keys_of_few = Features > 128 ? 64 : 128;
  static constexpr int depth = 1, output_depth = 1, value_depth = 1;
  static constexpr bool adds = true, keys_alone = false, values_alone = false, rows_in_memory = true;
  static constexpr bool scales_heads = true;
  /// So many teams a core share out the keys of a head among them where there are fewer heads, each with sums of dQ of
  /// its own, of which there are not more than `most_parts`.
  static constexpr int teams_a_core = 2, most_parts = 8;
};

/// All products in one kernel on the pipeline of asynchronous copies, dQ added up in memory. Eight warps have 32 keys
/// by 32 queries of d 128, or by 64 of d 64, of the scores: what they read of two tiles then takes shared memory about
/// as long as the tensor cores take to multiply it. Of d 256, whose sums take as many registers with half the keys, 16
/// by 16. The scratch of sm_80, of which d 64 takes every byte, has room for them.
struct BackwardAsyncAdds {
  static constexpr int depth = 2, output_depth = 2, warp_rows = 4, warp_cols = 2, teams_at_once = 1;
  static constexpr bool weighs_ahead = true;
  static constexpr bool adds = true, keys_alone = false, values_alone = false, rows_in_memory = false;
};
template <int Features>
struct BackwardAsync : BackwardAsyncAdds {
  static constexpr int BM = Features > 64 ? 64 : 128, BN = 128, D = Features;
};
template <>
struct BackwardAsync<256> : BackwardAsyncAdds {
  static constexpr int BM = 32, BN = 64, D = 256;
  static constexpr bool few_registers = true;
};
/// The same in the scratch of sm_86 and sm_89, 99 KB. On an H200 d 128 reaches 85 % of the other tile's speed, d 64
/// 84 %. Of d 256 there is none.
template <int Features>
struct BackwardAsyncSmall : BackwardAsyncAdds {
  static constexpr int BM = Features > 64 ? 32 : 64, BN = 64, D = Features;
  static constexpr int warp_rows = 2, warp_cols = 2, teams_at_once = Features > 64 ? 1 : 2;
};
/// The same with packed sequences, dropout or functors of the caller's own, which are to be kept and found besides: of
/// d 64 in fewer registers, and in the scratch of any device. What is asked for anew rather than kept, and what is
/// formed and added at once, is what spills least (docs/measurements/attention-backward.md).
template <int Features, bool Packed, bool Drops>
struct BackwardAsyncBeside : BackwardAsyncAdds {
  static constexpr int BM = Features > 128 ? 32 : 64, BN = Features > 128 ? 64 : 128, D = Features;
  static constexpr bool few_registers = true;
  static constexpr bool at_once = Drops && Features > (Packed ? 64 : 128);
  static constexpr bool fewest_registers = Features == 128 && (!Packed || Drops);
};
/// The passes on the pipeline of asynchronous copies: that over the keys has the same tiles without dQ, beside others
/// those that have packed sequences; in that over the queries a warp has 16 of them, with all their sums.
template <class Sizes>
struct BackwardKeysAsync : Sizes {
  static constexpr bool adds = false;
};
template <int Features>
struct BackwardQueriesAsync {
  static constexpr int warps = Features > 128 ? 4 : 8, BM = 16 * warps, BN = Features > 128 ? 32 : 64, D = Features;
  static constexpr int depth = 2, value_depth = 2, teams_at_once = 1;
  static constexpr bool steps_together = true;
};

/// 128 keys by two consumers, 64 queries a step: beside 128 registers of dK and dV of d 128 there is room for two
/// accumulators of 32 each and the rounded copies of scores.
template <int Features>
struct BackwardKeysBulk : BulkSizes {
  static constexpr int consumers = 2, BM = 64, BN = 128, D = Features, depth = 2, output_depth = 2;
  static constexpr int producer_registers = 24, consumer_registers = 240;
  static constexpr bool keys_alone = false, values_alone = false, rows_in_memory = false;
  static constexpr bool knows_scratch = false;  // or with dropout eight bytes are spilled
};
/// The same with dQ added up in memory. Two boxes of a consumer's stage are for results and parts of dQ, two for what
/// the consumers share. Parts of dQ of d 128 leave through the stage, since the registers that they would wait in are
/// needed; of d 64 there are enough (docs/measurements/attention-backward.md).
template <int Features>
struct BackwardBulk : BackwardKeysBulk<Features> {
  static constexpr int store_boxes = 4;
  static constexpr bool adds = true, staged_adds = Features > 64;
  static constexpr bool knows_scratch = true;
};
/// With scales of heads: beside what else is kept there are no registers to find their products with.
template <class Sizes>
struct BackwardScaledBulk : Sizes {
  static constexpr bool scales_heads = true, factors_in_memory = true;
};
/// Storing the gradient of what is added to scores.
template <class Sizes>
struct BackwardBiasBulk : Sizes {
  static constexpr bool stores_scores = true;
};
/// Kernels beside those that nothing else is asked of.
enum class BackwardVariant { plain, scaled, bias };
template <class Sizes, BackwardVariant Variant>
using BackwardVariantBulk =
    std::conditional_t<Variant == BackwardVariant::scaled, BackwardScaledBulk<Sizes>,
                       std::conditional_t<Variant == BackwardVariant::bias, BackwardBiasBulk<Sizes>, Sizes>>;
/// Of d 256, dK and dV have 128 registers each: a kernel for either. K and V, two stages of Q and one of dO leave
/// scratch for one stage of LSE and delta.
struct BackwardWideValuesBulk : BackwardKeysBulk<256> {
  static constexpr bool values_alone = true, staged_store = false;
};
struct BackwardWideKeysBulk : BackwardKeysBulk<256> {
  static constexpr int output_depth = 1;
  static constexpr bool keys_alone = true, staged_store = false;
};
/// dQ: 128 queries by two consumers. Of d 256 two stages of 64 keys fit beside Q and dO, and one of values.
template <int Features>
struct BackwardQueriesBulk : BulkSizes {
  static constexpr int consumers = 2, BM = 128, BN = Features > 128 ? 64 : 128, D = Features;
  static constexpr int depth = 2, value_depth = Features > 128 ? 1 : 2;
  static constexpr int producer_registers = 24, consumer_registers = 240;
  static constexpr bool staged_store = Features <= 128;
};

}  // namespace tessera::detail

#endif
