// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The example of docs/attention.md, compiled as it stands there and run. Between the two marks: the same text, which
// the last case checks.
// [example]
#include <tessera/attention.hpp>
#include <tessera/attention_backward.hpp>
#include <tessera/attention_merge.hpp>

using namespace tessera;
using Exec = Kokkos::DefaultExecutionSpace;
using Heads = Kokkos::View<bf16_t****, Kokkos::LayoutRight>;  // (batch, head, sequence, feature)

/// The first keys, a prompt, are seen by every query, the others by queries at or behind them.
struct Prompt {
  int length, offset;  // offset = keys - queries: the last query is that of the last key
  KOKKOS_FUNCTION bool operator()(int, int, int i, int j) const { return j < length || j <= i + offset; }
  KOKKOS_FUNCTION mask::Keys keys(int, int, int, int i_end) const {  // of queries before i_end: no others are read
    return {0, i_end + offset > length ? i_end + offset : length};
  }
};

void windowed(Exec const& exec, Heads o, Heads q, Heads k, Heads v, int width) {
  attention(exec, o, q, k, v, {.causal = true, .window_left = width - 1});  // its own key is one of them
}
/// A token sees those of its own document up to itself. The table is good for every layer of a model.
void documents(Exec const& exec, Heads o, Heads q, Heads k, Heads v, Kokkos::View<int const**> ids) {
  auto const same = mask::consecutive_documents(ids);
  auto const plan = attention_plan(exec, o, q, k, v, {.causal = true}, score::Identity{}, same);
  mask::TableShape const shape{.queries = q.extent_int(2), .keys = k.extent_int(2), .batches = ids.extent_int(0)};
  Kokkos::View<int*> const storage("table", mask::table_size(plan, shape));
  auto const table = mask::table(exec, same, plan, shape, storage);
  attention(exec, o, q, k, v, {.causal = true}, score::Identity{}, table);
}
void prompted(Exec const& exec, Heads o, Heads q, Heads k, Heads v, int length) {
  attention(exec, o, q, k, v, {}, score::Identity{}, Prompt{length, k.extent_int(2) - q.extent_int(2)});
}
void linear_biases(Exec const& exec, Heads o, Heads q, Heads k, Heads v, Kokkos::View<float*> slopes) {
  attention(exec, o, q, k, v, {.causal = true}, score::alibi(slopes, k.extent_int(2) - q.extent_int(2)));
}
/// Biases by distance, one row of the table a head: of distances from -n to n, beyond which the ends hold.
void by_distance(Exec const& exec, Heads o, Heads q, Heads k, Heads v, Kokkos::View<float**> table) {
  attention(exec, o, q, k, v, {.causal = true}, score::relative_bias(table, k.extent_int(2) - q.extent_int(2)));
}
/// In training: weights are dropped, and a learned logit of each head takes its share of the others.
void with_sinks_and_dropout(Exec const& exec, Heads o, Heads q, Heads k, Heads v, Kokkos::View<float const*> sinks,
                            std::uint64_t seed, std::uint64_t step) {
  attention(exec, o, q, k, v, {.causal = true, .sinks = sinks, .dropout = {.p = 0.1, .seed = seed, .offset = step}});
}
void capped(Exec const& exec, Heads o, Heads q, Heads k, Heads v) {
  attention(exec, o, q, k, v, {}, score::SoftCap{30.0});
}
/// Sequence s is the rows from starts(s) to starts(s + 1).
void one_behind_the_other(Exec const& exec, Heads o, Heads q, Heads k, Heads v, Kokkos::View<int const*> starts) {
  attention(exec, o, q, k, v, {.causal = true, .query_starts = starts, .key_starts = starts});
}
void padded(Exec const& exec, Heads o, Heads q, Heads k, Heads v, Kokkos::View<int const*> lengths,
            Kokkos::View<float***> lse) {
  attention(exec, o, q, k, v, {.key_lengths = lengths, .lse = lse});
}

