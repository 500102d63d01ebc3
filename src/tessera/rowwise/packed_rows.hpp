// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_ROWS_HPP
#define TESSERA_ROWWISE_PACKED_ROWS_HPP

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include <tessera/detail/rows.hpp>
#include <tessera/divisor.hpp>
#include <tessera/elementary.hpp>
#include <tessera/passing.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/rowwise/operand.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/warp.hpp>

// Rows of one type on machines with warps: a thread reads all its packs before it uses the first, keeps them in
// registers, and reduces by shuffles. Such kernels move bytes at the speed of a copy if they spend some 25 instructions
// on an element of 16 bits. Where rows begin at multiples of 16 bytes and consist of whole packs, that is all. Others
// are packs at multiples of 16 bytes and a few single elements before and behind these, of which each thread has one or
// two beside its packs; in all operands of such a kernel packs begin at the same columns. What is neither takes the
// walk of walk.hpp.
namespace tessera::detail {

/// `Lanes` neighbouring lanes share a row (up to a warp, or else a whole team), each with `Packs` packs of it and
/// `Singles` of its single elements.
template <int Lanes, int Threads, int Packs, int Singles = 0>
struct PackedShape {
  static_assert(Lanes <= 32 || Lanes == Threads);
  static_assert(Singles == 0 || Singles * Lanes >= 14, "of 16 bits there are 7 at either end");
  static constexpr int lanes = Lanes, threads = Threads, packs = Packs, singles = Singles, parts = Packs + Singles;
  static constexpr int warps = Lanes > 32 ? Lanes / 32 : 1, neighbours = Lanes > 32 ? 32 : Lanes;
  static constexpr int rows_a_team = Threads / Lanes;
  static constexpr int registers = (Packs < 4 ? 40 : 64) + (Singles > 0 ? 8 : 0);  // of a thread
};

/// One whose row takes a team, with so many registers a thread.
template <int Lanes, int Packs, int Registers, int Singles = 0>
struct TeamRowShape : PackedShape<Lanes, Lanes, Packs, Singles> {
  static constexpr int registers = Registers;
};

/// Of a pack, in as few steps that wait for each other as it takes.
template <int N>
KOKKOS_FORCEINLINE_FUNCTION float largest(Pack<float, N> x) {
  for (int half = N / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) x[j] = larger(x[j], x[j + half]);
  return x[0];
}
template <int N>
KOKKOS_FORCEINLINE_FUNCTION float sum_of(Pack<float, N> x) {
  for (int half = N / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) x[j] += x[j + half];
  return x[0];
}

/// How many elements behind the beginning of a pack rows begin: `first` and so many more a matrix or row, in whole
/// packs more or less.
struct PackPhase {
  std::uint32_t first = 0, outer = 0, inner = 0, row = 0;
  friend bool operator==(PackPhase const&, PackPhase const&) = default;
};

/// The rows of a launch, of one matrix or several; of all matrices' last rows something may be missing.
struct PackedGrid {
  std::int64_t rows = 0;  // of all matrices
  int packs = 0;          // of a row,
  int last_packs = 0;     // of the last one of each matrix
  int around = 0;         // that a row is part of
  bool flat = true;       // one matrix
  Divisor matrix_rows, inner;
  int columns = 0;
  bool ragged = false;  // of rows that begin anywhere: then `packs` is how many one may have
  PackPhase phase;
  std::int64_t apart = 0;  // of ragged rows: before this one there are the elements of a pack behind a row's last one
  ReadOnce once;

  PackedGrid(TileGrid const& grid, int width, std::int64_t missing = 0)
      : rows(grid.tiles()),
        packs(static_cast<int>(grid.columns / width)),
        last_packs(static_cast<int>((grid.columns - missing) / width)),
        around(packs),
        flat(grid.leading[0] * grid.leading[1] == 1),
        matrix_rows(grid.rows),
        inner(grid.leading[1]),
        columns(static_cast<int>(grid.columns)) {}
  /// How the rows of a kernel are read that reads so many operands of them and writes so many.
  void pass(int read, int written) {
    once = ReadOnce(rows * packs * static_cast<std::int64_t>(pack_bytes), read, written);
  }
};

template <class T>
inline constexpr int packed_width = static_cast<int>(pack_bytes / sizeof(T));

/// Which row of which matrix.
struct PackedRowPlace {
  std::int64_t outer = 0, inner = 0, row = 0;
  bool alone = true;  // there is one matrix

