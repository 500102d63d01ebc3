// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_REDUCE_DATA_HPP
#define TESSERA_ELEMENT_REDUCE_DATA_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/element/convert.hpp>
#include <tessera/element/dimensions.hpp>
#include <tessera/element/strip.hpp>
#include <tessera/elementary.hpp>
#include <tessera/launch.hpp>
#include <tessera/portable/pack.hpp>

namespace tessera::detail {

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// ---- what is accumulated

/// first(x) is what one element gives, take(value, x) what it makes of a value, which an element `nothing` leaves
/// alone.
template <class T>
struct Sum {
  static constexpr T identity = 0;
  static constexpr T nothing = identity;
  KOKKOS_INLINE_FUNCTION static T first(T x) { return x; }
  KOKKOS_INLINE_FUNCTION static T take(T sum, T x) { return sum + x; }
  KOKKOS_INLINE_FUNCTION static T combine(T a, T b) { return a + b; }
};
template <class T>
struct Largest {
  static constexpr T identity = -std::numeric_limits<T>::infinity();
  static constexpr T nothing = identity;
  KOKKOS_INLINE_FUNCTION static T first(T x) { return x; }
  KOKKOS_INLINE_FUNCTION static T take(T largest, T x) { return larger_or_nan(largest, x); }
  KOKKOS_INLINE_FUNCTION static T combine(T a, T b) { return take(a, b); }
};
template <class T>
struct LargestMagnitude {
  static constexpr T identity = 0;
  static constexpr T nothing = identity;
  KOKKOS_INLINE_FUNCTION static T first(T x) { return Kokkos::abs(x); }
  KOKKOS_INLINE_FUNCTION static T take(T largest, T x) { return Largest<T>::take(largest, first(x)); }
  KOKKOS_INLINE_FUNCTION static T combine(T a, T b) { return Largest<T>::take(a, b); }
};
/// The smallest element, with the other sign.
template <class T>
struct LargestNegative {
  static constexpr T identity = -std::numeric_limits<T>::infinity();
  static constexpr T nothing = -identity;
  KOKKOS_INLINE_FUNCTION static T first(T x) { return -x; }
  KOKKOS_INLINE_FUNCTION static T take(T largest, T x) { return Largest<T>::take(largest, -x); }
  KOKKOS_INLINE_FUNCTION static T combine(T a, T b) { return Largest<T>::take(a, b); }
};
template <class T>
struct SumOfSquares {
  static constexpr T identity = 0;
  static constexpr T nothing = identity;
  KOKKOS_INLINE_FUNCTION static T first(T x) { return x * x; }
  KOKKOS_INLINE_FUNCTION static T take(T sum, T x) { return sum + x * x; }
  KOKKOS_INLINE_FUNCTION static T combine(T a, T b) { return a + b; }
};

/// What is done with an accumulated value before it is stored.
enum class Closing { none, divide, root, negate };

/// Stores results of any element type; the type is a run-time value to keep the number of kernels small.
struct ReduceOutput {
  void* data;
  Scalar type;
  Closing closing;
  double count;

  /// Stores value[i] at at + i * stride for i in [0, n). Not inlined on a CPU: all kernels share it.
  template <class A>
  [[gnu::noinline]] KOKKOS_FUNCTION void store_many(std::int64_t at, std::int64_t stride, A const* value, int n) const {
    constexpr int strip = 64;
    for (; n > 0; n -= strip, value += strip, at += strip * stride) {
      int const here = n < strip ? n : strip;
      A closed[strip] = {};
      for (int i = 0; i < here; ++i) closed[i] = value[i];
      if (closing == Closing::divide)
        for (int i = 0; i < here; ++i) closed[i] = value[i] / static_cast<A>(count);
      if (closing == Closing::root)
        for (int i = 0; i < here; ++i) closed[i] = Kokkos::sqrt(value[i]);
      if (closing == Closing::negate)
        for (int i = 0; i < here; ++i) closed[i] = -value[i];
      with_type([&](auto tag)
                    TESSERA_INLINE_LAMBDA { put_many<typename decltype(tag)::type>(at, stride, closed, here); });
    }
  }

  template <class A>
  KOKKOS_FUNCTION void store(std::int64_t at, A value) const {
    if (closing == Closing::divide) value = value / static_cast<A>(count);
    if (closing == Closing::root) value = Kokkos::sqrt(value);
    if (closing == Closing::negate) value = -value;
    with_type([&](auto tag) TESSERA_INLINE_LAMBDA { put<typename decltype(tag)::type>(at, value); });
  }

