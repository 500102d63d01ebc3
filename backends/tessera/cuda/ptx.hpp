// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_PTX_HPP
#define TESSERA_CUDA_PTX_HPP

#include <cuda.h>
#include <Kokkos_BitManipulation.hpp>
#include <cstdint>

// One instruction, one function (PTX ISA 8.0 and later, sm_90 and sm_90a). The warpgroup products are in wgmma.hpp.
namespace tessera::detail::ptx {

__device__ __forceinline__ std::uint32_t shared_address(void const* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

/// What lane 0 has. Of the result, and what is computed from it, the compiler knows that it is the same for a warp.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(~0u, x, 0); }
template <class T>
__device__ __forceinline__ T uniform(T const& x) {
  struct Words {
    int v[sizeof(T) / sizeof(int)];
  };
  Words words = Kokkos::bit_cast<Words>(x);
#pragma unroll
  for (int& word : words.v) word = uniform(word);
  return Kokkos::bit_cast<T>(words);
}
/// This thread's place in its warp, asked for anew: it takes no register meanwhile.
__device__ __forceinline__ int lane() {
  int n;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(n));
  return n;
}
/// This thread's place in a team of whole warps, likewise.
__device__ __forceinline__ int thread() {
  int lane, warp;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(lane));
  asm volatile("mov.u32 %0, %%tid.y;" : "=r"(warp));
  return warp * 32 + lane;
}
/// True in one lane of a whole warp. Of a branch on it the compiler knows that no other lane takes it.
__device__ __forceinline__ bool elect_one() {
  std::uint32_t elected;
  asm volatile("{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\nselp.u32 %0, 1, 0, one;\n}" : "=r"(elected));
  return elected != 0;
}

/// Of lanes that follow each other in fours, `at` of its four: x[i] becomes x[at] of lane i.
__device__ __forceinline__ void transpose_in_four_lanes(std::uint32_t (&x)[4], int at) {
#pragma unroll
  for (int step = 1; step <= 2; ++step) {
    bool const upper = (at & step) != 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      std::uint32_t& low = x[step == 1 ? 2 * i : i];
      std::uint32_t& high = x[step == 1 ? 2 * i + 1 : i + 2];
      std::uint32_t const other = __shfl_xor_sync(~0u, upper ? low : high, step);
      if (upper)
        low = other;
      else
        high = other;
    }
  }
}

// ---- mbarrier: `count` arrivals and the bytes announced by expect complete a phase.
__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count));
}
__device__ __forceinline__ void barrier_arrive_expect(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barrier_wait(std::uint64_t* barrier, std::uint32_t phase) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra.uni ready;\nbra.uni again;\nready:\n}" ::"r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
}
/// Barriers initialised by this thread are visible to other teams of the cluster after it meets next. Takes some 500
/// clocks.
__device__ __forceinline__ void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;"); }

