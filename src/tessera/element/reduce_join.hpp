// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_REDUCE_JOIN_HPP
#define TESSERA_ELEMENT_REDUCE_JOIN_HPP

#include <cstdint>

#include <tessera/element/dimensions.hpp>
#include <tessera/element/reduce_data.hpp>
#include <tessera/part_columns.hpp>

namespace tessera::detail {

/// Several results, each over what the parts of its reduction have left: their second pass, on machines with lanes.
template <class Exec, class A, template <class> class Step, class Columns>
struct ReduceJoin {
  static constexpr bool starts_early = true;

  A const* parts;  // (rows, columns): of each part all results
  std::int64_t rows, columns;
  PackSpace<2, 1> outputs;  // by their number; the second stride is that of the results
  ReduceOutput out;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    std::int64_t const first = std::int64_t{team.league_rank()} * Columns::columns_a_team;
    Columns::join(
        team, parts, rows, columns, first, Step<A>::identity, [](A a, A b) { return Step<A>::combine(a, b); },
        [&](std::int64_t column, A value) { out.store(outputs.place(column).offset[1], value); });
  }
};

/// Starts it for as many results as there are `kept` dimensions' elements.
template <class A, template <class> class Step, class Exec>
void launch_join(char const* label, Exec const& exec, A const* parts, std::int64_t rows, Dimensions<2> const& kept,
                 ReduceOutput const& out) {
  using Space = KernelSpace<Exec>;
  std::int64_t const columns = kept.size();
  with_part_columns<Space, A>(rows, columns, are_packed_parts(parts, columns), [&](auto way) {
    using Columns = decltype(way);
    launch<Columns::threads>(KernelLabel{label, "sums of columns"}, exec, Columns::teams(columns),
                             Columns::scratch_bytes,
                             ReduceJoin<Space, A, Step, Columns>{parts, rows, columns, PackSpace<2, 1>(kept, 0), out});
  });
}

}  // namespace tessera::detail

#endif
