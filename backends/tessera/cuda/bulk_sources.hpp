// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_BULK_SOURCES_HPP
#define TESSERA_CUDA_BULK_SOURCES_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/cuda/ptx.hpp>
#include <tessera/cuda/tensor_map.hpp>
#include <tessera/launch.hpp>

// Tensor maps over matrices whose addresses and extents are in the device's memory: the host encodes one over any
// matrix, the device replaces in it what differs.
namespace tessera::detail::bulk {

/// A map for tiles of that type, over one element of some matrix.
template <class Tile>
CUtensorMap tensor_map_like(Scalar type) {
  MatrixStack any;
  any.data = reinterpret_cast<void const*>(std::uintptr_t{1024});  // is not read
  any.type = type;
  any.rows = any.cols = any.row_stride = any.col_stride = 1;
  return tensor_map(any, Tile::lines, 0);  // rows of what it will be of are not copied whole
}

/// A team of one warp a map. Matrices gives the matrix, as Atoms::source() has it.
template <class Left, class Right, class Matrices>
struct SourceBinder {
  CUtensorMap like[2];
  int count;
  Matrices matrices;
  CUtensorMap* places;

  SourceBinder(Scalar type, int matrices_a_side, Matrices const& of, CUtensorMap* to)
      : like{tensor_map_like<Left>(type), tensor_map_like<Right>(type)},
        count(matrices_a_side),
        matrices(of),
        places(to) {}

  __device__ void operator()(TeamMember<Kokkos::Cuda> const& team) const {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    int const right = team.league_rank() >= count ? 1 : 0;
    MatrixStack m = matrices(right, team.league_rank() - right * count);
    if (right ? Right::transposed : Left::transposed) m = m.transposed();
    if (m.rows <= 0 || m.cols <= 0 || !bulk_copyable(m)) return;
    auto* const words = static_cast<std::uint32_t*>(team.team_shmem().get_shmem(sizeof(CUtensorMap)));
    words[threadIdx.x] = reinterpret_cast<std::uint32_t const*>(right ? &like[1] : &like[0])[threadIdx.x];
    __syncwarp();
    std::uint32_t const map = ptx::shared_address(words);
    if (threadIdx.x == 0) {
      ptx::replace_map_address(map, m.data);
      ptx::replace_map_extent<0>(map, static_cast<int>(m.cols));
      ptx::replace_map_extent<1>(map, static_cast<int>(m.rows));
      if (m.rows > 1) ptx::replace_map_stride<0>(map, m.row_stride * static_cast<std::int64_t>(size_of(m.type)));
    }
    __syncwarp();
    ptx::publish_tensor_map(places + team.league_rank(), map);
#endif
  }
};

}  // namespace tessera::detail::bulk

#endif
