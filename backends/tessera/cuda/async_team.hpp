// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_ASYNC_TEAM_HPP
#define TESSERA_CUDA_ASYNC_TEAM_HPP

#include <tessera/cuda/async_tiles.hpp>
#include <tessera/cuda/lines.hpp>

// What the atoms of the pipelines of asynchronous copies have in common.
namespace tessera::detail::async {

/// A matrix of a stack as accumulators are stored to it.
struct Target {
  MatrixStack m;
  int at_once;  // elements of a row that can be stored at once
};

template <class Sizes>
struct TeamAtoms : Sizes {
  static constexpr bool asynchronous = true, clips_rows = true;
  using Source = async::Source;
  using Target = async::Target;

  template <class>
  static Target target(MatrixStack const& m) {
    return {m, stored_at_once(m)};
  }
};

/// A tile has one team, whose warps multiply when they come to it.
struct TeamMath {
  int thread;
  void* ring;  // of stages: free when the last of them has been multiplied

  template <class F>
  __device__ __forceinline__ void turn(F const& f) const {
    f();
  }
  template <class Accumulator>
  __device__ __forceinline__ bool join(Accumulator&) const {
    return true;
  }
};

}  // namespace tessera::detail::async

#endif
