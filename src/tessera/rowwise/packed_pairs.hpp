// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_PAIRS_HPP
#define TESSERA_ROWWISE_PACKED_PAIRS_HPP

#include <tessera/rowwise/packed_rows.hpp>

namespace tessera::detail {

/// A PackedShape for kernels that keep a second operand of the row beside the values of the first: as many bytes of a
/// thread are on their way with half the packs.
template <int Lanes, int Threads, int Singles = 0, int Packs = 2, int Registers = 64>
struct PairShape : PackedShape<Lanes, Threads, Packs, Singles> {
  static constexpr int registers = Registers;
};

/// f(Shape{}) with the shape for rows of T with single elements, longest_ragged_pair at most.
template <class T, class F>
void with_ragged_pair_shape(std::int64_t packs, F const& f) {
  if (packs <= 8)
    f(PackedShape<8, 256, 1, 2>{});
  else if (packs <= 16)
    f(PairShape<8, 256, 2>{});
  else if (packs <= 32)
    f(PairShape<16, 256, 1>{});
  else if (packs <= 64)
    f(PairShape<32, 256, 1>{});
  else if (packs <= 128)
    f(PairShape<64, 64, 1>{});
  else if (packs <= 256)
    f(PairShape<128, 128, 1>{});
  else if (packs <= 512)
    f(PairShape<256, 256, 1>{});
  else if (packs <= 1024)
    f(PairShape<512, 512, 1>{});
  else if (packs <= 1280)
    f(TeamRowShape<256, 5, 128, 1>{});
  else if (packs <= 1536)
    f(TeamRowShape<256, 6, 128, 1>{});
  else if (packs <= 2048)
    f(TeamRowShape<256, 8, 128, 1>{});
  else if constexpr (sizeof(T) == 4)
    f(TeamRowShape<256, 10, 128, 1>{});
}
template <class T>
inline constexpr std::int64_t longest_ragged_pair = sizeof(T) == 4 ? 2560 : 2048;
/// The same for longer rows of 16-bit elements: four packs a thread, since fewer threads exchange less (of 65536 x 8192
/// 887 -> 767 us; where a warp has a row, two are better), more between powers of two and so that the longest have two
/// teams. All in docs/measurements/memory-bound.md.
template <class F>
void with_long_narrow_pair_shape(std::int64_t packs, F const& f) {
  if (packs <= 256)
    f(TeamRowShape<64, 4, 80>{});
  else if (packs <= 320)
    f(TeamRowShape<64, 5, 96>{});
  else if (packs <= 512)
    f(TeamRowShape<128, 4, 80>{});
  else if (packs <= 640)
    f(TeamRowShape<128, 5, 96>{});
  else if (packs <= 1024)
    f(TeamRowShape<256, 4, 80>{});
  else if (packs <= 1280)
    f(TeamRowShape<256, 5, 128>{});
  else if (packs <= 1536)
    f(TeamRowShape<256, 6, 128>{});
  else if (packs <= 1792)
    f(TeamRowShape<256, 7, 128>{});
  else
    f(TeamRowShape<256, 8, 128>{});
}
/// The same for those of 32-bit elements. Of the longest ones registers hold more packs: two teams then have room where
/// one of 1024 threads would wait alone.
template <class F>
void with_long_wide_pair_shape(std::int64_t packs, F const& f) {
  if (packs <= 256)
    f(TeamRowShape<128, 2, 64>{});
  else if (packs <= 512)
    f(TeamRowShape<256, 2, 64>{});
  else if (packs <= 1024)
    f(TeamRowShape<512, 2, 64>{});
  else if (packs <= 2048)
    f(TeamRowShape<512, 4, 64>{});
  else
    f(TeamRowShape<512, 5, 64>{});
}
template <class T>
inline constexpr std::int64_t longest_team_pair = sizeof(T) == 4 ? 2560 : 2048;
/// The same for rows of T of any kind, if they fit a team.
template <class T, class F>
void with_pair_shape(PackedGrid const& rows, F const& f) {
  std::int64_t const packs = rows.packs;
  if (rows.ragged)
    with_ragged_pair_shape<T>(packs, f);
  else if (packs == 8 && sizeof(T) == 2)  // of fewer idle lanes cost more than is gained
    f(PairShape<8, 128, 0, 1, 40>{});
  else if (packs <= 8)
    f(PairShape<4, 128, 0, 2, 56>{});
  else if (packs <= 16 && sizeof(T) == 4)
    f(PairShape<16, 128, 0, 1, 40>{});
  else if (packs <= 16)
    f(PairShape<8, 128, 0, 2, 56>{});
  else if (packs <= 32)
    f(PairShape<16, 128, 0, 2, 56>{});
  else if (packs <= 64)
    f(PairShape<32, 128, 0, 2, 56>{});
  else if (packs <= 128)
    f(PairShape<64, 64>{});
  else if constexpr (sizeof(T) == 2)
    with_long_narrow_pair_shape(packs, f);
  else
    with_long_wide_pair_shape(packs, f);
}

}  // namespace tessera::detail

#endif
