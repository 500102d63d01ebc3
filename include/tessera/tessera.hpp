// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESSERA_HPP
#define TESSERA_TESSERA_HPP

/// \file
/// Everything. A source that uses one operation compiles faster with that operation's header alone.

#include <tessera/arg_reduce.hpp>
#include <tessera/attention.hpp>
#include <tessera/attention_backward.hpp>
#include <tessera/attention_merge.hpp>
#include <tessera/cast.hpp>
#include <tessera/compose.hpp>
#include <tessera/cross_entropy.hpp>
#include <tessera/derivatives.hpp>
#include <tessera/functor_traits.hpp>
#include <tessera/functors.hpp>
#include <tessera/gemm.hpp>
#include <tessera/gemm_block_scaled.hpp>
#include <tessera/gemm_grouped.hpp>
#include <tessera/launch_plan.hpp>
#include <tessera/limits.hpp>
#include <tessera/mask.hpp>
#include <tessera/mask_table.hpp>
#include <tessera/model.hpp>
#include <tessera/mx.hpp>
#include <tessera/narrow_functors.hpp>
#include <tessera/normalization.hpp>
#include <tessera/normalization_backward.hpp>
#include <tessera/philox.hpp>
#include <tessera/quantize.hpp>
#include <tessera/reduce.hpp>
#include <tessera/rotary.hpp>
#include <tessera/row_workspace.hpp>
#include <tessera/softmax.hpp>
#include <tessera/softmax_backward.hpp>
#include <tessera/stochastic.hpp>
#include <tessera/transform.hpp>
#include <tessera/version.hpp>

#endif
