// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_HPP
#define TESSERA_GEMM_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#include <tessera/detail/array.hpp>
#include <tessera/epilogue.hpp>
#include <tessera/gemm/run.hpp>
#include <tessera/gemm_plan.hpp>

namespace tessera {

namespace detail {

template <class V>
inline constexpr bool is_fp64 = std::is_same_v<typename V::non_const_value_type, double>;

template <class V>
inline constexpr bool is_gemm_float = float_type<typename V::non_const_value_type>;

template <class V, class T>
inline constexpr bool is_of = std::is_same_v<typename V::non_const_value_type, T>;

/// What products for a C of this type are summed in.
template <class C>
using GemmCompute =
    std::conditional_t<is_fp64<C>, double, std::conditional_t<is_of<C, std::int32_t>, std::int32_t, float>>;

template <class Exec, class A, class B, class C>
constexpr void require_gemm_operands() {
  require_views<Exec, A, B, C>();
  require_outputs<C>();
  static_assert(C::rank() == 2 || C::rank() == 3, "gemm: C is a View of rank 2, or of rank 3 with the batch first");
  static_assert((A::rank() == 2 || A::rank() == C::rank()) && (B::rank() == 2 || B::rank() == C::rank()),
                "gemm: A and B are Views of rank 2, or of rank 3 with the batch first when C is");
  constexpr bool integers = is_of<A, std::int8_t> && is_of<B, std::int8_t> && is_of<C, std::int32_t>;
  static_assert(
      (is_gemm_float<A> && is_gemm_float<B> && is_gemm_float<C>) || integers,
      "gemm: the elements are double, float, fp16_t, bf16_t, e4m3_t or e5m2_t, or A and B are of int8_t and C "
      "is of int32_t");
  static_assert(is_fp64<A> == is_fp64<B> && is_fp64<A> == is_fp64<C>,
                "gemm: A, B and C are all of double or none is: products of mixed precision accumulate in fp32");
}

template <class T, int Rank>
MatrixStack matrix_stack(Array<T, Rank> const& a) {
  static_assert(Rank == 2 || Rank == 3);
  MatrixStack m;
  m.data = a.data;
  m.type = scalar_of<std::remove_const_t<T>>;
  m.rows = a.extent[Rank - 2];
  m.cols = a.extent[Rank - 1];
  m.row_stride = a.stride[Rank - 2];
  m.col_stride = a.stride[Rank - 1];
  if constexpr (Rank == 3) {
    m.inner = a.extent[0];
    m.inner_stride = a.stride[0];
  }
  return m;
}

/// Checks the operands and brings them to the one form kernels know: A (M, K), B (N, K), C (M, N).
template <class A, class B, class C>
GemmProblem gemm_problem(double alpha, A const& a_view, B const& b_view, double beta, C const& c_view,
                         GemmOptions const& options) {
  auto const a = array(a_view);
  auto const b = array(b_view);
  auto const c = array(c_view);
  check_gemm_operands({a, b, c, options.op_a == Op::transpose, options.op_b == Op::transpose, alpha, beta,
                       is_of<C, std::int32_t>, options.workspace, options.workspace_bytes});
  GemmProblem p{matrix_stack(a), matrix_stack(b), matrix_stack(c), alpha, beta, options.workspace};
  if (options.op_a == Op::transpose) p.a = p.a.transposed();
  if (options.op_b == Op::none) p.b = p.b.transposed();
  for (MatrixStack* const m : {&p.a, &p.b})
    if (m->inner == 1) m->inner_stride = 0;  // one matrix serves the whole batch
  if (alpha == 0 || p.k() == 0) {            // as in BLAS, A and B are not read: what is left is beta·C
    p.alpha = 1;
    p.a.cols = p.b.cols = 0;
  }
  return p;
}

}  // namespace detail

/// What gemm() would run for these operands on this machine: printable, and the way to see whether a fast path is
/// taken.
/// @throws Error as gemm() does.
template <detail::execution_space Exec, detail::view A, detail::view B, detail::view C,
          class Epilogue = epilogue::Identity>
GemmPlan gemm_plan(Exec const& exec, double alpha, A const& a, B const& b, double beta, C const& c,
                   GemmOptions const& options = {}, Epilogue const& = {}) {
  detail::require_gemm_operands<Exec, A, B, C>();
  using Compute = detail::GemmCompute<C>;
  return detail::plan_gemm<Exec, Compute, Epilogue>(exec, detail::gemm_problem(alpha, a, b, beta, c, options), options);
}

/// Bytes of options.workspace with which gemm() takes the fastest algorithm it has for these operands; 0 where it does
/// so without. More where A or B begin at addresses or have strides that are no multiples of 16 bytes, where C is small
/// and K long, and on several cores of a CPU, where large operands are packed there.
/// @throws Error as gemm() does.
template <detail::execution_space Exec, detail::view A, detail::view B, detail::view C,
          class Epilogue = epilogue::Identity>
std::size_t gemm_workspace_size(Exec const& exec, double alpha, A const& a, B const& b, double beta, C const& c,
                                GemmOptions options = {}, Epilogue const& epilogue = {}) {
  options.workspace = nullptr;
  options.workspace_bytes = SIZE_MAX;
  return gemm_plan(exec, alpha, a, b, beta, c, options, epilogue).workspace_bytes;
}

/// C ← epilogue(alpha·op(A)·op(B) + beta·C)
///
/// op(A) is (M, K), op(B) is (K, N), C is (M, N), each a View of any layout and strides; with a C of rank 3 the first
/// index is the batch, and an A or B of rank 2, or of batch 1, serves every matrix of it. Elements are all double
/// (accumulated in fp64), any mix of float, fp16_t, bf16_t, e4m3_t, e5m2_t (products and sums in fp32, rounded once
/// to C's type), or int8_t in A and B and int32_t in C (exact; what 32 bits do not hold, from K = 2^17 on, is
/// undefined). Runs asynchronously on `exec`, without fence or allocation.
///
/// K = 0 or alpha = 0 leaves epilogue(beta·C), and A and B are not read; with beta = 0, C is not read: NaN there does
/// no harm. An empty C does nothing. NaN and Inf in A and B propagate as IEEE arithmetic has it.
///
/// @param options transposes, the algorithm (automatic by default) and whether another may stand in for it
/// @param epilogue what happens to each element before it is stored: see epilogue.hpp
/// @throws Error{extent} extents do not fit; {overlap} C shares memory with A or B, or with itself; {null_data} an
/// operand
///   has elements and no data; {value} alpha or beta of a product of integers is no whole number in 32 bits;
///   {workspace} options.workspace is not aligned or null, or too small for options.splits; {unsupported} the asked
///   algorithm cannot run and options.allow_fallback is false
template <detail::execution_space Exec, detail::view A, detail::view B, detail::view C,
          class Epilogue = epilogue::Identity>
void gemm(Exec const& exec, double alpha, A const& a, B const& b, double beta, C const& c,
          GemmOptions const& options = {}, Epilogue const& epilogue = {}) {
  detail::require_gemm_operands<Exec, A, B, C>();
  static_assert(std::is_trivially_copyable_v<Epilogue> || std::is_copy_constructible_v<Epilogue>,
                "gemm: an epilogue is copied to the device");
  using Compute = detail::GemmCompute<C>;
  detail::GemmProblem const p = detail::gemm_problem(alpha, a, b, beta, c, options);
  GemmPlan const plan = detail::plan_gemm<Exec, Compute, Epilogue>(exec, p, options);
  if (p.m() == 0 || p.n() == 0 || p.batch() == 0) return;
  if (plan.workspace_bytes > 0 && p.workspace == nullptr)  // SIZE_MAX, as gemm_workspace_size() asks the plan with
    throw Error(ErrorCode::workspace, "tessera::gemm: a workspace without an address");
  detail::run_planned_gemm<Exec, typename A::non_const_value_type, typename B::non_const_value_type, Compute>(
      exec, p, plan, detail::for_results<Compute, typename C::non_const_value_type>(epilogue));
}

/// gemm() on the default instance of C's execution space.
template <detail::view A, detail::view B, detail::view C, class Epilogue = epilogue::Identity>
void gemm(double alpha, A const& a, B const& b, double beta, C const& c, GemmOptions const& options = {},
          Epilogue const& epilogue = {}) {
  gemm(typename C::execution_space{}, alpha, a, b, beta, c, options, epilogue);
}

}  // namespace tessera

#endif
