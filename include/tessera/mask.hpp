// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_MASK_HPP
#define TESSERA_MASK_HPP

#include <Kokkos_Core.hpp>

/// Masks of attention beyond those of AttentionOptions.
namespace tessera::mask {

/// Hides nothing, at no cost.
struct All {};

}  // namespace tessera::mask

#endif
