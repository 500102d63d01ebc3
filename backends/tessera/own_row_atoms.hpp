// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OWN_ROW_ATOMS_HPP
#define TESSERA_OWN_ROW_ATOMS_HPP

#include <tessera/host_team.hpp>
#include <tessera/openmp/row_loops.hpp>
#include <tessera/types.hpp>

namespace tessera::detail {

/// What one thread does with a row of neighbouring elements on a machine whose thread has a row to itself. Elsewhere
/// there is nothing of it.
///
///     Loops             the functions, for one type of element
///     Ahead             what is fetched while one of them runs
///     NormGradientRow   what one of them takes of each of several rows
///     of(type)          the functions for elements of this type; nullptr: there are none that are worth having
///     room(count)       fp32 numbers that a function which keeps what it found of `count` elements wants room for
template <class Space>
struct OwnRowAtoms {
  static constexpr bool available = false;
};

template <>
struct OwnRowAtoms<Host> {
  static constexpr bool available = true;
  using Loops = openmp::RowLoops;
  using Ahead = openmp::RowAhead;
  using NormGradientRow = openmp::NormGradientRow;

  static Loops const* of(Scalar type) {
    static openmp::RowLoopsOfTypes const* const all = openmp::row_loops();
    if (all == nullptr) return nullptr;
    return type == Scalar::fp32   ? &all->fp32
           : type == Scalar::fp16 ? &all->fp16
           : type == Scalar::bf16 ? &all->bf16
                                  : nullptr;
  }
  static constexpr std::int64_t room(std::int64_t count) {
    return (count + openmp::row_room_multiple - 1) / openmp::row_room_multiple * openmp::row_room_multiple;
  }
};

}  // namespace tessera::detail

#endif
