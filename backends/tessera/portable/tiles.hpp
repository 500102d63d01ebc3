// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PORTABLE_TILES_HPP
#define TESSERA_PORTABLE_TILES_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/detail/matrix.hpp>

// Tiles in team scratch, and how the threads of a team fill them from a matrix.
namespace tessera::detail::portable {

/// A tile with the contracted index outermost: every k holds its rows side by side. The extra column keeps transposing
/// writes free of bank conflicts.
template <class Compute, int Rows, int K, bool Host>
struct PanelTile {
  static constexpr int pitch = Host ? Rows : Rows + 1;
  Compute v[K][pitch];
  KOKKOS_FORCEINLINE_FUNCTION Compute& at(int row, int k) { return v[k][row]; }
};

/// A tile with the contracted index innermost, in lines of 16-byte packs: for threads that hold few rows and read them
/// four or two k at a time.
template <class Compute, int Rows, int K>
struct alignas(16) LineTile {
  static constexpr int pack = 16 / static_cast<int>(sizeof(Compute)), pitch = K + pack;
  struct alignas(16) Pack {
    Compute v[pack];
  };
  Compute v[Rows][pitch];
  KOKKOS_FORCEINLINE_FUNCTION Compute& at(int row, int k) { return v[row][k]; }
  KOKKOS_FORCEINLINE_FUNCTION Pack const& pack_at(int row, int k) const {
    return *reinterpret_cast<Pack const*>(&v[row][k]);
  }
};

/// A tile as it lies in memory: K rows of Cols.
template <class Compute, int K, int Cols>
struct RowTile {
  Compute v[K][Cols];
  KOKKOS_FORCEINLINE_FUNCTION Compute& at(int k, int col) { return v[k][col]; }
};

/// Walks a tile of Long x Short elements, `Threads` threads side by side along Short: f(long, short). Where the threads
/// are whole lines, a thread stays in its column and needs no division an element.
template <int Long, int Short, int Threads, class F>
KOKKOS_FORCEINLINE_FUNCTION void share_out(int thread, F const& f) {
  if constexpr (Threads % Short == 0) {
    int const s = thread % Short;
    for (int l = thread / Short; l < Long; l += Threads / Short) f(l, s);
  } else {
    for (int e = thread; e < Long * Short; e += Threads) f(e / Short, e % Short);
  }
}

/// Fills R x C elements from (row, col) of a matrix; rows from row_end and columns outside the matrix become zero.
/// `Threads` threads lie side by side along the contiguous index.
template <class Compute, int R, int C, int Threads, class Tile>
KOKKOS_INLINE_FUNCTION void fill(MatrixStack const& m, Plane plane, std::int64_t row, std::int64_t col,
                                 std::int64_t row_end, Tile& tile, int thread) {
  auto const held = [](std::int64_t rest, int extent) { return static_cast<int>(rest < extent ? rest : extent); };
  int const rows = held(row_end - row, R), cols = held(m.cols - col, C);
  visit_scalar<Compute>(m.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T const* const from = static_cast<T const*>(m.data) + m.offset(plane, row, col);
    if (m.row_stride == 1 && m.col_stride != 1)
      share_out<C, R, Threads>(thread, [&](int c, int r) {
        tile.at(r, c) = r < rows && c < cols ? Compute(from[r + c * m.col_stride]) : Compute(0);
      });
    else
      share_out<R, C, Threads>(thread, [&](int r, int c) {
        tile.at(r, c) = r < rows && c < cols ? Compute(from[r * m.row_stride + c * m.col_stride]) : Compute(0);
      });
  });
}

/// The same from a row of a sequence whose rows lie in pages.
template <class Compute, int R, int C, int Threads, class Tile>
KOKKOS_INLINE_FUNCTION void fill_from_pages(MatrixStack const& m, PagedRows const& pages, std::int64_t row,
                                            std::int64_t col, std::int64_t row_end, Tile& tile, int thread) {
  std::int64_t const rows = row_end - row, cols = m.cols - col;
  visit_scalar<Compute>(m.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    share_out<R, C, Threads>(thread, [&](int r, int c) {
      bool const inside = r < rows && c < cols;
      tile.at(r, c) =
          inside
              ? Compute(static_cast<T const*>(m.data)[m.offset(pages.plane(row + r), pages.in_page(row + r), col + c)])
              : Compute(0);
    });
  });
}

}  // namespace tessera::detail::portable

#endif
