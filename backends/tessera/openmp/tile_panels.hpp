// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_TILE_PANELS_HPP
#define TESSERA_OPENMP_TILE_PANELS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/detail/matrix.hpp>
#include <tessera/openmp/micro_kernel.hpp>
#include <tessera/openmp/panels.hpp>

// Tiles of a matrix as the panels that micro-kernels take.
namespace tessera::detail::openmp {

constexpr int panels(int extent, int width) { return (extent + width - 1) / width; }

/// Panels of `Width` rows; within a panel every k holds its rows side by side. `rows` and `k` are what the tile holds.
template <class Compute, int Rows, int K, int Width>
struct Panels {
  /// One more than is used, so that what is written side by side does not lie a power of two apart, in the same lines
  /// of a cache.
  static constexpr int k_held = K + 1;
  alignas(64) Compute v[panels(Rows, Width)][k_held][Width];
  int rows, k;
  // Where the micro-kernel reads the matrix itself: element (0, 0), and nothing is packed. nullptr: it does not.
  Compute const* matrix;
  std::int64_t row_stride, k_stride;
};

/// The same of words, a line of all rows after the other. Always packed.
template <class Element, int Rows, int K>
struct WordPanels {
  static constexpr int a_line = line_bytes / static_cast<int>(sizeof(Element)), most_rows = Rows, step = K;
  static_assert(K % a_line == 0);
  alignas(64) char v[panels(Rows, word_panel)][K / a_line][line_panel_bytes];
  int rows, k;
};
/// For products that let the micro-kernel read a left factor from the matrix.
template <class Element, int Rows, int K>
struct WordPanelsOrMatrix : WordPanels<Element, Rows, K> {
  // Where it does: row 0, and bytes from one to the next. nullptr: it does not, and panels are packed.
  char const* matrix;
  std::int64_t row_bytes;
};

/// The lines of rows of a matrix.
template <class Compute>
LinesAhead lines_of(Compute const* from, std::int64_t stride, int rows, int length) {
  constexpr int line = 64, size = static_cast<int>(sizeof(Compute));
  auto const* const first = reinterpret_cast<char const*>(from);
  auto const into = static_cast<int>(reinterpret_cast<std::uintptr_t>(first) % line);
  return {first, stride * size, std::max(rows, 0), (into + length * size + line - 1) / line};
}
/// Those of part `part` of `parts` of a panel that the micro-kernel reads from the matrix, if there is that panel.
template <class Compute, int Rows, int K, int Width>
LinesAhead lines_of_panel(Panels<Compute, Rows, K, Width> const& a, int panel, int part, int parts) {
  if (a.matrix == nullptr || panel * Width >= a.rows) return {};
  Compute const* const from = a.matrix + panel * Width * a.row_stride;
  bool const across = a.row_stride == 1;
  int const rows = std::min(Width, a.rows - panel * Width), n = across ? a.k : rows;
  int const first = n * part / parts;
  std::int64_t const stride = across ? a.k_stride : a.row_stride;
  return lines_of(from + first * stride, stride, n * (part + 1) / parts - first, across ? rows : a.k);
}
inline void fetch(LinesAhead const& ahead) {
  for (int r = 0; r < ahead.rows; ++r)
    for (int l = 0; l < ahead.lines; ++l) __builtin_prefetch(ahead.from + r * ahead.row_bytes + 64 * l);
}

constexpr int few_rows = 128;  // of which a step is no more than a part of a second-level cache

/// Steps of K so short that they stay in the first-level cache from one panel to the next, unless strides are such that
/// their lines drive each other out of it: of eight that may lie at the same place of a page, half are used. Few rows
/// in longer steps too, where packing takes its time: there are often few columns then, which it does not pay for.
template <int Width, class Compute, int Rows, int K>
bool reads_in_place(MatrixStack const& m, Panels<Compute, Rows, K, Width> const& to) {
  static bool const can = strided_kernel<Compute>() != nullptr;
  static bool const packs_fast = panel_packing<Compute>() != nullptr;
  constexpr int short_step = 64, page = 4096, lines_at_a_place = 4;
  bool const across = m.row_stride == 1;  // else along K, in which right factors are packed
  bool const left_along = Width == panel_rows && m.col_stride == 1;
  bool const long_steps = m.cols <= K || (!packs_fast && to.rows <= few_rows);
  int const longest = left_along && !across && long_steps ? K : short_step;
  if (!can || m.type != scalar_of<Compute> || to.k > longest || !(across || left_along)) return false;
  auto const bytes = static_cast<std::uint64_t>((across ? m.col_stride : m.row_stride) * std::int64_t(sizeof(Compute)));
  auto const step = static_cast<int>(std::min<std::uint64_t>(bytes & (~bytes + 1), page));  // the power of 2 in it
  return step > 0 && (across ? to.k : std::min(panel_rows, to.rows)) * step <= page * lines_at_a_place;
}
template <int K, int Width, class Compute>
void pack_as_it_is(PanelPacking<Compute> const& packing, Compute const* from, MatrixStack const& m, int rows, int k,
                   bool more, Compute* to) {
  constexpr int panel = (K + 1) * Width;
  if (m.row_stride == 1) return packing.across(from, m.col_stride, rows, k, to, panel, Width);
  int const count = panels(rows, Width);
  for (int p = 0; p < count; ++p) {
    // The next panel is on its way or, of few rows, the next step, for which there is room beside this one.
    bool const step = rows <= few_rows || p + 1 == count;
    std::int64_t const ahead = !step              ? Width * m.row_stride
                               : !more            ? 0
                               : rows <= few_rows ? K
                                                  : K - p * Width * m.row_stride;
    packing.along(from + p * Width * m.row_stride, m.row_stride, std::min(Width, rows - p * Width), k, ahead,
                  to + p * panel, Width);
  }
}
/// The rows x k elements of m at `from` become panels of K; there may be more k behind them.
template <int K, int Width, class Compute>
void pack_rows(MatrixStack const& m, char const* from, int rows, int k, bool more, Compute* to) {
  constexpr int panel_elements = (K + 1) * Width;
  static PanelPacking<Compute> const* const packing = panel_packing<Compute>();
  if (m.type == scalar_of<Compute> && (m.row_stride == 1 || m.col_stride == 1))
    if (packing != nullptr)
      return pack_as_it_is<K, Width>(*packing, reinterpret_cast<Compute const*>(from), m, rows, k, more, to);
  if (m.row_stride == 1 && m.type == scalar_of<Compute>)
    return pack_panels_across<Compute, Width>(reinterpret_cast<Compute const*>(from), m.col_stride, rows, k, to,
                                              panel_elements);
  // Where the panel's rows are contiguous, a few k of all panels before the next: each is a line of memory.
  std::int64_t const size = static_cast<std::int64_t>(size_of(m.type));
  int const together = m.row_stride == 1 ? 16 : K;
  for (int k0 = 0; k0 < k; k0 += together)
    for (int panel = 0; panel * Width < rows; ++panel)
      pack_panel<Compute, Width>(m.type, from + (panel * Width * m.row_stride + k0 * m.col_stride) * size, m.row_stride,
                                 m.col_stride, std::min(Width, rows - panel * Width), std::min(together, k - k0),
                                 to + panel * panel_elements + k0 * Width);
}
/// The rows before row_end of a tile of Rows x K elements from (row, col) on. With `may_stay` the micro-kernel may read
/// them from the matrix.
template <int Rows, int K, int Width, class Compute>
void pack_tile(MatrixStack const& m, Plane p, std::int64_t row, std::int64_t col, std::int64_t row_end,
               Panels<Compute, Rows, K, Width>& to, bool may_stay = true) {
  to.rows = static_cast<int>(std::clamp<std::int64_t>(row_end - row, 0, Rows));
  to.k = static_cast<int>(std::clamp<std::int64_t>(m.cols - col, 0, K));
  std::int64_t const size = static_cast<std::int64_t>(size_of(m.type));
  char const* const from = static_cast<char const*>(m.data) + m.offset(p, row, col) * size;
  to.matrix = may_stay && reads_in_place(m, to) ? reinterpret_cast<Compute const*>(from) : nullptr;
  to.row_stride = m.row_stride;
  to.k_stride = m.col_stride;
  if (to.matrix != nullptr) return fetch(lines_of_panel(to, 0, 0, 1));
  pack_rows<K, Width>(m, from, to.rows, to.k, m.cols - col > K, &to.v[0][0][0]);
}
/// The same as words, for a left or a right factor.
template <int K, class Element, class Kernel>
void pack_word_rows(Kernel const& kernel, bool left, MatrixStack const& m, char const* from, int rows, int k,
                    char* to) {
  constexpr int a_line = line_bytes / static_cast<int>(sizeof(Element)), panel_bytes = K / a_line * line_panel_bytes;
  std::int64_t const size = static_cast<std::int64_t>(size_of(m.type));
  int const together = m.col_stride == 1 ? K : a_line;  // else a step of k is in another page
  for (int k0 = 0; k0 < k; k0 += together)
    for (int panel = 0; panel * word_panel < rows; ++panel)
      pack_words(kernel, left, m.type, from + (panel * word_panel * m.row_stride + k0 * m.col_stride) * size,
                 m.row_stride, m.col_stride, std::min(word_panel, rows - panel * word_panel),
                 std::min(together, k - k0), to + panel * panel_bytes + k0 / a_line * line_panel_bytes);
}
template <class Element>
inline constexpr Scalar word_scalar = std::is_same_v<Element, std::int8_t> ? Scalar::int8 : Scalar::bf16;
inline bool begins_line(char const* at) { return reinterpret_cast<std::uintptr_t>(at) % line_bytes == 0; }
/// Whether the micro-kernel reads tiles of a left factor where they lie: its rows are whole lines of the cache, so few
/// of a panel at the same place of a page that a second-level cache keeps all that a tile has.
template <class Element, class Kernel>
bool reads_words_in_place(Kernel const& kernel, MatrixStack const& m) {
  constexpr std::uint64_t page = 4096, lines_at_a_place = 16;
  auto const bytes = static_cast<std::uint64_t>(m.row_stride * std::int64_t(sizeof(Element)));
  std::uint64_t const step = std::min(bytes & (~bytes + 1), page);  // the power of 2 in it
  return kernel.reads_rows && m.type == word_scalar<Element> && m.col_stride == 1 && step >= line_bytes &&
         word_panel * step <= page * lines_at_a_place && begins_line(static_cast<char const*>(m.data));
}
/// The same of a tile. Of panels that may be the matrix those of a left factor are, where the micro-kernel reads it.
template <class Element, class Panels, class Kernel>
void pack_word_tile(Kernel const& kernel, bool left, MatrixStack const& m, Plane p, std::int64_t row, std::int64_t col,
                    std::int64_t row_end, Panels& to) {
  to.rows = static_cast<int>(std::clamp<std::int64_t>(row_end - row, 0, Panels::most_rows));
  to.k = static_cast<int>(std::clamp<std::int64_t>(m.cols - col, 0, Panels::step));
  char const* const from =
      static_cast<char const*>(m.data) + m.offset(p, row, col) * static_cast<std::int64_t>(size_of(m.type));
  if constexpr (requires { to.matrix; }) {
    bool const whole = to.rows % (word_panel / 2) == 0 && to.k % to.a_line == 0 && begins_line(from);
    to.matrix = left && whole && reads_words_in_place<Element>(kernel, m) ? from : nullptr;
    to.row_bytes = m.row_stride * std::int64_t(sizeof(Element));
    if (to.matrix != nullptr) return;
  }
  pack_word_rows<Panels::step, Element>(kernel, left, m, from, to.rows, to.k, &to.v[0][0][0]);
}

}  // namespace tessera::detail::openmp

#endif
