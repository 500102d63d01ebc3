// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TRANSFORM_HPP
#define TESSERA_TRANSFORM_HPP

/// \file
/// Fused element operations: one read of every input and one write of the output, however long the formula.
///
///     using namespace tessera;
///     transform(exec, y, compose(fn::add{}, fn::gelu{}), x, b);          // y(i,j) = gelu(x(i,j) + b(j))
///     transform(exec, y, fn::swiglu{}, gate, up);                        // y = silu(gate) * up
///     transform(exec, y, KOKKOS_LAMBDA(float x) {                        // your own formula
///       float const s = Kokkos::sin(x), c = Kokkos::cos(x);
///       return s * s + c * c;
///     }, x);

#include <Kokkos_Core.hpp>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/detail/array.hpp>
#include <tessera/element/transform.hpp>
#include <tessera/functors.hpp>

namespace tessera {

namespace detail {

template <class F, class R, class... T>
consteval bool takes_elements() {
  if constexpr (wants_index_v<F>)
    return std::is_invocable_v<F const&, std::int64_t, Widened<R, T>...>;
  else
    return std::is_invocable_v<F const&, Widened<R, T>...>;
}

}  // namespace detail

/// out(i...) = f(in(i...)...) for every element.
///
/// Shapes: `out` has any rank up to 8 and any strides except 0; up to 8 inputs of any layout, each of at most out's
/// rank, broadcast as in NumPy: aligned at the last dimension, an extent is out's or 1, missing dimensions and Views of
/// rank 0 are repeated. Without an input, out is filled with f().
///
/// Types: any, mixed. `f` is given 16-bit, 8-bit and fp32 operands as fp32, or as fp64 when the output or any input is
/// fp64; integers and other types as they are. Its result is rounded once, to nearest even, to out's element type
/// (integers saturate, NaN gives 0). `f` is copied to the device as bytes, has no state between elements and, with a
/// member `static constexpr bool wants_index = true`, takes the linear index of the element first (see functors.hpp).
///
/// In place: out may have exactly the elements of an input. Asynchronous on `exec`; no fence, no allocation.
///
/// Error{extent}: an input cannot be broadcast to out. Error{overlap}: out shares memory with an input without being
/// the same elements, or has stride 0. Error{null_data}: a View with elements has no data. Outputs are then untouched.
template <detail::execution_space Exec, detail::view Out, class F, detail::view... In>
void transform(Exec const& exec, Out const& out, F const& f, In const&... in) {
  detail::require_views<Exec, Out, In...>();
  detail::require_outputs<Out>();
  using To = typename Out::non_const_value_type;
  using R = detail::Real<To, typename In::non_const_value_type...>;
  static_assert(sizeof...(In) <= 8, "transform takes 8 inputs at most");
  static_assert(((In::rank() <= Out::rank()) && ...),
                "an input of transform must not have more dimensions than the output");
  // Not "trivially copyable", which nvcc's wrapper of a KOKKOS_LAMBDA is not.
  static_assert(std::is_copy_constructible_v<F>, "the functor of transform must be copyable");
  static_assert(detail::takes_elements<F, R, typename In::non_const_value_type...>(),
                "the functor of transform must be callable on const with one value per input: float for fp32, 16- and "
                "8-bit inputs (double when an operand is double), other types as they are stored");
  detail::transform(exec, detail::array(out), f, detail::array(in)...);
}

/// The same on the default instance of out's execution space.
template <detail::view Out, class F, detail::view... In>
requires(!detail::view<F> && !detail::execution_space<Out>) void transform(Out const& out, F const& f,
                                                                           In const&... in) {
  transform(typename Out::execution_space{}, out, f, in...);
}

}  // namespace tessera

#endif
