// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATOMS_HPP
#define TESSERA_ATOMS_HPP

#include <algorithm>
#include <climits>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/detail/matrix.hpp>

// The contract between a kernel and a machine. A kernel is typed input streams (what is read, step by step) and a
// straight-line body (what is done with it); it names no thread, barrier, role or machine. A backend supplies the atoms
// below and a pipeline that runs both halves of any kernel. docs/architecture.md tells it at length.
namespace tessera::detail {

/// What a kernel reads: one stage type a stream, in the order in which the body first acquires them.
template <class... Stage>
struct Streams {};

/// What a body holds beside its stages: fragments that may live in scratch on some machines, so that the launcher finds
/// room.
template <class... Fragment>
struct Fragments {
  static constexpr std::size_t scratch_bytes = (Fragment::scratch_bytes + ... + 0);
  /// Where one of them is in scratch at a time.
  static constexpr std::size_t most_bytes = std::max({Fragment::scratch_bytes..., std::size_t{0}});
};

/// The choices that a configuration for the bulk pipeline makes, with what most of them take.
struct BulkSizes {
  static constexpr int producer_registers = 40, consumer_registers = 232;
  static constexpr bool ping_pong = false;    // each consumer has a tile: one stores while the other multiplies
  static constexpr int consumers = 2;         // warpgroups that run the body
  static constexpr int teams_at_once = 1;     // that a multiprocessor has registers for
  static constexpr bool take_turns = false;   // the consumers multiply one after the other
  static constexpr bool staged_store = true;  // results leave through shared memory
  static constexpr int store_boxes = 2;       // of 64 lines a consumer there
  static constexpr bool adds = false;         // accumulators are added to memory
  static constexpr bool staged_adds = true;   // through shared memory
  static constexpr bool multicast = false;    // teams of a cluster may load tiles together
  // There are registers for which lanes give stages back to which team.
  static constexpr bool ready_releases = false;
  static constexpr bool pairs_stages = false;  // they are given back two at a time
  static constexpr bool cuts_tiles = false;  // what hangs over an edge is not copied, for which too there are registers
  static constexpr bool rehearses = false;   // the body runs once without a step, before there is anything to do
  static constexpr bool joins = false;       // teams of a cluster may share a tile along K
  static constexpr bool knows_scratch = true;  // the compiler does: that there is some
  static constexpr bool turned = false;        // of results rows have a contiguous index, at multiples of 16 bytes
  // The factor's contiguous index is not the contracted one.
  static constexpr bool left_across = false, right_across = false;
};

/// Teams on neighbouring tiles that run at the same time, row by row: those one above the other need the same right
/// tiles, those beside each other the same left ones. One, two or four in either direction.
struct Cluster {
  int rows = 1, cols = 1;
  KOKKOS_FUNCTION constexpr int teams() const { return rows * cols; }
  KOKKOS_FUNCTION constexpr int row(int team) const { return team >> cols / 2; }
  KOKKOS_FUNCTION constexpr int col(int team) const { return team & (cols - 1); }
  bool operator==(Cluster const&) const = default;
};

/// Pointer and strides as bulk copies need them: 16-byte multiples, the last index contiguous, extents within 31 bits.
KOKKOS_INLINE_FUNCTION bool bulk_copyable(MatrixStack const& m) {
  auto const size = static_cast<std::int64_t>(size_of(m.type));
  auto const fits = [&](std::int64_t extent, std::int64_t stride) {
    std::int64_t const bytes = stride * size;
    return extent <= INT_MAX && (extent <= 1 || (bytes % 16 == 0 && bytes > 0 && bytes < (std::int64_t(1) << 40)));
  };
  return reinterpret_cast<std::uintptr_t>(m.data) % 16 == 0 && (m.cols <= 1 || m.col_stride == 1) &&
         m.cols <= INT_MAX && fits(m.rows, m.row_stride) && fits(m.inner, m.inner_stride) &&
         fits(m.outer, m.outer_stride);
}

/// In place of an element function: elements stay as they are.
struct Unchanged {};

/// A callable with the shape of an element function, to state concepts with.
struct ElementProbe {
  template <class T>
  KOKKOS_FUNCTION void operator()(T&, int, int) const {}
};

/// A callable for values a row and for an element beside its row's value, likewise.
struct RowProbe {
  template <class T, class U>
  KOKKOS_FUNCTION void operator()(T&&, U&&) const {}
};

/// Work without an element, likewise.
struct WorkProbe {
  KOKKOS_FUNCTION void operator()() const {}
};

/// Copy: fills a stage's tile from one matrix of a bound stack. Elements outside the matrix become zero.
template <class A, class Tile>
concept Copies = requires(typename A::Copy const& copy, typename A::Source const& source, Plane plane, std::int64_t at,
                          Tile& tile) {
  copy(source, plane, at, at, tile);
  { A::template source<Tile>(MatrixStack{}) } -> std::same_as<typename A::Source>;
};

/// Copies of tiles whose rows lie in pages: copy(source, PagedRows, ...) in place of a plane, the source from
/// paged_source(). On some machines a tile is whole pages or a page whole tiles.
template <class A>
concept ReadsPages = A::reads_pages;

/// Tiles RightTransposed of rounded weights want their matrix with the rows contiguous, those of each RowOrder::rows in
/// its order, and zero behind the last that counts.
template <class A>
concept WantsRowsContiguous = A::rows_contiguous;

/// Weights are rounded times 2 to a power.
template <class A>
constexpr int weight_exponent() {
  if constexpr (requires { A::weight_exponent; })
    return A::weight_exponent;
  else
    return 0;
}

/// Math on an (M, N) accumulator: asynchronous multiply of two staged tiles, waiting, element access, store.
template <class A, int M, int N, int K>
concept Multiplies = requires(typename A::Math& math, typename A::template Left<M, K> const& left,
                              typename A::template Right<N, K> const& right,
                              typename A::template Accumulator<M, N>& acc, typename A::Target const& target,
                              Plane plane, std::int64_t at) {
  math.multiply(left, right, acc, true);  // acc = left right^T, or acc += it; returns at once
  math.template wait_all_but<1>(acc);     // all but the newest n multiplies are done
  math.clear(acc);
  { math.join(acc) } -> std::same_as<bool>;  // acc = the sum over the teams that share the tile, in one of them: true
  math.for_each(acc, ElementProbe{});        // f(element, row, column) for this thread's share
  math.store(acc, target, plane, at, at);    // elements inside the target's matrix
};

/// Math that stores the rows before a limit of the kernel's.
template <class A, int M, int N>
concept StoresRows = requires(typename A::Math& math, typename A::template Accumulator<M, N>& acc,
                              typename A::Target const& target, Plane plane, std::int64_t at) {
  math.store(acc, target, plane, at, at, at);  // elements inside the target's matrix, in rows before the last
};

/// Math for sums of blocks of K, each times a scale a row and a scale for every 64 columns.
template <class A, int M, int N>
concept AddsScaled = requires(typename A::Math& math, typename A::template RowValues<M>& rows,
                              typename A::Compute const* cols, typename A::template Accumulator<M, N>& acc) {
  math.each_row(rows, RowProbe{});                    // f(value, row) by every holder of the row
  math.template add_scaled<0>(acc, rows, cols, acc);  // to(i, j) += from(i, j) rows(i) cols[j / 64]
};

/// Math for a second product whose left factor is an accumulator rounded to operand precision, and for values a row.
template <class A, int M, int N, int K>
concept MultipliesRounded = requires(typename A::Math& math, typename A::template Accumulator<M, K>& from,
                                     typename A::template Rounded<M, K>& left,
                                     typename A::template RightTransposed<K, N> const& right,
                                     typename A::template Accumulator<M, N>& acc,
                                     typename A::template RowValues<M>& rows) {
  math.round(from, left);
  math.multiply(left, right, acc, true);      // right as it lies in memory: K rows of N
  math.row_max(from, rows);                   // rows = max(rows, maximum of each row), known to every holder of the row
  math.row_add_partial(from, rows);           // rows += sum of the holder's own elements of the row
  math.row_combine(rows);                     // partial sums become sums
  math.for_rows(RowProbe{}, rows, rows);      // f(values...) of each row that this thread holds
  math.for_each_with(acc, rows, RowProbe{});  // f(element, its row's value)
  math.each_row(rows, RowProbe{});            // f(value, row) by every holder of the row
  math.once_per_row(rows, RowProbe{});        // f(value, row), once for every row of the tile
  { A::Math::exp2(typename A::Compute{}) } -> std::same_as<typename A::Compute>;
  math.turn(WorkProbe{});  // a group of matrix work that teams' halves may take in turns
};
// A machine may have two of these loops in one word: math.exponentials(acc, scale, rows, sums), which is element =
// 2^(element scale - its row's value), exponents being below 128, and sums += the holder's own; and
// math.scale_rows(acc, rows), element *= its row's value.

/// The kernel reads how many tiles there are where it runs, too late for the host to start a team for each.
template <class Kernel>
concept CountsTilesInPlace = Kernel::counts_tiles_in_place;

/// A kernel whose tile() reads no memory, so that a team may know its first tile before the kernels ahead are done.
template <class Kernel>
concept PlacesTilesAhead = Kernel::places_tiles_ahead;

/// A kernel that has another order of its tiles where each has a team, which begins when a multiprocessor is free.
template <class Kernel>
void order_for_a_team_each([[maybe_unused]] Kernel& kernel) {
  if constexpr (requires { kernel.order_for_a_team_each(); }) kernel.order_for_a_team_each();
}

/// The two halves of a kernel. Tiles are counted in 31 bits, which is what a league holds.
template <class Kernel>
concept TileKernel = std::is_copy_constructible_v<Kernel> && requires(Kernel const& kernel) {
  typename Kernel::Tile;
  typename Kernel::Inputs;
  typename Kernel::Held;
  { kernel.tiles() } -> std::same_as<std::int64_t>;
  { kernel.tile(0) } -> std::same_as<typename Kernel::Tile>;
};

}  // namespace tessera::detail

#endif
