// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_WGMMA_HPP
#define TESSERA_CUDA_WGMMA_HPP

#include <tessera/cuda/ptx.hpp>

// wgmma.mma_async (sm_90a): 64 rows, N columns, 32 bytes of K. The accumulator's size names N: a thread holds N / 2.
namespace tessera::detail::ptx {

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/// The wait names no registers: this keeps reads of an accumulator behind it (without it ptxas serialises, C7514).
template <int N>
__device__ __forceinline__ void pin(float (&d)[N]) {
#pragma unroll
  for (float& x : d) asm volatile("" : "+f"(x)::"memory");
}
template <int N>
__device__ __forceinline__ void pin(int (&d)[N]) {
#pragma unroll
  for (int& x : d) asm volatile("" : "+r"(x)::"memory");
}
template <int N>
__device__ __forceinline__ void pin(unsigned (&d)[N]) {
#pragma unroll
  for (unsigned& x : d) asm volatile("" : "+r"(x));
}

/// Whatever is in the registers is not needed: before a product that writes them and yet names them as read.
template <int N>
__device__ __forceinline__ void discard(float (&d)[N]) {
#pragma unroll
  for (float& x : d) asm volatile("" : "=f"(x));
}

/// Descriptor of an operand in shared memory with the 128-byte swizzle: eight rows are 1024 bytes apart. `leading`
/// counts for operands whose contiguous index is not K: bytes from one 64-column group to the next. `step` is added to
/// the address, in units of 16 bytes. In halves, so that no carry is reckoned with.
__device__ __forceinline__ std::uint64_t wgmma_descriptor(std::uint32_t address, std::uint32_t leading,
                                                          std::uint32_t step) {
  std::uint32_t const low = ((address & 0x3FFFF) >> 4 | leading >> 4 << 16) + step, high = 1024 >> 4 | 1u << 30;
  std::uint64_t descriptor;
  asm("mov.b64 %0, {%1, %2};" : "=l"(descriptor) : "r"(low), "r"(high));
  return descriptor;
}

/// Which operands lie with K across the lines of shared memory: 16-bit types only.
template <bool Left, bool Right>
struct Across {};

// clang-format off
#define TESSERA_FLOAT(x) "+f"(x)
#define TESSERA_INT(x) "+r"(x)
#define TESSERA_REGISTERS_8(C, d, i) \
  C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3]), C(d[i + 4]), C(d[i + 5]), C(d[i + 6]), C(d[i + 7])
#define TESSERA_REGISTERS_16(C, d) TESSERA_REGISTERS_8(C, d, 0), TESSERA_REGISTERS_8(C, d, 8)
#define TESSERA_REGISTERS_32(C, d, i) \
  TESSERA_REGISTERS_8(C, d, i), TESSERA_REGISTERS_8(C, d, i + 8), TESSERA_REGISTERS_8(C, d, i + 16), TESSERA_REGISTERS_8(C, d, i + 24)
#define TESSERA_REGISTERS_40(C, d) TESSERA_REGISTERS_32(C, d, 0), TESSERA_REGISTERS_8(C, d, 32)
#define TESSERA_REGISTERS_48(C, d) TESSERA_REGISTERS_40(C, d), TESSERA_REGISTERS_8(C, d, 40)
#define TESSERA_REGISTERS_56(C, d) TESSERA_REGISTERS_48(C, d), TESSERA_REGISTERS_8(C, d, 48)
#define TESSERA_REGISTERS_64(C, d, i) TESSERA_REGISTERS_32(C, d, i), TESSERA_REGISTERS_32(C, d, i + 32)
#define TESSERA_REGISTERS_72(C, d) TESSERA_REGISTERS_64(C, d, 0), TESSERA_REGISTERS_8(C, d, 64)
#define TESSERA_REGISTERS_80(C, d) TESSERA_REGISTERS_72(C, d), TESSERA_REGISTERS_8(C, d, 72)
#define TESSERA_REGISTERS_88(C, d) TESSERA_REGISTERS_80(C, d), TESSERA_REGISTERS_8(C, d, 80)
#define TESSERA_REGISTERS_96(C, d) TESSERA_REGISTERS_64(C, d, 0), TESSERA_REGISTERS_32(C, d, 64)
#define TESSERA_REGISTERS_112(C, d) TESSERA_REGISTERS_96(C, d), TESSERA_REGISTERS_8(C, d, 96), TESSERA_REGISTERS_8(C, d, 104)
#define TESSERA_REGISTERS_128(C, d) TESSERA_REGISTERS_64(C, d, 0), TESSERA_REGISTERS_64(C, d, 64)
#define TESSERA_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TESSERA_NAMES_32 \
  TESSERA_NAMES_16 ", " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TESSERA_NAMES_40 TESSERA_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TESSERA_NAMES_48 TESSERA_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TESSERA_NAMES_56 TESSERA_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TESSERA_NAMES_64 TESSERA_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TESSERA_NAMES_72 TESSERA_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define TESSERA_NAMES_80 TESSERA_NAMES_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define TESSERA_NAMES_88 TESSERA_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define TESSERA_NAMES_96 TESSERA_NAMES_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define TESSERA_NAMES_112 \
  TESSERA_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define TESSERA_NAMES_128 \
  TESSERA_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// A predicate says whether the product is added or replaces.
