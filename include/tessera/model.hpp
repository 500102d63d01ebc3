// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_MODEL_HPP
#define TESSERA_MODEL_HPP

/// \file
/// The performance model: what a machine can do at best, in numbers, as plain functions on the host. Nothing here needs
/// a GPU or starts a kernel, except `read_device` on a host space, which times a copy once. `docs/model.md` has the
/// equations in one place.

#include <tessera/model/device.hpp>
#include <tessera/model/occupancy.hpp>
#include <tessera/model/roofline.hpp>
#include <tessera/model/traffic.hpp>
#include <tessera/model/training.hpp>
#include <tessera/model/waves.hpp>
#include <tessera/model/work.hpp>

#endif
