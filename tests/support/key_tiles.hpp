// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_KEY_TILES_HPP
#define TESSERA_TESTS_KEY_TILES_HPP

#include <algorithm>
#include <vector>

#include "reference/attention.hpp"

namespace tessera::test {

/// Where keys lie: in whole batch entries, or as the sequences that begin there.
struct Places {
  std::vector<int> starts = {};
  int sequence(int batch, int row) const {
    int s = batch;
    if (!starts.empty())
      while (s + 2 < static_cast<int>(starts.size()) && starts[s + 1] <= row) ++s;
    return s;
  }
  int first(int sequence) const { return starts.empty() ? 0 : starts[sequence]; }
};

/// K or V times the scales of tiles of so many keys, (sequence, head, tile) listed last index first.
template <class T>
std::vector<float> scaled_by_tiles(std::vector<T> const& x, AttentionShape z, int d, std::vector<float> const& scales,
                                   int tiles, int keys, Places const& places) {
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    int const j = int(i / d % z.keys), h = int(i / d / z.keys % z.kv_heads), b = int(i / d / z.keys / z.kv_heads);
    int const s = places.sequence(b, j), tile = std::min((j - places.first(s)) / keys, tiles - 1);
    y[i] = static_cast<float>(x[i]) * scales[(s * z.kv_heads + h) * tiles + tile];
  }
  return y;
}

}  // namespace tessera::test

#endif
