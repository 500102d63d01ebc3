// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_LINE_FETCHER_HPP
#define TESSERA_OPENMP_LINE_FETCHER_HPP

// Included by one source per instruction set, each compiled for its own: no standard header but that of the types.
#include <cstdint>

#include <tessera/openmp/micro_kernel.hpp>

namespace {

/// One line after the other.
class Fetcher {
 public:
  explicit Fetcher(tessera::detail::openmp::LinesAhead const& ahead)
      : at_(ahead.from), to_next_row_(ahead.row_bytes - 64 * ahead.lines), lines_(ahead.lines), rows_(ahead.rows) {}
  void operator()() {
    if (rows_ == 0) return;
    __builtin_prefetch(at_);
    at_ += 64;
    if (++line_ < lines_) return;
    line_ = 0;
    --rows_;
    at_ += to_next_row_;
  }

 private:
  char const* at_;
  std::int64_t to_next_row_;
  int lines_, rows_, line_ = 0;
};
struct NoFetcher {
  explicit NoFetcher(tessera::detail::openmp::LinesAhead const&) {}
  void operator()() {}
};

}  // namespace

#endif
