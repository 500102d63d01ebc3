// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_CONFIGS_HPP
#define TESSERA_GEMM_CONFIGS_HPP

#include <cstdint>

#include <tessera/atoms.hpp>
#include <tessera/gemm_plan.hpp>

// Every tuning number of the matrix product, with its reason.
namespace tessera::detail {

/// What a step of K takes, in clocks of a multiprocessor of an H200: one team's that is alone there, and each team's
/// share where as many as fit are busy.
struct GemmTeamClocks {
  double alone, together;
  static constexpr double tile = 3000;    // beginning and end of a team
  static constexpr double byte = 0.0006;  // stored, of all teams; an element that has no neighbour takes 32
};
/// Of the sums of parts of K: the second kernel, what a part takes where there is little else, and a byte of all.
struct GemmSplitClocks {
  static constexpr double start = 5500, part = 25, byte = 0.0005;
};

/// One element of C a thread, as tiling is taught: 32 x 32 threads fill a team, and scratch serves each element 32
/// times.
struct GemmTiled {
  static constexpr int BM = 32, BN = 32, BK = 32, depth = 1;
  static constexpr int thread_rows = 32, thread_cols = 32;
  static constexpr int teams_at_once = 2;      // one loads while the other multiplies
  static constexpr bool left_by_lines = true;  // a thread reads four k of its row of A at a time
};

/// Register tiles on a machine with wide teams: 8 x 8 elements a thread need 16 scratch reads for 64 products, and 64
/// accumulators leave registers for two teams a multiprocessor.
template <bool Host, class Compute>
struct GemmCoarsened {
  static constexpr int BM = 128, BN = 128, BK = 16, depth = 1;
  static constexpr int thread_rows = 16, thread_cols = 16;
  static constexpr int teams_at_once = sizeof(Compute) > 4 ? 1 : 2;  // 64 accumulators of fp64 take 128 registers alone
  static constexpr GemmTeamClocks clocks =
      sizeof(Compute) > 4 ? GemmTeamClocks{8000, 8000} : GemmTeamClocks{6340, 5070};
};
/// On a CPU: what is packed of a tile's rows (of fp32 684 KB at most) in a second-level cache of 1 MB or more, the
/// other panels by turns, and sums where they may be, since every step touches them once; each packed element serves
/// 680 products or more. The largest tile: choose_gemm_panels() makes them fit the cores.
template <class Compute>
struct GemmCoarsened<true, Compute> {
  static constexpr int BM = 684, BN = 4096 / static_cast<int>(sizeof(Compute)), BK = 256, depth = 1;
  static constexpr int thread_rows = 1, thread_cols = 1;
};
/// The same for many steps in tiles whose sums take no more than `most_sums` bytes of a second-level cache, or whose
/// packed rows would take more than `most_rows`: both panels of a product, 28 KB of fp64, then stay in a first-level
/// cache, also in the part of it that another thread leaves.
template <class Compute>
struct GemmCoarsenedShort : GemmCoarsened<true, Compute> {
  static constexpr int BK = 128;
  static constexpr std::int64_t most_sums = 512 << 10, most_rows = 1 << 20;
};
/// The same of factors of 8 or 16 bits that are multiplied as they are: panels of 256 KB, and longer steps of K, since
/// the sums, which every step reads and writes, take as long as ever.
template <class Element>
struct GemmNarrow {
  static constexpr int BM = 256, BN = 256, BK = 1024 / static_cast<int>(sizeof(Element)), depth = 1;
  static constexpr int thread_rows = 1, thread_cols = 1;
};
/// Where C has few tiles of rows x cols, K is split, into parts of `least` k at least, for so many teams: storing and
/// adding the sum of a part then takes some 3 % of forming it. Factors multiplied as they are take less time.
template <class Element>
struct GemmSplits {
  static constexpr std::int64_t rows = 192, cols = 256, few = 16, teams = 64, least = sizeof(Element) < 4 ? 4096 : 2048;
};
/// The teams that add sums of parts of K have whole panels.
template <class Compute>
struct GemmSplitSumSizes {
  static constexpr int BM = 12, BN = 256 / static_cast<int>(sizeof(Compute)), BK = 1, depth = 1;
  static constexpr int thread_rows = 1, thread_cols = 1;
};
/// What the choice counts with, in clocks of a core with AVX-512, measured on Xeons and a Zen 4: of a micro-kernel's
/// step of k, of an element that is packed or stored, of a tile. Of an element that was packed before, once for all
/// tiles: what it takes to bring it to a tile, and to pack it; and what such a product begins with, since cores wait
/// for the slowest of them twice. Atoms tell the first themselves.
struct GemmPanelClocks {
  double step, packed, streamed, packed_before, start;
  static constexpr double stored = 1, tile = 2000;

