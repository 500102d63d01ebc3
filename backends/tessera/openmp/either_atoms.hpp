// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_EITHER_ATOMS_HPP
#define TESSERA_OPENMP_EITHER_ATOMS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/flags.hpp>
#include <tessera/openmp/column_atoms.hpp>

namespace tessera::detail::openmp {

/// ColumnAtoms for chains of products whose factors are multiplied along either index, and whose last sums are formed
/// in memory. An accumulator, once it is rounded, is the right factor of the micro-kernel as it lies, contracted along
/// its columns; contracted along its rows it is the left factor, whose rows then lie a panel's width apart.
template <class Exec, class Compute_, class Sizes>
struct EitherAtoms : ColumnAtoms<Exec, Compute_, Sizes> {
  using Columns = ColumnAtoms<Exec, Compute_, Sizes>;
  using Compute = Compute_;
  static_assert(Columns::has_words);
  static constexpr int MR = Columns::MR, NR = Columns::NR;
  /// Sums in memory have a tile of their own, see add_product(), which no other team adds to meanwhile.
  static constexpr bool adds_in_place = true;

  /// All factors that meet in products are words, or none is.
  struct Source {
    MatrixStack matrix;
    bool by_words;
  };
  template <class Tile>
  static Source source(MatrixStack const& m, Scalar other) {
    return {m, other == Scalar::bf16 && Columns::words_for(m.type) != nullptr};
  }

  template <int N>
  static constexpr int columns_held = Columns::template columns_held<N>;
  template <int M, int N>
  using Accumulator = typename Columns::template Accumulator<M, N>;
  template <int M, int K>
  using Left = typename Columns::template Left<M, K>;
  template <int R, int C>
  struct LeftEither {  // (R,C)
    Left<R, C> along;
    EitherPanels<Compute, C, R, NR> across;
  };
  template <int R, int C>
  struct RightEither {  // (R,C)
    EitherPanels<Compute, R, C, MR> along;
    EitherPanels<Compute, C, R, MR> across;
  };

  struct Math;

  /// Numbers are the accumulator itself, unless flags leave some of them out. Words lie as WordPanels of a right factor
  /// do, and where share() asks for them, behind these once more as a left one.
  template <int M, int K>
  struct Rounded {
    using Panel = typename Accumulator<M, K>::Panel;
    static constexpr std::size_t scratch_bytes = Accumulator<M, K>::scratch_bytes;
    static constexpr std::int64_t words_bytes = std::int64_t(panels(K, word_panel)) * line_panel_bytes;  // of a panel
    static_assert(2 * words_bytes <= static_cast<std::int64_t>(sizeof(Panel)));
    Panel* own;
    Panel const *numbers = nullptr, *v = nullptr;
    int rows = M, k = K;
    Bf16Kernel const* words = nullptr;
    std::int64_t panel_bytes = sizeof(Panel);
    explicit Rounded(Math& math) : own(static_cast<Panel*>(math.take(scratch_bytes))) {}
  };
  /// A factor (N,M), of which Rounded<M,N> is the transpose.
  template <int M, int N>
  struct Shared {
    static constexpr std::size_t scratch_bytes = 0;
    static constexpr std::int64_t lines_bytes = std::int64_t(panels(M, word_panel)) * line_panel_bytes;  // of a panel
    typename Rounded<M, N>::Panel const* numbers = nullptr;
    char* lines = nullptr;
    int rows = M, k = N;
    Bf16Kernel const* words = nullptr;
    explicit Shared(Math&) {}
  };

  struct Copy {
    int thread;
    /// Of a tile that ends at row_end.
    template <int M, int K>
    void operator()(Source const& from, Plane p, std::int64_t row, std::int64_t col, Left<M, K>& to,
                    std::int64_t row_end) const {
      along(from, p, row, col, std::min(row_end, from.matrix.rows), false, to);
    }
    /// Where rows are contracted, those from `counted` on are zero.
    template <int R, int C>
    void operator()(Source const& from, Plane p, std::int64_t row, std::int64_t col, LeftEither<R, C>& to,
                    std::int64_t row_end, std::int64_t counted) const {
      row_end = std::min(row_end, from.matrix.rows);
      along(from, p, row, col, row_end, false, to.along);
      across(from, p, row, col, std::min(row_end, counted), false, to.across);
    }
    template <int R, int C>
    void operator()(Source const& from, Plane p, std::int64_t row, std::int64_t col, RightEither<R, C>& to) const {
      along(from, p, row, col, from.matrix.rows, true, to.along);
      across(from, p, row, col, from.matrix.rows, true, to.across);
    }

