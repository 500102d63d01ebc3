// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention.hpp>
#include <tessera/attention_merge.hpp>

#include "reference/attention.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct MergeShape {
  int parts, batch, heads, queries, features;
  std::size_t rows() const { return std::size_t(batch) * heads * queries; }
};

/// The merged O and LSE in fp64. `u`: the unit roundoff of the arithmetic. A weight errs by |LSE - m|·u in its argument
/// and by a few roundings; sums over the parts add one a part; numerator and denominator both do.
template <class T, class TL>
AttentionReference merged(MergeShape z, std::vector<T> const& o, std::vector<TL> const& lse, double u) {
  std::size_t const rows = z.rows();
  AttentionReference r{std::vector<double>(rows * z.features), std::vector<double>(rows),
                       std::vector<double>(rows * z.features), std::vector<double>(rows)};
  for (std::size_t i = 0; i < rows; ++i) {
    double top = -INFINITY, spread = 0, total = 0;
    for (int t = 0; t < z.parts; ++t) top = std::max(top, double(lse[t * rows + i]));
    auto const weight = [&](int t) { return lse[t * rows + i] == -INFINITY ? 0 : std::exp(lse[t * rows + i] - top); };
    for (int t = 0; t < z.parts; ++t) {
      total += weight(t);
      if (weight(t) > 0) spread = std::max(spread, top - lse[t * rows + i]);
    }
    double const relative = 2 * (z.parts + 8 + spread) * u;
    r.lse[i] = total == 0 ? -INFINITY : top + std::log(total);
    r.lse_allowed[i] = relative + 4 * u * (1 + std::fabs(total == 0 ? 0 : r.lse[i]));
    for (int c = 0; c < z.features; ++c) {
      std::size_t const e = i * z.features + c;
      double magnitude = 0;
      for (int t = 0; t < z.parts; ++t) {
        if (weight(t) == 0) continue;
        double const x = weight(t) / total * to_double(o[t * rows * z.features + e]);
        r.o[e] += x;
        magnitude += std::fabs(x);
      }
      r.allowed[e] = relative * magnitude;
    }
  }
  return r;
}

/// Partial results of which some rows have no key in some parts, and their O is then anything.
template <class T, class TL>
struct Parts {
  MergeShape z;
  std::vector<T> o;
  std::vector<TL> lse;
  explicit Parts(MergeShape shape)
      : z(shape), o(uniform<T>(z.parts * z.rows() * z.features, 1)), lse(uniform<TL>(z.parts * z.rows(), 2, -5, 5)) {
    for (std::size_t i = 0; i < lse.size(); i += 3) {
      lse[i] = -INFINITY;
      for (int c = 0; c < z.features; ++c) o[i * z.features + c] = T(NAN);
    }
  }
};

