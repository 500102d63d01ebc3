// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The algorithm that has a pipeline of its own on some machines, for each of its tiles, at their edges. Elsewhere
// another stands in, and the bounds are the same.
#include "attention/operands.hpp"
#include "support/tensor_cores.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

template <class Exec, class T, class TO = T>
void run_case(AttentionShape z, bool causal, AttentionLayout layout = AttentionLayout::bhsd) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(z.d);
  CAPTURE(z.d_v);
  CAPTURE(causal);
  Operands<Exec, T, TO> x(z);
  AttentionOptions options = x.options();
  options.causal = causal;
  options.algorithm = AttentionAlgorithm::tensor_core;
  AttentionPlan const plan = attention_plan(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
  if (has_tensor_cores<Exec>()) CHECK(plan.algorithm == AttentionAlgorithm::tensor_core);
  if (layout == AttentionLayout::bhsd) {
    attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
  } else {
    auto const swapped = [](auto const& from, auto const& to) {  // heads and rows, of Views
      auto const in = values(from);
      auto out = in;
      std::size_t at = 0;
      int const heads = from.extent_int(1), rows = from.extent_int(2), d = from.extent_int(3);
      for (int b = 0; b < from.extent_int(0); ++b)
        for (int r = 0; r < rows; ++r)
          for (int h = 0; h < heads; ++h)
            for (int c = 0; c < d; ++c) out[at++] = in[((std::size_t(b) * heads + h) * rows + r) * d + c];
      fill(to, out);
    };
    ViewOf<Exec, T****> q("Q", z.batch, z.queries, z.heads, z.d), k("K", z.batch, z.keys, z.kv_heads, z.d),
        v("V", z.batch, z.keys, z.kv_heads, z.d_v);
    ViewOf<Exec, TO****> o("O", z.batch, z.queries, z.heads, z.d_v);
    swapped(x.qv, q), swapped(x.kv, k), swapped(x.vv, v);
    options.layout = layout;
    attention(Exec{}, o, q, k, v, options);
    swapped(o, x.ov);
  }
  x.check(seen_by(z, causal), unchanged, x.scale());
}

