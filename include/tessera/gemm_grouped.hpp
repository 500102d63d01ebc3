// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_GROUPED_HPP
#define TESSERA_GEMM_GROUPED_HPP

#include <climits>

#include <tessera/gemm.hpp>
#include <tessera/gemm/grouped_bulk.hpp>

namespace tessera {

/// One product of a group: C ← epilogue(alpha·op(A)·op(B) + beta·C), op(A) of (m, k), op(B) of (k, n), C of (m, n).
/// Rows are contiguous, lda, ldb and ldc elements apart. m or n of 0 or less: there is no such product.
template <class A, class B, class C>
struct GemmGroup {
  std::int64_t m = 0, n = 0, k = 0;
  A const* a = nullptr;
  std::int64_t lda = 0;
  B const* b = nullptr;
  std::int64_t ldb = 0;
  C* c = nullptr;
  std::int64_t ldc = 0;
};

namespace detail {

template <class T>
struct GroupTypes;
template <class A_, class B_, class C_>
struct GroupTypes<GemmGroup<A_, B_, C_>> {
  using A = A_;
  using B = B_;
  using C = C_;
  static_assert(scalar_type<A> && scalar_type<B> && scalar_type<C>);
  static_assert(sizeof(GemmGroup<A, B, C>) == sizeof(AnyGemmGroup) && alignof(GemmGroup<A, B, C>) == 8);
};

inline int group_count(std::int64_t count) {
  if (count > INT_MAX - 1)
    throw Error(ErrorCode::extent, "tessera::gemm_grouped: " + std::to_string(count) + " groups, " +
                                       std::to_string(INT_MAX - 1) + " are the most");
  return static_cast<int>(count);
}

/// Checks the operands of gemm_grouped() for blocks of rows and brings them to the form kernels know.
template <class A, class B, class Offsets, class C>
GemmGroups gemm_row_groups(double alpha, A const& a_view, B const& b_view, Offsets const& offsets_view, double beta,
                           C const& c_view, GemmOptions const& options) {
  auto const a = array(a_view);
  auto const b = array(b_view);
  auto const c = array(c_view);
  auto const offsets = array(offsets_view);
  check_gemm_blocks({a, b, c, options.op_a == Op::transpose, options.op_b == Op::transpose, alpha, beta,
                     is_of<C, std::int32_t>, nullptr, 0},
                    offsets);
  GemmGroups groups;
  groups.a = matrix_stack(a);
  groups.b = matrix_stack(b);
  groups.c = matrix_stack(c);
  if (options.op_a == Op::transpose) groups.a = groups.a.transposed();
  if (options.op_b == Op::none) groups.b = groups.b.transposed();
  groups.count = group_count(b.extent[0]);
  groups.offsets = offsets.data;
  groups.long_offsets = sizeof(typename Offsets::value_type) == 8;
  groups.multiplies = alpha != 0;
  return groups;
}

/// Checks a list and brings it to the form kernels know.
template <class Exec, class Groups>
GemmGroups gemm_group_list(double alpha, Groups const& groups, double beta, GemmOptions const& options) {
  require_views<Exec, Groups>();
  static_assert(Groups::rank() == 1, "gemm_grouped: groups are a View of rank 1");
  using Types = GroupTypes<typename Groups::non_const_value_type>;
  using A = Kokkos::View<typename Types::A**>;
  using B = Kokkos::View<typename Types::B**>;
  using C = Kokkos::View<typename Types::C**>;
  require_gemm_operands<typename C::execution_space, A, B, C>();
  auto const list = array(groups);
  check_data("tessera::gemm_grouped", "groups", list);
  if (list.extent[0] > 1 && list.stride[0] != 1)
    throw Error(ErrorCode::extent, "tessera::gemm_grouped: groups " + shape(list) + " are not contiguous");
  if (std::is_integral_v<typename Types::C>) check_whole_numbers("tessera::gemm_grouped", alpha, beta);
  GemmGroups all;
  all.count = group_count(list.extent[0]);
  all.multiplies = alpha != 0;
  all.list = reinterpret_cast<AnyGemmGroup const*>(list.data);
  all.transpose_a = options.op_a == Op::transpose;
  all.transpose_b = options.op_b == Op::transpose;
  all.a.type = scalar_of<typename Types::A>;
  all.b.type = scalar_of<typename Types::B>;
  all.c.type = scalar_of<typename Types::C>;
  return all;
}

template <class Groups>
concept gemm_group_view = view<Groups> && requires {
  typename GroupTypes<typename Groups::non_const_value_type>::A;
};

}  // namespace detail

/// Bytes of options.workspace with which gemm_grouped() takes the fastest algorithm it has for such a list; 0 where it
/// does without. It depends on the number of groups and their types, not on what the list says. @throws Error as
/// gemm_grouped() does
template <detail::execution_space Exec, detail::gemm_group_view Groups, class Epilogue = epilogue::Identity>
std::size_t gemm_grouped_workspace_size(Exec const& exec, double alpha, Groups const& groups, double beta,
                                        GemmOptions const& options = {}, Epilogue const& = {}) {
  using Types = detail::GroupTypes<typename Groups::non_const_value_type>;
  detail::GemmGroups const all = detail::gemm_group_list<Exec>(alpha, groups, beta, options);
  bool const bulk =
      all.count > 0 &&
      detail::bulk_group_types_obstacle<Exec, typename Types::A, typename Types::B, Epilogue>(exec, all) == nullptr;
  return bulk ? detail::list_source_bytes<Exec>(all.count) + detail::list_alignment : 0;
}

/// Products of different sizes in one launch. The list lies in memory of `exec`, as do the matrices, and is read by
/// the kernel: what makes it need not be waited for. No two C of a list share elements with each other or with a
/// factor, which is not checked, nor are the addresses in it.
///
/// On Hopper products of fp16 and of bf16 with options.workspace, as gemm_grouped_workspace_size() has it, are formed
/// by its pipeline: those with A contiguous along K, and addresses and leading dimensions of A and B in multiples of 16
/// bytes. The others follow in a launch of their own.
///
/// Element types and arithmetic as gemm() has them; alpha, beta, options.op_a and options.op_b serve all products.
/// Asynchronous on `exec`, without fence or allocation; on a host space the list is read when it is called.
/// @param groups a contiguous View of rank 1 of GemmGroup<A, B, C>
/// @param epilogue as gemm() has it; its fourth argument is the place in the list
/// @throws Error{null_data} the View has elements and no data; {extent} its elements are not contiguous;
///   {value} alpha or beta of products of integers is no whole number in 32 bits;
///   {workspace} a workspace without an address; {unsupported} an algorithm other than automatic, coarsened or hopper
///   is asked for, or hopper cannot run, and no other may stand in for it
template <detail::execution_space Exec, detail::gemm_group_view Groups, class Epilogue = epilogue::Identity>
void gemm_grouped(Exec const& exec, double alpha, Groups const& groups, double beta, GemmOptions const& options = {},
                  Epilogue const& epilogue = {}) {
  using Types = detail::GroupTypes<typename Groups::non_const_value_type>;
  detail::GemmGroups const all = detail::gemm_group_list<Exec>(alpha, groups, beta, options);
  detail::check_grouped_algorithm(options);
  detail::check_grouped_workspace(options);
  using Compute = detail::GemmCompute<Kokkos::View<typename Types::C**>>;
  if (all.count > 0)
    detail::run_planned_groups<Exec, typename Types::A, typename Types::B, Compute>(
        exec, all, alpha, beta, options, detail::for_results<Compute, typename Types::C>(epilogue));
}

/// The products of blocks of rows of A with a matrix of B for each, as the experts of a mixture have them:
/// C[g] ← epilogue(alpha·op(A)[g]·op(B[g]) + beta·C[g]), where [g] are the rows from offsets(g) to offsets(g + 1). Rows
/// of C before the first offset and from the last on are left alone. The offsets lie in memory of `exec` and are read
/// by the kernel; decreasing ones make an empty block.
///
/// op(A) is (M, K), C is (M, N), B holds the (K, N) matrices op(B[g]) with g first; layouts and strides at will.
/// @param offsets a contiguous View of int32 or int64, one longer than B
/// @param epilogue as gemm() has it, with rows counted in the block; its fourth argument is g
/// @throws Error{extent} extents do not fit; {overlap} C shares memory with another operand, or with itself;
///   {null_data} an operand has elements and no data; {unsupported} an algorithm other than automatic, coarsened or
///   hopper is asked for, or hopper cannot run, and no other may stand in for it
template <detail::execution_space Exec, detail::view A, detail::view B, detail::view Offsets, detail::view C,
          class Epilogue = epilogue::Identity>
void gemm_grouped(Exec const& exec, double alpha, A const& a, B const& b, Offsets const& offsets, double beta,
                  C const& c, GemmOptions const& options = {}, Epilogue const& epilogue = {}) {
  using Batch = Kokkos::View<typename C::data_type*, typename C::memory_space>;
  static_assert(A::rank() == 2 && B::rank() == 3 && C::rank() == 2 && Offsets::rank() == 1,
                "gemm_grouped: A and C are Views of rank 2, B of rank 3 with the group first, offsets of rank 1");
  detail::require_gemm_operands<Exec, A, B, Batch>();
  detail::require_views<Exec, Offsets, C>();
  using Offset = typename Offsets::non_const_value_type;
  static_assert(std::is_integral_v<Offset> && std::is_signed_v<Offset> && (sizeof(Offset) == 4 || sizeof(Offset) == 8),
                "gemm_grouped: offsets are of 32 or 64 bits");
  detail::check_grouped_algorithm(options);
  detail::GemmGroups const groups = detail::gemm_row_groups(alpha, a, b, offsets, beta, c, options);
  using Compute = detail::GemmCompute<C>;
  if (groups.count > 0 && c.size() > 0)
    detail::run_planned_groups<Exec, typename A::non_const_value_type, typename B::non_const_value_type, Compute>(
        exec, groups, alpha, beta, options, detail::for_results<Compute, typename C::non_const_value_type>(epilogue));
}

}  // namespace tessera

#endif
