// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/micro_kernel.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include <tessera/openmp/byte_moves.hpp>
#include <tessera/openmp/column_loops.hpp>
#include <tessera/openmp/random_words.hpp>
#include <tessera/openmp/roundings.hpp>
#include <tessera/openmp/row_loops.hpp>
#include <tessera/vector_units.hpp>

#if defined(TESSERA_WORD_MICRO_KERNELS)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#endif
#if defined(__linux__)
#include <unistd.h>
#endif

namespace tessera::detail::openmp {

extern MicroKernels const micro_kernels_baseline;
#if defined(TESSERA_X86_MICRO_KERNELS)
extern MicroKernels const micro_kernels_avx2;
extern MicroKernels const micro_kernels_avx512;
void multiply_strided_avx2(StridedProduct<float> const&);
void multiply_strided_avx2(StridedProduct<double> const&);
void multiply_strided_avx512(StridedProduct<float> const&);
void multiply_strided_avx512(StridedProduct<double> const&);
void dot_products_avx2(DotProducts<float> const&);
void dot_products_avx2(DotProducts<double> const&);
void dot_products_avx512(DotProducts<float> const&);
void dot_products_avx512(DotProducts<double> const&);
extern PanelPacking<float> const fp32_packing_avx512;
extern PanelPacking<double> const fp64_packing_avx512;
extern Conversions const conversions_avx512;
extern RandomWords const random_words_avx2;
extern RandomWords const random_words_avx512;
extern Roundings const roundings_avx2;
extern Roundings const roundings_avx512;
extern ByteMoves const byte_moves_baseline;
extern ByteMoves const byte_moves_avx2;
extern ByteMoves const byte_moves_avx512;
extern RowLoopsOfTypes const row_loops_avx2;
extern RowLoopsOfTypes const row_loops_avx512;
extern ColumnLoopsOfPanels const column_loops_avx2;
extern ColumnLoopsOfPanels const column_loops_avx512;
#endif
extern Bf16Kernel const bf16_amx_stand_in;
extern Int8Kernel const int8_amx_stand_in;
#if defined(TESSERA_WORD_MICRO_KERNELS)
extern RoundingsOfType const bf16_roundings_avx512_bf16;
extern Int8Kernel const int8_avx512_vnni;
extern Bf16Kernel const bf16_avx512_bf16;
extern Int8Kernel const int8_amx;
extern Bf16Kernel const bf16_amx;
#endif

namespace {

/// Each has what the ones before have.
enum class Isa { baseline, avx2, avx512, avx512_vnni, avx512_bf16, amx };
constexpr char const* isa_names[] = {"baseline", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx"};

#if defined(TESSERA_WORD_MICRO_KERNELS)
/// The processor has AMX for bf16 and int8, and the system lets this process use its tiles, whose 8 KB a thread it
/// saves only for those who ask.
bool may_use_amx() {
#if defined(__linux__) && defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned tiles_bf16_int8 = 1u << 24 | 1u << 22 | 1u << 25;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & tiles_bf16_int8) != tiles_bf16_int8) return false;
  unsigned low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));  // those who have AVX-512 have the instruction
  constexpr unsigned tile_state = 3u << 17;
  constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return (low & tile_state) == tile_state && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}
#endif

bool runs([[maybe_unused]] Isa isa) {
#if defined(TESSERA_X86_MICRO_KERNELS)
  switch (isa) {
    case Isa::baseline:
      return true;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::avx512:
      return __builtin_cpu_supports("avx512f");
#if defined(TESSERA_WORD_MICRO_KERNELS)
    case Isa::avx512_vnni:
      return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni");
    case Isa::avx512_bf16:
      return __builtin_cpu_supports("avx512bf16");
    case Isa::amx:
      return may_use_amx();
#endif
    default:
      return false;
  }
#else
  return isa == Isa::baseline;
#endif
}

/// A name that is none would change nothing without a word: whoever sets it would measure or test the wrong kernels.
template <std::size_t N>
void warn_of_unknown(char const* variable, char const* value, char const* changes, char const* const (&names)[N]) {
  if (value == nullptr || *value == '\0') return;
  for (char const* const name : names)
    if (std::strcmp(value, name) == 0) return;
  std::fprintf(stderr, "tessera: %s=%s %s nothing; it is none of", variable, value, changes);
  for (char const* const name : names) std::fprintf(stderr, " %s", name);
  std::fputc('\n', stderr);
}

/// Micro-kernels for words that processors without AMX run in its place, see TESSERA_WORD_KERNELS.
constexpr char const* stand_in_names[] = {"amx_stand_in"};

struct Choice {
  Isa best = Isa::baseline;
  bool stands_in = false;
};

Choice detect() {
#if defined(TESSERA_X86_MICRO_KERNELS)
  __builtin_cpu_init();
#endif
  char const* const cap = std::getenv("TESSERA_MAX_ISA");
  char const* const words = std::getenv("TESSERA_WORD_KERNELS");
  warn_of_unknown("TESSERA_MAX_ISA", cap, "caps", isa_names);
  warn_of_unknown("TESSERA_WORD_KERNELS", words, "chooses", stand_in_names);
  Choice choice;
  for (int i = 0; i <= static_cast<int>(Isa::amx) && runs(static_cast<Isa>(i)); ++i) {
    choice.best = static_cast<Isa>(i);
    if (cap != nullptr && std::strcmp(cap, isa_names[i]) == 0) break;
  }
  choice.stands_in = words != nullptr && std::strcmp(words, stand_in_names[0]) == 0;
  return choice;
}

Choice const& choice() {
  static Choice const made = detect();
  return made;
}
Isa isa() { return choice().best; }

template <class Kernel>
struct Version {
  Isa needs;
  Kernel kernel;
};

// The tables: a line a version, the better ones further down.
constexpr Version<MicroKernels const*> versions[] = {
    {Isa::baseline, &micro_kernels_baseline},
#if defined(TESSERA_X86_MICRO_KERNELS)
    {Isa::avx2, &micro_kernels_avx2},
    {Isa::avx512, &micro_kernels_avx512},
#endif
};
template <class T>
constexpr Version<StridedKernel<T>> strided_versions[] = {
    {Isa::baseline, nullptr},
#if defined(TESSERA_X86_MICRO_KERNELS)
    {Isa::avx2, multiply_strided_avx2},
    {Isa::avx512, multiply_strided_avx512},
#endif
};
template <>
constexpr Version<StridedKernel<std::int32_t>> strided_versions<std::int32_t>[] = {{Isa::baseline, nullptr}};
template <class T>
constexpr Version<DotKernel<T>> dot_versions[] = {
    {Isa::baseline, nullptr},
#if defined(TESSERA_X86_MICRO_KERNELS)
    {Isa::avx2, dot_products_avx2},
    {Isa::avx512, dot_products_avx512},
#endif
};
template <class T>
constexpr Version<PanelPacking<T> const*> packing_versions[] = {{Isa::baseline, nullptr}};
#if defined(TESSERA_X86_MICRO_KERNELS)
template <>
constexpr Version<PanelPacking<float> const*> packing_versions<float>[] = {{Isa::baseline, nullptr},
                                                                           {Isa::avx512, &fp32_packing_avx512}};
template <>
constexpr Version<PanelPacking<double> const*> packing_versions<double>[] = {{Isa::baseline, nullptr},
                                                                             {Isa::avx512, &fp64_packing_avx512}};
#endif
constexpr Version<Conversions const*> conversion_versions[] = {
    {Isa::baseline, nullptr},
#if defined(TESSERA_X86_MICRO_KERNELS)
    {Isa::avx512, &conversions_avx512},
#endif
};
constexpr Version<RowLoopsOfTypes const*> row_loop_versions[] = {
    {Isa::baseline, nullptr},
#if defined(TESSERA_X86_MICRO_KERNELS)
    {Isa::avx2, &row_loops_avx2},
    {Isa::avx512, &row_loops_avx512},
#endif
};
constexpr Version<ColumnLoopsOfPanels const*> column_loop_versions[] = {
    {Isa::baseline, nullptr},
#if defined(TESSERA_X86_MICRO_KERNELS)
    {Isa::avx2, &column_loops_avx2},
    {Isa::avx512, &column_loops_avx512},
#endif
};
template <class Kernel>
constexpr Version<Kernel const*> word_versions[] = {{Isa::baseline, nullptr}};
#if defined(TESSERA_WORD_MICRO_KERNELS)
template <>
constexpr Version<Bf16Kernel const*> word_versions<Bf16Kernel>[] = {
    {Isa::baseline, nullptr},
    {Isa::avx512_bf16, &bf16_avx512_bf16},
    {Isa::amx, &bf16_amx},
};
template <>
constexpr Version<Int8Kernel const*> word_versions<Int8Kernel>[] = {
    {Isa::baseline, nullptr},
    {Isa::avx512_vnni, &int8_avx512_vnni},
    {Isa::amx, &int8_amx},
};
#endif
template <class Kernel>
constexpr Kernel const* stand_in = nullptr;
template <>
constexpr Bf16Kernel const* stand_in<Bf16Kernel> = &bf16_amx_stand_in;
template <>
constexpr Int8Kernel const* stand_in<Int8Kernel> = &int8_amx_stand_in;

/// The last one that may run.
template <class Kernel, std::size_t N>
Version<Kernel> const& best_of(Version<Kernel> const (&table)[N]) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < N; ++i)
    if (table[i].needs <= isa()) best = i;
  return table[best];
}

