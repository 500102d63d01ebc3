// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_WALK_HPP
#define TESSERA_ROWWISE_WALK_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <utility>

#include <tessera/launch.hpp>
#include <tessera/rowwise/operand.hpp>
#include <tessera/streaming.hpp>
#include <tessera/unroll.hpp>

// How a tile (mostly: a row) is shared among the lanes of a team. A lane's unit of work is a portion: `Packs` packs of
// `Width` consecutive elements, packs of neighbouring lanes next to each other. A tile that is one portion a lane is
// held in registers between the passes of a kernel; a longer one is read again in every pass, through the caches.
namespace tessera::detail {

/// f(0), ..., f(N - 1), unrolled for certain: the portions of a lane must stay in registers.
template <int N, class F>
KOKKOS_FORCEINLINE_FUNCTION void unrolled(F const& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) { (f(I), ...); }
  (std::make_integer_sequence<int, N>{});
}

enum class Worker { team, thread };  // who works on one tile: the team, or each of its threads on its own

/// `TileColumns` 0: tiles are single rows. Otherwise the columns of a full tile, a multiple of Width.
template <int Threads, Worker By, bool Held, int Packs, int Width, int TileColumns = 0>
struct Shape {
  static constexpr int threads = Threads, packs = Packs, width = Width, tile_columns = TileColumns;
  static constexpr Worker by = By;
  static constexpr bool held = Held;

  template <class Exec>
  static constexpr int workers = By == Worker::team ? 1 : Machine<Exec>::threads(Threads) / Machine<Exec>::lanes;
};

struct Add {
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION T operator()(T a, T b) const {
    return a + b;
  }
};

/// The larger of two numbers; NaNs do not count.
struct Larger {
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

/// A reducer as Kokkos wants it. Kokkos' own Max starts from the lowest finite number, which loses -Inf.
template <class T, class Join>
struct JoinReducer {
  using reducer = JoinReducer;
  using value_type = T;
  using result_view_type = Kokkos::View<T, Kokkos::AnonymousSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  T& result;
  T identity;
  KOKKOS_FUNCTION void join(T& a, T const& b) const { a = Join{}(a, b); }
  KOKKOS_FUNCTION void init(T& a) const { a = identity; }
  KOKKOS_FUNCTION T& reference() const { return result; }
};

/// The lanes that share a tile, and what they can find out together.
template <class Exec, Worker By>
class Lanes {
  static constexpr bool single = Machine<Exec>::lanes == 1;  // then a team has one thread, too

 public:
  KOKKOS_FUNCTION explicit Lanes(TeamMember<Exec> const& team) : team_(team) {
    if constexpr (!single) {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, Machine<Exec>::lanes), [&](int i) { lane_ = i; });
      if constexpr (By == Worker::team) lane_ += team.team_rank() * Machine<Exec>::lanes;
    }
  }
  KOKKOS_FUNCTION int lane() const { return lane_; }
  KOKKOS_FUNCTION int count() const {
    if constexpr (single) return 1;
    return By == Worker::team ? team_.team_size() * Machine<Exec>::lanes : Machine<Exec>::lanes;
  }

  /// Joins every lane's value in an order that depends on nothing but the number of lanes; every lane gets the result.
  template <class Join, class T>
  KOKKOS_FUNCTION T join(T mine, T identity) const {
    if constexpr (single) {
      return mine;
    } else {
      T all = identity;
      JoinReducer<T, Join> const reducer{all, identity};
      auto const add = [&](int, T& partial) { partial = Join{}(partial, mine); };
      if constexpr (By == Worker::team)
        Kokkos::parallel_reduce(Kokkos::TeamVectorRange(team_, count()), add, reducer);
      else
        Kokkos::parallel_reduce(Kokkos::ThreadVectorRange(team_, count()), add, reducer);
      return all;
    }
  }

 private:
  TeamMember<Exec> const& team_;
  int lane_ = 0;
};

