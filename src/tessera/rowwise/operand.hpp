// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_OPERAND_HPP
#define TESSERA_ROWWISE_OPERAND_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/strip_rounding.hpp>
#include <tessera/types.hpp>

namespace tessera::detail {

/// How the elements are cut: leading[0] x leading[1] matrices of rows x columns elements, each into tiles of
/// tile_rows x tile_columns with residues at the ends. For the operations on rows a tile is a whole row.
struct TileGrid {
  std::int64_t leading[2] = {1, 1};
  std::int64_t rows = 0, columns = 0;
  std::int64_t tile_rows = 1, tile_columns = 1;
  std::int64_t row_tiles = 0, column_tiles = 0;

  KOKKOS_FUNCTION std::int64_t tiles() const { return leading[0] * leading[1] * row_tiles * column_tiles; }
};

/// A tile's place in the grid.
struct TileIndex {
  std::int64_t outer = 0, inner = 0, row = 0, column = 0;  // matrix, and tile in it
};

/// Tiles are counted with the column first. Divisions of 64-bit integers are slow and most grids need none.
KOKKOS_INLINE_FUNCTION TileIndex tile_index(TileGrid const& grid, std::int64_t tile) {
  TileIndex at;
  if (grid.column_tiles > 1) {
    at.column = tile % grid.column_tiles;
    tile /= grid.column_tiles;
  }
  at.row = tile;
  if (grid.leading[0] * grid.leading[1] > 1) {
    at.row = tile % grid.row_tiles;
    tile /= grid.row_tiles;
    at.inner = tile % grid.leading[1];
    at.outer = tile / grid.leading[1];
  }
  return at;
}

/// An operand of a kernel over tiles. Strides in elements.
struct Operand {
  void const* data = nullptr;
  Scalar type = Scalar::fp32;
  bool packed = false;  // whole packs may be read: consecutive elements, every row aligned as packs want it
  std::int64_t outer = 0, inner = 0, row = 0, column = 0;
  bool streamed = false;  // packs of whole lines go past the caches

  KOKKOS_FUNCTION bool present() const { return data != nullptr; }
  KOKKOS_FUNCTION std::int64_t offset(TileGrid const& grid, TileIndex const& at) const {
    return at.outer * outer + at.inner * inner + at.row * grid.tile_rows * row + at.column * grid.tile_columns * column;
  }
  /// The element at the tile's own place, for operands with one value a tile.
  KOKKOS_FUNCTION std::int64_t value_offset(TileIndex const& at) const {
    return at.outer * outer + at.inner * inner + at.row * row + at.column * column;
  }
};

/// A machine with wide lanes reads 16 bytes in one instruction if they are aligned; on a CPU consecutive elements
/// suffice.
template <class T, int Width, bool Wide>
inline constexpr int row_pack_alignment = Wide ? (sizeof(T) * Width < 16 ? static_cast<int>(sizeof(T) * Width) : 16)
                                               : static_cast<int>(alignof(T));

/// `Width` elements that are read and written together.
template <class T, int Width, bool Wide>
struct alignas(row_pack_alignment<T, Width, Wide>) RowPack {
  T element[Width];
};

/// Whether tiles of this operand may be read in packs of `width` elements.
inline bool is_packed(Operand const& a, TileGrid const& grid, int width, bool wide) {
  if (a.column != 1 && grid.columns > 1) return false;
  if (!wide) return true;
  std::size_t const bytes = size_of(a.type), alignment = bytes * width < 16 ? bytes * width : 16;
  auto const aligned = [&](std::int64_t extent, std::int64_t stride) {
    return extent <= 1 || static_cast<std::size_t>(stride) * bytes % alignment == 0;
  };
  return reinterpret_cast<std::uintptr_t>(a.data) % alignment == 0 && aligned(grid.leading[0], a.outer) &&
         aligned(grid.leading[1], a.inner) && aligned(grid.rows, a.row) &&
         aligned(grid.column_tiles, grid.tile_columns * a.column);
}

template <class T>
struct ElementTag {
  using type = T;
};

/// Calls f(ElementTag<T>{}) for the type behind `type`, among T....
template <class First, class... Rest, class F>
KOKKOS_FORCEINLINE_FUNCTION void visit_type(Scalar type, F const& f) {
  if constexpr (sizeof...(Rest) == 0) {
    f(ElementTag<First>{});
  } else {
    if (type == scalar_of<First>)
      f(ElementTag<First>{});
    else
      visit_type<Rest...>(type, f);
  }
}

/// The element types of an input or output, for visit_type.
template <class... T>
struct TypeList {
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION static void visit(Scalar type, F const& f) {
    visit_type<T...>(type, f);
  }
  /// For f that starts kernels: no device could call it.
  template <class F>
  static void visit_on_host(Scalar type, F const& f) {
    static_cast<void>(((type == scalar_of<T> && (f(ElementTag<T>{}), true)) || ...));
  }
};

/// A value as it is stored in an output: 8-bit types saturate.
template <class T, class Value>
KOKKOS_FORCEINLINE_FUNCTION T stored(Value value) {
  if constexpr (std::is_same_v<T, std::int8_t>) {
    // Clamped, the sum with 1.5 2^23 keeps no fraction bits: rounded to nearest even. NaN gives 0.
    Value const clamped =
        value > Value(127) ? Value(127) : (value >= Value(-127) ? value : Value(value == value ? -127 : 0));
    return static_cast<T>((static_cast<float>(clamped) + 12582912.0f) - 12582912.0f);
  } else if constexpr (sizeof(T) == 1) {
    return T::saturate(value);
  } else {
    return static_cast<T>(value);
  }
}

/// to[i] = stored<T>(from[i]), for a thread that has many neighbours to itself. The two do not overlap.
template <class T, class Value>
KOKKOS_FORCEINLINE_FUNCTION void store_neighbours(Value const* from, int n, T* to) {
  if constexpr (std::is_same_v<Value, float> && sizeof(T) < sizeof(float))
    if (RoundStrip const round = strip_rounding<T>(sizeof(T) == 1); round != nullptr) return round(from, n, to);
  for (int i = 0; i < n; ++i) to[i] = stored<T>(from[i]);
}

}  // namespace tessera::detail

#endif
