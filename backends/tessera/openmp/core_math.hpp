// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_CORE_MATH_HPP
#define TESSERA_OPENMP_CORE_MATH_HPP

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/elementary.hpp>
#include <tessera/launch.hpp>

namespace tessera::detail::openmp {

/// 2^x by Cody and Waite's reduction and a degree-6 polynomial (Taylor of 2^f on [-1/2, 1/2]); relative error below
/// 2e-7 where the result is normal, 0 below 2^-126. No branch, so that loops over it vectorise.
inline float exp2_vectorised(float x) {
  float const bounded = chosen(x < -127.f, -127.f, chosen(x > 128.f, 128.f, x));
  float const shifted = bounded + 12582912.f;  // 1.5 * 2^23: the integer nearest to x ends in the last bits
  float const f = bounded - (shifted - 12582912.f);
  float p = 1.5403530e-4f;
  p = p * f + 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.f;
  std::int32_t const n = Kokkos::bit_cast<std::int32_t>(shifted) - 0x4B400000;
  // Two factors, because 2^128 and 2^-127 are no normal numbers though their neighbours' results are.
  float const y = p * Kokkos::bit_cast<float>((127 + n / 2) << 23) * Kokkos::bit_cast<float>((127 + n - n / 2) << 23);
  return chosen(x != x, x, chosen(x < -126.f, 0.f, y));
}

/// What the math of one core is whatever its tiles look like: products are done when they return, and a tile has one
/// team and one thread.
template <class Exec>
struct CoreMath {
  TeamMember<Exec> const& team;
  int thread;
  char* scratch;  // what fragments have not taken yet

  void* take(std::size_t bytes) {
    void* const taken = scratch;
    scratch += bytes;
    return taken;
  }

  template <int, class Acc>
  void wait_all_but(Acc&) const {}
  template <int, class Acc>
  void wait_for(Acc&) const {}
  template <class Acc>
  bool join(Acc&) const {
    return true;  // a tile has one team
  }
  template <class F>
  void turn(F const& f) const {
    f();
  }
  template <class F>
  void find_flags(F const& f, F& flags) const {
    flags = f;
  }
  static float exp2(float x) { return exp2_vectorised(x); }
  static double exp2(double x) { return std::exp2(x); }
};

}  // namespace tessera::detail::openmp

#endif
