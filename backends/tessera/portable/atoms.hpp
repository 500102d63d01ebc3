// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PORTABLE_ATOMS_HPP
#define TESSERA_PORTABLE_ATOMS_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>

#include <tessera/atoms.hpp>
#include <tessera/flags.hpp>
#include <tessera/launch.hpp>
#include <tessera/portable/tiles.hpp>
#include <tessera/unroll.hpp>

// Plain loops over team scratch and registers: valid on any Kokkos backend and the reference for every other.
// The threads of a team form a grid of thread_rows x thread_cols; thread (r, c) holds the elements of an accumulator
// whose row is r modulo thread_rows and whose column is c modulo thread_cols. On a CPU the grid is 1 x 1.
namespace tessera::detail::portable {

/// Bytes rounded up so that what follows is aligned for any access.
constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 127) / 128 * 128; }

template <class Exec>
struct Threads {
  TeamMember<Exec> const& team;
  int index = 0;  // of this thread in its team

  KOKKOS_FUNCTION explicit Threads(TeamMember<Exec> const& member) : team(member) {
    int lane = 0;  // Kokkos names the lane only inside a vector range: every lane keeps its own
    if constexpr (Machine<Exec>::lanes > 1)
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, Machine<Exec>::lanes), [&](int i) { lane = i; });
    index = team.team_rank() * Machine<Exec>::lanes + lane;
  }
};

/// Kokkos::Max starts from the smallest finite number; the maximum of nothing, and of -inf alone, is -inf.
template <class T>
class Maximum {
 public:
  using reducer = Maximum;
  using value_type = T;
  using result_view_type = Kokkos::View<T, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

  KOKKOS_FUNCTION explicit Maximum(T& value) : value_(&value) {}
  KOKKOS_FUNCTION void join(T& to, T const& from) const { to = from > to ? from : to; }
  KOKKOS_FUNCTION void init(T& value) const { value = -Kokkos::Experimental::infinity_v<T>; }
  KOKKOS_FUNCTION T& reference() const { return *value_; }
  KOKKOS_FUNCTION result_view_type view() const { return result_view_type(value_); }

 private:
  T* value_;
};

/// f(i, j) for every index of a fragment, all of them constants.
template <int Rows, int Cols, class F>
KOKKOS_FORCEINLINE_FUNCTION void unrolled(F const& f) {
  TESSERA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    TESSERA_UNROLL
    for (int j = 0; j < Cols; ++j) f(i, j);
  }
}

template <class Exec, class Compute_, class Sizes>
struct Atoms : Sizes {
  using Compute = Compute_;
  using Space = Exec;
  static constexpr bool is_host = Machine<Exec>::is_host;
  static constexpr int thread_rows = is_host ? 1 : Sizes::thread_rows;
  static constexpr int thread_cols = is_host ? 1 : Sizes::thread_cols;
  static constexpr int team_threads = Sizes::thread_rows * Sizes::thread_cols;
  static constexpr int teams_at_once = [] {
    if constexpr (requires { Sizes::teams_at_once; })
      return Sizes::teams_at_once;
    else
      return 1;
  }();
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

  static constexpr bool left_by_lines = !is_host && requires { Sizes::left_by_lines; };
  template <int M, int K>
  struct Left : std::conditional_t<left_by_lines, LineTile<Compute, M, K>, PanelTile<Compute, M, K, is_host>> {
  };  // (M,K)
  template <int N, int K>
  struct Right : PanelTile<Compute, N, K, is_host> {};  // (N,K)
  template <int K, int N>
  struct RightTransposed : RowTile<Compute, K, N> {};  // (K,N)
  /// Factors of products along either index.
  template <int R, int C>
  struct LeftEither : Left<R, C> {};  // (R,C)
  template <int R, int C>
  struct RightEither : PanelTile<Compute, R, C, is_host> {};  // (R,C)

  struct Math;