/// One lane's way through one tile.
template <class Exec, class Acc, class Shape_>
class Walk {
  static constexpr int packs = Shape_::packs, width = Shape_::width;
  static constexpr bool wide = Machine<Exec>::lanes > 1;
  static constexpr int vector = 16;  // elements that a CPU works on together
  static_assert(wide || (packs == 1 && width % vector == 0));

 public:
  using Shape = Shape_;
  using Portion = Acc[packs][width];
  Portion x;  // the portion at hand

  KOKKOS_FUNCTION Walk(Lanes<Exec, Shape::by> const& lanes, TileGrid const& grid, TileIndex const& at)
      : lanes_(lanes), grid_(grid), at_(at) {
    columns_ = smaller(grid.tile_columns, grid.columns - at.column * grid.tile_columns);
    rows_ = static_cast<int>(smaller(grid.tile_rows, grid.rows - at.row * grid.tile_rows));
  }

  KOKKOS_FUNCTION TileIndex const& at() const { return at_; }
  KOKKOS_FUNCTION std::int64_t columns() const { return columns_; }
  KOKKOS_FUNCTION bool is_first_lane() const { return lanes_.lane() == 0; }
  KOKKOS_FUNCTION int lane() const { return lanes_.lane(); }
  KOKKOS_FUNCTION int lanes() const { return lanes_.count(); }
  /// Joins a value of each lane; every lane gets the result. What they have read before may then be written.
  template <class Join>
  KOKKOS_FORCEINLINE_FUNCTION Acc join(Acc mine, Acc identity) const {
    return lanes_.template join<Join>(mine, identity);
  }
  /// On a CPU tiles may be kept in scratch between the passes of a kernel.
  KOKKOS_FUNCTION void keep_in(Acc* room) { kept_ = room; }
  KOKKOS_FUNCTION bool keeps() const { return !wide && kept_ != nullptr; }
  KOKKOS_FORCEINLINE_FUNCTION void keep(std::int64_t p) const {
    if (!keeps()) return;
    Acc* const to = kept_ + p * (packs * width);
    unrolled<packs>([&](int k) TESSERA_INLINE_LAMBDA {
      for (int j = 0; j < used(); ++j) to[k * width + j] = x[k][j];
    });
  }
  KOKKOS_FORCEINLINE_FUNCTION void recall(std::int64_t p) {
    Acc const* const from = kept_ + p * (packs * width);
    unrolled<packs>([&](int k) TESSERA_INLINE_LAMBDA {
      for (int j = 0; j < used(); ++j) x[k][j] = from[k * width + j];
    });
  }
  /// Elements of a pack that are worked on. A CPU's are long, and rows may be short.
  KOKKOS_FORCEINLINE_FUNCTION int used() const { return wide ? width : used_; }
  /// body(p) for each of the tile's portions, after prepare(p) has put it into x. A held tile has one portion.
  template <class Prepare, class Body>
  KOKKOS_FORCEINLINE_FUNCTION void for_each_portion(Prepare const& prepare, Body const& body) {
    if constexpr (Shape::held) {
      prepare(0);
      body(0);
    } else {
      std::int64_t const all = Shape::tile_columns > 0 ? std::int64_t{rows_} * (Shape::tile_columns / width)
                                                       : (columns_ + width - 1) / width;
      std::int64_t const step = std::int64_t{packs} * lanes_.count();
      for (std::int64_t p = 0; p * step < all; ++p) {
        if constexpr (!wide) used_ = (find(p, 0).count + vector - 1) / vector * vector;
        prepare(p);
        body(p);
      }
    }
  }

