// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_HOST_MX_HPP
#define TESSERA_QUANTIZE_HOST_MX_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/element/draws.hpp>
#include <tessera/element/strip.hpp>
#include <tessera/quantize/mx_rows.hpp>
#include <tessera/unroll.hpp>

// Blocks of microscaling on a CPU: one index a block, which is widened into an array that loops vectorise over.
namespace tessera::detail {

/// x[j] = element (row, first + j) of `a`, whose elements are of `type`, one of Types.
template <class Types>
KOKKOS_FORCEINLINE_FUNCTION void read_mx_block(Operand const& a, Scalar type, std::int64_t row, std::int64_t first,
                                               int count, float* x) {
  Types::visit(type, [&](auto tag) TESSERA_INLINE_LAMBDA {
    using T = typename decltype(tag)::type;
    read_strip(static_cast<T const*>(a.data) + row * a.row + first * a.column, a.column, count, x);
  });
}

/// Element (row, first + j) of `a`, whose elements are T, becomes x[j], rounded as quantize does.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void write_mx_block(Operand const& a, std::int64_t row, std::int64_t first, int count,
                                                float const* x) {
  T* const to = static_cast<T*>(const_cast<void*>(a.data)) + row * a.row + first * a.column;
  if (a.column == 1)
    store_neighbours(x, count, to);
  else
    for (int j = 0; j < count; ++j) to[j * a.column] = stored<T>(x[j]);
}

struct HostMxQuantize {
  static constexpr bool vectorises = true;
  MxRows rows;

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    MxRows::Place const at = rows.place(index);
    std::int64_t const first = at.block * mx_block;
    int const count = rows.count(at);
    float x[mx_block];
    read_mx_block<WideTypes>(rows.in, rows.in.type, at.row, first, count, x);
    MagnitudeBits amax = 0;
    for (int j = 0; j < count; ++j) {
      MagnitudeBits const bits = magnitude_bits(x[j]);
      amax = bits > amax ? bits : amax;
    }
    std::uint8_t const scale = mx_scale(amax, rows.quantized, rows.options.scale);
    rows.scale(at) = scale;
    float const factor = mx_factor(scale);
    for (int j = 0; j < count; ++j) x[j] *= factor;
    TypeList<e4m3_t, e5m2_t>::visit(rows.quantized, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using To = typename decltype(tag)::type;
      if (!rows.options.stochastic) return write_mx_block<To>(rows.out, at.row, first, count, x);
      To* const to = static_cast<To*>(const_cast<void*>(rows.out.data)) + at.row * rows.out.row;
      Draws<mx_block> draws;
      std::uint32_t const* const words =
          draws(rows.options.seed, rows.options.offset, rows.index(at.row, first), count);
      To drawn[mx_block];
      for (int j = 0; j < count; ++j) drawn[j] = round_stochastically<To>(x[j], words[j]);
      for (int j = 0; j < count; ++j) to[(first + j) * rows.out.column] = drawn[j];
    });
  }
};

struct HostMxDequantize {
  static constexpr bool vectorises = true;
  MxRows rows;

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    MxRows::Place const at = rows.place(index);
    std::int64_t const first = at.block * mx_block;
    int const count = rows.count(at);
    auto const scale = static_cast<float>(e8m0_t::from_bits(rows.scale(at)));
    float x[mx_block];
    read_mx_block<TypeList<e4m3_t, e5m2_t>>(rows.in, rows.quantized, at.row, first, count, x);
    for (int j = 0; j < count; ++j) x[j] *= scale;
    WideTypes::visit(rows.out.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      write_mx_block<typename decltype(tag)::type>(rows.out, at.row, first, count, x);
    });
  }
};

}  // namespace tessera::detail

#endif
