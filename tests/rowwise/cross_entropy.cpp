// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/cross_entropy.hpp>

#include "rows.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Expected {
  double loss = 0, log_sum = 0, loss_bound = 0, log_sum_bound = 0;
  std::vector<double> gradient, gradient_bound;
};

/// One row in fp64, and how far a computation in Acc may be off. An exponential errs by r_k = (2 |x_k - max| + 4) u of
/// itself (below 2^-126 by all of it), their sum by the mean of these and chain(n) u, the logarithm by as much
/// absolutely, and sums with the maximum by a rounding each. The sum of logits for smoothing takes chain(n) more. A
/// gradient errs by r_k and the sum's error, and by five roundings.
template <class Acc, class Out>
Expected expected_row(std::vector<double> const& x, std::int64_t label, double smoothing, double upstream) {
  double const u = roundoff_of<Acc>, n = static_cast<double>(x.size()), steps = chain(n);
  auto const softmax = reference::softmax(x, 1);
  double const top = softmax.top, log_total = softmax.log_total;
  Expected e;
  e.log_sum = top + log_total;
  double exponents = 0, total = 0, magnitudes = 0;
  for (std::size_t j = 0; j < x.size(); ++j) {
    if (softmax.softmax[j] > 0) exponents += softmax.softmax[j] * (2 * std::abs(x[j] - top) + 4) * u;
    total += x[j];
    magnitudes += std::abs(x[j]);
  }
  double const of_sum = exponents + (steps + 4) * u;
  e.log_sum_bound = 2 * of_sum + 4 * u * (std::abs(top) + std::abs(log_total));
  if (label < 0) {
    e.gradient.assign(x.size(), 0.0);
    e.gradient_bound.assign(x.size(), 0.0);
    e.loss = label == -2 ? std::nan("") : 0;
    return e;
  }
  auto const l = static_cast<std::size_t>(label);
  e.loss = e.log_sum - (1 - smoothing) * x[l] - (smoothing > 0 ? smoothing / n * total : 0);
  e.loss_bound =
      e.log_sum_bound + 4 * u * (std::abs(e.log_sum) + std::abs(x[l])) + smoothing / n * magnitudes * (steps + 4) * u;
  for (std::size_t j = 0; j < x.size(); ++j) {
    double const p = softmax.softmax[j], target = (j == l ? 1 - smoothing : 0) + smoothing / n;
    double const g = upstream * (p - target), r = p > 0 ? (2 * std::abs(x[j] - top) + 4) * u : 0;
    e.gradient.push_back(g);
    e.gradient_bound.push_back(std::abs(upstream) * (2 * p * (r + of_sum) + 5 * u * (p + target)) +
                               limits<Out>::roundoff * std::abs(g) + 2 * limits<float>::min_normal +
                               2 * limits<Out>::min_subnormal);
  }
  return e;
}

/// Labels all over the row, ignored ones and two out of range.
template <class Label>
std::vector<Label> some_labels(std::size_t rows, std::size_t n) {
  std::vector<Label> labels(rows);
  for (std::size_t i = 0; i < rows; ++i) labels[i] = static_cast<Label>(i * 7919 % n);
  if (rows > 3) labels[2] = -100, labels[3] = static_cast<Label>(n);
  if (rows > 5) labels[4] = -1, labels[1] = static_cast<Label>(n - 1);
  return labels;
}
std::int64_t class_of(std::int64_t label, std::size_t n) {
  return label == -100 ? -1 : label < 0 || label >= static_cast<std::int64_t>(n) ? -2 : label;
}

