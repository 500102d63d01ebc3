// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/documents.hpp"
#include <tessera/attention.hpp>
#include <tessera/compiled_spaces.hpp>
#include "attention/functors.hpp"

namespace tessera::perf {
template <class Exec, class Operand>
Implementation attention_over_documents(Exec const& exec, Operand const& q, Operand const& k, Operand const& v,
                                        Operand const& o, std::vector<int> const& starts) {
  auto const mask = mask::consecutive_documents(document_ids<Exec>(starts));
  AttentionOptions const options{.causal = true};
  AttentionPlan const plan = attention_plan(exec, o, q, k, v, options, score::Identity{}, mask);
  mask::TableShape const shape{static_cast<std::int64_t>(q.extent(2)), static_cast<std::int64_t>(k.extent(2))};
  Kokkos::View<int*, typename Exec::memory_space> const storage("table", mask::table_size(plan, shape));
  auto const table = mask::table(exec, mask, plan, shape, storage);
  return {"tessera",
          [=] {
            [[maybe_unused]] auto const kept = storage;
            attention(exec, o, q, k, v, options, score::Identity{}, table);
          },
          tessera::to_string(plan)};
}

#define TESSERA_PERF_INSTANCE(EXTERN, EXEC)                                                                    \
  template Implementation attention_over_documents(EXEC const&, Tensor4<EXEC, bf16_t> const&,                  \
                                                   Tensor4<EXEC, bf16_t> const&, Tensor4<EXEC, bf16_t> const&, \
                                                   Tensor4<EXEC, bf16_t> const&, std::vector<int> const&);
TESSERA_FOR_EACH_COMPILED_SPACE(TESSERA_PERF_INSTANCE, )

}  // namespace tessera::perf
