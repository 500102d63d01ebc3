// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_LONG_NORM_GRADIENT_HPP
#define TESSERA_ROWWISE_LONG_NORM_GRADIENT_HPP

#include <cstdint>
#include <type_traits>

#include <tessera/rowwise/norm_backward_sums.hpp>
#include <tessera/rowwise/packed_normalization.hpp>
#include <tessera/rowwise/row_stream.hpp>
#include <tessera/rowwise/staged_norm_gradient.hpp>

namespace tessera::detail {

/// What kernels for gradients of norms of long rows work on, `Staged` being a StagedNormGradient. A thread has the same
/// columns of all rows: packs that `mine` has(k), Mine::step elements apart, the first of which is at its column().
template <class Staged>
struct LongNormGradient {
  using T = typename Staged::Element;
  using Atoms = typename Staged::Atoms;
  using Sums = typename Staged::Sums;
  using Statistics = typename Staged::Statistics;
  static constexpr int packs = Staged::packs, width = Staged::width;

  PackedGrid grid;
  Operand d_in, d_out, in, d_sum, mean, rstd, weight;
  float inverse_length;
  bool centered;
  float *d_weights = nullptr, *d_biases = nullptr;  // (groups, columns), either may be absent
  bool leaves_gradients = false;                    // of one group: they are of T, the gradients themselves

  LongNormGradient(NormBackwardProblem const& problem, TileGrid const& tiles)
      : grid(tiles, width),
        d_in(packed(problem.d_in, tiles)),
        d_out(packed(problem.d_out, tiles)),
        in(packed(problem.in, tiles)),
        d_sum(packed(problem.d_sum, tiles)),
        mean(packed(problem.mean, tiles)),
        rstd(packed(problem.rstd, tiles)),
        weight(packed(problem.weight, tiles)),
        inverse_length(static_cast<float>(1.0 / static_cast<double>(tiles.columns))),
        centered(problem.centered) {}

 protected:
  template <class Place>
  KOKKOS_FORCEINLINE_FUNCTION Statistics statistics(Place const& row) const {
    std::int64_t at[2];
    row.offsets({mean, rstd}, at);
    return {centered ? static_cast<float const*>(mean.data)[at[0]] : 0.0f, static_cast<float const*>(rstd.data)[at[1]]};
  }
  /// Over the lanes of a warp.
  KOKKOS_FORCEINLINE_FUNCTION static Sums joined(Sums const& x) {
    return joined_by([&](auto const& f, auto const& value) { return Atoms::template join<32>(value(x), f); });
  }
  /// Of all parts, with each() as of RowExchange.
  template <class Each>
  KOKKOS_FORCEINLINE_FUNCTION static Sums joined_by(Each const& each) {
    return {each(Add{}, [](Sums const& x) { return x.gradient; }),
            each(Add{}, [](Sums const& x) { return x.product; })};
  }
  template <class Mine>
  KOKKOS_FORCEINLINE_FUNCTION void load_slopes(Mine const& mine, typename Staged::Slopes& slopes) const {
    unroll<packs>([&](auto k) {
      for (int j = 0; j < width; ++j) slopes.pack[k][j] = 1;
      if (weight.present() && mine.has(k))
        slopes.pack[k] = load_parameter<Atoms, T, width>(weight, mine.column() + k * Mine::step);
    });
  }
  /// Leaves the gradients of the columns.
  template <class Mine>
  KOKKOS_FORCEINLINE_FUNCTION void leave(Mine const& mine, int group, typename Staged::Gradients const& all) const {
    leave(mine, group, d_weights, all.weights);
    leave(mine, group, d_biases, all.biases);
  }

 private:
  static Operand packed(RowArray const& a, TileGrid const& tiles) { return operand(a, tiles, width, true); }

  template <class Mine>
  KOKKOS_FORCEINLINE_FUNCTION void leave(Mine const& mine, int group, float* all,
                                         typename Staged::Values const (&sums)[packs]) const {
    if (all == nullptr) return;
    auto const store = [&](auto* to) TESSERA_INLINE_LAMBDA {
      using To = std::remove_pointer_t<decltype(to)>;
      unroll<packs>([&](auto k) {
        if (mine.has(k)) store_pack<width>(to + k * Mine::step, Atoms::template narrowed<To>(sums[k]));
      });
    };
    if (leaves_gradients)
      store(reinterpret_cast<T*>(all) + mine.column());
    else
      store(all + std::int64_t{group} * grid.columns + mine.column());
  }
};

}  // namespace tessera::detail

#endif
