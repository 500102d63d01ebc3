// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_SHARING_HPP
#define TESSERA_ELEMENT_SHARING_HPP

#include <cstdint>
#include <string>
#include <utility>

#include <tessera/detail/array.hpp>

// Do two strided arrays have a byte in common? Interleaved parts of one matrix (its left and its right columns) span
// the same memory and share nothing, and users work in place on such parts, so the spans alone are not enough.
namespace tessera::detail {

/// The ways to step from the first byte of one array to those of another: sum of x_i stride_i with 0 <= x_i <= steps_i.
struct Lattice {
  static constexpr int most = 2 * 8 + 2;
  int terms = 0;
  std::int64_t stride[most] = {}, steps[most] = {};

  void add(std::int64_t by, std::int64_t count) {
    if (by == 0 || count == 0) return;
    for (int i = 0; i < terms; ++i)
      if (stride[i] == by) {
        steps[i] += count;
        return;
      }
    int at = terms++;
    for (; at > 0 && stride[at - 1] < by; --at) {
      stride[at] = stride[at - 1];
      steps[at] = steps[at - 1];
    }
    stride[at] = by;
    steps[at] = count;
  }

  /// Can the terms from `term` on make `target`? `work` bounds the search; when it is used up the answer is yes.
  bool reaches(std::int64_t target, int term, int& work) const {
    if (target == 0) return true;
    if (target < 0 || term == terms) return false;
    if (--work < 0) return true;
    std::int64_t rest = 0;
    for (int i = term + 1; i < terms; ++i) rest += stride[i] * steps[i];
    std::int64_t const by = stride[term];
    std::int64_t const low = target > rest ? (target - rest + by - 1) / by : 0;
    std::int64_t const high = target / by < steps[term] ? target / by : steps[term];
    for (std::int64_t x = high; x >= low; --x)
      if (reaches(target - x * by, term + 1, work)) return true;
    return false;
  }
};

/// Exact for the strides of real arrays; "yes" for strides so irregular that the search takes over 1000 steps.
template <class T, int Rank, class U, int Rank2>
bool shares_bytes(Array<T, Rank> const& a, Array<U, Rank2> const& b) {
  if (!overlaps(a, b)) return false;
  // a + i + u = b + j + v, with j counted back from its end: i + u + (last_b - j) + (last_byte - v) is a constant.
  Lattice lattice;
  std::int64_t target =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(b.data) - reinterpret_cast<std::uintptr_t>(a.data));
  for (int d = 0; d < Rank; ++d) lattice.add(a.stride[d] * static_cast<std::int64_t>(sizeof(T)), a.extent[d] - 1);
  for (int d = 0; d < Rank2; ++d) {
    std::int64_t const by = b.stride[d] * static_cast<std::int64_t>(sizeof(U));
    lattice.add(by, b.extent[d] - 1);
    target += by * (b.extent[d] - 1);
  }
  lattice.add(1, static_cast<std::int64_t>(sizeof(T) + sizeof(U)) - 2);
  target += static_cast<std::int64_t>(sizeof(U)) - 1;
  int work = 1000;
  return lattice.reaches(target, 0, work);
}

template <class T, int Rank, class U, int Rank2>
void check_shares_nothing(char const* op, std::string const& out_name, Array<T, Rank> const& out,
                          std::string const& in_name, Array<U, Rank2> const& in) {
  if (shares_bytes(out, in))
    throw Error(ErrorCode::overlap, std::string(op) + ": output " + out_name + " " + shape(out) + " overlaps " +
                                        in_name + " " + shape(in) + " in memory");
}

}  // namespace tessera::detail

#endif