// ---- named barriers of `threads` threads
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/// Whether it holds for all of them.
__device__ __forceinline__ bool named_all(int id, int threads, bool own) {
  std::uint32_t all;
  asm volatile(
      "{\n.reg .pred own, all;\n"
      "setp.ne.u32 own, %3, 0;\n"
      "bar.red.and.pred all, %1, %2, own;\n"
      "selp.u32 %0, 1, 0, all;\n}"
      : "=r"(all)
      : "r"(id), "r"(threads), "r"(static_cast<std::uint32_t>(own))
      : "memory");
  return __all_sync(~0u, all != 0);  // the compiler knows of this that it is the same for a warp
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- bulk tensor copies, coordinates from the contiguous index outwards
/// The first copy need not wait for the map.
__device__ __forceinline__ void fetch_tensor_map(CUtensorMap const* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/// A map that another kernel has published is seen by this thread's copies.
__device__ __forceinline__ void acquire_tensor_map(CUtensorMap const* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}
/// By a whole warp: a map in shared memory, at a multiple of 128 bytes, to where copies find it.
__device__ __forceinline__ void publish_tensor_map(CUtensorMap* to, std::uint32_t map) {
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(
          to),
      "r"(map)
      : "memory");
}
/// What a map in shared memory is about: the address, an extent, and the stride in bytes of the index after `Index`.
__device__ __forceinline__ void replace_map_address(std::uint32_t map, void const* address) {
  asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(map), "l"(address)
               : "memory");
}
template <int Index>
__device__ __forceinline__ void replace_map_extent(std::uint32_t map, int extent) {
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], %1, %2;" ::"r"(map), "n"(Index),
               "r"(extent)
               : "memory");
}
template <int Index>
__device__ __forceinline__ void replace_map_stride(std::uint32_t map, std::int64_t bytes) {
  asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], %1, %2;" ::"r"(map), "n"(Index),
               "l"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_load_4d(void* to, CUtensorMap const* map, std::uint64_t* barrier, int c0, int c1,
                                             int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
/// Bytes side by side, a multiple of 16 from such an address.
__device__ __forceinline__ void bulk_load(void* to, void const* from, std::uint32_t bytes, std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
/// The same into the same places of all teams of the cluster that `teams` names, bit by bit; each one's barrier at the
/// place of `barrier` learns of its bytes.
__device__ __forceinline__ void bulk_load_4d_multicast(void* to, CUtensorMap const* map, std::uint64_t* barrier,
                                                       std::uint16_t teams, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "h"(teams), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
__device__ __forceinline__ void bulk_store_4d(CUtensorMap const* map, void const* from, int c0, int c1, int c2,
                                              int c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(shared_address(from)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}
/// Bytes side by side, a multiple of 16 to such an address.
__device__ __forceinline__ void bulk_store(void* to, void const* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
}
/// Numbers side by side, a multiple of 16 bytes at such an address, grow by those in shared memory.
__device__ __forceinline__ void bulk_add(float* to, void const* from, std::uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Every store of this thread has read its source: shared memory may be written again.
__device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
/// Shared memory written by ordinary stores may be read by the bulk copy engine and the tensor cores after a barrier.
__device__ __forceinline__ void async_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Four numbers in memory, at a multiple of 16 bytes, grow by these.
__device__ __forceinline__ void add_four(float* to, float const* x) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]),
               "f"(x[3])
               : "memory");
}
/// A number in memory grows by x.
__device__ __forceinline__ void add_one(float* to, float x) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
__device__ __forceinline__ void store_shared(std::uint32_t to, std::uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}

// ---- clusters: teams on neighbouring multiprocessors that reach each other's shared memory
__device__ __forceinline__ int cluster_rank() {
  int n;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(n));
  return n;
}
/// All threads of the cluster that have not ended arrive, and later wait for the others. Nothing but initialised
/// barriers is seen behind it: a meeting that orders memory takes up to a microsecond.
__device__ __forceinline__ void cluster_arrive_at_meeting() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait_for_meeting() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_meet() {
  cluster_arrive_at_meeting();
  cluster_wait_for_meeting();
}
/// The same, and what was written before, to any team's shared memory too, is seen behind it.
__device__ __forceinline__ void cluster_meet_in_order() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// Into the shared memory of another team, as cluster_address() gives it.
__device__ __forceinline__ void cluster_store_word(std::uint32_t to, std::uint32_t x) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
/// The place in the shared memory of team `rank` that `address` is in ours.
__device__ __forceinline__ std::uint32_t cluster_address(std::uint32_t address, int rank) {
  std::uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}
/// Arrives at a barrier of another team, or of this one.
__device__ __forceinline__ void cluster_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Into the shared memory of another team, whose barrier (as cluster_address() gives both) learns of the 16 bytes.
__device__ __forceinline__ void cluster_store(std::uint32_t to, std::uint32_t barrier, uint4 x) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(to),
      "r"(barrier), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
      : "memory");
}

// ---- kernels of one stream, one after the other
/// The next kernel of the stream may take multiprocessors that this one leaves. It waits as below.
__device__ __forceinline__ void let_next_grid_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
/// The kernels before this one in its stream are done, and what they wrote is seen.
__device__ __forceinline__ void wait_for_grids_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// The compiler moves no access to memory from one side to the other.
__device__ __forceinline__ void keep_order() { asm volatile("" ::: "memory"); }

/// The same number, of which the compiler does not know it: what depends on it is not computed ahead and kept.
__device__ __forceinline__ float anew(float x) {
  asm volatile("" : "+f"(x));
  return x;
}
__device__ __forceinline__ double anew(double x) {
  asm volatile("" : "+d"(x));
  return x;
}
template <class T>
__device__ __forceinline__ T* anew(T* x) {
  asm volatile("" : "+l"(x));
  return x;
}
__device__ __forceinline__ int anew(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// ---- registers and matrix stores
template <int Count>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
/// Four 8 x 8 matrices of 16-bit elements from registers to shared memory; `to` is this lane's row of 16 bytes.
__device__ __forceinline__ void store_matrix_x4(std::uint32_t to, std::uint32_t const* v) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]),
               "r"(v[2]), "r"(v[3])
               : "memory");
}
/// The same, each matrix transposed: rows of eight that addresses are of become columns.
__device__ __forceinline__ void store_transposed_x4(std::uint32_t to, std::uint32_t const* v) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]),
               "r"(v[2]), "r"(v[3])
               : "memory");
}

