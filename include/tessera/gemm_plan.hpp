// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_PLAN_HPP
#define TESSERA_GEMM_PLAN_HPP

#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/model/device.hpp>

namespace tessera {

/// The ladder of matrix-product algorithms, each a step faster than the one before. All give the same result within
/// rounding; they stay selectable because people learn and measure with them.
enum class Algorithm : std::uint8_t {
  automatic,  ///< the fastest that can run the problem here
  naive,      ///< one thread an element of C, neighbouring threads along the index that is not contiguous
  coalesced,  ///< the same, along the contiguous index
  tiled,      ///< tiles of A and B shared through team scratch, one element of C a thread
  /// many elements of C a thread, in registers; on sm_80 fp32 by asynchronous copies, and fp32 and fp64 of up to eight
  /// rows or columns straight from memory; SIMD on a CPU
  coarsened,
  tensor_core,  ///< asynchronous copies and matrix products of warps (sm_80 and up): fp64, bf16, fp16, int8, tf32
  hopper,       ///< asynchronous bulk copies and warpgroup matrix products, warp-specialised (sm_90a)
};

/// "coalesced"
char const* name(Algorithm algorithm);

enum class Op : std::uint8_t { none, transpose };

/// hopper: how the two halves of a team, a warpgroup each, share its tiles.
enum class Schedule : std::uint8_t {
  automatic,
  cooperative,  ///< half of every tile each
  ping_pong,    ///< every second tile each: one half stores while the other multiplies (64 x 32: two small teams)
  turned,  ///< cooperative, of Cᵀ = op(B)ᵀ·op(A)ᵀ, for a C of few rows: 16 bits, in multiples of 16 bytes, β = 0
};

struct GemmOptions {
  Op op_a = Op::none;  ///< op(A) is A or Aᵀ
  Op op_b = Op::none;  ///< op(B) is B or Bᵀ
  Algorithm algorithm = Algorithm::automatic;
  bool allow_fallback =
      true;                 ///< false: Error{unsupported} when the asked algorithm cannot run, instead of another one
  bool allow_tf32 = false;  ///< tensor cores may multiply fp32 operands, rounded to tf32 (10 bits of fraction)
  /// 8-bit operands may be summed in the tensor cores' own accumulator, which keeps some 14 bits, where that is faster;
  /// otherwise its sums of 128 products are added in fp32.
  bool fast_accumulation = false;
  /// gemm_workspace_size() bytes in the memory of the execution space, aligned to 16: with them hopper and, for 16-bit
  /// types, tensor_core copy operands first whose addresses or strides they cannot read, a long K is split where C is
  /// small, and a CPU packs operands that many tiles read once for all of them. Not to be touched before the product is
  /// done.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  /// coarsened, tensor_core and hopper: parts of K that are products of their own, whose sums lie in the workspace
  /// until they are added in order; 0: as many as the shape and the machine suggest, 1: none. Error{workspace} where
  /// the sums of more do not fit.
  int splits = 0;
  /// hopper: a configuration other than the one that the heuristic takes; 0 leaves the choice to it. Rows and columns
  /// are those of C, with Schedule::turned those of Cᵀ. Error{unsupported} when the library has no such tile.
  int tile_m = 0, tile_n = 0, slices = 0, cluster_m = 0, cluster_n = 0;
  Schedule schedule = Schedule::automatic;  ///< hopper: likewise

  bool operator==(GemmOptions const&) const = default;
};

/// What was chosen for a matrix product, and why.
struct GemmPlan {
  Algorithm algorithm = Algorithm::automatic;
  int tile_m = 1, tile_n = 1, tile_k = 1;   ///< elements of C, or Cᵀ where turned, a team, and steps of K
  int slices = 1;                           ///< hopper: teams that share a tile along K
  int splits = 1;                           ///< parts of K that are products of their own
  int cluster_m = 1;                        ///< teams, one above the other, that load tiles of op(B) together
  int cluster_n = 1;                        ///< teams, beside each other, that load tiles of op(A) together
  Schedule schedule = Schedule::automatic;  ///< hopper: how the halves of a team share tiles
  bool fast_accumulation = false;           ///< hopper: what the options permit
  int stages = 0;                           ///< depth of the ring that feeds the mainloop; 0: there is none
  int team_threads = 1;
  std::size_t scratch_bytes = 0;               ///< team scratch
  std::size_t workspace_bytes = 0;             ///< for copies of operands and sums of parts of K
  std::int64_t tiles = 0;                      ///< tiles of C over the whole batch, times slices and splits
  int concurrency = 1;                         ///< multiprocessors or cores
  double flops = 0;                            ///< multiplications and additions of the product
  double bytes = 0;                            ///< of A, B and C once each, and C once more where it is read
  model::Type arithmetic = model::Type::fp32;  ///< the units that multiply
  char const* instructions = "";               ///< of a CPU's micro-kernel, as TESSERA_MAX_ISA has them: "avx512"
  bool narrow_factors = false;                 ///< on a CPU: 8 or 16 bits are multiplied as they are, not widened
  bool packed_factors = false;                 ///< on a CPU: packed into the workspace, once for all tiles
  /// What the slowest multiprocessor takes by the table that the configuration was chosen from; 0: it has none.
  double clocks = 0;
  char const* reason = "";  ///< why this algorithm and, after a fall-back, why not the one asked for

  /// Rounds of tiles over the machine.
  double waves() const { return static_cast<double>(tiles) / concurrency; }
};

/// "hopper 128x256x64, 4 stages, 384 threads, 213 KB scratch, 512 tiles (3.9 waves): ..."
std::string to_string(GemmPlan const& plan);

/// Seconds that the plan's product takes on a machine at its sustained clock: by the table that the configuration was
/// chosen from where it has one, else by the roofline, with the last round of tiles counted whole. A bound from below
/// for algorithms without a table, as for a clock that falls under load.
/// @throws Error{value} for a machine of unknown bandwidth or one without such arithmetic
double predicted_seconds(GemmPlan const& plan, model::DeviceModel const& device);

/// The same with the predicted time: "..., 182 us on an H200 SXM: ..."
std::string to_string(GemmPlan const& plan, model::DeviceModel const& device);

}  // namespace tessera

#endif
