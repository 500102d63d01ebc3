// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_PLAN_DETAIL_HPP
#define TESSERA_ATTENTION_PLAN_DETAIL_HPP

#include <algorithm>
#include <cmath>
#include <string>

#include <tessera/attention/arranged_values.hpp>
#include <tessera/attention/configs.hpp>
#include <tessera/attention/kernel.hpp>
#include <tessera/attention/split.hpp>
#include <tessera/attention_options.hpp>
#include <tessera/detail/checks.hpp>
#include <tessera/error.hpp>
#include <tessera/machine.hpp>

namespace tessera::detail {

template <class Exec, class Compute, int D>
using TiledAttentionAtoms = RowAtoms<Exec, Compute, AttentionTiled<Machine<Exec>::is_host, D>>;

/// f(atoms) with the configuration of the portable pipeline, whose D holds the features.
template <class Exec, class Compute, int D, class Score, class Mask, class F>
void visit_tiled_attention([[maybe_unused]] AttentionProblem const& p, F const& f) {
  constexpr bool plain = std::is_same_v<Score, score::Identity> && std::is_same_v<Mask, mask::All>;
  if constexpr (Machine<Exec>::is_host && plain && std::is_same_v<Compute, float>) {
    using Tall = AttentionTiledTall<D>;
    bool const all_seen = !p.grows() && !p.windowed() && p.packed.count == 0;
    if (all_seen && p.q.rows >= Tall::BM && p.tiles(Tall::BM) >= attention_tall_tiles)
      return f(RowAtoms<Exec, Compute, Tall>{});
  }
  f(TiledAttentionAtoms<Exec, Compute, D>{});
}

/// fp64 attention is for the CPU: its tiles do not fit the scratch of a GPU's team.
template <class Exec, class Compute>
inline constexpr bool attention_runs = Machine<Exec>::is_host || std::is_same_v<Compute, float>;

/// Calls f(std::integral_constant<int, D>) with the smallest compiled D that holds the features.
template <class F>
void visit_features(std::int64_t features, F const& f) {
  if (features <= 64)
    f(std::integral_constant<int, 64>{});
  else if (features <= 128)
    f(std::integral_constant<int, 128>{});
  else
    f(std::integral_constant<int, 256>{});
}

inline std::int64_t attention_features(AttentionProblem const& p) { return p.q.cols > p.v.cols ? p.q.cols : p.v.cols; }

/// Kernels that the library has none of: the caller compiles them.
template <class Score, class Mask>
inline constexpr bool own_functor =
    !std::is_same_v<own_score<Score>, score::Identity> || !std::is_same_v<Mask, mask::All>;

/// The element types that the pipelines of asynchronous copies attend over.
template <class T>
inline constexpr bool pipelines_attend = std::is_same_v<T, bf16_t> || std::is_same_v<T, fp16_t>;

/// Those that the bulk pipeline attends over with V arranged beforehand: 8 bits, and fp32 rounded to tf32.
template <class T>
inline constexpr bool arranges_values =
    std::is_same_v<T, e4m3_t> || std::is_same_v<T, e5m2_t> || std::is_same_v<T, float>;
constexpr bool with_arranged_values(Scalar type) {
  return type == Scalar::e4m3 || type == Scalar::e5m2 || type == Scalar::fp32;
}

/// What the tiles for few queries are for; those for keys in pages have as many rows.
inline bool takes_few_queries(AttentionProblem const& p) { return p.q.rows <= 64 || p.pages.present(); }

/// f(atoms) with the configuration for 8 bits, or for fp32 of up to 128 features. `Plain`: for whole sequences, without
/// scales of keys and functors.
template <class Exec, class T, bool Plain, class F>
void visit_arranged_attention(AttentionProblem const& p, F const& f) {
  std::int64_t const features = attention_features(p);
  bool const few = takes_few_queries(p);
  if constexpr (sizeof(T) == 4) {
    if (features <= 64)
      few ? f(BulkAtoms<Exec, T, AttentionTf32Few<64>>{}) : f(BulkAtoms<Exec, T, AttentionTf32<64>>{});
    else
      few ? f(BulkAtoms<Exec, T, AttentionTf32Few<128>>{}) : f(BulkAtoms<Exec, T, AttentionTf32<128>>{});
  } else {
    if (few) return visit_features(features, [&](auto d) { f(BulkAtoms<Exec, T, AttentionNarrowFew<d()>>{}); });
    if constexpr (!Plain)
      visit_features(features, [&](auto d) { f(BulkAtoms<Exec, T, AttentionNarrowRanged<d()>>{}); });
    else if (features <= 64)
      f(BulkAtoms<Exec, T, AttentionNarrow<64, 160, 3>>{});
    else if (features > 128)
      f(BulkAtoms<Exec, T, AttentionNarrow<256>>{});
    else if (p.grows() && p.keys_in_sight() < attention_narrow_causal_from)
      f(BulkAtoms<Exec, T, AttentionNarrow<128>>{});
    else
      f(BulkAtoms<Exec, T, AttentionNarrow<128, attention_narrow_keys>>{});
  }
}

/// For the long tiles of d 128.
inline bool takes_long_tiles(AttentionProblem const& p) {
  bool const edges = p.grows() || p.windowed();  // tiles that are half empty
  std::int64_t const features = attention_features(p);
  return !takes_few_queries(p) && features > 64 && features <= 128 &&
         p.keys_in_sight() >= (edges ? attention_long_causal_from : attention_long_from);
}

/// Tiles for few queries and for keys in pages.
template <class Exec, class T, class F>
void visit_few_queries(AttentionProblem const& p, F const& f) {
  visit_features(attention_features(p),
                 [&](auto d) { f(BulkAtoms<Exec, T, AttentionFewQueries<decltype(d)::value>>{}); });
}

/// Those that the library has for problems with ranges.
template <class Score, class KernelMask>
inline constexpr bool library_ranges = (std::is_same_v<Score, score::Identity> && std::is_same_v<KernelMask, Ranges>);

/// The short ones of two consumers for more than 64 features. Of a caller's kernels there are fewer, since each costs a
/// minute to compile.
template <class Exec, class T, bool OfLibrary, class F>
void visit_wide_attention(AttentionProblem const& p, F const& f) {
  if (attention_features(p) <= 128) return f(BulkAtoms<Exec, T, AttentionBulk<128, attention_short_keys>>{});
  if constexpr (OfLibrary)
    if (attention_features(p) <= 192) return f(BulkAtoms<Exec, T, AttentionBulk<192, attention_keys_of_192>>{});
  f(BulkAtoms<Exec, T, AttentionBulk<256, attention_wide_keys>>{});
}

/// Beside the scores of long tiles, and in teams of three consumers, a functor has too few registers, but for those in
/// long tiles that say that theirs are few.
template <class Exec, class T, class Score, class Mask, class F>
void visit_masked_attention(AttentionProblem const& p, F const& f) {
  if constexpr (adds_tiles<Score>)
    if (p.biases.data != nullptr && !takes_few_queries(p) && attention_features(p) <= 128)
      return attention_features(p) <= 64 ? f(BulkAtoms<Exec, T, AttentionBiased<64>>{})
                                         : f(BulkAtoms<Exec, T, AttentionBiased<128>>{});
  if constexpr (std::is_same_v<Mask, mask::All> && requires { requires Score::few_registers; })
    if (!p.ranged() && !p.scales.present() && takes_long_tiles(p))
      return f(BulkAtoms<Exec, T, AttentionBulk<128, attention_long_keys>>{});
  if (takes_few_queries(p))
    visit_few_queries<Exec, T>(p, f);
  else if (attention_features(p) <= 64)
    f(BulkAtoms<Exec, T, AttentionBulk<64, attention_short_keys>>{});
  else
    visit_wide_attention<Exec, T, library_ranges<Score, Mask>>(p, f);
}

/// Tiles of whole groups of keys for which one evaluation decides. Not for keys in pages.
template <class Exec, class T, class F>
void visit_dropping_attention(AttentionProblem const& p, F const& f) {
  visit_features(attention_features(p), [&](auto d) {
    constexpr int features = decltype(d)::value;
    f(BulkAtoms<Exec, T, AttentionBulk<features, attention_dropout_keys<features>>>{});
  });
}

/// Whether this problem is done with sooner in tiles of three consumers than in others. Without a mask, what tiles are
/// filled up with decides: 1024 queries and keys of d 112 are 1152 x 1056 in them, 1024 x 1024 in tiles of 128.
template <int Features, class Other>
bool takes_three_consumers(AttentionProblem const& p) {
  using Three = AttentionThree<Features>;
  if (p.causal) return p.keys_in_sight() >= attention_three_causal_from<Features>;
  auto const filled_up = [&](double queries, double keys) {
    return std::ceil(p.q.rows / queries) * queries * (std::ceil(p.keys() / keys) * keys);
  };
  return filled_up(Three::BM, Three::BN) <= attention_three_gain<Features> * filled_up(Other::BM, Other::BN);
}

/// For a team a multiprocessor: whole sequences, of which none ends before the others.
inline bool takes_few_tiles(AttentionProblem const& p, int processors) {
  bool const alike = p.key_lengths == nullptr && !p.pages.present() && !p.ranged() && !p.scales.present();
  return takes_few_queries(p) && alike && attention_features(p) <= 128 && p.q.outer * p.q.inner <= processors;
}

/// `Ranged`: for kernels of problems with ranges alone.
template <class T, bool Ranged, class Exec, class F>
void visit_maskless_attention(Exec const& exec, AttentionProblem const& p, F const& f) {
  using Two = AttentionBulk<128, attention_short_keys>;
  std::int64_t const features = attention_features(p);
  if constexpr (!Ranged)
    if (takes_few_tiles(p, Machine<Exec>::concurrency(exec)))
      return features <= 64 ? f(BulkAtoms<Exec, T, AttentionFewTiles<64>>{})
                            : f(BulkAtoms<Exec, T, AttentionFewTiles<128>>{});
  if (takes_few_queries(p))
    visit_few_queries<Exec, T>(p, f);
  else if (features <= 64)
    takes_three_consumers<64, AttentionShortRows>(p) ? f(BulkAtoms<Exec, T, AttentionThree<64>>{})
                                                     : f(BulkAtoms<Exec, T, AttentionShortRows>{});
  else if (features <= 96 && takes_three_consumers<96, Two>(p))
    f(BulkAtoms<Exec, T, AttentionThree<96>>{});
  else if (features > 96 && features <= 112 && takes_three_consumers<112, Two>(p))
    f(BulkAtoms<Exec, T, AttentionThree<112>>{});
  else if (takes_long_tiles(p))
    f(BulkAtoms<Exec, T, AttentionBulk<128, attention_long_keys>>{});
  else
    visit_wide_attention<Exec, T, true>(p, f);
}

/// f(atoms) with the configuration of the bulk pipeline for this problem with Q, K and V of T. `Mask` may also be
/// Ranges of problems that have them, beside a functor or of types with arranged values; `KernelMask` always is.
template <class T, class Score, class Mask, class KernelMask = Mask, class Exec, class F>
void visit_bulk_attention(Exec const& exec, AttentionProblem const& p, F const& f) {
  if constexpr (arranges_values<T>)
    visit_arranged_attention<Exec, T, !own_functor<Score, Mask>>(p, f);
  else if constexpr (drops_weights<Score>)
    visit_dropping_attention<Exec, T>(p, f);
  else if constexpr (own_functor<Score, Mask>)
    visit_masked_attention<Exec, T, Score, Mask>(p, f);
  else
    visit_maskless_attention<T, std::is_same_v<KernelMask, Ranges>>(exec, p, f);
}

/// f(std::type_identity<KernelMask>) with what a kernel of the pipelines for T is compiled for: Ranges in the place of
/// mask::All where the problem has them, or scales, which go with them; but those of heads, where values are arranged,
/// are in all kernels.
template <class T, class Mask, class F>
void visit_kernel_mask(AttentionProblem const& p, F const& f) {
  bool const scaled = p.key_scales.present() || (p.scales.present() && !arranges_values<T>);
  if constexpr (std::is_same_v<Mask, mask::All>)
    if (p.ranged() || scaled) return f(std::type_identity<Ranges>{});
  f(std::type_identity<Mask>{});
}
/// Where weights are dropped the library has kernels for problems with ranges alone.
template <class T, class Score, class Mask, class F>
void visit_async_mask(AttentionProblem const& p, F const& f) {
  if constexpr (std::is_same_v<Score, score::WithDropout<score::Identity>> && std::is_same_v<Mask, mask::All>)
    f(std::type_identity<Ranges>{});
  else
    visit_kernel_mask<T, Mask>(p, f);
}

/// f(atoms) with the configurations of the pipeline of asynchronous copies for this problem, the preferred one first,
/// the others for devices with less scratch. On an H200, full and causal over 4096 keys (TFLOP/s): of D 64, 96 keys a
/// step 303 and 276, 112 in one stage 296 and 268, 64 and three teams 304 and 276; of D 128, two stages 358 and 313,
/// one 342 and 301, 256 queries in eight warps 323 and 276; of D 256, four warps 298 and 295, eight 268 and 261. Beside
/// their accumulators there are few registers for a mask's functor, or for a score's and windows.
template <class Exec, class T, class Score, class KernelMask, class F>
void each_async_attention(AttentionProblem const& p, F const& f) {
  constexpr bool has_registers = library_ranges<own_score<Score>, KernelMask> || std::is_same_v<KernelMask, mask::All>;
  std::int64_t const features = attention_features(p);
  if (!has_registers || takes_few_queries(p))
    return visit_features(features,
                          [&](auto d) { f(AsyncRowAtoms<Exec, T, AttentionAsyncFewQueries<decltype(d)::value>>{}); });
  if constexpr (has_registers) {
    if (features <= 64) {
      f(AsyncRowAtoms<Exec, T, AttentionAsync<64, 96, 4, 2, 2>>{});
    } else if (features <= 128) {
      f(AsyncRowAtoms<Exec, T, AttentionAsync<128, 64, 4, 2, 2>>{});
      f(AsyncRowAtoms<Exec, T, AttentionAsync<128, 64, 4, 2, 1>>{});
    } else {
      f(AsyncRowAtoms<Exec, T, AttentionAsync<256, 64, 4, 1, 1>>{});
      f(AsyncRowAtoms<Exec, T, AttentionAsync<256, 64, 8, 1, 1, 1>>{});
    }
  }
}

/// The parts of the keys: as many as asked for, else as the shape and the machine suggest and the workspace holds
/// behind the first `taken` bytes.
inline void plan_splits(AttentionPlan& plan, AttentionProblem const& p, AttentionOptions const& options,
                        SplitShape const& shape, std::size_t element, std::size_t taken) {
  plan.splits_wanted = options.splits > 0 ? options.splits : (p.packed.count > 0 ? 1 : attention_splits(shape));
  plan.workspace_wanted = taken + split_workspace(p, plan.splits_wanted, element);
  if (options.splits > 0 && options.workspace_bytes < plan.workspace_wanted)
    throw Error(ErrorCode::workspace, "tessera::attention: " + std::to_string(options.splits) +
                                          " splits need a workspace of " + std::to_string(plan.workspace_wanted) +
                                          " bytes, " + std::to_string(options.workspace_bytes) +
                                          " were passed (attention_workspace_size)");
  std::size_t const a_split = split_workspace(p, 2, element) / 2;
  std::size_t const room = a_split > 0 ? (options.workspace_bytes - taken) / a_split : 0;
  plan.splits = room < 2 ? 1 : static_cast<int>(std::min<std::size_t>(room, plan.splits_wanted));
  plan.workspace_bytes = taken + split_workspace(p, plan.splits, element);
}

/// The portable kernels know windows and packed sequences always.
template <class Mask>
using TiledMask = std::conditional_t<std::is_same_v<Mask, mask::All>, Ranges, Mask>;

template <class Atoms>
constexpr AttentionSplitClocks split_clocks() {
  if constexpr (requires { Atoms::split_clocks; })
    return Atoms::split_clocks;
  else
    return {};
}

template <class Atoms, class Score, class Mask, class Exec>
AttentionPlan describe_attention(Exec const& exec, AttentionProblem const& p, AttentionOptions const& options,
                                 AttentionAlgorithm algorithm, char const* reason) {
  AttentionPlan plan;
  plan.algorithm = algorithm;
  plan.tile_queries = Atoms::BM;
  plan.tile_keys = Atoms::BN;
  plan.tile_features = Atoms::D;
  plan.team_threads = Machine<Exec>::threads(Atoms::team_threads);
  plan.scratch_bytes = scratch_of<Atoms, Exec, AttentionKernel<Atoms, Score, Mask>>();
  plan.tiles = p.tiles(Atoms::BM);
  plan.concurrency = Machine<Exec>::concurrency(exec);
  plan.reason = reason;
  constexpr AttentionSplitClocks clocks = split_clocks<Atoms>();
  SplitShape const shape{
      plan.tiles,
      (p.keys_in_sight() + Atoms::BN - 1) / Atoms::BN,
      std::int64_t(plan.concurrency) * Atoms::teams_at_once,
      static_cast<int>(std::min<std::int64_t>(p.q.rows, Atoms::BM)),
      Atoms::BN,
      p.key_lengths != nullptr && p.q.outer > 1,
      p.q.rows <= Atoms::BM ? plan.concurrency * clocks.saturation : 0,  // else keys come from caches
      clocks};
  plan_splits(plan, p, options, shape, sizeof(typename Atoms::Compute),
              WantsRowsContiguous<Atoms> ? arranged_bytes(p) : 0);
  return plan;
}

/// A tile is whole pages or a page whole tiles; nullptr when it is so.
inline char const* bulk_pages(AttentionProblem const& p) {
  bool const fit = !p.pages.present() || (p.k.rows % 8 == 0 && (64 % p.k.rows == 0 || p.k.rows % 128 == 0));
  return fit ? nullptr : "the hopper pipeline takes pages of 8, 16, 32, 64 or a multiple of 128 keys";
}

/// What 8-bit and fp32 operands must be for the bulk pipeline; nullptr when they are.
inline char const* arranged_attention_operands(AttentionProblem const& p, AttentionOptions const& options) {
  if (p.q.type == Scalar::fp32 && !options.allow_tf32)
    return "the hopper pipeline would round fp32 operands to tf32, which allow_tf32 does not permit";
  if (p.q.type == Scalar::fp32 && attention_features(p) > 128)
    return "the hopper pipeline takes fp32 operands of up to 128 features";
  for (MatrixStack const* m : {&p.q, &p.k})
    if (m->col_stride != 1 || !bulk_copyable(*m))
      return "the hopper pipeline wants contiguous features of Q and K, and pointers and strides in multiples of 16 "
             "bytes";
  if (p.key_scales.present() && (p.q.type == Scalar::fp32 || p.key_scales.keys % 128 != 0))
    return "the hopper pipeline takes scales of tiles of keys with 8-bit operands, each of a multiple of 128 keys";
  if (char const* const obstacle = bulk_pages(p)) return obstacle;
  if (p.keys() == 0 || p.q.cols == 0 || p.v.cols == 0) return "there is nothing to multiply";
  if (options.workspace_bytes < arranged_bytes(p))
    return "the hopper pipeline reads V of 8 bits and fp32 with the keys contiguous: it is arranged so, for which "
           "options.workspace is missing or too small (attention_workspace_size)";
  return nullptr;
}

/// What the operands must be for the bulk pipeline; nullptr when they are.
template <class Exec>
char const* bulk_attention_operands(Exec const& exec, AttentionProblem const& p, AttentionOptions const& options) {
  if (!BulkPipeline<Exec>::runs_on(exec)) return "the hopper pipeline needs a device of compute capability 9.0";
  if (with_arranged_values(p.q.type)) return arranged_attention_operands(p, options);
  for (MatrixStack const* m : {&p.q, &p.k, &p.v, &p.o}) {
    bool const fits = m->type == p.q.type || (m == &p.o && m->type == Scalar::fp32);
    if (!fits || (p.q.type != Scalar::bf16 && p.q.type != Scalar::fp16))
      return "the hopper pipeline takes Q, K and V of 8 bits or of fp32, or of bf16 or fp16 with O of the same type "
             "or of fp32";
    if (m->col_stride != 1 || !bulk_copyable(*m))
      return "the hopper pipeline wants contiguous features, and pointers and strides in multiples of 16 bytes";
  }
  if (p.keys() == 0 || p.q.cols == 0 || p.v.cols == 0) return "there is nothing to multiply";
  if (p.key_scales.present()) return "the hopper pipeline takes scales of tiles of keys with 8-bit operands";
  if (char const* const obstacle = bulk_pages(p)) return obstacle;
  if (p.v.cols % 2 != 0) return "the hopper pipeline stores features in pairs";
  return nullptr;
}

/// Why the bulk pipeline cannot run this problem; nullptr when it can.
template <class Exec, class Compute, class Score, class Mask>
char const* bulk_attention_obstacle([[maybe_unused]] Exec const& exec, [[maybe_unused]] AttentionProblem const& p,
                                    [[maybe_unused]] AttentionOptions const& options) {
  if constexpr (!has_bulk_pipeline<Exec>)
    return "the hopper pipeline needs the CUDA backend built for sm_90a";
  else if constexpr (!std::is_same_v<Compute, float>)
    return "the hopper pipeline has no fp64 products";
  else if constexpr (own_functor<Score, Mask> && !compiles_bulk_kernels)
    return "this source, which brings its own score or mask, is not compiled for sm_90a (tessera_target_hopper() in "
           "CMake)";
  else if (drops_weights<Score> && with_arranged_values(p.q.type))
    return "the hopper pipeline takes 8-bit and fp32 operands without dropout";
  else if (drops_weights<Score> && p.pages.present())
    return "the hopper pipeline has no dropout over keys in pages";
  else
    return bulk_attention_operands(exec, p, options);
}

/// The score's matrices, where the copy engine can read tiles of them.
template <class Score>
MatrixStack score_tiles(AttentionProblem const& p, Score const& score) {
  if constexpr (adds_tiles<Score>) {
    MatrixStack const m = ScoreMatrix<Score>::matrices(score);
    bool const whole = m.rows >= p.q.rows && m.cols >= p.keys() && m.rows > 1 && m.cols > 1;
    if (whole && m.col_stride == 1 && bulk_copyable(m)) return m;
  }
  return {};
}

/// A mask's table is for tiles of the size that runs, and for as many of them.
template <class Mask>
void check_mask(Mask const& mask, AttentionProblem const& p, AttentionPlan const& plan) {
  if constexpr (has_table<Mask>) {
    constexpr char const* op = "tessera::attention";
    auto const size = [](std::int64_t a, std::int64_t b) { return std::to_string(a) + " x " + std::to_string(b); };
    auto const tiles = [](std::int64_t extent, int of) { return (extent + of - 1) / of; };
    check_value(p.packed.count == 0, op, "a mask's table is for sequences of one length, not for packed ones");
    check_value(mask.tile_queries == plan.tile_queries && mask.tile_keys == plan.tile_keys, op,
                "the mask's table is for tiles of " + size(mask.tile_queries, mask.tile_keys) +
                    ", those that run have " + size(plan.tile_queries, plan.tile_keys));
    check_value(mask.query_tiles == tiles(p.q.rows, plan.tile_queries) &&
                    mask.key_tiles == tiles(p.keys(), plan.tile_keys) &&
                    (mask.batches == 1 || mask.batches == p.q.outer) && (mask.heads == 1 || mask.heads == p.q.inner),
                op,
                "the mask's table is for " + size(mask.batches, mask.heads) + " times " +
                    size(mask.query_tiles, mask.key_tiles) + " tiles, not for the queries and keys of " +
                    size(p.q.outer, p.q.inner) + " batch entries and heads");
  }
}

/// Why the pipeline of asynchronous copies cannot run this problem; nullptr when it can, if it has the scratch.
template <class Exec>
char const* async_attention_obstacle([[maybe_unused]] Exec const& exec, [[maybe_unused]] AttentionProblem const& p) {
  if constexpr (!has_async_pipeline<Exec>) {
    return "tensor_core needs the CUDA backend";
  } else {
    if (!AsyncPipeline<Exec>::runs_on(exec)) return "tensor_core needs a device of compute capability 8.0 or more";
    if (p.q.type != Scalar::bf16 && p.q.type != Scalar::fp16) return "tensor_core takes Q, K and V of bf16 or of fp16";
    if (p.key_scales.present()) return "tensor_core has no scales of tiles of keys";
    for (MatrixStack const* m : {&p.q, &p.k, &p.v})
      if (m->col_stride != 1 || !bulk_copyable(*m))
        return "tensor_core wants contiguous features of Q, K and V, and pointers and strides in multiples of 16 bytes";
    if (p.keys() == 0 || p.q.cols == 0 || p.v.cols == 0) return "there is nothing to multiply";
    return nullptr;
  }
}

/// The first configuration of which as many teams as it wants fit a multiprocessor, else the first of which one does;
/// none: the plan's algorithm stays automatic.
template <class Score, class Mask, class Exec>
AttentionPlan plan_attention_async(Exec const& exec, AttentionProblem const& p, AttentionOptions const& options,
                                   char const* reason) {
  AttentionPlan plan;
  std::size_t const room = Machine<Exec>::scratch_limit(exec);
  bool chosen = false;
  visit_async_mask<bf16_t, Score, Mask>(p, [&](auto kernel_mask) {
    using KernelMask = typename decltype(kernel_mask)::type;
    each_async_attention<Exec, bf16_t, Score, KernelMask>(p, [&](auto atoms) {  // as for fp16
      using Atoms = decltype(atoms);
      AttentionPlan const candidate =
          describe_attention<Atoms, Score, KernelMask>(exec, p, options, AttentionAlgorithm::tensor_core, reason);
      bool const fits = candidate.scratch_bytes * Atoms::teams_at_once <= room;
      if (!chosen && (fits || (plan.algorithm == AttentionAlgorithm::automatic && candidate.scratch_bytes <= room)))
        plan = candidate;
      chosen = chosen || fits;
    });
  });
  return plan;
}

template <class Exec, class Compute, class Score, class Mask>
AttentionPlan plan_attention(Exec const& exec, AttentionProblem const& p, AttentionOptions const& options) {
  AttentionAlgorithm wanted = options.algorithm;
  char const* reason = wanted == AttentionAlgorithm::automatic ? "the fastest that runs here" : "asked for";
  auto const refuse = [&](char const* obstacle) {
    if (obstacle != nullptr && options.algorithm == wanted && !options.allow_fallback)
      throw Error(ErrorCode::unsupported,
                  std::string("tessera::attention: algorithm ") + name(wanted) + " cannot run: " + obstacle);
  };
  AttentionPlan plan;
  if (wanted == AttentionAlgorithm::automatic || wanted == AttentionAlgorithm::hopper) {
    char const* const obstacle = bulk_attention_obstacle<Exec, Compute, Score, Mask>(exec, p, options);
    if (wanted == AttentionAlgorithm::hopper) refuse(obstacle);
    if (obstacle == nullptr) {
      if constexpr (has_bulk_pipeline<Exec> && std::is_same_v<Compute, float>) {
        auto const describe = [&](auto atoms) {
          plan = describe_attention<decltype(atoms), Score, Mask>(exec, p, options, AttentionAlgorithm::hopper, reason);
        };
        if (with_arranged_values(p.q.type))
          visit_kernel_mask<e4m3_t, Mask>(p, [&](auto kernel_mask) {
            using KernelMask = typename decltype(kernel_mask)::type;
            if (p.q.type == Scalar::fp32)
              visit_bulk_attention<float, Score, KernelMask>(exec, p, describe);
            else
              visit_bulk_attention<e4m3_t, Score, KernelMask>(exec, p, describe);  // as for e5m2
          });
        else
          visit_bulk_attention<bf16_t, Score, Mask>(exec, p, describe);  // as for fp16
      }
      return plan;
    }
    if (has_bulk_pipeline<Exec> || wanted == AttentionAlgorithm::hopper) reason = obstacle;
    wanted = AttentionAlgorithm::tensor_core;
  }
  if (wanted == AttentionAlgorithm::tensor_core) {
    char const* obstacle = async_attention_obstacle<Exec>(exec, p);
    if constexpr (has_async_pipeline<Exec> && std::is_same_v<Compute, float>) {
      if (obstacle == nullptr) {
        plan = plan_attention_async<Score, Mask>(exec, p, options, reason);
        if (plan.algorithm == wanted) return plan;
        obstacle = "tensor_core needs more scratch than this device gives a team";
      }
    }
    refuse(obstacle);
    if (options.algorithm == wanted || (has_async_pipeline<Exec> && !has_bulk_pipeline<Exec>)) reason = obstacle;
  }
  visit_features(attention_features(p), [&](auto d) {
    visit_tiled_attention<Exec, Compute, d(), Score, Mask>(p, [&](auto atoms) {
      plan = describe_attention<decltype(atoms), Score, TiledMask<Mask>>(exec, p, options, AttentionAlgorithm::tiled,
                                                                         reason);
    });
  });
  return plan;
}

}  // namespace tessera::detail

#endif
