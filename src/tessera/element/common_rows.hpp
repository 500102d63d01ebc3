// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_COMMON_ROWS_HPP
#define TESSERA_ELEMENT_COMMON_ROWS_HPP

#include <Kokkos_Core.hpp>
#include <atomic>
#include <cstdint>

#include <tessera/element/dimensions.hpp>
#include <tessera/element/magnitude.hpp>

namespace tessera::detail {

/// Inputs that have one row for all rows of the output, as a bias has, where all else has rows that follow one another.
template <int Operands, int Inputs>
struct CommonRows {
  static constexpr std::int64_t many = 64;  // rows, from which on finding the largest magnitude of one costs nothing

  static constexpr std::int64_t most = 1 << 20;  // elements of a row

  bool any = false;
  bool common[Inputs] = {};

  explicit CommonRows(Dimensions<Operands> const& dims) {
    if (dims.rank != 2) return;
    any = true;
    for (int o = 0; o < Operands; ++o) {
      bool const follows = dims.stride[o][1] == dims.extent[0] * dims.stride[o][0];
      bool const stays = o > 0 && o <= Inputs && dims.stride[o][1] == 0;
      any = any && dims.stride[o][0] == 1 && (follows || stays);
      if (stays) common[o - 1] = true;
    }
    knows_magnitudes = any && dims.extent[1] >= many && dims.extent[0] <= most;
    for (int i = 0; i < Inputs; ++i) largest[i] = unknown;
  }

  bool has(int input) const { return any && common[input]; }
  /// The largest magnitude in the row of such an input, which the threads that need it first find out.
  template <class T>
  KOKKOS_FUNCTION MagnitudeBits largest_magnitude_of(int input, T const* row, std::int64_t n) const {
    // Kokkos' atomic loads are ordered, and each takes the line from all other cores.
    std::atomic_ref<MagnitudeBits> known(largest[input]);
    MagnitudeBits found = known.load(std::memory_order_relaxed);
    if (found != unknown) return found;
    found = largest_magnitude(row, static_cast<int>(n));
    known.store(found, std::memory_order_relaxed);
    return found;
  }

  bool knows_magnitudes = false;

 private:
  static constexpr MagnitudeBits unknown = -1;
  mutable MagnitudeBits largest[Inputs];
};

}  // namespace tessera::detail

#endif