 private:
  /// f(tag of the type of results)
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void with_type(F const& f) const {
    switch (type) {
      case Scalar::fp64:
        return f(std::type_identity<double>{});
      case Scalar::fp32:
        return f(std::type_identity<float>{});
      case Scalar::fp16:
        return f(std::type_identity<fp16_t>{});
      case Scalar::bf16:
        return f(std::type_identity<bf16_t>{});
      case Scalar::e4m3:
        return f(std::type_identity<e4m3_t>{});
      case Scalar::e5m2:
        return f(std::type_identity<e5m2_t>{});
      case Scalar::int8:
        return f(std::type_identity<std::int8_t>{});
      case Scalar::int32:
        return f(std::type_identity<std::int32_t>{});
    }
  }
  template <class T, class A>
  KOKKOS_INLINE_FUNCTION void put_many(std::int64_t at, std::int64_t stride, A const* value, int n) const {
    write_strip(value, n, static_cast<T*>(data) + at, stride);
  }
  template <class T, class A>
  KOKKOS_INLINE_FUNCTION void put(std::int64_t at, A value) const {
    static_cast<T*>(data)[at] = round_to<T>(value);
  }
};

/// What a kernel accumulates, as a run-time value.
enum class StepKind { sum, largest, largest_magnitude, largest_negative, sum_of_squares };

/// How a team's threads and the teams share the work.
struct ReduceShape {
  static constexpr int threads = 256;
  int lanes = 1;            // threads that share an output, a power of two
  int outputs = 1;          // outputs (or packs of them) of a team at a time; lanes * outputs <= threads
  int rounds = 1;           // times a team does so
  std::int64_t groups = 0;  // teams that cover all the outputs
  Divisor by_lanes, by_outputs, by_groups;
  std::int64_t parts = 1;            // teams that share a group's reduction
  std::int64_t part_steps = 0;       // packs or elements of the reduction in a part
  std::int64_t output_of_parts = 0;  // distance between the results of two parts
};

/// Elements of a pack: a vector access, or what keeps the vector units of a core busy.
template <class Exec, class In>
inline constexpr int reduce_width = Machine<Exec>::lanes == 1 ? 256 : common_pack_size<In>();

/// What a kernel's input pointer points to. On a CPU bytes, read by a function for the element type into strips of the
/// accumulator's type: the kernels are then compiled once and not for each type, and their strides count bytes.
template <class Exec, class In>
using ReduceElement = std::conditional_t<Machine<Exec>::lanes == 1, std::byte, In>;
template <class A>
using ReadElements = void (*)(std::byte const* from, std::int64_t by, int n, A* to);

template <class A, class In>
void read_elements(std::byte const* from, std::int64_t by, int n, A* to) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(In));
  read_strip(reinterpret_cast<In const*>(from), by / size, n, to);
}

/// How a core reads elements. What fp32 holds is widened where it is added: half the bytes through the first-level
/// cache, and conversions to fp32 are shorter than those to fp64.
template <class A>
struct ElementReader {
  ReadElements<A> read = nullptr;
  ReadElements<float> read_fp32 = nullptr;  // instead, unless it is nullptr

  /// f(strip), an array of the n elements.
  template <int Width, class F>
  KOKKOS_FORCEINLINE_FUNCTION void with_strip(std::byte const* from, std::int64_t by, int n, F const& f) const {
    with_filled<Width>([&](auto reading, auto* strip) TESSERA_INLINE_LAMBDA { reading(from, by, n, strip); }, f);
  }
  /// f(strip), an array that fill(read, strip) fills.
  template <int Width, class Fill, class F>
  KOKKOS_FORCEINLINE_FUNCTION void with_filled(Fill const& fill, F const& f) const {
    if constexpr (!std::is_same_v<A, float>)
      if (read_fp32 != nullptr) {
        float strip[Width];
        fill(read_fp32, strip);
        return f(strip);
      }
    A strip[Width];
    fill(read, strip);
    f(strip);
  }
};

/// What a kernel works on.
template <class Exec, class In, class A>
struct ReduceData {
  static constexpr int width = reduce_width<Exec, In>;

  In const* in;
  ReduceOutput out;
  ReduceShape shape;
  bool is_along, vector;       // vector: every row consists of aligned packs
  PackSpace<2, 1> outputs;     // along: the outputs
  PackSpace<1, width> row;     // along: the reduced elements in packs
  PackSpace<2, width> across;  // across: the outputs in packs
  std::int64_t steps, stride;  // across: the reduced elements
  std::conditional_t<Machine<Exec>::lanes == 1, ElementReader<A>, ReadElements<A>> read;  // on a CPU

  static constexpr int across_pitch = ReduceShape::threads + 4;  // without conflicts of banks by rows and by columns

  /// What a team shares: (threads) values along rows, (width, across_pitch) across them; nothing on a core.
  KOKKOS_FUNCTION std::size_t scratch() const {
    return Machine<Exec>::lanes == 1 ? 0 : (is_along ? ReduceShape::threads : width * across_pitch) * sizeof(A);
  }
  KOKKOS_INLINE_FUNCTION A* shared(TeamMember<Exec> const& team) const {
    return static_cast<A*>(team.team_scratch(0).get_shmem(static_cast<int>(scratch())));
  }
};

}  // namespace tessera::detail

#endif
