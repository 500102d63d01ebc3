// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_ATOMS_HPP
#define TESSERA_OPENMP_ATOMS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/atoms.hpp>
#include <tessera/flags.hpp>
#include <tessera/openmp/core_math.hpp>
#include <tessera/openmp/micro_kernel.hpp>
#include <tessera/openmp/packed_factors.hpp>
#include <tessera/openmp/panel_products.hpp>
#include <tessera/openmp/panels.hpp>
#include <tessera/openmp/tile_panels.hpp>
#include <tessera/portable/atoms.hpp>
#include <tessera/vector_units.hpp>

// Atoms for one core: tiles are packed into panels that the micro-kernel streams through, accumulators live in team
// scratch. Layouts are absorbed by the packing. They serve every host execution space; a team is one thread.
namespace tessera::detail::openmp {

using portable::aligned;

/// bf16 and int8 as micro-kernels for words have them.
template <class Element>
using WordKernelOf = std::conditional_t<std::is_same_v<Element, std::int8_t>, Int8Kernel, Bf16Kernel>;

/// Whether factors of these types are multiplied as Element, without widening them to the type of the sum.
template <class Element>
bool multiplies_words(Scalar a, Scalar b) {
  auto const fits = [](Scalar type) {
    return std::is_same_v<Element, std::int8_t> ? type == Scalar::int8
                                                : type == Scalar::bf16 || type == Scalar::e4m3 || type == Scalar::e5m2;
  };
  return fits(a) && fits(b) && word_kernel<WordKernelOf<Element>>() != nullptr;
}

/// Panels are of the accumulator's type, or of a narrower Element where a micro-kernel multiplies words of it. With
/// PackedBefore they are not packed for each tile: factors are matrices of panels, which pack_part() fills, Wide ones
/// where the micro-kernel has any.
template <class Exec, class Compute_, class Sizes, class Element = Compute_, bool PackedBefore = false,
          bool Wide = false>
struct Atoms : Sizes {
  using Compute = Compute_;
  using Factor = Element;
  using Space = Exec;
  static constexpr bool by_words = !std::is_same_v<Element, Compute>;
  static constexpr int MR = by_words ? word_panel
                            : Wide   ? wide_rows
                                     : panel_rows,
                       NR = by_words ? word_panel
                            : Wide   ? wide_cols<Compute>
                                     : panel_cols<Compute>;
  static constexpr int team_threads = 32;  // one core: launch folds a team of any size into it
  static constexpr int teams_at_once = 1;
  static constexpr bool clips_rows = true;
  static constexpr bool sizes_tiles = true;  // a tile may have fewer rows and columns than its type

  using Source = std::conditional_t<PackedBefore, PackedMatrix, MatrixStack>;
  using Target = MatrixStack;
  template <class Tile>
  static Source source(MatrixStack const& m, int = 1) {
    if constexpr (PackedBefore)
      return {static_cast<char const*>(m.data), m.rows, m.cols};
    else
      return m;
  }
  template <class Tile>
  static Target target(MatrixStack const& m) {
    return m;
  }

  static constexpr int a_line = line_bytes / static_cast<int>(sizeof(Element));
  template <bool IsLeft, int Rows, int K, int Width>
  using InputPanels = std::conditional_t<
      PackedBefore,
      std::conditional_t<by_words, PackedWordPanels<IsLeft, Element, Rows, K>,
                         PackedPanels<IsLeft, Compute, Rows, K, Width>>,
      std::conditional_t<by_words, WordPanelsOrMatrix<Element, Rows, K>, Panels<Compute, Rows, K, Width>>>;
  template <int M, int K>
  struct Left : InputPanels<true, M, K, MR> {};  // (M,K)
  template <int N, int K>
  struct Right : InputPanels<false, N, K, NR> {};  // (N,K)
  template <int K, int N>
  struct RightTransposed : Panels<Compute, N, K, NR> {};  // (K,N)

  /// Factors of products along either index: those that are multiplied along both are packed for both.
  template <int R, int C>
  struct LeftEither : Left<R, C> {};  // (R,C)
  template <int R, int C>
  struct RightEither {  // (R,C)
    Right<R, C> along;
    RightTransposed<R, C> across;
  };

