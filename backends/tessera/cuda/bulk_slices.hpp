// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_BULK_SLICES_HPP
#define TESSERA_CUDA_BULK_SLICES_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/cuda/bulk_registers.hpp>
#include <tessera/cuda/ptx.hpp>
#include <tessera/unroll.hpp>

// How teams of a cluster that share a tile along K add up their sums.
namespace tessera::detail::bulk {

/// Teams of a cluster that share a tile along K send each other sums, all at the same time: each adds up, in the
/// teams' order, those of some of the consumers' warps. r becomes such a sum where this is the team that has the
/// warp's: true there. `joined` completes when what others send has come into `exchange`, the teams' parts for the
/// first warp here, then those for the next.
template <int Consumers, class Compute, int R>
__device__ __forceinline__ bool join_slices(Compute (&r)[R], int slices, ConsumerThread const& at, uint4* exchange,
                                            std::uint64_t* joined) {
  constexpr int packs = R / 4, warps = Consumers * 4;
  auto const first_of = [&](int team) TESSERA_INLINE_LAMBDA { return (team * warps + slices - 1) / slices; };
  int const rank = ptx::cluster_rank(), mine = at.group * 4 + at.warp, owner = mine * slices / warps;
  if (at.group == 0 && at.thread == 0)
    ptx::barrier_arrive_expect(
        joined, static_cast<std::uint32_t>((first_of(rank + 1) - first_of(rank)) * (slices - 1) * packs * 32 * 16));
  ptx::cluster_meet();  // all are done with their rings
  uint4* const parts = exchange + (mine - first_of(owner)) * slices * packs * 32 + ptx::lane();
  auto const bits = [](Compute x) { return Kokkos::bit_cast<std::uint32_t>(x); };
  auto const pack = [&](int i) TESSERA_INLINE_LAMBDA {
    return uint4{bits(r[4 * i]), bits(r[4 * i + 1]), bits(r[4 * i + 2]), bits(r[4 * i + 3])};
  };
  if (owner != rank) {
    std::uint32_t const barrier = ptx::cluster_address(ptx::shared_address(joined), owner);
    std::uint32_t const to = ptx::cluster_address(ptx::shared_address(parts + rank * packs * 32), owner);
#pragma unroll
    for (int i = 0; i < packs; ++i) ptx::cluster_store(to + i * 32 * 16, barrier, pack(i));
    return false;
  }
#pragma unroll
  for (int i = 0; i < packs; ++i) parts[(rank * packs + i) * 32] = pack(i);
#pragma unroll
  for (Compute& x : r) x = Compute(0);
  ptx::barrier_wait(joined, 0);  // a team of a shared tile works on no other: it is the barrier's first phase
#pragma unroll 1
  for (int team = 0; team < slices; ++team)
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      uint4 const x = parts[(team * packs + i) * 32];
      r[4 * i] += Kokkos::bit_cast<Compute>(x.x);
      r[4 * i + 1] += Kokkos::bit_cast<Compute>(x.y);
      r[4 * i + 2] += Kokkos::bit_cast<Compute>(x.z);
      r[4 * i + 3] += Kokkos::bit_cast<Compute>(x.w);
    }
  return true;
}

}  // namespace tessera::detail::bulk

#endif