/// One more token of each sequence, over keys in pages: (pages, heads, keys of a page, feature). With the workspace,
/// which is kept from step to step, teams may share the keys of a sequence.
void decode(Exec const& exec, Heads o, Heads q, Heads k_pages, Heads v_pages,
            Kokkos::View<int const**, Kokkos::LayoutRight> pages, Kokkos::View<int const*> lengths,
            Kokkos::View<char*>& workspace) {
  AttentionOptions options{.key_lengths = lengths, .block_table = pages};
  std::size_t const bytes = attention_workspace_size(exec, o, q, k_pages, v_pages, options);
  if (workspace.size() < bytes) workspace = Kokkos::View<char*>("workspace", bytes);
  options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  attention(exec, o, q, k_pages, v_pages, options);
}

/// Ring attention: keys that have come from another machine are merged into what o and lse have of those before.
void ring_step(Exec const& exec, Heads o, Kokkos::View<float***> lse, Heads q, Heads k, Heads v, Heads other_o,
               Kokkos::View<float***> other_lse) {
  attention(exec, other_o, q, k, v, {.lse = other_lse});
  merge_attention(exec, o, lse, other_o, other_lse);
}

/// Gradients, given what attention() has made of Q, K and V: O and LSE.
void gradients(Exec const& exec, Heads dq, Heads dk, Heads dv, Heads q, Heads k, Heads v, Heads o,
               Kokkos::View<float***> lse, Heads d_o, Kokkos::View<char*>& workspace) {
  AttentionBackwardOptions options{.forward = {.causal = true}};
  std::size_t const bytes = attention_backward_workspace_size(exec, dq, dk, dv, q, k, v, o, lse, d_o, options);
  if (workspace.size() < bytes) workspace = Kokkos::View<char*>("workspace", bytes);
  options.workspace = workspace.data();
  options.workspace_bytes = workspace.size();
  attention_backward(exec, dq, dk, dv, q, k, v, o, lse, d_o, options);
}
// [end]
#include <algorithm>
#include <cmath>
#include <vector>

#include "examples/shown.hpp"
#include "reference/attention_backward.hpp"
#include "support/paged.hpp"

using namespace tessera::test;

namespace {

struct Operands {
  AttentionShape z;
  std::vector<bf16_t> qh, kh, vh;
  Heads q, k, v, o;
  explicit Operands(AttentionShape shape = {2, 4, 2, 37, 50, 16, 24})
      : z(shape),
        q("Q", z.batch, z.heads, z.queries, z.d),
        k("K", z.batch, z.kv_heads, z.keys, z.d),
        v("V", z.batch, z.kv_heads, z.keys, z.d_v),
        o("O", z.batch, z.heads, z.queries, z.d_v) {
    qh = uniform<bf16_t>(q.size(), 1, -2, 2), kh = uniform<bf16_t>(k.size(), 2, -2, 2);
    vh = uniform<bf16_t>(v.size(), 3);
    fill(q, qh), fill(k, kh), fill(v, vh);
    poison(o);
  }
  /// Some machines round the weights to bf16; a score functor errs by a few units of what it adds or caps.
  template <class Visible, class Score>
  AttentionReference check(Visible const& visible, Score const& score) const {
    Exec{}.fence();
    auto const r = attention_reference(z, qh, kh, vh, 1 / std::sqrt(double(z.d)), visible, score,
                                       8 * unit_roundoff<float>(), 2 * unit_roundoff<bf16_t>());
    check_attention(r, values(o));
    return r;
  }
  bool causal(int i, int j) const { return j <= i + z.keys - z.queries; }
};

constexpr auto unchanged = [](double s, int, int, int, int) { return s; };

}  // namespace