#define TESSERA_WGMMA_TEXT(N, TYPES, NAMES, OPERANDS, ADD, TAIL)                                                        \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" N TYPES " {" NAMES "}, " OPERANDS \
  ", p" TAIL ";\n}\n"

// Both operands from shared memory. C wraps a register in its constraint; A, B, ADD, TA, TB are the numbers of the
// operands behind the accumulator. Of integers no factor can be negated: the two ones are missing.
#define TESSERA_WGMMA_16(LEFT, RIGHT, TYPES, T, SCALES, COUNT, N, NAMES, REGISTERS, A, B, ADD, TA, TB)                   \
  template <bool LeftAcross, bool RightAcross>                                                                           \
  __device__ __forceinline__ void wgmma(LEFT, RIGHT, Across<LeftAcross, RightAcross>, T (&d)[COUNT], std::uint64_t a,    \
                                        std::uint64_t b, int add) {                                                      \
    asm volatile(TESSERA_WGMMA_TEXT(N, TYPES, NAMES, A ", " B, ADD, SCALES ", " TA ", " TB)                              \
                 : REGISTERS                                                                                             \
                 : "l"(a), "l"(b), "r"(add), "n"(int(LeftAcross)), "n"(int(RightAcross)));                               \
  }
#define TESSERA_WGMMA_ALONG(LEFT, RIGHT, TYPES, T, SCALES, COUNT, N, NAMES, REGISTERS, A, B, ADD, TA, TB)                \
  __device__ __forceinline__ void wgmma(LEFT, RIGHT, Across<false, false>, T (&d)[COUNT], std::uint64_t a,               \
                                        std::uint64_t b, int add) {                                                      \
    asm volatile(TESSERA_WGMMA_TEXT(N, TYPES, NAMES, A ", " B, ADD, SCALES) : REGISTERS : "l"(a), "l"(b), "r"(add));     \
  }
