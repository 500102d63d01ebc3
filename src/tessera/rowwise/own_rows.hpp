// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_OWN_ROWS_HPP
#define TESSERA_ROWWISE_OWN_ROWS_HPP

#include <algorithm>
#include <cstdint>

#include <tessera/detail/rows.hpp>
#include <tessera/launch.hpp>
#include <tessera/row_atoms.hpp>
#include <tessera/rowwise/operand.hpp>
#include <tessera/streaming.hpp>

// Rows that a thread has to itself: consecutive elements, all operands of one type. A row lies in the thread's own
// caches from its first pass on, so the passes are loops without a call or a choice in them, and the memory is asked
// for the next row during the last one or the longest.
namespace tessera::detail {

/// A team's part of the rows, and where they are.
template <class Space>
struct OwnRows {
  using Atoms = RowAtoms<Space>;
  using Loops = typename Atoms::Loops;
  using Ahead = typename Atoms::Ahead;

  TileGrid grid;
  Loops const* loops = nullptr;
  std::int64_t size = 0;  // bytes of an element
  std::int64_t rows_a_team = 1;

  std::int64_t teams() const { return (grid.tiles() + rows_a_team - 1) / rows_a_team; }

  template <class T = char>
  static T* address(Operand const& a, TileGrid const& grid, TileIndex const& at, std::int64_t size) {
    return reinterpret_cast<T*>(static_cast<char*>(const_cast<void*>(a.data)) + a.offset(grid, at) * size);
  }
  /// This row of an operand; nullptr if that is not there.
  char* row(Operand const& a, TileIndex const& at) const { return a.present() ? address(a, grid, at, size) : nullptr; }

  /// f(place of a row, what of `in` to fetch for the next one) for this team's rows.
  template <class F>
  void for_each(int team, Operand const& in, F const& f) const {
    std::int64_t const begin = team * rows_a_team, end = std::min(begin + rows_a_team, grid.tiles());
    for (std::int64_t i = begin; i < end; ++i) {
      TileIndex const at = tile_index(grid, i);
      Ahead next;
      if (i + 1 < end) next = {row(in, tile_index(grid, i + 1)), grid.columns * size};
      f(at, next);
    }
    streaming_done();
  }
};

/// The rows of a problem whose operands all are of type `type` where they are there; without loops where they are not
/// such rows.
template <class Space, class Exec, class... Arrays>
OwnRows<Space> own_rows(Exec const& exec, TileGrid const& grid, Scalar type, Arrays const&... operands) {
  OwnRows<Space> rows{grid};
  auto const fits = [&](RowArray const& a) {
    return !a.present() || (a.type == type && (a.stride[3] == 1 || grid.columns == 1));
  };
  if (grid.columns == 0 || !(fits(operands) && ...)) return rows;
  rows.loops = RowAtoms<Space>::of(type);
  rows.size = static_cast<std::int64_t>(size_of(type));
  // As many rows a team as are worth starting it, or more if there are still some teams for each core: the first row of
  // a team is not fetched ahead.
  constexpr std::int64_t least = 16384, most = 131072, teams_a_core = 8;
  std::int64_t const share = grid.tiles() / (teams_a_core * Machine<Exec>::concurrency(exec));
  rows.rows_a_team = std::clamp<std::int64_t>(share, least / grid.columns + 1, most / grid.columns + 1);
  return rows;
}

/// Starts `kernel` of the rows it has, on teams with so many bytes of scratch.
template <class Exec, class Kernel>
void launch_own_rows(char const* label, Exec const& exec, Kernel const& kernel, std::size_t scratch = 0) {
  launch<32>(label, exec, kernel.rows.teams(), scratch, kernel);
}

}  // namespace tessera::detail

#endif
