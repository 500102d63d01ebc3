// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_PROBLEM_HPP
#define TESSERA_ATTENTION_PROBLEM_HPP

#include <cstddef>
#include <cstdint>

#include <tessera/detail/matrix.hpp>

namespace tessera::detail {

/// O = softmax(scale·QKᵀ + mask)·V for every batch entry (outer) and query head (inner); K and V have a head for every
/// `heads_per_kv` query heads.
struct AttentionProblem {
  MatrixStack q, k, v, o;
  MatrixStack lse;  // (S_q, 1) a plane; no data when not wanted
  PageTable pages;  // of K and V, which then have planes (page, head), for each batch entry
  int const* key_lengths = nullptr;
  std::int64_t key_lengths_stride = 0;
  int heads_per_kv = 1;
  int splits = 1;  // parts of the keys; part s of batch entry b has plane s·B + b of o and lse for its own
  double scale = 1;
  bool causal = false;

  std::int64_t planes() const { return o.outer * o.inner; }
  std::int64_t keys() const { return pages.present() ? pages.sequence_rows() : k.rows; }
};

/// The query heads that share keys as rows of one head, where a tile has room for them all: each tile of K and V then
/// serves all of them. For heads whose rows follow each other, and queries that see the same keys.
inline AttentionProblem with_heads_together(AttentionProblem p) {
  constexpr std::int64_t room = 64;
  std::int64_t const together = p.heads_per_kv;
  auto const follow = [](MatrixStack const& m) { return m.rows == 1 || m.inner_stride == m.rows * m.row_stride; };
  bool const alike = p.q.rows == 1 || !p.causal;
  if (together == 1 || !alike || p.q.rows * together > room || !follow(p.q) || !follow(p.o) || !follow(p.lse)) return p;
  for (MatrixStack* const m : {&p.q, &p.o, &p.lse}) {
    if (m->rows == 1) m->row_stride = m->inner_stride;
    m->rows *= together;
    m->inner /= together;
    m->inner_stride *= together;
  }
  p.heads_per_kv = 1;
  p.causal = false;
  return p;
}

}  // namespace tessera::detail

#endif