  PackedRowPlace() = default;
  KOKKOS_FORCEINLINE_FUNCTION PackedRowPlace(PackedGrid const& grid, std::int64_t all)
      : PackedRowPlace(grid, all, grid.rows <= std::numeric_limits<std::int32_t>::max()) {}
  /// Of fewer than 2^31 rows.
  KOKKOS_FORCEINLINE_FUNCTION PackedRowPlace(PackedGrid const& grid, int all) : PackedRowPlace(grid, all, true) {}
  /// Of the row's first element, or of the row's value in an operand that has one a row.
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t offset(Operand const& a) const {
    return outer * a.outer + inner * a.inner + row * a.row;
  }
  /// How many elements of its first pack lie before the row.
  KOKKOS_FORCEINLINE_FUNCTION int shift(PackPhase const& phase, int width) const {
    std::uint32_t const elements = phase.first + static_cast<std::uint32_t>(outer) * phase.outer +
                                   static_cast<std::uint32_t>(inner) * phase.inner +
                                   static_cast<std::uint32_t>(row) * phase.row;
    return static_cast<int>(elements % static_cast<std::uint32_t>(width));
  }
  template <class Value>
  KOKKOS_FORCEINLINE_FUNCTION Value& value(Operand const& a) const {
    return static_cast<Value*>(const_cast<void*>(a.data))[offset(a)];
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION PackedRowPlace(PackedGrid const& grid, std::int64_t all, bool small)
      : row(all), alone(grid.flat) {
    if (alone) return;
    std::int64_t const matrix = grid.matrix_rows.quotient(all, small);
    outer = grid.inner.quotient(matrix, small);
    inner = matrix - outer * grid.inner.by;
    row -= matrix * grid.matrix_rows.by;
  }
};

/// What a thread has of a row of a shape: the packs, then the single elements.
template <class T, int Width, class Shape>
struct RowParts {
  Pack<T, Width> pack[Shape::packs];
  Pack<T, 1> single[Shape::singles > 0 ? Shape::singles : 1];

  template <int K>
  KOKKOS_FORCEINLINE_FUNCTION auto& operator[](Constant<K>) {
    if constexpr (K < Shape::packs)
      return pack[K];
    else
      return single[K - Shape::packs];
  }
  template <int K>
  KOKKOS_FORCEINLINE_FUNCTION auto const& operator[](Constant<K>) const {
    if constexpr (K < Shape::packs)
      return pack[K];
    else
      return single[K - Shape::packs];
  }
};

/// What an output of rows of T may hold.
template <class T>
using PackedOutputs = TypeList<T, e4m3_t>;

/// One thread's part of a row of T: packs `lane`, `lane + lanes` and so on, and single elements likewise.
template <class Exec, class Shape, class T, int Width = packed_width<T>>
struct PackedRow {
  static constexpr int packs = Shape::packs, parts = Shape::parts, width = Width, lanes = Shape::lanes;
  static constexpr bool ragged = Shape::singles > 0;
  using Atoms = WarpAtoms<Exec>;
  using Raw = Pack<T, width>;
  using Values = Pack<float, width>;
  using RawParts = RowParts<T, width, Shape>;
  using ValueParts = RowParts<float, width, Shape>;
  using Outputs = std::conditional_t<ragged, TypeList<T>, PackedOutputs<T>>;

  int lane, count;  // of the row's packs
  int singles = 0;  // of the row; if it has neither there is no such row
  int before = 0;   // of them before the packs
  ReadOnce once;
  PackedRowPlace place;

