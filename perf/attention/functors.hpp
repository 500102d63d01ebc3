// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_ATTENTION_FUNCTORS_HPP
#define TESSERA_PERF_ATTENTION_FUNCTORS_HPP

#include <string>
#include <vector>

#include <tessera/types.hpp>
#include "support/contest.hpp"
#include "support/data.hpp"

// Attention with functors, each of which is kernels to compile: in sources of their own.
namespace tessera::perf {

/// Causal, with the score of that name.
template <class Exec, class Operand = Tensor4<Exec, bf16_t>>
Implementation attention_with_score(Exec const& exec, Operand const& q, Operand const& k, Operand const& v,
                                    Operand const& o, std::string const& name);

/// Causal, over documents of one batch entry that begin there, told by an id a token and the table of that mask.
template <class Exec, class Operand = Tensor4<Exec, bf16_t>>
Implementation attention_over_documents(Exec const& exec, Operand const& q, Operand const& k, Operand const& v,
                                        Operand const& o, std::vector<int> const& starts);

}  // namespace tessera::perf

#endif
