// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_MODEL_TRAFFIC_HPP
#define TESSERA_MODEL_TRAFFIC_HPP

#include <cstdint>
#include <string>
#include <tessera/model/work.hpp>

// Bytes between memory and the chip, by how an operation is written. No cache is counted: these are the requests a
// kernel makes, what L2 serves again is on top of the model. All results are in bytes; all throw Error{extent} for
// negative extents and Error{value} for sizes, tiles or factors below 1.
namespace tessera::model {

/// Bytes an operation moves.
struct Traffic {
  double read_bytes = 0;
  double written_bytes = 0;
  double total_bytes() const { return read_bytes + written_bytes; }
};

std::string to_string(Traffic const& traffic);

/// A product of row-major A (M×K) and B (K×N) into C (M×N).
struct MatmulShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  int element_bytes = 4;  ///< of A, B and C
};

/// Bytes of the smallest piece of memory a GPU moves.
inline constexpr int sector_bytes = 32;

/// One thread an output, consecutive threads on consecutive **rows**. At each k the 32 threads of a warp read 32
/// elements of A in 32 sectors and one element of B in one: 33 sectors for 32 multiply-adds, 33·M·N·K bytes; stores
/// likewise take a sector each. Exact for M a multiple of 32.
Traffic hbm_traffic_matmul_naive(MatmulShape const& shape);

/// One thread an output, consecutive threads on consecutive **columns**: one element of A in one sector, 32 consecutive
/// ones of B in `element_bytes` sectors: (1 + element_bytes)·M·N·K bytes, 6.6 × less than naive in fp32, 11 × in 16
/// bits. Exact for N a multiple of 32.
Traffic hbm_traffic_matmul_coalesced(MatmulShape const& shape);

/// What a kernel without any reuse asks for, were every byte of a sector used: 2·M·N·K elements read, M·N written. The
/// measure of the reuse of tiles.
Traffic hbm_traffic_matmul_without_reuse(MatmulShape const& shape);

/// Tiles of tile_m×tile_n outputs through shared memory: A is read once for each column of tiles, B once for each row:
/// (⌈N/tile_n⌉·M·K + ⌈M/tile_m⌉·K·N) elements. Square tiles of T: T × less than without reuse.
Traffic hbm_traffic_matmul_tiled(MatmulShape const& shape, std::int64_t tile_m, std::int64_t tile_n);

/// Tiles of T, each thread doing `outputs_per_thread` = C of them along a row, so that one tile of A serves C tiles of
/// B: reads 2C/(1+C) × fewer bytes than tiles of T alone.
Traffic hbm_traffic_matmul_coarsened(MatmulShape const& shape, std::int64_t tile, std::int64_t outputs_per_thread);

/// n operations one after the other on a tensor, each reading and writing it: 2n tensors moved.
Traffic hbm_traffic_chain_unfused(int operations, std::int64_t elements, int element_bytes);

/// The same n operations fused into one: 2 tensors moved (0 for no operation).
Traffic hbm_traffic_chain_fused(int operations, std::int64_t elements, int element_bytes);

/// Attention that stores S = QKᵀ and P = softmax(S): per head Q, K, S, P and V read, S, P and O written. K and V are
/// read once per query head, S and P have the element size of the rest.
Traffic hbm_traffic_attention_naive(AttentionShape const& shape, int element_bytes);

/// Attention by tiles with the online softmax (Dao et al., FlashAttention, 2022; query tiles outside): Q once, K and V
/// once per tile of `tile_q` queries, O written once: S and P never leave the chip.
Traffic hbm_traffic_attention_tiled(AttentionShape const& shape, std::int64_t tile_q, int element_bytes);

/// LayerNorm in five steps: mean (1 read), centre (1 read, 1 write), variance (1 read), normalise (1, 1), scale and
/// shift (1, 1): 8 tensors moved. Row statistics and parameters are not counted.
Traffic hbm_traffic_layernorm_five_steps(std::int64_t rows, std::int64_t columns, int element_bytes);

/// LayerNorm fused: 1 read, 1 write, 4 × less.
Traffic hbm_traffic_layernorm_fused(std::int64_t rows, std::int64_t columns, int element_bytes);

/// n stacked sigmoids, forward and backward, each pass fused, storing the intermediates: forward reads x and writes n
/// results; backward reads the n − 1 intermediates and the gradient and writes the gradient: 2n + 2 tensors, 8 for n
/// = 3. (The last derivative follows from the last intermediate.)
Traffic hbm_traffic_sigmoids_stored(int stacked, std::int64_t elements, int element_bytes);

/// The same with the intermediates recomputed: forward reads x, writes the result; backward reads x and the gradient,
/// writes the gradient: 5 tensors whatever n.
Traffic hbm_traffic_sigmoids_recomputed(int stacked, std::int64_t elements, int element_bytes);

}  // namespace tessera::model

#endif