template <class Exec, class DLogits, class Logits, class Acc = float, class Label = std::int64_t>
void check_rows(std::size_t rows, std::size_t n, double smoothing = 0, bool mean = false, double range = 8) {
  CAPTURE(rows);
  CAPTURE(n);
  CAPTURE(smoothing);
  using Value = Acc;
  ViewOf<Exec, Logits**> const logits("logits", rows, n);
  ViewOf<Exec, DLogits**> const d_logits("d_logits", rows, n);
  ViewOf<Exec, Label*> const labels("labels", rows);
  ViewOf<Exec, Value*> const loss("loss", rows), log_sum("log_sum", rows), d_loss("d_loss", rows);
  ViewOf<Exec, std::int64_t*> const counts("counts", 2);
  auto const x = uniform<Logits>(rows * n, static_cast<unsigned>(n), -range, range);
  auto const t = some_labels<Label>(rows, n);
  auto const upstream = uniform<Value>(rows, 3, 0.5, 2);
  fill(logits, x);
  fill(labels, t);
  fill(d_loss, upstream);
  poison(d_logits);
  poison(loss);
  poison(log_sum);
  poison(counts);
  CrossEntropyOptions const options{.d_logits = d_logits,
                                    .d_loss = d_loss,
                                    .log_sum = log_sum,
                                    .counts = counts,
                                    .label_smoothing = smoothing,
                                    .mean = mean};
  cross_entropy(Exec{}, loss, logits, labels, options);
  std::int64_t counted = 0, wrong_labels = 0;
  for (Label label : t) {
    counted += class_of(label, n) >= 0;
    wrong_labels += class_of(label, n) == -2;
  }
  CHECK(values(counts) == std::vector<std::int64_t>{counted, wrong_labels});
  double const part = mean ? 1.0 / static_cast<double>(std::max<std::int64_t>(counted, 1)) : 1;
  auto const l = values(loss), s = values(log_sum);
  auto const d = values(d_logits);
  int far = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    auto const e = expected_row<Acc, DLogits>(row_of(x, i, n), class_of(t[i], n), smoothing,
                                              part * static_cast<double>(upstream[i]));
    double const u = roundoff_of<Acc>;
    far += !is_near(static_cast<double>(s[i]), e.log_sum, e.log_sum_bound);
    far += !is_near(static_cast<double>(l[i]), part * e.loss, part * (e.loss_bound + 2 * u * std::abs(e.loss)));
    for (std::size_t j = 0; j < n; ++j) far += !is_near(to_double(d[i * n + j]), e.gradient[j], e.gradient_bound[j]);
  }
  CHECK(far == 0);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("cross_entropy agrees with fp64 at every row length", Exec, lengths_id) {
  for (int n : lengths) {
    check_rows<Exec, float, float>(5, static_cast<std::size_t>(n));
    check_rows<Exec, float, float>(4, static_cast<std::size_t>(n), 0.1, true);
  }
}

TEST_CASE_TEMPLATE_DEFINE("cross_entropy takes every type and large vocabularies", Exec, types_id) {
  for (std::size_t n : {7u, 64u, 777u, 1000u, 4095u, 4104u, 17000u, 20000u}) {
    check_rows<Exec, bf16_t, bf16_t, float, std::int32_t>(6, n);
    check_rows<Exec, fp16_t, fp16_t>(6, n, 0.2, true);
    check_rows<Exec, float, bf16_t>(6, n);
    check_rows<Exec, double, double, double>(6, n, 0.1);
    check_rows<Exec, bf16_t, float, double>(6, n);
  }
  check_rows<Exec, bf16_t, bf16_t>(3, 128256);
  check_rows<Exec, bf16_t, bf16_t>(2, 262144, 0.1);
  check_rows<Exec, float, float>(2, 128256, 0.1);
  check_rows<Exec, bf16_t, bf16_t>(3, 50257);
  check_rows<Exec, float, float>(300, 50257, 0.1, true);
  check_rows<Exec, bf16_t, bf16_t>(2000, 16, 0.1, true);
  check_rows<Exec, bf16_t, bf16_t>(700, 16400);              // several rows a team on every machine
  check_rows<Exec, float, float>(16500, 3, 0, true);         // labels for several teams to count
  check_rows<Exec, float, float>(9, 300, 0.5, false, 1000);  // most exponentials are 0
}

