// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_ROWS_HPP
#define TESSERA_ROWWISE_PACKED_ROWS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <limits>

#include <tessera/detail/rows.hpp>
#include <tessera/divisor.hpp>
#include <tessera/elementary.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/rowwise/operand.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/warp.hpp>

// Rows of one type that begin at multiples of 16 bytes and consist of whole packs, on machines with warps: a thread
// reads all its packs before it uses the first, keeps them in registers, and reduces by shuffles. Such kernels move
// bytes at the speed of a copy if they spend some 25 instructions on an element of 16 bits; other rows take the walk of
// walk.hpp.
namespace tessera::detail {

/// `Lanes` neighbouring lanes share a row (up to a warp, or else a whole team), each with `Packs` packs of it.
template <int Lanes, int Threads, int Packs>
struct PackedShape {
  static_assert(Lanes <= 32 || Lanes == Threads);
  static constexpr int lanes = Lanes, threads = Threads, packs = Packs;
  static constexpr int warps = Lanes > 32 ? Lanes / 32 : 1, neighbours = Lanes > 32 ? 32 : Lanes;
  static constexpr int rows_a_team = Threads / Lanes;
  static constexpr int registers = Packs < 4 ? 40 : 64;  // of a thread
};

/// The rows of a launch, of one matrix or several; of all matrices' last rows something may be missing.
struct PackedGrid {
  std::int64_t rows = 0;  // of all matrices
  int packs = 0;          // of a row,
  int last_packs = 0;     // of the last one of each matrix
  bool flat = true;       // one matrix
  Divisor matrix_rows, inner;

  PackedGrid(TileGrid const& grid, int width, std::int64_t missing = 0)
      : rows(grid.tiles()),
        packs(static_cast<int>(grid.columns / width)),
        last_packs(static_cast<int>((grid.columns - missing) / width)),
        flat(grid.leading[0] * grid.leading[1] == 1),
        matrix_rows(grid.rows),
        inner(grid.leading[1]) {}
};

template <class T>
inline constexpr int packed_width = static_cast<int>(pack_bytes / sizeof(T));

/// Which row of which matrix.
struct PackedRowPlace {
  std::int64_t outer = 0, inner = 0, row = 0;

  PackedRowPlace() = default;
  KOKKOS_FORCEINLINE_FUNCTION PackedRowPlace(PackedGrid const& grid, std::int64_t all) : row(all) {
    if (grid.flat) return;
    bool const small = grid.rows <= std::numeric_limits<std::int32_t>::max();
    std::int64_t const matrix = grid.matrix_rows.quotient(all, small);
    outer = grid.inner.quotient(matrix, small);
    inner = matrix - outer * grid.inner.by;
    row -= matrix * grid.matrix_rows.by;
  }
  /// Of the row's first element, or of the row's value in an operand that has one a row.
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t offset(Operand const& a) const {
    return outer * a.outer + inner * a.inner + row * a.row;
  }
  template <class Value>
  KOKKOS_FORCEINLINE_FUNCTION Value& value(Operand const& a) const {
    return static_cast<Value*>(const_cast<void*>(a.data))[offset(a)];
  }
};

/// One thread's part of a row of T: packs `lane`, `lane + lanes` and so on.
template <class Exec, class Shape, class T, int Width = packed_width<T>>
struct PackedRow {
  static constexpr int packs = Shape::packs, width = Width, lanes = Shape::lanes;
  using Atoms = WarpAtoms<Exec>;
  using Raw = Pack<T, width>;
  using Values = Pack<float, width>;

  int lane, count;  // of the row's packs; none: there is no such row
  PackedRowPlace place;

