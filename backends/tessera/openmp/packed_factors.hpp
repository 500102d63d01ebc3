// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_PACKED_FACTORS_HPP
#define TESSERA_OPENMP_PACKED_FACTORS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/detail/matrix.hpp>
#include <tessera/openmp/micro_kernel.hpp>
#include <tessera/openmp/tile_panels.hpp>

// Factors that are packed once for all tiles: matrices of panels, which tiles point into.
namespace tessera::detail::openmp {

/// Panels of a tile where a whole matrix was packed before: those of all of its rows, a step of K after the other.
template <bool IsLeft, class Compute, int Rows, int K, int Width>
struct PackedPanels {
  static constexpr bool left = IsLeft;
  static constexpr int most_rows = Rows, step = K, width = Width, k_held = K + 1;
  using Panel = Compute[k_held][Width];
  Panel const* v;
  Panel const* next;  // those of the next step; nullptr: there is none
  int rows, k;
  // Never read in place.
  static constexpr Compute const* matrix = nullptr;
  static constexpr std::int64_t row_stride = 0, k_stride = 0;
};
template <bool IsLeft, class Element, int Rows, int K>
struct PackedWordPanels {
  static constexpr bool left = IsLeft;
  static constexpr int most_rows = Rows, step = K, width = word_panel;
  using Panel = char[K / WordPanels<Element, Rows, K>::a_line][line_panel_bytes];
  Panel const* v;
  int rows, k;
};
/// The matrix of such panels: at a line of the cache, rows x cols elements.
struct PackedMatrix {
  char const* data = nullptr;
  std::int64_t rows = 0, cols = 0;
};
template <class Tile>
std::int64_t packed_panels(std::int64_t rows) {
  return (rows + Tile::width - 1) / Tile::width;
}
template <class Tile>
std::size_t packed_bytes(MatrixStack const& m) {
  std::int64_t const steps = (m.cols + Tile::step - 1) / Tile::step;
  return static_cast<std::size_t>(packed_panels<Tile>(m.rows) * steps) * sizeof(typename Tile::Panel);
}
/// The rows before row_end of a tile from (row, col) on, which is where a panel and a step begin.
template <class Tile>
void find_tile(PackedMatrix const& m, std::int64_t row, std::int64_t col, std::int64_t row_end, Tile& to) {
  to.rows = static_cast<int>(std::clamp<std::int64_t>(row_end - row, 0, Tile::most_rows));
  to.k = static_cast<int>(std::clamp<std::int64_t>(m.cols - col, 0, Tile::step));
  to.v = reinterpret_cast<typename Tile::Panel const*>(m.data) + col / Tile::step * packed_panels<Tile>(m.rows) +
         row / Tile::width;
  if constexpr (requires { to.next; })
    to.next = col + Tile::step < m.cols ? to.v + packed_panels<Tile>(m.rows) : nullptr;
}

/// The lines of part `part` of `parts` of a panel, if there is that panel: one row of them.
template <bool IsLeft, class Compute, int Rows, int K, int Width>
LinesAhead lines_of_panel(PackedPanels<IsLeft, Compute, Rows, K, Width> const& a, int panel, int part, int parts) {
  if (panel * Width >= a.rows) return {};
  int const lines = a.k * Width * static_cast<int>(sizeof(Compute)) / 64, first = lines * part / parts;
  return {reinterpret_cast<char const*>(a.v + panel) + 64 * first, 0, 1, lines * (part + 1) / parts - first};
}

/// A matrix is packed in parts that cores share: neighbours in memory together. Where rows are contiguous along K, a
/// part has all of it, and what comes next is on its way.
struct PackingPart {
  int rows;
  std::int64_t steps;
};
template <class Tile>
PackingPart packing_part(MatrixStack const& m) {
  constexpr int along = 2, across = 8;  // panels
  if (m.col_stride == 1)
    return {along * Tile::width, std::max<std::int64_t>((m.cols + Tile::step - 1) / Tile::step, 1)};
  return {across * Tile::width, 1};
}
template <class Tile>
std::int64_t packing_parts(MatrixStack const& m) {
  auto const [rows, steps] = packing_part<Tile>(m);
  return ((m.rows + rows - 1) / rows) * (((m.cols + Tile::step - 1) / Tile::step + steps - 1) / steps);
}
/// Packs a part of m into panels at `to`: pack(first element, rows, k, whether more k follow, first panel) of each step
/// of K.
template <class Tile, class Pack>
void pack_part(MatrixStack const& m, std::int64_t part, char* to, Pack const& pack) {
  auto const [rows, steps] = packing_part<Tile>(m);
  std::int64_t const groups = (m.rows + rows - 1) / rows, first = part % groups * rows, begin = part / groups * steps,
                     end = std::min<std::int64_t>(begin + steps, (m.cols + Tile::step - 1) / Tile::step);
  int const held = static_cast<int>(std::min<std::int64_t>(rows, m.rows - first));
  std::int64_t const panels = packed_panels<Tile>(m.rows), size = static_cast<std::int64_t>(size_of(m.type));
  for (std::int64_t s = begin; s < end; ++s) {
    std::int64_t const col = s * Tile::step;
    int const k = static_cast<int>(std::min<std::int64_t>(Tile::step, m.cols - col));
    char const* const from = static_cast<char const*>(m.data) + m.offset({}, first, col) * size;
    char* const panel =
        to + (s * panels + first / Tile::width) * static_cast<std::int64_t>(sizeof(typename Tile::Panel));
    pack(from, held, k, s + 1 < end, panel);
  }
}

}  // namespace tessera::detail::openmp

#endif
