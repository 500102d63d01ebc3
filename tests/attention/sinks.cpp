// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/operands.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// From O and LSE without sinks, both in fp64: with a = exp(LSE) / (exp(LSE) + exp(sink)), O' = a O.
template <class Exec, class T, class Visible>
void check_with_sinks(Operands<Exec, T> const& x, std::vector<float> const& sinks, Visible const& visible) {
  using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
  AttentionShape const z = x.z;
  double const u = unit_roundoff<Compute>(), u_p = sizeof(T) == 2 ? 2 * unit_roundoff<T>() : 0;
  auto r = attention_reference(z, x.q, x.k, x.v, x.scale(), visible, unchanged, u, u_p);
  for (std::size_t row = 0; row < r.lse.size(); ++row) {
    double const sink = sinks[row / z.queries % z.heads], top = std::max(sink, r.lse[row]);
    double const lse = top == -INFINITY ? top : top + std::log(std::exp(sink - top) + std::exp(r.lse[row] - top));
    double const share = lse == -INFINITY ? 0 : std::exp(r.lse[row] - lse);
    // The share errs by what LSE and the sink's exponent do, which a few roundings of either are.
    double const error = r.lse_allowed[row] + 8 * u * (1 + std::fabs(sink == -INFINITY ? 0 : sink));
    r.lse[row] = lse;
    r.lse_allowed[row] = error + 4 * u * std::fabs(lse == -INFINITY ? 0 : lse);
    for (int c = 0; c < z.d_v; ++c) {
      double& o = r.o[row * z.d_v + c];
      double& allowed = r.allowed[row * z.d_v + c];
      o *= share;
      allowed = (allowed + 2 * error * std::fabs(o / (share > 0 ? share : 1))) * share;
    }
  }
  check_attention(r, values(x.ov));
  check_lse(r, values(x.lse));
}

/// One far above the scores, one far below, none, and some among them.
std::vector<float> some_sinks(int heads) {
  std::vector<float> all = uniform<float>(heads, 21, -2, 4);
  if (heads > 1) all[1] = 40;
  if (heads > 2) all[2] = -INFINITY;
  if (heads > 3) all[3] = -60;
  return all;
}

template <class Exec, class T>
void run_sinks(AttentionShape z, AttentionOptions options) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(options.causal);
  CAPTURE(options.splits);
  Operands<Exec, T> x(z);
  auto const sinks_h = some_sinks(z.heads);
  ViewOf<Exec, float*> const sinks("sinks", z.heads);
  fill(sinks, sinks_h);
  options.sinks = sinks;
  x.attend(options);
  check_with_sinks(x, sinks_h, left_by(options, z));
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("sinks take part in the denominators", Exec, sinks_id) {
  for (bool causal : {false, true}) {
    run_sinks<Exec, float>({2, 4, 2, 131, 300, 16, 24}, {.causal = causal});
    run_sinks<Exec, bf16_t>({1, 4, 4, 100, 70, 64, 64}, {.causal = causal});  // causal: thirty queries see no key
    run_sinks<Exec, float>({2, 8, 2, 1, 200, 16, 16}, {.causal = causal});  // heads that share keys are rows of a tile
    run_sinks<Exec, float>({2, 8, 2, 5, 200, 128, 16}, {.causal = causal});
    run_sinks<Exec, float>({2, 4, 4, 5, 0, 8, 8}, {.causal = causal});  // no key at all
    if constexpr (detail::Machine<Exec>::is_host)
      run_sinks<Exec, double>({1, 4, 2, 50, 60, 20, 20}, {.causal = causal});
  }
  run_sinks<Exec, float>({1, 4, 2, 200, 200, 16, 16}, {.causal = true, .window_left = 30});
  run_sinks<Exec, float>({2, 4, 2, 1, 300, 16, 16}, {.causal = true, .window_left = 30});
}
TEST_CASE_TEMPLATE_APPLY(sinks_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("sinks count once where keys are split", Exec, split_sinks_id) {
  for (int splits : {2, 3, 9}) {
    run_sinks<Exec, float>({2, 4, 2, 3, 700, 16, 24}, {.causal = true, .splits = splits});
    run_sinks<Exec, bf16_t>({1, 4, 4, 70, 500, 64, 64}, {.splits = splits});
  }
}
TEST_CASE_TEMPLATE_APPLY(split_sinks_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("sinks go with key lengths, masks and packed sequences", Exec, sinks_with_id) {
  AttentionShape const z{1, 4, 2, 90, 110, 16, 16};
  auto const sinks_h = some_sinks(z.heads);
  ViewOf<Exec, float*> const sinks("sinks", z.heads);
  fill(sinks, sinks_h);
  SUBCASE("key lengths") {
    Operands<Exec, float> x(z);
    ViewOf<Exec, int*> const lengths("lengths", 1);
    fill(lengths, std::vector<int>{0});
    AttentionOptions options = x.options();
    options.key_lengths = lengths;
    options.sinks = sinks;
    attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
    check_with_sinks(x, sinks_h, [](int, int, int) { return false; });
  }
  SUBCASE("packed sequences") {
    Operands<Exec, float> x(z);
    ViewOf<Exec, int*> const queries("starts", 3), keys("starts", 3);
    fill(queries, std::vector<int>{0, 40, 90}), fill(keys, std::vector<int>{0, 0, 110});
    AttentionOptions options = x.options();
    options.query_starts = queries;
    options.key_starts = keys;
    options.sinks = sinks;
    attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
    check_with_sinks(x, sinks_h, [](int, int i, int) { return i >= 40; });
  }
}
TEST_CASE_TEMPLATE_APPLY(sinks_with_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("sinks that do not fit are refused and nothing written", Exec, sink_errors_id) {
  Operands<Exec, float> const x({2, 4, 2, 20, 30, 16, 16});
  auto const refused = [&](ViewRef<float const, 1> const& sinks, ErrorCode code, char const* part) {
    AttentionOptions options = x.options();
    options.sinks = sinks;
    std::string const what = error_of([&] { attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options); }, code);
    CHECK_MESSAGE(contains(what, part), what);
    CHECK(is_poisoned(x.ov));
    CHECK(is_poisoned(x.lse));
  };
  refused(ViewOf<Exec, float*>("sinks", 2), ErrorCode::extent, "sinks");
  refused(Kokkos::subview(x.lse, 0, Kokkos::ALL, 0), ErrorCode::overlap, "sinks");
}
TEST_CASE_TEMPLATE_APPLY(sink_errors_id, Spaces);
