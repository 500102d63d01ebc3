// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PASSING_HPP
#define TESSERA_PASSING_HPP

#include <Kokkos_Macros.hpp>
#include <cstdint>

// Operands that pass through the caches: they are read once.
namespace tessera::detail {

/// How the operands of an operation are read, each byte of them once, by what an H200's second-level cache of 60 MB has
/// room for:
///
/// - All that is read and written: no marks. Whoever needs it next finds it there.
/// - What is written, but not with all that is read: lines that are read are marked as those to be evicted first.
///   Results are then still there for who reads them next, or are written over before they have been written back: 5 to
///   25 % of the time of what does either.
/// - Neither: to be evicted last. Lines of results, written back before them, go in longer runs: 1 to 4 % of the time
///   of what writes as much as it reads.
class ReadOnce {
 public:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
  static constexpr bool marks = true;
#else
  static constexpr bool marks = false;
#endif

  ReadOnce() = default;
  /// Of operands of so many bytes each, of which so many are read and so many written.
  ReadOnce(std::int64_t bytes, int read, int written) : ReadOnce(bytes * read, bytes * written) {}
  /// Of so many bytes in all.
  ReadOnce(std::int64_t read, std::int64_t written) {
    constexpr std::int64_t mega = 1 << 20;
    if (read + written < 48 * mega) return;
    if (written <= 42 * mega && read + written <= 112 * mega)
      policy_ = evict_first;
    else if (written <= read)
      policy_ = evict_last;
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
  static constexpr std::uint64_t evict_first = 0x12F0000000000000, evict_last = 0x14F0000000000000;
  std::uint64_t policy_ = 0;  // within 1 % of loads without one
};

}  // namespace tessera::detail

#endif
