// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_COMMON_ROWS_HPP
#define TESSERA_ELEMENT_COMMON_ROWS_HPP

#include <Kokkos_Core.hpp>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tessera/element/dimensions.hpp>
#include <tessera/element/magnitude.hpp>

namespace tessera::detail {

/// Inputs that have one row for all rows of the output, as a bias has, where all else has rows that follow one another.
template <int Operands, int Inputs>
class CommonRows {
 public:
  explicit CommonRows(Dimensions<Operands> const& dims) {
    for (MagnitudeBits& one : largest_) one = unknown;
    if (dims.rank != 2) return;
    any = true;
    for (int o = 0; o < Operands; ++o) {
      bool const follows = dims.stride[o][1] == dims.extent[0] * dims.stride[o][0];
      bool const stays = o > 0 && o <= Inputs && dims.stride[o][1] == 0;
      any = any && dims.stride[o][0] == 1 && (follows || stays);
      if (stays) common_[o - 1] = true;
    }
    knows_magnitudes = any && dims.extent[1] >= many && dims.extent[0] <= longest;
  }

  bool any = false;
  bool knows_magnitudes = false;

  KOKKOS_FUNCTION bool has(std::size_t input) const { return any && common_[input]; }
  /// The largest magnitude in such an input's row of n, which the threads that need it first find out.
  template <class T>
  KOKKOS_FUNCTION MagnitudeBits largest_magnitude_of(std::size_t input, T const* row, std::int64_t n) const {
    // By std: Kokkos' atomic load takes the line from all other cores, and this is asked for every strip.
    std::atomic_ref<MagnitudeBits> known(largest_[input]);
    MagnitudeBits found = known.load(std::memory_order_relaxed);
    if (found != unknown) return found;
    found = largest_magnitude(row, static_cast<int>(n));
    known.store(found, std::memory_order_relaxed);
    return found;
  }

 private:
  static constexpr std::int64_t many = 64;          // rows, beside which the magnitudes of one are nothing
  static constexpr std::int64_t longest = 1 << 20;  // elements of a row
  static constexpr MagnitudeBits unknown = -1;

  bool common_[Inputs] = {};
  mutable MagnitudeBits largest_[Inputs];
};

}  // namespace tessera::detail

#endif
