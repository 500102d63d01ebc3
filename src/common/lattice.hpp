// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_COMMON_LATTICE_HPP
#define TESSERA_COMMON_LATTICE_HPP

#include <cstdint>

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

}  // namespace tessera::detail

#endif
