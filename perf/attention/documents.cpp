// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention.hpp>
#include <tessera/compiled_spaces.hpp>
#include "attention/functors.hpp"

namespace tessera::perf {
namespace {

/// Which document a token is of, (1, token).
template <class Exec>
Kokkos::View<int**, Kokkos::LayoutRight, typename Exec::memory_space> document_ids(std::vector<int> const& starts) {
  Kokkos::View<int**, Kokkos::LayoutRight, typename Exec::memory_space> ids("ids", 1, starts.back());
  auto const host = Kokkos::create_mirror_view(ids);
  for (std::size_t d = 0; d + 1 < starts.size(); ++d)
    for (int token = starts[d]; token < starts[d + 1]; ++token) host(0, token) = static_cast<int>(d);
  Kokkos::deep_copy(ids, host);
  return ids;
}

}  // namespace

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
