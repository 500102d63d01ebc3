// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_COLUMN_ATOMS_HPP
#define TESSERA_OPENMP_COLUMN_ATOMS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/atoms.hpp>
#include <tessera/openmp/atoms.hpp>
#include <tessera/openmp/column_loops.hpp>
#include <tessera/openmp/core_math.hpp>
#include <tessera/openmp/paged_panels.hpp>
#include <tessera/openmp/tile_panels.hpp>

namespace tessera::detail::openmp {

/// A factor as panels of numbers, or as words, which is known where the program runs: those of bf16 where a
/// micro-kernel multiplies them.
template <class Compute, int Rows, int K, int Width>
struct EitherPanels {
  static_assert(std::is_same_v<Compute, float>);
  union {
    Panels<float, Rows, K, Width> numbers;
    WordPanels<std::uint16_t, Rows, K> words;
  };
  bool by_words;
};
template <int Rows, int K, int Width>
struct EitherPanels<double, Rows, K, Width> {
  Panels<double, Rows, K, Width> numbers;
  static constexpr bool by_words = false;
};

/// Atoms for one core and two products with work on rows between them. Accumulators lie by columns: a panel has the
/// elements of NR rows of a column side by side, then those of the next column. So what is done with rows is done with
/// vectors of them, no sum or maximum goes across a vector, and the first product's accumulators, once they are
/// rounded, are a factor of the second as they lie. Both products are formed transposed: what comes step by step is the
/// left factor of the micro-kernel, and what stays is the right one.
template <class Exec, class Compute_, class Sizes>
struct ColumnAtoms : Sizes {
  using Compute = Compute_;
  using Space = Exec;
  static constexpr int MR = panel_rows, NR = panel_cols<Compute>;
  static constexpr bool has_words = std::is_same_v<Compute, float>;
  static_assert(!has_words || NR == word_panel);
  static constexpr int team_threads = 32;  // one core: launch folds a team of any size into it
  static constexpr int teams_at_once = 1;
  static constexpr bool clips_rows = true, reads_pages = true;

  using Source = MatrixStack;
  using Target = MatrixStack;
  template <class Tile>
  static Source source(MatrixStack const& m, int = 1) {
    return m;
  }
  template <class Tile>
  static Source paged_source(MatrixStack const& m) {
    return m;
  }
  template <class Tile>
  static Target target(MatrixStack const& m) {
    return m;
  }

  template <int M, int K>
  struct Left : EitherPanels<Compute, M, K, NR> {};  // (M,K)
  template <int N, int K>
  struct Right : EitherPanels<Compute, N, K, MR> {};  // (N,K)
  template <int K, int N>
  struct RightTransposed : EitherPanels<Compute, N, K, MR> {};  // (K,N)

  /// nullptr: elements are widened.
  static Bf16Kernel const* words_for(Scalar type) {
    static auto const* const kernel = has_words ? word_kernel<Bf16Kernel>() : nullptr;
    return type == Scalar::bf16 ? kernel : nullptr;
  }

  struct Math;

  /// Panels of columns; a micro-kernel writes whole panels of them.
  template <int N>
  static constexpr int columns_held = std::max(panels(N, MR) * MR, panels(N, word_panel) * word_panel);
  template <int M, int N>
  struct Accumulator {
    using Panel = Compute[columns_held<N>][NR];
    static constexpr std::size_t scratch_bytes = aligned(sizeof(Panel) * panels(M, NR));
    Panel* v;
    int rows = M, cols = N;             // what the tile at the edge holds
    Bf16Kernel const* words = nullptr;  // that it is a sum of
    /// What ColumnLoops has and nobody has asked for yet: as a rule round() does, which forms words of it in one go.
    /// With totals exponentials by rows, with factors differences, else exponentials by columns.
    struct {
      Compute scale = 0;
      Compute const* base = nullptr;  // nullptr: there is nothing
      Compute* totals = nullptr;
      Compute const* factors = nullptr;
    } awaited;
    explicit Accumulator(Math& math) : v(static_cast<Panel*>(math.take(scratch_bytes))) {}
    int lanes(int panel) const { return rows - panel * NR <= NR / 2 ? NR / 2 : NR; }
  };

  template <int M, class T = Compute>
  struct RowValues {
    static constexpr std::size_t scratch_bytes = 0;
    alignas(64) T v[panels(M, NR) * NR];
    explicit RowValues(Math&, T start = {}) { std::fill(std::begin(v), std::end(v), start); }
  };