TEST_CASE_TEMPLATE_DEFINE("cross_entropy gives loss or gradient alone, in place, one gradient for all", Exec,
                          parts_id) {
  for (std::size_t n : {9u, 520u, 4096u, 17000u}) {
    CAPTURE(n);
    constexpr std::size_t rows = 7;
    auto const x = uniform<bf16_t>(rows * n, 5, -6, 6);
    auto const t = some_labels<std::int32_t>(rows, n);
    ViewOf<Exec, bf16_t**> const logits("logits", rows, n), d_logits("d_logits", rows, n);
    ViewOf<Exec, std::int32_t*> const labels("labels", rows);
    ViewOf<Exec, float*> const loss("loss", rows), alone("alone", rows);
    fill(logits, x);
    fill(labels, t);
    CrossEntropyOptions<ViewOf<Exec, bf16_t**>> const with_gradient{.d_logits = d_logits};
    cross_entropy(Exec{}, loss, logits, labels, with_gradient);
    cross_entropy(alone, logits, labels);
    auto const both = values(loss), one = values(alone);
    for (std::size_t i = 0; i < rows; ++i) CHECK((one[i] == both[i] || std::isnan(both[i])));
    ViewOf<Exec, float> const d_loss("d_loss");
    fill(d_loss, std::vector<float>{0.5f});
    cross_entropy(
        Exec{}, none, logits, labels,
        CrossEntropyOptions<ViewOf<Exec, bf16_t**>, ViewOf<Exec, float>>{.d_logits = logits, .d_loss = d_loss});
    auto const whole = values(d_logits), half = values(logits);
    int wrong = 0;  // a power of two: the same but for subnormal numbers
    for (std::size_t i = 0; i < rows * n; ++i)
      wrong += std::abs(2 * to_double(half[i]) - to_double(whole[i])) > 4 * limits<float>::min_normal;
    CHECK(wrong == 0);
  }
}

/// Central differences as for softmax.
TEST_CASE_TEMPLATE_DEFINE("cross_entropy's gradient agrees with finite differences", Exec, differences_id) {
  constexpr std::size_t n = 9;
  constexpr double h = 1e-5;
  auto const x = uniform<double>(n, 1, -2, 2);
  ViewOf<Exec, double**> const logits("logits", 1, n), d_logits("d_logits", 1, n);
  ViewOf<Exec, double*> const loss("loss", 1);
  ViewOf<Exec, std::int64_t*> const labels("labels", 1);
  fill(labels, std::vector<std::int64_t>{4});
  auto const at = [&](std::vector<double> const& values_of) {
    fill(logits, values_of);
    cross_entropy(Exec{}, loss, logits, labels,
                  CrossEntropyOptions<ViewOf<Exec, double**>>{.d_logits = d_logits, .label_smoothing = 0.2});
    return values(loss)[0];
  };
  at(x);
  auto const gradient = values(d_logits);
  for (std::size_t j = 0; j < n; ++j) {
    auto more = x, less = x;
    more[j] += h;
    less[j] -= h;
    CHECK(std::abs((at(more) - at(less)) / (2 * h) - gradient[j]) < 1e-8);
  }
}

