// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_PLAN_HPP
#define TESSERA_GEMM_PLAN_HPP

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera {

/// The ladder of matrix-product algorithms, each a step faster than the one before. All give the same result within
/// rounding; they stay selectable because people learn and measure with them.
enum class Algorithm : std::uint8_t {
  automatic,  ///< the fastest that can run the problem here
  naive,      ///< one thread an element of C, neighbouring threads along the index that is not contiguous
  coalesced,  ///< the same, along the contiguous index
  tiled,      ///< tiles of A and B shared through team scratch, one element of C a thread
  coarsened,  ///< many elements of C a thread, in registers; a SIMD micro-kernel on a CPU
  hopper,     ///< asynchronous bulk copies and warpgroup matrix products, warp-specialised (sm_90a; bf16)
};

/// "coalesced"
char const* name(Algorithm algorithm);

enum class Op : std::uint8_t { none, transpose };

struct GemmOptions {
  Op op_a = Op::none;  ///< op(A) is A or Aᵀ
  Op op_b = Op::none;  ///< op(B) is B or Bᵀ
  Algorithm algorithm = Algorithm::automatic;
  bool allow_fallback =
      true;  ///< false: Error{unsupported} when the asked algorithm cannot run, instead of another one
};

/// What was chosen for a matrix product, and why.
struct GemmPlan {
  Algorithm algorithm = Algorithm::automatic;
  int tile_m = 1, tile_n = 1, tile_k = 1;  ///< elements of C a team, and steps of K
  int stages = 0;                          ///< depth of the ring that feeds the mainloop
  int team_threads = 1;
  std::size_t scratch_bytes = 0;  ///< team scratch
  std::int64_t tiles = 0;         ///< tiles of C over the whole batch
  int concurrency = 1;            ///< multiprocessors or cores
  char const* reason = "";        ///< why this algorithm and, after a fall-back, why not the one asked for

  /// Rounds of tiles over the machine.
  double waves() const { return static_cast<double>(tiles) / concurrency; }
};

/// "hopper 128x256x64, 4 stages, 384 threads, 213 KB scratch, 512 tiles (3.9 waves): ..."
std::string to_string(GemmPlan const& plan);

}  // namespace tessera

#endif
