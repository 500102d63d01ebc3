// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_DIMENSIONS_HPP
#define TESSERA_ELEMENT_DIMENSIONS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include <tessera/detail/array.hpp>
#include <tessera/divisor.hpp>
#include <tessera/unroll.hpp>

// The loop nest that several operands share, turned on the host into the fewest and longest loops.
namespace tessera::detail {

inline constexpr int max_dimensions = 8;

/// Loops, innermost first, and the stride of every operand in each (0 where it is broadcast), in elements.
template <int Operands>
struct Dimensions {
  int rank = 0;
  std::int64_t extent[max_dimensions] = {};            // (rank)
  std::int64_t stride[Operands][max_dimensions] = {};  // (Operands, rank)

  std::int64_t size() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= extent[d];
    return n;
  }
  /// Adds a loop outside the others; a loop of one step is none.
  void add(std::int64_t steps, std::int64_t const (&strides)[Operands]) {
    if (steps == 1) return;
    extent[rank] = steps;
    for (int o = 0; o < Operands; ++o) stride[o][rank] = strides[o];
    ++rank;
  }
  void exchange(int a, int b) {
    std::swap(extent[a], extent[b]);
    for (int o = 0; o < Operands; ++o) std::swap(stride[o][a], stride[o][b]);
  }
  /// Every operand steps through loop `outer` as if loop `inner` just went on.
  bool continues(int inner, int outer) const {
    for (int o = 0; o < Operands; ++o)
      if (stride[o][outer] != stride[o][inner] * extent[inner]) return false;
    return true;
  }
  /// Orders the loops by the strides of operand 0, smallest inside, and joins those that continue one another. There is
  /// at least one loop afterwards.
  void collapse() {
    for (int i = 1; i < rank; ++i)
      for (int j = i; j > 0 && stride[0][j] < stride[0][j - 1]; --j) exchange(j, j - 1);
    int last = 0;
    for (int d = 1; d < rank; ++d) {
      if (continues(last, d)) {
        extent[last] *= extent[d];
      } else if (++last != d) {
        exchange(last, d);
      }
    }
    if (rank == 0) {
      extent[0] = 1;
      for (int o = 0; o < Operands; ++o) stride[o][0] = 1;
    }
    rank = last + 1;
  }
};

/// The loops' steps numbered from 0, the innermost loop cut into packs of `Width` elements. Packs start where an
/// address suits vector accesses, so that the first and the last pack of a row may be partial.
template <int Operands, int Width>
struct PackSpace {
  int rank = 0;
  bool small = true;  // 31 bits hold every pack number
  int head = 0;       // elements of the first pack of a row that lie before the row
  std::int64_t inner = 0, packs = 0;
  Divisor count[max_dimensions];                       // packs in a row, then steps of the other loops
  std::int64_t stride[Operands][max_dimensions] = {};  // elements

  /// Where a pack lies: the offset of its element 0 in each operand (before the row's start when low > 0) and its
  /// elements [low, high) that exist.
  struct Place {
    std::int64_t offset[Operands];
    int low, high;
    KOKKOS_INLINE_FUNCTION bool full() const { return high - low == Width; }
  };

  PackSpace() = default;
  PackSpace(Dimensions<Operands> const& dims, int misaligned)
      : rank(dims.rank), head(misaligned), inner(dims.extent[0]) {
    std::int64_t const row = inner > 0 ? (inner + head + Width - 1) / Width : 0;
    packs = row;
    count[0] = Divisor(row);
    for (int d = 0; d < rank; ++d) {
      if (d > 0) {
        packs *= dims.extent[d];
        count[d] = Divisor(dims.extent[d]);
      }
      for (int o = 0; o < Operands; ++o) stride[o][d] = dims.stride[o][d];
    }
    small = packs <= std::numeric_limits<std::int32_t>::max();
  }

