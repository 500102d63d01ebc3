// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/operands.hpp"
#include "support/tensor_cores.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Differs from batch to batch and from head to head, and says nothing of tiles.
struct Scattered {
  KOKKOS_FUNCTION bool operator()(int b, int h, int i, int j) const { return (7 * i + 3 * j + 2 * h + b) % 5 < 2; }
};

/// Squares of 60 keys and queries: every third along a row of squares is seen. Says so of rectangles in one of them.
struct Squares {
  static constexpr int side = 60;
  KOKKOS_FUNCTION bool operator()(int, int, int i, int j) const { return (i / side + j / side) % 3 == 1; }
  KOKKOS_FUNCTION mask::Tile tile(int b, int h, int i_begin, int i_end, int j_begin, int j_end) const {
    int all = 0, seen = 0;
    for (int i = i_begin / side; i <= (i_end - 1) / side; ++i)
      for (int j = j_begin / side; j <= (j_end - 1) / side; ++j)
        ++all, seen += (*this)(b, h, i * side, j * side) ? 1 : 0;
    return seen == 0 ? mask::Tile::none : (seen == all ? mask::Tile::full : mask::Tile::partial);
  }
};

/// The first keys are seen by all, others up to the query's own.
struct Prefix {
  int prefix, offset;
  KOKKOS_FUNCTION bool operator()(int, int, int i, int j) const { return j < prefix || j <= i + offset; }
  KOKKOS_FUNCTION mask::Keys keys(int, int, int, int i_end) const {
    return {0, i_end + offset > prefix ? i_end + offset : prefix};
  }
};

struct Nothing {
  KOKKOS_FUNCTION bool operator()(int, int, int, int) const { return false; }
};

/// The mask with a table, and the numbers that it refers to.
template <class Exec, class M>
struct WithTable {
  ViewOf<Exec, int*> storage;
  mask::Table<M> table;
  template <class T>
  WithTable(Operands<Exec, T> const& x, AttentionOptions const& options, M const& m, std::int64_t batches = 1,
            std::int64_t heads = 1)
      : WithTable(m, attention_plan(Exec{}, x.ov, x.qv, x.kv, x.vv, options, score::Identity{}, m),
                  {x.z.queries, x.z.keys, batches, heads}) {}
  WithTable(M const& m, AttentionPlan const& plan, mask::TableShape const& shape)
      : storage("table", mask::table_size(plan, shape)), table(mask::table(Exec{}, m, plan, shape, storage)) {}
};

/// Once by asking the mask, once with a table. `seen` is the mask as the host knows it.
template <class Exec, class T, class M, class Seen>
void run_mask(AttentionShape z, M const& m, AttentionOptions options, bool by_head, Seen const& seen) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(options.causal);
  Operands<Exec, T> x(z);
  auto const lse = x.options();
  options.lse = lse.lse;
  options.lse_fp64 = lse.lse_fp64;
  std::function<bool(int, int, int, int)> const visible = [&](int b, int h, int i, int j) {
    int const own = i + z.keys - z.queries;
    return seen(b, h, i, j) && (!options.causal || j <= own) &&
           (!options.window_left || j >= own - *options.window_left);
  };
  // The reference asks for no head: it hides by score.
  auto const hidden = [&](double s, int b, int h, int i, int j) { return visible(b, h, i, j) ? s : -INFINITY; };
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, score::Identity{}, m);
  x.check(everything, hidden, x.scale());
  WithTable<Exec, M> const with(x, options, m, by_head ? z.batch : 1, by_head ? z.heads : 1);
  poison(x.ov), poison(x.lse);
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, score::Identity{}, with.table);
  x.check(everything, hidden, x.scale());
}

template <class Exec, class T, class M>
void run_mask(AttentionShape z, M const& m, AttentionOptions const& options, bool by_head = false) {
  run_mask<Exec, T>(z, m, options, by_head, m);
}

