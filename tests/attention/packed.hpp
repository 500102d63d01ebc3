// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_ATTENTION_PACKED_HPP
#define TESSERA_TESTS_ATTENTION_PACKED_HPP

#include <algorithm>
#include <cstring>

#include "attention/operands.hpp"

namespace tessera::test {

using Starts = std::vector<int>;

/// The sequence of a row, -1 where it has none.
inline int sequence_of(Starts const& starts, int row) {
  for (std::size_t s = 0; s + 1 < starts.size(); ++s)
    if (row >= starts[s] && row < starts[s + 1]) return static_cast<int>(s);
  return -1;
}

/// The keys that a query sees: of its own sequence, masks being aligned at its end.
inline auto packed_sight(AttentionOptions const& options, Starts const& q_starts, Starts const& k_starts,
                         Starts const& lengths = {}) {
  return [=](int, int i, int j) {
    int const s = sequence_of(q_starts, i);
    if (s < 0 || s != sequence_of(k_starts, j)) return false;
    auto const at = static_cast<std::size_t>(s);
    int const all = k_starts[at + 1] - k_starts[at], keys = lengths.empty() ? all : std::clamp(lengths[at], 0, all);
    int const own = i - q_starts[at + 1] + keys, key = j - k_starts[at];
    return key < keys && (!options.causal || key <= own) &&
           (!options.window_left || key >= own - *options.window_left) &&
           (!options.window_right || key <= own + *options.window_right);
  };
}

/// Elements of rows without a sequence: still as poison() left them. They become what the reference has for rows that
/// see nothing.
template <class View, class T>
void expect_rest_untouched(View const& view, Starts const& starts, int rows, int width, T nothing) {
  auto all = values(view);
  unsigned char byte[sizeof(T)];
  std::memset(byte, 0xA5, sizeof(byte));
  bool untouched = true;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (sequence_of(starts, static_cast<int>(i / width % rows)) < 0) {
      untouched = untouched && std::memcmp(&all[i], byte, sizeof(byte)) == 0;
      all[i] = nothing;
    }
  CHECK(untouched);
  fill(view, all);
}

template <class Exec>
ViewOf<Exec, int*> on_device(Starts const& starts) {
  ViewOf<Exec, int*> v("starts", starts.size());
  fill(v, starts);
  return v;
}

/// Sequences of one row, of whole and part tiles, without queries, without keys, and rows of none at both ends.
inline Starts const query_starts = {3, 4, 4, 68, 201, 210, 210, 330}, key_starts = {0, 1, 60, 60, 200, 203, 240, 380};
/// Sequences of 0 to 3 rows, of 330 or a few more.
inline Starts many_short_starts() {
  Starts starts = {0};
  for (int s = 0; starts.back() < 330; ++s) starts.push_back(starts.back() + s % 4);
  return starts;
}
inline constexpr AttentionShape packed_shape = {1, 4, 2, 340, 400, 16, 24};

}  // namespace tessera::test

#endif