TEST_CASE_TEMPLATE_DEFINE("cross_entropy of masked classes, NaN, Inf and nothing", Exec, special_id) {
  for (std::size_t n : {8u, 1024u, 17000u}) {
    CAPTURE(n);
    std::vector<float> x(5 * n, 1.0f);
    auto const masked = -static_cast<float>(inf);
    for (std::size_t j = n / 2; j < n; ++j) x[j] = masked;
    x[n + 3] = std::nanf("");
    x[2 * n + 3] = static_cast<float>(inf);
    for (std::size_t j = 0; j < n; ++j) x[3 * n + j] = masked;
    x[4 * n + 2] = std::nanf("");
    ViewOf<Exec, float**> const logits("logits", 5, n), d_logits("d_logits", 5, n);
    ViewOf<Exec, std::int64_t*> const labels("labels", 5);
    ViewOf<Exec, float*> const loss("loss", 5);
    fill(logits, x);
    fill(labels, std::vector<std::int64_t>{1, 1, 1, 1, 77777});
    CrossEntropyOptions<ViewOf<Exec, float**>> options{.d_logits = d_logits, .ignored_label = 77777};
    cross_entropy(Exec{}, loss, logits, labels, options);
    auto const l = values(loss), d = values(d_logits);
    CHECK(std::abs(l[0] - std::log(static_cast<double>(n / 2))) < 1e-4);
    for (std::size_t i : {1u, 2u, 3u}) CHECK(std::isnan(l[i]));
    CHECK(l[4] == 0);
    int wrong = 0;
    for (std::size_t j = 0; j < n; ++j) {
      wrong += j >= n / 2 && d[j] != 0;
      for (std::size_t i : {1u, 2u, 3u}) wrong += !std::isnan(d[i * n + j]);
      wrong += d[4 * n + j] != 0;
    }
    CHECK(wrong == 0);
    options.label_smoothing = 0.1;
    cross_entropy(Exec{}, loss, logits, labels, options);
    CHECK(values(loss)[0] == static_cast<float>(inf));
  }
  ViewOf<Exec, float**> const no_rows("no_rows", 0, 7), no_classes("no_classes", 2, 0);
  ViewOf<Exec, std::int64_t*> const nothing("nothing", 0), two("two", 2), counts("counts", 2);
  ViewOf<Exec, float*> const no_loss("no_loss", 0), loss("loss", 2);
  using Counts = ViewOf<Exec, std::int64_t*>;
  poison(counts);
  cross_entropy(Exec{}, no_loss, no_rows, nothing,
                CrossEntropyOptions<None, None, None, Counts>{.counts = counts, .mean = true});
  CHECK(values(counts) == std::vector<std::int64_t>{0, 0});
  cross_entropy(Exec{}, loss, no_classes, two, CrossEntropyOptions<None, None, None, Counts>{.counts = counts});
  CHECK(values(counts) == std::vector<std::int64_t>{0, 2});
  CHECK(std::isnan(values(loss)[0]));
}

TEST_CASE_TEMPLATE_DEFINE("cross_entropy takes any layout and rank and repeats its bits", Exec, layouts_id) {
  for (std::size_t n : {9u, 1024u, 17000u}) {
    CAPTURE(n);
    auto const x = uniform<bf16_t>(12 * n, 3, -5, 5);
    auto const t = some_labels<std::int64_t>(12, n);
    auto const check = [&](auto const& logits, auto const& d_logits, auto const& labels, auto const& loss) {
      fill(strided(logits), x);
      fill(strided(labels), t);
      using D = std::remove_cvref_t<decltype(d_logits)>;
      cross_entropy(Exec{}, loss, logits, labels, CrossEntropyOptions<D>{.d_logits = d_logits});
      auto const d = values(strided(d_logits));
      auto const l = values(strided(loss));
      int far = 0;
      for (std::size_t i = 0; i < 12; ++i) {
        auto const e = expected_row<float, bf16_t>(row_of(x, i, n), class_of(t[i], n), 0, 1);
        far += !is_near(static_cast<double>(l[i]), e.loss, e.loss_bound);
        for (std::size_t j = 0; j < n; ++j)
          far += !is_near(to_double(d[i * n + j]), e.gradient[j], e.gradient_bound[j]);
      }
      CHECK(far == 0);
    };
    using Left = Kokkos::LayoutLeft;
    ViewOf<Exec, bf16_t****> const right("right", 2, 3, 2, n), other("other", 2, 3, 2, n);
    ViewOf<Exec, std::int64_t***> const labels("labels", 2, 3, 2);
    ViewOf<Exec, float***> const loss("loss", 2, 3, 2);
    check(right, other, labels, loss);
    auto const once = values(loss);
    auto const bits = values(other);
    check(right, other, labels, loss);
    for (std::size_t i = 0; i < once.size(); ++i) CHECK((values(loss)[i] == once[i] || std::isnan(once[i])));
    auto const again = values(other);
    CHECK(std::memcmp(bits.data(), again.data(), bits.size() * sizeof(bf16_t)) == 0);
    check(right, right, ViewOf<Exec, std::int64_t***, Left>("left", 2, 3, 2),
          ViewOf<Exec, float***, Left>("left", 2, 3, 2));
    check(ViewOf<Exec, bf16_t****, Left>("left", 2, 3, 2, n), right, labels, loss);
  }
  ViewOf<Exec, float*> const line("line", 4);
  ViewOf<Exec, std::int64_t> const label("label");
  ViewOf<Exec, float> const loss("loss");
  fill(line, std::vector<float>{0, 0, 0, 0});
  fill(label, std::vector<std::int64_t>{3});
  cross_entropy(loss, line, label);
  CHECK(std::abs(values(loss)[0] - std::log(4.0)) < 1e-6);
}

