// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_SUPPORT_HPP
#define TESSERA_TESTS_SUPPORT_HPP

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/error.hpp>
#include <tessera/types.hpp>

namespace tessera::test {

// Every backend built. The fp64 references are plain loops on the host and need none.
using Spaces = std::tuple<
#if defined(KOKKOS_ENABLE_SERIAL)
    Kokkos::Serial
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
#if defined(KOKKOS_ENABLE_SERIAL)
    ,
#endif
    Kokkos::OpenMP
#endif
#if defined(KOKKOS_ENABLE_CUDA)
    ,
    Kokkos::Cuda
#endif
    >;

/// Calls f(Exec{}) for every backend built: for tests that compare backends with each other.
template <class F>
void for_each_space(F f) {
  std::apply([&](auto... space) { (f(space), ...); }, Spaces{});
}

/// Seeded values in [low, high), drawn in fp64 and rounded to T.
template <class T>
std::vector<T> uniform(std::size_t n, unsigned seed, double low = -1, double high = 1) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> draw(low, high);
  std::vector<T> x(n);
  for (T& v : x) v = T(draw(engine));
  return x;
}

/// A View type in the memory of Exec.
template <class Exec, class DataType, class Layout = Kokkos::LayoutRight>
using ViewOf = Kokkos::View<DataType, Layout, typename Exec::memory_space>;

/// Copies between a View of any layout and a flat one, last index fastest, on the View's own execution space.
template <class View, class Flat, bool ToView>
struct FlatCopy {
  View view;
  Flat flat;
  KOKKOS_FUNCTION void operator()(std::size_t i) const {
    std::size_t at[8] = {}, rest = i;
    for (int d = static_cast<int>(View::rank()) - 1; d >= 0; --d) {
      at[d] = rest % view.extent(d);
      rest /= view.extent(d);
    }
    auto& element = view.access(at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]);
    if constexpr (ToView)
      element = flat(i);
    else
      flat(i) = element;
  }
};

/// Sets the elements from values listed with the last index fastest, whatever the layout.
template <class View, class T>
void fill(View const& v, std::vector<T> const& values) {
  using Exec = typename View::execution_space;
  using Flat = Kokkos::View<T*, typename View::memory_space>;
  Kokkos::View<T const*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> const host(values.data(),
                                                                                                v.size());
  Flat const flat("flat", v.size());
  Kokkos::deep_copy(flat, host);
  Kokkos::parallel_for("fill", Kokkos::RangePolicy<Exec>(0, v.size()), FlatCopy<View, Flat, true>{v, flat});
  Kokkos::fence();
}

/// The elements on the host, last index fastest.
template <class View>
auto values(View const& v) {
  using T = typename View::non_const_value_type;
  using Exec = typename View::execution_space;
  using Flat = Kokkos::View<T*, typename View::memory_space>;
  Flat const flat("flat", v.size());
  Kokkos::parallel_for("values", Kokkos::RangePolicy<Exec>(0, v.size()), FlatCopy<View, Flat, false>{v, flat});
  std::vector<T> out(v.size());
  Kokkos::View<T*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> const host(out.data(), v.size());
  Kokkos::deep_copy(host, flat);
  return out;
}

/// Every bit pattern the same: to poison outputs before a call and to see that an error wrote nothing.
template <class View>
void poison(View const& v, unsigned char byte = 0xA5) {
  using T = typename View::non_const_value_type;
  std::vector<T> x(v.size());
  if (!x.empty()) std::memset(static_cast<void*>(x.data()), byte, x.size() * sizeof(T));
  fill(v, x);
}

template <class View>
bool is_poisoned(View const& v, unsigned char byte = 0xA5) {
  for (auto const& x : values(v)) {
    unsigned char raw[sizeof(x)];
    std::memcpy(raw, &x, sizeof(x));
    for (unsigned char b : raw)
      if (b != byte) return false;
  }
  return true;
}

inline double to_double(double x) { return x; }
inline double to_double(float x) { return x; }
template <class T>
double to_double(T x) {
  return static_cast<double>(static_cast<float>(x));
}

/// The message and code of the tessera::Error that f throws; fails the test when it throws none.
template <class F>
std::string error_of(F f, ErrorCode code) {
  try {
    f();
  } catch (Error const& e) {
    CHECK(e.code() == code);
    return e.what();
  }
  FAIL_CHECK("no error was raised");
  return {};
}

inline bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace tessera::test

#endif