  KOKKOS_FORCEINLINE_FUNCTION PackedRow(PackedGrid const& grid, int team) {
    int const thread = Atoms::thread();
    lane = thread % lanes;
    std::int64_t const row = static_cast<std::int64_t>(team) * Shape::rows_a_team + thread / lanes;
    bool const inside = Shape::rows_a_team == 1 || row < grid.rows;
    if (inside) place = PackedRowPlace(grid, row);
    count = !inside ? 0 : place.row + 1 < grid.matrix_rows.by ? grid.packs : grid.last_packs;
  }
  KOKKOS_FORCEINLINE_FUNCTION bool inside() const { return count > 0; }
  /// The place of pack k in the row, and whether it is in it.
  KOKKOS_FORCEINLINE_FUNCTION int pack(int k) const { return k * lanes + lane; }
  KOKKOS_FORCEINLINE_FUNCTION bool has(int k) const { return pack(k) < count; }
  /// The packs of an operand; those beyond the row are `rest` throughout.
  KOKKOS_FORCEINLINE_FUNCTION void load(Operand const& from, Raw (&to)[packs], T rest) const {
    T const* const first = static_cast<T const*>(from.data) + place.offset(from);
    unroll<packs>([&](auto k) {
      for (int j = 0; j < width; ++j) to[k][j] = rest;
      if (has(k)) to[k] = load_pack<width>(first + pack(k) * width);
    });
  }
  /// The packs of an operand, from value(k), a pack of values.
  template <class To, class Value>
  KOKKOS_FORCEINLINE_FUNCTION void store(Operand const& to, Value const& value) const {
    To* const first = static_cast<To*>(const_cast<void*>(to.data)) + place.offset(to);
    unroll<packs>([&](auto k) {
      Pack<To, width> const x = Atoms::template narrowed<To>(value(k));
      if (has(k)) store_pack<width>(first + pack(k) * width, x);
    });
  }

  /// Over the lanes of a warp that share the row.
  template <class X, class Join>
  KOKKOS_FORCEINLINE_FUNCTION static X join(X x, Join const& f) {
    return Atoms::template join<Shape::neighbours>(x, f);
  }
  /// Of a team that shares the row: in lane i of each warp what warp i % warps has.
  template <class Tag, class X>
  KOKKOS_FORCEINLINE_FUNCTION static X of_warp(X x) {
    return Atoms::template share<Tag, Shape::warps>(x);
  }
  /// Over what of_warp() has given.
  template <class X, class Join>
  KOKKOS_FORCEINLINE_FUNCTION static X join_parts(X x, Join const& f) {
    return Atoms::template join<Shape::warps>(x, f);
  }
};

/// What an output of rows of T may hold.
template <class T>
using PackedOutputs = TypeList<T, e4m3_t>;

/// Whether rows of this type and length can be such.
inline bool packed_rows(TileGrid const& grid, Scalar type) {
  auto const width = static_cast<std::int64_t>(pack_bytes / size_of(type));
  return type != Scalar::fp64 && grid.columns > 0 && grid.columns % width == 0 &&
         grid.columns <= std::numeric_limits<std::int32_t>::max();
}

inline bool is_packed_operand(RowArray const& a, TileGrid const& grid, int width, Scalar type) {
  return !a.present() || (a.type == type && operand(a, grid, width, true).packed);
}
template <class T>
bool is_packed_output(RowArray const& a, TileGrid const& grid) {
  return (a.type == scalar_of<T> || a.type == Scalar::e4m3) && operand(a, grid, packed_width<T>, true).packed;
}

/// f(Shape{}) with the shape for rows of so many packs: four packs a thread, which is what 64 registers hold of 16-bit
/// elements, pay for its share of reductions and addresses.
template <class F>
void with_longer_packed_shape(std::int64_t packs, F const& f) {
  if (packs <= 128)
    f(PackedShape<32, 256, 4>{});
  else if (packs <= 256)
    f(PackedShape<64, 64, 4>{});
  else if (packs <= 512)
    f(PackedShape<128, 128, 4>{});
  else if (packs <= 1024)
    f(PackedShape<256, 256, 4>{});
  else
    f(PackedShape<512, 512, 4>{});
}
/// The same; of the shortest rows two packs a thread, as more of them then fit.
template <class F>
void with_packed_shape(std::int64_t packs, F const& f) {
  if (packs <= 8)
    f(PackedShape<4, 256, 2>{});
  else if (packs <= 16)
    f(PackedShape<8, 256, 2>{});
  else
    with_longer_packed_shape(packs, f);
}
inline constexpr std::int64_t longest_packed_row = 2048;
inline constexpr int most_teams_together = 16;  // that share a longer one

/// As many teams to a multiprocessor as its 65536 registers allow, 32 at most.
template <class Shape, class Exec, class Kernel>
void launch_packed(char const* label, Exec const& exec, PackedGrid const& grid, Kernel const& kernel) {
  constexpr int wanted = 65536 / Shape::registers / Shape::threads;
  launch<Shape::threads, (wanted < 32 ? wanted : 32)>(
      label, exec, (grid.rows + Shape::rows_a_team - 1) / Shape::rows_a_team, 0, kernel);
}

}  // namespace tessera::detail

#endif