constexpr AttentionShape shapes[] = {
    {2, 4, 2, 131, 300, 16, 24}, {1, 2, 1, 300, 260, 8, 8}, {1, 3, 3, 1, 500, 16, 8}, {1, 1, 1, 1, 1, 4, 4}};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention asks a mask, or its table", Exec, masks_id) {
  for (AttentionShape z : shapes)
    for (bool causal : {false, true}) {
      run_mask<Exec, float>(z, Scattered{}, {.causal = causal}, true);
      run_mask<Exec, float>(z, Squares{}, {.causal = causal});
      run_mask<Exec, float>(z, Prefix{70, z.keys - z.queries}, {.causal = causal});
      run_mask<Exec, float>(z, Nothing{}, {.causal = causal});
    }
  run_mask<Exec, float>(shapes[1], Squares{}, {.window_left = 130});
  run_mask<Exec, bf16_t>({1, 2, 1, 300, 300, 128, 64}, Squares{}, {.causal = true});
  if constexpr (detail::Machine<Exec>::is_host)
    run_mask<Exec, double>({1, 2, 1, 90, 90, 20, 20}, Scattered{}, {}, true);
}
TEST_CASE_TEMPLATE_APPLY(masks_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core asks a mask, or its table", Exec, masks_tensor_core_id) {
  for (bool causal : {false, true}) {
    AttentionOptions const asked = on_tensor_cores<Exec>({.causal = causal});
    run_mask<Exec, bf16_t>({2, 4, 2, 131, 300, 128, 72}, Squares{}, asked);
    if (!has_tensor_cores<Exec>()) return;  // another kernel runs, which other tests see more of
    run_mask<Exec, bf16_t>({1, 2, 1, 300, 260, 64, 64}, Squares{}, asked);
    run_mask<Exec, bf16_t>({1, 2, 1, 70, 180, 256, 208}, Squares{}, asked);
    run_mask<Exec, bf16_t>({1, 3, 3, 1, 500, 120, 128}, Squares{}, asked);
  }
  run_mask<Exec, bf16_t>({2, 4, 2, 131, 300, 128, 128}, Squares{}, on_tensor_cores<Exec>({.window_left = 130}));
}
TEST_CASE_TEMPLATE_APPLY(masks_tensor_core_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention keeps documents apart", Exec, documents_id) {
  AttentionShape const z{2, 2, 1, 410, 410, 16, 16};
  std::vector<int> ids_h(std::size_t(z.batch) * z.keys);
  for (int b = 0; b < z.batch; ++b)
    for (int j = 0; j < z.keys; ++j) ids_h[std::size_t(b) * z.keys + j] = (j + 30 * b) / (j < 200 ? 190 : 13) - 7;
  ViewOf<Exec, int**> ids("ids", z.batch, z.keys), any("any ids", 1, z.keys), queries("ids of queries", 1, 100);
  fill(ids, ids_h);
  std::vector<int> any_h(ids_h.begin(), ids_h.begin() + z.keys);
  for (int& id : any_h) id = (id * 5 + 100) % 4;
  fill(any, any_h);
  fill(queries, std::vector<int>(any_h.end() - 100, any_h.end()));
  auto const of_batch = [&](int b, int, int i, int j) {
    return ids_h[std::size_t(b) * z.keys + i] == ids_h[std::size_t(b) * z.keys + j];
  };
  for (bool causal : {false, true}) {
    run_mask<Exec, float>(z, mask::consecutive_documents(ids), {.causal = causal}, true, of_batch);
    run_mask<Exec, float>(z, mask::documents(any), {.causal = causal}, false,
                          [&](int, int, int i, int j) { return any_h[i] == any_h[j]; });
    run_mask<Exec, float>({1, 2, 1, 100, z.keys, 16, 16}, mask::documents(queries, any), {.causal = causal}, false,
                          [&](int, int, int i, int j) { return any_h[z.keys - 100 + i] == any_h[j]; });
  }
}
TEST_CASE_TEMPLATE_APPLY(documents_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tiles that a mask hides are not read", Exec, mask_reads_id) {
  constexpr int length = 384;  // of each of three documents: whole tiles on every machine
  AttentionShape const z{1, 1, 1, 3 * length, 3 * length, 16, 16};
  std::vector<int> ids_h(z.keys);
  for (int j = 0; j < z.keys; ++j) ids_h[j] = j / length;
  ViewOf<Exec, int**> ids("ids", 1, z.keys);
  fill(ids, ids_h);
  auto const documents = mask::consecutive_documents(ids);
  Operands<Exec, float> x(z);
  auto v = x.v;
  for (int e = length * z.d_v; e < 2 * length * z.d_v; ++e) v[e] = NAN;
  fill(x.vv, v);
  auto const finite = [&] {
    auto const o = values(x.ov);
    for (int i = 0; i < z.queries; ++i) CHECK(std::isfinite(o[std::size_t(i) * z.d_v]) == (i / length != 1));
  };
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, {}, score::Identity{}, documents);
  finite();
  poison(x.ov);
  WithTable<Exec, std::remove_const_t<decltype(documents)>> const with(x, {}, documents);
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, {}, score::Identity{}, with.table);
  finite();
}
TEST_CASE_TEMPLATE_APPLY(mask_reads_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("masks go with scores, key lengths and packed sequences", Exec, mask_with_id) {
  Operands<Exec, float> x({1, 2, 1, 200, 150, 16, 16});
  std::vector<int> const q_h = {0, 90, 200}, k_h = {0, 110, 150}, lengths_h = {95, 40};
  ViewOf<Exec, int*> q_starts("starts", 3), k_starts("starts", 3), lengths("lengths", 2);
  fill(q_starts, q_h), fill(k_starts, k_h), fill(lengths, lengths_h);
  AttentionOptions options = x.options();
  options.query_starts = q_starts;
  options.key_starts = k_starts;
  options.key_lengths = lengths;
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, score::SoftCap{2.0}, Scattered{});
  x.check(
      everything,
      [&](double s, int, int h, int i, int j) {
        int const a = i >= 90, b = j >= 110;
        bool const seen = a == b && j - k_h[b] < lengths_h[b] && Scattered{}(a, h, i - q_h[a], j - k_h[b]);
        return seen ? 2.0 * std::tanh(s / 2.0) : -INFINITY;
      },
      x.scale());
}
TEST_CASE_TEMPLATE_APPLY(mask_with_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tables that do not fit are refused and nothing written", Exec, table_errors_id) {
  Operands<Exec, float> const x({2, 2, 1, 200, 150, 16, 16}), one({1, 2, 1, 200, 150, 16, 16});
  AttentionPlan const plan = attention_plan(Exec{}, x.ov, x.qv, x.kv, x.vv, {}, score::Identity{}, Scattered{});
  CHECK(mask::table_size(plan, {0, 100}) == 0);
  auto const refused = [&](Operands<Exec, float> const& of, mask::Table<Scattered> const& table, char const* part,
                           AttentionOptions const& options = {}) {
    auto const call = [&] { attention(Exec{}, of.ov, of.qv, of.kv, of.vv, options, score::Identity{}, table); };
    std::string const what = error_of(call, ErrorCode::value);
    CHECK_MESSAGE(contains(what, part), what);
    CHECK(is_poisoned(of.ov));
  };
  refused(x, WithTable<Exec, Scattered>(Scattered{}, plan, {1000, 150}).table, "the queries and keys");
  refused(x, WithTable<Exec, Scattered>(Scattered{}, plan, {200, 150, 3, 1}).table, "3 x 1 times");
  AttentionPlan other = plan;
  other.tile_keys *= 2;
  refused(x, WithTable<Exec, Scattered>(Scattered{}, other, {200, 150}).table, "tiles of");
  ViewOf<Exec, int*> starts("starts", 2);
  fill(starts, std::vector<int>{0, 150});
  refused(one, WithTable<Exec, Scattered>(Scattered{}, plan, {200, 150}).table, "packed",
          {.query_starts = starts, .key_starts = starts});
  ViewOf<Exec, int*> const small("table", mask::table_size(plan, {200, 150}) - 1);
  std::string const what = error_of(
      [&] {
        mask::table(Exec{}, Scattered{}, plan, {200, 150}, small);
      },
      ErrorCode::extent);
  CHECK_MESSAGE(contains(what, "200 queries"), what);
}
TEST_CASE_TEMPLATE_APPLY(table_errors_id, Spaces);
