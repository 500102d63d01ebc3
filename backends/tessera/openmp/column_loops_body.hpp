// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_COLUMN_LOOPS_BODY_HPP
#define TESSERA_OPENMP_COLUMN_LOOPS_BODY_HPP

// Included by one source per instruction set, each compiled for its own. No standard header here: an inline function
// compiled for AVX-512 and merged by the linker would run on processors without it.
#include <tessera/openmp/column_loops.hpp>
#include <tessera/openmp/micro_kernel.hpp>

namespace {

// `Simd` is the instruction set: `Vector` of `lanes` fp32 numbers and `Words` of as many integers with operators, of
// which registers hold `registers`.

/// 2^x for x below 128, 0 below 2^-126: x = k + r, |r| <= 1/2, and a polynomial in r (least relative error: 9.2e-8).
template <class Simd>
inline typename Simd::Vector power_of_two(typename Simd::Vector x) {
  using Vector = typename Simd::Vector;
  using Words = typename Simd::Words;
  constexpr float magic = 12582912.0f;  // 1.5 2^23: a sum with it has no fraction bits
  Vector const shifted = x + magic, r = x - (shifted - magic);
  Vector p = r * 1.326472863e-3f + 9.671513727e-3f;
  p = p * r + 5.550733750e-2f;
  p = p * r + 2.402224207e-1f;
  p = p * r + 6.931469776e-1f;
  p = p * r + 1.0f;
  Words const power = (reinterpret_cast<Words>(shifted) << 23) + 0x3f800000;
  return Simd::unless_below(-126.0f, x, p * reinterpret_cast<Vector>(power));
}

template <class Simd, int Rows>
struct Columns {
  using Vector = typename Simd::Vector;
  static constexpr int pitch = tessera::detail::openmp::panel_cols<float>, lanes = Simd::lanes;
  /// Vectors of rows, of which so many are worked on at a time that constants have registers beside them.
  static constexpr int vectors = Rows / lanes,
                       together = vectors < Simd::registers / 16 ? vectors : Simd::registers / 16;

  static void largest(float const* x, int columns, float* top) {
    constexpr int chains = 8 / vectors;
    Vector most[chains][vectors];
#pragma GCC unroll 8
    for (int i = 0; i < chains; ++i)
      for (int v = 0; v < vectors; ++v) most[i][v] = Simd::read(top + v * lanes);
    int c = 0;
    for (; c + chains <= columns; c += chains, x += chains * pitch)
#pragma GCC unroll 8
      for (int i = 0; i < chains; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) most[i][v] = Simd::larger(Simd::read(x + i * pitch + v * lanes), most[i][v]);
    for (; c < columns; ++c, x += pitch)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) most[0][v] = Simd::larger(Simd::read(x + v * lanes), most[0][v]);
#pragma GCC unroll 8
    for (int i = 1; i < chains; ++i)
      for (int v = 0; v < vectors; ++v) most[0][v] = Simd::larger(most[i][v], most[0][v]);
    for (int v = 0; v < vectors; ++v) Simd::write(most[0][v], top + v * lanes);
  }

  static void exponentials(float* x, int columns, float scale, float const* base, float* sums) {
    for (int first = 0; first < vectors; first += together) {
      Vector relative[together], sum[together];
#pragma GCC unroll 4
      for (int v = 0; v < together; ++v) {
        relative[v] = Simd::read(base + (first + v) * lanes);
        sum[v] = Simd::read(sums + (first + v) * lanes);
      }
      float* at = x + first * lanes;
      for (int c = 0; c < columns; ++c, at += pitch)
#pragma GCC unroll 4
        for (int v = 0; v < together; ++v) {
          Vector const e = power_of_two<Simd>(Simd::read(at + v * lanes) * scale - relative[v]);
          sum[v] += e;
          Simd::write(e, at + v * lanes);
        }
#pragma GCC unroll 4
      for (int v = 0; v < together; ++v) Simd::write(sum[v], sums + (first + v) * lanes);
    }
  }

  static void scaled(float* x, int columns, float const* factors) {
    Vector factor[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) factor[v] = Simd::read(factors + v * lanes);
    for (int c = 0; c < columns; ++c, x += pitch)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) Simd::write(Simd::read(x + v * lanes) * factor[v], x + v * lanes);
  }

  static void exponentials_of_columns(float* x, int columns, float scale, float const* base) {
    for (int c = 0; c < columns; ++c, x += pitch)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        Simd::write(power_of_two<Simd>(Simd::read(x + v * lanes) * scale - base[c]), x + v * lanes);
  }

  static void differences(float* x, float const* factors, int columns, float const* base) {
    for (int c = 0; c < columns; ++c, x += pitch, factors += pitch)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        Simd::write(Simd::read(factors + v * lanes) * (Simd::read(x + v * lanes) - base[c]), x + v * lanes);
  }

  static constexpr tessera::detail::openmp::ColumnLoops table{largest, exponentials, scaled, exponentials_of_columns,
                                                              differences};
};

template <class Simd>
inline constexpr tessera::detail::openmp::ColumnLoopsOfPanels columns_of_panels{
    Columns<Simd, tessera::detail::openmp::panel_cols<float> / 2>::table,
    Columns<Simd, tessera::detail::openmp::panel_cols<float>>::table};

}  // namespace

#endif
