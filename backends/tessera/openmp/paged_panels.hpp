// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_PAGED_PANELS_HPP
#define TESSERA_OPENMP_PAGED_PANELS_HPP

#include <algorithm>
#include <cstdint>

#include <tessera/detail/matrix.hpp>
#include <tessera/openmp/micro_kernel.hpp>
#include <tessera/openmp/panels.hpp>
#include <tessera/openmp/tile_panels.hpp>

// Tiles of a sequence whose rows lie in pages, as panels: `along` has panels of its rows, `across` of its columns,
// where rows are contracted.
namespace tessera::detail::openmp {

/// Where an element of a row of a sequence lies.
inline char const* address(MatrixStack const& m, PagedRows const& pages, std::int64_t row, std::int64_t col) {
  return static_cast<char const*>(m.data) +
         m.offset(pages.plane(row), pages.in_page(row), col) * static_cast<std::int64_t>(size_of(m.type));
}

/// Row by row: a panel has rows of several pages.
template <int N, int K, int Width, class Compute>
void pack_pages_along(MatrixStack const& m, PagedRows const& pages, std::int64_t row, std::int64_t col, int rows, int k,
                      Panels<Compute, N, K, Width>& to) {
  to.matrix = nullptr;
  to.rows = rows;
  to.k = k;
  Compute line[K] = {};
  for (int r = 0; r < panels(rows, Width) * Width; ++r) {
    if (r < rows) pack_panel<Compute, 1>(m.type, address(m, pages, row + r, col), 0, m.col_stride, 1, k, line);
    for (int c = 0; c < k; ++c) to.v[r / Width][c][r % Width] = r < rows ? line[c] : Compute(0);
  }
}
/// Page by page.
template <int N, int K, int Width, class Compute>
void pack_pages_across(MatrixStack const& m, PagedRows const& pages, std::int64_t row, std::int64_t col, int rows,
                       int length, Panels<Compute, N, K, Width>& to) {
  to.matrix = nullptr;
  to.rows = rows;
  to.k = length;
  for (int k = 0, together = 0; k < length; k += together) {
    together = std::min(length - k, pages.table.rows - pages.in_page(row + k));
    for (int panel = 0; panel * Width < rows; ++panel)
      pack_panel<Compute, Width>(m.type, address(m, pages, row + k, col + panel * Width), m.col_stride, m.row_stride,
                                 std::min(Width, rows - panel * Width), together, &to.v[panel][k][0]);
  }
}
/// As many rows as a panel or a line of words has, put together from their pages.
template <int Length>
void gather_from_pages(MatrixStack const& m, PagedRows const& pages, std::int64_t row, std::int64_t col, int rows,
                       int length, std::uint16_t (&to)[word_panel][Length]) {
  for (int r = 0; r < rows; ++r) {
    auto const* const from = reinterpret_cast<std::uint16_t const*>(address(m, pages, row + r, col));
    for (int c = 0; c < length; ++c) to[r][c] = from[c * m.col_stride];
  }
}
template <int N, int K>
void pack_word_pages_along(Bf16Kernel const& kernel, MatrixStack const& m, PagedRows const& pages, std::int64_t row,
                           std::int64_t col, int rows, int k, WordPanels<std::uint16_t, N, K>& to) {
  to.rows = rows;
  to.k = k;
  std::uint16_t together[word_panel][K];
  for (int r = 0; r < rows; r += word_panel) {
    int const n = std::min(word_panel, rows - r);
    gather_from_pages(m, pages, row + r, col, n, k, together);
    pack_words(kernel, true, m.type, together, K, 1, n, k, to.v[r / word_panel]);
  }
}
template <int N, int K>
void pack_word_pages_across(Bf16Kernel const& kernel, MatrixStack const& m, PagedRows const& pages, std::int64_t row,
                            std::int64_t col, int rows, int length, WordPanels<std::uint16_t, N, K>& to) {
  constexpr int a_line = WordPanels<std::uint16_t, N, K>::a_line;
  static_assert(a_line == word_panel);
  to.rows = rows;
  to.k = length;
  std::uint16_t together[word_panel][N];
  for (int k = 0; k < length; k += a_line) {
    int const n = std::min(a_line, length - k);
    gather_from_pages(m, pages, row + k, col, n, rows, together);
    for (int panel = 0; panel * word_panel < rows; ++panel)
      pack_words(kernel, true, m.type, &together[0][panel * word_panel], 1, N,
                 std::min(word_panel, rows - panel * word_panel), n, to.v[panel][k / a_line]);
  }
}

}  // namespace tessera::detail::openmp

#endif