// ---- asynchronous copies of single elements and packs (sm_80): groups of them complete in order
/// Size bytes: 16, through L2 alone, or 4 or 8.
template <int Size>
__device__ __forceinline__ void copy_async(std::uint32_t to, void const* from) {
  if constexpr (Size == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(Size) : "memory");
}
template <int Size>
__device__ __forceinline__ void copy_async(void* to, void const* from) {
  copy_async<Size>(shared_address(to), from);
}
/// 16 bytes that lie so many behind `to` and `from`, whose sums take no instructions.
template <int To, int From>
__device__ __forceinline__ void copy_async_at(void* to, void const* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0 + %2], [%1 + %3], 16;" ::"r"(shared_address(to)), "l"(from),
               "n"(To), "n"(From)
               : "memory");
}
/// The same of 16 bytes, as a policy of the second-level cache wants them.
__device__ __forceinline__ void copy_async(void* to, void const* from, std::uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
               "l"(from), "l"(policy)
               : "memory");
}
/// The same, or where it is not `inside`, Size zeros and no read; `from` is an address of the operand all the same.
template <int Size>
__device__ __forceinline__ void copy_async_inside(void* to, void const* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(Size),
               "r"(inside ? Size : 0)
               : "memory");
}
/// 16 bytes, of which the first `inside` are read and the others become zero.
__device__ __forceinline__ void copy_async_part(std::uint32_t to, void const* from, int inside) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside) : "memory");
}
/// The same, or nothing, without a branch.
template <int Size>
__device__ __forceinline__ void copy_async_if(bool wanted, std::uint32_t to, void const* from) {
  if constexpr (Size == 16)
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.u32 wanted, %0, 0;\n"
        "@wanted cp.async.cg.shared.global.L2::128B [%1], [%2], 16;\n}" ::"r"(static_cast<unsigned>(wanted)),
        "r"(to), "l"(from)
        : "memory");
  else
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.u32 wanted, %0, 0;\n"
        "@wanted cp.async.ca.shared.global [%1], [%2], %3;\n}" ::"r"(static_cast<unsigned>(wanted)),
        "r"(to), "l"(from), "n"(Size)
        : "memory");
}
__device__ __forceinline__ void store_global(void* to, uint4 const& words) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(words.x),
               "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/// What the tensor cores call an element.
struct Bf16 {};
struct Fp16 {};
struct Tf32 {};
struct E4m3 {};
struct E5m2 {};
struct Int8 {};

/// Two numbers rounded to 8 bits, `low` in the lower ones. What is too large becomes the largest number of its sign,
/// NaN 0x7F.
__device__ __forceinline__ std::uint16_t narrow_pair_saturating(E4m3, float low, float high) {
  std::uint16_t x;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(x) : "f"(high), "f"(low));
  return x;
}
__device__ __forceinline__ std::uint16_t narrow_pair_saturating(E5m2, float low, float high) {
  std::uint16_t x;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(x) : "f"(high), "f"(low));
  return x;
}
/// Here what is too large becomes NaN in e4m3 and an infinity in e5m2, as everywhere in the library.
__device__ __forceinline__ std::uint16_t narrow_pair(E4m3 type, float low, float high) {
  constexpr float largest = 464;  // which still rounds to 448
  float const nan = __uint_as_float(0x7fffffff);
  return narrow_pair_saturating(type, fabsf(low) <= largest ? low : nan, fabsf(high) <= largest ? high : nan);
}
__device__ __forceinline__ std::uint16_t narrow_pair(E5m2 type, float low, float high) {
  std::uint16_t x = narrow_pair_saturating(type, low, high);
  constexpr float smallest = 61440;  // which rounds to infinity
  if (fabsf(low) >= smallest) x = (x & 0xFF80) | 0x7C;
  if (fabsf(high) >= smallest) x = (x & 0x80FF) | 0x7C00;
  return x;
}
/// Two 8-bit numbers as fp16, exactly.
__device__ __forceinline__ std::uint32_t widen_pair(E4m3, std::uint16_t x) {
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(x));
  return halves;
}
__device__ __forceinline__ std::uint32_t widen_pair(E5m2, std::uint16_t x) {
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(x));
  return halves;
}

/// Four numbers of at most 448 rounded to e4m3, the first in the lowest bits. NaN stays NaN.
__device__ __forceinline__ std::uint32_t narrow_four(E4m3, float x0, float x1, float x2, float x3) {
  std::uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(x1), "f"(x0));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(x3), "f"(x2));
  std::uint32_t all;
  asm("mov.b32 %0, {%1, %2};" : "=r"(all) : "h"(low), "h"(high));
  return all;
}

/// 2^x, relative error 2^-22, subnormal results flushed.
__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// log2 x, absolute error 2^-22 between 1/2 and 2, 1 unit in the last place elsewhere; subnormal arguments are 0.
__device__ __forceinline__ float log2_approximate(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// sin x and cos x: absolute error 2^-20.5 for |x| <= 2 pi, and beyond 2^-22.5 of x, by which the argument is off when
/// it becomes turns; subnormal numbers flushed.
__device__ __forceinline__ float sine_approximate(float x) {
  float y;
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float cosine_approximate(float x) {
  float y;
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The largest of three: one instruction from sm_90 on.
__device__ __forceinline__ int largest(int a, int b, int c) { return __vimax3_s32(a, b, c); }

/// The larger of two; NaN where one is.
__device__ __forceinline__ float maximum(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

/// 1 / x, relative error 2^-23, subnormal arguments and results flushed.
__device__ __forceinline__ float reciprocal_approximate(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tessera::detail::ptx

#endif
