// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rotary position embedding and its gradient.
#ifndef TESSERA_ROTARY_HPP
#define TESSERA_ROTARY_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/detail/array.hpp>
#include <tessera/detail/rows.hpp>

namespace tessera {

struct RotaryOptions {
  /// Pairs are neighbours (2j, 2j + 1), as in the paper, instead of halves (j, j + r / 2), as most models have them.
  bool interleaved = false;
  /// Turns the other way round: the gradient of the embedding, since turning back is its transpose.
  bool backward = false;
  /// Row of the tables for the first token, as where keys are in a cache already.
  std::int64_t first_position = 0;
};

namespace detail {

struct RotaryProblem {
  RowArray out, in;       // (B, S, H, D)
  RowArray cosine, sine;  // (1, 1, positions, r / 2)
  bool interleaved = false, backward = false;
  std::int64_t first_position = 0;
};

/// Compiled in the library, once per execution space.
template <class Exec>
void run_rotary(Exec const& exec, RotaryProblem const& problem);

}  // namespace detail

/// Turns pairs of features of each head by angles that depend on the token's position (J. Su et al., "RoFormer:
/// Enhanced transformer with rotary position embedding", 2021). With p = options.first_position + s and the pair (a, b)
/// number j
///
///     out_a = in_a cos(p, j) - in_b sin(p, j),   out_b = in_b cos(p, j) + in_a sin(p, j);
///
/// with options.backward the sine has the other sign, which gives d_in from d_out.
///
/// `out` and `in` (B, S, H, D): batch, tokens, heads, features, any layout, of double, float, fp16_t or bf16_t; `out`
/// may be the same elements as `in`. `cosine` and `sine` (positions, r / 2) of float, r <= D even: features from r on
/// are copied. Arithmetic in fp32, in fp64 for double. Each element is read once and written once.
///
/// Errors, before anything is written: extent (of out; tables that differ, are wider than D / 2 or have too few rows),
/// value (first_position below 0), null_data, overlap.
template <detail::execution_space Exec, detail::view Out, detail::view In, detail::view Cosine, detail::view Sine>
void rotary_embedding(Exec const& exec, Out const& out, In const& in, Cosine const& cosine, Sine const& sine,
                      RotaryOptions const& options = {}) {
  using namespace detail;
  constexpr char const* op = "tessera::rotary_embedding";
  require_views<Exec, Out, In, Cosine, Sine>();
  require_outputs<Out>();
  static_assert(Out::rank() == 4 && In::rank() == 4, "rotary_embedding takes Views (batch, tokens, heads, features)");
  static_assert(is_row_input<typename In::non_const_value_type> && is_row_input<typename Out::value_type>,
                "in and out must hold double, float, fp16_t or bf16_t");
  static_assert(Cosine::rank() == 2 && Sine::rank() == 2, "the tables are Views of rank 2: positions and pairs");
  static_assert(std::is_same_v<typename Cosine::non_const_value_type, float> &&
                    std::is_same_v<typename Sine::non_const_value_type, float>,
                "the tables must hold float");
  auto const y = array(out);
  auto const x = array(in);
  auto const c = array(cosine);
  auto const s = array(sine);
  check_same_extents(op, "out", y, "in", x);
  check_same_extents(op, "sine", s, "cosine", c);
  check_value(options.first_position >= 0, op,
              "first_position " + std::to_string(options.first_position) + " must not be negative");
  if (2 * c.extent[1] > x.extent[3])
    throw Error(ErrorCode::extent,
                std::string(op) + ": cosine " + shape(c) + " has more pairs than the features of in " + shape(x));
  if (x.size() > 0 && c.extent[0] - options.first_position < x.extent[1])
    throw Error(ErrorCode::extent, std::string(op) + ": cosine " + shape(c) + " has fewer positions than in " +
                                       shape(x) + " asks for from position " + std::to_string(options.first_position) +
                                       " on");
  check_data(op, "out", y);
  check_data(op, "in", x);
  check_data(op, "cosine", c);
  check_data(op, "sine", s);
  check_writable(op, "out", y);
  check_no_partial_overlap(op, "out", y, "in", x);
  check_no_overlap(op, "out", y, "cosine", c);
  check_no_overlap(op, "out", y, "sine", s);
  if (x.size() > 0)
    run_rotary(exec, RotaryProblem{row_array(y), row_array(x), row_array(c), row_array(s), options.interleaved,
                                   options.backward, options.first_position});
}

/// The same on the default instance of the output's execution space.
template <detail::view Out, detail::view In, detail::view Cosine, detail::view Sine>
void rotary_embedding(Out const& out, In const& in, Cosine const& cosine, Sine const& sine,
                      RotaryOptions const& options = {}) {
  rotary_embedding(typename Out::execution_space{}, out, in, cosine, sine, options);
}

}  // namespace tessera

#endif