TEST_CASE("the example of gradients computes what it says") {
  Exec const exec;
  Operands x;
  AttentionShape const z = x.z;
  auto const causal = [&](int, int i, int j) { return x.causal(i, j); };
  Kokkos::View<float***> const lse("LSE", z.batch, z.heads, z.queries);
  attention(exec, x.o, x.q, x.k, x.v, {.causal = true, .lse = lse});
  Heads const d_o("dO", z.batch, z.heads, z.queries, z.d_v), dq("dQ", z.batch, z.heads, z.queries, z.d),
      dk("dK", z.batch, z.kv_heads, z.keys, z.d), dv("dV", z.batch, z.kv_heads, z.keys, z.d_v);
  auto const d_oh = uniform<bf16_t>(d_o.size(), 4);
  fill(d_o, d_oh);
  Kokkos::View<char*> workspace;
  gradients(exec, dq, dk, dv, x.q, x.k, x.v, x.o, lse, d_o, workspace);
  exec.fence();
  double const u = unit_roundoff<float>(), u_16 = unit_roundoff<bf16_t>(), scale = 1 / std::sqrt(double(z.d));
  auto const forward = attention_reference(z, x.qh, x.kh, x.vh, scale, causal, unchanged, u, 2 * u_16);
  // O may err by a rounding of its weights beside its own, LSE by what its bound says.
  double lse_error = 0;
  for (std::size_t i = 0; i < forward.lse.size(); ++i)
    lse_error = std::max(lse_error, forward.lse_allowed[i] / std::max(1e-3, std::fabs(forward.lse[i])));
  auto const r = attention_backward_reference(z, x.qh, x.kh, x.vh, d_oh, {}, forward, scale, causal,
                                              {u, 2 * u_16, 3 * u_16, lse_error});
  check_gradient(r.dq, values(dq)), check_gradient(r.dk, values(dk)), check_gradient(r.dv, values(dv));
}

TEST_CASE("the examples of masks and scores compute what they say") {
  Exec const exec;
  Operands x;
  AttentionShape const z = x.z;
  auto const causal = [&](int, int i, int j) { return x.causal(i, j); };

  windowed(exec, x.o, x.q, x.k, x.v, 9);
  x.check([&](int, int i, int j) { return x.causal(i, j) && j > i + z.keys - z.queries - 9; }, unchanged);

  Kokkos::View<int**> const ids("ids", z.batch, z.keys);
  std::vector<int> ids_h(ids.size());
  for (int b = 0; b < z.batch; ++b)
    for (int j = 0; j < z.keys; ++j) ids_h[std::size_t(b) * z.keys + j] = (j + 5 * b) / 12;
  fill(ids, ids_h);
  documents(exec, x.o, x.q, x.k, x.v, ids);
  auto const id = [&](int b, int j) { return ids_h[std::size_t(b) * z.keys + j]; };
  x.check([&](int b, int i, int j) { return x.causal(i, j) && id(b, i) == id(b, j); }, unchanged);

  prompted(exec, x.o, x.q, x.k, x.v, 20);
  x.check([&](int, int i, int j) { return j < 20 || x.causal(i, j); }, unchanged);

  Kokkos::View<float*> const slopes("slopes", z.heads);
  std::vector<float> const slopes_h = {0.5f, 0.25f, 0.125f, 0.0625f};
  fill(slopes, slopes_h);
  linear_biases(exec, x.o, x.q, x.k, x.v, slopes);
  x.check(causal,
          [&](double s, int, int h, int i, int j) { return s + double(slopes_h[h]) * (j - i - (z.keys - z.queries)); });

  Kokkos::View<float**> const table("table", z.heads, 9);
  auto const table_h = uniform<float>(table.size(), 8);
  fill(table, table_h);
  by_distance(exec, x.o, x.q, x.k, x.v, table);
  x.check(causal, [&](double s, int, int h, int i, int j) {
    return s + table_h[std::size_t(h) * 9 + std::clamp(j - i - (z.keys - z.queries), -4, 4) + 4];
  });

  capped(exec, x.o, x.q, x.k, x.v);
  x.check([](int, int, int) { return true; }, [](double s, int, int, int, int) { return 30 * std::tanh(s / 30); });

  Kokkos::View<int*> const lengths("lengths", z.batch);
  std::vector<int> const lengths_h = {31, 0};
  fill(lengths, lengths_h);
  Kokkos::View<float***> const lse("lse", z.batch, z.heads, z.queries);
  padded(exec, x.o, x.q, x.k, x.v, lengths, lse);
  auto const r = x.check([&](int b, int, int j) { return j < lengths_h[b]; }, unchanged);
  check_lse(r, values(lse));
}

