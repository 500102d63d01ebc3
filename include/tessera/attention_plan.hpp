// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_PLAN_HPP
#define TESSERA_ATTENTION_PLAN_HPP

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera {

enum class AttentionAlgorithm : std::uint8_t {
  automatic,    ///< the fastest that can run the problem here
  tiled,        ///< tiles through team scratch, register tiles; a SIMD micro-kernel on a CPU
  tensor_core,  ///< asynchronous copies and matrix products of warps (sm_80 and up; bf16 and fp16)
  hopper,       ///< asynchronous bulk copies and warpgroup products, warp-specialised (sm_90a; bf16, fp16, e4m3, tf32)
};

/// "tiled"
char const* name(AttentionAlgorithm algorithm);

/// What was chosen for an attention, and why.
struct AttentionPlan {
  AttentionAlgorithm algorithm = AttentionAlgorithm::automatic;
  int tile_queries = 0, tile_keys = 0, tile_features = 0;  ///< rows of Q a team, keys a step, features padded to
  int team_threads = 1;
  std::size_t scratch_bytes = 0;     ///< team scratch
  std::int64_t tiles = 0;            ///< tiles of queries over batch and heads; of packed sequences some have none
  int concurrency = 1;               ///< multiprocessors or cores
  int splits = 1;                    ///< parts of the keys, each with teams of its own, merged by a kernel that follows
  std::size_t workspace_bytes = 0;   ///< of options.workspace that they take, and V where it is arranged there
  int splits_wanted = 1;             ///< as many as there would be if the workspace held them
  std::size_t workspace_wanted = 0;  ///< for which it would have to have so many bytes
  char const* reason = "";           ///< why this algorithm and, after a fall-back, why not the one asked for
};

/// "hopper 128 queries x 176 keys, d 128, 384 threads, 209 KB scratch, 512 tiles: ..."; with the number of splits and
/// their workspace where the keys are split, and what a workspace would bring where one is missing.
std::string to_string(AttentionPlan const& plan);

}  // namespace tessera

#endif
