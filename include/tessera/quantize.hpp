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

/// Options of quantize; the types of the optional Views are deduced, as in
/// `QuantizeOptions{.granularity = Granularity::per_row, .amax = amax}`.
template <class Amax = None, class Transposed = None, class TransposedScales = None, class Saturated = None>
struct QuantizeOptions {
  /// The rank of the scales must fit.
  Granularity granularity = Granularity::per_tensor;
  /// Output, a float View of rank 0: max |x| over the whole matrix, rounded to fp32.
  Amax amax = {};
  /// The scales are read, not computed (delayed scaling): what is beyond the largest number then saturates.
  bool given_scales = false;
  /// Output, a View (N, M) of out's element type: the matrix quantised and transposed, from the same read of it. Its
  /// elements have the scales of their group, so that it is `out` transposed, but for tile_1x128.
  Transposed transposed = {};
  /// For tile_1x128 the transposed copy's own scales, of 128 neighbours of its rows: a float View (N, ceil(M / 128)),
  /// an output, or with given_scales an input.
  TransposedScales transposed_scales = {};
  /// Output, an std::int64_t View of rank 0: how many elements of `out` were cut off, which are those that are finite
  /// (in fp32) and would round to a number beyond the largest one if exponents had no limit. Only given scales do it.
  Saturated saturated = {};
  /// Rounds stochastically (round_stochastically), the element (i, j) with philox_shared_word() of index i N + j, in
  /// the transposed copy too: right on average, each element's upper 16 bits independent of all others.
  bool stochastic = false;
  std::uint64_t seed = 0, offset = 0;
};

struct DequantizeOptions {
  /// The rank of the scales must fit.
  Granularity granularity = Granularity::per_tensor;
};

