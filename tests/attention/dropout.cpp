// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention/packed.hpp"
#include "support/tensor_cores.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr AttentionDropout some{.p = 0.3, .seed = 0x123456789abcdef0u, .offset = 5};

/// What a probability is rounded to.
double rounded(double p) { return std::round(p * 65536) / 65536; }

/// O and LSE against the reference with the weights that `kept(b, h, i, j)` leaves, over 1 - p.
template <class Exec, class T, class Visible, class Kept>
void check_dropped(Operands<Exec, T> const& x, Visible const& visible, double p, Kept const& kept) {
  using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
  AttentionShape const z = x.z;
  double const u = unit_roundoff<Compute>(), u_p = sizeof(T) == 2 ? 2 * unit_roundoff<T>() : 0;
  // Values times 1 / (1 - p), of which those of a head's dropped keys do not count: the bound holds for all of them.
  auto r = attention_reference(z, x.q, x.k, x.v, x.scale(), visible, unchanged, u, u_p);
  for (int b = 0; b < z.batch; ++b)
    for (int h = 0; h < z.heads; ++h)
      for (int i = 0; i < z.queries; ++i) {
        std::size_t const row = (std::size_t(b) * z.heads + h) * z.queries + i;
        std::size_t const kv = std::size_t(b) * z.kv_heads + h / (z.heads / z.kv_heads);
        for (int c = 0; c < z.d_v; ++c) r.o[row * z.d_v + c] = 0;
        for (int j = 0; j < z.keys; ++j) {
          if (!visible(b, i, j) || !kept(b, h, i, j)) continue;
          double s = 0;
          for (int c = 0; c < z.d; ++c)
            s += to_double(x.q[row * z.d + c]) * to_double(x.k[(kv * z.keys + j) * z.d + c]);
          double const weight = std::exp(s * x.scale() - r.lse[row]) / (1 - p);
          for (int c = 0; c < z.d_v; ++c)
            r.o[row * z.d_v + c] += weight * to_double(x.v[(kv * z.keys + j) * z.d_v + c]);
        }
        for (int c = 0; c < z.d_v; ++c) r.allowed[row * z.d_v + c] *= (1 + 4 * u) / (1 - p);
      }
  check_attention(r, values(x.ov));
  check_lse(r, values(x.lse));
}

template <class Exec, class T>
void run_dropout(AttentionShape z, AttentionOptions options) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(options.causal);
  CAPTURE(options.splits);
  Operands<Exec, T> x(z);
  options.dropout = some;
  x.attend(options);
  check_dropped(x, left_by(options, z), rounded(some.p),
                [](int b, int h, int i, int j) { return attention_keeps(some, b, h, i, j); });
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention drops the weights that attention_keeps() says", Exec, dropout_id) {
  for (bool causal : {false, true}) {
    run_dropout<Exec, float>({2, 4, 2, 131, 270, 16, 24}, {.causal = causal});
    run_dropout<Exec, bf16_t>({1, 2, 2, 60, 45, 64, 64}, {.causal = causal});  // causal: fifteen queries see no key
    run_dropout<Exec, bf16_t>({1, 2, 1, 140, 200, 128, 128}, {.causal = causal});
    run_dropout<Exec, bf16_t>({1, 1, 1, 70, 130, 256, 200}, {.causal = causal});
    run_dropout<Exec, fp16_t>({1, 2, 1, 140, 333, 64, 64}, {.causal = causal});
    run_dropout<Exec, float>({2, 8, 2, 1, 150, 16, 16}, {.causal = causal});
    run_dropout<Exec, float>({1, 4, 2, 5, 90, 128, 16}, {.causal = causal});
    if constexpr (detail::Machine<Exec>::is_host)
      run_dropout<Exec, double>({1, 4, 2, 50, 60, 20, 20}, {.causal = causal});
  }
  run_dropout<Exec, float>({1, 2, 2, 130, 130, 16, 16}, {.causal = true, .window_left = 30});
  run_dropout<Exec, float>({2, 2, 1, 1, 130, 16, 16}, {.causal = true, .window_left = 30});
  for (int splits : {2, 5}) run_dropout<Exec, float>({2, 2, 1, 3, 700, 16, 24}, {.causal = true, .splits = splits});
}
TEST_CASE_TEMPLATE_APPLY(dropout_id, Spaces);

