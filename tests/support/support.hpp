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
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/error.hpp>
#include <tessera/types.hpp>

#include "elements.hpp"

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

template <class Exec>
constexpr bool runs_on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible;

/// Sets the elements from values listed with the last index fastest, whatever the layout.
template <class View, class T>
void fill(View const& v, std::vector<T> const& values) {
  static_assert(std::is_same_v<T, typename View::non_const_value_type>);
  REQUIRE(values.size() >= v.size());
  write_elements<typename View::memory_space>(elements_of(v), values.data());
}

/// The elements on the host, last index fastest.
template <class View>
auto values(View const& v) {
  std::vector<typename View::non_const_value_type> out(v.size());
  read_elements<typename View::memory_space>(elements_of(v), out.data());
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

/// A workspace of so many bytes of NaN, between others that nobody may write.
template <class Exec>
struct GuardedWorkspace {
  static constexpr std::size_t margin = 256;
  std::size_t bytes;
  ViewOf<Exec, unsigned char*> memory;
  explicit GuardedWorkspace(std::size_t size) : bytes(size), memory("workspace", size + 2 * margin) {
    poison(memory, 0xFF);
  }
  void* data() const { return bytes > 0 ? memory.data() + margin : nullptr; }
  bool margins_untouched() const {
    return is_poisoned(Kokkos::subview(memory, std::pair(std::size_t(0), margin)), 0xFF) &&
           is_poisoned(Kokkos::subview(memory, std::pair(margin + bytes, 2 * margin + bytes)), 0xFF);
  }
};

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