  /// This thread's share of an (M, N) tile.
  template <int M, int N>
  struct Accumulator {
    static_assert(M % thread_rows == 0 && N % thread_cols == 0, "the thread grid must divide the tile");
    static constexpr int rows = M / thread_rows, cols = N / thread_cols;
    static constexpr std::size_t scratch_bytes = 0;
    Compute v[rows][cols];
    KOKKOS_FUNCTION explicit Accumulator(Math&) {}
  };

  /// One value a row, held by every thread of the row.
  template <int M, class T = Compute>
  struct RowValues {
    static constexpr int rows = M / thread_rows;
    static constexpr std::size_t scratch_bytes = 0;
    T v[rows];
    KOKKOS_FUNCTION explicit RowValues(Math&, T start = {}) {
      TESSERA_UNROLL
      for (int i = 0; i < rows; ++i) v[i] = start;
    }
  };

  /// Of the elements of an (M, N) tile, see flags.hpp.
  template <int M, int N, class F>
  using Flags = F;

  /// An accumulator on its way to be a left factor: shared by the team, since a product reads whole rows.
  template <int M, int K>
  struct Rounded {
    using Tile = Left<M, K>;
    static constexpr std::size_t scratch_bytes = aligned(sizeof(Tile));
    Tile* tile;
    KOKKOS_FUNCTION explicit Rounded(Math& math) : tile(static_cast<Tile*>(math.take(scratch_bytes))) {}
  };

  struct Copy {
    int thread;
    template <int R, int C>
    KOKKOS_FUNCTION void operator()(Source const& m, Plane plane, std::int64_t row, std::int64_t col,
                                    RightEither<R, C>& to) const {
      fill<Compute, R, C, thread_rows * thread_cols>(m, plane, row, col, m.rows, to, thread);
    }
    /// Rows from row_end on become zero.
    template <int R, int C>
    KOKKOS_FUNCTION void operator()(Source const& m, Plane plane, std::int64_t row, std::int64_t col,
                                    RightEither<R, C>& to, std::int64_t row_end) const {
      fill<Compute, R, C, thread_rows * thread_cols>(m, plane, row, col, row_end < m.rows ? row_end : m.rows, to,
                                                     thread);
    }
    template <int N, int K>
    KOKKOS_FUNCTION void operator()(Source const& m, Plane plane, std::int64_t row, std::int64_t col, Right<N, K>& to,
                                    std::int64_t row_end) const {
      fill<Compute, N, K, thread_rows * thread_cols>(m, plane, row, col, row_end < m.rows ? row_end : m.rows, to,
                                                     thread);
    }
    /// Numbers side by side.
    template <int N>
    KOKKOS_FUNCTION void values(Compute const* from, Compute (&to)[N]) const {
      for (int i = thread; i < N; i += thread_rows * thread_cols) to[i] = from[i];
    }
    template <int M, int K>
    KOKKOS_FUNCTION void operator()(Source const& m, Plane plane, std::int64_t row, std::int64_t col,
                                    Left<M, K>& to) const {
      fill<Compute, M, K, thread_rows * thread_cols>(m, plane, row, col, m.rows, to, thread);
    }
    template <int N, int K>
    KOKKOS_FUNCTION void operator()(Source const& m, Plane plane, std::int64_t row, std::int64_t col,
                                    Right<N, K>& to) const {
      fill<Compute, N, K, thread_rows * thread_cols>(m, plane, row, col, m.rows, to, thread);
    }
    /// Rows from row_end on become zero.
    template <int K, int N>
    KOKKOS_FUNCTION void operator()(Source const& m, Plane plane, std::int64_t row, std::int64_t col,
                                    RightTransposed<K, N>& to, std::int64_t row_end) const {
      fill<Compute, K, N, thread_rows * thread_cols>(m, plane, row, col, row_end < m.rows ? row_end : m.rows, to,
                                                     thread);
    }
    template <int N, int K>
    KOKKOS_FUNCTION void operator()(Source const& m, PagedRows const& pages, std::int64_t row, std::int64_t col,
                                    Right<N, K>& to) const {
      fill_from_pages<Compute, N, K, thread_rows * thread_cols>(m, pages, row, col, pages.table.sequence_rows(), to,
                                                                thread);
    }
    template <int K, int N>
    KOKKOS_FUNCTION void operator()(Source const& m, PagedRows const& pages, std::int64_t row, std::int64_t col,
                                    RightTransposed<K, N>& to, std::int64_t row_end) const {
      fill_from_pages<Compute, K, N, thread_rows * thread_cols>(m, pages, row, col, row_end, to, thread);
    }
  };

