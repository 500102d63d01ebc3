// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_HPP
#define TESSERA_ATTENTION_HPP

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/attention/run.hpp>
#include <tessera/attention_options.hpp>
#include <tessera/detail/array.hpp>
#include <tessera/mask_table.hpp>
#include <tessera/score.hpp>

namespace tessera {

namespace detail {

template <class Exec, class O, class Q, class K, class V>
constexpr void require_attention_operands() {
  require_views<Exec, O, Q, K, V>();
  require_outputs<O>();
  static_assert(
      O::rank() == 4 && Q::rank() == 4 && K::rank() == 4 && V::rank() == 4,
      "attention: Q, K, V and O are Views of rank 4: batch, head, sequence, feature (or batch, sequence, head, "
      "feature with options.layout)");
  using TQ = typename Q::non_const_value_type;
  static_assert(
      std::is_same_v<TQ, typename K::non_const_value_type> && std::is_same_v<TQ, typename V::non_const_value_type>,
      "attention: Q, K and V have one value type");
  static_assert(float_type<TQ> && (!std::is_same_v<TQ, double> || Machine<Exec>::is_host),
                "attention: the elements are float, fp16_t, bf16_t, e4m3_t or e5m2_t, or double on a CPU");
  static_assert(std::is_same_v<TQ, double> == std::is_same_v<typename O::value_type, double> &&
                    float_type<typename O::value_type>,
                "attention: O is of a floating-point type, of double exactly when Q, K and V are");
}

template <class T>
MatrixStack attention_stack(Array<T, 4> const& a, AttentionLayout layout) {
  int const head = layout == AttentionLayout::bhsd ? 1 : 2, row = 3 - head;
  MatrixStack m;
  m.data = a.data;
  m.type = scalar_of<std::remove_const_t<T>>;
  m.outer = a.extent[0];
  m.inner = a.extent[head];
  m.rows = a.extent[row];
  m.cols = a.extent[3];
  m.outer_stride = a.stride[0];
  m.inner_stride = a.stride[head];
  m.row_stride = a.stride[row];
  m.col_stride = a.stride[3];
  return m;
}

/// The extents fit together, whatever the element types.
inline void check_attention_extents(AttentionProblem const& p, bool paged, std::string const& operands) {
  auto const fail = [&](std::string const& why) {
    throw Error(ErrorCode::extent, "tessera::attention: " + why + "; " + operands);
  };
  if (p.o.outer != p.q.outer || (!paged && (p.k.outer != p.q.outer || p.v.outer != p.q.outer)))
    fail("the batches differ");
  if (p.k.outer != p.v.outer) fail("the pages of K and V differ");
  if (p.o.inner != p.q.inner) fail("the heads of Q and O differ");
  if (p.k.inner != p.v.inner) fail("the heads of K and V differ");
  if (p.q.inner > 0 && (p.k.inner == 0 || p.q.inner % p.k.inner != 0))
    fail("the " + std::to_string(p.q.inner) + " heads of Q are no multiple of the " + std::to_string(p.k.inner) +
         " heads of K and V");
  if (p.o.rows != p.q.rows) fail("the queries in Q and O differ");
  if (p.k.rows != p.v.rows) fail("the keys in K and V differ");
  if (p.q.cols != p.k.cols) fail("the features of Q and K differ");
  if (p.o.cols != p.v.cols) fail("the features of V and O differ");
  if (p.q.cols > 256 || p.v.cols > 256) fail("a head has at most 256 features");
  constexpr std::int64_t most_rows = std::int64_t(1) << 30;  // sums of two row indices fit into int
  if (p.q.rows > most_rows || p.k.rows > most_rows || p.q.outer > INT_MAX || p.q.inner > INT_MAX)
    fail("a sequence has at most 2^30 rows, a batch and the heads at most 2^31 - 1");
}

template <class Exec, class T>
void take_lse(AttentionProblem& p, ViewRef<T, 3> const& lse, std::string const& operands) {
  auto const& a = lse.array();
  lse.template check_accessible<Exec>("tessera::attention", "options.lse");
  if (a.extent[0] != p.o.outer || a.extent[1] != p.o.inner || a.extent[2] != p.o.rows)
    throw Error(ErrorCode::extent,
                "tessera::attention: lse " + shape(a) + " is not (batch, heads, queries) of O; " + operands);
  check_data("tessera::attention", "lse", a);
  check_writable("tessera::attention", "lse", a);
  p.lse = {a.data, scalar_of<T>, a.extent[2], 1, a.stride[2], 1, a.extent[0], a.extent[1], a.stride[0], a.stride[1]};
}

/// The starts of sequences do not decrease and stay within `rows`: where the host is the one to read them.
inline void check_starts(char const* name, Array<int const, 1> const& starts, std::int64_t rows) {
  for (std::int64_t s = 0; s < starts.extent[0]; ++s) {
    int const before = s > 0 ? starts(s - 1) : 0;
    check_value(before <= starts(s) && starts(s) <= rows, "tessera::attention",
                std::string(name) + "(" + std::to_string(s) + ") = " + std::to_string(starts(s)) + " is not between " +
                    std::to_string(before) + " before it and the " + std::to_string(rows) + " rows");
  }
}

/// Packed sequences. Where there are none of them, there is nothing to do.
template <class Exec>
void take_sequences(AttentionProblem& p, AttentionOptions const& options, std::string const& operands) {
  constexpr char const* op = "tessera::attention";
  constexpr std::int64_t most = std::int64_t(1) << 22;  // so that rows of tiles are counted in 31 bits
  check_value(options.query_starts && options.key_starts, op, "options.query_starts and key_starts belong together");
  auto const& q = options.query_starts.array();
  auto const& k = options.key_starts.array();
  options.query_starts.template check_accessible<Exec>(op, "options.query_starts");
  options.key_starts.template check_accessible<Exec>(op, "options.key_starts");
  auto const fail = [&](std::string const& why) {
    throw Error(ErrorCode::extent, "tessera::attention: " + why + "; " + operands);
  };
  if (p.q.outer != 1) fail("packed sequences want a batch of 1");
  if (q.extent[0] != k.extent[0] || q.extent[0] < 1 || q.extent[0] > most)
    fail("query_starts " + shape(q) + " and key_starts " + shape(k) + " are not both (sequences + 1), at most 2^22");
  check_data(op, "query_starts", q);
  check_data(op, "key_starts", k);
  if constexpr (Machine<Exec>::is_host) {
    check_starts("query_starts", q, p.q.rows);
    check_starts("key_starts", k, p.k.rows);
  }
  p.packed = {static_cast<int>(q.extent[0] - 1),
              {q.data, q.stride[0], static_cast<int>(p.q.rows)},
              {k.data, k.stride[0], static_cast<int>(p.k.rows)}};
  if (p.packed.count == 0) p.q.outer = p.k.outer = p.v.outer = p.o.outer = 0;
}

/// Behind take_sequences(), whose number is that of the lengths.
template <class Exec>
void take_key_lengths(AttentionProblem& p, AttentionOptions const& options, std::string const& operands) {
  constexpr char const* op = "tessera::attention";
  auto const& lengths = options.key_lengths.array();
  options.key_lengths.template check_accessible<Exec>(op, "options.key_lengths");
  bool const packed(options.query_starts);
  check_extent(op, "key_lengths", lengths, 0, packed ? p.packed.count : p.q.outer,
               (packed ? "the sequences; " : "the batch; ") + operands);
  check_data(op, "key_lengths", lengths);
  p.key_lengths = lengths.data;
  p.key_lengths_stride = lengths.stride[0];
}

/// Behind take_sequences(), whose number is then that of the batch.
template <class Exec>
void take_head_scales(AttentionProblem& p, AttentionOptions const& options, std::string const& operands) {
  constexpr char const* op = "tessera::attention";
  std::int64_t const batch = options.query_starts ? p.packed.count : p.q.outer;
  auto const take = [&](char const* name, ViewRef<float const, 2> const& scales, std::int64_t entries,
                        std::int64_t heads) -> HeadScales::Operand {
    if (!scales) return {};
    auto const& a = scales.array();
    scales.template check_accessible<Exec>(op, name);
    if ((a.extent[0] != 1 && a.extent[0] != entries) || (a.extent[1] != 1 && a.extent[1] != heads))
      throw Error(ErrorCode::extent, std::string(op) + ": " + name + " " + shape(a) + " is not (" +
                                         std::to_string(entries) + " or 1, " + std::to_string(heads) + " or 1); " +
                                         operands);
    check_data(op, name, a);
    return {a.data, a.extent[0] > 1 ? a.stride[0] : 0, a.extent[1] > 1 ? a.stride[1] : 0};
  };
  // Keys in pages have the batch of the queries.
  p.scales = {take("q_scale", options.q_scale, batch, p.q.inner), take("k_scale", options.k_scale, batch, p.k.inner),
              take("v_scale", options.v_scale, batch, p.v.inner)};
}

/// Behind take_pages(), which says how many keys a batch entry has.
template <class Exec>
void take_key_scales(AttentionProblem& p, AttentionOptions const& options, std::string const& operands) {
  constexpr char const* op = "tessera::attention";
  check_value(options.scale_keys > 0, op,
              "options.scale_keys " + std::to_string(options.scale_keys) + " is not positive");
  std::int64_t const keys = std::min(options.scale_keys, std::int64_t(1) << 30);
  bool const packed(options.query_starts);
  std::int64_t const batch = packed ? p.packed.count : p.q.outer, heads = p.k.inner,
                     tiles = (p.keys() + keys - 1) / keys;
  auto const take = [&](char const* name, ViewRef<float const, 3> const& scales) -> KeyScales::Operand {
    if (!scales) return {};
    auto const& a = scales.array();
    scales.template check_accessible<Exec>(op, name);
    bool const fits = packed ? a.extent[2] >= 1 : a.extent[2] == tiles;
    if ((a.extent[0] != 1 && a.extent[0] != batch) || (a.extent[1] != 1 && a.extent[1] != heads) || !fits)
      throw Error(ErrorCode::extent, std::string(op) + ": " + name + " " + shape(a) + " is not (" +
                                         std::to_string(batch) + " or 1, " + std::to_string(heads) + " or 1, " +
                                         (packed ? "tiles" : std::to_string(tiles)) + ") for tiles of " +
                                         std::to_string(keys) + " keys; " + operands);
    check_data(op, name, a);
    p.key_scales.tiles = static_cast<int>(std::min<std::int64_t>(a.extent[2], INT_MAX));
    return {a.data, a.extent[0] > 1 ? a.stride[0] : 0, a.extent[1] > 1 ? a.stride[1] : 0, a.stride[2]};
  };
  p.key_scales.keys = static_cast<int>(keys);
  p.key_scales.k = take("k_tile_scale", options.k_tile_scale);
  int const of_k = p.key_scales.tiles;
  p.key_scales.v = take("v_tile_scale", options.v_tile_scale);
  check_value(!options.k_tile_scale || !options.v_tile_scale || of_k == p.key_scales.tiles, op,
              "options.k_tile_scale and v_tile_scale have different numbers of tiles");
}

template <class Exec>
void take_sinks(AttentionProblem& p, AttentionOptions const& options, std::string const& operands) {
  constexpr char const* op = "tessera::attention";
  auto const& sinks = options.sinks.array();
  options.sinks.template check_accessible<Exec>(op, "options.sinks");
  check_extent(op, "sinks", sinks, 0, p.q.inner, "the heads of Q; " + operands);
  check_data(op, "sinks", sinks);
  p.sinks = sinks.data;
  p.sinks_stride = sinks.stride[0];
}

template <class Exec, class O, class Q, class K, class V>
AttentionProblem attention_problem(O const& o_view, Q const& q_view, K const& k_view, V const& v_view,
                                   AttentionOptions const& options) {
  constexpr char const* op = "tessera::attention";
  auto const o = array(o_view);
  auto const q = array(q_view);
  auto const k = array(k_view);
  auto const v = array(v_view);
  std::string const operands = "O " + shape(o) + ", Q " + shape(q) + ", K " + shape(k) + ", V " + shape(v);
  AttentionProblem p;
  p.o = attention_stack(o, options.layout);
  p.q = attention_stack(q, options.layout);
  p.k = attention_stack(k, options.layout);
  p.v = attention_stack(v, options.layout);
  check_attention_extents(p, static_cast<bool>(options.block_table), operands);
  p.heads_per_kv = p.k.inner > 0 ? static_cast<int>(p.q.inner / p.k.inner) : 1;
  p.causal = options.causal;
  p.dropout = DropoutRule(options.dropout);
  p.left = options.window_left.value_or(p.endless);
  p.right = options.window_right.value_or(p.endless);
  p.scale = options.scale.value_or(p.q.cols > 0 ? 1 / std::sqrt(static_cast<double>(p.q.cols)) : 1);
  check_value(p.scale > 0 && std::isfinite(p.scale), op,
              "options.scale " + std::to_string(p.scale) + " is not finite and positive");
  check_writable(op, "O", o);
  check_data(op, "O", o);
  check_data(op, "Q", q);
  check_data(op, "K", k);
  check_data(op, "V", v);
  check_no_overlap(op, "O", o, "Q", q);
  check_no_overlap(op, "O", o, "K", k);
  check_no_overlap(op, "O", o, "V", v);
  check_attention_workspace(options, o, q, k, v);
  constexpr bool fp64 = std::is_same_v<typename O::value_type, double>;
  check_value(fp64 ? !options.lse : !options.lse_fp64, op,
              fp64 ? "operands of double write options.lse_fp64, not options.lse"
                   : "only operands of double write options.lse_fp64");
  auto const lse = [&] {
    if constexpr (fp64)
      return options.lse_fp64;
    else
      return options.lse;
  }();
  if (lse) {
    take_lse<Exec>(p, lse, operands);
    check_no_overlap(op, "lse", lse.array(), "O", o);
    check_no_overlap(op, "lse", lse.array(), "Q", q);
    check_no_overlap(op, "lse", lse.array(), "K", k);
    check_no_overlap(op, "lse", lse.array(), "V", v);
  }
  auto const check_apart = [&](char const* name, auto const& numbers) {
    if (!numbers) return;
    check_no_overlap(op, "O", o, name, numbers.array());
    if (lse) check_no_overlap(op, "lse", lse.array(), name, numbers.array());
  };
  check_apart("key_lengths", options.key_lengths);
  check_apart("query_starts", options.query_starts);
  check_apart("key_starts", options.key_starts);
  check_apart("q_scale", options.q_scale);
  check_apart("k_scale", options.k_scale);
  check_apart("v_scale", options.v_scale);
  check_apart("k_tile_scale", options.k_tile_scale);
  check_apart("v_tile_scale", options.v_tile_scale);
  check_apart("sinks", options.sinks);
  if (options.sinks) take_sinks<Exec>(p, options, operands);
  if (options.query_starts || options.key_starts) take_sequences<Exec>(p, options, operands);
  if (options.key_lengths) take_key_lengths<Exec>(p, options, operands);
  if (options.q_scale || options.k_scale || options.v_scale) take_head_scales<Exec>(p, options, operands);
  if (p.packed.count > 0) {
    check_value(!options.block_table, op, "options.block_table does not go with packed sequences");
    check_value(options.splits <= 1, op, "the keys of packed sequences are not split, as options.splits asks for");
  }
  if (options.block_table) {
    take_pages<Exec>(p, options, operands);
    check_no_overlap(op, "O", o, "block_table", options.block_table.array());
    if (lse) check_no_overlap(op, "lse", lse.array(), "block_table", options.block_table.array());
  }
  if (options.k_tile_scale || options.v_tile_scale) take_key_scales<Exec>(p, options, operands);
  return p;
}

/// Error{value} for a page of a key that counts and that the pools do not have.
inline void check_page_numbers(AttentionProblem const& p) {
  auto const entry = [&](std::int64_t b, std::int64_t i) {
    return p.pages.data[b * p.pages.row_stride + i * p.pages.col_stride];
  };
  for (std::int64_t b = 0; b < p.q.outer; ++b)
    for (std::int64_t i = 0; i < p.pages.columns && i * p.pages.rows < p.key_lengths[b * p.key_lengths_stride]; ++i)
      check_value(entry(b, i) >= 0 && entry(b, i) < p.pages.pages, "tessera::attention",
                  "page " + std::to_string(i) + " of batch entry " + std::to_string(b) + " is " +
                      std::to_string(entry(b, i)) + ", the pools have " + std::to_string(p.pages.pages));
}

template <class Exec>
void take_pages(AttentionProblem& p, AttentionOptions const& options, std::string const& operands) {
  constexpr char const* op = "tessera::attention";
  auto const& table = options.block_table.array();
  options.block_table.template check_accessible<Exec>(op, "options.block_table");
  check_value(static_cast<bool>(options.key_lengths), op, "options.block_table needs options.key_lengths");
  check_extent(op, "block_table", table, 0, p.q.outer, "the batch; " + operands);
  check_data(op, "block_table", table);
  constexpr std::int64_t most_keys = std::int64_t(1) << 30;
  if (p.k.outer > INT_MAX || (p.k.rows > 0 && table.extent[1] > most_keys / p.k.rows))
    throw Error(ErrorCode::extent, std::string(op) + ": there are at most 2^31 - 1 pages and 2^30 keys a sequence; " +
                                       "block_table " + shape(table) + ", " + operands);
  bool const empty = p.k.outer == 0 || p.k.rows == 0;
  p.pages = {table.data,
             table.stride[0],
             table.stride[1],
             empty ? 0 : static_cast<int>(table.extent[1]),
             static_cast<int>(p.k.outer),
             empty ? 1 : static_cast<int>(p.k.rows)};
  if (options.check_pages && !empty && options.block_table.host_accessible() && options.key_lengths.host_accessible())
    check_page_numbers(p);
}

/// Nothing that is read or written lies in the workspace.
inline void check_attention_workspace(AttentionOptions const& options, AnyArray const& o, AnyArray const& q,
                                      AnyArray const& k, AnyArray const& v) {
  constexpr char const* op = "tessera::attention";
  check_value(options.splits >= 0, op, "options.splits " + std::to_string(options.splits) + " is negative");
  if (options.workspace == nullptr) {
    if (options.workspace_bytes != 0 && options.workspace_bytes != SIZE_MAX)
      throw Error(ErrorCode::workspace, std::string(op) + ": a workspace of " +
                                            std::to_string(options.workspace_bytes) + " bytes without an address");
    return;
  }
  if (reinterpret_cast<std::uintptr_t>(options.workspace) % 16 != 0)
    throw Error(ErrorCode::workspace, std::string(op) + ": the workspace is not aligned to 16 bytes");
  AnyArray workspace{options.workspace, 1, 1};
  workspace.extent[0] = static_cast<std::int64_t>(options.workspace_bytes);
  workspace.stride[0] = 1;
  check_no_overlap(op, "workspace", workspace, "O", o);
  check_no_overlap(op, "workspace", workspace, "Q", q);
  check_no_overlap(op, "workspace", workspace, "K", k);
  check_no_overlap(op, "workspace", workspace, "V", v);
}

/// The problem as it runs: functors of the caller's own are asked about the heads and keys as they are.
template <class Exec, class Score, class Mask, class O, class Q, class K, class V>
AttentionProblem attention_to_run(O const& o, Q const& q, K const& k, V const& v, AttentionOptions const& options,
                                  Score const& score) {
  AttentionProblem p = attention_problem<Exec>(o, q, k, v, options);
  p.biases = score_tiles(p, score);
  bool const as_it_is = own_functor<Score, Mask> || drops_weights<Score>;
  return as_it_is ? p : with_heads_together(with_window_cut_out(p));
}

template <class V>
using attention_compute = std::conditional_t<std::is_same_v<typename V::non_const_value_type, double>, double, float>;

/// f(score) for the kernel that runs: with dropout a kernel of its own.
template <class Score, class Mask, class F>
auto with_score_to_run(AttentionOptions const& options, Score const& score, F const& f) {
  double const p = options.dropout.p;
  check_value(p >= 0 && p <= 1, "tessera::attention",
              "options.dropout.p must lie in [0, 1], it is " + std::to_string(p));
  if constexpr (!drops_weights<Score>) {
    if constexpr (!own_functor<Score, Mask>)
      if (p > 0) return f(score::with_dropout(score));
    if (p > 0)
      throw Error(ErrorCode::unsupported,
                  "tessera::attention: options.dropout with a score or mask of the caller's own wants "
                  "score::with_dropout(score), so that it is compiled");
  }
  return f(score);
}

template <class Exec, class O, class Q, class K, class V, class Score, class Mask>
void attend(Exec const& exec, O const& o, Q const& q, K const& k, V const& v, AttentionOptions const& options,
            Score const& score, Mask const& mask) {
  using Compute = attention_compute<O>;
  AttentionProblem const p = attention_to_run<Exec, Score, Mask>(o, q, k, v, options, score);
  AttentionPlan const plan = plan_attention<Exec, Compute, Score, Mask>(exec, p, options);
  if (plan.tiles == 0) return;
  check_mask(mask, p, plan);
  if (plan.workspace_bytes > 0 &&
      options.workspace == nullptr)  // SIZE_MAX, as attention_workspace_size() asks the plan with
    throw Error(ErrorCode::workspace, "tessera::attention: a workspace without an address");
  run_attention<Exec, typename Q::non_const_value_type, Compute>(exec, p, plan, score, mask, options.workspace);
}

}  // namespace detail

/// What attention() would run for these operands on this machine: printable, and the way to see whether a fast path is
/// taken. @throws Error as attention() does.
template <detail::execution_space Exec, detail::view O, detail::view Q, detail::view K, detail::view V,
          class Score = score::Identity, class Mask = mask::All>
AttentionPlan attention_plan(Exec const& exec, O const& o, Q const& q, K const& k, V const& v,
                             AttentionOptions const& options = {}, Score const& score = {}, Mask const& = {}) {
  detail::require_attention_operands<Exec, O, Q, K, V>();
  return detail::with_score_to_run<Score, Mask>(options, score, [&]<class ToRun>(ToRun const& to_run) {
    return detail::plan_attention<Exec, detail::attention_compute<O>, ToRun, Mask>(
        exec, detail::attention_to_run<Exec, ToRun, Mask>(o, q, k, v, options, to_run), options);
  });
}

/// Bytes of options.workspace with which attention() splits the keys as it sees fit, or as options.splits says; 0 where
/// it does not. At most splits·B·H·S_q·(d_v + 1) elements of the accumulator's type.
/// @throws Error as attention() does.
template <detail::execution_space Exec, detail::view O, detail::view Q, detail::view K, detail::view V,
          class Score = score::Identity, class Mask = mask::All>
std::size_t attention_workspace_size(Exec const& exec, O const& o, Q const& q, K const& k, V const& v,
                                     AttentionOptions options = {}, Score const& score = {}, Mask const& mask = {}) {
  options.workspace = nullptr;
  options.workspace_bytes = SIZE_MAX;
  return attention_plan(exec, o, q, k, v, options, score, mask).workspace_wanted;
}

/// O ← softmax(score(scale·Q·Kᵀ), hidden keys −∞)·V, exactly, for every batch entry and head.
///
/// Q (B, H, S_q, d), K (B, H_kv, S_k, d), V (B, H_kv, S_k, d_v), O (B, H, S_q, d_v), or with the sequence before the
/// heads (options.layout); any strides; d and d_v up to 256; H a multiple of H_kv, whose heads serve H / H_kv query
/// heads each. Elements are float, fp16_t, bf16_t, e4m3_t or e5m2_t with fp32 accumulation, or double on a CPU; O may
/// have another type. options.q_scale, k_scale and v_scale are what the elements of a head are times,
/// options.k_tile_scale and v_tile_scale those of some keys one behind the other. Neither scores nor weights are
/// stored: beside O, only what the caller asks for in options.lse is written. Runs asynchronously on `exec`, without
/// fence or allocation.
///
/// Keys may lie in pages (options.block_table): K (pages, H_kv, page size, d), V (pages, H_kv, page size, d_v).
///
/// A query that sees no key (causal with fewer keys than queries, a key length of 0, S_k = 0) gives O = 0 and LSE = −∞,
/// or LSE = its sink (options.sinks).
/// NaN among a query's scores, and a score of +∞, make its row NaN. Keys and values behind a key length may hold
/// anything. Values that a mask hides, but no key length, must be finite: their weight is 0, and 0·∞ is NaN.
///
/// @param options scale, mask, layout, statistics: see AttentionOptions
/// @param score what happens to each scaled score before the softmax: see score.hpp
/// @param mask which keys queries see, of those that the options leave: see mask.hpp and mask_table.hpp
/// @throws Error{extent} extents do not fit, those of scales either, or d or d_v over 256; {overlap} O or lse shares
/// memory with another
///   operand or with itself;
///   {null_data} an operand has elements and no data; {value} the scale is not finite and positive, options.scale_keys
///   is not positive, options.dropout.p is not in [0, 1], an option's memory is out of reach, options.splits is
///   negative, starts of sequences decrease or leave the rows (host execution spaces), options.block_table comes
///   without options.key_lengths or with packed sequences, options.splits is more than 1 with packed sequences,
///   options.check_pages has found a page that does not exist, or a mask's table is for other tiles; {workspace}
///   options.workspace is not aligned or null, or too small for options.splits; {unsupported} the asked algorithm
///   cannot run and options.allow_fallback is false, or dropout is wanted with a score or mask of the caller's own and
///   without score::with_dropout()
template <detail::execution_space Exec, detail::view O, detail::view Q, detail::view K, detail::view V,
          class Score = score::Identity, class Mask = mask::All>
void attention(Exec const& exec, O const& o, Q const& q, K const& k, V const& v, AttentionOptions const& options = {},
               Score const& score = {}, Mask const& mask = {}) {
  detail::require_attention_operands<Exec, O, Q, K, V>();
  detail::with_score_to_run<Score, Mask>(
      options, score, [&](auto const& to_run) { detail::attend(exec, o, q, k, v, options, to_run, mask); });
}

/// attention() on the default instance of O's execution space.
template <detail::view O, detail::view Q, detail::view K, detail::view V, class Score = score::Identity,
          class Mask = mask::All>
void attention(O const& o, Q const& q, K const& k, V const& v, AttentionOptions const& options = {},
               Score const& score = {}, Mask const& mask = {}) {
  attention(typename O::execution_space{}, o, q, k, v, options, score, mask);
}

}  // namespace tessera

#endif
