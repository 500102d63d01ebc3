// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_MERGE_HPP
#define TESSERA_ATTENTION_MERGE_HPP

/// \file
/// Attention over parts of the keys, put together: the last step of split keys, and of ring attention over several
/// machines, each of which has some of the keys.
///
///     attention(exec, other_o, q, other_k, other_v, {.lse = other_lse});   // keys that have just arrived
///     merge_attention(exec, o, lse, other_o, other_lse);                   // o, lse: of the keys seen before

#include <Kokkos_Core.hpp>
#include <climits>
#include <string>
#include <type_traits>

#include <tessera/attention_options.hpp>
#include <tessera/detail/array.hpp>
#include <tessera/detail/rows.hpp>

namespace tessera {

namespace detail {

/// O, LSE ← the merged partials: `own`, where it has data, and the `count` of a stack, each `stride` elements behind
/// the one before (`lse_stride` in its LSE). Rows are (batch, head, query).
struct MergeProblem {
  RowArray out, lse;      // no data in lse: not wanted
  RowArray own, own_lse;  // may be the elements of out and lse
  RowArray part, part_lse;
  std::int64_t stride = 0, lse_stride = 0;
  int count = 0;
};

/// Compiled in the library, once per execution space.
template <class Exec>
void run_merge(Exec const& exec, MergeProblem const& problem);

/// (batch, head, query, feature), whatever the layout.
template <class T>
Array<T, 4> heads_first(Array<T, 4> a, AttentionLayout layout) {
  if (layout == AttentionLayout::bshd) {
    std::swap(a.extent[1], a.extent[2]);
    std::swap(a.stride[1], a.stride[2]);
  }
  return a;
}

/// One of a stack of arrays.
template <class T, int Rank>
Array<T, Rank - 1> first_of(Array<T, Rank> const& a) {
  Array<T, Rank - 1> one;
  one.data = a.data;
  for (int i = 1; i < Rank; ++i) {
    one.extent[i - 1] = a.extent[i];
    one.stride[i - 1] = a.stride[i];
  }
  return one;
}

template <class Exec, class O, class L, class P, class PL>
constexpr void require_merge_operands() {
  require_views<Exec, O, L, P, PL>();
  require_outputs<O, L>();
  static_assert(O::rank() == 4 && L::rank() == 3,
                "merge_attention: O is a View of rank 4 (batch, head, query, feature), LSE one of rank 3 (batch, head, "
                "query)");
  static_assert((P::rank() == 4 && PL::rank() == 3) || (P::rank() == 5 && PL::rank() == 4),
                "merge_attention: the partial O and LSE have the ranks of O and LSE, or one more, the parts, in front");
  using TO = typename O::value_type;
  using TL = typename L::value_type;
  static_assert(is_row_input<TO> && is_row_input<typename P::non_const_value_type>,
                "merge_attention: O and the partial O are of float, fp16_t, bf16_t or double");
  static_assert(std::is_same_v<TL, typename PL::non_const_value_type> &&
                    std::is_same_v<TL, std::conditional_t<std::is_same_v<TO, double>, double, float>>,
                "merge_attention: LSEs are of float, of double when O is");
}

/// Extents, memory and overlap of O and LSE with what is merged into them.
template <class T, class TL, class TP>
void check_merge_operands(Array<T, 4> const& o, Array<TL, 3> const& lse, Array<TP, 4> const& part,
                          AnyArray const& parts, AnyArray const& lses, AttentionLayout layout) {
  constexpr char const* op = "tessera::merge_attention";
  std::string const operands =
      "O " + shape(o) + ", LSE " + shape(lse) + ", partial O " + shape(parts) + ", partial LSE " + shape(lses);
  auto const fail = [&](std::string const& why) {
    throw Error(ErrorCode::extent, op + (": " + why) + "; " + operands);
  };
  auto const rows = heads_first(o, layout);
  int const in_front = lses.rank - 3;
  for (int i = 0; i < 3; ++i)
    if (lse.extent[i] != rows.extent[i] || lses.extent[in_front + i] != rows.extent[i])
      fail("an LSE is not (batch, heads, queries) of O");
  for (int i = 0; i < 4; ++i)
    if (part.extent[i] != o.extent[i]) fail("the extents of a partial O are not those of O");
  if (in_front == 1 && (parts.extent[0] != lses.extent[0] || parts.extent[0] > INT_MAX))
    fail("there are not as many partial O as partial LSE, at most 2^31 - 1");
  check_data(op, "O", o);
  check_data(op, "LSE", lse);
  check_data(op, "partial O", parts);
  check_data(op, "partial LSE", lses);
  check_writable(op, "O", o);
  check_writable(op, "LSE", lse);
  check_no_overlap(op, "O", o, "LSE", lse);
  check_no_overlap(op, "O", o, "partial O", parts);
  check_no_overlap(op, "O", o, "partial LSE", lses);
  check_no_overlap(op, "LSE", lse, "partial O", parts);
  check_no_overlap(op, "LSE", lse, "partial LSE", lses);
}

}  // namespace detail

/// Merges what attention() gave for parts of the keys: with m = max_t LSE_t,
///
///     O = Σ_t e^(LSE_t − m) O_t / Σ_t e^(LSE_t − m),   LSE = m + ln Σ_t e^(LSE_t − m)
///
/// which is attention over all of the keys, whatever the parts (Dao et al. 2022; as split keys Dao et al. 2023, as ring
/// attention Liu et al. 2023). Two forms:
///
/// * `part_o` (T, B, H, S_q, d_v) and `part_lse` (T, B, H, S_q): O and LSE are written and not read;
/// * `part_o` (B, H, S_q, d_v) and `part_lse` (B, H, S_q): one more part, merged into O and LSE where they are.
///
/// With `layout` bshd the sequence comes before the heads in O and in the partial O, but not in the LSEs. Any strides.
/// O and the partial O are of float, fp16_t, bf16_t or double, LSEs of float; where O is of double, of double.
/// Arithmetic in fp32, or fp64 where an operand is of double. One pass, asynchronous on `exec`, no fence, no
/// allocation, the same bits in every run.
///
/// A part with LSE −∞ (it has no key for that row) does not count, and its O may hold anything; where there is no
/// other, O = 0 and LSE = −∞. NaN in an LSE makes its row NaN.
///
/// @throws Error{extent} extents do not fit; {overlap} O or LSE shares memory with another operand or with itself;
///   {null_data} an operand has elements and no data. Outputs are then untouched.
template <detail::execution_space Exec, detail::view O, detail::view L, detail::view P, detail::view PL>
void merge_attention(Exec const& exec, O const& o, L const& lse, P const& part_o, PL const& part_lse,
                     AttentionLayout layout = AttentionLayout::bhsd) {
  detail::require_merge_operands<Exec, O, L, P, PL>();
  auto const out = detail::array(o);
  auto const out_lse = detail::array(lse);
  auto const parts = detail::array(part_o);
  auto const lses = detail::array(part_lse);
  detail::MergeProblem p;
  p.out = detail::row_array(detail::heads_first(out, layout));
  p.lse = detail::value_per_row(out_lse);
  auto const take = [&](auto const& part, auto const& part_lse_array) {
    detail::check_merge_operands(out, out_lse, part, parts, lses, layout);
    p.part = detail::row_array(detail::heads_first(part, layout));
    p.part_lse = detail::value_per_row(part_lse_array);
  };
  if constexpr (P::rank() == 5) {
    take(detail::first_of(parts), detail::first_of(lses));
    p.count = static_cast<int>(parts.extent[0]);
    p.stride = parts.stride[0];
    p.lse_stride = lses.stride[0];
  } else {
    take(parts, lses);
    p.count = 1;
    p.own = p.out;
    p.own_lse = p.lse;
  }
  if (out_lse.size() > 0) detail::run_merge(exec, p);
}

/// merge_attention() on the default instance of O's execution space.
template <detail::view O, detail::view L, detail::view P, detail::view PL>
void merge_attention(O const& o, L const& lse, P const& part_o, PL const& part_lse,
                     AttentionLayout layout = AttentionLayout::bhsd) {
  merge_attention(typename O::execution_space{}, o, lse, part_o, part_lse, layout);
}

}  // namespace tessera

#endif
