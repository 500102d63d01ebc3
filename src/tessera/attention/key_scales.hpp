// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_KEY_SCALES_HPP
#define TESSERA_ATTENTION_KEY_SCALES_HPP

#include <Kokkos_Macros.hpp>
#include <cstdint>

#include <tessera/attention/head_scales.hpp>

namespace tessera::detail {

/// What the elements of some keys one behind the other are times, in K and in V; either may be missing.
struct KeyScales {
  struct Operand {
    float const* data = nullptr;  // (batch, head, tile); a stride of 0: one for all of them
    std::int64_t batch_stride = 0, head_stride = 0, tile_stride = 0;
    KOKKOS_FUNCTION float operator()(int batch, int head, int tile) const {
      return data[batch * batch_stride + head * head_stride + tile * tile_stride];
    }
  };
  Operand k, v;
  int keys = 1, tiles = 1;  // of a tile; of a sequence

  bool present() const { return k.data != nullptr || v.data != nullptr; }
  /// That of a key. Those of packed sequences that are longer than there are tiles for have the last.
  KOKKOS_FUNCTION int tile(int key) const {
    int const own = key / keys;
    return own < tiles ? own : tiles - 1;
  }
};

struct AllScales : HeadScales {
  KeyScales tiles;
};

}  // namespace tessera::detail

#endif
