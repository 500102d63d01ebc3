// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_ROW_MOMENTS_HPP
#define TESSERA_ROWWISE_ROW_MOMENTS_HPP

#include <Kokkos_Core.hpp>

#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/rowwise/walk.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

/// The sum of some elements and that of their squares, about their mean if the norm is centered.
struct Moments {
  float sum, squares;
};

/// Those of a row that the threads of a shape hold in registers; what is missing of it is 0. `Tag` is the kernel's,
/// which counts the rows of a team by `turn`.
template <class Row, class Shape, class Tag>
struct RowMoments {
  using Values = typename Row::ValueParts;

  float inverse_length;
  bool centered;

  KOKKOS_FORCEINLINE_FUNCTION Moments operator()(Row const& row, Values const& x, int turn) const {
    return whole(row, centered ? warp_moments(row, x) : Moments{0, warp_squares(row, x)}, turn);
  }

 private:
  /// How many elements of the row warp `warp` of those that share it has.
  KOKKOS_FORCEINLINE_FUNCTION static int length_of(Row const& row, int warp) {
    int elements = 0;
    unroll<Row::packs>([&](auto k) {
      int const left = row.count - (k * Row::lanes + warp * Shape::neighbours);
      elements += Row::width * (left < 0 ? 0 : left < Shape::neighbours ? left : Shape::neighbours);
    });
    if (Row::ragged && warp == 0) elements += row.singles;  // there are fewer of them than lanes
    return elements;
  }

  KOKKOS_FORCEINLINE_FUNCTION static float warp_squares(Row const& row, Values const& x, float center = 0) {
    float squares = 0;
    unroll<Row::parts>([&](auto k) {
      if (!row.has(k)) return;
      for (int j = 0; j < x[k].size; ++j) squares += (x[k][j] - center) * (x[k][j] - center);
    });
    return Row::join(squares, Add{});
  }

  KOKKOS_FORCEINLINE_FUNCTION Moments warp_moments(Row const& row, Values const& x) const {
    float sum = 0;
    unroll<Row::parts>([&](auto k) {
      for (int j = 0; j < x[k].size; ++j) sum += x[k][j];
    });
    sum = Row::join(sum, Add{});
    float center = inverse_length * sum;
    if constexpr (Shape::warps > 1) {
      int const length = length_of(row, row.lane / 32);
      center = length > 0 ? sum / static_cast<float>(length) : 0.0f;
    }
    return {sum, warp_squares(row, x, center)};
  }

  /// The row's sum and its squares about its mean from those of the warps, in one exchange (T. F. Chan, G. H. Golub,
  /// R. J. LeVeque, "Algorithms for computing the sample variance", 1983): to the squares about a warp's mean come
  /// those of what it differs by.
  KOKKOS_FORCEINLINE_FUNCTION Moments whole(Row const& row, Moments const& own, [[maybe_unused]] int turn) const {
    if constexpr (Shape::warps == 1) {
      return own;
    } else {
      Moments part;
      if constexpr (Row::ragged)
        part = Row::Atoms::template share_in_turn<Tag, Shape::warps>(own, turn);
      else
        part = Row::template of_warp<Tag>(own);
      float const sum = Row::join_parts(part.sum, Add{});
      if (centered) {
        auto const length = static_cast<float>(length_of(row, row.lane % Shape::warps));
        float const difference = length > 0 ? part.sum / length - inverse_length * sum : 0.0f;
        part.squares += length * difference * difference;
      }
      return {sum, Row::join_parts(part.squares, Add{})};
    }
  }
};

}  // namespace tessera::detail

#endif
