// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_CONFIGS_HPP
#define TESSERA_GEMM_CONFIGS_HPP

// Every tuning number of the matrix product, with its reason.
namespace tessera::detail {

/// One element of C a thread, as tiling is taught: 32 x 32 threads fill a team, and scratch serves each element 32
/// times.
struct GemmTiled {
  static constexpr int BM = 32, BN = 32, BK = 32, depth = 1;
  static constexpr int thread_rows = 32, thread_cols = 32;
  static constexpr int teams_at_once = 2;      // one loads while the other multiplies
  static constexpr bool left_by_lines = true;  // a thread reads four k of its row of A at a time
};

/// Register tiles on a machine with wide teams: 8 x 8 elements a thread need 16 scratch reads for 64 products, and 64
/// accumulators leave registers for two teams a multiprocessor.
template <bool Host, class Compute>
struct GemmCoarsened {
  static constexpr int BM = 128, BN = 128, BK = 16, depth = 1;
  static constexpr int thread_rows = 16, thread_cols = 16;
  static constexpr int teams_at_once = sizeof(Compute) > 4 ? 1 : 2;  // 64 accumulators of fp64 take 128 registers alone
};
/// On a CPU: both panels and the accumulator (fp32: 196 + 256 + 196 KB) in a second-level cache of 1 MB or more; each
/// packed element serves some 200 products.
template <class Compute>
struct GemmCoarsened<true, Compute> {
  static constexpr int BM = 192, BN = 256, BK = 256, depth = 1;
  static constexpr int thread_rows = 1, thread_cols = 1;
};

/// Where the large tiles would leave most of the machine idle.
template <bool Host>
struct GemmCoarsenedSmall {
  static constexpr int BM = 64, BN = 64, BK = 16, depth = 1;
  static constexpr int thread_rows = 16, thread_cols = 16;
};
template <>
struct GemmCoarsenedSmall<true> {
  static constexpr int BM = 48, BN = 64, BK = 256, depth = 1;
  static constexpr int thread_rows = 1, thread_cols = 1;
};

/// 128 x 256 is the largest accumulator two warpgroups hold in registers (128 of 232 each); four stages of 48 KB and 32
/// KB for the store fill 227 KB. 128-wide tiles lose 20 % at large sizes; a third stage less costs nothing measurable.
struct GemmBulk {
  static constexpr int BM = 128, BN = 256, BK = 64, depth = 4;
  static constexpr int producer_registers = 40, consumer_registers = 232;
  static constexpr bool take_turns = false, staged_store = true;
};

}  // namespace tessera::detail

#endif