   private:
    template <int Rows, int K, int Width>
    static void along(Source const& from, Plane p, std::int64_t row, std::int64_t col, std::int64_t row_end, bool left,
                      EitherPanels<Compute, Rows, K, Width>& to) {
      to.by_words = from.by_words;
      if (to.by_words)
        pack_word_tile<std::uint16_t>(*Columns::words_for(from.matrix.type), left, from.matrix, p, row, col, row_end,
                                      to.words);
      else
        pack_tile(from.matrix, p, row, col, row_end, to.numbers, false);
    }
    template <int Rows, int K, int Width>
    static void across(Source const& from, Plane p, std::int64_t row, std::int64_t col, std::int64_t row_end, bool left,
                       EitherPanels<Compute, Rows, K, Width>& to) {
      Source turned{from.matrix.transposed(), from.by_words};
      turned.matrix.cols = row_end;
      along(turned, p, col, row, turned.matrix.rows, left, to);
    }
  };

  struct Math : Columns::Math {
    using Base = typename Columns::Math;

    template <int M, int N, int K>
    void multiply(Left<M, K> const& a, RightEither<N, K> const& b, Accumulator<M, N>& acc, bool add) const {
      acc.words = a.by_words ? Columns::words_for(Scalar::bf16) : nullptr;
      if (acc.words != nullptr)
        Base::product(*acc.words, b.along.words, a.words.v, sizeof(a.words.v[0]), a.words.rows, a.words.k, acc, add);
      else
        Base::product(b.along.numbers, &a.numbers.v[0][0][0], a.numbers.k_held, a.numbers.rows, a.numbers.k, acc, add);
    }
    template <int M, int N, int K>
    void multiply(LeftEither<M, K> const& a, RightEither<N, K> const& b, Accumulator<M, N>& acc, bool add) const {
      multiply(a.along, b, acc, add);
    }
    /// Across: the rows of b are contracted.
    template <int M, int N, int K>
    void multiply(Rounded<M, K> const& a, RightEither<K, N> const& b, Accumulator<M, N>& acc, bool add) const {
      if (a.words != nullptr)
        Base::product(*a.words, b.across.words, a.v, a.panel_bytes, a.rows, a.k, acc, add);
      else
        Base::product(b.across.numbers, &a.v[0][0][0], columns_held<K>, a.rows, a.k, acc, add);
    }
    /// sums += a b, the rows of b contracted: those of N rows and P columns, NR columns of all rows after the other.
    template <int M, int N, int P>
    void add_product(Shared<M, N> const& a, LeftEither<M, P> const& b, Compute* sums) const {
      if (a.words != nullptr) {
        auto const& words = b.across.words;
        WordProduct<Compute> const p{a.lines,
                                     words.v,
                                     a.lines_bytes,
                                     sizeof(words.v[0]),
                                     sums,
                                     std::int64_t(N) * NR,
                                     a.k,
                                     words.rows,
                                     panels(std::min(a.rows, words.k), word_panel),
                                     true};
        return a.words->multiply(p);
      }
      auto const& factor = b.across.numbers;
      int const contracted = std::min(a.rows, factor.k);
      for (int j = 0; j * NR < factor.rows; ++j)
        for (int i = 0; i < a.k; i += MR)
          for (int k = 0; k < contracted; k += NR)
            add_numbers({&a.numbers[k / NR][i][0], NR, 1, &factor.v[j][k][0], NR, sums + (std::int64_t(j) * N + i) * NR,
                         NR, std::min(MR, a.k - i), NR, std::min(NR, contracted - k), true});
    }