  struct Math {
    TeamMember<Exec> const& team;
    int thread;
    char* scratch;  // what fragments have not taken yet

    KOKKOS_FUNCTION void* take(std::size_t bytes) {
      void* const taken = scratch;
      scratch += bytes;
      return taken;
    }
    KOKKOS_FUNCTION int row(int i) const { return i * thread_rows + thread / thread_cols; }
    KOKKOS_FUNCTION int col(int j) const { return j * thread_cols + thread % thread_cols; }

    template <int M, int N, int K>
    KOKKOS_FUNCTION void multiply(Left<M, K> const& a, Right<N, K> const& b, Accumulator<M, N>& acc, bool add) const {
      if constexpr (left_by_lines)
        product_by_lines<M, N, K>(a, b.v, acc, add);
      else
        product<M, N, K>(a.v, b.v, acc, add);
    }
    template <int M, int N, int K>
    KOKKOS_FUNCTION void multiply(Rounded<M, K> const& a, RightTransposed<K, N> const& b, Accumulator<M, N>& acc,
                                  bool add) const {
      product<M, N, K>(a.tile->v, b.v, acc, add);
    }
    template <int M, int N, int K>
    KOKKOS_FUNCTION void multiply(Left<M, K> const& a, RightEither<N, K> const& b, Accumulator<M, N>& acc,
                                  bool add) const {
      product<M, N, K>(a.v, b.v, acc, add);
    }
    /// Across: the rows of b are contracted.
    template <int M, int N, int K>
    KOKKOS_FUNCTION void multiply(Rounded<M, K> const& a, RightEither<K, N> const& b, Accumulator<M, N>& acc,
                                  bool add) const {
      product<M, N, K>(a.tile->v, Across<K, N>{b}, acc, add);
    }
    template <int, class Acc>
    KOKKOS_FUNCTION void wait_all_but(Acc&) const {}
    template <int, class Acc>
    KOKKOS_FUNCTION void wait_for(Acc&) const {}
    template <class Acc>
    KOKKOS_FUNCTION bool join(Acc&) const {
      return true;  // a tile has one team
    }
    template <class F>
    KOKKOS_FUNCTION void turn(F const& f) const {
      f();
    }

