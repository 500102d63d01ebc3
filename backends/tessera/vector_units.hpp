// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_VECTOR_UNITS_HPP
#define TESSERA_VECTOR_UNITS_HPP

#include <cstdint>

// Plain loops for the vector units of the CPU that the program runs on. One binary holds a function for each kind of
// units; which one runs is found out once. Unlike by the compiler's own clones of functions, TESSERA_MAX_ISA caps it,
// and all compilers and sanitizers do it alike.
namespace tessera::detail {

/// Vector units, each kind with what those before it have.
enum class VectorUnits { baseline, avx2, avx512 };

/// What the processor has, or what TESSERA_MAX_ISA caps it to.
VectorUnits vector_units();

/// Bytes of the last cache before memory, as far as they are for this machine, and of the last that a core has to
/// itself.
std::int64_t last_cache_bytes();
std::int64_t core_cache_bytes();

// Before a function: all that it calls is inlined and compiled for these units.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
#define TESSERA_HAS_VECTOR_UNITS
#define TESSERA_FOR_AVX2 __attribute__((flatten, target("avx2,fma,f16c,bmi,bmi2,lzcnt")))
#if defined(__clang__)
#define TESSERA_FOR_AVX512 \
  __attribute__((flatten, target("avx2,fma,f16c,bmi,bmi2,lzcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd")))
#else
#define TESSERA_FOR_AVX512 \
  __attribute__((          \
      flatten,             \
      target("avx2,fma,f16c,bmi,bmi2,lzcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd,prefer-vector-width=512")))
#endif
#endif

/// A function compiled for each kind of vector units.
template <auto F>
struct ForVectorUnits;
template <class R, class... A, R (*F)(A...)>
struct ForVectorUnits<F> {
#if defined(TESSERA_HAS_VECTOR_UNITS)
  TESSERA_FOR_AVX2 static R avx2(A... a) { return F(a...); }
  TESSERA_FOR_AVX512 static R avx512(A... a) { return F(a...); }
  static auto version() -> R (*)(A...) {
    VectorUnits const units = vector_units();
    return units == VectorUnits::avx512 ? avx512 : units == VectorUnits::avx2 ? avx2 : F;
  }
#else
  static auto version() -> R (*)(A...) { return F; }
#endif
};

/// The version of F for the units at hand.
template <auto F>
auto for_vector_units() {
  return ForVectorUnits<F>::version();
}

/// A kernel of loops that become SIMD code.
template <class Kernel>
inline constexpr bool vectorises = [] {
  if constexpr (requires { Kernel::vectorises; })
    return static_cast<bool>(Kernel::vectorises);
  else
    return false;
}();

/// F, for the units at hand where a kernel vectorises.
template <class Kernel, auto F>
auto for_units_of() {
  if constexpr (vectorises<Kernel>)
    return for_vector_units<F>();
  else
    return F;
}

}  // namespace tessera::detail

#endif