    /// Values of columns, as for_each_with_column() and for_each_of_two() take them.
    template <int N>
    auto const& columns(Compute const (&cols)[N]) const {
      return cols;
    }
    template <int M, int N, class F>
    void for_each_with_column(Accumulator<M, N>& acc, Compute const (&cols)[N], F const& f) const {
      Base::template on_panels<elements_with_column<F>>(acc, static_cast<Compute const*>(cols), f);
    }
    /// acc = 2^(acc scale - its column's value)
    template <int M, int N>
    void exponentials_of_columns(Accumulator<M, N>& acc, Compute scale, Compute const (&cols)[N]) const {
      if (Base::loops() == nullptr)
        return for_each_with_column(acc, cols, [scale](Compute& x, Compute base) { x = Math::exp2(x * scale - base); });
      acc.awaited = {scale, cols, nullptr, nullptr};
      if (acc.words == nullptr) Base::settle(acc);
    }
    /// acc = factor (acc - its column's value)
    template <int M, int N>
    void differences_times(Accumulator<M, N>& acc, Accumulator<M, N> const& factors, Compute const (&cols)[N]) const {
      if (Base::loops() == nullptr)
        return for_each_of_two(acc, factors, cols, [](Compute& x, Compute by, Compute base) { x = by * (x - base); });
      Base::settle(acc);
      acc.awaited = {Compute(0), cols, nullptr, &factors.v[0][0][0]};
      if (acc.words == nullptr) Base::settle(acc);
    }
    template <int M, int N, class F>
    void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other, Compute const (&cols)[N],
                         F const& f) const {
      for_each_of_two(acc, other, cols, NoFlags{},
                      [&](Compute& x, Compute of_other, Compute of_column, bool) { f(x, of_other, of_column); });
    }
    template <int M, int N, class Flags, class F>
    void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other, Compute const (&cols)[N],
                         Flags const& flags, F const& f) const {
      static auto const run = for_vector_units<elements_of_two<Flags, F>>();
      Base::each_panel(acc, [&](Compute* x, int row, int lanes) {
        run(PanelPart{x, acc.cols, row, lanes}, other.v[row / NR][0], cols, flags, f);
      });
    }

