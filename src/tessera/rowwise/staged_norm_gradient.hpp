// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_STAGED_NORM_GRADIENT_HPP
#define TESSERA_ROWWISE_STAGED_NORM_GRADIENT_HPP

#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

/// A thread's part of the gradient of a norm's row of T: `Packs` packs of each operand, `Threads` packs apart, in
/// scratch or in registers, and the gradients of their columns over all rows in registers.
template <class Exec, class T, int Threads, int Packs, int Width = packed_width<T>>
struct StagedNormGradient {
  using Element = T;
  using Atoms = WarpAtoms<Exec>;
  static constexpr int packs = Packs, width = Width;
  using Raw = Pack<T, width>;
  using Values = Pack<float, width>;

  struct Sums {
    float gradient, product;
  };
  struct Statistics {
    float center = 0, factor = 0;
  };
  struct Slopes {
    Values pack[packs];
  };
  struct Gradients {
    Values weights[packs] = {}, biases[packs] = {};
  };
  /// The gradient of x is slope times its normalised element, factor times that of the result, and offset.
  struct Line {
    float offset, slope;
    KOKKOS_FORCEINLINE_FUNCTION Line(bool centered, float inverse_length, float factor, Sums const& sums)
        : offset(centered ? -factor * (sums.gradient * inverse_length) : 0.0f),
          slope(-factor * (sums.product * inverse_length)) {}
  };

  static constexpr int stage_packs(bool adds) { return (adds ? 3 : 2) * packs * Threads; }
  /// Pack k of an operand in a stage: the input, the gradient of the result, and one that is added.
  KOKKOS_FORCEINLINE_FUNCTION static Raw& place(Raw* stage, int operand, int k) {
    return stage[(operand * packs + k) * Threads];
  }
  KOKKOS_FORCEINLINE_FUNCTION static Raw pack_of(Raw* stage, int operand, int k) { return place(stage, operand, k); }
  /// Of operands that are each somewhere else.
  template <class Stages>
  KOKKOS_FORCEINLINE_FUNCTION static Raw pack_of(Stages const& stages, int operand, int k) {
    return stages.pack(operand, k);
  }
  template <class Stage>
  KOKKOS_FORCEINLINE_FUNCTION static Values values(Stage const& stage, int operand, int k) {
    Raw const raw = pack_of(stage, operand, k);
    return Atoms::widened(raw);
  }
  /// A row's normalised elements of pack k.
  template <class Stage>
  KOKKOS_FORCEINLINE_FUNCTION static Values normal(Stage const& stage, Statistics const& now, int k) {
    Values x = values(stage, 0, k);
    for (int j = 0; j < width; ++j) x[j] = (x[j] - now.center) * now.factor;
    return x;
  }
  /// Over this thread's packs, whose normalised elements may be kept; if they are not, the row's factor comes last.
  template <bool Keeps, class Stage>
  KOKKOS_FORCEINLINE_FUNCTION static Sums sums_of(Stage const& stage, Statistics const& now, Slopes const& slopes,
                                                  Values (&kept)[packs]) {
    Sums sums{0, 0};
    unroll<packs>([&](auto k) {
      Values const x = Keeps ? normal(stage, now, k) : values(stage, 0, k), dy = values(stage, 1, k);
      for (int j = 0; j < width; ++j) {
        float const g = dy[j] * slopes.pack[k][j];
        sums.gradient += g;
        sums.product += g * (Keeps ? x[j] : x[j] - now.center);
      }
      if constexpr (Keeps) kept[k] = x;
    });
    if (!Keeps) sums.product *= now.factor;
    return sums;
  }
  /// store(k, gradients of the row's pack k), to which the third operand may be added.
  template <bool Kept, class Stage, class Store>
  KOKKOS_FORCEINLINE_FUNCTION static void write_row(Stage const& stage, Statistics const& now, Slopes const& slopes,
                                                    Gradients& gradients, Line const& line, Values const (&kept)[packs],
                                                    bool adds, Store const& store) {
    unroll<packs>([&](auto k) {
      Values const x = Kept ? kept[k] : normal(stage, now, k), dy = values(stage, 1, k);
      Values out;
      for (int j = 0; j < width; ++j) {
        float const g = dy[j] * slopes.pack[k][j];
        out[j] = x[j] * line.slope + (g * now.factor + line.offset);
        gradients.weights[k][j] += dy[j] * x[j];
        gradients.biases[k][j] += dy[j];
      }
      if (adds) {
        Values const other = values(stage, 2, k);
        for (int j = 0; j < width; ++j) out[j] += other[j];
      }
      store(k, out);
    });
  }
};

}  // namespace tessera::detail

#endif