template <class T>
MicroKernel<T> of_type(MicroKernelsOfTypes const& kernels) {
  if constexpr (std::is_same_v<T, float>)
    return kernels.fp32;
  else if constexpr (std::is_same_v<T, double>)
    return kernels.fp64;
  else
    return kernels.int32;
}

}  // namespace

template <class T>
MicroKernel<T> micro_kernel() {
  return of_type<T>(best_of(versions).kernel->of_panels);
}
template <class T>
MicroKernel<T> wide_micro_kernel() {
  return of_type<T>(best_of(versions).kernel->of_wide_panels);
}
template <class T>
StridedKernel<T> strided_kernel() {
  return best_of(strided_versions<T>).kernel;
}
template <class T>
DotKernel<T> dot_kernel() {
  return best_of(dot_versions<T>).kernel;
}
template <class T>
PanelPacking<T> const* panel_packing() {
  return best_of(packing_versions<T>).kernel;
}
template <class Kernel>
Kernel const* word_kernel() {
  return choice().stands_in ? stand_in<Kernel> : best_of(word_versions<Kernel>).kernel;
}
Conversions const* conversions() { return best_of(conversion_versions).kernel; }
ColumnLoopsOfPanels const* column_loops() { return best_of(column_loop_versions).kernel; }
RandomWords random_words() {
#if defined(TESSERA_X86_MICRO_KERNELS)
  VectorUnits const units = vector_units();
  if (units == VectorUnits::avx512) return random_words_avx512;
  if (units == VectorUnits::avx2) return random_words_avx2;
#endif
  return nullptr;
}
Roundings const* roundings() {
#if defined(TESSERA_X86_MICRO_KERNELS)
  VectorUnits const units = vector_units();
#if defined(TESSERA_WORD_MICRO_KERNELS)
  if (isa() >= Isa::avx512_bf16 && units == VectorUnits::avx512) {
    static Roundings const with_bf16 = [] {
      Roundings all = roundings_avx512;
      all.bf16 = bf16_roundings_avx512_bf16;
      return all;
    }();
    return &with_bf16;
  }
#endif
  if (units == VectorUnits::avx512) return &roundings_avx512;
  if (units == VectorUnits::avx2) return &roundings_avx2;
#endif
  return nullptr;
}
ByteMoves const* byte_moves() {
#if defined(TESSERA_X86_MICRO_KERNELS)
  VectorUnits const units = vector_units();
  if (units == VectorUnits::avx512) return &byte_moves_avx512;
  return units == VectorUnits::avx2 ? &byte_moves_avx2 : &byte_moves_baseline;
#else
  return nullptr;
#endif
}
RowLoopsOfTypes const* row_loops() { return best_of(row_loop_versions).kernel; }
template <class T>
char const* instruction_set() {
  if constexpr (requires { T::pack_left; })
    return choice().stands_in ? stand_in_names[0] : isa_names[static_cast<int>(best_of(word_versions<T>).needs)];
  else
    return isa_names[static_cast<int>(best_of(versions).needs)];
}

