// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_BLOCKS_HPP
#define TESSERA_QUANTIZE_BLOCKS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <tessera/divisor.hpp>
#include <tessera/launch.hpp>
#include <tessera/quantize/rounding.hpp>
#include <tessera/rowwise/shapes.hpp>

// What quantize does beside dividing by the scales it has found: given scales, a transposed copy, counts, stochastic
// rounding. A team takes a block of 128 x 128 elements, in which the groups of tiles lie whole, and reads it once.
namespace tessera::detail {

inline constexpr int block_side = static_cast<int>(quantized_tile);

/// Whose maximum a scale comes from.
enum class ScaleSource : std::uint8_t { given, line, block };

/// A problem as the kernels see it, and its blocks.
struct BlockProblem {
  Operand out, in, transposed;
  std::int64_t rows, columns;
  ScaleMap scales, transposed_scales;  // the latter where they are not those of `scales`
  ScaleSource source;
  float* amax;
  std::int64_t* saturated;
  float largest;
  QuotientRounding rounding;
  Divisor column_blocks;

  explicit BlockProblem(QuantizeProblem const& p)
      : rows(p.in.extent[2]),
        columns(p.in.extent[3]),
        scales(scale_map(p.scales, p.granularity)),
        transposed_scales(scale_map(p.transposed_scales, p.granularity)),
        source(p.given_scales                               ? ScaleSource::given
               : p.granularity == Granularity::tile_128x128 ? ScaleSource::block
                                                            : ScaleSource::line),
        amax(p.amax),
        saturated(p.saturated),
        largest(largest_of(p.out.type)),
        rounding(p),
        column_blocks((columns + block_side - 1) / block_side) {
    auto const plain = [](RowArray const& a) {
      return Operand{a.data, a.type, false, a.stride[0], a.stride[1], a.stride[2], a.stride[3]};
    };
    out = plain(p.out);
    in = plain(p.in);
    transposed = plain(p.transposed);
  }
  std::int64_t blocks() const { return (rows + block_side - 1) / block_side * column_blocks.by; }
};

/// A team's block.
struct BlockPlace {
  int above, beside;  // of it, blocks

  KOKKOS_FORCEINLINE_FUNCTION BlockPlace(BlockProblem const& p, int team)
      : above(team / p.column_blocks), beside(team - above * static_cast<int>(p.column_blocks)) {}
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t row() const { return std::int64_t{above} * block_side; }
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t column() const { return std::int64_t{beside} * block_side; }
};

/// One element for each index, of any types and layout: what is left to do once the scales are there.
struct QuantizeElements {
  Operand out, in;
  ScaleMap scales;
  QuotientRounding rounding;
  std::int64_t* saturated;
  std::int64_t columns;
  Divisor by_columns;
  bool small;  // fewer than 2^31 elements

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    std::int64_t const i = by_columns.quotient(index, small), j = index - i * columns;
    float x = 0;
    WideTypes::visit(in.type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      x = static_cast<float>(static_cast<T const*>(in.data)[i * in.row + j * in.column]);
    });
    float const quotient = x / scales(i, j);
    QuantizedTypes::visit(out.type, [&](auto tag) {
      using To = typename decltype(tag)::type;
      static_cast<To*>(const_cast<void*>(out.data))[i * out.row + j * out.column] =
          rounding.template operator()<To>(quotient, i, j);
    });
    if (saturated != nullptr && rounding.cuts_off(x, quotient)) Kokkos::atomic_add(saturated, std::int64_t{1});
  }
};

template <class Exec>
void quantize_elements(char const* label, Exec const& exec, QuantizeElements kernel, std::int64_t rows,
                       std::int64_t columns) {
  std::int64_t const elements = rows * columns;
  kernel.columns = columns;
  kernel.by_columns = Divisor(columns);
  kernel.small = elements <= std::numeric_limits<std::int32_t>::max();
  for_each_index(label, exec, elements, kernel);
}

/// The elements and, from a second read, those of the transposed copy; all scales are there.
template <class Exec>
void run_by_elements(Exec const& exec, BlockProblem const& p) {
  QuantizeElements kernel{p.out, p.in, p.scales, p.rounding, p.saturated, 0, {}, false};
  quantize_elements("tessera::quantize::elements", exec, kernel, p.rows, p.columns);
  if (!p.transposed.present()) return;
  kernel.out = p.transposed;
  kernel.scales = p.transposed_scales.present() ? p.transposed_scales : p.scales.transposed();
  kernel.saturated = nullptr;
  std::swap(kernel.in.row, kernel.in.column);
  std::swap(kernel.rounding.row, kernel.rounding.column);
  quantize_elements("tessera::quantize::transposed_elements", exec, kernel, p.columns, p.rows);
}

}  // namespace tessera::detail

#endif
