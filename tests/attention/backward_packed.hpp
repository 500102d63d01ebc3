// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_ATTENTION_BACKWARD_PACKED_HPP
#define TESSERA_TESTS_ATTENTION_BACKWARD_PACKED_HPP

#include "attention/backward.hpp"
#include "attention/packed.hpp"

namespace tessera::test {

/// Operands of packed sequences. Hidden keys, of other sequences too, are hidden in the reference.
template <class Exec, class T, class TG = T>
struct PackedBackward {
  Starts q_starts, k_starts, lengths;
  ViewOf<Exec, int*> query_starts, key_starts, key_lengths;
  AttentionBackwardOptions options;
  BackwardOperands<Exec, T, TG> x;

  PackedBackward(AttentionShape z, Starts const& queries, Starts const& keys, AttentionBackwardOptions const& given,
                 Starts const& counted = {}, bool with_d_lse = false, AttentionRules const& rules = {})
      : q_starts(queries),
        k_starts(keys),
        lengths(counted),
        query_starts(on_device<Exec>(queries)),
        key_starts(on_device<Exec>(keys)),
        key_lengths(on_device<Exec>(counted)),
        options(given),
        x(z, packed_sight(given.forward, queries, keys, counted), with_d_lse, rules) {
    options.forward.query_starts = query_starts;
    options.forward.key_starts = key_starts;
    if (!counted.empty()) options.forward.key_lengths = key_lengths;
  }
  template <class Score = score::Identity, class Mask = mask::All>
  void run(Score const& score = {}, Mask const& mask = {}) const {
    x.run(options, score, mask);
  }
  /// Rows of no sequence are as they were, all others as the reference has them.
  void check() const {
    AttentionShape const z = x.x.z;
    expect_rest_untouched(x.dq, q_starts, z.queries, z.d, TG(0.0f));
    expect_rest_untouched(x.dk, k_starts, z.keys, z.d, TG(0.0f));
    expect_rest_untouched(x.dv, k_starts, z.keys, z.d_v, TG(0.0f));
    x.check();
  }
};

template <class Exec, class T, class TG = T>
void check_packed_backward(AttentionShape z, Starts const& q_starts, Starts const& k_starts,
                           AttentionBackwardOptions const& options, bool with_d_lse = false) {
  CAPTURE(z.queries);
  CAPTURE(z.d);
  CAPTURE(options.forward.causal);
  CAPTURE(options.deterministic);
  PackedBackward<Exec, T, TG> const x(z, q_starts, k_starts, options, {}, with_d_lse);
  x.run();
  x.check();
}

/// All numbers of one sequence, of the operands and of what arrives, are NaN: the gradients of the others stay what
/// they are, bit by bit.
template <class Exec, class T>
void check_packed_apart(AttentionShape z, AttentionBackwardOptions options, int spoiled) {
  CAPTURE(z.d);
  options.deterministic = true;
  PackedBackward<Exec, T> const x(z, query_starts, key_starts, options);
  auto const gradients = [&] {
    poison(x.x.dq), poison(x.x.dk), poison(x.x.dv);
    x.run();
    auto all = values(x.x.dq);
    for (auto const& more : {values(x.x.dk), values(x.x.dv)}) all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  auto const spoil = [&](auto const& view, Starts const& starts, int rows, int width) {
    auto all = values(view);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (sequence_of(starts, static_cast<int>(i / width % rows)) == spoiled) all[i] = T(NAN);
    fill(view, all);
  };
  auto const before = gradients();
  spoil(x.x.x.qv, query_starts, z.queries, z.d), spoil(x.x.dov, query_starts, z.queries, z.d_v);
  spoil(x.x.x.kv, key_starts, z.keys, z.d), spoil(x.x.x.vv, key_starts, z.keys, z.d_v);
  auto const after = gradients();
  std::size_t const of_q = x.x.dq.size(), of_k = of_q + x.x.dk.size();
  bool same = true, some_nan = false;
  for (std::size_t i = 0; i < before.size(); ++i) {
    int const s = i < of_q   ? sequence_of(query_starts, static_cast<int>(i / z.d % z.queries))
                  : i < of_k ? sequence_of(key_starts, static_cast<int>((i - of_q) / z.d % z.keys))
                             : sequence_of(key_starts, static_cast<int>((i - of_k) / z.d_v % z.keys));
    if (s == spoiled)
      some_nan = some_nan || std::isnan(to_double(after[i]));
    else
      same = same && std::memcmp(&before[i], &after[i], sizeof(T)) == 0;
  }
  CHECK(same);
  CHECK(some_nan);
}

}  // namespace tessera::test

#endif