  template <int M, int N, class F>
  using Flags = F;
  /// Numbers are not rounded: accumulator and factor change places. Words lie as WordPanels of a right factor do.
  template <int M, int K>
  struct Rounded {
    using Panel = typename Accumulator<M, K>::Panel;
    static constexpr std::size_t scratch_bytes = Accumulator<M, K>::scratch_bytes;
    static constexpr std::int64_t word_panel_bytes =
        columns_held<K> / (2 * line_words) * std::int64_t(line_panel_bytes);
    Panel* v;
    int rows = M, k = K;
    Bf16Kernel const* words = nullptr;
    std::int64_t panel_bytes = sizeof(Panel);
    explicit Rounded(Math& math) : v(static_cast<Panel*>(math.take(scratch_bytes))) {}
  };

  struct Copy {
    int thread;
    template <int M, int K>
    void operator()(Source const& m, Plane p, std::int64_t row, std::int64_t col, Left<M, K>& to) const {
      pack<M, K, NR>(false, m, p, row, col, m.rows, to);
    }
    template <int N, int K>
    void operator()(Source const& m, Plane p, std::int64_t row, std::int64_t col, Right<N, K>& to) const {
      pack<N, K, MR>(true, m, p, row, col, m.rows, to);
    }
    /// Rows from row_end on become zero.
    template <int K, int N>
    void operator()(Source const& m, Plane p, std::int64_t row, std::int64_t col, RightTransposed<K, N>& to,
                    std::int64_t row_end) const {
      MatrixStack t = m.transposed();
      t.cols = std::min(row_end, m.rows);
      pack<N, K, MR>(true, t, p, col, row, t.rows, to);
    }
    template <int N, int K>
    void operator()(Source const& m, PagedRows const& pages, std::int64_t row, std::int64_t col,
                    Right<N, K>& to) const {
      int const rows = static_cast<int>(std::clamp<std::int64_t>(pages.table.sequence_rows() - row, 0, N)),
                k = static_cast<int>(std::clamp<std::int64_t>(m.cols - col, 0, K));
      pack_either(
          m.type, to,
          [&](auto const& kernel, auto& words) { pack_word_pages_along(kernel, m, pages, row, col, rows, k, words); },
          [&](auto& numbers) { pack_pages_along(m, pages, row, col, rows, k, numbers); });
    }
    template <int K, int N>
    void operator()(Source const& m, PagedRows const& pages, std::int64_t row, std::int64_t col,
                    RightTransposed<K, N>& to, std::int64_t row_end) const {
      int const rows = static_cast<int>(std::clamp<std::int64_t>(m.cols - col, 0, N)),
                k = static_cast<int>(std::clamp<std::int64_t>(row_end - row, 0, K));
      pack_either(
          m.type, to,
          [&](auto const& kernel, auto& words) { pack_word_pages_across(kernel, m, pages, row, col, rows, k, words); },
          [&](auto& numbers) { pack_pages_across(m, pages, row, col, rows, k, numbers); });
    }

   private:
    template <int Rows, int K, int Width>
    static void pack(bool left, MatrixStack const& m, Plane p, std::int64_t row, std::int64_t col, std::int64_t row_end,
                     EitherPanels<Compute, Rows, K, Width>& to) {
      pack_either(
          m.type, to,
          [&](auto const& kernel, auto& words) {
            pack_word_tile<std::uint16_t>(kernel, left, m, p, row, col, row_end, words);
          },
          [&](auto& numbers) { pack_tile(m, p, row, col, row_end, numbers, false); });
    }
    /// in_words(kernel, panels) where a micro-kernel multiplies elements of that type, else in_numbers(panels).
    template <class Panels, class Words, class Numbers>
    static void pack_either(Scalar type, Panels& to, Words const& in_words, Numbers const& in_numbers) {
      if constexpr (has_words) {
        auto const* const kernel = words_for(type);
        to.by_words = kernel != nullptr;
        if (to.by_words) return in_words(*kernel, to.words);
      }
      in_numbers(to.numbers);
    }
  };

