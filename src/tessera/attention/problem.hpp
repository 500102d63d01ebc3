// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_PROBLEM_HPP
#define TESSERA_ATTENTION_PROBLEM_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/attention/key_scales.hpp>
#include <tessera/attention/sequences.hpp>
#include <tessera/attention_dropout.hpp>
#include <tessera/detail/matrix.hpp>

namespace tessera::detail {

/// O = softmax(scale·QKᵀ + mask)·V for every batch entry (outer) and query head (inner); K and V have a head for every
/// `heads_per_kv` query heads.
struct AttentionProblem {
  MatrixStack q, k, v, o;
  MatrixStack biases;  // (S_q, S_k) a plane or for all, of 16 bits, where tiles of them can be copied; else no data
  MatrixStack lse;     // (S_q, 1) a plane; no data when not wanted
  PageTable pages;     // of K and V, which then have planes (page, head), for each batch entry
  int const* key_lengths = nullptr;
  std::int64_t key_lengths_stride = 0;
  float const* sinks = nullptr;  // of each query head
  std::int64_t sinks_stride = 0;
  DropoutRule dropout;
  int heads_per_kv = 1;
  int together = 0;   // queries of a head, where the rows of Q are those of several and the mask is causal
  int head_rows = 0;  // queries of a head, where the rows of Q are those of several
  int splits = 1;     // parts of the keys; part s of batch entry b has plane s·B + b of o and lse for its own
  double scale = 1;
  bool causal = false;
  /// Query i sees the keys from i + (keys − queries) − left to i + (keys − queries) + right.
  std::int64_t left = endless, right = endless;
  PackedSequences packed;  // none where q.outer is the batch
  HeadScales scales;
  KeyScales key_scales;

  static constexpr std::int64_t endless = std::int64_t(1) << 62;
  std::int64_t planes() const { return o.outer * o.inner; }
  std::int64_t keys() const { return pages.present() ? pages.sequence_rows() : k.rows; }
  std::int64_t tiles(int tile_queries) const {
    if (q.rows == 0) return 0;
    return planes() * (packed.count > 0 ? packed.queries.tiles(packed.count, tile_queries)
                                        : (q.rows + tile_queries - 1) / tile_queries);
  }
  /// About so many keys are seen by a query that sees many.
  std::int64_t keys_in_sight() const {
    std::int64_t const all = packed.count > 0 ? keys() / packed.count : keys();
    return std::min(all, std::clamp(left, -all, all) + std::clamp(ahead(), -all, all) + 1);
  }
  /// `right` with the causal mask.
  std::int64_t ahead() const { return causal ? std::min<std::int64_t>(right, 0) : right; }
  bool windowed() const { return left != endless || right != endless; }
  /// Tiles of queries may begin at any key, not only at the first.
  bool ranged() const { return windowed() || packed.count > 0; }
  /// Later queries of a sequence see more keys than earlier ones.
  bool grows() const { return causal && left == endless; }
  /// So much that the machine hands tiles out better than they are shared out beforehand: on an H200 packed sequences
  /// -17 %, a window of 4096 keys -9 % of the time, of 1024 +5 %.
  bool tiles_differ() const {
    return ((grows() || packed.count > 0) && keys() > 1024) || (windowed() && keys_in_sight() > 2048);
  }
  /// Windows and sequences in numbers that a kernel can count with.
  Ranges ranges() const {
    auto const bounded = [](std::int64_t x, std::int64_t least, std::int64_t most) {
      return static_cast<int>(std::clamp(x, -least, most));
    };
    return {bounded(left, q.rows, keys()), bounded(ahead(), keys(), q.rows), grows(), tiles_differ(), packed};
  }
};

/// The window around the only query there is, as narrower K and V, all of which that query sees.
inline AttentionProblem with_window_cut_out(AttentionProblem p) {
  if (!p.windowed() || p.q.rows != 1 || p.key_lengths != nullptr || p.packed.count > 0 || p.pages.present() ||
      p.key_scales.present())
    return p;
  std::int64_t const own = p.k.rows - 1;  // the key the window lies around
  std::int64_t const end = own + std::clamp(p.ahead(), -p.k.rows, std::int64_t(0)) + 1;
  std::int64_t const begin = std::clamp(own - std::clamp(p.left, -p.k.rows, p.k.rows), std::int64_t(0), end);
  for (MatrixStack* const m : {&p.k, &p.v}) {
    m->data = static_cast<char const*>(m->data) + begin * m->row_stride * static_cast<std::int64_t>(size_of(m->type));
    m->rows = end - begin;
  }
  p.left = p.right = AttentionProblem::endless;
  p.causal = false;
  return p;
}

/// The query heads that share keys as rows of one head, where a tile has room for them all: each tile of K and V then
/// serves all of them. For heads whose rows follow each other.
inline AttentionProblem with_heads_together(AttentionProblem p) {
  constexpr std::int64_t room = 64;
  std::int64_t const together = p.heads_per_kv;
  auto const follow = [](MatrixStack const& m) { return m.rows == 1 || m.inner_stride == m.rows * m.row_stride; };
  if (together == 1 || p.ranged() || p.q.rows * together > room || !follow(p.q) || !follow(p.o) || !follow(p.lse))
    return p;
  if (p.scales.q.head_stride != 0) return p;  // a tile has one scale
  p.causal = p.causal && p.q.rows > 1;
  p.head_rows = static_cast<int>(p.q.rows);
  if (p.causal) p.together = static_cast<int>(p.q.rows);
  for (MatrixStack* const m : {&p.q, &p.o, &p.lse}) {
    if (m->rows == 1) m->row_stride = m->inner_stride;
    m->rows *= together;
    m->inner /= together;
    m->inner_stride *= together;
  }
  p.heads_per_kv = 1;
  return p;
}

}  // namespace tessera::detail

#endif
