// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_BLOCK_SCALED_HPP
#define TESSERA_GEMM_BLOCK_SCALED_HPP

#include <tessera/gemm.hpp>
#include <tessera/gemm/block_scaled.hpp>

namespace tessera {

namespace detail {

template <class View>
inline constexpr bool is_8_bit_float = float_type<typename View::non_const_value_type> &&
                                       sizeof(typename View::non_const_value_type) == 1;

/// Checks the scales against the product that they belong to.
template <class ScalesA, class ScalesB, class C>
BlockScales block_scales(GemmProblem const& p, ScalesA const& a_view, ScalesB const& b_view, C const& c_view) {
  constexpr char const* op = "tessera::gemm_block_scaled";
  auto const a = array(a_view);
  auto const b = array(b_view);
  auto const c = array(c_view);
  BlockScales scales{matrix_stack(a), matrix_stack(b)};
  auto const check = [&](MatrixStack& m, auto const& x, char const* name, std::int64_t rows, std::int64_t batch) {
    if (m.rows != rows || m.cols != block_count(p.k()) || m.inner != batch)
      throw Error(ErrorCode::extent, std::string(op) + ": " + name + " " + shape(x) + " for a product of M = " +
                                         std::to_string(p.m()) + ", N = " + std::to_string(p.n()) +
                                         ", K = " + std::to_string(p.k()) + ": (" + std::to_string(rows) + ", " +
                                         std::to_string(block_count(p.k())) + ") for each matrix are needed");
    if (c.size() > 0) check_data(op, name, x);
    check_no_overlap(op, "C", c, name, x);
    if (m.inner == 1) m.inner_stride = 0;
  };
  check(scales.a, a, "scales_a", p.m(), p.a.inner);
  check(scales.b, b, "scales_b", block_count(p.n()), p.b.inner);
  return scales;
}

}  // namespace detail

/// C ← epilogue(alpha·(S_A ∘ op(A))·(S_B ∘ op(B)) + beta·C), where op(A) and op(B) are 8-bit numbers with a scale for
/// every block: of op(A), (M, K), for 128 elements of a row; of op(B), (K, N), for squares of 128 x 128, as quantize()
/// makes them with Granularity::tile_1x128 and tile_128x128. The products of 128 k are summed, multiplied by both
/// scales and added in fp32 (the promotion of DeepSeek-V3, 2024, §3.3).
///
/// A, B and C are Views as gemm() takes them, A and B of e4m3_t or e5m2_t, C of float, fp16_t, bf16_t, e4m3_t or
/// e5m2_t. @param scales_a float, (M, ⌈K/128⌉), and @param scales_b float, (⌈N/128⌉, ⌈K/128⌉), whatever options.op_a
/// and op_b are, with the batch first where A or B has one. Asynchronous on `exec`, without fence or allocation;
/// options.workspace is as large as gemm_workspace_size() has it for the same operands.
/// @throws Error as gemm() does, and {extent} where scales do not fit, {unsupported} where options ask for an algorithm
/// other than automatic, coarsened or hopper and refuse another.
template <detail::execution_space Exec, detail::view A, detail::view ScalesA, detail::view B, detail::view ScalesB,
          detail::view C, class Epilogue = epilogue::Identity>
void gemm_block_scaled(Exec const& exec, double alpha, A const& a, ScalesA const& scales_a, B const& b,
                       ScalesB const& scales_b, double beta, C const& c, GemmOptions const& options = {},
                       Epilogue const& epilogue = {}) {
  detail::require_gemm_operands<Exec, A, B, C>();
  static_assert(detail::is_8_bit_float<A> && detail::is_8_bit_float<B>,
                "gemm_block_scaled: A and B are of e4m3_t or e5m2_t");
  static_assert(detail::is_of<ScalesA, float> && detail::is_of<ScalesB, float>,
                "gemm_block_scaled: scales are Views of float");
  static_assert(ScalesA::rank() == A::rank() && ScalesB::rank() == B::rank(),
                "gemm_block_scaled: scales have the rank of what they scale");
  detail::GemmProblem p = detail::gemm_problem(alpha, a, b, beta, c, options);
  p.block_scaled = true;
  detail::BlockScales const scales =
      p.k() == 0 ? detail::BlockScales{} : detail::block_scales(p, scales_a, scales_b, c);
  GemmPlan const plan = detail::plan_block_scaled<Exec, Epilogue>(exec, p, options);
  if (p.m() == 0 || p.n() == 0 || p.batch() == 0) return;
  if (plan.workspace_bytes > 0 && p.workspace == nullptr)
    throw Error(ErrorCode::workspace, "tessera::gemm_block_scaled: a workspace without an address");
  detail::run_planned_block_scaled<Exec, typename A::non_const_value_type, typename B::non_const_value_type>(
      exec, p, scales, plan, detail::for_results<float, typename C::non_const_value_type>(epilogue));
}

/// gemm_block_scaled() on the default instance of C's execution space.
template <detail::view A, detail::view ScalesA, detail::view B, detail::view ScalesB, detail::view C,
          class Epilogue = epilogue::Identity>
void gemm_block_scaled(double alpha, A const& a, ScalesA const& scales_a, B const& b, ScalesB const& scales_b,
                       double beta, C const& c, GemmOptions const& options = {}, Epilogue const& epilogue = {}) {
  gemm_block_scaled(typename C::execution_space{}, alpha, a, scales_a, b, scales_b, beta, c, options, epilogue);
}

}  // namespace tessera

#endif