TEST_CASE("the example of sinks and dropout drops what it says, of what sinks leave") {
  Exec const exec;
  Operands x({1, 2, 1, 5, 12, 16, 16});
  std::vector<float> const sinks_h = {-INFINITY, 200.0f};  // none, and one that leaves nothing
  Kokkos::View<float*> const sinks("sinks", 2);
  fill(sinks, sinks_h);
  fill(x.q, std::vector<bf16_t>(x.q.size(), bf16_t(0.0f)));  // all weights of a row are alike
  fill(x.v, std::vector<bf16_t>(x.v.size(), bf16_t(1.0f)));
  with_sinks_and_dropout(exec, x.o, x.q, x.k, x.v, sinks, 7, 3);
  exec.fence();
  auto const o = values(x.o);
  AttentionDropout const dropout{.p = 0.1, .seed = 7, .offset = 3};
  for (int i = 0; i < 5; ++i) {
    double kept = 0;
    for (int j = 0; j <= i + 7; ++j) kept += attention_keeps(dropout, 0, 0, i, j) ? 1 : 0;
    CHECK(std::fabs(to_double(o[std::size_t(i) * 16]) - kept / (i + 8) / 0.9) <= 4 * unit_roundoff<bf16_t>());
    CHECK(to_double(o[std::size_t(5 + i) * 16]) == 0);
  }
}

TEST_CASE("the examples of pages and merging compute what they say") {
  Exec const exec;
  AttentionShape const z{2, 4, 2, 1, 90, 16, 24};
  PagedKeys<Exec, bf16_t> const x(z, 16, {90, 33}, AttentionLayout::bhsd);
  Heads const q("Q", 2, 4, 1, 16), o("O", 2, 4, 1, 24), other("O", 2, 4, 1, 24), k("K", 2, 2, 90, 16),
      v("V", 2, 2, 90, 24);
  auto const qh = uniform<bf16_t>(q.size(), 5, -2, 2);
  fill(q, qh), fill(k, x.kh), fill(v, x.vh);
  auto const expected = [&](auto const& visible) {
    return attention_reference(z, qh, x.kh, x.vh, 0.25, visible, unchanged, 8 * unit_roundoff<float>(),
                               2 * unit_roundoff<bf16_t>());
  };
  Kokkos::View<char*> workspace;
  decode(exec, o, q, x.k, x.v, x.table, x.lengths, workspace);
  exec.fence();
  check_attention(expected([](int b, int, int j) { return j < (b == 0 ? 90 : 33); }), values(o));

  // Three machines with thirty keys each. O of bf16 is rounded after each: 2^-8 more of what is below 1.
  Kokkos::View<float***> const lse("LSE", 2, 4, 1), other_lse("LSE", 2, 4, 1);
  auto const of_machine = [&](Heads const& all, int machine) {
    Heads const some("keys", 2, 2, 30, all.extent(3));
    auto const range = std::make_pair(30 * machine, 30 * machine + 30);
    Kokkos::deep_copy(some, Kokkos::subview(all, Kokkos::ALL, Kokkos::ALL, range, Kokkos::ALL));
    return some;
  };
  attention(exec, o, q, of_machine(k, 0), of_machine(v, 0), {.lse = lse});
  for (int machine : {1, 2})
    ring_step(exec, o, lse, q, of_machine(k, machine), of_machine(v, machine), other, other_lse);
  exec.fence();
  auto r = expected([](int, int, int) { return true; });
  for (double& allowed : r.allowed) allowed += 3 * unit_roundoff<bf16_t>();
  check_attention(r, values(o));
  check_lse(r, values(lse));
}

TEST_CASE("the example of packed sequences computes what it says") {
  Operands const x({1, 4, 2, 90, 90, 16, 24});
  std::vector<int> const starts_h = {0, 13, 13, 50, 90};
  Kokkos::View<int*> const starts("starts", starts_h.size());
  fill(starts, starts_h);
  one_behind_the_other(Exec{}, x.o, x.q, x.k, x.v, starts);
  auto const sequence = [&](int row) {
    return std::upper_bound(starts_h.begin(), starts_h.end(), row) - starts_h.begin();
  };
  x.check([&](int, int i, int j) { return j <= i && sequence(i) == sequence(j); }, unchanged);
}

TEST_CASE("the page on attention shows the examples that are tested") { check_shown("docs/attention.md", __FILE__); }