  template <class Atoms>
  static GemmPanelClocks of() {
    if constexpr (Atoms::by_words) {
      return {Atoms::step_clocks(), 0.2, 0.05, 0.5, 3e6};
    } else {  // by bytes: a core waits for memory
      double const words = sizeof(typename Atoms::Compute) / 4.0;
      return {Atoms::step_clocks(), words, 0.25 * words, 1.5 * words, 8e5};
    }
  }
};
/// How factors that widen to Compute are multiplied where they are not widened.
template <class Compute>
using GemmNarrowElement = std::conditional_t<std::is_same_v<Compute, std::int32_t>, std::int8_t, bf16_t>;

/// Products of one, two, four or eight rows without tiles.
struct GemmThinSizes {
  static constexpr int threads = 256, across_at_once = 2;
  static constexpr int most_rows = 8;
  /// So many threads share a column along K that each has at least 16 packs, of all its columns, if more than 4 do.
  static constexpr int packs_a_thread = 16, least_sharing = 4;
  /// Along K: columns of C that a thread sums, packs of each on their way, and teams a multiprocessor.
  int columns, along_unrolled, along_at_once;
  int across_unrolled;  // packs on their way across K
  /// What either takes longer than to read the long factor once: more rows need registers for their sums, and read A
  /// more often.
  double along, across;