  KOKKOS_FORCEINLINE_FUNCTION PackedRow(int own_lane, int packs_of_row, ReadOnce operands = {})
      : lane(own_lane), count(packs_of_row), once(operands) {}
  KOKKOS_FORCEINLINE_FUNCTION PackedRow(PackedGrid const& grid, int team) : once(grid.once) {
    int const thread = Atoms::thread();
    lane = thread % lanes;
    std::int64_t const row = static_cast<std::int64_t>(team) * Shape::rows_a_team + thread / lanes;
    bool const inside = Shape::rows_a_team == 1 || row < grid.rows;
    if (inside) place = PackedRowPlace(grid, row);
    if constexpr (ragged) {
      count = 0;
      if (!inside) return;
      before = (width - place.shift(grid.phase, width)) % width;
      if (before > grid.columns) before = grid.columns;
      count = (grid.columns - before) / width;
      singles = grid.columns - count * width;
    } else {
      count = !inside ? 0 : place.row + 1 < grid.matrix_rows.by ? grid.packs : grid.last_packs;
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION bool inside() const { return count + singles > 0; }
  /// The elements of part k, a pack or a single one.
  template <class K>
  static constexpr int size = K::value < packs ? width : 1;
  /// Whether part k is in the row, and its first column.
  template <int K>
  KOKKOS_FORCEINLINE_FUNCTION bool has(Constant<K>) const {
    return K < packs ? K * lanes + lane < count : (K - packs) * lanes + lane < singles;
  }
  template <int K>
  KOKKOS_FORCEINLINE_FUNCTION int column(Constant<K>) const {
    if (K < packs) return before + (K * lanes + lane) * width;
    int const single = (K - packs) * lanes + lane;
    return single < before ? single : single + count * width;
  }
  /// Whether a column is one of this thread's.
  KOKKOS_FORCEINLINE_FUNCTION bool has_column(int at) const {
    int const packed = at - before;
    if (!ragged || (packed >= 0 && packed < count * width)) return packed / width % lanes == lane;
    return (packed < 0 ? at : at - count * width) % lanes == lane;
  }
  /// As of the place, with a question for all of one matrix in place of four multiplications.
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t offset(Operand const& a) const {
    return place.alone ? place.row * a.row : place.offset(a);
  }
  /// The parts of an operand, which is read once; those beyond the row are `rest` throughout.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void load(Operand const& from, To& to, T rest) const {
    load_once(static_cast<T const*>(from.data) + offset(from), to, rest);
  }
  /// The same of a row that begins at `first`. 8 bits that become more are up to 4 % slower with any policy but the
  /// machine's own.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void load_once(T const* first, To& to, T rest) const {
    if constexpr (sizeof(T) == 1)
      load(first, to, rest);
    else
      load(once(first), to, rest);
  }
  /// The same of what all rows have in common.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void load(T const* first, To& to, T rest) const {
    unroll<parts>([&](auto k) {
      using Bits = PackBits<T, size<decltype(k)>>;
      Bits bits = Bits::filled(rest);
      if (has(k)) bits = *reinterpret_cast<Bits const*>(first + column(k));
      to[k] = bits.pack();
    });
  }
  /// The parts of an operand, from value(k), a pack of values.
  template <class To, class Value>
  KOKKOS_FORCEINLINE_FUNCTION void store(Operand const& to, Value const& value) const {
    store(static_cast<To*>(const_cast<void*>(to.data)) + offset(to), value);
  }
  /// The same of a row that begins at `first`.
  template <class To, class Value>
  KOKKOS_FORCEINLINE_FUNCTION void store(To* first, Value const& value) const {
    unroll<parts>([&](auto k) {
      auto const x = Atoms::template narrowed<To>(value(k));
      if (has(k)) store_pack<size<decltype(k)>>(first + column(k), x);
    });
  }