  struct Math : CoreMath<Exec> {
    template <int M, int N, int K>
    void multiply(Left<M, K> const& a, Right<N, K> const& b, Accumulator<M, N>& acc, bool add) const {
      if constexpr (has_words)
        if (a.by_words) {
          acc.words = words_for(Scalar::bf16);
          return product(*acc.words, b.words, a.words.v, sizeof(a.words.v[0]), a.words.rows, a.words.k, acc, add);
        }
      acc.words = nullptr;
      product(b.numbers, &a.numbers.v[0][0][0], a.numbers.k_held, a.numbers.rows, a.numbers.k, acc, add);
    }
    template <int M, int N, int K>
    void multiply(Rounded<M, K> const& a, RightTransposed<K, N> const& b, Accumulator<M, N>& acc, bool add) const {
      if constexpr (has_words)
        if (a.words != nullptr) return product(*a.words, b.words, a.v, a.panel_bytes, a.rows, a.k, acc, add);
      product(b.numbers, &a.v[0][0][0], columns_held<K>, a.rows, a.k, acc, add);
    }
    bool holds_for_all(bool mine) const { return mine; }

    template <int M, int N>
    void clear(Accumulator<M, N>& acc) const {
      acc.rows = M;
      acc.cols = N;
      std::fill_n(&acc.v[0][0][0], panels(M, NR) * columns_held<N> * NR, Compute(0));
    }
    template <int M, int N, class F>
    void for_each(Accumulator<M, N>& acc, F const& f) const {
      on_panels<elements<F>>(acc, f);
    }
    template <int M, int N, class F>
    void for_each_with(Accumulator<M, N>& acc, RowValues<M> const& rows, F const& f) const {
      on_panels<elements_with<F>>(acc, rows.v, f);
    }
    template <int M, int N, class Words>
    Words words(bool, Words const& of) const {
      return of;
    }
    template <int M, int N, class Words, class F>
    void for_each_of_words(Accumulator<M, N>& acc, Words const& words, F const& f) const {
      on_panels<elements_of_words<Words, F>>(acc, words, f);
    }
    template <class F, int M, class... Rows>
    void for_rows(F const& f, RowValues<M>& first, Rows&... rest) const {
      for (int i = 0; i < M; ++i) f(first.v[i], rest.v[i]...);
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
    void row_max(Accumulator<M, N>& acc, RowValues<M>& rows) const {
      if constexpr (has_words)
        if (loops() != nullptr)
          return each_panel(
              acc, [&](Compute* x, int row, int lanes) { loops_of(lanes).largest(x, acc.cols, rows.v + row); });
      on_panels<maxima>(acc, rows.v);
    }
    /// Whether no element is above its row's limit, or NaN.
    template <int M, int N>
    bool all_within(Accumulator<M, N>& acc, RowValues<M> const& limits) const {
      bool all = true;
      on_panels<within>(acc, limits.v, all);
      return all;
    }
    template <int M, int N>
    void row_add_partial(Accumulator<M, N>& acc, RowValues<M>& rows) const {
      on_panels<sums>(acc, rows.v);
    }
    template <int M>
    void row_combine(RowValues<M>&) const {}
    /// acc = 2^(acc scale - its row's base); sums += it.
    template <int M, int N>
    void exponentials(Accumulator<M, N>& acc, Compute scale, RowValues<M> const& base, RowValues<M>& totals) const {
      if constexpr (has_words)
        if (loops() != nullptr) {
          acc.awaited = {scale, base.v, totals.v, nullptr};
          if (acc.words == nullptr) settle(acc);
          return;
        }
      for_each_with(acc, base, [scale](Compute& x, Compute relative) { x = Math::exp2(x * scale - relative); });
      row_add_partial(acc, totals);
    }
    template <int M, int N>
    void scale_rows(Accumulator<M, N>& acc, RowValues<M> const& factors) const {
      if constexpr (has_words)
        if (loops() != nullptr)
          return each_panel(
              acc, [&](Compute* x, int row, int lanes) { loops_of(lanes).scaled(x, acc.cols, factors.v + row); });
      for_each_with(acc, factors, [](Compute& x, Compute factor) { x *= factor; });
    }

    template <int M, int K>
    void round(Accumulator<M, K>& from, Rounded<M, K>& to) const {
      to.rows = from.rows;
      to.k = from.cols;
      to.words = from.words;
      if constexpr (has_words)
        if (from.words != nullptr) return round_to_words(from, to);
      std::swap(from.v, to.v);
    }

    template <int M, int N>
    void store(Accumulator<M, N>& acc, Target const& m, Plane p, std::int64_t row0, std::int64_t col0) const {
      store(acc, m, p, row0, col0, m.rows);
    }
    /// Columns become rows, a square of a panel's width at a time.
    template <int M, int N>
    void store(Accumulator<M, N>& acc, Target const& m, Plane p, std::int64_t row0, std::int64_t col0,
               std::int64_t row_end) const {
      static PanelPacking<Compute> const* const packing = panel_packing<Compute>();
      constexpr int square = 64;
      std::int64_t const size = static_cast<std::int64_t>(size_of(m.type));
      int const rows = static_cast<int>(std::min<std::int64_t>(acc.rows, row_end - row0)),
                cols = static_cast<int>(std::min<std::int64_t>(acc.cols, m.cols - col0));
      alignas(64) Compute turned[NR][square];
      for (int r = 0; r < rows; r += NR)
        for (int c = 0; c < cols; c += square) {
          int const n = std::min(NR, rows - r), k = std::min(square, cols - c);
          Compute const* const from = acc.v[r / NR][c];
          if (packing != nullptr)
            packing->along(from, NR, k, n, 0, &turned[0][0], square);
          else
            for (int i = 0; i < n; ++i)
              for (int j = 0; j < k; ++j) turned[i][j] = from[j * NR + i];
          store_panel(m.type, &turned[0][0], square, n, k,
                      static_cast<char*>(const_cast<void*>(m.data)) + m.offset(p, row0 + r, col0 + c) * size,
                      m.row_stride, m.col_stride);
        }
    }

   protected:
    /// Where exponentials are awaited their words take the sums' place, else that of the last ones.
    template <int M, int K>
    static void round_to_words(Accumulator<M, K>& from, Rounded<M, K>& to) {
      WordWeights const& weights = *from.words->weights;
      if (auto const& e = from.awaited; e.base != nullptr) {
        on_each_panel(from, [&](Compute* x, int row, int lanes) {
          weights.weigh(x, from.cols, lanes, e.scale, e.base + row, e.totals + row);
        });
        from.awaited = {};
        to.panel_bytes = sizeof(*from.v);
        return std::swap(from.v, to.v);
      }
      to.panel_bytes = Rounded<M, K>::word_panel_bytes;
      on_each_panel(from, [&](Compute* x, int row, int) {
        weights.round(x, from.cols, reinterpret_cast<char*>(to.v) + row / NR * to.panel_bytes);
      });
    }
    /// What is awaited is there.
    template <int M, int N>
    static void settle(Accumulator<M, N>& acc) {
      auto const e = std::exchange(acc.awaited, {});
      if constexpr (has_words)
        if (e.base != nullptr)
          on_each_panel(acc, [&](Compute* x, int row, int lanes) {
            ColumnLoops const& of = loops_of(lanes);
            if (e.totals != nullptr)
              of.exponentials(x, acc.cols, e.scale, e.base + row, e.totals + row);
            else if (e.factors != nullptr)
              of.differences(x, e.factors + (x - &acc.v[0][0][0]), acc.cols, e.base);
            else
              of.exponentials_of_columns(x, acc.cols, e.scale, e.base);
          });
    }
    static ColumnLoopsOfPanels const* loops() {
      static ColumnLoopsOfPanels const* const found = column_loops();
      return found;
    }
    static ColumnLoops const& loops_of(int lanes) { return lanes == NR ? loops()->whole : loops()->half; }
    /// f(first element, row, rows) for each panel
    template <int M, int N, class F>
    static void each_panel(Accumulator<M, N>& acc, F const& f) {
      settle(acc);
      on_each_panel(acc, f);
    }
    template <int M, int N, class F>
    static void on_each_panel(Accumulator<M, N>& acc, F const& f) {
      for (int panel = 0; panel * NR < acc.rows; ++panel) f(&acc.v[panel][0][0], panel * NR, acc.lanes(panel));
    }

    /// The elements of a panel: columns of `lanes` rows, from `row` on.
    struct PanelPart {
      Compute* first;
      int cols, row, lanes;
      /// f(the number of lanes as a constant)
      template <class F>
      void with_lanes(F const& f) const {
        lanes == NR ? f(std::integral_constant<int, NR>{}) : f(std::integral_constant<int, NR / 2>{});
      }
    };
    /// F(part, more...) for each panel, for the vector units at hand.
    template <auto F, int M, int N, class... More>
    static void on_panels(Accumulator<M, N>& acc, More&&... more) {
      static auto const run = for_vector_units<F>();
      each_panel(acc, [&](Compute* first, int row, int lanes) {
        run(PanelPart{first, acc.cols, row, lanes}, more...);
      });
    }
    template <class F>
    static void elements(PanelPart p, F const& f) {
      p.with_lanes([&](auto lanes) {
        for (int c = 0; c < p.cols; ++c)
          for (int l = 0; l < lanes; ++l) f(p.first[c * NR + l], p.row + l, c);
      });
    }
    template <class F>
    static void elements_with(PanelPart p, Compute const* values, F const& f) {
      p.with_lanes([&](auto lanes) {
        Compute own[lanes];
        for (int l = 0; l < lanes; ++l) own[l] = values[p.row + l];
        for (int c = 0; c < p.cols; ++c)
          for (int l = 0; l < lanes; ++l) f(p.first[c * NR + l], own[l]);
      });
    }
    /// Of 32 columns, four words for eight of them at a time.
    template <class Words, class F>
    static void elements_of_words(PanelPart p, Words const& words, F const& f) {
      for (int block = 0; block < p.cols; block += 32)
        for (int pair = block; pair < std::min(block + 8, p.cols); pair += 2)
          for (int l = 0; l < p.lanes; ++l) {
            auto const four = words(p.row + l, pair);
            for (int word = 0; word < 4; ++word)
              for (int odd = 0; odd < 2; ++odd) {
                int const c = pair + 8 * word + odd;
                if (c < p.cols) f(p.first[c * NR + l], four[static_cast<std::size_t>(word)], odd != 0);
              }
          }
    }
    static void maxima(PanelPart p, Compute* values) {
      p.with_lanes([&](auto lanes) {
        Compute* const most = values + p.row;  // which are no NaNs, and NaNs do not count
        for (int c = 0; c < p.cols; ++c)
          for (int l = 0; l < lanes; ++l) most[l] = chosen(p.first[c * NR + l] > most[l], p.first[c * NR + l], most[l]);
      });
    }
    static void within(PanelPart p, Compute const* limits, bool& all) {
      p.with_lanes([&](auto lanes) {
        Compute const* const most = limits + p.row;
        int beyond = 0;
        for (int c = 0; c < p.cols; ++c)
          for (int l = 0; l < lanes; ++l) beyond |= p.first[c * NR + l] <= most[l] ? 0 : 1;
        all = all && beyond == 0;
      });
    }
    static void sums(PanelPart p, Compute* values) {
      p.with_lanes([&](auto lanes) {
        Compute* const all = values + p.row;
        for (int c = 0; c < p.cols; ++c)
          for (int l = 0; l < lanes; ++l) all[l] += p.first[c * NR + l];
      });
    }

    /// accᵀ (+)= a b, where b's panels lie `b_pitch` steps of k apart.
    template <int N, int K, int M>
    static void product(Panels<Compute, N, K, MR> const& a, Compute const* b, int b_pitch, int rows, int k,
                        Accumulator<M, N>& acc, bool add) {
      static MicroKernel<Compute> const micro = micro_kernel<Compute>();
      static StridedKernel<Compute> const strided = strided_kernel<Compute>();
      acc.rows = rows;
      acc.cols = a.rows;
      k = std::min(a.k, k);
      for (int j = 0; j * NR < rows; ++j, b += std::int64_t(b_pitch) * NR) {
        int const lanes = acc.lanes(j);
        for (int i = 0; i * MR < a.rows; ++i) {
          Compute* const c = acc.v[j][i * MR];
          bool const whole = a.rows - i * MR >= MR && lanes == NR;
          if (whole || strided == nullptr) {
            micro(&a.v[i][0][0], b, c, k, add, {});
          } else {
            int const rows_here = std::min(MR, a.rows - i * MR);
            StridedProduct<Compute> const p{&a.v[i][0][0], 1, MR, b, NR, c, NR, rows_here, lanes, k, add};
            strided(p);
          }
        }
      }
    }
    template <int N, int K, int M>
    static void product(Bf16Kernel const& kernel, WordPanels<std::uint16_t, N, K> const& a, void const* b,
                        std::int64_t b_panel, int rows, int k, Accumulator<M, N>& acc, bool add) {
      constexpr int a_line = WordPanels<std::uint16_t, N, K>::a_line;
      acc.rows = rows;
      acc.cols = a.rows;
      auto const a_panel = static_cast<std::int64_t>(sizeof(a.v[0]));
      constexpr std::int64_t c_panel = std::int64_t(columns_held<N>) * NR;
      int const lines = panels(std::min(a.k, k), a_line);
      WordProduct<float> const p{a.v, b, a_panel, b_panel, &acc.v[0][0][0], c_panel, a.rows, rows, lines, add};
      kernel.multiply(p);
    }
  };
};

}  // namespace tessera::detail::openmp

#endif
