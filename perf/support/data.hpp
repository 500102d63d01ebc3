// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_DATA_HPP
#define TESSERA_PERF_DATA_HPP

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <tessera/types.hpp>

// What the operations are given: Views of reproducible random numbers, the same on every backend.
namespace tessera::perf {

/// Uniform in (-1, 1), never zero; the same bits on host and device. (The finaliser of SplitMix64, Steele et al. 2014.)
KOKKOS_INLINE_FUNCTION double random_value(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t x = (index + 1) * 0x9E3779B97F4A7C15u + seed * 0xD1B54A32D192ED03u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  return static_cast<double>(2 * (x >> 41) + 1) * 0x1p-23 - 1;
}

/// The same rounded to T: what fill_random put at `index`. Integers are spread over all that T holds.
template <class T>
KOKKOS_INLINE_FUNCTION T random_element(std::uint64_t seed, std::uint64_t index) {
  double const value = random_value(seed, index);
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(value * std::numeric_limits<T>::max());
  else
    return static_cast<T>(value);
}

template <class T>
KOKKOS_INLINE_FUNCTION double to_double(T x) {
  return static_cast<double>(x);
}

template <class T>
struct FillRandom {
  T* data;
  std::uint64_t seed;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    data[i] = random_element<T>(seed, static_cast<std::uint64_t>(i));
  }
};

template <class Exec, class View>
void fill_random(Exec const& exec, View const& view, std::uint64_t seed) {
  using T = typename View::non_const_value_type;
  using Range = Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for("tessera::perf::fill", Range(exec, 0, static_cast<std::int64_t>(view.size())),
                       FillRandom<T>{view.data(), seed});
}

template <class Exec, class T>
using Vector = Kokkos::View<T*, Kokkos::LayoutRight, typename Exec::memory_space>;
template <class Exec, class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, typename Exec::memory_space>;
template <class Exec, class T>
using Tensor4 = Kokkos::View<T****, Kokkos::LayoutRight, typename Exec::memory_space>;

/// A View of these extents filled with random numbers.
template <class View, class Exec, class... Extents>
View random_view(Exec const& exec, std::uint64_t seed, Extents... extents) {
  View const view(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "operand"),
                  static_cast<std::size_t>(extents)...);
  fill_random(exec, view, seed);
  return view;
}

/// The slopes of ALiBi as Press, Smith and Lewis (2022) set them: 2^(-8 (h + 1) / heads).
template <class Exec>
Vector<Exec, float> alibi_slopes(Exec const& exec, int heads) {
  Vector<Exec, float> const slopes("slopes", static_cast<std::size_t>(heads));
  auto const on_host = Kokkos::create_mirror_view(Kokkos::HostSpace{}, slopes);
  for (int h = 0; h < heads; ++h) on_host(h) = std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(heads));
  Kokkos::deep_copy(exec, slopes, on_host);
  exec.fence();
  return slopes;
}

/// A View of these extents, all zero. By the instance: where another one has had work, too, each kernel of a graph on
/// an H200 begins 0.4 us later.
template <class View, class Exec, class... Extents>
View zero_view(Exec const& exec, Extents... extents) {
  return View(Kokkos::view_alloc(exec, "result"), static_cast<std::size_t>(extents)...);
}

/// Calls f.template operator()<T>() with the type of that name, one of Types.
template <class... Types, class F>
void with_type(std::string const& type, F const& f) {
  std::string known;
  bool const found = ((type == name(scalar_of<Types>) ? (f.template operator()<Types>(), true)
                                                      : (known += std::string(" ") + name(scalar_of<Types>), false)) ||
                      ...);
  if (!found) throw std::invalid_argument("--type=" + type + ": here are" + known);
}

}  // namespace tessera::perf

#endif