#define TESSERA_MICRO_KERNEL(T)                       \
  template MicroKernel<T> micro_kernel<T>();          \
  template MicroKernel<T> wide_micro_kernel<T>();     \
  template StridedKernel<T> strided_kernel<T>();      \
  template PanelPacking<T> const* panel_packing<T>(); \
  template char const* instruction_set<T>();
TESSERA_MICRO_KERNEL(float)
TESSERA_MICRO_KERNEL(double)
TESSERA_MICRO_KERNEL(std::int32_t)
template DotKernel<float> dot_kernel<float>();
template DotKernel<double> dot_kernel<double>();
#define TESSERA_WORD_KERNEL(KERNEL)             \
  template KERNEL const* word_kernel<KERNEL>(); \
  template char const* instruction_set<KERNEL>();
TESSERA_WORD_KERNEL(Bf16Kernel)
TESSERA_WORD_KERNEL(Int8Kernel)

}  // namespace tessera::detail::openmp

namespace tessera::detail {

VectorUnits vector_units() {
#if defined(TESSERA_X86_MICRO_KERNELS)
  static VectorUnits const units = [] {
    // AVX-512 F alone, as micro-kernels need it, has no vectors of 16 and 8 bits.
    if (openmp::isa() >= openmp::Isa::avx512 && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd"))
      return VectorUnits::avx512;
    return openmp::isa() >= openmp::Isa::avx2 ? VectorUnits::avx2 : VectorUnits::baseline;
  }();
  return units;
#else
  return VectorUnits::baseline;
#endif
}

std::int64_t last_cache_bytes() {
  static std::int64_t const bytes = [] {
    std::int64_t found = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    found = std::max(sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE));
#endif
    // A virtual machine of few cores is told of all that their processor has. Of 300 MB, 16 of them have some 128.
    std::int64_t processors = 1;
#if defined(_SC_NPROCESSORS_ONLN)
    processors = sysconf(_SC_NPROCESSORS_ONLN);
#endif
    constexpr std::int64_t usual = 32 << 20, most_a_processor = 8 << 20;
    return found > 0 ? std::min(found, std::max<std::int64_t>(processors, 1) * most_a_processor) : usual;
  }();
  return bytes;
}

std::int64_t core_cache_bytes() {
  static std::int64_t const bytes = [] {
    std::int64_t found = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    found = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    constexpr std::int64_t usual = 1 << 20;
    return found > 0 ? found : usual;
  }();
  return bytes;
}

}  // namespace tessera::detail
