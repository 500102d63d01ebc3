// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/backward_packed.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// One far above the scores, one that is none, one far below, and some among them.
std::vector<float> some_sinks(int heads) {
  std::vector<float> all = uniform<float>(std::size_t(heads), 21, -2, 4);
  if (heads > 1) all[1] = 40;
  if (heads > 2) all[2] = -INFINITY;
  if (heads > 3) all[3] = -60;
  return all;
}

/// d_sinks beside -Σ exp(sink - LSE) δ of O, LSE and dO as they are given, of rows of sequences. Where a term errs by
/// what its exponent, LSE and δ do, 8u (|LSE| + |sink| + 1) |δ| + (d_v + 2) u Σ|dO O|, and sums of n terms by (n + 4)
/// u.
template <class Exec, class T>
void check_sinks(BackwardOperands<Exec, T> const& x, std::vector<float> const& sinks,
                 ViewOf<Exec, float*> const& d_sinks, Starts const& starts = {}) {
  using Compute = typename BackwardOperands<Exec, T>::Compute;
  AttentionShape const z = x.x.z;
  double const u = std::max(unit_roundoff<Compute>(), unit_roundoff<float>());
  auto const o = values(x.x.ov);
  auto const lse = values(x.x.lse);
  auto const given = values(d_sinks);
  for (int h = 0; h < z.heads; ++h) {
    CAPTURE(h);
    double sum = 0, allowed = 0, size = 0;
    for (int b = 0; b < z.batch; ++b)
      for (int i = 0; i < z.queries; ++i) {
        std::size_t const row = (std::size_t(b) * z.heads + h) * z.queries + i;
        double const l = to_double(lse[row]), sink = sinks[std::size_t(h)];
        if ((!starts.empty() && sequence_of(starts, i) < 0) || l == -INFINITY || sink == -INFINITY) continue;
        double delta = x.d_lse.empty() ? 0 : -x.d_lse[row], all = std::fabs(delta);
        for (int c = 0; c < z.d_v; ++c) {
          double const product = to_double(o[row * z.d_v + c]) * to_double(x.d_o[row * z.d_v + c]);
          delta += product;
          all += std::fabs(product);
        }
        double const p = std::exp(sink - l);
        sum -= p * delta;
        size += p * all;
        allowed += p * (8 * u * (std::fabs(l) + std::fabs(sink) + 1) * std::fabs(delta) + (z.d_v + 2) * u * all);
      }
    allowed += (double(z.batch) * z.queries + 4) * u * size + 1e-30;
    CHECK(std::fabs(to_double(given[std::size_t(h)]) - sum) <= allowed);
  }
}