template <class Exec, class T, class TO = T>
void run_merge_case(MergeShape z) {
  using TL = std::conditional_t<std::is_same_v<TO, double>, double, float>;
  CAPTURE(z.parts);
  CAPTURE(z.features);
  Parts<T, TL> const x(z);
  ViewOf<Exec, T*****> parts("parts", z.parts, z.batch, z.heads, z.queries, z.features);
  ViewOf<Exec, TL****> lses("lses", z.parts, z.batch, z.heads, z.queries);
  ViewOf<Exec, TO****> o("O", z.batch, z.heads, z.queries, z.features);
  ViewOf<Exec, TL***> lse("LSE", z.batch, z.heads, z.queries);
  fill(parts, x.o), fill(lses, x.lse);
  poison(o), poison(lse);
  merge_attention(Exec{}, o, lse, parts, lses);
  auto const r = merged(z, x.o, x.lse, unit_roundoff<TL>());
  check_attention(r, values(o));
  check_lse(r, values(lse));
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("merged partial results are the formula's", Exec, formula_id) {
  run_merge_case<Exec, float>({1, 1, 1, 1, 1});
  run_merge_case<Exec, float>({3, 2, 3, 5, 7});
  run_merge_case<Exec, float>({33, 1, 2, 3, 128});
  run_merge_case<Exec, float>({9, 2, 2, 4, 300});
  run_merge_case<Exec, float>({70, 1, 2, 3, 200});
  run_merge_case<Exec, float, fp16_t>({16, 2, 2, 3, 256});
  run_merge_case<Exec, float, bf16_t>({17, 2, 1, 33, 64});
  run_merge_case<Exec, bf16_t>({4, 1, 3, 2, 96});
  run_merge_case<Exec, fp16_t, float>({5, 1, 2, 9, 40});
  run_merge_case<Exec, double>({6, 1, 2, 9, 40});
  run_merge_case<Exec, float>({2, 1, 1, 2, 20000});
}
TEST_CASE_TEMPLATE_APPLY(formula_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("partial results without a key, and with NaN", Exec, no_key_id) {
  ViewOf<Exec, float*****> parts("parts", 3, 1, 1, 2, 4), none("none", 0, 1, 1, 2, 4);
  ViewOf<Exec, float****> lses("lses", 3, 1, 1, 2), no_lse("none", 0, 1, 1, 2), o("O", 1, 1, 2, 4);
  ViewOf<Exec, float***> lse("LSE", 1, 1, 2);
  fill(parts, std::vector<float>(parts.size(), NAN));
  fill(lses, std::vector<float>{-INFINITY, 0, -INFINITY, NAN, -INFINITY, 1});
  poison(o), poison(lse);
  merge_attention(Exec{}, o, lse, parts, lses);
  auto const out = values(o), l = values(lse);
  for (int c = 0; c < 4; ++c) {
    CHECK(out[c] == 0);
    CHECK(std::isnan(out[4 + c]));
  }
  CHECK(l[0] == -INFINITY);
  CHECK(std::isnan(l[1]));
  poison(o), poison(lse);
  merge_attention(Exec{}, o, lse, none, no_lse);
  for (float x : values(o)) CHECK(x == 0);
  for (float x : values(lse)) CHECK(x == -INFINITY);
  merge_attention(Exec{}, ViewOf<Exec, float****>("O", 1, 0, 2, 4), ViewOf<Exec, float***>("LSE", 1, 0, 2),
                  ViewOf<Exec, float*****>("parts", 3, 1, 0, 2, 4), ViewOf<Exec, float****>("lses", 3, 1, 0, 2));
}
TEST_CASE_TEMPLATE_APPLY(no_key_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("attention over parts of the keys, merged one after the other, is attention over all", Exec,
                          ring_id) {
  AttentionShape const z{2, 4, 2, 19, 90, 24, 40};
  auto const qh = uniform<float>(std::size_t(2) * 4 * 19 * 24, 1, -2, 2),
             kh = uniform<float>(std::size_t(2) * 2 * 90 * 24, 2, -2, 2),
             vh = uniform<float>(std::size_t(2) * 2 * 90 * 40, 3);
  ViewOf<Exec, float****> k("K", 2, 2, 90, 24), v("V", 2, 2, 90, 40);
  ViewOf<Exec, float***> lse("LSE", 2, 4, 19), other_lse("LSE", 2, 4, 19);
  fill(k, kh), fill(v, vh);
  std::vector<std::pair<int, int>> const rings = {{0, 31}, {31, 64}, {64, 90}};
  auto const keys = [&](auto const& x, std::pair<int, int> range) {
    return Kokkos::subview(x, Kokkos::ALL, Kokkos::ALL, range, Kokkos::ALL);
  };
  auto const r = attention_reference(
      z, qh, kh, vh, 1 / std::sqrt(24.0), [](int, int, int) { return true; },
      [](double s, int, int, int, int) { return s; }, 2 * unit_roundoff<float>(), 0);
  SUBCASE("heads before the sequence") {
    ViewOf<Exec, float****> q("Q", 2, 4, 19, 24), o("O", 2, 4, 19, 40), other("O", 2, 4, 19, 40);
    fill(q, qh);
    attention(Exec{}, o, q, keys(k, rings[0]), keys(v, rings[0]), {.lse = lse});
    for (int i : {1, 2}) {
      attention(Exec{}, other, q, keys(k, rings[i]), keys(v, rings[i]), {.lse = other_lse});
      merge_attention(Exec{}, o, lse, other, other_lse);
    }
    check_attention(r, values(o));
  }
  SUBCASE("strides of all kinds, the sequence before the heads") {
    auto const swapped = [](ViewOf<Exec, float****, Kokkos::LayoutLeft> const& x) {
      Kokkos::LayoutStride const strides(x.extent(0), x.stride(0), x.extent(2), x.stride(2), x.extent(1), x.stride(1),
                                         x.extent(3), x.stride(3));
      return Kokkos::View<float****, Kokkos::LayoutStride, typename Exec::memory_space>(x.data(), strides);
    };
    ViewOf<Exec, float****, Kokkos::LayoutLeft> q("Q", 2, 4, 19, 24), o("O", 2, 4, 19, 40), other("O", 2, 4, 19, 40);
    fill(q, qh);
    attention(Exec{}, o, q, keys(k, rings[0]), keys(v, rings[0]), {.lse = lse});
    for (int i : {1, 2}) {
      attention(Exec{}, other, q, keys(k, rings[i]), keys(v, rings[i]), {.lse = other_lse});
      merge_attention(Exec{}, swapped(o), lse, swapped(other), other_lse, AttentionLayout::bshd);
    }
    check_attention(r, values(o));
  }
  check_lse(r, values(lse));
}
TEST_CASE_TEMPLATE_APPLY(ring_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("merge_attention names what does not fit and writes nothing", Exec, merge_errors_id) {
  Exec const e;
  using O = ViewOf<Exec, float****>;
  using L = ViewOf<Exec, float***>;
  O o("O", 2, 3, 5, 4), part("part", 2, 3, 5, 4);
  L lse("LSE", 2, 3, 5), part_lse("LSE", 2, 3, 5);
  ViewOf<Exec, float*****> parts("parts", 2, 2, 3, 5, 4);
  poison(o), poison(lse);
  auto const extent = [&](auto f, char const* text) {
    std::string const what = error_of(f, ErrorCode::extent);
    CHECK_MESSAGE(contains(what, text), what);
    CHECK_MESSAGE(contains(what, "tessera::merge_attention"), what);
  };
  extent([&] { merge_attention(e, o, lse, O("part", 2, 3, 5, 5), part_lse); }, "(2, 3, 5, 5)");
  extent([&] { merge_attention(e, o, L("LSE", 2, 3, 6), part, part_lse); }, "LSE (2, 3, 6)");
  extent([&] { merge_attention(e, o, lse, part, L("LSE", 2, 2, 5)); }, "partial LSE (2, 2, 5)");
  extent([&] { merge_attention(e, o, lse, part, part_lse, AttentionLayout::bshd); }, "not (batch, heads, queries)");
  extent([&] { merge_attention(e, o, lse, parts, ViewOf<Exec, float****>("lses", 3, 2, 3, 5)); }, "as many");
  error_of([&] { merge_attention(e, o, lse, o, part_lse); }, ErrorCode::overlap);
  error_of([&] { merge_attention(e, o, lse, part, lse); }, ErrorCode::overlap);
  using Raw = Kokkos::View<float****, Kokkos::LayoutRight, typename Exec::memory_space,
                           Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  error_of([&] { merge_attention(e, o, lse, Raw(nullptr, 2, 3, 5, 4), part_lse); }, ErrorCode::null_data);
  CHECK(is_poisoned(o));
  CHECK(is_poisoned(lse));
}
TEST_CASE_TEMPLATE_APPLY(merge_errors_id, Spaces);