#define TESSERA_WGMMA_SIZES(DEFINE, C, LEFT, RIGHT, TYPES, T, SCALES)                                                    \
  DEFINE(LEFT, RIGHT, TYPES, T, SCALES, 16, "32", TESSERA_NAMES_16, TESSERA_REGISTERS_16(C, d), "%16", "%17", "%18", "%19", "%20") \
  DEFINE(LEFT, RIGHT, TYPES, T, SCALES, 32, "64", TESSERA_NAMES_32, TESSERA_REGISTERS_32(C, d, 0), "%32", "%33", "%34", "%35", "%36") \
  DEFINE(LEFT, RIGHT, TYPES, T, SCALES, 40, "80", TESSERA_NAMES_40, TESSERA_REGISTERS_40(C, d), "%40", "%41", "%42", "%43", "%44") \
  DEFINE(LEFT, RIGHT, TYPES, T, SCALES, 48, "96", TESSERA_NAMES_48, TESSERA_REGISTERS_48(C, d), "%48", "%49", "%50", "%51", "%52") \
  DEFINE(LEFT, RIGHT, TYPES, T, SCALES, 56, "112", TESSERA_NAMES_56, TESSERA_REGISTERS_56(C, d), "%56", "%57", "%58", "%59", "%60") \
  DEFINE(LEFT, RIGHT, TYPES, T, SCALES, 64, "128", TESSERA_NAMES_64, TESSERA_REGISTERS_64(C, d, 0), "%64", "%65", "%66", "%67", "%68") \
  DEFINE(LEFT, RIGHT, TYPES, T, SCALES, 72, "144", TESSERA_NAMES_72, TESSERA_REGISTERS_72(C, d), "%72", "%73", "%74", "%75", "%76") \
  DEFINE(LEFT, RIGHT, TYPES, T, SCALES, 80, "160", TESSERA_NAMES_80, TESSERA_REGISTERS_80(C, d), "%80", "%81", "%82", "%83", "%84") \
  DEFINE(LEFT, RIGHT, TYPES, T, SCALES, 88, "176", TESSERA_NAMES_88, TESSERA_REGISTERS_88(C, d), "%88", "%89", "%90", "%91", "%92") \
  DEFINE(LEFT, RIGHT, TYPES, T, SCALES, 96, "192", TESSERA_NAMES_96, TESSERA_REGISTERS_96(C, d), "%96", "%97", "%98", "%99", "%100") \
  DEFINE(LEFT, RIGHT, TYPES, T, SCALES, 112, "224", TESSERA_NAMES_112, TESSERA_REGISTERS_112(C, d), "%112", "%113", "%114", "%115", "%116") \
  DEFINE(LEFT, RIGHT, TYPES, T, SCALES, 128, "256", TESSERA_NAMES_128, TESSERA_REGISTERS_128(C, d), "%128", "%129", "%130", "%131", "%132")
TESSERA_WGMMA_SIZES(TESSERA_WGMMA_16, TESSERA_FLOAT, Bf16, Bf16, "k16.f32.bf16.bf16", float, ", 1, 1")
TESSERA_WGMMA_SIZES(TESSERA_WGMMA_16, TESSERA_FLOAT, Fp16, Fp16, "k16.f32.f16.f16", float, ", 1, 1")
TESSERA_WGMMA_SIZES(TESSERA_WGMMA_ALONG, TESSERA_FLOAT, Tf32, Tf32, "k8.f32.tf32.tf32", float, ", 1, 1")
TESSERA_WGMMA_SIZES(TESSERA_WGMMA_ALONG, TESSERA_FLOAT, E4m3, E4m3, "k32.f32.e4m3.e4m3", float, ", 1, 1")
TESSERA_WGMMA_SIZES(TESSERA_WGMMA_ALONG, TESSERA_FLOAT, E4m3, E5m2, "k32.f32.e4m3.e5m2", float, ", 1, 1")
TESSERA_WGMMA_SIZES(TESSERA_WGMMA_ALONG, TESSERA_FLOAT, E5m2, E4m3, "k32.f32.e5m2.e4m3", float, ", 1, 1")
TESSERA_WGMMA_SIZES(TESSERA_WGMMA_ALONG, TESSERA_FLOAT, E5m2, E5m2, "k32.f32.e5m2.e5m2", float, ", 1, 1")
TESSERA_WGMMA_SIZES(TESSERA_WGMMA_ALONG, TESSERA_INT, Int8, Int8, "k32.s32.s8.s8", int, "")