  /// The instruction set of the micro-kernel, and the clocks of a step of k of a panel times a panel.
  static char const* instructions() {
    return instruction_set<std::conditional_t<by_words, WordKernelOf<Element>, Compute>>();
  }
  static double step_clocks() {
    if constexpr (by_words)
      return words_kernel().step_clocks;
    else
      return Wide ? 24.6 : 13;
  }
  /// Whether tiles of a left factor are not packed, but for those at its ends.
  static bool reads_in_place(MatrixStack const& m) requires(by_words && !PackedBefore) {
    return reads_words_in_place<Element>(words_kernel(), m);
  }
  static auto const& words_kernel() {
    static auto const* const kernel = word_kernel<WordKernelOf<Element>>();
    return *kernel;
  }

  /// What packing a matrix for tiles of this type takes beside bytes, in parts that cores share.
  template <class Tile>
  static std::int64_t packing_parts(MatrixStack const& m) {
    return openmp::packing_parts<Tile>(m);
  }
  template <class Tile>
  static void pack_part(MatrixStack const& m, std::int64_t part, char* to) {
    openmp::pack_part<Tile>(m, part, to, [&](char const* from, int rows, int k, bool more, char* panel) {
      if constexpr (by_words)
        pack_word_rows<Tile::step, Element>(words_kernel(), Tile::left, m, from, rows, k, panel);
      else
        pack_rows<Tile::step, Tile::width>(m, from, rows, k, more, reinterpret_cast<Compute*>(panel));
    });
  }

  struct Math;

  template <int M, int N>
  struct Accumulator {
    using Panel = Compute[panels(M, MR) * MR][NR];
    static constexpr std::size_t scratch_bytes = aligned(sizeof(Panel) * panels(N, NR));
    Panel* v;
    int rows = M, cols = N;  // what the tile at the edge holds
    explicit Accumulator(Math& math) : v(static_cast<Panel*>(math.take(scratch_bytes))) {}
  };

  template <int M, class T = Compute>
  struct RowValues {
    static constexpr std::size_t scratch_bytes = 0;
    T v[M];
    explicit RowValues(Math&, T start = {}) { std::fill(v, v + M, start); }
  };

  template <int M, int N, class F>
  using Flags = F;
  template <int M, int K>
  struct Rounded {
    using Tile = Left<M, K>;
    static constexpr std::size_t scratch_bytes = aligned(sizeof(Tile));
    Tile* tile;
    explicit Rounded(Math& math) : tile(static_cast<Tile*>(math.take(scratch_bytes))) {}
  };

  struct Copy {
    int thread;
    template <int M, int K>
    void operator()(Source const& m, Plane p, std::int64_t row, std::int64_t col, Left<M, K>& to) const {
      (*this)(m, p, row, col, to, m.rows);
    }
    template <int N, int K>
    void operator()(Source const& m, Plane p, std::int64_t row, std::int64_t col, Right<N, K>& to) const {
      (*this)(m, p, row, col, to, m.rows);
    }
    /// Of a tile that ends at row_end.
    template <int M, int K>
    void operator()(Source const& m, Plane p, std::int64_t row, std::int64_t col, Left<M, K>& to,
                    std::int64_t row_end) const {
      if constexpr (PackedBefore)
        find_tile(m, row, col, std::min(row_end, m.rows), to);
      else if constexpr (by_words)
        pack_word_tile<Element>(words_kernel(), true, m, p, row, col, std::min(row_end, m.rows), to);
      else
        pack_tile<M, K, MR, Compute>(m, p, row, col, std::min(row_end, m.rows), to);
    }
    template <int N, int K>
    void operator()(Source const& m, Plane p, std::int64_t row, std::int64_t col, Right<N, K>& to,
                    std::int64_t row_end) const {
      if constexpr (PackedBefore)
        find_tile(m, row, col, std::min(row_end, m.rows), to);
      else if constexpr (by_words)
        pack_word_tile<Element>(words_kernel(), false, m, p, row, col, std::min(row_end, m.rows), to);
      else
        pack_tile<N, K, NR, Compute>(m, p, row, col, std::min(row_end, m.rows), to);
    }
    /// Rows from row_end on become zero.
    template <int K, int N>
    void operator()(Source const& m, Plane p, std::int64_t row, std::int64_t col, RightTransposed<K, N>& to,
                    std::int64_t row_end) const {
      MatrixStack t = m.transposed();
      t.cols = std::min(row_end, m.rows);
      pack_tile<N, K, NR, Compute>(t, p, col, row, t.rows, to);
    }
    template <int R, int C>
    void operator()(Source const& m, Plane p, std::int64_t row, std::int64_t col, RightEither<R, C>& to) const {
      (*this)(m, p, row, col, to, m.rows);
    }
    /// Of a tile that ends at row_end.
    template <int R, int C>
    void operator()(Source const& m, Plane p, std::int64_t row, std::int64_t col, RightEither<R, C>& to,
                    std::int64_t row_end) const {
      (*this)(m, p, row, col, to.along, row_end);
      (*this)(m, p, row, col, to.across, row_end);
    }
    /// Numbers side by side.
    template <int N>
    void values(Compute const* from, Compute (&to)[N]) const {
      std::copy(from, from + N, to);
    }
  };