    template <int M, int N>
    KOKKOS_FUNCTION void clear(Accumulator<M, N>& acc) const {
      unrolled<Accumulator<M, N>::rows, Accumulator<M, N>::cols>([&](int i, int j) { acc.v[i][j] = 0; });
    }
    template <int M, int N, class F>
    KOKKOS_FUNCTION void for_each(Accumulator<M, N>& acc, F const& f) const {
      unrolled<Accumulator<M, N>::rows, Accumulator<M, N>::cols>([&](int i, int j) { f(acc.v[i][j], row(i), col(j)); });
    }
    template <int M, int N, class Words>
    KOKKOS_FUNCTION Words words(bool, Words const& of) const {
      return of;
    }
    /// f(element, word, whether its column is odd), where words(row, column) has four words for eight columns of 32:
    /// for that column, its neighbour and those 8, 16 and 24 behind the first such, a word for every two.
    template <int M, int N, class Words, class F>
    KOKKOS_FUNCTION void for_each_of_words(Accumulator<M, N>& acc, Words const& words, F const& f) const {
      for_each(acc, [&](Compute& x, int r, int c) {
        auto const four = words(r, c);
        f(x, word_of(four, c), c % 2 != 0);
      });
    }
    /// f(element, the row's value)
    template <int M, int N, class F>
    KOKKOS_FUNCTION void for_each_with(Accumulator<M, N>& acc, RowValues<M> const& rows, F const& f) const {
      unrolled<Accumulator<M, N>::rows, Accumulator<M, N>::cols>([&](int i, int j) { f(acc.v[i][j], rows.v[i]); });
    }
    template <class F>
    KOKKOS_FUNCTION void find_flags(F const& f, F& flags) const {
      flags = f;
    }
    /// Values of columns, as for_each_with_column() and for_each_of_two() take them.
    template <int N>
    KOKKOS_FUNCTION auto const& columns(Compute const (&cols)[N]) const {
      return cols;
    }
    /// f(element, its column's value)
    template <int M, int N, class F>
    KOKKOS_FUNCTION void for_each_with_column(Accumulator<M, N>& acc, Compute const (&cols)[N], F const& f) const {
      unrolled<Accumulator<M, N>::rows, Accumulator<M, N>::cols>([&](int i, int j) { f(acc.v[i][j], cols[col(j)]); });
    }
    /// f(element, its row's value, row, column)
    template <int M, int N, class F>
    KOKKOS_FUNCTION void for_each_placed(Accumulator<M, N>& acc, RowValues<M> const& rows, F const& f) const {
      unrolled<Accumulator<M, N>::rows, Accumulator<M, N>::cols>(
          [&](int i, int j) { f(acc.v[i][j], rows.v[i], row(i), col(j)); });
    }
    /// f(element of one, element of the other, its column's value, flag)
    template <int M, int N, class Flags, class F>
    KOKKOS_FUNCTION void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                         Compute const (&cols)[N], Flags const& flags, F const& f) const {
      unrolled<Accumulator<M, N>::rows, Accumulator<M, N>::cols>(
          [&](int i, int j) { f(acc.v[i][j], other.v[i][j], cols[col(j)], flag_at(flags, row(i), col(j))); });
    }
    /// f(element of one, element of the other, its row's value, flag)
    template <int M, int N, class Flags, class F>
    KOKKOS_FUNCTION void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                         RowValues<M> const& rows, Flags const& flags, F const& f) const {
      unrolled<Accumulator<M, N>::rows, Accumulator<M, N>::cols>(
          [&](int i, int j) { f(acc.v[i][j], other.v[i][j], rows.v[i], flag_at(flags, row(i), col(j))); });
    }
    /// f(element of one, element of the other, its column's value)
    template <int M, int N, class F>
    KOKKOS_FUNCTION void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                         Compute const (&cols)[N], F const& f) const {
      unrolled<Accumulator<M, N>::rows, Accumulator<M, N>::cols>(
          [&](int i, int j) { f(acc.v[i][j], other.v[i][j], cols[col(j)]); });
    }
    /// f(element of one, element of the other, the row's value)
    template <int M, int N, class F>
    KOKKOS_FUNCTION void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                         RowValues<M> const& rows, F const& f) const {
      unrolled<Accumulator<M, N>::rows, Accumulator<M, N>::cols>(
          [&](int i, int j) { f(acc.v[i][j], other.v[i][j], rows.v[i]); });
    }
    /// f(values...) of each row this thread holds
    template <class F, int M, class... Rows>
    KOKKOS_FUNCTION void for_rows(F const& f, RowValues<M>& first, Rows&... rest) const {
      TESSERA_UNROLL
      for (int i = 0; i < RowValues<M>::rows; ++i) f(first.v[i], rest.v[i]...);
    }
    /// to(i, j) += from(i, j) * rows(i) * cols[j / 64]
    template <int, int M, int N>
    KOKKOS_FUNCTION void add_scaled(Accumulator<M, N> const& from, RowValues<M> const& rows, Compute const* cols,
                                    Accumulator<M, N>& to) const {
      unrolled<Accumulator<M, N>::rows, Accumulator<M, N>::cols>(
          [&](int i, int j) { to.v[i][j] += from.v[i][j] * rows.v[i] * cols[col(j) / 64]; });
    }
    /// f(value, row) by every thread that has a part in the row
    template <int M, class T, class F>
    KOKKOS_FUNCTION void each_row(RowValues<M, T>& rows, F const& f) const {
      TESSERA_UNROLL
      for (int i = 0; i < RowValues<M>::rows; ++i) f(rows.v[i], row(i));
    }
    /// f(value, row), once for every row of the tile
    template <int M, class F>
    KOKKOS_FUNCTION void once_per_row(RowValues<M> const& rows, F const& f) const {
      if (thread % thread_cols != 0) return;
      TESSERA_UNROLL
      for (int i = 0; i < RowValues<M>::rows; ++i) f(rows.v[i], row(i));
    }

    template <int M, int N>
    KOKKOS_FUNCTION void row_max(Accumulator<M, N> const& acc, RowValues<M>& rows) const {
      TESSERA_UNROLL
      for (int i = 0; i < RowValues<M>::rows; ++i) {
        Compute m = rows.v[i];
        TESSERA_UNROLL
        for (int j = 0; j < Accumulator<M, N>::cols; ++j) m = acc.v[i][j] > m ? acc.v[i][j] : m;
        rows.v[i] = combine<Maximum<Compute>>(m);
      }
    }
    template <int M, int N>
    KOKKOS_FUNCTION void row_add_partial(Accumulator<M, N> const& acc, RowValues<M>& rows) const {
      unrolled<RowValues<M>::rows, Accumulator<M, N>::cols>([&](int i, int j) { rows.v[i] += acc.v[i][j]; });
    }
    template <int M>
    KOKKOS_FUNCTION void row_combine(RowValues<M>& rows) const {
      TESSERA_UNROLL
      for (int i = 0; i < RowValues<M>::rows; ++i) rows.v[i] = combine<Kokkos::Sum<Compute>>(rows.v[i]);
    }
    KOKKOS_FUNCTION static Compute exp2(Compute x) { return Kokkos::exp2(x); }

    template <int M, int K>
    KOKKOS_FUNCTION void round(Accumulator<M, K> const& from, Rounded<M, K>& to) const {
      team.team_barrier();  // the product before has read the tile
      unrolled<Accumulator<M, K>::rows, Accumulator<M, K>::cols>(
          [&](int i, int j) { to.tile->at(row(i), col(j)) = from.v[i][j]; });
      team.team_barrier();
    }
    /// Those whose flag is not set as 0.
    template <int M, int K, class Flags>
    KOKKOS_FUNCTION void round(Accumulator<M, K> const& from, Flags const& flags, Rounded<M, K>& to) const {
      team.team_barrier();
      unrolled<Accumulator<M, K>::rows, Accumulator<M, K>::cols>([&](int i, int j) {
        to.tile->at(row(i), col(j)) = flag_at(flags, row(i), col(j)) ? from.v[i][j] : Compute(0);
      });
      team.team_barrier();
    }
    /// to = what f(element, its column's value, row, column, flag) returns, which may change the element
    template <int M, int K, class Flags, class F>
    KOKKOS_FUNCTION void round_each(Accumulator<M, K>& from, Compute const (&cols)[K], Flags const& flags,
                                    Rounded<M, K>& to, F const& f) const {
      team.team_barrier();
      unrolled<Accumulator<M, K>::rows, Accumulator<M, K>::cols>([&](int i, int j) {
        to.tile->at(row(i), col(j)) = f(from.v[i][j], cols[col(j)], row(i), col(j), flag_at(flags, row(i), col(j)));
      });
      team.team_barrier();
    }

    template <int M, int N>
    KOKKOS_FUNCTION void store(Accumulator<M, N> const& acc, Target const& m, Plane plane, std::int64_t row0,
                               std::int64_t col0) const {
      store(acc, m, plane, row0, col0, m.rows);
    }
    template <int M, int N>
    KOKKOS_FUNCTION void store(Accumulator<M, N> const& acc, Target const& m, Plane plane, std::int64_t row0,
                               std::int64_t col0, std::int64_t row_end) const {
      std::int64_t const rows = row_end - row0, cols = m.cols - col0;
      visit_scalar<Compute>(m.type, [&](auto tag) {
        using T = typename decltype(tag)::type;
        T* const to = static_cast<T*>(const_cast<void*>(m.data)) + m.offset(plane, row0, col0);
        unrolled<Accumulator<M, N>::rows, Accumulator<M, N>::cols>([&](int i, int j) {
          if (row(i) < rows && col(j) < cols) to[row(i) * m.row_stride + col(j) * m.col_stride] = T(acc.v[i][j]);
        });
      });
    }

   private:
    /// b[k][j] of a right factor whose rows are contracted.
    template <int K, int N>
    struct Across {
      RightEither<K, N> const& b;
      struct Row {
        RightEither<K, N> const& b;
        int k;
        KOKKOS_FORCEINLINE_FUNCTION Compute operator[](int j) const { return b.v[j][k]; }
      };
      KOKKOS_FORCEINLINE_FUNCTION Row operator[](int k) const { return {b, k}; }
    };
    template <int M, int N, int K, class A, class B>
    KOKKOS_FUNCTION void product(A const& a, B const& b, Accumulator<M, N>& acc, bool add) const {
      constexpr int rows = Accumulator<M, N>::rows, cols = Accumulator<M, N>::cols;
      if (!add) clear(acc);
      TESSERA_UNROLL_8  // scratch is read ahead of its use
      for (int k = 0; k < K; ++k) {
        Compute right[cols];
        TESSERA_UNROLL
        for (int j = 0; j < cols; ++j) right[j] = b[k][col(j)];
        TESSERA_UNROLL
        for (int i = 0; i < rows; ++i) {
          Compute const left = a[k][row(i)];
          TESSERA_UNROLL
          for (int j = 0; j < cols; ++j) acc.v[i][j] += left * right[j];
        }
      }
    }
    template <int M, int N, int K, class B>
    KOKKOS_FUNCTION void product_by_lines(Left<M, K> const& a, B const& b, Accumulator<M, N>& acc, bool add) const {
      constexpr int pack = Left<M, K>::pack;
      if (!add) clear(acc);
      TESSERA_UNROLL_8
      for (int k = 0; k < K; k += pack) {
        TESSERA_UNROLL
        for (int i = 0; i < Accumulator<M, N>::rows; ++i) {
          auto const left = a.pack_at(row(i), k);
          unrolled<pack, Accumulator<M, N>::cols>([&](int q, int j) { acc.v[i][j] += left.v[q] * b[k + q][col(j)]; });
        }
      }
    }
    /// Over the threads that share a row, which are the lanes of one team thread.
    template <class Reducer>
    KOKKOS_FUNCTION Compute combine(Compute mine) const {
      static_assert(thread_cols == Machine<Exec>::lanes, "values a row need the threads of a row to be one vector");
      if constexpr (thread_cols == 1) {
        return mine;
      } else {
        Compute all;
        Reducer const reducer(all);
        Kokkos::parallel_reduce(
            Kokkos::ThreadVectorRange(team, thread_cols), [&](int, Compute& x) { reducer.join(x, mine); }, reducer);
        return all;
      }
    }
  };
};

}  // namespace tessera::detail::portable

#endif