  static constexpr GemmThinSizes of(int element_bytes, int rows) {
    bool const single = element_bytes == 4;
    if (rows == 1) return single ? GemmThinSizes{4, 2, 3, 16, 1, 1} : GemmThinSizes{2, 4, 3, 16, 1, 1};
    if (rows == 2) return {4, 2, 2, 16, 1, 1};
    if (rows == 4) return {4, 2, 2, 16, 1.12, 1.02};
    return single ? GemmThinSizes{4, 1, 2, 4, 1.3, 1.2} : GemmThinSizes{2, 2, 2, 4, 1.65, 1.55};
  }
  /// Whether nothing else is worth a thought. Eight rows of fp64 are multiplied faster by tensor cores where the other
  /// factor is large.
  constexpr bool fastest(bool is_across) const { return (is_across ? across : along) < 1.5; }
};
/// The same in clocks, fitted on an H200: to begin; a team, and a thread's packs on their way; bytes from memory and
/// from the second-level cache in a clock; sums of parts of K, and a part.
struct GemmThinClocks {
  static constexpr double start = 2670, team = 1670, loads = 785, memory = 2700, cache = 4770, sums = 3400, part = 44;
};

/// With scales for blocks of 128 k: a step is a block or divides it.
template <bool Host>
struct GemmBlockScaled {
  static constexpr int BM = 64, BN = 64, BK = 16, depth = 1;
  static constexpr int thread_rows = 16, thread_cols = 16;
};
template <>
struct GemmBlockScaled<true> {
  static constexpr int BM = 96, BN = 128, BK = 128, depth = 1;
  static constexpr int thread_rows = 1, thread_cols = 1;
};

/// Groups of products whose sizes are known when it is too late to choose: between the large and the small tiles.
template <bool Host, class Compute>
struct GemmGrouped : GemmCoarsened<false, Compute> {};
template <class Compute>
struct GemmGrouped<true, Compute> {
  static constexpr int BM = 96, BN = 128, BK = 256, depth = 1;
  static constexpr int thread_rows = 1, thread_cols = 1;
};

/// The same of factors that are multiplied as they are.
template <class Element>
struct GemmGroupedNarrow : GemmNarrow<Element> {
  static constexpr int BM = 96, BN = 128;
};

/// Where the large tiles would leave most of the machine idle.
struct GemmCoarsenedSmall {
  static constexpr int BM = 64, BN = 64, BK = 16, depth = 1, teams_at_once = 2;
  static constexpr int thread_rows = 16, thread_cols = 16;
  static constexpr GemmTeamClocks clocks{3000, 2115};
};

/// The pipeline of asynchronous copies. Two teams a multiprocessor, so that one multiplies while the other waits at its
/// barrier: one team of twice the size is slower.
struct AsyncSizes {
  static constexpr int depth = 3, teams_at_once = 2, warp_rows = 2, warp_cols = 2;
  static constexpr bool tensor_cores = true;
  static constexpr bool left_across = false, right_across = false;  // the contiguous index is not K: of 16 and 64 bits
};
/// Whether teams that share a multiprocessor end at the same time: of sizes that say so.
template <class Sizes>
inline constexpr bool ends_in_step = requires {
  requires Sizes::in_step;
};
/// Whether a team has a multiprocessor for itself though more would fit: where there are no more teams than those, or
/// where they end at the same time, so that the last ones too would come two by two while other multiprocessors have
/// none (fp32, 3000 x 1000 x 2048 in two parts, 384 teams: 366 -> 310 us).
template <class Sizes>
constexpr bool gemm_teams_apart(std::int64_t teams, int concurrency) {
  if constexpr (ends_in_step<Sizes>) {
    std::int64_t const at_once = std::int64_t(Sizes::teams_at_once) * concurrency;
    std::int64_t const alone = (teams + concurrency - 1) / concurrency, together = (teams + at_once - 1) / at_once;
    if (together > 1 && static_cast<double>(alone) * Sizes::clocks.alone <
                            static_cast<double>(together * Sizes::teams_at_once) * Sizes::clocks.together)
      return true;
  }
  return teams <= concurrency;
}
/// Small, or least, where larger tiles would leave most of the machine idle, flat where C has few rows.
enum class GemmTeamTile : std::uint8_t { large, small, least, flat };
inline constexpr int gemm_flat_rows = 16, gemm_least_rows = 32;
/// 16 bits, and fp32 rounded to tf32. A warp has 64 x 64 elements, 128 registers a thread, and each matrix load of 512
/// bytes serves eight products. 128 bytes of K a step: with 64 a barrier comes too often.
template <class Element, bool TensorCores, GemmTeamTile, bool LeftAcross = false, bool RightAcross = false>
struct GemmAsync : AsyncSizes {
  static constexpr int BM = 128, BN = 128, BK = 128 / static_cast<int>(sizeof(Element));
  static constexpr bool left_across = LeftAcross, right_across = RightAcross;
  static constexpr GemmTeamClocks clocks{1150, 1100};
};
template <class Element, bool LeftAcross, bool RightAcross>
struct GemmAsync<Element, true, GemmTeamTile::small, LeftAcross, RightAcross> : AsyncSizes {
  static constexpr int BM = 64, BN = 64, BK = 128 / static_cast<int>(sizeof(Element)), depth = 4, teams_at_once = 3;
  static constexpr bool left_across = LeftAcross, right_across = RightAcross;
  static constexpr GemmTeamClocks clocks{530, 440};
};
/// 64 x 32 elements of fp64 a warp are 128 registers a thread. Of products with 8 k, two sets of fragments fit beside
/// them. 32 k a step of which 16 are unrolled halve the barriers and are slower.
template <bool LeftAcross, bool RightAcross>
struct GemmAsync<double, true, GemmTeamTile::large, LeftAcross, RightAcross> : AsyncSizes {
  static constexpr bool left_across = LeftAcross, right_across = RightAcross;
  static constexpr int BM = 128, BN = 64, BK = 16, mma_k = 8, unrolled = 2;
  static constexpr GemmTeamClocks clocks{1170, 1040};
};
template <bool LeftAcross, bool RightAcross>
struct GemmAsync<double, true, GemmTeamTile::small, LeftAcross, RightAcross> : AsyncSizes {
  static constexpr bool left_across = LeftAcross, right_across = RightAcross;
  static constexpr int BM = 64, BN = 64, BK = 16, depth = 4, mma_k = 8, unrolled = 2;
  static constexpr GemmTeamClocks clocks{604, 530};
};
/// For C of few elements, and to share out evenly what larger tiles do not. More k in a step, since its products are
/// few.
template <bool LeftAcross, bool RightAcross>
struct GemmAsync<double, true, GemmTeamTile::least, LeftAcross, RightAcross> : AsyncSizes {
  static constexpr bool left_across = LeftAcross, right_across = RightAcross;
  static constexpr int BM = gemm_least_rows, BN = 64, BK = 32, teams_at_once = 3, mma_k = 8, unrolled = 4;
  static constexpr GemmTeamClocks clocks{752, 560};
};
/// Of few rows what counts is that the other factor is read once, and fast: 16 rows are as many as the tensor cores
/// multiply at a time.
template <bool RightAcross>
struct GemmAsync<double, true, GemmTeamTile::flat, false, RightAcross> : AsyncSizes {
  static constexpr bool right_across = RightAcross;
  static constexpr int BM = gemm_flat_rows, BN = 128, BK = 16, depth = 4, teams_at_once = 3, warp_rows = 1,
                       warp_cols = 4;
  static constexpr int mma_k = 8, unrolled = 2;
  static constexpr GemmTeamClocks clocks{1100, 890};
};
/// fp32 without tensor cores, 8 x 16 elements a thread: 6 reads of scratch for 128 products. 32 k a step, since every
/// step costs a barrier and addresses. 8 of them unrolled: 16 do not fit the cache of instructions as well, and of 4
/// the loop and the copies between the products are a larger part.
template <>
struct GemmAsync<float, false, GemmTeamTile::large> : AsyncSizes {
  static constexpr int BM = 128, BN = 128, BK = 32, unrolled = 8;
  static constexpr bool tensor_cores = false, in_step = true;
  static constexpr GemmTeamClocks clocks{5200, 4950};
};
template <>
struct GemmAsync<float, false, GemmTeamTile::small> : AsyncSizes {
  static constexpr int BM = 64, BN = 64, BK = 32, teams_at_once = 4, unrolled = 8;
  static constexpr bool tensor_cores = false;
  static constexpr GemmTeamClocks clocks{1885, 1650};
};
template <>
struct GemmAsync<float, false, GemmTeamTile::least> : AsyncSizes {
  static constexpr int BM = gemm_least_rows, BN = 64, BK = 32, depth = 4, teams_at_once = 4, unrolled = 16;
  static constexpr bool tensor_cores = false;
  static constexpr GemmTeamClocks clocks{1150, 1030};
};

template <>
struct GemmAsync<float, false, GemmTeamTile::flat> : AsyncSizes {
  static constexpr int BM = gemm_flat_rows, BN = 256, BK = 32, warp_rows = 1, warp_cols = 4, unrolled = 32;
  static constexpr bool tensor_cores = false;
  static constexpr GemmTeamClocks clocks{2600, 2250};
};

/// What a kernel of the bulk pipeline can do beside the rest: nothing, have consumers take turns, have teams share a
/// tile along K, or that and store Cᵀ.
enum class GemmBulkForm : std::uint8_t { plain, ping_pong, sliced, turned };

/// Of the smallest tile in ping-pong a multiprocessor has two teams of one consumer: one team's beginning and end are
/// under the other's products, which may be those of another kernel. Of larger ones, of which every multiprocessor has
/// some, two of one kernel may come together and none elsewhere: 64 x 128 at 1024³ 6.0 -> 6.3 us.
constexpr bool gemm_bulk_teams_apart(int columns, bool ping_pong) { return columns == 32 && ping_pong; }

/// Whether consumers need every register that a producer can do without: beside sums that are promoted, and for the
/// largest tile of one consumer. Such a producer knows nothing of edges, and fills tiles with what is not there.
constexpr bool gemm_bulk_crowded(int columns, bool ping_pong, bool promotes) {
  return promotes || (ping_pong && columns > 176);
}

/// A tile of Rows x Columns, and so many stages that 227 KB are full beside what the consumers store from, 16 KB each.
/// 128 x 256 is the largest accumulator that two warpgroups hold in registers (128 of 232 each), 128 x 192 the largest
/// of one. Of 192 rows each of three has 64, for a C of few rows: two tiles of 128 would multiply as many as are not
/// there.
template <int Rows, int Columns, int ElementBytes, bool LeftAcross = false, bool RightAcross = false,
          bool Promotes = false, GemmBulkForm Form = GemmBulkForm::plain>
struct GemmBulk : BulkSizes {
  static constexpr bool turned = Form == GemmBulkForm::turned, joins = turned || Form == GemmBulkForm::sliced;
  static constexpr bool apart = gemm_bulk_teams_apart(Columns, Form == GemmBulkForm::ping_pong);
  /// 64 rows are one consumer's: two would share the columns and read the left factor twice, which takes shared memory
  /// longer than the products take.
  static constexpr bool alone = Rows == 64 && !Promotes && Form != GemmBulkForm::ping_pong;
  static constexpr bool three = Rows == 192;
  static constexpr int consumers = apart || alone ? 1 : (three ? 3 : 2), teams_at_once = apart ? 2 : 1;
  /// Of 128 bytes along K in a step. Beside its products a step costs a consumer a wait, descriptors and the way to the
  /// first result: where the products of one line take less, a step has two. Else the first begins when half as much
  /// has come: 64 x 128 at 1024³ 6.05 -> 5.86 us.
  static constexpr int lines = Rows == 64 && Columns <= 96 && !Promotes ? 2 : 1;
  static constexpr int BM = Rows, BN = Columns, BK = lines * 128 / ElementBytes;
  static constexpr int depth = (three ? 176 : 192) * 1024 / teams_at_once / ((BM + BN) * lines * 128);
  static constexpr bool left_across = LeftAcross, right_across = RightAcross;
  static constexpr bool promotes = Promotes, multicast = true;
  static constexpr bool ping_pong = Form == GemmBulkForm::ping_pong && !apart;
  /// What follows the sum of more columns takes longer than a first copy: 128 x 160 at 1536³ 12.2 -> 12.6 us.
  static constexpr bool rehearses = !Promotes && !ping_pong && !joins && Columns <= 128;
  /// What is promoted at a time, beside the accumulator in registers: two parts of 128 columns, one of more. Of two, so
  /// many steps go one into the other: after the last the tensor cores wait for the sum.
  static constexpr int part_columns = Columns < 256 ? Columns : 128, steps_together = Columns <= 128 ? 8 : 1;
  static constexpr bool crowded = gemm_bulk_crowded(Columns, ping_pong, Promotes), cuts_tiles = !crowded;
  /// Else there are no registers, or the compiler does not find them: 160 columns in ping-pong spilled 12 bytes.
  static constexpr bool ready_releases =
      !Promotes && (turned ? Columns <= 128 : Columns < 256 && !(ping_pong && Columns == 160));
  /// Half as many messages between teams of a cluster, for a ring that is given back later: 1024² x 4096 16.0 -> 15.0
  /// us by pairs that load together, 896 x 1152 x 1024 by teams of their own 6.25 -> 6.42. Other forms, for which there
  /// are more shapes of that kind, do without.
  static constexpr bool pairs_stages = alone && Columns == 128 && Form == GemmBulkForm::plain;
  static constexpr int producer_registers = crowded ? 24 : BulkSizes::producer_registers;
  static constexpr int consumer_registers =
      three ? 152 : (apart ? 216 : (crowded ? 240 : BulkSizes::consumer_registers));
};

/// For the products of a list, whose sizes nobody knows who chooses.
inline constexpr int gemm_list_rows = 128, gemm_list_columns = 256;

/// What the tiles have in common whose teams work alike: factors of the time of a step, unless said otherwise.
struct GemmBulkKind {
  /// Where two teams load together, one above the other or beside each other, and where four or eight do: what comes
  /// from other teams enters shared memory at some 65 bytes a clock, what a team has loaded itself at 80. Steps of few
  /// products wait for it.
  double over, beside, cluster;
  double single;  // where a team has but one tile: nothing is multiplied while its consumers do something else
  double tf32;    // of any but pairs, which wait for their copies: products take longer than those of 16 bits
  double stored;  // elements of a tile that leave in a clock
  double parts;   // clocks of a team with a part of K, beside the sum of them
  double joined;  // clocks of teams that share a tile to begin and end their sum
  double seen;    // of the shorter of steps and what memory needs for them, the fraction that the longer does not hide
  double early, half_early;  // clocks of a start that are under the kernel before where few teams run, and where many
};
/// Two small teams a multiprocessor, of one consumer each; one consumer, of up to 96 columns, turned, or of 128; two
/// that share a tile, or three; two that share the largest; two that take turns.
inline constexpr GemmBulkKind gemm_bulk_small{1.04, 0.88, 1.01, 1, 1.2, 11.5, 1700, 0, 0.6, 500, 340},
    gemm_bulk_lone{1.16, 1.14, 1.24, 1, 1.2, 31, 3000, 875, 0.12, 0, 0},
    gemm_bulk_turned{1.29, 1.17, 1.31, 1, 1, 81, 0, 625, 0.12, 485, 95},
    gemm_bulk_wide{1.14, 1.13, 1.13, 1, 1.18, 27, 2900, 2045, 0.12, 50, 0},
    gemm_bulk_shared{1.03, 1.01, 1.01, 1, 1, 21.6, 3300, 1110, 0.12, 0, 0},
    gemm_bulk_three{1.01, 0.99, 0.99, 0.96, 1, 22.4, 3600, 950, 0.12, 0, 0},
    gemm_bulk_largest{0.97, 0.98, 0.97, 1.05, 1, 19.4, 2600, 0, 0.12, 0, 0},
    gemm_bulk_turns{0.97, 0.93, 0.94, 1.06, 1, 15, 3600, 0, 0.12, 0, 0};

/// A candidate of the bulk pipeline, with the clocks that a line of K takes, measured on an H200 whose multiprocessors
/// are all busy, also where products are promoted; 0: there is no such kernel. So many teams may share a tile along K,
/// in kernels of their own: what adds up their sums costs the others up to 3 % of a small product. Those of 64 columns,
/// of 128 x 96 and of 192 x 128 serve nearly all shapes that gain by it. Turned ones always may, and do nothing but
/// store what stays in whole packs; of other widths there are those that 331 shapes gain by.
struct GemmBulkTile {
  int rows, columns;
  Schedule schedule;
  int max_slices;
  double step, promoted_step;
  GemmBulkKind const& kind;

