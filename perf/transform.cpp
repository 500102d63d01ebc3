// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element operations, fused and step by step, and reductions:
// transform/BACKEND/TYPE/FORMULA/RxC/IMPLEMENTATION and reduce/BACKEND/TYPE/OPERATION/RxC/IMPLEMENTATION
#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/arg_reduce.hpp>
#include <tessera/derivatives.hpp>
#include <tessera/reduce.hpp>
#include <tessera/transform.hpp>
#include "support/plain.hpp"
#include "support/program.hpp"

namespace tessera::perf {
namespace {

/// sin²x + cos²x
template <class Sin, class Cos>
struct SinCosSquares {
  template <class T>
  KOKKOS_FUNCTION auto operator()(T x) const {
    auto const s = Sin{}(x), c = Cos{}(x);
    return s * s + c * c;
  }
  constexpr auto for_narrow() const { return SinCosSquares<fn::narrow::sin, fn::narrow::cos>{}; }
  constexpr auto for_usual() const { return SinCosSquares<fn::usual::sin, fn::usual::cos>{}; }
  static constexpr bool usual_by_magnitude = true;
  template <class T>
  KOKKOS_FUNCTION static bool usual(T x) {
    return fn::narrow::sin::usual(x);
  }
  constexpr auto for_moderate() const { return SinCosSquares<fn::moderate::sin, fn::moderate::cos>{}; }
  template <class T>
  KOKKOS_FUNCTION static bool moderate(T x) {
    return fn::sin::moderate(x);
  }
};

/// gelu(x + b)·sin x + cos x
template <class Gelu, class Sin, class Cos>
struct GeluSinCos {
  template <class T>
  KOKKOS_FUNCTION auto operator()(T x, T b) const {
    return Gelu{}(x + b) * Sin{}(x) + Cos{}(x);
  }
  constexpr auto for_narrow() const { return GeluSinCos<fn::narrow::gelu, fn::narrow::sin, fn::narrow::cos>{}; }
  constexpr auto for_usual() const { return GeluSinCos<fn::usual::gelu, fn::usual::sin, fn::usual::cos>{}; }
  static constexpr bool usual_by_magnitude = true;
  template <class T>
  KOKKOS_FUNCTION static bool usual(T x, T b) {
    return fn::narrow::sin::usual(x) & fn::narrow::gelu::usual(x + b);
  }
  constexpr auto for_moderate() const { return GeluSinCos<Gelu, fn::moderate::sin, fn::moderate::cos>{}; }
  template <class T>
  KOKKOS_FUNCTION static bool moderate(T x, T) {
    return fn::sin::moderate(x);
  }
};

/// f beside the loop one writes first.
template <class F, class Exec, class T>
std::vector<Implementation> fused(Exec const& exec, Matrix<Exec, T> const& y, Matrix<Exec, T> const& x) {
  return {{"tessera", [=] { transform(exec, y, F{}, x); }},
          {"plain", [=] {
             plain_loop(exec, static_cast<std::int64_t>(y.size()), PlainTransform<F, T, T>{{}, y.data(), x.data()});
           }}};
}
template <class F, class Exec, class T, class Second>
std::vector<Implementation> fused(Exec const& exec, Matrix<Exec, T> const& y, Matrix<Exec, T> const& x,
                                  Second const& second) {
  return {{"tessera", [=] { transform(exec, y, F{}, x, second); }},
          {"plain", [=] {
             plain_loop(exec, static_cast<std::int64_t>(y.size()),
                        PlainTransform<F, T, T, T>{
                            {}, y.data(), x.data(), second.data(), static_cast<std::int64_t>(second.size())});
           }}};
}

template <class Exec, class T>
Implementation unfused_sin_cos(Exec const& exec, Matrix<Exec, T> const& y, Matrix<Exec, T> const& x) {
  auto const a = zero_view<Matrix<Exec, T>>(exec, y.extent(0), y.extent(1));
  auto const b = zero_view<Matrix<Exec, T>>(exec, y.extent(0), y.extent(1));
  auto const c = zero_view<Matrix<Exec, T>>(exec, y.extent(0), y.extent(1));
  return {"unfused", [=] {
            transform(exec, a, fn::sin{}, x);
            transform(exec, b, fn::square{}, a);
            transform(exec, a, fn::cos{}, x);
            transform(exec, c, fn::square{}, a);
            transform(exec, y, fn::add{}, b, c);
          }};
}
template <class Exec, class T>
Implementation unfused_gelu_bias(Exec const& exec, Matrix<Exec, T> const& y, Matrix<Exec, T> const& x,
                                 Vector<Exec, T> const& bias) {
  auto const a = zero_view<Matrix<Exec, T>>(exec, y.extent(0), y.extent(1));
  return {"unfused", [=] {
            transform(exec, a, fn::add{}, x, bias);
            transform(exec, y, fn::gelu{}, a);
          }};
}

using GeluGradient = decltype(gradient(fn::gelu{}));
using BiasGelu = decltype(compose(fn::add{}, fn::gelu{}));

struct Formula {
  char const* name;
  int matrices_read;
  bool unfused;  // also measured step by step
};
constexpr Formula formulas[] = {{"sin2_cos2", 1, true},     {"gelu_bias", 1, true}, {"elu", 1, false},
                                {"gelu_sin_cos", 1, false}, {"add", 2, false},      {"swiglu", 2, false},
                                {"gelu_gradient", 2, false}};
std::string joined(std::vector<std::string> const& names) {
  std::string all;
  for (std::string const& one : names) all += (all.empty() ? "" : ", ") + one;
  return all;
}
std::vector<std::string> formula_names() {
  std::vector<std::string> names;
  for (Formula const& f : formulas) names.emplace_back(f.name);
  return names;
}

template <class Exec, class T>
std::vector<Implementation> implementations(Session<Exec>& session, Formula const& formula, Extents const& shape,
                                            double bytes) {
  Exec const exec = session.exec();
  auto const y = zero_view<Matrix<Exec, T>>(exec, shape[0], shape[1]);
  auto const x = random_view<Matrix<Exec, T>>(exec, 1, shape[0], shape[1]);
  auto const bias = random_view<Vector<Exec, T>>(exec, 2, shape[1]);
  std::string const name = formula.name;
  std::vector<Implementation> all;
  if (formula.matrices_read == 2) {
    auto const second = random_view<Matrix<Exec, T>>(exec, 3, shape[0], shape[1]);
    all = name == "add"      ? fused<fn::add, Exec, T>(exec, y, x, second)
          : name == "swiglu" ? fused<fn::swiglu, Exec, T>(exec, y, x, second)
                             : fused<GeluGradient, Exec, T>(exec, y, x, second);
  } else if (name == "sin2_cos2") {
    all = fused<SinCosSquares<fn::sin, fn::cos>, Exec, T>(exec, y, x);
    all.push_back(unfused_sin_cos<Exec, T>(exec, y, x));
  } else if (name == "gelu_bias") {
    all = fused<BiasGelu, Exec, T>(exec, y, x, bias);
    all.push_back(unfused_gelu_bias<Exec, T>(exec, y, x, bias));
  } else if (name == "gelu_sin_cos") {
    all = fused<GeluSinCos<fn::gelu, fn::sin, fn::cos>, Exec, T>(exec, y, x, bias);
  } else {
    all = fused<fn::elu, Exec, T>(exec, y, x);
  }
  all.push_back(device_copy(exec, bytes));
  return all;
}

template <class Exec, class T>
Case transform_case(Session<Exec>& session, std::string const& variant, Extents const& shape) {
  auto const* const formula =
      std::find_if(std::begin(formulas), std::end(formulas), [&](Formula const& f) { return f.name == variant; });
  if (formula == std::end(formulas))
    throw std::invalid_argument("--variant=" + variant + ": one of " + joined(formula_names()));
  Case c{"transform", name(scalar_of<T>), variant, to_string(shape)};
  c.work = model::transform_work(shape[0] * shape[1], formula->matrices_read * sizeof(T), sizeof(T));
  c.implementations = {"tessera", "plain", "copy"};
  if (formula->unfused) c.implementations.insert(c.implementations.begin() + 1, "unfused");
  c.prepare = [&session, formula, shape, bytes = c.work.bytes] {
    return implementations<Exec, T>(session, *formula, shape, bytes);
  };
  return c;
}

/// A reduction along `axis`: bytes(options) of workspace, and call(options).
template <class Exec, class Bytes, class Call>
Implementation with_workspace(Exec const& exec, int axis, Bytes const& bytes, Call const& call) {
  ReduceOptions options;
  options.axis = axis;
  auto const workspace = zero_view<Vector<Exec, std::byte>>(exec, bytes(options));
  options.workspace = workspace;
  return {"tessera", [=] {
            [[maybe_unused]] auto const kept = workspace;  // the option does not own its memory
            call(options);
          }};
}
template <class Out, class Exec, class T>
Implementation reduction(Exec const& exec, Matrix<Exec, T> const& in, Out const& out, Reduction operation, int axis) {
  return with_workspace(
      exec, axis, [&](ReduceOptions const& o) { return reduce_workspace_size(exec, out, in, operation, o); },
      [=](ReduceOptions const& o) { reduce(exec, out, in, operation, o); });
}
/// One whose state is a pair of numbers; `operation` is a function object.
template <class Out, class Exec, class T, class Operation>
Implementation pair_reduction(Exec const& exec, Matrix<Exec, T> const& in, Out const& out, Operation const& operation,
                              int axis) {
  return with_workspace(
      exec, axis, [&](ReduceOptions const& o) { return pair_reduce_workspace_size(exec, out, in, o); },
      [=](ReduceOptions const& o) { operation(exec, out, in, o); });
}

/// The results of each row, of each column, or of all.
enum class Results { rows, columns, all };
struct ReduceVariant {
  char const* name;
  Results of;
};
constexpr ReduceVariant reduce_variants[] = {
    {"sum_rows", Results::rows},    {"sum_columns", Results::columns}, {"amax_all", Results::all},
    {"norm2_all", Results::all},    {"argmax_rows", Results::rows},    {"argmax_columns", Results::columns},
    {"argmax_all", Results::all},   {"logsumexp_rows", Results::rows}, {"logsumexp_columns", Results::columns},
    {"logsumexp_all", Results::all}};
std::vector<std::string> reduce_names() {
  std::vector<std::string> names;
  for (ReduceVariant const& v : reduce_variants) names.emplace_back(v.name);
  return names;
}

/// run(out, axis) with an output of R for these results.
template <class R, class Exec, class Run>
Implementation with_output(Exec const& exec, Results of, Extents const& shape, Run const& run) {
  if (of == Results::all) return run(zero_view<Kokkos::View<R, typename Exec::memory_space>>(exec), -1);
  int const axis = of == Results::rows ? 1 : 0;
  return run(zero_view<Vector<Exec, R>>(exec, shape[1 - axis]), axis);
}

template <class Exec, class T>
std::vector<Implementation> reductions(Session<Exec>& session, ReduceVariant const& variant, Extents const& shape) {
  Exec const exec = session.exec();
  auto const in = random_view<Matrix<Exec, T>>(exec, 1, shape[0], shape[1]);
  std::string const name = variant.name, operation = name.substr(0, name.find('_'));
  if (operation == "argmax")
    return {with_output<std::int32_t>(exec, variant.of, shape, [&](auto const& out, int axis) {
      auto const call = [](auto const&... a) { argmax(a...); };
      return pair_reduction(exec, in, out, call, axis);
    })};
  if (operation == "logsumexp")
    return {with_output<float>(exec, variant.of, shape, [&](auto const& out, int axis) {
      auto const call = [](auto const&... a) { logsumexp(a...); };
      return pair_reduction(exec, in, out, call, axis);
    })};
  if (name == "sum_rows") {
    auto const out = zero_view<Vector<Exec, T>>(exec, shape[0]);
    return {reduction(exec, in, out, Reduction::sum, 1), {"plain", [=] {
                                                            plain_loop(exec, shape[0], PlainRowSum<Exec, T>{out, in});
                                                          }}};
  }
  Reduction const of_values = operation == "sum"    ? Reduction::sum
                              : operation == "amax" ? Reduction::amax
                                                    : Reduction::norm2;
  return {with_output<T>(exec, variant.of, shape,
                         [&](auto const& out, int axis) { return reduction(exec, in, out, of_values, axis); })};
}

template <class Exec, class T>
Case reduce_case(Session<Exec>& session, std::string const& name_of_variant, Extents const& shape) {
  auto const* const variant = std::find_if(std::begin(reduce_variants), std::end(reduce_variants),
                                           [&](ReduceVariant const& v) { return v.name == name_of_variant; });
  if (variant == std::end(reduce_variants))
    throw std::invalid_argument("--variant=" + name_of_variant + ": one of " + joined(reduce_names()));
  Case c{"reduce", name(scalar_of<T>), name_of_variant, to_string(shape)};
  std::int64_t const results = variant->of == Results::rows ? shape[0] : variant->of == Results::columns ? shape[1] : 1;
  c.work = model::reduce_work(shape[0] * shape[1], results, sizeof(T), sizeof(T));
  c.implementations = {"tessera"};
  if (name_of_variant == "sum_rows") c.implementations.push_back("plain");
  c.prepare = [&session, variant, shape] {
    auto all = reductions<Exec, T>(session, *variant, shape);
    for (Implementation& x : all) x.reads_only = true;
    return all;
  };
  return c;
}

struct Transform {
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    auto const sizes =
        session.sizes({"1024x4096"}, {"1024x1024", "16384x4096", "65536x8192", "262144x64", "512x131072"});
    for (std::string const& type : session.types({"fp32", "bf16"}, {"fp32", "bf16"}))
      with_type<float, bf16_t>(type, [&]<class T>() {
        for (Extents const& shape : parse_extents(sizes, 2)) {
          if (session.wants("transform"))
            for (std::string const& variant : session.variants(formula_names()))
              session.add(transform_case<Exec, T>(session, variant, shape));
          if (session.wants("reduce"))
            for (std::string const& variant : session.variants(reduce_names()))
              session.add(reduce_case<Exec, T>(session, variant, shape));
        }
      });
  }
};

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) {
  return tessera::perf::run_program(
      argc, argv, "Element operations fused and unfused, and reductions; --operation=transform,reduce --size=RxC",
      tessera::perf::Transform{});
}
