// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention.hpp>
#include <tessera/compiled_spaces.hpp>
#include "attention/functors.hpp"

namespace tessera::perf {
namespace {

/// Causal, with a score functor. What it refers to is `kept`.
template <class Exec, class Operand, class Score, class... Kept>
Implementation with_score(Exec const& exec, Operand const& q, Operand const& k, Operand const& v, Operand const& o,
                          Score const& score, Kept const&... kept) {
  AttentionOptions const options{.causal = true};
  return {"tessera", [=] { (static_cast<void>(kept), ...), attention(exec, o, q, k, v, options, score); },
          tessera::to_string(attention_plan(exec, o, q, k, v, options, score))};
}
}  // namespace

template <class Exec, class Operand>
Implementation attention_with_score(Exec const& exec, Operand const& q, Operand const& k, Operand const& v,
                                    Operand const& o, std::string const& name) {
  int const heads = q.extent_int(1), queries = q.extent_int(2), keys = k.extent_int(2), offset = keys - queries;
  if (name == "alibi") {
    auto const slopes = alibi_slopes(exec, heads);
    return with_score(exec, q, k, v, o, score::alibi(slopes, offset), slopes);
  }
  if (name == "relative") {
    auto const table = random_view<Matrix<Exec, float>>(exec, 5, heads, 257);
    return with_score(exec, q, k, v, o, score::relative_bias(table, offset), table);
  }
  if (name == "bias") {
    auto const bias = random_view<Operand>(exec, 6, 1, 1, queries, keys);
    return with_score(exec, q, k, v, o, score::additive_bias(bias), bias);
  }
  return with_score(exec, q, k, v, o, score::SoftCap{50.0});
}

#define TESSERA_PERF_INSTANCE(EXTERN, EXEC)                                                                \
  template Implementation attention_with_score(EXEC const&, Tensor4<EXEC, bf16_t> const&,                  \
                                               Tensor4<EXEC, bf16_t> const&, Tensor4<EXEC, bf16_t> const&, \
                                               Tensor4<EXEC, bf16_t> const&, std::string const&);
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_PERF_INSTANCE, )

}  // namespace tessera::perf