  struct Math : CoreMath<Exec> {
    template <int M, int N, int K>
    void multiply(Left<M, K> const& a, Right<N, K> const& b, Accumulator<M, N>& acc, bool add) const {
      product(a, b, acc, add);
    }
    /// Whether products are written from micro-kernels: as these leave them, or rounded a few rows at a time.
    static bool multiplies_into(Target const& m, bool add) {
      if constexpr (by_words) {
        return words_kernel().reads_rows && m.col_stride == 1 && !add;
      } else {
        static bool const can = strided_kernel<Compute>() != nullptr;
        return can && m.type == scalar_of<Compute> && m.col_stride == 1;
      }
    }
    /// Without an accumulator: C = a bᵀ, or C += it.
    template <int M, int N, int K>
    void multiply_into(Left<M, K> const& a, Right<N, K> const& b, Target const& m, Plane p, std::int64_t row0,
                       std::int64_t col0, bool add) const {
      if constexpr (by_words)
        word_product_into<M, N, Element>(words_kernel(), a, b, reinterpret_cast<Compute*>(this->scratch), m, p, row0,
                                         col0);
      else
        PanelProducts<Compute, MR, NR, Wide>::in_place(
            a, b, static_cast<Compute*>(const_cast<void*>(m.data)) + m.offset(p, row0, col0), m.row_stride, add);
    }
    template <int M, int N, int K>
    void multiply(Rounded<M, K> const& a, RightTransposed<K, N> const& b, Accumulator<M, N>& acc, bool add) const {
      product(*a.tile, b, acc, add);
    }
    template <int M, int N, int K>
    void multiply(Left<M, K> const& a, RightEither<N, K> const& b, Accumulator<M, N>& acc, bool add) const {
      product(a, b.along, acc, add);
    }
    /// Across: the rows of b are contracted.
    template <int M, int N, int K>
    void multiply(Rounded<M, K> const& a, RightEither<K, N> const& b, Accumulator<M, N>& acc, bool add) const {
      product(*a.tile, b.across, acc, add);
    }

