// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_SPLIT_HPP
#define TESSERA_ATTENTION_SPLIT_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/attention/configs.hpp>
#include <tessera/attention/problem.hpp>
#include <tessera/attention_merge.hpp>

// Split keys: where tiles of queries are too few for the machine, teams share the keys of each (Dao et al. 2023). What
// a team has for its part, an O and an LSE of the accumulator's type, goes to the workspace and is merged by a kernel
// that follows.
namespace tessera::detail {

/// What a problem is to the choice of the parts.
struct SplitShape {
  std::int64_t tiles;  // of queries, over batch and heads
  std::int64_t steps;  // of the keys, for a tile that sees them all
  std::int64_t slots;  // teams that work at the same time
  int rows, tile_keys;
  bool ragged;            // batch entries have lengths of their own
  double saturating = 0;  // teams that take all that memory gives; 0: more than there are slots
  AttentionSplitClocks clocks = {};
};

/// The fewest parts that take the least time, in steps of a team alone: rounds of teams over the machine, each with its
/// part of the steps and what a team's beginning and end take, and the merge.
inline int attention_splits(SplitShape const& s) {
  AttentionSplitClocks const& clocks = s.clocks;
  if (s.tiles == 0 || s.steps < 2 * clocks.fewest_steps) return 1;
  auto const time = [&](std::int64_t splits) {
    std::int64_t const full = s.tiles * splits / s.slots, rest = s.tiles * splits % s.slots;
    auto const part = static_cast<double>((s.steps + splits - 1) / splits);
    double const store = splits > 1 ? clocks.store * s.rows / s.tile_keys : 0;
    double const merge = splits > 1 ? clocks.merge + clocks.merge_part * static_cast<double>(splits) : 0;
    auto const round = [&](std::int64_t teams) {
      return teams == 0 ? 0
                        : part * (s.saturating > 0 ? std::max(1.0, static_cast<double>(teams) / s.saturating) : 1) +
                              clocks.team + store;
    };
    // Where batch entries are of different lengths, some team begins a long part when the others are done.
    return static_cast<double>(full) * round(s.slots) + round(rest) + merge + (s.ragged ? part : 0);
  };
  std::int64_t const most = std::min<std::int64_t>(s.steps / clocks.fewest_steps, clocks.most_splits);
  std::int64_t best = 1;
  for (std::int64_t splits = 2; splits <= most; ++splits)
    if (time(splits) < time(best) * (best == 1 ? clocks.worth : 1)) best = splits;
  return static_cast<int>(best);
}

/// Bytes of workspace: an O and an LSE of so many bytes an element for each part.
inline std::size_t split_workspace(AttentionProblem const& p, int splits, std::size_t element) {
  return splits > 1 ? static_cast<std::size_t>(splits * p.planes() * p.o.rows * (p.o.cols + 1)) * element : 0;
}

/// The problem whose O and LSE are those of the parts, one part behind the other in the workspace.
inline AttentionProblem split_problem(AttentionProblem p, int splits, Scalar type, void* workspace) {
  auto const contiguous = [&](std::int64_t cols, void* data) {
    MatrixStack m;
    m.data = data;
    m.type = type;
    m.rows = p.o.rows;
    m.cols = m.row_stride = cols;
    m.col_stride = 1;
    m.inner = p.o.inner;
    m.inner_stride = m.rows * m.row_stride;
    m.outer = splits * p.o.outer;
    m.outer_stride = m.inner * m.inner_stride;
    return m;
  };
  p.splits = splits;
  p.o = contiguous(p.o.cols, workspace);
  std::int64_t const elements = p.o.outer * p.o.outer_stride;
  p.lse = contiguous(1, static_cast<char*>(workspace) + elements * static_cast<std::int64_t>(size_of(type)));
  return p;
}

/// O and LSE of `whole` from those of its parts.
inline MergeProblem split_merge(AttentionProblem const& whole, AttentionProblem const& parts) {
  auto const rows = [&](MatrixStack const& m) {
    RowArray a;
    a.data = m.data;
    a.type = m.type;
    std::int64_t const extents[] = {whole.o.outer, m.inner, m.rows, m.cols},
                       strides[] = {m.outer_stride, m.inner_stride, m.row_stride, m.col_stride};
    std::copy(extents, extents + 4, a.extent);
    std::copy(strides, strides + 4, a.stride);
    return a;
  };
  MergeProblem m;
  m.out = rows(whole.o);
  if (whole.lse.data != nullptr) m.lse = rows(whole.lse);
  m.part = rows(parts.o);
  m.part_lse = rows(parts.lse);
  m.stride = whole.o.outer * parts.o.outer_stride;
  m.lse_stride = whole.o.outer * parts.lse.outer_stride;
  m.count = parts.splits;
  return m;
}

}  // namespace tessera::detail

#endif
