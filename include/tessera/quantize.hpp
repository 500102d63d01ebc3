// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// quantize and dequantize: matrices of 8-bit elements with fp32 scales.
#ifndef TESSERA_QUANTIZE_HPP
#define TESSERA_QUANTIZE_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/detail/array.hpp>
#include <tessera/detail/rows.hpp>
#include <tessera/types.hpp>

namespace tessera {

/// Which elements of an (M, N) matrix share a scale, and with that the extents of the scales.
enum class Granularity : std::uint8_t {
  per_tensor,    ///< all elements: scales ()
  per_row,       ///< the elements of a row: scales (M)
  tile_1x128,    ///< 128 elements of a row: scales (M, ceil(N / 128))
  tile_128x128,  ///< a square of elements: scales (ceil(M / 128), ceil(N / 128))
};

/// Options of quantize; the type of the optional View is deduced, as in
/// `QuantizeOptions{.granularity = Granularity::per_row, .amax = amax}`.
template <class Amax = None>
struct QuantizeOptions {
  /// The rank of the scales must fit.
  Granularity granularity = Granularity::per_tensor;
  /// Output, a float View of rank 0: max |x| over the whole matrix, rounded to fp32.
  Amax amax = {};
};

struct DequantizeOptions {
  /// The rank of the scales must fit.
  Granularity granularity = Granularity::per_tensor;
};

namespace detail {

struct QuantizeProblem {
  RowArray out, in;       // (1, 1, M, N)
  RowArray scales;        // (1, 1, rows of tiles, columns of tiles)
  float* amax = nullptr;  // may be absent
  Granularity granularity = Granularity::per_tensor;
};

/// Compiled in the library, once per execution space.
template <class Exec>
void run_quantize(Exec const& exec, QuantizeProblem const& problem);
template <class Exec>
void run_dequantize(Exec const& exec, QuantizeProblem const& problem);

template <class T>
inline constexpr bool is_quantized =
    std::is_same_v<T, e4m3_t> || std::is_same_v<T, e5m2_t> || std::is_same_v<T, std::int8_t>;

inline constexpr std::int64_t quantized_tile = 128;

inline char const* granularity_name(Granularity granularity) {
  switch (granularity) {
    case Granularity::per_tensor:
      return "per_tensor";
    case Granularity::per_row:
      return "per_row";
    case Granularity::tile_1x128:
      return "tile_1x128";
    case Granularity::tile_128x128:
      return "tile_128x128";
  }
  return "unknown";
}

/// Checks the extents of the scales against the matrix and gives them two tile extents.
template <class T, int Rank, class U>
RowArray tile_scales(char const* op, Array<T, Rank> const& scales, Array<U, 2> const& in, Granularity granularity) {
  bool const tiles = granularity == Granularity::tile_1x128 || granularity == Granularity::tile_128x128;
  bool const per_row = granularity == Granularity::per_row;
  int const rank = tiles ? 2 : per_row ? 1 : 0;
  std::string const name = granularity_name(granularity);
  if (Rank != rank)
    throw Error(ErrorCode::extent, std::string(op) + ": scales of rank " + std::to_string(Rank) + ", but " + name +
                                       " needs rank " + std::to_string(rank));
  RowArray s;
  s.data = scales.data;
  auto const groups = [](std::int64_t extent) { return (extent + quantized_tile - 1) / quantized_tile; };
  s.extent[2] = granularity == Granularity::tile_128x128 ? groups(in.extent[0]) : rank > 0 ? in.extent[0] : 1;
  s.extent[3] = tiles ? groups(in.extent[1]) : 1;
  for (int i = 0; i < Rank && i < 2; ++i) {
    check_extent(op, "scales", scales, i, s.extent[2 + i], "for " + name + " of a matrix " + shape(in));
    s.stride[2 + i] = scales.stride[i];
  }
  return s;
}

}  // namespace detail

/// Quantises a matrix: for each group of elements that shares a scale (options.granularity)
///
///     scale = max|x| / x_max,  out = round(x / scale),
///
/// where x_max is the largest number of the output type: 448 for e4m3_t, 57344 for e5m2_t, 127 for int8_t. All of it in
/// fp32, the division exactly rounded, the last rounding to nearest even and saturating: the result is the same to the
/// last bit on every backend.
///
/// `in` (M, N) holds double (rounded to fp32 first), float, fp16_t or bf16_t; `out` (M, N); `scales` of float, with the
/// extents that Granularity lists. Any layout, any M and N; tiles at the edges are partial.
///
/// A group of zeros only gets the scale 1. A scale is 2^-126 at least, so that x / scale is never a division by zero.
/// A NaN or an infinity is not hidden: it makes the scale of its group (and amax) NaN or Inf, so the whole group comes
/// back from dequantize as NaN.
///
/// One pass over the elements, but two for per_tensor and for rows longer than 8192.
///
/// Errors, before anything is written: extent (of out, or rank or extent of scales), null_data, overlap.
template <detail::execution_space Exec, detail::view Out, detail::view Scales, detail::view In,
          class Options = QuantizeOptions<>>
void quantize(Exec const& exec, Out const& out, Scales const& scales, In const& in, Options const& options = {}) {
  using namespace detail;
  constexpr char const* op = "tessera::quantize";
  require_views<Exec, Out, Scales, In>();
  require_outputs<Out, Scales>();
  static_assert(Out::rank() == 2 && In::rank() == 2, "quantize takes matrices: in and out are Views of rank 2");
  static_assert(is_quantized<typename Out::value_type>, "out must hold e4m3_t, e5m2_t or int8_t");
  static_assert(is_row_input<typename In::non_const_value_type>, "in must hold double, float, fp16_t or bf16_t");
  static_assert(std::is_same_v<typename Scales::value_type, float>, "scales must hold float");
  static_assert(Scales::rank() <= 2, "scales are a View of rank 0, 1 or 2");
  auto const y = array(out);
  auto const s = array(scales);
  auto const x = array(in);
  check_same_extents(op, "out", y, "in", x);
  QuantizeProblem problem{row_array(y), row_array(x), tile_scales(op, s, x, options.granularity), nullptr,
                          options.granularity};
  check_data(op, "out", y);
  check_data(op, "scales", s);
  check_data(op, "in", x);
  check_writable(op, "out", y);
  check_writable(op, "scales", s);
  check_no_overlap(op, "out", y, "in", x);
  check_no_overlap(op, "scales", s, "in", x);
  check_no_overlap(op, "scales", s, "out", y);
  if constexpr (is_present<decltype(options.amax)>) {
    using Amax = std::remove_cv_t<decltype(options.amax)>;
    require_views<Exec, Amax>();
    static_assert(Amax::rank() == 0 && std::is_same_v<typename Amax::value_type, float>,
                  "amax must be a View of rank 0 of float");
    auto const a = array(options.amax);
    check_data(op, "amax", a);
    check_no_overlap(op, "amax", a, "in", x);
    check_no_overlap(op, "amax", a, "out", y);
    check_no_overlap(op, "amax", a, "scales", s);
    problem.amax = a.data;
  }
  run_quantize(exec, problem);
}

/// The same on the default instance of the output's execution space.
template <detail::view Out, detail::view Scales, detail::view In, class Options = QuantizeOptions<>>
void quantize(Out const& out, Scales const& scales, In const& in, Options const& options = {}) {
  quantize(typename Out::execution_space{}, out, scales, in, options);
}

/// out = in * scale, with the scale of the element's group: the inverse of quantize but for the rounding. The product
/// is rounded to fp32 and then to the output type, not saturating; the same bits on every backend.
///
/// `in` (M, N) holds e4m3_t, e5m2_t or int8_t; `out` (M, N) double, float, fp16_t or bf16_t; `scales` of float as for
/// quantize. Errors as there.
template <detail::execution_space Exec, detail::view Out, detail::view In, detail::view Scales>
void dequantize(Exec const& exec, Out const& out, In const& in, Scales const& scales,
                DequantizeOptions const& options = {}) {
  using namespace detail;
  constexpr char const* op = "tessera::dequantize";
  require_views<Exec, Out, Scales, In>();
  require_outputs<Out>();
  static_assert(Out::rank() == 2 && In::rank() == 2, "dequantize takes matrices: in and out are Views of rank 2");
  static_assert(is_quantized<typename In::non_const_value_type>, "in must hold e4m3_t, e5m2_t or int8_t");
  static_assert(is_row_input<typename Out::value_type>, "out must hold double, float, fp16_t or bf16_t");
  static_assert(std::is_same_v<typename Scales::non_const_value_type, float>, "scales must hold float");
  static_assert(Scales::rank() <= 2, "scales are a View of rank 0, 1 or 2");
  auto const y = array(out);
  auto const x = array(in);
  auto const s = array(scales);
  check_same_extents(op, "out", y, "in", x);
  QuantizeProblem const problem{row_array(y), row_array(x), tile_scales(op, s, x, options.granularity), nullptr,
                                options.granularity};
  check_data(op, "out", y);
  check_data(op, "in", x);
  check_data(op, "scales", s);
  check_writable(op, "out", y);
  check_no_overlap(op, "out", y, "in", x);
  check_no_overlap(op, "out", y, "scales", s);
  if (x.size() > 0) run_dequantize(exec, problem);
}

/// The same on the default instance of the output's execution space.
template <detail::view Out, detail::view In, detail::view Scales>
void dequantize(Out const& out, In const& in, Scales const& scales, DequantizeOptions const& options = {}) {
  dequantize(typename Out::execution_space{}, out, in, scales, options);
}

}  // namespace tessera

#endif
