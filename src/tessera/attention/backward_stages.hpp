// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_STAGES_HPP
#define TESSERA_ATTENTION_BACKWARD_STAGES_HPP

#include <cstdint>

#include <tessera/atoms.hpp>
#include <tessera/detail/matrix.hpp>

// What the pass over the keys has beside its tiles: where operands come from, numbers of a stage, dS in memory.
namespace tessera::detail {

/// The source of a factor that is multiplied by factors of another type too, which some atoms ask for.
template <class Atoms, class Tile>
typename Atoms::Source source_beside(MatrixStack const& m, Scalar other) {
  if constexpr (requires { Atoms::template source<Tile>(m, other); })
    return Atoms::template source<Tile>(m, other);
  else
    return Atoms::template source<Tile>(m);
}

/// Sums of products of what is shared: accumulators, unless the atoms have others for these.
template <class Atoms, int M, int N>
struct SharedSumsOf {
  using Type = typename Atoms::template Accumulator<M, N>;
};
template <class Atoms, int M, int N>
requires requires { typename Atoms::template SharedSums<M, N>; }
struct SharedSumsOf<Atoms, M, N> {
  using Type = typename Atoms::template SharedSums<M, N>;
};

/// Which of the teams that share a head's keys has a tile.
template <bool Needed>
struct TilePart {
  int part;
};
template <>
struct TilePart<false> {};

/// Step of a tile's queries that a part of it begins with, and where that is: who works on the tile keeps these in
/// places for what all threads have in common, as long as nobody divides there.
template <bool Needed>
struct TileBegin {
  int begin = 0, first_head = 0, first_query = 0;
};
template <>
struct TileBegin<false> {};

/// Whether accumulators have an order in memory that another kernel knows.
template <class Atoms>
inline constexpr bool sums_in_order = requires {
  Atoms::template SumOrder<64, 64>::at(0, 0);
};

/// Numbers beside a tile of a stage, or none.
template <class T, int N>
struct StagedNumbers {
  T v[N];
  static constexpr int bytes = sizeof(v);
};
template <class T>
struct StagedNumbers<T, 0> {
  static constexpr int bytes = 0;
};

/// The gradient of what is added to scores where each has an element of its own, keys side by side.
struct ScoreGradients {
  float* data;
  std::int64_t outer_stride, inner_stride;
  int row_stride;

  explicit ScoreGradients(MatrixStack const& m)
      : data(static_cast<float*>(const_cast<void*>(m.data))),
        outer_stride(m.outer_stride),
        inner_stride(m.inner_stride),
        row_stride(static_cast<int>(m.row_stride)) {}
  KOKKOS_FORCEINLINE_FUNCTION float* at(Plane plane, int query, int key) const {
    return data + plane.outer * outer_stride + plane.inner * inner_stride + std::int64_t(query) * row_stride + key;
  }
};
struct NoScoreGradients {
  explicit NoScoreGradients(MatrixStack const&) {}
};

}  // namespace tessera::detail

#endif