  constexpr bool ping_pong() const { return schedule == Schedule::ping_pong; }
  constexpr bool turned() const { return schedule == Schedule::turned; }
};
inline constexpr GemmBulkTile gemm_bulk_tiles[] = {
    {128, 256, Schedule::cooperative, 1, 1183, 1250, gemm_bulk_largest},
    {128, 192, Schedule::ping_pong, 1, 885, 0, gemm_bulk_turns},
    {128, 176, Schedule::ping_pong, 1, 817, 0, gemm_bulk_turns},
    {128, 160, Schedule::ping_pong, 1, 756, 0, gemm_bulk_turns},
    {128, 144, Schedule::ping_pong, 1, 688, 0, gemm_bulk_turns},
    {128, 128, Schedule::ping_pong, 1, 610, 0, gemm_bulk_turns},
    {128, 112, Schedule::ping_pong, 1, 561, 0, gemm_bulk_turns},
    {128, 192, Schedule::cooperative, 1, 0, 930, gemm_bulk_shared},
    {128, 128, Schedule::cooperative, 8, 594, 600, gemm_bulk_shared},
    {128, 96, Schedule::cooperative, 8, 476, 0, gemm_bulk_shared},
    {64, 128, Schedule::cooperative, 8, 330, 450, gemm_bulk_wide},
    {64, 96, Schedule::cooperative, 1, 274, 0, gemm_bulk_lone},
    {64, 64, Schedule::cooperative, 8, 197, 0, gemm_bulk_lone},
    {64, 32, Schedule::ping_pong, 1, 247, 0, gemm_bulk_small},
    {192, 96, Schedule::cooperative, 1, 708, 0, gemm_bulk_three},
    {192, 128, Schedule::cooperative, 8, 903, 0, gemm_bulk_three},
    {64, 64, Schedule::turned, 8, 191, 0, gemm_bulk_turned},
    {64, 96, Schedule::turned, 8, 269, 0, gemm_bulk_turned},
    {64, 128, Schedule::turned, 8, 318, 0, gemm_bulk_turned},
    {64, 160, Schedule::turned, 8, 370, 0, gemm_bulk_turned},
    {64, 192, Schedule::turned, 8, 403, 0, gemm_bulk_turned},
    {128, 144, Schedule::turned, 8, 666, 0, gemm_bulk_shared},
    {128, 160, Schedule::turned, 6, 740, 0, gemm_bulk_shared},
};

/// Whether rings hold what teams that share a tile send each other, some warps' sums of each to each.
constexpr bool holds_gemm_slices(int consumers, int most, int tile_bytes, int ring_bytes) {
  for (int slices = 2, warps = 4 * consumers; slices <= most; ++slices)
    if (slices * ((warps + slices - 1) / slices) * (tile_bytes / warps) > ring_bytes) return false;
  return true;
}

/// Teams that load together, in the order of trial.
inline constexpr Cluster gemm_clusters[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {4, 2}, {2, 4}};

/// Multiprocessors from which on those of more than two are tried: a part of a device may have no group of so many.
inline constexpr int gemm_cluster_concurrency = 64;

/// The rest of the model, in clocks, fitted to 331 shapes of bf16 on the same machine, aligned by 16 to 128 bytes, 84
/// of them thin, each in every tile and cluster. What is chosen beside the best of them: "The choice of tiles" in
/// docs/measurements/products-hopper.md.
struct GemmBulkClocks {
  static constexpr double start = 3500;  // launch, descriptors, first stage
  static constexpr double early(GemmBulkTile const& t, double busy) {
    return busy <= 0.6 ? t.kind.early : (busy < 1 ? t.kind.half_early : 0);
  }
  /// From the last step to the next tile: by both consumers, or by the one whose tile it is.
  static constexpr double store(GemmBulkTile const& t) { return 790 + t.rows * t.columns / t.kind.stored; }
  /// What that takes longer where C is added to: 8192 elements of a consumer's have come before, more must be waited
  /// for.
  static constexpr double add(GemmBulkTile const& t) {
    double const elements = t.rows * t.columns / (t.ping_pong() ? 1.0 : 2.0);
    return 700 + (elements > 8192 ? (elements - 8192) / 4.3 : 0);
  }
  /// What remains of it where one consumer stores under the products of the other.
  static constexpr double turn(GemmBulkTile const& t, bool adds) {
    return t.rows * t.columns / 32.0 * (adds ? 1.5 : 1.0);
  }
  /// The sum of the parts of teams that share a tile, of which each receives and sends as much, and what it takes
  /// longer to store it other than by packs.
  static constexpr double combine(GemmBulkTile const& t, int slices, bool by_packs) {
    if (slices == 1) return 0;
    double const sent = static_cast<double>(t.rows) * t.columns * (slices - 1) / slices;
    return t.kind.joined + 282 * (slices - 1) + 0.28 * sent + (by_packs ? 0 : 28 * t.columns);
  }
  /// Of steps and copies of teams that share tiles: neighbours then need nothing that the other needs.
  static constexpr double sliced_steps(int slices) { return slices > 1 ? 1.09 : 1; }
  static constexpr double sliced_copies(int slices, double busy) {
    return slices == 1 ? 1 : (busy > 0.5 ? 1.11 : 0.96);
  }
  /// Of the copy of one line of 128 bytes, by what its address is a multiple of.
  static constexpr double line(int aligned) {
    return aligned < 32 ? 5.28 : (aligned < 64 ? 3.2 : (aligned < 128 ? 2.95 : 2.42));
  }
  /// Of that, how much is left where few load: two multiprocessors share a way to the second-level cache, which gives
  /// 42 bytes a clock to each of all 132, and up to 90 to one of 66. Where some have another beside them, these take as
  /// long as if all had.
  static constexpr double crowding(double busy) { return busy > 0.5 ? 0.845 : 0.634; }
  /// Of so many bytes from memory by the teams of these waves, in the same way.
  static constexpr double streamed(double bytes, double waves) {
    if (waves <= 0) return 0;
    double const whole = static_cast<double>(static_cast<int>(waves)), rest = waves - whole;
    double const last = rest > 0.5 ? (rest > 0.79 ? rest : 0.79) : (rest > 0 ? (whole > 0 ? 0.51 : 0.48) : 0);
    return bytes / 2120 * (whole + last) / waves;
  }
  /// Steps and the memory's part of them, of which the longer hides most of the other.
  static constexpr double longer(GemmBulkTile const& t, double steps, double streamed) {
    return steps > streamed ? steps + t.kind.seen * streamed : streamed + t.kind.seen * steps;
  }
  /// How much of its time a step takes where teams load together. Where sums are promoted nothing is won, unless they
  /// are scaled too.
  static constexpr double together(GemmBulkTile const& t, Cluster const& c, bool promoted, bool scaled) {
    if (c.teams() == 1) return 1;
    if (promoted) return scaled ? 0.98 : 1;
    return c.teams() > 2 ? t.kind.cluster : (c.rows > 1 ? t.kind.over : t.kind.beside);
  }
  static constexpr double products(GemmBulkTile const& t, Cluster const& c, bool tf32) {
    return tf32 && c.teams() != 2 ? t.kind.tf32 : 1;
  }
  static constexpr double cache_bytes = 34.5 * (1 << 20);  // of factors that stay in it
  static constexpr double single(GemmBulkTile const& t, double waves) { return waves <= 1 ? t.kind.single : 1; }
  /// Of the copies of teams that load together, which wait for each other, beside what they save.
  static constexpr double shared(Cluster const& c) {
    if (c.teams() <= 2) return c.teams() == 1 ? 1 : 0.96;
    return c.teams() == 8 ? 1.4 : (c.rows == c.cols ? 1.19 : 0.95);
  }
  /// Of steps and copies of small tiles, of which pairs go along the many of a C that has at most so many the other
  /// way: alone, neighbours load the same at about the same time, which the cache then gives to both at once.
  static constexpr double few = 1.05;
  static constexpr int few_tiles = 4;
  /// Of copies where tiles are filled with what is not there, which is slow work.
  static constexpr double filling = 1.05;
  /// Of products of so many clocks or more, where the power that a device may draw sets its clock: what ping-pong wins
  /// by pairs beside each other is lost again there.
  static constexpr double long_product = 250e3;
  static constexpr double sustained(GemmBulkTile const& t, Cluster const& c) {
    return t.ping_pong() ? (c.cols > 1 ? 1.05 : 1.01) : 1;
  }
  /// Before the first step of teams that load together.
  static constexpr double meeting(Cluster const& c) { return c.teams() > 1 ? 100 : 0; }
  /// Of the multiprocessors, those that teams find who must be together: the groups have 16 or 18 each, some fewer.
  static constexpr double usable(int teams) {
    constexpr double found[] = {1, 1, 117 / 132., 120 / 132., 110 / 132., 102 / 132., 105 / 132., 120 / 132.};
    return found[teams - 1];
  }
};

}  // namespace tessera::detail

#endif
