// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Row operations: OPERATION/BACKEND/TYPE/VARIANT/RxC/IMPLEMENTATION, of softmax, log_softmax, layer_norm, rms_norm
#include <string>
#include <vector>

#include <tessera/normalization.hpp>
#include <tessera/softmax.hpp>
#include "support/plain.hpp"
#include "support/program.hpp"

namespace tessera::perf {
namespace {

template <class Exec, class T>
std::vector<Implementation> softmax_on(Exec const& exec, std::string const& operation, Matrix<Exec, T> const& y,
                                       Matrix<Exec, T> const& x) {
  auto const lent = zero_view<Vector<Exec, std::byte>>(exec, row_workspace_size(exec, x));
  if (operation == "log_softmax") return {{"tessera", [=] { log_softmax(exec, y, x, {.workspace = lent}); }}};
  return {{"tessera", [=] { softmax(exec, y, x, {.workspace = lent}); }},
          {"plain", [=] {
             plain_loop(exec, static_cast<std::int64_t>(x.extent(0)), PlainSoftmax<Exec, T>{y, x});
           }}};
}

template <class Exec, class T>
std::vector<Implementation> norm_on(Exec const& exec, std::string const& operation, Matrix<Exec, T> const& y,
                                    Matrix<Exec, T> const& x) {
  auto const columns = static_cast<std::int64_t>(x.extent(1));
  auto const weight = random_view<Vector<Exec, T>>(exec, 2, columns);
  bool const centered = operation == "layer_norm";
  auto const lent = zero_view<Vector<Exec, std::byte>>(exec, row_workspace_size(exec, x));
  Implementation plain{
      "plain", [=] {
        plain_loop(exec, static_cast<std::int64_t>(x.extent(0)), PlainNorm<Exec, T>{y, x, weight, centered, 1e-5});
      }};
  if (centered) {
    auto const bias = random_view<Vector<Exec, T>>(exec, 3, columns);
    return {{"tessera", [=] { layer_norm(exec, y, x, weight, bias, NormOptions<>{.workspace = lent}); }}, plain};
  }
  return {{"tessera", [=] { rms_norm(exec, y, x, weight, NormOptions<>{.workspace = lent}); }}, plain};
}

/// y = rms_norm(x + r), the sum kept: two reads and two writes.
template <class Exec, class T>
std::vector<Implementation> residual_norm_on(Exec const& exec, Matrix<Exec, T> const& y, Matrix<Exec, T> const& x) {
  auto const weight = random_view<Vector<Exec, T>>(exec, 2, x.extent(1));
  auto const residual = random_view<Matrix<Exec, T>>(exec, 3, x.extent(0), x.extent(1));
  auto const sum = zero_view<Matrix<Exec, T>>(exec, x.extent(0), x.extent(1));
  auto const lent = zero_view<Vector<Exec, std::byte>>(exec, row_workspace_size(exec, x));
  return {{"tessera", [=] {
             rms_norm(exec, y, x, weight,
                      NormOptions<None, None, Matrix<Exec, T>, Matrix<Exec, T>>{
                          .residual = residual, .sum = sum, .workspace = lent});
           }}};
}

template <class Exec, class T>
Case row_case(Session<Exec>& session, std::string const& operation, std::string const& variant, Extents const& shape) {
  Case c{operation, name(scalar_of<T>), variant, to_string(shape)};
  int const vectors = operation == "layer_norm" ? 2 : operation == "rms_norm" ? 1 : 0;
  c.work = model::rowwise_work(shape[0], shape[1], sizeof(T), sizeof(T), vectors);
  bool const residual = variant == "residual";
  if (residual) c.work = c.work + model::transform_work(shape[0] * shape[1], sizeof(T), sizeof(T));
  c.implementations = {"tessera"};
  if (!residual && operation != "log_softmax") c.implementations.push_back("plain");
  c.implementations.push_back("copy");
  c.prepare = [&session, operation, residual, shape, bytes = c.work.bytes] {
    Exec const exec = session.exec();
    auto const y = zero_view<Matrix<Exec, T>>(exec, shape[0], shape[1]);
    auto const x = random_view<Matrix<Exec, T>>(exec, 1, shape[0], shape[1]);
    bool const norm = operation == "layer_norm" || operation == "rms_norm";
    auto all = residual ? residual_norm_on(exec, y, x)
               : norm   ? norm_on(exec, operation, y, x)
                        : softmax_on(exec, operation, y, x);
    all.push_back(device_copy(exec, bytes));
    return all;
  };
  return c;
}

struct Rowwise {
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    struct Kind {
      char const *operation, *variant;
    };
    auto const sizes = session.sizes(
        {"1024x4096"}, {"1024x1024", "16384x4096", "65536x8192", "262144x64", "131072x256", "32768x5120", "16384x10240",
                        "512x131072", "4096x131072", "131072x1001", "128x1048576", "512x1048576"});
    for (std::string const& type : session.types({"fp32", "bf16"}, {"fp32", "bf16"}))
      with_type<float, bf16_t, fp16_t>(type, [&]<class T>() {
        for (Extents const& shape : parse_extents(sizes, 2))
          for (Kind const kind : {Kind{"softmax", "rows"}, Kind{"log_softmax", "rows"}, Kind{"layer_norm", "weight"},
                                  Kind{"rms_norm", "weight"}, Kind{"rms_norm", "residual"}}) {
            auto const variants = session.variants({kind.variant});
            if (session.wants(kind.operation) &&
                std::find(variants.begin(), variants.end(), kind.variant) != variants.end())
              session.add(row_case<Exec, T>(session, kind.operation, kind.variant, shape));
          }
      });
  }
};

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) {
  return tessera::perf::run_program(argc, argv,
                                    "Row operations; --operation=softmax,log_softmax,layer_norm,rms_norm --size=RxC",
                                    tessera::perf::Rowwise{});
}
