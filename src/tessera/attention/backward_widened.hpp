// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_BACKWARD_WIDENED_HPP
#define TESSERA_ATTENTION_BACKWARD_WIDENED_HPP

#include <climits>
#include <cstddef>
#include <cstdint>

#include <tessera/attention/backward_problem.hpp>
#include <tessera/attention/backward_rows.hpp>
#include <tessera/divisor.hpp>
#include <tessera/launch.hpp>
#include <tessera/pack_conversion.hpp>

// Operands of 8 bits as bf16, in which every e4m3 and e5m2 number is exact, subnormal ones too: one read of them and
// one write, for products of 16 bits. Gradients sum over far more of those than the pass takes.
namespace tessera::detail {

/// f(operand) of those of 8 bits that products are formed of.
template <class F>
void each_narrow_operand(AttentionBackwardProblem& p, F const& f) {
  for (MatrixStack* const m : {&p.forward.q, &p.forward.k, &p.forward.v, &p.d_o})
    if (size_of(m->type) == 1) f(*m);
}

/// Columns that one call widens, a multiple of which lines of widened rows have.
inline constexpr int widened_columns = 16;

/// Where a matrix lies widened. Not by ends.
inline MatrixStack widened_stack(MatrixStack m, std::uintptr_t at) {
  m.data = reinterpret_cast<void const*>(at);
  m.type = Scalar::bf16;
  m.col_stride = 1;
  m.row_stride = (m.cols + widened_columns - 1) / widened_columns * widened_columns;
  m.inner_stride = m.rows * m.row_stride;
  m.outer_stride = m.inner * m.inner_stride;
  return m;
}
/// f(operand as it is, where it lies widened), neither by ends; the bytes of all of them.
template <class F>
std::size_t each_widened_operand(AttentionBackwardProblem& p, void* room, F const& f) {
  std::size_t bytes = 0;
  each_narrow_operand(p, [&](MatrixStack& m) {
    MatrixStack const from = p.packed() ? by_rows(m) : m;
    MatrixStack const to = widened_stack(from, reinterpret_cast<std::uintptr_t>(room) + bytes);
    bytes += (static_cast<std::size_t>(to.outer * to.outer_stride) * sizeof(bf16_t) + 255) / 256 * 256;
    f(m, from, to);
  });
  return bytes;
}
inline std::size_t widened_bytes(AttentionBackwardProblem p) {
  return each_widened_operand(p, nullptr, [](MatrixStack&, MatrixStack const&, MatrixStack const&) {});
}
/// The problem whose operands of 8 bits lie widened there.
inline AttentionBackwardProblem with_operands_widened(AttentionBackwardProblem p, void* room) {
  each_widened_operand(p, room, [packed = p.packed()](MatrixStack& m, MatrixStack const&, MatrixStack const& to) {
    m = packed ? by_ends(to) : to;
  });
  return p;
}

/// A few neighbours of a row a call, of one operand after the other.
struct WidenOperands {
  struct Operand {
    MatrixStack from, to;
    Divisor packs, rows, inner;  // a row has, a plane, a batch entry
    std::int64_t calls;
    bool whole;  // packs may be read at once
  };
  static constexpr int width = widened_columns;
  Operand operands[4];
  int count = 0;

  explicit WidenOperands(AttentionBackwardProblem p, void* room) {
    each_widened_operand(p, room, [this](MatrixStack&, MatrixStack const& from, MatrixStack const& to) {
      std::int64_t const packs = to.row_stride / width;
      operands[count++] = {from,
                           to,
                           Divisor(packs),
                           Divisor(to.rows),
                           Divisor(to.inner),
                           packs * to.rows * to.inner * to.outer,
                           backward_rows_packed(from)};
    });
  }
  std::int64_t calls() const {
    std::int64_t all = 0;
    for (int k = 0; k < count; ++k) all += operands[k].calls;
    return all;
  }

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    int k = 0;
    for (; k + 1 < count && i >= operands[k].calls; ++k) i -= operands[k].calls;
    Operand const& x = operands[k];
    bool const small = x.calls <= INT_MAX;
    std::int64_t const line = x.packs.quotient(i, small), plane = x.rows.quotient(line, small),
                       batch = x.inner.quotient(plane, small);
    std::int64_t const col = (i - line * x.packs.by) * width, row = line - plane * x.rows.by;
    Plane const own{batch, plane - batch * x.inner.by};
    auto* const to = static_cast<bf16_t*>(const_cast<void*>(x.to.data)) + x.to.offset(own, row, col);
    if (x.from.type == Scalar::e4m3)
      widen<e4m3_t>(x, x.from.offset(own, row, col), col, to);
    else
      widen<e5m2_t>(x, x.from.offset(own, row, col), col, to);
  }

 private:
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION static void widen(Operand const& x, std::int64_t at, std::int64_t col, bf16_t* to) {
    T const* const from = static_cast<T const*>(x.from.data) + at;
    Pack<T, width> narrow;
    if (x.whole)
      narrow = load_pack<width>(from);
    else
      for (int c = 0; c < width; ++c) narrow[c] = col + c < x.from.cols ? from[c * x.from.col_stride] : T(0.0f);
    auto const wide = rounded_pack<bf16_t>(widened_pack(narrow));
    unroll<2>([&](auto half) {
      Pack<bf16_t, width / 2> part;
      unroll<width / 2>([&](auto c) { part[c] = wide[half * (width / 2) + c]; });
      store_pack<width / 2>(to + half * (width / 2), part);
    });
  }
};

/// Widens the operands of 8 bits, if there are some.
template <class Exec>
void widen_operands(Exec const& exec, AttentionBackwardProblem const& p, void* room) {
  WidenOperands const widen(p, room);
  for_each_index("tessera::attention_backward operands", exec, widen.calls(), widen);
}

}  // namespace tessera::detail

#endif
