// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_TOUR_ROWS_HPP
#define TESSERA_PERF_TOUR_ROWS_HPP

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <tessera/attention.hpp>
#include <tessera/cast.hpp>
#include <tessera/gemm.hpp>
#include <tessera/normalization.hpp>
#include <tessera/quantize.hpp>
#include <tessera/reduce.hpp>
#include <tessera/softmax.hpp>
#include <tessera/transform.hpp>
#include "support/check.hpp"
#include "support/contest.hpp"
#include "support/peers.hpp"
#include "support/plain.hpp"

// The rows of the tour: each family at shapes of one layer of an 8B-class transformer.
namespace tessera::perf {

/// Ours first, then the plain loop, and the check of what ours left in its output.
struct Prepared {
  std::vector<Implementation> implementations;
  std::function<Check()> check;
};

struct Row {
  Case definition;
  std::function<Prepared()> prepare;
};

/// The sizes of the layer, and how much of it this machine is given.
struct Layer {
  std::int64_t hidden = 4096, heads = 32, kv_heads = 8, head_size = 128, ffn = 14336;
  std::int64_t tokens = 64;     ///< rows of the matrix products
  std::int64_t sequence = 256;  ///< of the attention
  std::int64_t rows = 1024;     ///< of the element and row operations
  double plain_flops = 3e8;     ///< what the plain triple loop may take of a product
};

template <class Exec>
Layer layer_of(std::int64_t tokens) {
  Layer layer;
  bool const gpu = !Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible;
#if defined(KOKKOS_ENABLE_SERIAL)
  bool const serial = std::is_same_v<Exec, Kokkos::Serial>;
#else
  bool const serial = false;
#endif
  layer.tokens = tokens > 0 ? tokens : gpu ? 4096 : serial ? 32 : 64;
  layer.sequence = gpu ? layer.tokens : 4 * layer.tokens;
  layer.rows = gpu ? 4 * layer.tokens : 16 * layer.tokens;
  layer.plain_flops = gpu ? 4e10 : 3e8;
  return layer;
}

template <class Exec, class T>
Row gemm_row(Exec const& exec, Layer const& layer, std::string const& where, std::int64_t n, std::int64_t k) {
  std::int64_t const m = layer.tokens;
  Row row;
  Case& c = row.definition;
  c.operation = "gemm";
  c.type = name(scalar_of<T>);
  c.variant = "NT";
  c.shape = to_string(Extents{m, n, k});
  c.work = model::gemm_work(m, n, k, sizeof(T), sizeof(T), sizeof(GemmResult<T>));
  c.arithmetic = model::type_from_string(c.type);
  c.counts_flops = true;
  c.note = where;
  auto const affordable = static_cast<std::int64_t>(layer.plain_flops / (2.0 * static_cast<double>(n * k)));
  row.prepare = [=]() -> Prepared {
    auto const x = gemm_operands<Exec, T>(exec, "NT", {1, m, n, k});
    Implementation const ours{"tessera", [=] { gemm(exec, 1, x.a, x.b, 0, x.c, x.options()); },
                              tessera::to_string(gemm_plan(exec, 1, x.a, x.b, 0, x.c, x.options()))};
    return {{ours, plain_gemm(exec, x, std::max<std::int64_t>(affordable, 1))},
            [=] { return check_gemm<T, GemmResult<T>>(x.c, m, n, k); }};
  };
  return row;
}

/// A row of an operation bound by memory.
inline Row memory_row(std::string const& operation, std::string const& type, std::string const& variant,
                      std::string const& shape, model::Work const& work, std::string const& note) {
  Row row;
  row.definition.operation = operation;
  row.definition.type = type;
  row.definition.variant = variant;
  row.definition.shape = shape;
  row.definition.work = work;
  row.definition.note = note;
  return row;
}

/// y = f(x, x2), x2 of x's extents or one row that is repeated; `reference` is f in fp64.
template <class Exec, class T, class F>
Row transform_row(Exec const& exec, std::string const& formula, F const& f, std::int64_t rows, std::int64_t columns,
                  bool repeat_row, std::string const& note, double (*reference)(double, double)) {
  int const read = repeat_row ? sizeof(T) : 2 * sizeof(T);
  Row row = memory_row("transform", name(scalar_of<T>), formula, to_string(Extents{rows, columns}),
                       model::transform_work(rows * columns, read, sizeof(T)), note);
  row.prepare = [=]() -> Prepared {
    auto const x = random_view<Matrix<Exec, T>>(exec, 1, rows, columns);
    auto const x2 = random_view<Matrix<Exec, T>>(exec, 2, repeat_row ? 1 : rows, columns);
    auto const y = zero_view<Matrix<Exec, T>>(exec, rows, columns);
    auto const length = static_cast<std::int64_t>(x2.size());
    return {{{"tessera", [=] { transform(exec, y, f, x, x2); }},
             {"plain",
              [=] {
                plain_loop(exec, rows * columns, PlainTransform<F, T, T, T>{f, y.data(), x.data(), x2.data(), length});
              }}},
            [=] { return check_elements<T>(y, length, reference); }};
  };
  return row;
}

template <class Exec, class T>
Row row_sum_row(Exec const& exec, std::int64_t rows, std::int64_t columns, std::string const& note) {
  Row row = memory_row("reduce", name(scalar_of<T>), "sum_rows", to_string(Extents{rows, columns}),
                       model::reduce_work(rows * columns, rows, sizeof(T), sizeof(T)), note);
  row.prepare = [=]() -> Prepared {
    auto const x = random_view<Matrix<Exec, T>>(exec, 1, rows, columns);
    auto const y = zero_view<Vector<Exec, T>>(exec, rows);
    Kokkos::View<std::byte*, typename Exec::memory_space> const workspace(
        "workspace", reduce_workspace_size(exec, y, x, Reduction::sum));
    return {{{"tessera",
              [=] {
                ReduceOptions options;
                options.workspace = workspace;
                reduce(exec, y, x, Reduction::sum, options);
              }},
             {"plain",
              [=] {
                plain_loop(exec, rows, PlainRowSum<Exec, T>{y, x});
              }}},
            [=] { return check_row_sums<T>(y, columns); }};
  };
  return row;
}

template <class Exec, class T>
Row softmax_row(Exec const& exec, std::int64_t rows, std::int64_t columns, std::string const& note) {
  Row row = memory_row("softmax", name(scalar_of<T>), "rows", to_string(Extents{rows, columns}),
                       model::rowwise_work(rows, columns, sizeof(T), sizeof(T)), note);
  row.prepare = [=]() -> Prepared {
    auto const x = random_view<Matrix<Exec, T>>(exec, 1, rows, columns);
    auto const y = zero_view<Matrix<Exec, T>>(exec, rows, columns);
    return {{{"tessera", [=] { softmax(exec, y, x); }},
             {"plain",
              [=] {
                plain_loop(exec, rows, PlainSoftmax<Exec, T>{y, x});
              }}},
            [=] { return check_softmax<T>(y); }};
  };
  return row;
}

template <class Exec, class T>
Row layer_norm_row(Exec const& exec, std::int64_t rows, std::int64_t columns, std::string const& note) {
  Row row = memory_row("layer_norm", name(scalar_of<T>), "weight", to_string(Extents{rows, columns}),
                       model::rowwise_work(rows, columns, sizeof(T), sizeof(T), 2), note);
  row.prepare = [=]() -> Prepared {
    auto const x = random_view<Matrix<Exec, T>>(exec, 1, rows, columns);
    auto const weight = random_view<Vector<Exec, T>>(exec, 2, columns);
    auto const bias = random_view<Vector<Exec, T>>(exec, 3, columns);
    auto const y = zero_view<Matrix<Exec, T>>(exec, rows, columns);
    return {{{"tessera", [=] { layer_norm(exec, y, x, weight, bias); }},
             {"plain",
              [=] {
                plain_loop(exec, rows, PlainNorm<Exec, T>{y, x, weight, true, 1e-5});
              }}},
            [=] { return check_norm<T>(y, true, false, 1e-5); }};
  };
  return row;
}

/// y = rms_norm(x + residual), the sum kept. The plain baseline is the two loops that one writes first.
template <class Exec, class T>
Row rms_norm_row(Exec const& exec, std::int64_t rows, std::int64_t columns, std::string const& note) {
  Row row = memory_row("rms_norm", name(scalar_of<T>), "residual", to_string(Extents{rows, columns}),
                       model::rowwise_work(rows, columns, 2 * sizeof(T), 2 * sizeof(T)), note);
  row.prepare = [=]() -> Prepared {
    using M = Matrix<Exec, T>;
    auto const x = random_view<M>(exec, 1, rows, columns);
    auto const weight = random_view<Vector<Exec, T>>(exec, 2, columns);
    auto const residual = random_view<M>(exec, 4, rows, columns);
    auto const sum = zero_view<M>(exec, rows, columns), y = zero_view<M>(exec, rows, columns);
    NormOptions<None, None, M, M> options;
    options.residual = residual;
    options.sum = sum;
    auto const plain = [=] {
      plain_loop(exec, rows * columns,
                 PlainTransform<fn::add, T, T, T>{{}, sum.data(), x.data(), residual.data(), rows * columns});
      plain_loop(exec, rows, PlainNorm<Exec, T>{y, sum, weight, false, 1e-5});
    };
    return {{{"tessera", [=] { rms_norm(exec, y, x, weight, options); }}, {"plain", plain}},
            [=] { return check_norm<T>(y, false, true, 1e-5); }};
  };
  return row;
}

template <class Exec, class T>
Row attention_row(Exec const& exec, Layer const& layer, std::int64_t queries, std::int64_t keys, bool causal,
                  std::string const& note) {
  model::AttentionShape const s{1, layer.heads, layer.kv_heads, queries, keys, layer.head_size, layer.head_size};
  Row row;
  Case& c = row.definition;
  c.operation = "attention_fwd";
  c.type = name(scalar_of<T>);
  c.variant = causal ? "causal" : "full";
  c.shape = "B1Hq" + std::to_string(layer.heads) + "Hkv" + std::to_string(layer.kv_heads) + "Sq" +
            std::to_string(queries) + "Sk" + std::to_string(keys) + "D" + std::to_string(layer.head_size);
  c.work = model::attention_work(s, causal, sizeof(T));
  c.arithmetic = model::type_from_string(c.type);
  c.counts_flops = true;
  c.note = note;
  row.prepare = [=]() -> Prepared {
    using Operand = Tensor4<Exec, T>;
    auto const q = random_view<Operand>(exec, 1, 1, s.query_heads, queries, s.head_size);
    auto const k = random_view<Operand>(exec, 2, 1, s.kv_heads, keys, s.head_size);
    auto const v = random_view<Operand>(exec, 3, 1, s.kv_heads, keys, s.head_size);
    auto const o = zero_view<Operand>(exec, 1, s.query_heads, queries, s.head_size);
    auto const scores = zero_view<Matrix<Exec, Accumulator<T>>>(exec, s.query_heads * queries, keys);
    AttentionOptions options;
    options.causal = causal;
    PlainAttention<Exec, T> const plain{o, q, k, v, scores, causal};
    return {{{"tessera", [=] { attention(exec, o, q, k, v, options); },
              tessera::to_string(attention_plan(exec, o, q, k, v, options))},
             {"plain", [=] { plain_loop(exec, s.query_heads * queries, plain); }}},
            [=] { return check_attention<T>(o, s, causal); }};
  };
  return row;
}

template <class Exec, class From, class To>
Row cast_row(Exec const& exec, std::int64_t rows, std::int64_t columns, std::string const& note) {
  Row row =
      memory_row("cast", name(scalar_of<From>), std::string("to_") + name(scalar_of<To>),
                 to_string(Extents{rows, columns}), model::cast_work(rows * columns, sizeof(From), sizeof(To)), note);
  row.prepare = [=]() -> Prepared {
    auto const x = random_view<Matrix<Exec, From>>(exec, 1, rows, columns);
    auto const y = zero_view<Matrix<Exec, To>>(exec, rows, columns);
    return {{{"tessera", [=] { cast(exec, y, x); }},
             {"plain",
              [=] {
                plain_loop(exec, rows * columns, PlainTransform<PlainSame, To, From>{{}, y.data(), x.data()});
              }}},
            [=] { return check_cast<From, To>(y); }};
  };
  return row;
}

template <class Exec, class From, class To>
Row quantize_row(Exec const& exec, std::int64_t rows, std::int64_t columns, std::string const& note) {
  Row row = memory_row("quantize", name(scalar_of<From>), std::string(name(scalar_of<To>)) + "_tile_1x128",
                       to_string(Extents{rows, columns}),
                       model::quantize_work(rows * columns, 128, sizeof(From), sizeof(To)), note);
  row.prepare = [=]() -> Prepared {
    std::int64_t const tiles = (columns + 127) / 128;
    auto const x = random_view<Matrix<Exec, From>>(exec, 1, rows, columns);
    auto const y = zero_view<Matrix<Exec, To>>(exec, rows, columns);
    auto const scales = zero_view<Matrix<Exec, float>>(exec, rows, tiles);
    QuantizeOptions<> options;
    options.granularity = Granularity::tile_1x128;
    PlainQuantize<Exec, From, To> const plain{y, scales, x, static_cast<float>(limits<To>::max)};
    return {{{"tessera", [=] { quantize(exec, y, scales, x, options); }},
             {"plain", [=] { plain_loop(exec, rows * tiles, plain); }}},
            [=] { return check_quantize<From, To>(y, scales); }};
  };
  return row;
}

inline double reference_gelu_bias(double x, double b) { return 0.5 * (x + b) * std::erfc(-(x + b) * std::sqrt(0.5)); }
inline double reference_swiglu(double gate, double up) { return gate / (1 + std::exp(-gate)) * up; }

template <class Exec>
std::vector<Row> tour_rows(Exec const& exec, Layer const& l) {
  std::vector<Row> rows = {
      gemm_row<Exec, float>(exec, l, "attention output", l.hidden, l.hidden),
      gemm_row<Exec, double>(exec, l, "keys and values", l.kv_heads * l.head_size, l.hidden),
      gemm_row<Exec, bf16_t>(exec, l, "feed-forward, up", l.ffn, l.hidden),
      gemm_row<Exec, fp16_t>(exec, l, "queries", l.hidden, l.hidden),
      gemm_row<Exec, e4m3_t>(exec, l, "queries in 8 bits", l.hidden, l.hidden),
      transform_row<Exec, float>(exec, "swiglu", fn::swiglu{}, l.rows / 4, l.ffn, false, "feed-forward gate",
                                 reference_swiglu),
      transform_row<Exec, bf16_t>(exec, "gelu_bias", compose(fn::add{}, fn::gelu{}), l.rows / 4, l.ffn, true,
                                  "activation", reference_gelu_bias),
      row_sum_row<Exec, float>(exec, l.rows, l.hidden, "row sums"),
      softmax_row<Exec, float>(exec, 4 * l.rows, 1024, "attention weights"),
      layer_norm_row<Exec, bf16_t>(exec, l.rows, l.hidden, "norm"),
      rms_norm_row<Exec, float>(exec, l.rows, l.hidden, "residual and norm"),
      attention_row<Exec, float>(exec, l, l.sequence / 2, l.sequence / 2, false, "encoder"),
      attention_row<Exec, bf16_t>(exec, l, l.sequence, l.sequence, true, "prefill"),
      attention_row<Exec, bf16_t>(exec, l, 1, 16 * l.sequence, true, "one token more"),
      cast_row<Exec, float, bf16_t>(exec, l.rows, l.hidden, "working copy"),
      quantize_row<Exec, bf16_t, e4m3_t>(exec, l.rows, l.hidden, "activations to 8 bits"),
  };
  return rows;
}

}  // namespace tessera::perf

#endif
