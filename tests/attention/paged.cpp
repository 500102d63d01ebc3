// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention.hpp>

#include "reference/attention.hpp"
#include "support/paged.hpp"
#include "support/tensor_cores.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr auto unchanged = [](double s, int, int, int, int) { return s; };

template <class Exec, class T>
void run_paged_case(AttentionShape z, int page, std::vector<int> const& lengths, AttentionOptions options = {}) {
  CAPTURE(page);
  CAPTURE(z.queries);
  CAPTURE(z.d);
  CAPTURE(options.causal);
  PagedKeys<Exec, T> const x(z, page, lengths, options.layout);
  bool const heads_first = options.layout == AttentionLayout::bhsd;
  int const h = heads_first ? z.heads : z.queries, s = heads_first ? z.queries : z.heads;
  auto const qh = uniform<T>(std::size_t(z.batch) * z.heads * z.queries * z.d, 4, -2, 2);
  ViewOf<Exec, T****> const q("Q", z.batch, h, s, z.d), o("O", z.batch, h, s, z.d_v);
  ViewOf<Exec, float***> const lse("LSE", z.batch, z.heads, z.queries);
  fill(q, heads_first ? qh : swapped_heads(qh, z.batch, z.heads, z.queries, z.d));
  poison(o), poison(lse);
  options.key_lengths = x.lengths;
  options.block_table = x.table;
  options.lse = lse;
  std::size_t const bytes = attention_workspace_size(Exec{}, o, q, x.k, x.v, options);
  Kokkos::View<char*, typename Exec::memory_space> const workspace("workspace", bytes);
  if (bytes > 0) options.workspace = workspace.data();
  options.workspace_bytes = bytes;
  attention(Exec{}, o, q, x.k, x.v, options);
  auto const visible = [&](int b, int i, int j) {
    int const own = i + lengths[b] - z.queries;
    bool const near = !options.window_left || j >= own - *options.window_left;
    return j < lengths[b] && near && (!options.causal || j <= own);
  };
  double const u_p = sizeof(T) == 2 ? 2 * unit_roundoff<T>() : 0;
  auto const r = attention_reference(z, qh, x.kh, x.vh, 1 / std::sqrt(double(z.d)), visible, unchanged,
                                     2 * unit_roundoff<float>(), u_p);
  check_attention(r, heads_first ? values(o) : swapped_heads(values(o), z.batch, z.queries, z.heads, z.d_v));
  check_lse(r, values(lse));
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention reads keys from pages", Exec, paged_id) {
  for (bool causal : {false, true}) {
    run_paged_case<Exec, float>({3, 4, 2, 1, 300, 24, 40}, 16, {300, 17, 0}, {.causal = causal});
    run_paged_case<Exec, float>({2, 2, 1, 70, 200, 16, 8}, 64, {199, 64}, {.causal = causal});
    run_paged_case<Exec, float>({2, 2, 2, 3, 500, 72, 16}, 256, {257, 500}, {.causal = causal});
    run_paged_case<Exec, bf16_t>({2, 4, 2, 2, 260, 130, 200}, 32, {255, 33}, {.causal = causal});
  }
  run_paged_case<Exec, float>({2, 2, 1, 3, 100, 8, 8}, 20, {81, 100});  // not a power of two
  run_paged_case<Exec, float>({2, 2, 1, 3, 9, 8, 8}, 1, {9, 4});
  run_paged_case<Exec, fp16_t>({2, 4, 2, 5, 150, 40, 24}, 16, {150, 90}, {.layout = AttentionLayout::bshd});
  run_paged_case<Exec, float>({2, 4, 1, 1, 900, 16, 16}, 64, {900, 130}, {.splits = 5});
  run_paged_case<Exec, float>({2, 2, 1, 1, 600, 16, 16}, 32, {600, 90}, {.causal = true, .window_left = 150});
  run_paged_case<Exec, float>({2, 2, 1, 70, 500, 16, 16}, 64, {410, 70}, {.causal = true, .window_left = 99});
}
TEST_CASE_TEMPLATE_APPLY(paged_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core reads keys from pages", Exec, paged_tensor_core_id) {
  for (bool causal : {false, true}) {
    AttentionOptions const asked = on_tensor_cores<Exec>({.causal = causal});
    for (int const page : {1, 8, 20, 64, 128, 192})
      run_paged_case<Exec, bf16_t>({3, 4, 2, 1, 300, 128, 128}, page, {300, 17, 0}, asked);
    if (!has_tensor_cores<Exec>()) return;  // another kernel runs, which other tests see more of
    run_paged_case<Exec, fp16_t>({2, 4, 2, 70, 200, 64, 56}, 16, {199, 64}, asked);
    run_paged_case<Exec, bf16_t>({2, 4, 2, 140, 260, 256, 200}, 32, {255, 33}, asked);
  }
  run_paged_case<Exec, fp16_t>({2, 4, 2, 5, 150, 40, 24}, 16, {150, 90},
                               on_tensor_cores<Exec>({.layout = AttentionLayout::bshd}));
  run_paged_case<Exec, bf16_t>({2, 4, 1, 1, 900, 128, 128}, 64, {900, 130}, on_tensor_cores<Exec>({.splits = 5}));
  run_paged_case<Exec, bf16_t>({2, 2, 1, 70, 500, 72, 128}, 8, {410, 70},
                               on_tensor_cores<Exec>({.causal = true, .window_left = 99}));
}
TEST_CASE_TEMPLATE_APPLY(paged_tensor_core_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("pages that do not exist are named on the host or not read at all", Exec, wrong_pages_id) {
  AttentionShape const z{2, 2, 1, 3, 100, 8, 8};
  PagedKeys<Exec, float> const x(z, 16, {100, 40}, AttentionLayout::bhsd);
  ViewOf<Exec, float****> const q("Q", 2, 2, 3, 8), o("O", 2, 2, 3, 8);
  auto table = values(x.table);
  table[1] = 1 << 30;
  table[x.table.extent(1)] = -7;
  fill(x.table, table);
  poison(o);
  AttentionOptions options{.key_lengths = x.lengths, .block_table = x.table, .check_pages = true};
  if (detail::Machine<Exec>::is_host) {
    std::string const what = error_of([&] { attention(Exec{}, o, q, x.k, x.v, options); }, ErrorCode::value);
    CHECK_MESSAGE(contains(what, "page 1 of batch entry 0 is 1073741824"), what);
    CHECK(is_poisoned(o));
  }
  options.check_pages = false;  // the values of other pages, but nothing outside of the pools
  fill(q, std::vector<float>(q.size(), 0.0f));
  attention(Exec{}, o, q, x.k, x.v, options);
  CHECK_FALSE(is_poisoned(o));
}
TEST_CASE_TEMPLATE_APPLY(wrong_pages_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention over pages names what does not fit and writes nothing", Exec, paged_errors_id) {
  Exec const e;
  PagedKeys<Exec, float> const x({2, 2, 1, 3, 100, 8, 8}, 16, {100, 40}, AttentionLayout::bhsd);
  ViewOf<Exec, float****> const q("Q", 2, 2, 3, 8), o("O", 2, 2, 3, 8), pages("V", 3, 1, 16, 8), rows("V", 20, 1, 8, 8);
  poison(o);
  auto const message = [&](ErrorCode code, AttentionOptions const& options, auto const& k, auto const& v,
                           char const* part) {
    std::string const what = error_of([&] { attention(e, o, q, k, v, options); }, code);
    CHECK_MESSAGE(contains(what, part), what);
  };
  AttentionOptions const options{.key_lengths = x.lengths, .block_table = x.table};
  message(ErrorCode::value, {.block_table = x.table}, x.k, x.v, "key_lengths");
  message(ErrorCode::extent, {.key_lengths = x.lengths, .block_table = ViewOf<Exec, int**>("table", 3, 7)}, x.k, x.v,
          "block_table");
  message(ErrorCode::extent, options, x.k, pages, "pages of K and V differ");
  message(ErrorCode::extent, options, pages, ViewOf<Exec, float****>("V", 3, 1, 8, 8), "keys in K and V differ");
  message(ErrorCode::overlap,
          {.key_lengths = x.lengths, .block_table = ViewOf<Exec, int**>(reinterpret_cast<int*>(o.data()), 2, 7)}, x.k,
          x.v, "block_table");
  CHECK(is_poisoned(o));
  // No pages, or no room for any: no key.
  attention(e, o, q, ViewOf<Exec, float****>("K", 0, 1, 16, 8), ViewOf<Exec, float****>("V", 0, 1, 16, 8), options);
  for (float y : values(o)) CHECK(y == 0);
  poison(o);
  attention(e, o, q, x.k, x.v, {.key_lengths = x.lengths, .block_table = ViewOf<Exec, int**>("table", 2, 0)});
  for (float y : values(o)) CHECK(y == 0);
}
TEST_CASE_TEMPLATE_APPLY(paged_errors_id, Spaces);