/// By the pipeline of asynchronous copies, where there is one; elsewhere another algorithm stands in.
TEST_CASE_TEMPLATE_DEFINE("attention on tensor cores drops the same weights", Exec, tensor_core_dropout_id) {
  for (bool causal : {false, true}) {
    auto const options = on_tensor_cores<Exec>({.causal = causal});
    run_dropout<Exec, bf16_t>({2, 4, 2, 131, 270, 64, 40}, options);
    run_dropout<Exec, fp16_t>({1, 2, 1, 300, 333, 64, 64}, options);
    run_dropout<Exec, bf16_t>({1, 4, 1, 260, 200, 128, 128}, options);
    run_dropout<Exec, fp16_t>({1, 2, 2, 60, 145, 96, 112}, options);
    run_dropout<Exec, bf16_t>({1, 2, 1, 140, 230, 256, 200}, options);
    run_dropout<Exec, bf16_t>({2, 8, 2, 3, 150, 128, 128}, options);
    run_dropout<Exec, fp16_t>({1, 4, 1, 1, 400, 64, 256}, options);
  }
  auto windowed = on_tensor_cores<Exec>({.causal = true});
  windowed.window_left = 70;
  run_dropout<Exec, bf16_t>({1, 2, 2, 330, 330, 64, 64}, windowed);
  run_dropout<Exec, fp16_t>({1, 2, 2, 230, 330, 128, 72}, windowed);
  auto split = on_tensor_cores<Exec>();
  split.splits = 3;
  run_dropout<Exec, bf16_t>({2, 4, 1, 3, 700, 128, 128}, split);
}
TEST_CASE_TEMPLATE_APPLY(tensor_core_dropout_id, Spaces);

/// Sequences that begin where neither tiles of queries nor of keys do.
template <class Exec, class T>
void check_packed_dropping(AttentionShape const& z, Starts const& q_h, Starts const& k_h, AttentionOptions options) {
  auto const starts = static_cast<int>(q_h.size());
  ViewOf<Exec, int*> const queries("starts", starts), keys("starts", starts);
  fill(queries, q_h), fill(keys, k_h);
  Operands<Exec, T> x(z);
  options.lse = x.options().lse;
  options.query_starts = queries;
  options.key_starts = keys;
  options.dropout = some;
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
  check_dropped(
      x, [&](int, int i, int j) { return sequence_of(q_h, i) == sequence_of(k_h, j); }, rounded(some.p),
      [&](int, int h, int i, int j) {
        auto const s = static_cast<std::size_t>(sequence_of(q_h, i));
        return attention_keeps(some, static_cast<int>(s), h, i - q_h[s], j - k_h[s]);
      });
}

TEST_CASE_TEMPLATE_DEFINE("dropout of packed sequences counts from their first query and key on", Exec, packed_id) {
  check_packed_dropping<Exec, float>({1, 2, 1, 90, 110, 16, 16}, {0, 40, 90}, {0, 35, 110}, {});
  check_packed_dropping<Exec, bf16_t>({1, 2, 1, 190, 310, 64, 64}, {0, 40, 190}, {0, 135, 310},
                                      on_tensor_cores<Exec>());
  check_packed_dropping<Exec, fp16_t>({1, 2, 2, 190, 310, 128, 96}, {0, 40, 190}, {0, 135, 310},
                                      on_tensor_cores<Exec>());
}
TEST_CASE_TEMPLATE_APPLY(packed_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("dropout with a score and a mask of the caller's own", Exec, own_dropout_id) {
  AttentionShape const z{1, 2, 1, 50, 70, 16, 16};
  Operands<Exec, float> x(z);
  AttentionOptions options = x.options();
  options.dropout = some;
  auto const what = error_of([&] { attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, score::SoftCap{2.0}); },
                             ErrorCode::unsupported);
  CHECK_MESSAGE(contains(what, "with_dropout"), what);
  CHECK(is_poisoned(x.ov));
  ViewOf<Exec, int**> const ids("ids", 1, 70), own("ids of queries", 1, 50);
  std::vector<int> ids_h(70);
  for (int j = 0; j < 70; ++j) ids_h[j] = j % 3;
  fill(ids, ids_h), fill(own, std::vector<int>(ids_h.begin(), ids_h.begin() + 50));
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, score::with_dropout(), mask::documents(own, ids));
  check_dropped(
      x, [&](int, int i, int j) { return ids_h[i] == ids_h[j]; }, rounded(some.p),
      [](int b, int h, int i, int j) { return attention_keeps(some, b, h, i, j); });
}
TEST_CASE_TEMPLATE_APPLY(own_dropout_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("dropout of nothing, of all, and of no probability", Exec, dropout_ends_id) {
  Operands<Exec, float> x({1, 2, 1, 20, 30, 16, 16}), plain({1, 2, 1, 20, 30, 16, 16});
  AttentionOptions options = x.options();
  attention(Exec{}, plain.ov, plain.qv, plain.kv, plain.vv, plain.options());
  options.dropout = {.p = 0, .seed = 9};
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
  CHECK(values(x.ov) == values(plain.ov));
  options.dropout.p = 1;
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
  for (float o : values(x.ov)) CHECK(o == 0);
  CHECK(values(x.lse) == values(plain.lse));
  CHECK(!attention_keeps(options.dropout, 0, 0, 3, 4));
  options.dropout.p = 0x1p-18;  // rounded to 0
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
  CHECK(values(x.ov) == values(plain.ov));
  options.dropout.p = 1 - 0x1p-18;  // to the largest multiple below 1
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
  for (float o : values(x.ov)) CHECK(std::isfinite(o));
  poison(x.ov);
  for (double p : {-0.1, 1.5, double(NAN)}) {
    options.dropout.p = p;
    auto const what = error_of([&] { attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options); }, ErrorCode::value);
    CHECK_MESSAGE(contains(what, "dropout.p"), what);
    CHECK(is_poisoned(x.ov));
  }
}
TEST_CASE_TEMPLATE_APPLY(dropout_ends_id, Spaces);

