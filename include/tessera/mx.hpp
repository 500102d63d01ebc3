// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Microscaling (MX) formats: blocks of 32 8-bit numbers that share a power of two.
#ifndef TESSERA_MX_HPP
#define TESSERA_MX_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/detail/array.hpp>
#include <tessera/detail/rows.hpp>
#include <tessera/types.hpp>

namespace tessera {

/// A scale of 8 exponent bits: 2^(bits - 127), from 2^-127 to 2^127; 255 is NaN. There are no sign and no zero.
class e8m0_t {
 public:
  e8m0_t() = default;
  KOKKOS_FUNCTION static constexpr e8m0_t from_bits(std::uint8_t bits) {
    e8m0_t scale;
    scale.bits_ = bits;
    return scale;
  }
  KOKKOS_FUNCTION constexpr std::uint8_t bits() const { return bits_; }
  /// Exact.
  KOKKOS_FUNCTION constexpr explicit operator float() const {
    return __builtin_bit_cast(float, bits_ == 255 ? 0x7fffffffu
                                     : bits_ == 0 ? 0x00400000u
                                                  : std::uint32_t{bits_} << 23);
  }

 private:
  std::uint8_t bits_;
};

/// How the scale of a block follows from its largest magnitude a, with the largest number x_max of the elements' type.
enum class MxScale : std::uint8_t {
  down,  ///< 2^(floor(log2 a) - floor(log2 x_max)), as the OCP specification says: what exceeds x_max then saturates
  up,    ///< the smallest power of two with a / scale <= x_max: nothing saturates
};

struct MxOptions {
  MxScale scale = MxScale::down;
  /// Rounds stochastically (round_stochastically) with philox_shared_word() of the element's index i N + j.
  bool stochastic = false;
  std::uint64_t seed = 0, offset = 0;
};

namespace detail {

struct MxProblem {
  RowArray out, in;  // (1, 1, M, N)
  std::uint8_t* scales = nullptr;
  std::int64_t scale_row = 0, scale_column = 0;
  Scalar quantized = Scalar::e4m3;  // the type of the 8-bit elements
  MxOptions options;
};

/// Compiled in the library, once per execution space.
template <class Exec>
void run_mx_quantize(Exec const& exec, MxProblem const& problem);
template <class Exec>
void run_mx_dequantize(Exec const& exec, MxProblem const& problem);

inline constexpr std::int64_t mx_block = 32;

template <class Exec, class Out, class In, class Scales>
MxProblem mx_problem(char const* op, Out const& out, In const& in, Scales const& scales) {
  require_views<Exec, Out, In, Scales>();
  static_assert(Out::rank() == 2 && In::rank() == 2 && Scales::rank() == 2, "operands are Views of rank 2");
  static_assert(std::is_same_v<typename Scales::non_const_value_type, e8m0_t>, "scales must hold e8m0_t");
  auto const y = array(out);
  auto const x = array(in);
  auto const s = array(scales);
  check_same_extents(op, "out", y, "in", x);
  check_extent(op, "scales", s, 0, x.extent[0], "the rows of in");
  check_extent(op, "scales", s, 1, (x.extent[1] + mx_block - 1) / mx_block, "the blocks of 32 columns of in");
  check_data(op, "out", y);
  check_data(op, "in", x);
  check_data(op, "scales", s);
  check_writable(op, "out", y);
  check_no_overlap(op, "out", y, "in", x);
  check_no_overlap(op, "out", y, "scales", s);
  MxProblem problem;
  problem.out = row_array(y);
  problem.in = row_array(x);
  problem.scales = reinterpret_cast<std::uint8_t*>(const_cast<e8m0_t*>(s.data));
  problem.scale_row = s.stride[0];
  problem.scale_column = s.stride[1];
  return problem;
}

template <class T>
inline constexpr bool is_mx_element = std::is_same_v<T, e4m3_t> || std::is_same_v<T, e5m2_t>;

}  // namespace detail

/// Quantises a matrix to MXFP8: for each 32 neighbours of a row (fewer at its end) a scale as options.scale says, and
/// out = round(x / scale), to nearest even or stochastically, saturating (OCP Microscaling Formats Specification 1.0).
///
/// `in` (M, N) holds double (rounded to fp32 first), float, fp16_t or bf16_t, `out` (M, N) e4m3_t or e5m2_t, `scales`
/// (M, ceil(N / 32)) e8m0_t; any layout. A quotient by a power of two is exact, so that the bits are the same on every
/// backend. A block of zeros has the scale 1; one with a NaN or an infinity the scale NaN, and comes back as NaN.
///
/// Errors, before anything is written: extent, null_data, overlap.
template <detail::execution_space Exec, detail::view Out, detail::view Scales, detail::view In>
void mx_quantize(Exec const& exec, Out const& out, Scales const& scales, In const& in, MxOptions const& options = {}) {
  using namespace detail;
  constexpr char const* op = "tessera::mx_quantize";
  require_outputs<Out, Scales>();
  static_assert(is_mx_element<typename Out::value_type>, "out must hold e4m3_t or e5m2_t");
  static_assert(is_row_input<typename In::non_const_value_type>, "in must hold double, float, fp16_t or bf16_t");
  MxProblem problem = mx_problem<Exec>(op, out, in, scales);
  check_writable(op, "scales", array(scales));
  check_no_overlap(op, "scales", array(scales), "in", array(in));
  problem.quantized = problem.out.type;
  problem.options = options;
  if (in.size() > 0) run_mx_quantize(exec, problem);
}

/// The same on the default instance of the output's execution space.
template <detail::view Out, detail::view Scales, detail::view In>
void mx_quantize(Out const& out, Scales const& scales, In const& in, MxOptions const& options = {}) {
  mx_quantize(typename Out::execution_space{}, out, scales, in, options);
}

/// out = in * scale of the block, exact in fp32 but for overflow and subnormal numbers, and then rounded to the
/// output's type: double, float, fp16_t or bf16_t. Operands and errors as mx_quantize.
template <detail::execution_space Exec, detail::view Out, detail::view In, detail::view Scales>
void mx_dequantize(Exec const& exec, Out const& out, In const& in, Scales const& scales) {
  using namespace detail;
  require_outputs<Out>();
  static_assert(is_mx_element<typename In::non_const_value_type>, "in must hold e4m3_t or e5m2_t");
  static_assert(is_row_input<typename Out::value_type>, "out must hold double, float, fp16_t or bf16_t");
  MxProblem problem = mx_problem<Exec>("tessera::mx_dequantize", out, in, scales);
  problem.quantized = problem.in.type;
  if (in.size() > 0) run_mx_dequantize(exec, problem);
}

/// The same on the default instance of the output's execution space.
template <detail::view Out, detail::view In, detail::view Scales>
void mx_dequantize(Out const& out, In const& in, Scales const& scales) {
  mx_dequantize(typename Out::execution_space{}, out, in, scales);
}

}  // namespace tessera

#endif