TEST_CASE_TEMPLATE_DEFINE("cross_entropy names what is wrong and writes nothing", Exec, errors_id) {
  ViewOf<Exec, float**> const logits("logits", 3, 8), d_logits("d_logits", 3, 8), narrow("narrow", 3, 7);
  ViewOf<Exec, std::int64_t*> const labels("labels", 3), two("two", 2), counts("counts", 2);
  ViewOf<Exec, float*> const loss("loss", 3), short_loss("short_loss", 2);
  for (auto const& v : {d_logits, narrow}) poison(v);
  for (auto const& v : {loss, short_loss}) poison(v);
  poison(counts);
  using Matrix = ViewOf<Exec, float**>;
  using Line = ViewOf<Exec, float*>;
  using Counts = ViewOf<Exec, std::int64_t*>;
  auto text = error_of([&] { cross_entropy(Exec{}, loss, logits, two); }, ErrorCode::extent);
  CHECK(contains(text, "tessera::cross_entropy"));
  CHECK(contains(text, "labels"));
  text = error_of([&] { cross_entropy(Exec{}, short_loss, logits, labels); }, ErrorCode::extent);
  CHECK(contains(text, "loss"));
  error_of([&] { cross_entropy(Exec{}, loss, logits, labels, CrossEntropyOptions<Matrix>{.d_logits = narrow}); },
           ErrorCode::extent);
  error_of([&] { cross_entropy(Exec{}, loss, logits, labels, CrossEntropyOptions<None, Line>{.d_loss = short_loss}); },
           ErrorCode::extent);
  error_of(
      [&] {
        cross_entropy(Exec{}, loss, logits, labels, CrossEntropyOptions<None, None, Line>{.log_sum = short_loss});
      },
      ErrorCode::extent);
  error_of(
      [&] {
        cross_entropy(Exec{}, loss, logits, labels, CrossEntropyOptions<None, None, None, Counts>{.counts = labels});
      },
      ErrorCode::extent);
  error_of([&] { cross_entropy(Exec{}, loss, logits, labels, CrossEntropyOptions<>{.label_smoothing = 1.5}); },
           ErrorCode::value);
  text = error_of([&] { cross_entropy(Exec{}, loss, logits, labels, CrossEntropyOptions<>{.mean = true}); },
                  ErrorCode::value);
  CHECK(contains(text, "counts"));
  error_of([&] { cross_entropy(Exec{}, loss, logits, labels, CrossEntropyOptions<None, None, Line>{.log_sum = loss}); },
           ErrorCode::overlap);
  Kokkos::View<float*, Kokkos::LayoutRight, typename Exec::memory_space> const row(logits.data(), 3);
  error_of([&] { cross_entropy(Exec{}, row, logits, labels); }, ErrorCode::overlap);
  Kokkos::View<float**, Kokkos::LayoutRight, typename Exec::memory_space> const null(static_cast<float*>(nullptr), 3,
                                                                                     8);
  error_of([&] { cross_entropy(Exec{}, loss, null, labels); }, ErrorCode::null_data);
  CHECK(is_poisoned(loss));
  CHECK(is_poisoned(short_loss));
  CHECK(is_poisoned(d_logits));
  CHECK(is_poisoned(narrow));
  CHECK(is_poisoned(counts));
}

TEST_CASE_TEMPLATE_APPLY(lengths_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(types_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(parts_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(differences_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(special_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(layouts_id, Spaces);
TEST_CASE_TEMPLATE_APPLY(errors_id, Spaces);
