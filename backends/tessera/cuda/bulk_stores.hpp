// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_BULK_STORES_HPP
#define TESSERA_CUDA_BULK_STORES_HPP

#include <cstdint>

#include <tessera/cuda/rounding.hpp>
#include <tessera/cuda/tensor_map.hpp>

// Where accumulators of a warpgroup go: shared memory in the form that a bulk store or a warp's lines have, and another
// team's ring.
namespace tessera::detail::bulk {

/// 16 rows of a warp without padding: 8 columns of row r lie in place c ^ r, so that the writes of four rows meet
/// in no bank.
template <int Width>
struct Swizzled {
  static constexpr int rows = 16, width = Width;
  static constexpr bool in_order = true;
  __device__ __forceinline__ static int place(int line, int col) {
    return line * width + (col ^ ((line & (width / 8 - 1)) << 3));
  }
  __device__ __forceinline__ static int row(int line) { return line; }
};

/// Where a thread's pairs of neighbours are in a box of 64 lines: 16 bytes of line r are in place c ^ (r % 8) of lines
/// of 128 bytes, c ^ (r / 2 % 4) of 64. The one at element i of its accumulator is of column i / 4 * 8 behind the
/// first, in its first or second line; columns of a line differ by exclusive or.
template <class T, int Line>
struct PlacesOfPairs {
  int first;
  __device__ __forceinline__ explicit PlacesOfPairs(int warp) {
    unsigned const lane = static_cast<unsigned>(ptx::lane()), line = warp * 16 + lane / 4;
    first = static_cast<int>(line * Line + (lane % 4 * 2 * sizeof(T) ^ (lane / 4 / (line_bytes / Line)) << 4));
  }
  __device__ __forceinline__ int operator[](int i) const {
    return (first ^ i / 4 * 8 * static_cast<int>(sizeof(T))) + i % 4 / 2 * 8 * Line;
  }
};

/// One box of 64 lines from the accumulators of its columns.
template <class T, int Line, class Compute>
__device__ __forceinline__ void fill_box(Compute const* r, char* box, int warp) {
  if constexpr (sizeof(T) == 2) {                              // 16 x 16 elements at a time
    unsigned const lane = static_cast<unsigned>(ptx::lane()),  // no address is kept through the products
        line = warp * 16 + lane % 16, swizzle = lane % 8 / (line_bytes / Line);
    unsigned const first = line * Line + ((lane / 16 ^ swizzle) << 4);
#pragma unroll
    for (int j = 0; j < Line / 32; ++j) {
      std::uint32_t x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = packed_pair<T>(r[j * 8 + i * 2], r[j * 8 + i * 2 + 1]);
      ptx::store_matrix_x4(ptx::shared_address(box) + (first ^ j * 32), x);
    }
  } else {  // two neighbours at a time
    PlacesOfPairs<T, Line> const places(warp);
#pragma unroll
    for (int i = 0; i < Line / static_cast<int>(sizeof(T)) / 2; i += 2)
      *reinterpret_cast<Pair<T>*>(box + places[i]) = rounded_pair<T>(r[i], r[i + 1]);
  }
}

/// r = alpha r + beta times what a box has in their places, in the order of two neighbours that fill_box() has.
template <class T, int Line, class Compute>
__device__ __forceinline__ void add_box(Compute* r, char const* box, int warp, Compute alpha, Compute beta) {
  PlacesOfPairs<T, Line> const places(warp);
#pragma unroll
  for (int i = 0; i < Line / static_cast<int>(sizeof(T)) / 2; i += 2) {
    float2 const c = widened_pair(*reinterpret_cast<Pair<T> const*>(box + places[i]));
    r[i] = alpha * r[i] + beta * c.x;
    r[i + 1] = alpha * r[i + 1] + beta * c.y;
  }
}

/// Teams of a cluster that share a tile along K send their sums, R of each thread, to the first of them, which adds
/// them in order: true there. `at` counts the threads that have some, `joined` completes when all have come into
/// `exchange`.
template <int Threads, class Compute, int R>
__device__ __forceinline__ bool join_slices(Compute (&r)[R], int slices, int at, uint4* exchange,
                                            std::uint64_t* joined) {
  constexpr int packs = R / 4;
  int const rank = ptx::cluster_rank();
  if (rank == 0 && at == 0)
    ptx::barrier_arrive_expect(joined, static_cast<std::uint32_t>((slices - 1) * packs * Threads * 16));
  ptx::cluster_meet();  // all are done with their rings
  if (rank > 0) {
    auto const bits = [](Compute x) { return Kokkos::bit_cast<std::uint32_t>(x); };
    std::uint32_t const barrier = ptx::cluster_address(ptx::shared_address(joined), 0);
    std::uint32_t const to = ptx::cluster_address(ptx::shared_address(exchange), 0) +
                             static_cast<std::uint32_t>((rank - 1) * packs * Threads + at) * 16;
#pragma unroll
    for (int i = 0; i < packs; ++i)
      ptx::cluster_store(to + i * Threads * 16, barrier,
                         {bits(r[4 * i]), bits(r[4 * i + 1]), bits(r[4 * i + 2]), bits(r[4 * i + 3])});
    return false;
  }
  ptx::barrier_wait(joined, 0);  // a team of a shared tile works on no other: it is the barrier's first phase
  for (int other = 0; other < slices - 1; ++other)
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      uint4 const x = exchange[(other * packs + i) * Threads + at];
      r[4 * i] += Kokkos::bit_cast<Compute>(x.x);
      r[4 * i + 1] += Kokkos::bit_cast<Compute>(x.y);
      r[4 * i + 2] += Kokkos::bit_cast<Compute>(x.z);
      r[4 * i + 3] += Kokkos::bit_cast<Compute>(x.w);
    }
  return true;
}

}  // namespace tessera::detail::bulk

#endif