// A from registers, B from shared memory: of 16 bits with N contiguous, else with K.
#define TESSERA_WGMMA_REGISTERS(LEFT, RIGHT, TYPES, TAIL, COUNT, N, NAMES, REGISTERS, A0, A1, A2, A3, B, ADD)                   \
  __device__ __forceinline__ void wgmma(LEFT, RIGHT, float (&d)[COUNT], std::uint32_t const (&a)[4], std::uint64_t b, int add) { \
    asm volatile(TESSERA_WGMMA_TEXT(N, TYPES, NAMES, "{" A0 ", " A1 ", " A2 ", " A3 "}, " B, ADD, TAIL)                  \
                 : REGISTERS                                                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                       \
  }
#define TESSERA_WGMMA_REGISTERS_SIZES(LEFT, RIGHT, TYPES, TAIL) \
  TESSERA_WGMMA_REGISTERS(LEFT, RIGHT, TYPES, TAIL, 16, "32", TESSERA_NAMES_16, TESSERA_REGISTERS_16(TESSERA_FLOAT, d), "%16", "%17", "%18", "%19", "%20", "%21") \
  TESSERA_WGMMA_REGISTERS(LEFT, RIGHT, TYPES, TAIL, 32, "64", TESSERA_NAMES_32, TESSERA_REGISTERS_32(TESSERA_FLOAT, d, 0), "%32", "%33", "%34", "%35", "%36", "%37") \
  TESSERA_WGMMA_REGISTERS(LEFT, RIGHT, TYPES, TAIL, 48, "96", TESSERA_NAMES_48, TESSERA_REGISTERS_48(TESSERA_FLOAT, d), "%48", "%49", "%50", "%51", "%52", "%53") \
  TESSERA_WGMMA_REGISTERS(LEFT, RIGHT, TYPES, TAIL, 56, "112", TESSERA_NAMES_56, TESSERA_REGISTERS_56(TESSERA_FLOAT, d), "%56", "%57", "%58", "%59", "%60", "%61") \
  TESSERA_WGMMA_REGISTERS(LEFT, RIGHT, TYPES, TAIL, 64, "128", TESSERA_NAMES_64, TESSERA_REGISTERS_64(TESSERA_FLOAT, d, 0), "%64", "%65", "%66", "%67", "%68", "%69") \
  TESSERA_WGMMA_REGISTERS(LEFT, RIGHT, TYPES, TAIL, 96, "192", TESSERA_NAMES_96, TESSERA_REGISTERS_96(TESSERA_FLOAT, d), "%96", "%97", "%98", "%99", "%100", "%101") \
  TESSERA_WGMMA_REGISTERS(LEFT, RIGHT, TYPES, TAIL, 128, "256", TESSERA_NAMES_128, TESSERA_REGISTERS_128(TESSERA_FLOAT, d), "%128", "%129", "%130", "%131", "%132", "%133")
TESSERA_WGMMA_REGISTERS_SIZES(Bf16, Bf16, "k16.f32.bf16.bf16", ", 1, 1, 1")
TESSERA_WGMMA_REGISTERS_SIZES(Fp16, Fp16, "k16.f32.f16.f16", ", 1, 1, 1")
TESSERA_WGMMA_REGISTERS_SIZES(Tf32, Tf32, "k8.f32.tf32.tf32", ", 1, 1")
TESSERA_WGMMA_REGISTERS_SIZES(E4m3, E4m3, "k32.f32.e4m3.e4m3", ", 1, 1")
TESSERA_WGMMA_REGISTERS_SIZES(E4m3, E5m2, "k32.f32.e4m3.e5m2", ", 1, 1")
// clang-format on

#undef TESSERA_WGMMA_TEXT
#undef TESSERA_WGMMA_16
#undef TESSERA_WGMMA_ALONG
#undef TESSERA_FLOAT
#undef TESSERA_INT
#undef TESSERA_WGMMA_SIZES
#undef TESSERA_WGMMA_REGISTERS
#undef TESSERA_WGMMA_REGISTERS_SIZES
#undef TESSERA_REGISTERS_8
#undef TESSERA_REGISTERS_16
#undef TESSERA_REGISTERS_32
#undef TESSERA_REGISTERS_40
#undef TESSERA_REGISTERS_48
#undef TESSERA_REGISTERS_56
#undef TESSERA_REGISTERS_64
#undef TESSERA_REGISTERS_72
#undef TESSERA_REGISTERS_80
#undef TESSERA_REGISTERS_88
#undef TESSERA_REGISTERS_96
#undef TESSERA_REGISTERS_112
#undef TESSERA_REGISTERS_128
#undef TESSERA_NAMES_16
#undef TESSERA_NAMES_32
#undef TESSERA_NAMES_40
#undef TESSERA_NAMES_48
#undef TESSERA_NAMES_56
#undef TESSERA_NAMES_64
#undef TESSERA_NAMES_72
#undef TESSERA_NAMES_80
#undef TESSERA_NAMES_88
#undef TESSERA_NAMES_96
#undef TESSERA_NAMES_112
#undef TESSERA_NAMES_128

}  // namespace tessera::detail::ptx

#endif
