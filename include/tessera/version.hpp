// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The version of the library, in the headers and in the compiled part.
#ifndef TESSERA_VERSION_HPP
#define TESSERA_VERSION_HPP

// CMake reads these three lines.
#define TESSERA_VERSION_MAJOR 0
#define TESSERA_VERSION_MINOR 1
#define TESSERA_VERSION_PATCH 0

/// major * 10000 + minor * 100 + patch
#define TESSERA_VERSION (TESSERA_VERSION_MAJOR * 10000 + TESSERA_VERSION_MINOR * 100 + TESSERA_VERSION_PATCH)

namespace tessera {

/// TESSERA_VERSION of the compiled library. It differs from the macro when headers and library are of two
/// installations.
int version() noexcept;

}  // namespace tessera

#endif