  KOKKOS_INLINE_FUNCTION Place place(std::int64_t pack) const {
    Place at;
    std::int64_t left = 0, column = pack;
    if (rank > 1) {
      left = count[0].quotient(pack, small);
      column -= left * count[0].by;
    }
    std::int64_t const first = column * Width - head;
    for (int o = 0; o < Operands; ++o) at.offset[o] = first * stride[o][0];
    TESSERA_ROLLED
    for (int d = 1; d < rank; ++d) {
      // The outermost loop takes what is left.
      std::int64_t const above = d + 1 < rank ? count[d].quotient(left, small) : 0;
      std::int64_t const step = left - above * count[d].by;
      for (int o = 0; o < Operands; ++o) at.offset[o] += step * stride[o][d];
      left = above;
    }
    at.low = first < 0 ? static_cast<int>(-first) : 0;
    at.high = inner - first < Width ? static_cast<int>(inner - first) : Width;
    return at;
  }
};

/// The same for machines that compute addresses beside the work: places are found in 32 bits and told in bytes. A pack
/// lies `begin` bytes and a number of steps from each operand's data; the linear index is an operand of 1-byte
/// elements.
template <int Operands, int Width>
struct PackPlaces {
  int rank = 0, packs = 0;
  int head = 0, tail = 0;  // elements of a row's first pack that lie before it, and of its last pack up to its end
  Divisor count[max_dimensions];  // packs in a row, then steps of the other loops
  std::int64_t begin[Operands] = {};
  int step[Operands][max_dimensions] = {};  // bytes, of loop 0 from a pack to the next
  int element[Operands] = {};               // bytes between the elements of a pack

  struct Place {
    std::int64_t offset[Operands];  // bytes
    int low, high;                  // the elements [low, high) exist
    KOKKOS_INLINE_FUNCTION bool full() const { return high - low == Width; }
  };

  PackPlaces() = default;
  /// `fits` becomes false where 32 bits do not suffice.
  PackPlaces(Dimensions<Operands> const& dims, int misaligned, int const (&bytes)[Operands], bool& fits)
      : rank(dims.rank), head(misaligned) {
    std::int64_t const row = (dims.extent[0] + head + Width - 1) / Width;
    std::int64_t all = row;
    tail = static_cast<int>(dims.extent[0] + head - (row - 1) * Width);
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    fits = true;
    for (int d = 0; d < rank; ++d) {
      count[d] = Divisor(d == 0 ? row : dims.extent[d]);
      if (d > 0) all *= dims.extent[d];
      for (int o = 0; o < Operands; ++o) {
        std::int64_t const bytes_on = dims.stride[o][d] * bytes[o] * (d == 0 ? Width : 1);
        fits = fits && bytes_on <= most;
        step[o][d] = static_cast<int>(bytes_on);
      }
    }
    for (int o = 0; o < Operands; ++o) {
      element[o] = step[o][0] / Width;
      begin[o] = -std::int64_t{head} * element[o];
    }
    fits = fits && all <= most;
    packs = static_cast<int>(all);
  }
  /// Every pack is full and found in two loops.
  KOKKOS_INLINE_FUNCTION bool even() const { return head == 0 && tail == Width && rank <= 2; }

  /// The place of a pack where all are `even`.
  KOKKOS_FORCEINLINE_FUNCTION Place even_place(int pack) const {
    int const row = pack / count[0], column = pack - row * static_cast<int>(count[0]);
    Place at;
    for (int o = 0; o < Operands; ++o)
      at.offset[o] = std::int64_t{column} * step[o][0] + std::int64_t{row} * step[o][1];
    at.low = 0;
    at.high = Width;
    return at;
  }
  KOKKOS_FORCEINLINE_FUNCTION Place place(int pack) const {
    Place at;
    int column = pack, row = 0;
    if (rank > 1) {
      row = pack / count[0];
      column -= row * static_cast<int>(count[0]);
    }
    for (int o = 0; o < Operands; ++o) at.offset[o] = begin[o] + std::int64_t{column} * step[o][0];
    if (rank == 2)
      for (int o = 0; o < Operands; ++o) at.offset[o] += std::int64_t{row} * step[o][1];
    TESSERA_ROLLED
    for (int d = 1; rank > 2 && d < rank; ++d) {
      // The outermost loop takes what is left.
      int const above = d + 1 < rank ? row / count[d] : 0;
      int const by = row - above * static_cast<int>(count[d]);
      for (int o = 0; o < Operands; ++o) at.offset[o] += std::int64_t{by} * step[o][d];
      row = above;
    }
    at.low = column == 0 ? head : 0;
    at.high = column + 1 == static_cast<int>(count[0]) ? tail : Width;
    return at;
  }
};

}  // namespace tessera::detail

#endif
