// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_STAYING_SOFTMAX_HPP
#define TESSERA_ROWWISE_STAYING_SOFTMAX_HPP

#include <tessera/rowwise/packed_softmax_backward.hpp>
#include <tessera/rowwise/staying_rows.hpp>

namespace tessera::detail {

/// The gradient of softmax for long rows, weights relative to the maximum so far.
template <class Exec, class T, int Threads>
struct StayingSoftmaxBackward {
  using Rows = StayingRows<Exec, T, Threads, 2>;
  static constexpr int width = Rows::width;
  static constexpr bool starts_early = true;

  PackedGrid grid;
  Operand d_in, d_out, in;
  float scale;
  bool log, from_output;
  T rest;  // what lies beyond a row: its weight is 0
  int kept = 0, teams = 1;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    Rows const rows(team, grid, kept);
    T const beyond[2] = {rest, T(0.0f)};
    PackedRowPlace now, next(grid, team.league_rank());
    SoftmaxGradientPart part = nothing();
    auto const take = [&](typename Rows::Batch const& batch, auto const&) { add(part, batch); };
    T const* const from[2] = {Rows::data(in, next), Rows::data(d_out, next)};
    rows.pass(
        false, true, from, from, beyond, [](int, typename Rows::Raw const(&)[2]) {}, take);
    int turn = 0;
    for (std::int64_t i = team.league_rank(); i < grid.rows; i += teams) {
      SoftmaxGradientPart const all = whole(part, turn);
      turn ^= 1;
      part = nothing();
      now = next;
      bool const reads = i + teams < grid.rows;
      if (reads) next = PackedRowPlace(grid, i + teams);
      SoftmaxSlope const slope(all, 1.0f, scale, log);
      float const to = reference_of(all.top);
      T* const out = Rows::data(d_in, now);
      T const* const old[2] = {Rows::data(in, now), Rows::data(d_out, now)};
      T const* const fresh[2] = {Rows::data(in, next), Rows::data(d_out, next)};
      rows.pass(
          true, reads, old, fresh, beyond,
          [&](int first, typename Rows::Raw const(&raw)[2]) {
            typename Rows::Values x = Rows::Atoms::widened(raw[0]);
            typename Rows::Values const dy = Rows::Atoms::widened(raw[1]);
            for (int j = 0; j < width; ++j) x[j] = slope(weight(x[j], to), dy[j]);
            store_pack<width>(out + first, Rows::Atoms::template narrowed<T>(x));
          },
          take);
    }
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION SoftmaxGradientPart nothing() const {
    return from_output ? SoftmaxGradientPart{0, 1, 0} : SoftmaxGradientPart{};
  }
  KOKKOS_FORCEINLINE_FUNCTION float weight(float x, float relative_to) const {
    return from_output ? (log ? exponential_below(x) : x) : exponential_below(x * scale - relative_to);
  }

  KOKKOS_FORCEINLINE_FUNCTION void add(SoftmaxGradientPart& part, typename Rows::Batch const& batch) const {
    unroll<Rows::batch>([&](auto k) {
      typename Rows::Values x = Rows::Atoms::widened(batch[0][k]);
      typename Rows::Values const dy = Rows::Atoms::widened(batch[1][k]);
      float to = 0;
      if (!from_output) {
        float top = part.top;
        for (int j = 0; j < width; ++j) top = larger(top, x[j] * scale);
        to = reference_of(top);
        float const factor = exponential_below(part.top - to);
        part.top = top;
        part.sum *= factor;
        if (!log) part.gradient *= factor;
      }
      for (int j = 0; j < width; ++j) {
        float const e = log && from_output ? 1.0f : weight(x[j], to);
        if (!from_output) part.sum += e;
        part.gradient += log ? dy[j] : e * dy[j];
      }
    });
  }

  KOKKOS_FORCEINLINE_FUNCTION SoftmaxGradientPart whole(SoftmaxGradientPart const& part, int turn) const {
    return Rows::template merged<StayingSoftmaxBackward>(part, turn, [&](SoftmaxGradientPart x, auto const& join) {
      if (from_output) return SoftmaxGradientPart{0, 1, join(x.gradient, Add{})};
      return JoinSoftmaxGradient{log}(x, join);
    });
  }
};

/// Whether the problem was one of packed rows, and has been started.
template <class Exec>
bool start_packed_softmax_backward(Exec const& exec, SoftmaxBackwardProblem const& problem, TileGrid const& grid) {
  bool started = false;
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available) {
    Scalar const type = problem.in.type;
    if (!packed_rows(grid, type) || (problem.scale == 0 && !problem.from_output)) return false;
    RowInputs<float>::visit(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      constexpr int width = packed_width<T>;
      for (RowArray const* a : {&problem.in, &problem.d_in, &problem.d_out})
        if (!is_packed_operand(*a, grid, width, type)) return;
      PackedGrid const rows(grid, width);
      auto const packed = [&](RowArray const& a) { return operand(a, grid, width, true); };
      Operand const d_in = packed(problem.d_in), d_out = packed(problem.d_out), in = packed(problem.in);
      auto const scale = static_cast<float>(problem.scale);
      T const rest(problem.from_output && !problem.log        ? 0.0f
                   : problem.from_output || problem.scale > 0 ? -HUGE_VALF
                                                              : HUGE_VALF);
      using Space = KernelSpace<Exec>;
      if (rows.packs <= longest_packed_row)
        with_pair_shape(rows.packs, [&](auto shape) {
          using Shape = decltype(shape);
          launch_packed<Shape>(problem.label, exec, rows,
                               PackedSoftmaxBackward<Space, T, Shape>{rows, d_in, d_out, in, scale, problem.log,
                                                                      problem.from_output, rest});
        });
      else {
        using Kernel = StayingSoftmaxBackward<Space, T, 1024>;
        launch_staying<typename Kernel::Rows>(
            problem.label, exec, rows, Kernel{rows, d_in, d_out, in, scale, problem.log, problem.from_output, rest});
      }
      started = true;
    });
  }
  return started;
}

}  // namespace tessera::detail

#endif