    template <int M, int N>
    void clear(Accumulator<M, N>& acc) const {
      acc.rows = M;
      acc.cols = N;
      std::fill_n(&acc.v[0][0][0], panels(N, NR) * panels(M, MR) * MR * NR, Compute(0));
    }
    /// acc = the sum of neighbouring planes of Compute, contiguous along their columns, in their order.
    template <int M, int N>
    void sum_of_planes(Source const& m, std::int64_t first, int planes, std::int64_t row, std::int64_t col,
                       Accumulator<M, N>& acc) const {
      clear(acc);
      acc.rows = static_cast<int>(std::min<std::int64_t>(M, m.rows - row));
      acc.cols = static_cast<int>(std::min<std::int64_t>(N, m.cols - col));
      Compute const* const from = static_cast<Compute const*>(m.data) + m.offset({0, first}, row, col);
      on_panels<add_planes>(acc, Planes{from, m.row_stride, m.inner_stride, planes});
    }
    template <int M, int N, class F>
    void for_each(Accumulator<M, N>& acc, F const& f) const {
      on_panels<elements<F>>(acc, f);
    }
    template <int M, int N, class F>
    void for_each_with(Accumulator<M, N>& acc, RowValues<M> const& rows, F const& f) const {
      on_panels<elements_with<F>>(acc, rows.v, f);
    }
    /// Values of columns, as for_each_with_column() and for_each_of_two() take them.
    template <int N>
    auto const& columns(Compute const (&cols)[N]) const {
      return cols;
    }
    template <int M, int N, class F>
    void for_each_with_column(Accumulator<M, N>& acc, Compute const (&cols)[N], F const& f) const {
      each_panel(acc, [&](Compute(&row)[NR], int, int col, int n) {
        for (int c = 0; c < n; ++c) f(row[c], cols[col + c]);
      });
    }
    template <int M, int N, class F>
    void for_each_placed(Accumulator<M, N>& acc, RowValues<M> const& rows, F const& f) const {
      each_panel(acc, [&](Compute(&row)[NR], int i, int col, int n) {
        for (int c = 0; c < n; ++c) f(row[c], rows.v[i], i, col + c);
      });
    }
    template <int M, int N, class Flags, class F>
    void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other, Compute const (&cols)[N],
                         Flags const& flags, F const& f) const {
      each_panel(acc, [&](Compute(&row)[NR], int i, int col, int n) {
        Compute const* const others = other.v[col / NR][i];
        for (int c = 0; c < n; ++c) f(row[c], others[c], cols[col + c], flag_at(flags, i, col + c));
      });
    }
    template <int M, int N, class Flags, class F>
    void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other, RowValues<M> const& rows,
                         Flags const& flags, F const& f) const {
      each_panel(acc, [&](Compute(&row)[NR], int i, int col, int n) {
        Compute const* const others = other.v[col / NR][i];
        for (int c = 0; c < n; ++c) f(row[c], others[c], rows.v[i], flag_at(flags, i, col + c));
      });
    }
    template <int M, int N, class F>
    void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other, Compute const (&cols)[N],
                         F const& f) const {
      each_panel(acc, [&](Compute(&row)[NR], int i, int col, int n) {
        Compute const* const others = other.v[col / NR][i];
        for (int c = 0; c < n; ++c) f(row[c], others[c], cols[col + c]);
      });
    }
    template <int M, int N, class F>
    void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other, RowValues<M> const& rows,
                         F const& f) const {
      each_panel(acc, [&](Compute(&row)[NR], int i, int col, int n) {
        Compute const* const others = other.v[col / NR][i];
        Compute const value = rows.v[i];
        for (int c = 0; c < n; ++c) f(row[c], others[c], value);
      });
    }
    template <class F, int M, class... Rows>
    void for_rows(F const& f, RowValues<M>& first, Rows&... rest) const {
      for (int i = 0; i < M; ++i) f(first.v[i], rest.v[i]...);
    }
    template <int, int M, int N>
    void add_scaled(Accumulator<M, N> const& from, RowValues<M> const& rows, Compute const* cols,
                    Accumulator<M, N>& to) const {
      to.rows = from.rows;
      to.cols = from.cols;
      each_panel(to, [&](Compute(&sums)[NR], int i, int col, int n) {
        Compute const* const part = from.v[col / NR][i];
        for (int c = 0; c < n; ++c) sums[c] += part[c] * rows.v[i] * cols[(col + c) / 64];
      });
    }
    template <int M, class T, class F>
    void each_row(RowValues<M, T>& rows, F const& f) const {
      for (int i = 0; i < M; ++i) f(rows.v[i], i);
    }
    template <int M, class F>
    void once_per_row(RowValues<M> const& rows, F const& f) const {
      for (int i = 0; i < M; ++i) f(rows.v[i], i);
    }
    template <int M, int N>
    void row_add_partial(Accumulator<M, N>& acc, RowValues<M>& rows) const {
      each_panel(acc, [&](Compute(&row)[NR], int i, int, int n) {
        for (int c = 0; c < n; ++c) rows.v[i] += row[c];
      });
    }
    template <int M>
    void row_combine(RowValues<M>&) const {}  // one thread has whole rows

    template <int M, int K>
    void round(Accumulator<M, K>& from, Rounded<M, K>& to) const {
      round_by(from, to, [](Compute& x, int, int) { return x; });
    }
    template <int M, int K, class Flags>
    void round(Accumulator<M, K>& from, Flags const& flags, Rounded<M, K>& to) const {
      round_by(from, to, [&](Compute& x, int r, int c) { return flag_at(flags, r, c) ? x : Compute(0); });
    }
    template <int M, int K, class Flags, class F>
    void round_each(Accumulator<M, K>& from, Compute const (&cols)[K], Flags const& flags, Rounded<M, K>& to,
                    F const& f) const {
      round_by(from, to, [&](Compute& x, int r, int c) { return f(x, cols[c], r, c, flag_at(flags, r, c)); });
    }

    template <int M, int N>
    void store(Accumulator<M, N>& acc, Target const& m, Plane p, std::int64_t row0, std::int64_t col0) const {
      store(acc, m, p, row0, col0, m.rows);
    }
    template <int M, int N>
    void store(Accumulator<M, N>& acc, Target const& m, Plane p, std::int64_t row0, std::int64_t col0,
               std::int64_t row_end) const {
      std::int64_t const size = static_cast<std::int64_t>(size_of(m.type));
      char* const to = static_cast<char*>(const_cast<void*>(m.data)) + m.offset(p, row0, col0) * size;
      int const rows = static_cast<int>(std::min<std::int64_t>(acc.rows, row_end - row0)),
                cols = static_cast<int>(std::min<std::int64_t>(acc.cols, m.cols - col0));
      // A few rows of all panels before the next: of more, each line of C is in another page than the one before.
      int const together = m.col_stride == 1 ? MR : M;
      for (int i = 0; i < rows; i += together)
        for (int j = 0; j * NR < cols; ++j)
          store_panel(m.type, acc.v[j][i], NR, std::min(together, rows - i), std::min(NR, cols - j * NR),
                      to + (i * m.row_stride + j * NR * m.col_stride) * size, m.row_stride, m.col_stride);
    }

   private:
    /// to = f(element, row, column)
    template <int M, int K, class F>
    void round_by(Accumulator<M, K>& from, Rounded<M, K>& to, F const& f) const {
      to.tile->matrix = nullptr;
      to.tile->rows = from.rows;
      to.tile->k = from.cols;
      each_panel(from, [&](Compute(&row)[NR], int i, int col, int n) {
        for (int c = 0; c < n; ++c) to.tile->v[i / MR][col + c][i % MR] = f(row[c], i, col + c);
      });
      for (int i = from.rows; i % MR != 0; ++i)
        for (int c = 0; c < from.cols; ++c) to.tile->v[i / MR][c][i % MR] = 0;
    }
    /// The elements of a panel that a tile has: rows of NR from `first` on, of which n count, of columns from `col` on.
    struct PanelPart {
      Compute* first;
      int rows, col, n;
    };
    /// F(part, more...) for each panel, for the vector units at hand.
    template <auto F, int M, int N, class... More>
    static void on_panels(Accumulator<M, N>& acc, More&&... more) {
      static auto const run = for_vector_units<F>();
      for (int j = 0; j * NR < acc.cols; ++j)
        run(PanelPart{&acc.v[j][0][0], acc.rows, j * NR, std::min(NR, acc.cols - j * NR)}, more...);
    }
    struct Planes {
      Compute const* from;
      std::int64_t row_stride, plane_stride;
      int count;
    };
    static void add_planes(PanelPart p, Planes const& planes) {
      for (int i = 0; i < p.rows; ++i) {
        Compute* const sums = p.first + i * NR;
        Compute const* row = planes.from + i * planes.row_stride + p.col;
        for (int plane = 0; plane < planes.count; ++plane, row += planes.plane_stride)
          for (int c = 0; c < p.n; ++c) sums[c] += row[c];
      }
    }
    template <class F>
    static void elements(PanelPart p, F const& f) {
      for (int i = 0; i < p.rows; ++i)
        for (int c = 0; c < p.n; ++c) f(p.first[i * NR + c], i, p.col + c);
    }
    template <class F>
    static void elements_with(PanelPart p, Compute const* values, F const& f) {
      for (int i = 0; i < p.rows; ++i) {
        Compute const value = values[i];
        Compute* const row = p.first + i * NR;
        if (p.n == NR)
          for (int c = 0; c < NR; ++c) f(row[c], value);
        else
          for (int c = 0; c < p.n; ++c) f(row[c], value);
      }
    }
    /// f(elements of one row in one panel, row, first column, how many)
    template <int M, int N, class F>
    static void each_panel(Accumulator<M, N>& acc, F const& f) {
      for (int j = 0; j * NR < acc.cols; ++j)
        for (int i = 0; i < acc.rows; ++i) f(acc.v[j][i], i, j * NR, std::min(NR, acc.cols - j * NR));
    }
    template <class A, class B, int M, int N>
    static void product(A const& a, B const& b, Accumulator<M, N>& acc, bool add) {
      acc.rows = a.rows;
      acc.cols = b.rows;
      if constexpr (by_words) {
        constexpr std::int64_t sums_a_panel = sizeof(typename Accumulator<M, N>::Panel) / sizeof(Compute);
        words_kernel().multiply(word_product<Element>(a, b, 0, &acc.v[0][0][0], sums_a_panel, add));
      } else {
        PanelProducts<Compute, MR, NR, Wide>::in_panels(a, b, acc.v, add);
      }
    }
  };
};

}  // namespace tessera::detail::openmp

#endif