  /// Over the lanes of a warp that share the row.
  template <class X, class Join>
  KOKKOS_FORCEINLINE_FUNCTION static X join(X x, Join const& f) {
    return Atoms::template join<Shape::neighbours>(x, f);
  }
  /// Of a team that shares the row: in lane i of each warp what warp i % warps has.
  template <class Tag, class X>
  KOKKOS_FORCEINLINE_FUNCTION static X of_warp(X x) {
    return Atoms::template share<Tag, Shape::warps>(x);
  }
  /// Over what of_warp() has given.
  template <class X, class Join>
  KOKKOS_FORCEINLINE_FUNCTION static X join_parts(X x, Join const& f) {
    return Atoms::template join<static_cast<int>(std::bit_ceil(static_cast<unsigned>(Shape::warps)))>(x, f);
  }
};

/// Whether rows of this type and length can be such.
inline bool packed_rows(TileGrid const& grid, Scalar type) {
  auto const width = static_cast<std::int64_t>(pack_bytes / size_of(type));
  return type != Scalar::fp64 && grid.columns > 0 && grid.columns % width == 0 &&
         grid.columns <= std::numeric_limits<std::int32_t>::max();
}

inline bool is_packed_operand(RowArray const& a, TileGrid const& grid, int width, Scalar type) {
  return !a.present() || (a.type == type && operand(a, grid, width, true).packed);
}
template <class T>
bool is_packed_output(RowArray const& a, TileGrid const& grid) {
  return (a.type == scalar_of<T> || a.type == Scalar::e4m3) && operand(a, grid, packed_width<T>, true).packed;
}

/// Makes rows of T ragged if each of the operands (or what is there of them) allows that: neighbouring elements, packs
/// at the same columns.
template <class T, class... Array>
bool make_ragged(PackedGrid& rows, TileGrid const& grid, RowArray const& first, Array const&... rest) {
  constexpr int width = packed_width<T>;
  if (grid.columns <= 0 || grid.columns > std::numeric_limits<std::int32_t>::max() / 2) return false;
  auto const neighbours = [&](RowArray const& a) {
    return a.type == scalar_of<T> && (a.stride[3] == 1 || grid.columns == 1) &&
           reinterpret_cast<std::uintptr_t>(a.data) % sizeof(T) == 0;
  };
  auto const phase_of = [&](RowArray const& a) {
    auto const stride = [&](int d) {
      return a.extent[d] == 1 ? 0u : static_cast<std::uint32_t>(a.stride[d]) % static_cast<std::uint32_t>(width);
    };
    auto const elements = reinterpret_cast<std::uintptr_t>(a.data) / sizeof(T);
    return PackPhase{static_cast<std::uint32_t>(elements % width), stride(0), stride(1), stride(2)};
  };
  auto const fits = [&](RowArray const& a) {
    return !a.present() || (neighbours(a) && phase_of(a) == phase_of(first));
  };
  if (!fits(first) || !(fits(rest) && ...)) return false;
  // The last row ends behind all others, and no other ends so near to it as within a pack, unless rows overlap.
  auto const overlap = [&](RowArray const& a) {
    bool near = false;
    for (int d = 0; d < 3; ++d) near = near || (a.extent[d] > 1 && a.stride[d] < width);
    return a.present() && near;
  };
  rows.apart = overlap(first) || (overlap(rest) || ...) ? 0 : rows.rows - 1;
  rows.ragged = true;
  rows.around = static_cast<int>((grid.columns + 2 * width - 2) / width);
  rows.phase = phase_of(first);
  return true;
}

/// f(whether they are ragged, as a type)
template <class F>
void with_row_kind(PackedGrid const& rows, F const& f) {
  if (rows.ragged)
    f(std::true_type{});
  else
    f(std::false_type{});
}

/// f(Shape{}) with the shape for rows of 65 packs and more: four packs a thread, which is what 64 registers hold of
/// 16-bit elements, pay for its share of reductions and addresses.
template <class F>
void with_longer_packed_shape(std::int64_t packs, F const& f) {
  if (packs <= 128)
    f(PackedShape<32, 256, 4>{});
  else if (packs <= 256)
    f(PackedShape<64, 64, 4>{});
  else if (packs <= 512)
    f(PackedShape<128, 128, 4>{});
  else if (packs <= 1024)
    f(PackedShape<256, 256, 4>{});
  else
    f(PackedShape<512, 512, 4>{});
}
/// The same for kernels that have a lot of rows between powers of two: more packs a thread where every third thread, or
/// fourth, would have none of four. Of `longest_team_row` packs at most.
template <class T, class F>
void with_fitting_shape(std::int64_t packs, F const& f) {
  auto const within = [&](std::int64_t fewest, std::int64_t most) { return packs > fewest && packs <= most; };
  if (within(256, 320)) return f(TeamRowShape<64, 5, 72>{});
  if (within(512, 640)) return f(TeamRowShape<128, 5, 72>{});
  if (within(640, 768)) return f(TeamRowShape<128, 6, 80>{});
  if (within(1024, 1280)) return f(TeamRowShape<256, 5, 72>{});
  if (within(1280, 1536)) return f(TeamRowShape<256, 6, 80>{});
  if (within(1536, 1792)) return f(TeamRowShape<256, 7, 80>{});
  if (within(2048, 2560)) return f(TeamRowShape<512, 5, 64>{});
  if constexpr (sizeof(T) == 4) {
    if (within(2560, 3072)) return f(TeamRowShape<512, 6, 64>{});
    if (within(3072, 4096)) return f(TeamRowShape<512, 8, 64>{});
  }
  with_longer_packed_shape(packs, f);
}
template <class T>
inline constexpr std::int64_t longest_team_row = sizeof(T) == 4 ? 4096 : 2560;

/// The same for few rows of 65 to 512 packs, a team each, of which a thread has two.
template <class F>
void with_few_rows_shape(std::int64_t packs, F const& f) {
  if (packs <= 128)
    f(PackedShape<64, 64, 2>{});
  else if (packs <= 256)
    f(PackedShape<128, 128, 2>{});
  else
    f(PackedShape<256, 256, 2>{});
}
/// Whether kernels with few parameters can step from row to row of it.
inline bool has_short_steps(RowArray const& a) {
  return a.stride[2] >= 0 && a.stride[2] <= std::numeric_limits<int>::max();
}
inline constexpr std::int64_t longest_packed_row = 2048, longest_ragged_row = 1024;

/// The same for rows with single elements, longest_ragged_row at most.
template <class F>
void with_ragged_shape(std::int64_t packs, F const& f) {
  if (packs <= 8)
    f(PackedShape<8, 256, 1, 2>{});
  else if (packs <= 16)
    f(PackedShape<8, 256, 2, 2>{});
  else if (packs <= 32)
    f(PackedShape<8, 256, 4, 2>{});
  else if (packs <= 64)
    f(PackedShape<16, 256, 4, 1>{});
  else if (packs <= 128)
    f(PackedShape<32, 128, 4, 1>{});
  else if (packs <= 256)
    f(PackedShape<64, 64, 4, 1>{});
  else if (packs <= 512)
    f(PackedShape<128, 128, 4, 1>{});
  else
    f(PackedShape<256, 256, 4, 1>{});
}
/// The same for longer ones, longest_ragged_team_row at most, of kernels that have a lot of them.
template <class T, class F>
void with_longer_ragged_shape(std::int64_t packs, F const& f) {
  constexpr int of_six = sizeof(T) == 4 ? 80 : 88;  // registers
  if (packs <= 1280)
    f(TeamRowShape<256, 5, 80, 1>{});
  else if (packs <= 1536)
    f(TeamRowShape<256, 6, of_six, 1>{});
  else if (packs <= 2048)
    f(TeamRowShape<512, 4, 64, 1>{});
  else if constexpr (sizeof(T) == 4)
    packs <= 2560   ? f(TeamRowShape<512, 5, 64, 1>{})
    : packs <= 3072 ? f(TeamRowShape<512, 6, 64, 1>{})
                    : f(TeamRowShape<512, 8, 64, 1>{});
}
template <class T>
inline constexpr std::int64_t longest_ragged_team_row = sizeof(T) == 4 ? 4096 : 2048;
/// The same for rows of any kind; of those of up to 64 packs two a thread, as more of them then fit.
template <class T, class F>
void with_packed_shape(PackedGrid const& rows, F const& f) {
  if (rows.ragged)
    rows.packs <= longest_ragged_row ? with_ragged_shape(rows.packs, f) : with_longer_ragged_shape<T>(rows.packs, f);
  else if (rows.packs <= 8)
    f(PackedShape<4, 128, 2>{});
  else if (rows.packs <= 16)
    f(PackedShape<8, 128, 2>{});
  else if (rows.packs <= 32)
    f(PackedShape<16, 128, 2>{});
  else if (rows.packs <= 64)
    f(PackedShape<32, 128, 2>{});
  else
    with_fitting_shape<T>(rows.packs, f);
}
/// Whether the threads of a team can hold such a row.
inline bool fits_a_team(PackedGrid const& rows, std::int64_t longest = longest_packed_row,
                        std::int64_t longest_ragged = longest_ragged_row) {
  return rows.packs <= (rows.ragged ? longest_ragged : longest);
}
inline constexpr int most_teams_together = 16;  // that share a longer one

/// As many teams to a multiprocessor as its 65536 registers allow, 32 at most.
template <class Shape>
inline constexpr int teams_of_registers = std::min(65536 / Shape::registers / Shape::threads, 32);

/// Starts make(Shape{}), a kernel of a team a row, for few rows of 65 to 512 packs: with as many threads on a
/// multiprocessor as it runs at once at most. Whether it has.
template <class Exec, class Make>
bool launch_few_rows(char const* label, Exec const& exec, PackedGrid const& rows, Make const& make) {
  bool started = false;
  if (rows.ragged || !rows.flat || rows.packs <= 64 || rows.packs > 512) return false;
  with_few_rows_shape(rows.packs, [&](auto shape) {
    using Shape = decltype(shape);
    if (rows.rows * Shape::threads > std::int64_t{1024} * Machine<KernelSpace<Exec>>::concurrency(exec)) return;
    launch<Shape::threads, 512 / Shape::threads>(KernelLabel{label, "few rows in registers"}, exec, rows.rows, 0,
                                                 make(shape));
    started = true;
  });
  return started;
}

template <class Shape, class Exec, class Kernel>
void launch_packed(char const* label, Exec const& exec, PackedGrid const& grid, Kernel const& kernel) {
  launch<Shape::threads, teams_of_registers<Shape>>(
      KernelLabel{label, grid.ragged ? "unaligned rows in registers" : "rows in registers"}, exec,
      (grid.rows + Shape::rows_a_team - 1) / Shape::rows_a_team, 0, kernel);
}

}  // namespace tessera::detail

#endif
