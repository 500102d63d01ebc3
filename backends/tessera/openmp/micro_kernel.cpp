// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/micro_kernel.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace tessera::detail::openmp {

void multiply_panels_baseline(float const*, float const*, float*, int, bool);
void multiply_panels_baseline(double const*, double const*, double*, int, bool);
void multiply_panels_baseline(std::int32_t const*, std::int32_t const*, std::int32_t*, int, bool);
#if defined(TESSERA_X86_MICRO_KERNELS)
void multiply_panels_avx2(float const*, float const*, float*, int, bool);
void multiply_panels_avx2(double const*, double const*, double*, int, bool);
void multiply_panels_avx2(std::int32_t const*, std::int32_t const*, std::int32_t*, int, bool);
void multiply_panels_avx512(float const*, float const*, float*, int, bool);
void multiply_panels_avx512(double const*, double const*, double*, int, bool);
void multiply_panels_avx512(std::int32_t const*, std::int32_t const*, std::int32_t*, int, bool);
#endif

namespace {

enum class Isa { baseline, avx2, avx512 };

Isa detect() {
#if defined(TESSERA_X86_MICRO_KERNELS)
  char const* const cap = std::getenv("TESSERA_MAX_ISA");
  bool const below_avx2 = cap != nullptr && std::strcmp(cap, "baseline") == 0;
  bool const below_avx512 = below_avx2 || (cap != nullptr && std::strcmp(cap, "avx2") == 0);
  __builtin_cpu_init();
  if (!below_avx512 && __builtin_cpu_supports("avx512f")) return Isa::avx512;
  if (!below_avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
#endif
  return Isa::baseline;
}

Isa isa() {
  static Isa const best = detect();
  return best;
}

}  // namespace

template <class T>
MicroKernel<T> micro_kernel() {
#if defined(TESSERA_X86_MICRO_KERNELS)
  if (isa() == Isa::avx512) return multiply_panels_avx512;
  if (isa() == Isa::avx2) return multiply_panels_avx2;
#endif
  return multiply_panels_baseline;
}

template MicroKernel<float> micro_kernel<float>();
template MicroKernel<double> micro_kernel<double>();
template MicroKernel<std::int32_t> micro_kernel<std::int32_t>();

char const* instruction_set() {
  switch (isa()) {
    case Isa::avx512:
      return "avx512";
    case Isa::avx2:
      return "avx2";
    default:
      return "baseline";
  }
}

}  // namespace tessera::detail::openmp
