// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_SINKS_HPP
#define TESSERA_ATTENTION_BACKWARD_SINKS_HPP

#include <tessera/attention/backward_rows.hpp>

// Gradients of sinks. A sink is a score without a value: its weight is p = exp(sink - LSE), what arrives for that is 0,
// and so d_sink = -Σ p δ over the queries of its head. Parts of a fixed number of rows, then those of a head, each
// added up in one place and order.
namespace tessera::detail {

template <class Exec, class Compute>
struct SinkParts {
  using Walk = BackwardRowWalk<Exec, Compute>;
  static constexpr int rows_a_part = BackwardRowPlaces::tile_rows;
  Walk walk;  // over parts
  BackwardRows<Compute> rows;
  float const* sinks;
  std::int64_t sinks_stride;
  Compute* parts;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    walk.for_each(team, [&](Plane plane, std::int64_t part, int lane) {
      Compute const sink = static_cast<Compute>(sinks[plane.inner * sinks_stride]) * Compute(1.44269504088896340736);
      std::int64_t const first = rows.at(plane, part * rows_a_part);
      Compute sum = 0;
      for (int r = lane; r < rows_a_part; r += Walk::lanes)
        sum += Kokkos::exp2(sink - rows.lse[first + r]) * rows.delta[first + r];
      sum = Walk::sum_of_lanes(team, lane, sum);
      if (lane == 0) parts[first / rows_a_part] = sum;
    });
  }
};

template <class Exec, class Compute>
struct SumSinkParts {
  using Walk = BackwardRowWalk<Exec, Compute>;
  Walk walk;  // over heads
  Compute const* parts;
  std::int64_t entries, heads, parts_a_plane;
  float* to;
  std::int64_t stride;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    walk.for_each(team, [&](Plane, std::int64_t head, int lane) {
      Compute sum = 0;
      for (std::int64_t entry = 0; entry < entries; ++entry)
        for (std::int64_t part = lane; part < parts_a_plane; part += Walk::lanes)
          sum += parts[(entry * heads + head) * parts_a_plane + part];
      sum = Walk::sum_of_lanes(team, lane, sum);
      if (lane == 0) to[head * stride] = static_cast<float>(-sum);
    });
  }
};

}  // namespace tessera::detail

#endif
