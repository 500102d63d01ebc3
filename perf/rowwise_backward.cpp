// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients of row operations: OPERATION/BACKEND/TYPE/VARIANT/RxC/IMPLEMENTATION, of softmax_backward,
// log_softmax_backward, layer_norm_backward, rms_norm_backward, cross_entropy (loss and gradient), rotary_embedding.
// tessera begins softmax's gradient with the scores, tessera_from_output with what the forward operation has left.
#include <string>
#include <vector>

#include <tessera/cross_entropy.hpp>
#include <tessera/normalization_backward.hpp>
#include <tessera/rotary.hpp>
#include <tessera/softmax_backward.hpp>
#include "support/plain.hpp"
#include "support/program.hpp"

namespace tessera::perf {
namespace {

template <class Exec, class T>
Implementation norm_backward_on(Exec const& exec, bool centered, bool residual, Extents const& shape) {
  auto const matrix = [&](int seed) { return random_view<Matrix<Exec, T>>(exec, seed, shape[0], shape[1]); };
  auto const in = matrix(1), d_out = matrix(2), d_sum = residual ? matrix(3) : Matrix<Exec, T>();
  auto const d_in = zero_view<Matrix<Exec, T>>(exec, shape[0], shape[1]);
  auto const weight = random_view<Vector<Exec, T>>(exec, 4, shape[1]);
  auto const d_weight = zero_view<Vector<Exec, T>>(exec, shape[1]), d_bias = zero_view<Vector<Exec, T>>(exec, shape[1]);
  auto const mean = random_view<Vector<Exec, float>>(exec, 5, shape[0]),
             rstd = random_view<Vector<Exec, float>>(exec, 6, shape[0]);
  auto const workspace = zero_view<Vector<Exec, std::byte>>(exec, norm_backward_workspace_size(exec, in));
  if (centered)
    return {"tessera", [=] {
              layer_norm_backward(exec, d_in, d_weight, d_bias, d_out, in, mean, rstd, weight,
                                  NormBackwardOptions<>{.workspace = workspace});
            }};
  if (!residual)
    return {"tessera", [=] {
              rms_norm_backward(exec, d_in, d_weight, d_out, in, rstd, weight,
                                NormBackwardOptions<>{.workspace = workspace});
            }};
  return {"tessera", [=] {
            rms_norm_backward(exec, d_in, d_weight, d_out, in, rstd, weight,
                              NormBackwardOptions<Matrix<Exec, T>>{.d_sum = d_sum, .workspace = workspace});
          }};
}

template <class Exec, class T>
std::vector<Implementation> softmax_backward_on(Exec const& exec, bool log, Extents const& shape) {
  auto const in = random_view<Matrix<Exec, T>>(exec, 1, shape[0], shape[1]),
             d_out = random_view<Matrix<Exec, T>>(exec, 2, shape[0], shape[1]),
             d_in = zero_view<Matrix<Exec, T>>(exec, shape[0], shape[1]);
  auto const lent = zero_view<Vector<Exec, std::byte>>(exec, row_workspace_size(exec, in));
  auto const implementation = [=](char const* name, bool from_output) {
    return Implementation{name, [=] {
                            SoftmaxBackwardOptions const options{.from_output = from_output, .workspace = lent};
                            if (log)
                              log_softmax_backward(exec, d_in, d_out, in, options);
                            else
                              softmax_backward(exec, d_in, d_out, in, options);
                          }};
  };
  return {implementation("tessera", false), implementation("tessera_from_output", true)};
}

template <class Exec>
struct SpreadLabels {
  Vector<Exec, std::int64_t> labels;
  std::int64_t classes;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { labels(i) = i * 7919 % classes; }
};

/// The mean of the losses and the gradient of it.
template <class Exec, class T>
Implementation cross_entropy_on(Exec const& exec, Extents const& shape) {
  auto const logits = random_view<Matrix<Exec, T>>(exec, 1, shape[0], shape[1]),
             d_logits = zero_view<Matrix<Exec, T>>(exec, shape[0], shape[1]);
  auto const labels = zero_view<Vector<Exec, std::int64_t>>(exec, shape[0]),
             counts = zero_view<Vector<Exec, std::int64_t>>(exec, 2);
  auto const loss = zero_view<Vector<Exec, float>>(exec, shape[0]);
  plain_loop(exec, shape[0], SpreadLabels<Exec>{labels, shape[1]});
  using Options = CrossEntropyOptions<Matrix<Exec, T>, None, None, Vector<Exec, std::int64_t>>;
  return {"tessera", [=] {
            cross_entropy(exec, loss, logits, labels, Options{.d_logits = d_logits, .counts = counts, .mean = true});
          }};
}

/// R tokens of C / 128 heads of 128.
template <class Exec, class T>
Implementation rotary_on(Exec const& exec, Extents const& shape) {
  std::int64_t const heads = shape[1] / 128;
  auto const in = random_view<Tensor4<Exec, T>>(exec, 1, 1, shape[0], heads, 128),
             out = zero_view<Tensor4<Exec, T>>(exec, 1, shape[0], heads, 128);
  auto const cosine = random_view<Matrix<Exec, float>>(exec, 2, shape[0], 64),
             sine = random_view<Matrix<Exec, float>>(exec, 3, shape[0], 64);
  return {"tessera", [=] { rotary_embedding(exec, out, in, cosine, sine); }};
}

struct Kind {
  char const *operation, *variant;
  int tensors, vectors;  // moved
  bool is(char const* name) const { return std::string(operation) == name; }
  bool is_softmax() const { return is("softmax_backward") || is("log_softmax_backward"); }
};

template <class Exec, class T>
Case backward_case(Session<Exec>& session, Kind const& kind, Extents const& shape) {
  Case c{kind.operation, name(scalar_of<T>), kind.variant, to_string(shape)};
  c.work = model::transform_work(shape[0] * shape[1], static_cast<int>((kind.tensors - 1) * sizeof(T)), sizeof(T), 10) +
           model::transform_work(shape[1], static_cast<int>(kind.vectors * sizeof(T)), 0);
  if (kind.is("rotary_embedding"))  // 64 cosines and sines a token
    c.work = c.work + model::transform_work(shape[0] * 64, static_cast<int>(2 * sizeof(float)), 0);
  c.implementations = {"tessera", "copy"};
  if (kind.is_softmax()) c.implementations = {"tessera", "tessera_from_output", "copy"};
  c.prepare = [&session, kind, shape, bytes = c.work.bytes]() -> std::vector<Implementation> {
    Exec const exec = session.exec();
    std::vector<Implementation> all;
    if (kind.is_softmax())
      all = softmax_backward_on<Exec, T>(exec, kind.is("log_softmax_backward"), shape);
    else if (kind.is("cross_entropy"))
      all = {cross_entropy_on<Exec, T>(exec, shape)};
    else if (kind.is("rotary_embedding"))
      all = {rotary_on<Exec, T>(exec, shape)};
    else
      all = {norm_backward_on<Exec, T>(exec, kind.is("layer_norm_backward"), kind.tensors == 4, shape)};
    all.push_back(device_copy(exec, bytes));
    return all;
  };
  return c;
}

struct RowwiseBackward {
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    auto const rows = session.sizes(
        {"1024x4096"}, {"1024x1024", "16384x4096", "65536x8192", "262144x64", "131072x256", "32768x5120", "16384x10240",
                        "512x131072", "4096x131072", "131072x1001", "128x1048576", "512x1048576"});
    auto const vocabularies = session.sizes({"64x32000"}, {"16384x32000", "8192x128256", "16384x50257"});
    for (std::string const& type : session.types({"fp32", "bf16"}, {"fp32", "bf16"}))
      with_type<float, bf16_t, fp16_t>(type, [&]<class T>() {
        for (Kind const& kind : {Kind{"softmax_backward", "rows", 3, 0}, Kind{"log_softmax_backward", "rows", 3, 0},
                                 Kind{"layer_norm_backward", "weight", 3, 3}, Kind{"rms_norm_backward", "weight", 3, 2},
                                 Kind{"rms_norm_backward", "residual", 4, 2}, Kind{"cross_entropy", "mean", 2, 0},
                                 Kind{"rotary_embedding", "heads", 2, 0}}) {
          bool const classes = kind.is("cross_entropy");
          for (Extents const& shape : parse_extents(classes ? vocabularies : rows, 2)) {
            bool const heads = shape[1] % 128 == 0 && shape[1] <= 16384;
            if (kind.is("rotary_embedding") && !heads) continue;
            auto const variants = session.variants({kind.variant});
            if (session.wants(kind.operation) &&
                std::find(variants.begin(), variants.end(), kind.variant) != variants.end())
              session.add(backward_case<Exec, T>(session, kind, shape));
          }
        }
      });
  }
};

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) {
  return tessera::perf::run_program(
      argc, argv,
      "Gradients of row operations; --operation=softmax_backward,log_softmax_backward,layer_norm_backward,"
      "rms_norm_backward,cross_entropy,rotary_embedding --size=RxC",
      tessera::perf::RowwiseBackward{});
}
