// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element operations, fused and step by step, and reductions:
// transform/BACKEND/TYPE/FORMULA/RxC/IMPLEMENTATION and reduce/BACKEND/TYPE/OPERATION/RxC/IMPLEMENTATION
#include <string>
#include <vector>

#include <tessera/reduce.hpp>
#include <tessera/transform.hpp>
#include "support/plain.hpp"
#include "support/program.hpp"

namespace tessera::perf {
namespace {

/// sin²x + cos²x
struct SinCosSquares {
  template <class T>
  KOKKOS_FUNCTION T operator()(T x) const {
    T const s = fn::sin{}(x), c = fn::cos{}(x);
    return s * s + c * c;
  }
};

using BiasGelu = decltype(compose(fn::add{}, fn::gelu{}));

/// What every formula works on.
template <class Exec, class T>
struct Operands {
  Matrix<Exec, T> y, x;
  Vector<Exec, T> bias;
  std::vector<Matrix<Exec, T>> between;  // results of the steps of a chain
};

template <class Exec, class T>
std::vector<Implementation> sin_cos(Exec const& exec, Operands<Exec, T> const& o) {
  return {{"tessera", [=] { transform(exec, o.y, SinCosSquares{}, o.x); }},
          {"unfused",
           [=] {
             transform(exec, o.between[0], fn::sin{}, o.x);
             transform(exec, o.between[1], fn::square{}, o.between[0]);
             transform(exec, o.between[0], fn::cos{}, o.x);
             transform(exec, o.between[2], fn::square{}, o.between[0]);
             transform(exec, o.y, fn::add{}, o.between[1], o.between[2]);
           }},
          {"plain", [=] {
             plain_loop(exec, static_cast<std::int64_t>(o.y.size()),
                        PlainTransform<SinCosSquares, T, T>{{}, o.y.data(), o.x.data()});
           }}};
}

template <class Exec, class T>
std::vector<Implementation> gelu_bias(Exec const& exec, Operands<Exec, T> const& o) {
  auto const f = compose(fn::add{}, fn::gelu{});
  return {{"tessera", [=] { transform(exec, o.y, f, o.x, o.bias); }},
          {"unfused",
           [=] {
             transform(exec, o.between[0], fn::add{}, o.x, o.bias);
             transform(exec, o.y, fn::gelu{}, o.between[0]);
           }},
          {"plain", [=] {
             plain_loop(exec, static_cast<std::int64_t>(o.y.size()),
                        PlainTransform<BiasGelu, T, T, T>{f, o.y.data(), o.x.data(), o.bias.data(),
                                                          static_cast<std::int64_t>(o.bias.size())});
           }}};
}

template <class Exec, class T>
std::vector<Implementation> elu(Exec const& exec, Operands<Exec, T> const& o) {
  return {{"tessera", [=] { transform(exec, o.y, fn::elu{}, o.x); }},
          {"plain", [=] {
             plain_loop(exec, static_cast<std::int64_t>(o.y.size()),
                        PlainTransform<fn::elu, T, T>{{}, o.y.data(), o.x.data()});
           }}};
}

template <class Exec, class T>
std::vector<Implementation> implementations(Session<Exec>& session, std::string const& formula, Extents const& shape,
                                            double bytes) {
  Exec const exec = session.exec();
  Operands<Exec, T> o{zero_view<Matrix<Exec, T>>(exec, shape[0], shape[1]),
                      random_view<Matrix<Exec, T>>(exec, 1, shape[0], shape[1]),
                      random_view<Vector<Exec, T>>(exec, 2, shape[1]),
                      {}};
  int const steps = formula == "sin2_cos2" ? 3 : formula == "gelu_bias" ? 1 : 0;
  for (int i = 0; i < steps; ++i) o.between.push_back(zero_view<Matrix<Exec, T>>(exec, shape[0], shape[1]));
  auto all = formula == "sin2_cos2" ? sin_cos(exec, o) : formula == "gelu_bias" ? gelu_bias(exec, o) : elu(exec, o);
  all.push_back(device_copy(exec, bytes));
  return all;
}

template <class Exec, class T>
Case transform_case(Session<Exec>& session, std::string const& formula, Extents const& shape) {
  if (formula != "sin2_cos2" && formula != "gelu_bias" && formula != "elu")
    throw std::invalid_argument("--variant=" + formula + ": sin2_cos2, gelu_bias or elu");
  Case c{"transform", name(scalar_of<T>), formula, to_string(shape)};
  c.work = model::transform_work(shape[0] * shape[1], sizeof(T), sizeof(T));
  c.implementations = {"tessera"};
  if (formula != "elu") c.implementations.push_back("unfused");
  c.implementations.push_back("plain");
  c.implementations.push_back("copy");
  c.prepare = [&session, formula, shape, bytes = c.work.bytes] {
    return implementations<Exec, T>(session, formula, shape, bytes);
  };
  return c;
}

/// The input, an output of the right extents and the workspace of one reduction.
template <class Out, class Exec, class T>
Implementation reduction(Exec const& exec, Matrix<Exec, T> const& in, Out const& out, Reduction operation, int axis) {
  ReduceOptions options;
  options.axis = axis;
  Kokkos::View<std::byte*, typename Exec::memory_space> const workspace(
      "workspace", reduce_workspace_size(exec, out, in, operation, options));
  options.workspace = workspace;
  return {"tessera", [=] {
            [[maybe_unused]] auto const kept = workspace;  // the option does not own its memory
            reduce(exec, out, in, operation, options);
          }};
}

template <class Exec, class T>
std::vector<Implementation> reductions(Session<Exec>& session, std::string const& variant, Extents const& shape) {
  Exec const exec = session.exec();
  auto const in = random_view<Matrix<Exec, T>>(exec, 1, shape[0], shape[1]);
  if (variant == "sum_rows") {
    auto const out = zero_view<Vector<Exec, T>>(exec, shape[0]);
    return {reduction(exec, in, out, Reduction::sum, 1), {"plain", [=] {
                                                            plain_loop(exec, shape[0], PlainRowSum<Exec, T>{out, in});
                                                          }}};
  }
  if (variant == "sum_columns")
    return {reduction(exec, in, zero_view<Vector<Exec, T>>(exec, shape[1]), Reduction::sum, 0)};
  Reduction const operation = variant == "amax_all" ? Reduction::amax : Reduction::norm2;
  return {reduction(exec, in, Kokkos::View<T, typename Exec::memory_space>("out"), operation, -1)};
}

template <class Exec, class T>
Case reduce_case(Session<Exec>& session, std::string const& variant, Extents const& shape) {
  if (variant != "sum_rows" && variant != "sum_columns" && variant != "amax_all" && variant != "norm2_all")
    throw std::invalid_argument("--variant=" + variant + ": sum_rows, sum_columns, amax_all or norm2_all");
  Case c{"reduce", name(scalar_of<T>), variant, to_string(shape)};
  std::int64_t const results = variant == "sum_rows" ? shape[0] : variant == "sum_columns" ? shape[1] : 1;
  c.work = model::reduce_work(shape[0] * shape[1], results, sizeof(T), sizeof(T));
  c.implementations = {"tessera"};
  if (variant == "sum_rows") c.implementations.push_back("plain");
  c.prepare = [&session, variant, shape] { return reductions<Exec, T>(session, variant, shape); };
  return c;
}

struct Transform {
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    auto const sizes = session.sizes({"1024x4096"}, {"16384x4096", "65536x8192", "262144x64", "512x131072"});
    for (std::string const& type : session.types({"fp32", "bf16"}, {"fp32", "bf16"}))
      with_type<float, bf16_t>(type, [&]<class T>() {
        for (Extents const& shape : parse_extents(sizes, 2)) {
          if (session.wants("transform"))
            for (std::string const& variant : session.variants({"sin2_cos2", "gelu_bias", "elu"}))
              session.add(transform_case<Exec, T>(session, variant, shape));
          if (session.wants("reduce"))
            for (std::string const& variant : session.variants({"sum_rows", "sum_columns", "amax_all", "norm2_all"}))
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