    template <int M, int K>
    void round(Accumulator<M, K>& from, Rounded<M, K>& to) const {
      describe(from, to);
      if (from.words == nullptr) {
        Base::settle(from);
        to.v = from.v;
        return;
      }
      WordWeights const& weights = *from.words->weights;
      auto const e = std::exchange(from.awaited, {});
      to.v = to.own;
      to.panel_bytes = to.words_bytes;
      Base::on_each_panel(from, [&](Compute* x, int row, int lanes) {
        void* const words = reinterpret_cast<char*>(to.own) + row / NR * to.panel_bytes;
        if (e.base == nullptr)
          weights.round(x, from.cols, words);
        else if (e.factors != nullptr)
          weights.differences(x, e.factors + (x - &from.v[0][0][0]), from.cols, lanes, e.base, words);
        else
          weights.exponentials(x, from.cols, lanes, e.scale, e.base, words);
      });
    }
    template <int M, int K>
    void round(Accumulator<M, K>& from, NoFlags, Rounded<M, K>& to) const {
      round(from, to);
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
    /// What round() has rounded, to be contracted along its rows.
    template <int M, int N>
    void share(Rounded<M, N> const& from, Shared<M, N>& to) const {
      to.rows = from.rows;
      to.k = from.k;
      to.words = from.words;
      to.numbers = from.numbers;
      if (from.words == nullptr) return;
      to.lines = reinterpret_cast<char*>(from.own) + panels(M, NR) * from.words_bytes;
      for (int panel = 0; panel * NR < from.rows; ++panel)
        from.words->weights->lines(&from.numbers[panel][0][0], from.k, from.rows - panel * NR,
                                   to.lines + panel * line_panel_bytes, to.lines_bytes);
    }

    /// Elements of the target are sums of add_product(), those of `parts` tiles that lie `stride` apart, times a
    /// factor.
    template <int M, int N>
    void store_sums(Compute const* sums, int parts, std::int64_t stride, Compute factor,
                    typename Columns::Target const& m, Plane p, std::int64_t row0) const {
      static auto const add = for_vector_units<add_parts>();
      std::int64_t const size = static_cast<std::int64_t>(size_of(m.type));
      int const rows = static_cast<int>(std::min<std::int64_t>(M, m.rows - row0)),
                cols = static_cast<int>(std::min<std::int64_t>(N, m.cols));
      alignas(64) Compute all[M * NR];
      for (int c = 0; c < cols && rows > 0; c += NR) {
        add({sums + std::int64_t(c) * M, stride, parts, rows * NR, factor, all});
        store_panel(m.type, all, NR, rows, std::min(NR, cols - c),
                    static_cast<char*>(const_cast<void*>(m.data)) + m.offset(p, row0, c) * size, m.row_stride,
                    m.col_stride);
      }
    }

   private:
    using PanelPart = typename Base::PanelPart;
    template <class Flags, class F>
    static void elements_of_two(PanelPart p, Compute const* others, Compute const* cols, Flags const& flags,
                                F const& f) {
      p.with_lanes([&](auto lanes) {
        for (int c = 0; c < p.cols; ++c)
          for (int l = 0; l < lanes; ++l)
            f(p.first[c * NR + l], others[c * NR + l], cols[c], flag_at(flags, p.row + l, c));
      });
    }
    template <class F>
    static void elements_rounded(PanelPart p, Compute* to, F const& f) {
      p.with_lanes([&](auto lanes) {
        for (int c = 0; c < p.cols; ++c)
          for (int l = 0; l < lanes; ++l) to[c * NR + l] = f(p.first[c * NR + l], p.row + l, c);
      });
    }
    template <class F>
    static void elements_with_column(PanelPart p, Compute const* cols, F const& f) {
      p.with_lanes([&](auto lanes) {
        for (int c = 0; c < p.cols; ++c)
          for (int l = 0; l < lanes; ++l) f(p.first[c * NR + l], cols[c]);
      });
    }
    template <int M, int K>
    static void describe(Accumulator<M, K> const& from, Rounded<M, K>& to) {
      to.rows = from.rows;
      to.k = from.cols;
      to.words = from.words;
      to.numbers = from.v;
    }
    /// to = f(element, row, column), words in the numbers' place.
    template <int M, int K, class F>
    static void round_by(Accumulator<M, K>& from, Rounded<M, K>& to, F const& f) {
      describe(from, to);
      to.v = to.own;
      to.panel_bytes = sizeof(*to.own);
      static auto const run = for_vector_units<elements_rounded<F>>();
      Base::each_panel(from, [&](Compute* x, int row, int lanes) {
        Compute* const own = to.own[row / NR][0];
        run(PanelPart{x, from.cols, row, lanes}, own, f);
        if (from.words != nullptr) from.words->weights->round(own, from.cols, own);
      });
    }
    static void add_numbers(StridedProduct<Compute> const& p) {
      static StridedKernel<Compute> const strided = strided_kernel<Compute>();
      if (strided != nullptr) return strided(p);
      for (int i = 0; i < p.rows; ++i) {
        Compute sums[NR];
        std::copy_n(p.c + i * p.c_row, NR, sums);
        for (int k = 0; k < p.k; ++k)
          for (int j = 0; j < NR; ++j) sums[j] += p.a[i * p.a_row + k * p.a_k] * p.b[k * p.b_k + j];
        std::copy_n(sums, NR, p.c + i * p.c_row);
      }
    }
    struct Parts {
      Compute const* first;
      std::int64_t stride;
      int count, n;
      Compute factor;
      Compute* to;
    };
    static void add_parts(Parts p) {
      for (int i = 0; i < p.n; ++i) p.to[i] = p.first[i];
      for (int part = 1; part < p.count; ++part)
        for (int i = 0; i < p.n; ++i) p.to[i] += p.first[part * p.stride + i];
      for (int i = 0; i < p.n; ++i) p.to[i] *= p.factor;
    }
  };
};

}  // namespace tessera::detail::openmp

#endif
