// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_OPTIONS_HPP
#define TESSERA_ATTENTION_BACKWARD_OPTIONS_HPP

#include <tessera/attention_options.hpp>

namespace tessera {

struct AttentionBackwardOptions {
  /// What attention() was called with: scale, masks, layout, sinks and dropout. `lse`, `splits` and the workspace there
  /// do not count.
  AttentionOptions forward = {};
  /// The gradient that arrives through LSE, (B, H, S_q): added to what arrives through O.
  ViewRef<float const, 3> d_lse = {};
  ViewRef<double const, 3> d_lse_fp64 = {};  ///< the same for operands of double
  /// The gradient of the sinks, (H): written when given.
  ViewRef<float, 1> d_sinks = {};
  /// The gradient of what score::additive_bias adds, written when given: (B or 1, H or 1, S_q or 1, S_k), 1 where one
  /// element of the View serves all of them, over which it is then summed, always in one order: by the portable
  /// kernels, behind the others. Where every score has its own, the Hopper pipeline stores it on the way.
  ViewRef<float, 4> d_bias = {};
  ViewRef<double, 4> d_bias_fp64 = {};  ///< the same for operands of double
  /// The same bits in every run. Else dQ is added up in memory by the pipelines of GPUs, in the order in which teams
  /// come. On a CPU they are the same in any case.
  bool deterministic = false;
  /// attention_backward_workspace_size() bytes in the memory of the execution space, aligned to 16: O(S), and of the
  /// pipelines of GPUs and on a CPU O(S·d), operands of 8 bits widened to bf16 among them. Not to be touched before the
  /// gradients are there.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  AttentionAlgorithm algorithm = AttentionAlgorithm::automatic;
  bool allow_fallback = true;  ///< false: Error{unsupported} when the asked algorithm cannot run
};

}  // namespace tessera

#endif