/// Of operands whose O and LSE attention() gives, with its sinks.
template <class Exec, class T>
void run_sinks(AttentionShape z, AttentionBackwardOptions options, bool with_d_lse = false) {
  CAPTURE(z.queries);
  CAPTURE(z.d);
  BackwardOperands<Exec, T> const x(z, everything, with_d_lse);
  std::vector<float> const numbers = some_sinks(z.heads);
  ViewOf<Exec, float*> const sinks("sinks", numbers.size()), d_sinks("d_sinks", numbers.size());
  fill(sinks, numbers);
  poison(d_sinks);
  options.forward.sinks = sinks;
  x.x.attend(options.forward);
  options.d_sinks = d_sinks;
  x.run(options);
  check_sinks(x, numbers, d_sinks);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention_backward gives sinks their gradients", Exec, backward_sinks_id) {
  AttentionBackwardOptions causal;
  causal.forward.causal = true;
  run_sinks<Exec, float>({2, 4, 2, 33, 65, 16, 24}, {}, true);
  run_sinks<Exec, float>({1, 5, 1, 300, 257, 8, 8}, causal);  // the first queries see their sink alone
  run_sinks<Exec, bf16_t>({2, 4, 2, 130, 200, 64, 64}, causal, true);
  run_sinks<Exec, fp16_t>({1, 4, 4, 1, 90, 128, 72}, {});
  causal.deterministic = true;
  run_sinks<Exec, bf16_t>({2, 4, 2, 130, 200, 128, 128}, causal);
  if constexpr (detail::Machine<Exec>::is_host) run_sinks<Exec, double>({2, 4, 2, 40, 50, 16, 24}, causal, true);
}
TEST_CASE_TEMPLATE_APPLY(backward_sinks_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("sinks of packed sequences have gradients of the sequences' queries alone", Exec,
                          backward_sinks_packed_id) {
  AttentionBackwardOptions options;
  options.forward.causal = true;
  PackedBackward<Exec, float> x(packed_shape, query_starts, key_starts, options, {}, true);
  std::vector<float> const numbers = some_sinks(packed_shape.heads);
  ViewOf<Exec, float*> const sinks("sinks", numbers.size()), d_sinks("d_sinks", numbers.size());
  fill(sinks, numbers);
  x.options.forward.sinks = sinks;
  x.options.d_sinks = d_sinks;
  AttentionOptions forward = x.options.forward;
  forward.lse = x.x.x.lse;
  attention(Exec{}, x.x.x.ov, x.x.x.qv, x.x.x.kv, x.x.x.vv, forward);
  x.run();
  check_sinks(x.x, numbers, d_sinks, query_starts);
}
TEST_CASE_TEMPLATE_APPLY(backward_sinks_packed_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("gradients of sinks are the same bits again, and 0 where nothing is attended", Exec,
                          backward_sinks_again_id) {
  AttentionShape const z{2, 3, 1, 700, 40, 16, 16};
  BackwardOperands<Exec, float> const x(z, everything);
  ViewOf<Exec, float*> const sinks("sinks", 3), d_sinks("d_sinks", 3);
  AttentionBackwardOptions options;
  options.forward.sinks = sinks;
  x.x.attend(options.forward);
  options.d_sinks = d_sinks;
  x.run(options);
  auto const once = values(d_sinks);
  for (int again = 0; again < 3; ++again) {
    poison(d_sinks);
    x.run(options);
    CHECK(values(d_sinks) == once);
  }
  for (AttentionShape const none : {AttentionShape{0, 3, 1, 7, 9, 8, 8}, AttentionShape{2, 3, 1, 0, 9, 8, 8}}) {
    BackwardOperands<Exec, float> const y(none, everything);
    poison(d_sinks);
    y.run(options);
    for (float const g : values(d_sinks)) CHECK(g == 0);
  }
}
TEST_CASE_TEMPLATE_APPLY(backward_sinks_again_id, Spaces);

TEST_CASE("gradients with sinks are those of finite differences") {
  using Exec = Kokkos::DefaultHostExecutionSpace;
  AttentionShape const z{2, 4, 2, 9, 12, 5, 7};
  BackwardOperands<Exec, double> const x(z, everything, true);
  ViewOf<Exec, float*> const sinks("sinks", z.heads), d_sinks("d_sinks", z.heads);
  fill(sinks, std::vector<float>{0.5f, 3, -INFINITY, -1});
  AttentionBackwardOptions options;
  options.forward.causal = true;
  options.forward.sinks = sinks;
  options.d_sinks = d_sinks;
  auto const loss = [&] {
    x.x.attend(options.forward);
    double sum = 0;
    auto const o = values(x.x.ov), lse = values(x.x.lse);
    for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * x.d_o[i];
    for (std::size_t i = 0; i < lse.size(); ++i) sum += lse[i] * x.d_lse[i];
    return sum;
  };
  loss();
  x.run(options);
  auto const check = [&](auto const& operand, auto const& gradient, double step, double allowed) {
    auto const expected = values(gradient);
    for (std::size_t i = 0; i<operand.size(); i += operand.size()> 100 ? 7 : 1) {
      auto& element = operand.data()[i];
      if (std::isinf(element)) {
        CHECK(to_double(expected[i]) == 0);
        continue;
      }
      double const exact = to_double(expected[i]);
      CHECK(std::fabs(central_difference(element, step, loss) - exact) <= allowed * (1 + std::fabs(exact)));
    }
  };
  check(x.x.qv, x.dq, 1e-5, 1e-8);
  check(x.x.kv, x.dk, 1e-5, 1e-8);
  check(x.x.vv, x.dv, 1e-5, 1e-8);
  check(sinks, d_sinks, 1e-3, 1e-5);  // of floats
}

TEST_CASE_TEMPLATE_DEFINE("what is wrong with gradients of sinks is named and nothing written", Exec,
                          backward_sinks_errors_id) {
  AttentionShape const z{1, 2, 1, 9, 11, 8, 8};
  BackwardOperands<Exec, float> const x(z, everything);
  ViewOf<Exec, float*> const sinks("sinks", 2), d_sinks("d_sinks", 2), three("three", 3);
  poison(d_sinks);
  auto const error = [&](AttentionBackwardOptions const& o, ErrorCode code, char const* part) {
    std::string const what = error_of([&] { x.run(o); }, code);
    CHECK_MESSAGE(contains(what, part), what);
  };
  AttentionBackwardOptions o;
  o.d_sinks = d_sinks;
  error(o, ErrorCode::value, "forward.sinks");
  o.forward.sinks = sinks;
  o.d_sinks = three;
  error(o, ErrorCode::extent, "d_sinks");
  o.d_sinks = sinks;
  error(o, ErrorCode::overlap, "sinks");
  ViewOf<Exec, float*> const inside(x.dk.data(), 2);
  o.d_sinks = inside;
  error(o, ErrorCode::overlap, "dK");
  CHECK(is_poisoned(d_sinks));
  CHECK(is_poisoned(x.dq));
  CHECK(is_poisoned(x.dk));
  CHECK(is_poisoned(x.dv));
}
TEST_CASE_TEMPLATE_APPLY(backward_sinks_errors_id, Spaces);