/// One query, one key, one off a tile on either side, several tiles with residues, queries that see no key, features
/// that do not fill a tile.
constexpr AttentionShape shapes[] = {
    {1, 2, 2, 128, 128, 128, 128}, {2, 4, 2, 100, 333, 128, 128}, {1, 2, 1, 300, 200, 128, 128},
    {1, 2, 1, 257, 385, 64, 64},   {1, 2, 2, 129, 65, 72, 104},   {1, 1, 1, 1, 700, 40, 16},
    {1, 2, 2, 140, 197, 96, 112},  {1, 2, 1, 150, 170, 256, 256}, {2, 2, 2, 127, 241, 192, 136},
    {1, 1, 1, 3, 1, 16, 248},      {2, 8, 2, 1, 700, 128, 128},   {2, 12, 2, 5, 300, 64, 64}};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("tensor_core attends over lengths and features that do not fill its tiles", Exec, edges_id) {
  for (AttentionShape z : shapes)
    for (bool causal : {false, true}) {
      run_case<Exec, bf16_t>(z, causal);
      if (!has_tensor_cores<Exec>()) break;  // another kernel runs, which its own tests see more of
      run_case<Exec, fp16_t>(z, causal);
    }
}
TEST_CASE_TEMPLATE_APPLY(edges_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core attends into other types and other layouts", Exec, outputs_id) {
  for (int d : {64, 120, 256}) {
    AttentionShape const z{2, 4, 2, 70, 90, d, d == 120 ? 72 : d};
    run_case<Exec, bf16_t, float>(z, true);
    run_case<Exec, fp16_t, bf16_t>(z, false);
    run_case<Exec, bf16_t>(z, true, AttentionLayout::bshd);
  }
  // Rows of O that begin at odd addresses.
  AttentionShape const z{1, 2, 1, 70, 90, 64, 64};
  Operands<Exec, bf16_t> x(z);
  AttentionOptions options = x.options();
  options.algorithm = AttentionAlgorithm::tensor_core;
  ViewOf<Exec, bf16_t****> wide("O", 1, 2, 70, 67);
  poison(wide);
  attention(Exec{}, Kokkos::subview(wide, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL, std::pair(1, 65)), x.qv, x.kv, x.vv,
            options);
  auto const out = values(wide);
  std::vector<bf16_t> inside;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (i % 67 >= 1 && i % 67 < 65) inside.push_back(out[i]);
  fill(x.ov, inside);
  x.check(everything, unchanged, x.scale());
}
TEST_CASE_TEMPLATE_APPLY(outputs_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("every tile of tensor_core gives the same", Exec, tiles_id) {
  if constexpr (detail::has_async_pipeline<Exec>) {
    if (!has_tensor_cores<Exec>()) return;
    for (AttentionShape z : {AttentionShape{1, 4, 2, 300, 333, 64, 64}, AttentionShape{1, 4, 2, 300, 333, 128, 128},
                             AttentionShape{1, 4, 2, 300, 333, 256, 256}, AttentionShape{1, 4, 2, 40, 333, 128, 128}}) {
      Operands<Exec, bf16_t> x(z);
      AttentionOptions options = x.options();
      options.causal = true;
      auto const p = detail::attention_problem<Exec>(x.ov, x.qv, x.kv, x.vv, options);
      detail::each_async_attention<Exec, bf16_t, score::Identity, mask::All>(p, [&](auto atoms) {
        using Atoms = decltype(atoms);
        CAPTURE(Atoms::BM);
        CAPTURE(Atoms::depth);
        auto const plan =
            detail::describe_attention<Atoms, score::Identity, mask::All>(Exec{}, p, options, options.algorithm, "");
        if (plan.scratch_bytes > detail::Machine<Exec>::scratch_limit(Exec{})) return;
        poison(x.ov), poison(x.lse);
        detail::run_attention_async<Exec, bf16_t, mask::All>(Exec{}, p, plan, score::Identity{}, mask::All{});
        x.check(seen_by(z, true), unchanged, x.scale());
      });
    }
  } else {
    CHECK_FALSE(has_tensor_cores<Exec>());
  }
}
TEST_CASE_TEMPLATE_APPLY(tiles_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core reads nothing into keys behind a length", Exec, lengths_id) {
  AttentionShape const z{4, 2, 1, 130, 300, 72, 128};
  std::vector<int> const lengths = {177, 300, 0, 5};
  ViewOf<Exec, int*> const device_lengths("lengths", z.batch);
  fill(device_lengths, lengths);
  for (bool causal : {false, true}) {
    CAPTURE(causal);
    Operands<Exec, bf16_t> x(z);
    auto const hidden = [&](std::vector<bf16_t> values, int d) {
      for (int b = 0; b < z.batch; ++b)
        for (int j = lengths[b]; j < z.keys; ++j)
          for (int c = 0; c < d; ++c) values[(std::size_t(b) * z.keys + j) * d + c] = bf16_t(NAN);
      return values;
    };
    fill(x.kv, hidden(x.k, z.d)), fill(x.vv, hidden(x.v, z.d_v));
    AttentionOptions options = x.options();
    options.causal = causal;
    options.key_lengths = device_lengths;
    options.algorithm = AttentionAlgorithm::tensor_core;
    attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
    x.check([&](int b, int i, int j) { return j < lengths[b] && (!causal || j <= i + lengths[b] - z.queries); },
            unchanged, x.scale());
  }
}
TEST_CASE_TEMPLATE_APPLY(lengths_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core takes a score functor", Exec, scores_id) {
  AttentionShape const z{1, 4, 2, 150, 200, 128, 128};
  Operands<Exec, bf16_t> x(z);
  AttentionOptions options = x.options();
  options.causal = true;
  options.algorithm = AttentionAlgorithm::tensor_core;
  std::vector<float> const slopes{0.5f, 0.25f, 0.125f, 0.0625f};
  ViewOf<Exec, float*> device_slopes("slopes", 4);
  fill(device_slopes, slopes);
  int const offset = z.keys - z.queries;
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options, score::alibi(device_slopes, offset));
  x.check(
      seen_by(z, true), [&](double s, int, int h, int i, int j) { return s + slopes[h] * (j - i - offset); },
      x.scale());
}
TEST_CASE_TEMPLATE_APPLY(scores_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core's plan names what keeps it away, and refuses when asked to", Exec, plan_id) {
  ViewOf<Exec, bf16_t****> q("Q", 1, 2, 64, 128), o("O", 1, 2, 64, 128), odd("Q", 1, 2, 64, 100),
      odd_o("O", 1, 2, 64, 100);
  ViewOf<Exec, float****> wide("Q", 1, 2, 64, 128), wide_o("O", 1, 2, 64, 128);
  AttentionOptions options{.algorithm = AttentionAlgorithm::tensor_core};
  AttentionPlan const plan = attention_plan(Exec{}, o, q, q, q, options);
  if (has_tensor_cores<Exec>()) {
    CHECK(plan.algorithm == AttentionAlgorithm::tensor_core);
    CHECK(contains(to_string(plan), "tensor_core 64 queries x 64 keys"));
    CHECK(contains(attention_plan(Exec{}, odd_o, odd, odd, odd, options).reason, "16 bytes"));
    CHECK(contains(attention_plan(Exec{}, wide_o, wide, wide, wide, options).reason, "bf16"));
    // Where the hopper pipeline does not store O of this type, the next one does.
    ViewOf<Exec, fp16_t****> half_o("O", 1, 2, 64, 128);
    CHECK(attention_plan(Exec{}, half_o, q, q, q).algorithm == AttentionAlgorithm::tensor_core);
  } else {
    CHECK(plan.algorithm == AttentionAlgorithm::tiled);
    CHECK(contains(to_string(plan), "tensor_core needs"));
  }
  options.allow_fallback = false;
  poison(wide_o);
  std::string const what =
      error_of([&] { attention(Exec{}, wide_o, wide, wide, wide, options); }, ErrorCode::unsupported);
  CHECK_MESSAGE(contains(what, "algorithm tensor_core cannot run"), what);
  CHECK(is_poisoned(wide_o));
}
TEST_CASE_TEMPLATE_APPLY(plan_id, Spaces);
