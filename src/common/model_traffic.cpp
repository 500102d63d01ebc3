// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/model/traffic.hpp>

#include "common/model_format.hpp"

namespace tessera::model {

namespace {

double products(MatmulShape const& s) {
  return static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}
double outputs(MatmulShape const& s) { return static_cast<double>(s.m) * static_cast<double>(s.n); }
double output_bytes(MatmulShape const& s) { return outputs(s) * s.element_bytes; }

void check(char const* function, MatmulShape const& s) {
  detail::require_extent(function, "M", s.m);
  detail::require_extent(function, "N", s.n);
  detail::require_extent(function, "K", s.k);
  detail::require_at_least_one(function, "element_bytes", s.element_bytes);
}

double tensor_bytes(char const* function, std::int64_t elements, int element_bytes) {
  detail::require_extent(function, "elements", elements);
  detail::require_at_least_one(function, "element_bytes", element_bytes);
  return static_cast<double>(elements) * element_bytes;
}

double matrix_bytes(char const* function, std::int64_t rows, std::int64_t columns, int element_bytes) {
  detail::require_extent(function, "rows", rows);
  return static_cast<double>(rows) * tensor_bytes(function, columns, element_bytes);
}

double tiles_along(std::int64_t extent, std::int64_t tile) {
  return static_cast<double>(extent / tile + (extent % tile != 0));
}

// Elements of the operands of all heads, K and V counted once per query head: the shape with as many key heads.
struct AttentionBytes {
  double q, k, v, o, s;
  AttentionBytes(AttentionShape shape, int element_bytes) {
    static_cast<void>(attention_work(shape, false, element_bytes));  // the same checks of the shape
    double const heads = static_cast<double>(shape.batch) * static_cast<double>(shape.query_heads) * element_bytes;
    double const queries = static_cast<double>(shape.query_length), keys = static_cast<double>(shape.kv_length);
    double const d = static_cast<double>(shape.head_size);
    double const dv = shape.value_size == 0 ? d : static_cast<double>(shape.value_size);
    q = heads * queries * d;
    k = heads * keys * d;
    v = heads * keys * dv;
    o = heads * queries * dv;
    s = heads * queries * keys;
  }
};

}  // namespace

std::string to_string(Traffic const& traffic) {
  return detail::with_unit(traffic.read_bytes, "B") + " read, " + detail::with_unit(traffic.written_bytes, "B") +
         " written";
}

Traffic hbm_traffic_matmul_naive(MatmulShape const& s) {
  check("hbm_traffic_matmul_naive", s);
  return {products(s) * (32 + 1) * sector_bytes / 32, outputs(s) * sector_bytes};
}

Traffic hbm_traffic_matmul_coalesced(MatmulShape const& s) {
  check("hbm_traffic_matmul_coalesced", s);
  return {products(s) * (1 + s.element_bytes) * sector_bytes / 32, output_bytes(s)};
}

Traffic hbm_traffic_matmul_without_reuse(MatmulShape const& s) {
  check("hbm_traffic_matmul_without_reuse", s);
  return {2 * products(s) * s.element_bytes, output_bytes(s)};
}

Traffic hbm_traffic_matmul_tiled(MatmulShape const& s, std::int64_t tile_m, std::int64_t tile_n) {
  check("hbm_traffic_matmul_tiled", s);
  detail::require_at_least_one("hbm_traffic_matmul_tiled", "tile_m", tile_m);
  detail::require_at_least_one("hbm_traffic_matmul_tiled", "tile_n", tile_n);
  double const m = static_cast<double>(s.m), n = static_cast<double>(s.n), k = static_cast<double>(s.k);
  return {(tiles_along(s.n, tile_n) * m * k + tiles_along(s.m, tile_m) * k * n) * s.element_bytes, output_bytes(s)};
}

Traffic hbm_traffic_matmul_coarsened(MatmulShape const& s, std::int64_t tile, std::int64_t outputs_per_thread) {
  check("hbm_traffic_matmul_coarsened", s);
  detail::require_at_least_one("hbm_traffic_matmul_coarsened", "tile", tile);
  detail::require_at_least_one("hbm_traffic_matmul_coarsened", "outputs_per_thread", outputs_per_thread);
  return hbm_traffic_matmul_tiled(s, tile, tile * outputs_per_thread);
}

Traffic hbm_traffic_chain_unfused(int operations, std::int64_t elements, int element_bytes) {
  detail::require_extent("hbm_traffic_chain_unfused", "operations", operations);
  double const moved = operations * tensor_bytes("hbm_traffic_chain_unfused", elements, element_bytes);
  return {moved, moved};
}

Traffic hbm_traffic_chain_fused(int operations, std::int64_t elements, int element_bytes) {
  detail::require_extent("hbm_traffic_chain_fused", "operations", operations);
  double const moved = (operations > 0) * tensor_bytes("hbm_traffic_chain_fused", elements, element_bytes);
  return {moved, moved};
}

Traffic hbm_traffic_attention_naive(AttentionShape const& shape, int element_bytes) {
  AttentionBytes const b(shape, element_bytes);
  return {b.q + b.k + b.s + b.s + b.v, b.s + b.s + b.o};
}

Traffic hbm_traffic_attention_tiled(AttentionShape const& shape, std::int64_t tile_q, int element_bytes) {
  detail::require_at_least_one("hbm_traffic_attention_tiled", "tile_q", tile_q);
  AttentionBytes const b(shape, element_bytes);
  return {b.q + tiles_along(shape.query_length, tile_q) * (b.k + b.v), b.o};
}

Traffic hbm_traffic_layernorm_five_steps(std::int64_t rows, std::int64_t columns, int element_bytes) {
  double const tensor = matrix_bytes("hbm_traffic_layernorm_five_steps", rows, columns, element_bytes);
  return {5 * tensor, 3 * tensor};
}

Traffic hbm_traffic_layernorm_fused(std::int64_t rows, std::int64_t columns, int element_bytes) {
  double const tensor = matrix_bytes("hbm_traffic_layernorm_fused", rows, columns, element_bytes);
  return {tensor, tensor};
}

Traffic hbm_traffic_sigmoids_stored(int stacked, std::int64_t elements, int element_bytes) {
  detail::require_at_least_one("hbm_traffic_sigmoids_stored", "stacked", stacked);
  double const tensor = tensor_bytes("hbm_traffic_sigmoids_stored", elements, element_bytes);
  return {(1 + stacked) * tensor, (stacked + 1) * tensor};
}

Traffic hbm_traffic_sigmoids_recomputed(int stacked, std::int64_t elements, int element_bytes) {
  detail::require_at_least_one("hbm_traffic_sigmoids_recomputed", "stacked", stacked);
  double const tensor = tensor_bytes("hbm_traffic_sigmoids_recomputed", elements, element_bytes);
  return {3 * tensor, 2 * tensor};
}

}  // namespace tessera::model
