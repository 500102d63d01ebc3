// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_OWN_ROWS_HPP
#define TESSERA_ROWWISE_OWN_ROWS_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/detail/rows.hpp>
#include <tessera/launch.hpp>
#include <tessera/own_row_atoms.hpp>
#include <tessera/rowwise/operand.hpp>
#include <tessera/streaming.hpp>

// Rows that a thread has to itself: consecutive elements, all operands of one type. A row lies in the thread's own
// caches from its first pass on, so the passes are loops without a call or a choice in them, and the memory is asked
// for the next row during the last one or the longest.
namespace tessera::detail {

/// A team's part of the rows, and where they are.
template <class Space>
struct OwnRows {
  using Atoms = OwnRowAtoms<Space>;
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

  /// What of an operand is to be fetched for row i.
  Ahead ahead(Operand const& a, std::int64_t i, std::int64_t end) const {
    if (i >= end || !a.present()) return {};
    return {row(a, tile_index(grid, i)), grid.columns * size};
  }

  /// f(place of a row, what of `in` and `other` to fetch for the next one) for this team's rows.
  template <class F>
  void for_each(int team, Operand const& in, Operand const& other, F const& f) const {
    std::int64_t const begin = team * rows_a_team, end = std::min(begin + rows_a_team, grid.tiles());
    for (std::int64_t i = begin; i < end; ++i) f(tile_index(grid, i), ahead(in, i + 1, end), ahead(other, i + 1, end));
    streaming_done();
  }
};

/// Scratch for `count` numbers as the loops keep them, and where it lies.
template <class Space>
std::size_t room_bytes(std::int64_t count) {
  return static_cast<std::size_t>(OwnRowAtoms<Space>::room(count)) * sizeof(float) + line_of_memory;
}
template <class Space>
float* room_of(TeamMember<Space> const& team, std::int64_t count) {
  return static_cast<float*>(
      team.team_scratch(0).get_shmem_aligned(room_bytes<Space>(count) - line_of_memory, line_of_memory));
}

/// Of how many elements of a row results are kept between its passes: all, or, of a long one, a part at a time. 128 KB
/// lie beside the row in a second-level cache, 16 KB in the first.
inline std::int64_t kept_of(std::int64_t columns) { return columns <= 32768 ? columns : 4096; }

/// A row's number in fp32.
inline float& value_of(Operand const& a, TileIndex const& at) {
  return static_cast<float*>(const_cast<void*>(a.data))[a.value_offset(at)];
}

/// What exponents are relative to: the maximum; 0 where there is nothing but -Inf and NaN, whose exponentials are then
/// 0 and NaN; NaN, as all results then are, where that is Inf.
inline float largest_reference(float top) {
  if (top == -HUGE_VALF) return 0;
  return top == HUGE_VALF ? NAN : top;
}

/// The rows of a problem whose operands all are of type `type` where they are there; without loops where they are not
/// such rows.
template <class Space, class Exec, class... Arrays>
OwnRows<Space> own_rows(Exec const& exec, TileGrid const& grid, Scalar type, Arrays const&... operands) {
  OwnRows<Space> rows{grid};
  auto const fits = [&](RowArray const& a) {
    return !a.present() || (a.type == type && (a.stride[3] == 1 || grid.columns == 1));
  };
  if (grid.columns == 0 || !(fits(operands) && ...)) return rows;
  rows.loops = OwnRowAtoms<Space>::of(type);
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
  launch<32>(KernelLabel{label, "rows in a core's cache"}, exec, kernel.rows.teams(), scratch, kernel);
}

}  // namespace tessera::detail

#endif