namespace detail {

struct QuantizeProblem {
  RowArray out, in;       // (1, 1, M, N)
  RowArray scales;        // (1, 1, rows of tiles, columns of tiles)
  float* amax = nullptr;  // may be absent, as what follows
  Granularity granularity = Granularity::per_tensor;
  RowArray transposed = {};         // (1, 1, N, M)
  RowArray transposed_scales = {};  // (1, 1, rows of tiles, columns of tiles) of it
  std::int64_t* saturated = nullptr;
  bool given_scales = false, stochastic = false;
  std::uint64_t seed = 0, offset = 0;
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
RowArray tile_scales(char const* op, Array<T, Rank> const& scales, Array<U, 2> const& in, Granularity granularity,
                     char const* name = "scales") {
  bool const tiles = granularity == Granularity::tile_1x128 || granularity == Granularity::tile_128x128;
  bool const per_row = granularity == Granularity::per_row;
  int const rank = tiles ? 2 : per_row ? 1 : 0;
  std::string const sharing = granularity_name(granularity);
  if (Rank != rank)
    throw Error(ErrorCode::extent, std::string(op) + ": " + name + " of rank " + std::to_string(Rank) + ", but " +
                                       sharing + " needs rank " + std::to_string(rank));
  RowArray s;
  s.data = scales.data;
  auto const groups = [](std::int64_t extent) { return (extent + quantized_tile - 1) / quantized_tile; };
  s.extent[2] = granularity == Granularity::tile_128x128 ? groups(in.extent[0]) : rank > 0 ? in.extent[0] : 1;
  s.extent[3] = tiles ? groups(in.extent[1]) : 1;
  for (int i = 0; i < Rank && i < 2; ++i) {
    check_extent(op, name, scales, i, s.extent[2 + i], "for " + sharing + " of a matrix " + shape(in));
    s.stride[2 + i] = scales.stride[i];
  }
  return s;
}

/// An operand and what is done with it.
struct QuantizeOperand {
  char const* name;
  AnyArray array;
  bool written;
};

/// Outputs share no byte with an input, nor with another output.
inline void check_quantize_operands(char const* op, QuantizeOperand const* all, int count) {
  for (int i = 0; i < count; ++i) check_data(op, all[i].name, all[i].array);
  for (int i = 0; i < count; ++i) {
    if (!all[i].written) continue;
    check_writable(op, all[i].name, all[i].array);
    for (int j = 0; j < count; ++j)
      if (!all[j].written || j < i) check_no_overlap(op, all[i].name, all[i].array, all[j].name, all[j].array);
  }
}

/// The transposed copy of `in` and, for tile_1x128, its scales.
template <class X, class Transposed, class Scales>
void take_transposed(char const* op, QuantizeProblem& problem, Array<X, 2> const& in, Transposed const& copy,
                     [[maybe_unused]] Scales const& scales) {
  bool const own_scales = problem.granularity == Granularity::tile_1x128;
  auto const y = array(copy);
  check_extent(op, "transposed", y, 0, in.extent[1], "the columns of in " + shape(in));
  check_extent(op, "transposed", y, 1, in.extent[0], "the rows of in " + shape(in));
  check_value(own_scales == is_present<Scales>, op,
              own_scales ? "the transposed copy needs transposed_scales where the granularity is tile_1x128"
                         : "transposed_scales are for the granularity tile_1x128 alone");
  problem.transposed = row_array(y);
  if constexpr (is_present<Scales>)
    problem.transposed_scales = tile_scales(op, array(scales), y, problem.granularity, "transposed_scales");
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
/// With options.given_scales the scales (then a View of float or const float) are read, and a scale may be anything:
/// x / scale is what IEEE arithmetic says and saturates, so a negative scale turns signs, 0 gives the largest number
/// with the sign of x (of 0 / 0 NaN), Inf gives zeros, NaN gives NaN (of int8_t 0 for both). options.transposed is a
/// second, transposed result from the same read of the matrix; options.saturated counts what was cut off;
/// options.stochastic rounds so that the result is right on average. All of them give the same bits on every backend.
///
/// One pass over the elements, but two for per_tensor, for rows longer than 8192, and per_row with a transposed copy,
/// counts or stochastic rounding; with given scales always one. (On a GPU this holds for matrices whose rows are
/// neighbouring elements, N a multiple of 8 and 16-byte aligned, and 8-bit floats; others are read once more for a
/// transposed copy, and once more for each of the options above.)
///
/// Errors, before anything is written: extent (of out or transposed, or rank or extent of their scales), null_data,
/// overlap, value (transposed_scales missing or not wanted; const scales that are not given).
template <detail::execution_space Exec, detail::view Out, detail::view Scales, detail::view In,
          class Options = QuantizeOptions<>>
void quantize(Exec const& exec, Out const& out, Scales const& scales, In const& in, Options const& options = {}) {
  using namespace detail;
  constexpr char const* op = "tessera::quantize";
  require_views<Exec, Out, Scales, In>();
  require_outputs<Out>();
  static_assert(Out::rank() == 2 && In::rank() == 2, "quantize takes matrices: in and out are Views of rank 2");
  static_assert(is_quantized<typename Out::value_type>, "out must hold e4m3_t, e5m2_t or int8_t");
  static_assert(is_row_input<typename In::non_const_value_type>, "in must hold double, float, fp16_t or bf16_t");
  static_assert(std::is_same_v<typename Scales::non_const_value_type, float>, "scales must hold float");
  static_assert(Scales::rank() <= 2, "scales are a View of rank 0, 1 or 2");
  auto const y = array(out);
  auto const s = array(scales);
  auto const x = array(in);
  check_same_extents(op, "out", y, "in", x);
  QuantizeProblem problem{row_array(y), row_array(x), tile_scales(op, s, x, options.granularity), nullptr,
                          options.granularity};
  problem.given_scales = options.given_scales;
  problem.stochastic = options.stochastic;
  problem.seed = options.seed;
  problem.offset = options.offset;
  check_value(!std::is_const_v<typename Scales::value_type> || options.given_scales, op,
              "scales of const elements can only be given (options.given_scales)");
  QuantizeOperand all[7] = {{"out", y, true}, {"in", x, false}, {"scales", s, !options.given_scales}};
  int count = 3;
  if constexpr (is_present<decltype(options.amax)>) {
    using Amax = std::remove_cv_t<decltype(options.amax)>;
    require_views<Exec, Amax>();
    static_assert(Amax::rank() == 0 && std::is_same_v<typename Amax::value_type, float>,
                  "amax must be a View of rank 0 of float");
    problem.amax = options.amax.data();
    all[count++] = {"amax", array(options.amax), true};
  }
  if constexpr (is_present<decltype(options.saturated)>) {
    using Saturated = std::remove_cv_t<decltype(options.saturated)>;
    require_views<Exec, Saturated>();
    static_assert(Saturated::rank() == 0 && std::is_same_v<typename Saturated::value_type, std::int64_t>,
                  "saturated must be a View of rank 0 of std::int64_t");
    problem.saturated = options.saturated.data();
    all[count++] = {"saturated", array(options.saturated), true};
  }
  if constexpr (is_present<decltype(options.transposed)>) {
    using Copy = std::remove_cv_t<decltype(options.transposed)>;
    require_views<Exec, Copy>();
    static_assert(Copy::rank() == 2 && std::is_same_v<typename Copy::value_type, typename Out::value_type>,
                  "transposed must be a View of rank 2 of out's element type");
    take_transposed(op, problem, x, options.transposed, options.transposed_scales);
    all[count++] = {"transposed", array(options.transposed), true};
  }
  if constexpr (is_present<decltype(options.transposed_scales)>) {
    using Copied = std::remove_cv_t<decltype(options.transposed_scales)>;
    require_views<Exec, Copied>();
    static_assert(is_present<decltype(options.transposed)>, "transposed_scales without a transposed copy");
    static_assert(Copied::rank() == 2 && std::is_same_v<typename Copied::non_const_value_type, float>,
                  "transposed_scales must be a View of rank 2 of float");
    check_value(!std::is_const_v<typename Copied::value_type> || options.given_scales, op,
                "transposed_scales of const elements can only be given (options.given_scales)");
    all[count++] = {"transposed_scales", array(options.transposed_scales), !options.given_scales};
  }
  check_quantize_operands(op, all, count);
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