TEST_CASE("the decisions of dropout are those of the documented words") {
  AttentionDropout const d{.p = 0.25, .seed = 0x9876543210u, .offset = 0x1200000034u};
  PhiloxCounter const first = philox4x32(PhiloxCounter{0x34u, 0x12u, 0u, 0u}, PhiloxKey{0x76543210u, 0x98u});
  int const b = 3, h = 5, i = 1000;
  for (int j = 0; j < 200; ++j) {
    PhiloxCounter const words = philox4x32<7>(
        PhiloxCounter{std::uint32_t(4 * (j / 32) + j / 2 % 4), std::uint32_t(i), std::uint32_t(h), std::uint32_t(b)},
        PhiloxKey{first[0], first[1]});
    std::uint32_t const word = words[std::size_t(j / 8 % 4)], half = j % 2 == 0 ? word & 0xFFFFu : word >> 16;
    CHECK(attention_keeps(d, b, h, i, j) == (half >= 0x4000u));
  }
}

TEST_CASE("dropout keeps its share of the weights, and neighbours decide for themselves") {
  // Of n independent decisions the mean errs by sqrt(p (1 - p) / n) in the standard deviation: five of them.
  constexpr int batches = 2, heads = 3, queries = 100, keys = 256;
  auto const keeps = [](AttentionDropout const& d, int b, int h, int i, int j) {
    return attention_keeps(d, b, h, i, j) ? 1.0 : 0.0;
  };
  for (double p : {0.1, 0.5, 0.9}) {
    AttentionDropout const d{.p = p, .seed = 77, .offset = 1}, next{.p = p, .seed = 77, .offset = 2};
    double n = 0, kept = 0, by_key[32] = {}, by_query = 0, by_head = 0, by_batch = 0, by_offset = 0;
    for (int b = 0; b + 1 < batches; ++b)
      for (int h = 0; h + 1 < heads; ++h)
        for (int i = 0; i + 1 < queries; ++i)
          for (int j = 0; j + 32 < keys; ++j) {
            double const x = keeps(d, b, h, i, j) - (1 - p);
            auto const other = [&](double y) { return x * (y - (1 - p)); };
            n += 1, kept += x;
            for (int k = 0; k < 32; ++k) by_key[k] += other(keeps(d, b, h, i, j + k + 1));
            by_query += other(keeps(d, b, h, i + 1, j)), by_head += other(keeps(d, b, h + 1, i, j));
            by_batch += other(keeps(d, b + 1, h, i, j)), by_offset += other(keeps(next, b, h, i, j));
          }
    double const variance = p * (1 - p), bound = 5 / std::sqrt(n);
    CHECK(std::fabs(kept / n) <= bound * std::sqrt(variance));
    for (double covariance : by_key) CHECK(std::fabs(covariance / n) <= bound * variance);
    for (double covariance : {by_query, by_head, by_batch, by_offset})
      CHECK(std::fabs(covariance / n) <= bound * variance);
  }
}