  /// Reads a portion of an operand into `to`; elements beyond the tile become `fill`.
  template <class Types>
  KOKKOS_FORCEINLINE_FUNCTION void load(Operand const& from, std::int64_t p, Portion& to, Acc fill) const {
    Types::visit(from.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using T = typename decltype(tag)::type;
      T const* const tile = static_cast<T const*>(from.data) + from.offset(grid_, at_);
      unrolled<packs>([&](int k) TESSERA_INLINE_LAMBDA {
        Place const place = find(p, k);
        T const* const first = tile + place.row * from.row + place.column * from.column;
        if constexpr (!wide) {
          if (from.packed)
            for (int j = 0; j < place.count; ++j) to[k][j] = static_cast<Acc>(first[j]);
          else
            for (int j = 0; j < place.count; ++j) to[k][j] = static_cast<Acc>(first[j * from.column]);
          for (int j = place.count; j < used(); ++j) to[k][j] = fill;
        } else if (from.packed && place.count == width) {
          auto const pack = *reinterpret_cast<RowPack<T, width, wide> const*>(first);
          for (int j = 0; j < width; ++j) to[k][j] = static_cast<Acc>(pack.element[j]);
        } else {
          for (int j = 0; j < width; ++j) to[k][j] = j < place.count ? static_cast<Acc>(first[j * from.column]) : fill;
        }
      });
    });
  }

  /// Writes x to a portion of an operand. With `Round`, x becomes what was stored.
  template <class Types, bool Round = false>
  KOKKOS_FORCEINLINE_FUNCTION void store(Operand const& to, std::int64_t p) {
    Types::visit(to.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using T = typename decltype(tag)::type;
      T* const tile = static_cast<T*>(const_cast<void*>(to.data)) + to.offset(grid_, at_);
      unrolled<packs>([&](int k) TESSERA_INLINE_LAMBDA {
        Place const place = find(p, k);
        T* const first = tile + place.row * to.row + place.column * to.column;
        if constexpr (!wide) return store_strip<T, Round>(to, x[k], place.count, first);
        RowPack<T, width, wide> pack;
        for (int j = 0; j < width; ++j) pack.element[j] = stored<T>(x[k][j]);
        if constexpr (Round)
          for (int j = 0; j < width; ++j) x[k][j] = static_cast<Acc>(pack.element[j]);
        if (to.packed && place.count == width) {
          *reinterpret_cast<decltype(pack)*>(first) = pack;
        } else {
          for (int j = 0; j < width; ++j)
            if (j < place.count) first[j * to.column] = pack.element[j];
        }
      });
    });
  }

  /// Writes the one value that an operand has for this tile; for one lane to call.
  KOKKOS_FORCEINLINE_FUNCTION void store_value(Operand const& to, Acc value) const {
    std::int64_t const offset = to.value_offset(at_);
    void* const data = const_cast<void*>(to.data);
    if (to.type == Scalar::fp64)
      static_cast<double*>(data)[offset] = static_cast<double>(value);
    else
      static_cast<float*>(data)[offset] = static_cast<float>(value);
  }

  /// The one value that an operand of fp32 has for this tile.
  KOKKOS_FORCEINLINE_FUNCTION float value(Operand const& from) const {
    return static_cast<float const*>(from.data)[from.value_offset(at_)];
  }

  /// x = f(x) for every element of the portion, those beyond the tile as well.
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void map(F const& f) {
    unrolled<packs>([&](int k) TESSERA_INLINE_LAMBDA {
      for (int j = 0; j < used(); ++j) x[k][j] = f(x[k][j]);
    });
  }
  /// x = f(x, y), element by element.
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void map(Portion const& y, F const& f) {
    unrolled<packs>([&](int k) TESSERA_INLINE_LAMBDA {
      for (int j = 0; j < used(); ++j) x[k][j] = f(x[k][j], y[k][j]);
    });
  }
  /// Elements beyond the tile become `fill` again.
  KOKKOS_FORCEINLINE_FUNCTION void fill_residue(std::int64_t p, Acc fill) {
    unrolled<packs>([&](int k) TESSERA_INLINE_LAMBDA {
      int const count = find(p, k).count;
      if (count < width)
        for (int j = wide ? 0 : count; j < used(); ++j) x[k][j] = j < count ? x[k][j] : fill;
    });
  }

  /// Joins value(x) over the whole tile, in each lane by `width` independent totals, which a CPU keeps in vector
  /// registers.
  template <class Join, class T, class Prepare, class Value>
  KOKKOS_FORCEINLINE_FUNCTION T reduce(T identity, Prepare const& prepare, Value const& value) {
    T totals[width];
    for (int j = 0; j < width; ++j) totals[j] = identity;
    for_each_portion(prepare, [&](std::int64_t) TESSERA_INLINE_LAMBDA {
      unrolled<packs>([&](int k) TESSERA_INLINE_LAMBDA {
        for (int j = 0; j < used(); ++j) totals[j] = Join{}(totals[j], value(x[k][j]));
      });
    });
    if constexpr (!wide)
      for (int half = width / 2; half >= 8; half /= 2)
        for (int j = 0; j < half; ++j) totals[j] = Join{}(totals[j], totals[j + half]);
    T total = totals[0];
    for (int j = 1; j < (wide ? width : 8); ++j) total = Join{}(total, totals[j]);
    return lanes_.template join<Join>(total, identity);
  }

  /// The sum of value(x) over the whole tile.
  template <class Prepare, class Value>
  KOKKOS_FORCEINLINE_FUNCTION Acc sum(Prepare const& prepare, Value const& value) {
    return reduce<Add>(Acc(0), prepare, value);
  }

 private:
  struct Place {
    std::int64_t row, column;  // in the tile
    int count;                 // elements of the pack that are in the tile
  };

  KOKKOS_FORCEINLINE_FUNCTION static std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

  KOKKOS_FORCEINLINE_FUNCTION Place find(std::int64_t p, int k) const {
    if constexpr (Shape::tile_columns > 0) {
      constexpr int packs_a_row = Shape::tile_columns / width;
      int const pack = (static_cast<int>(p) * packs + k) * lanes_.count() + lanes_.lane();
      int const row = pack / packs_a_row, column = pack % packs_a_row * width;
      int const left = row < rows_ ? static_cast<int>(columns_) - column : 0;
      return {row, column, left < 0 ? 0 : left < width ? left : width};
    } else {
      std::int64_t const column = ((p * packs + k) * lanes_.count() + lanes_.lane()) * width;
      std::int64_t const left = columns_ - column;
      return {0, column, static_cast<int>(left < 0 ? 0 : left < width ? left : width)};
    }
  }

  /// Stores the elements of a CPU's pack that are in the tile.
  template <class T, bool Round>
  KOKKOS_FORCEINLINE_FUNCTION static void store_strip(Operand const& to, Acc (&from)[width], int count, T* first) {
    if (to.streamed && count == width) {
      if constexpr (std::is_same_v<T, Acc>) {
        stream(first, from, sizeof from);
      } else {
        T strip[width];
        store_neighbours(from, width, strip);
        stream(first, strip, sizeof strip);
      }
    } else if (to.packed) {
      store_neighbours(from, count, first);
    } else {
      for (int j = 0; j < count; ++j) first[j * to.column] = stored<T>(from[j]);
    }
    if constexpr (Round)
      for (int j = 0; j < count; ++j) from[j] = static_cast<Acc>(stored<T>(from[j]));
  }

  Lanes<Exec, Shape::by> const& lanes_;
  TileGrid const& grid_;
  TileIndex at_;
  std::int64_t columns_;
  int rows_ = 1;
  int used_ = width;
  Acc* kept_ = nullptr;
};

/// Runs f(walk) for the tiles of a team: `tiles_a_team` consecutive ones, dealt out among its workers.
template <class Exec, class Acc, class Shape, class F>
KOKKOS_FORCEINLINE_FUNCTION void for_each_tile(TeamMember<Exec> const& team, TileGrid const& grid, std::int64_t tiles,
                                               std::int64_t tiles_a_team, F const& f) {
  Lanes<Exec, Shape::by> const lanes(team);
  std::int64_t const begin = team.league_rank() * tiles_a_team;
  std::int64_t const end = begin + tiles_a_team < tiles ? begin + tiles_a_team : tiles;
  int const worker = Shape::by == Worker::team ? 0 : team.team_rank();
  for (std::int64_t tile = begin + worker; tile < end; tile += Shape::template workers<Exec>) {
    Walk<Exec, Acc, Shape> walk(lanes, grid, tile_index(grid, tile));
    f(walk);
  }
  if constexpr (Machine<Exec>::is_host) streaming_done();
}

}  // namespace tessera::detail

#endif
