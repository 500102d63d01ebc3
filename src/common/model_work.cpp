// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/model/work.hpp>

#include "common/model_format.hpp"

namespace tessera::model {

namespace {

void check_attention(char const* function, AttentionShape const& s, int element_bytes) {
  detail::require_extent(function, "batch", s.batch);
  detail::require_extent(function, "query_heads", s.query_heads);
  detail::require_extent(function, "kv_heads", s.kv_heads);
  detail::require_extent(function, "query_length", s.query_length);
  detail::require_extent(function, "kv_length", s.kv_length);
  detail::require_extent(function, "head_size", s.head_size);
  detail::require_extent(function, "value_size", s.value_size);
  bool const grouped = s.kv_heads == 0 ? s.query_heads == 0 : s.query_heads % s.kv_heads == 0;
  detail::require(grouped, ErrorCode::extent, function,
                  std::to_string(s.query_heads) + " query heads are not a multiple of " + std::to_string(s.kv_heads) +
                      " key heads");
  detail::require_at_least_one(function, "element_bytes", element_bytes);
}

// Elements of each operand: what forward and backward count in.
struct AttentionElements {
  double q, k, v, o, rows;
  explicit AttentionElements(AttentionShape const& s) {
    double const d = static_cast<double>(s.head_size);
    double const dv = s.value_size == 0 ? d : static_cast<double>(s.value_size);
    rows = static_cast<double>(s.batch) * static_cast<double>(s.query_heads) * static_cast<double>(s.query_length);
    double const keys =
        static_cast<double>(s.batch) * static_cast<double>(s.kv_heads) * static_cast<double>(s.kv_length);
    q = rows * d;
    k = keys * d;
    v = keys * dv;
    o = rows * dv;
  }
};

double attention_flops(AttentionShape const& s, bool causal) {
  double const d = static_cast<double>(s.head_size);
  double const dv = s.value_size == 0 ? d : static_cast<double>(s.value_size);
  return static_cast<double>(s.batch) * static_cast<double>(s.query_heads) *
         attention_pairs(s.query_length, s.kv_length, causal) * 2 * (d + dv);
}

constexpr double lse_bytes = 4;

}  // namespace

Work gemm_work(std::int64_t m, std::int64_t n, std::int64_t k, int a_bytes, int b_bytes, int c_bytes, bool reads_c,
               std::int64_t batch) {
  detail::require_extent("gemm_work", "M", m);
  detail::require_extent("gemm_work", "N", n);
  detail::require_extent("gemm_work", "K", k);
  detail::require_extent("gemm_work", "batch", batch);
  detail::require_at_least_one("gemm_work", "a_bytes", a_bytes);
  detail::require_at_least_one("gemm_work", "b_bytes", b_bytes);
  detail::require_at_least_one("gemm_work", "c_bytes", c_bytes);
  double const dm = static_cast<double>(m), dn = static_cast<double>(n), dk = static_cast<double>(k);
  double const bytes = dm * dk * a_bytes + dk * dn * b_bytes + dm * dn * c_bytes * (reads_c ? 2 : 1);
  return static_cast<double>(batch) * Work{2 * dm * dn * dk, bytes};
}

double attention_pairs(std::int64_t query_length, std::int64_t kv_length, bool causal) {
  detail::require_extent("attention_pairs", "query_length", query_length);
  detail::require_extent("attention_pairs", "kv_length", kv_length);
  double const q = static_cast<double>(query_length), kv = static_cast<double>(kv_length);
  if (!causal) return q * kv;
  return q <= kv ? q * kv - q * q / 2 : kv * kv / 2;
}

Work attention_work(AttentionShape const& shape, bool causal, int element_bytes, bool writes_lse) {
  check_attention("attention_work", shape, element_bytes);
  AttentionElements const e(shape);
  return {attention_flops(shape, causal),
          (e.q + e.k + e.v + e.o) * element_bytes + (writes_lse ? e.rows * lse_bytes : 0)};
}

Work attention_backward_work(AttentionShape const& shape, bool causal, int element_bytes) {
  check_attention("attention_backward_work", shape, element_bytes);
  AttentionElements const e(shape);
  return {2.5 * attention_flops(shape, causal), 2 * (e.q + e.k + e.v + e.o) * element_bytes + e.rows * lse_bytes};
}

Work transform_work(std::int64_t n, int read_bytes_per_element, int written_bytes_per_element,
                    double flops_per_element) {
  detail::require_extent("transform_work", "n", n);
  detail::require(read_bytes_per_element >= 0 && written_bytes_per_element >= 0 && flops_per_element >= 0,
                  ErrorCode::value, "transform_work", "bytes and operations per element must be >= 0");
  double const elements = static_cast<double>(n);
  return {elements * flops_per_element, elements * (read_bytes_per_element + written_bytes_per_element)};
}

Work rowwise_work(std::int64_t rows, std::int64_t columns, int in_bytes, int out_bytes, int vectors,
                  double flops_per_element) {
  detail::require_extent("rowwise_work", "rows", rows);
  detail::require_extent("rowwise_work", "columns", columns);
  detail::require(in_bytes >= 0 && out_bytes >= 0 && vectors >= 0 && flops_per_element >= 0, ErrorCode::value,
                  "rowwise_work", "bytes, operations per element and vectors must be >= 0");
  double const length = static_cast<double>(columns), elements = static_cast<double>(rows) * length;
  return {elements * flops_per_element, elements * (in_bytes + out_bytes) + vectors * length * in_bytes};
}

Work reduce_work(std::int64_t n, std::int64_t results, int in_bytes, int out_bytes) {
  return transform_work(n, in_bytes, 0) + transform_work(results, 0, out_bytes, 0);
}

Work cast_work(std::int64_t n, int in_bytes, int out_bytes) { return transform_work(n, in_bytes, out_bytes); }

Work quantize_work(std::int64_t n, std::int64_t elements_per_scale, int in_bytes, int out_bytes) {
  detail::require_at_least_one("quantize_work", "elements_per_scale", elements_per_scale);
  constexpr int scale_bytes = 4;
  std::int64_t const scales = n / elements_per_scale + (n % elements_per_scale > 0);
  return transform_work(n, in_bytes, out_bytes, 3) + transform_work(scales, 0, scale_bytes, 0);
}

std::string to_string(Work const& work) {
  return detail::with_unit(work.flops, "FLOP") + ", " + detail::with_unit(work.bytes, "B");
}

}  // namespace tessera::model
