// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <climits>
#include <cmath>

#include <tessera/detail/checks.hpp>

namespace tessera::detail {

namespace {

constexpr char const* op = "tessera::gemm";

/// Of the last two extents, the rows (0) or columns (1) of op(operand).
std::int64_t extent(AnyArray const& a, bool transposed, int which) {
  return a.extent[a.rank - 2 + (transposed ? 1 - which : which)];
}
std::int64_t batch(AnyArray const& a) { return a.rank == 3 ? a.extent[0] : 1; }

/// `more`: what is said of further operands.
[[noreturn]] void fail(char const* operation, GemmOperandArrays const& x, std::string const& why,
                       std::string const& more = {}) {
  throw Error(ErrorCode::extent, std::string(operation) + ": " + why + "; A " + shape(x.a) +
                                     (x.transpose_a ? " transposed" : "") + ", B " + shape(x.b) +
                                     (x.transpose_b ? " transposed" : "") + more + ", C " + shape(x.c));
}
void check_extents(char const* operation, GemmOperandArrays const& x, std::string const& more = {}) {
  if (extent(x.a, x.transpose_a, 1) != extent(x.b, x.transpose_b, 0))
    fail(operation, x, "the inner extents of op(A) and op(B) differ", more);
  if (extent(x.a, x.transpose_a, 0) != extent(x.c, false, 0))
    fail(operation, x, "the rows of op(A) and of C differ", more);
  if (extent(x.b, x.transpose_b, 1) != extent(x.c, false, 1))
    fail(operation, x, "the columns of op(B) and of C differ", more);
}
void check_batches(GemmOperandArrays const& x) {
  auto const check = [&](AnyArray const& a, char const* name) {
    if (batch(a) != batch(x.c) && batch(a) != 1)
      fail(op, x, std::string("the batch of ") + name + " is neither C's nor 1");
  };
  check(x.a, "A");
  check(x.b, "B");
}
/// Addresses, and that C shares no memory.
void check_memory(char const* operation, GemmOperandArrays const& x) {
  check_writable(operation, "C", x.c);
  check_data(operation, "C", x.c);
  if (x.c.size() > 0) {
    check_data(operation, "A", x.a);
    check_data(operation, "B", x.b);
  }
  check_no_overlap(operation, "C", x.c, "A", x.a);
  check_no_overlap(operation, "C", x.c, "B", x.b);
}

void check_workspace(GemmOperandArrays const& x) {
  if (x.workspace == nullptr) {
    if (x.workspace_bytes != 0 && x.workspace_bytes != SIZE_MAX)
      throw Error(ErrorCode::workspace, std::string(op) + ": a workspace of " + std::to_string(x.workspace_bytes) +
                                            " bytes without an address");
    return;
  }
  if (reinterpret_cast<std::uintptr_t>(x.workspace) % 16 != 0)
    throw Error(ErrorCode::workspace, std::string(op) + ": the workspace is not aligned to 16 bytes");
  AnyArray workspace{x.workspace, 1, 1};
  workspace.extent[0] = static_cast<std::int64_t>(x.workspace_bytes);
  workspace.stride[0] = 1;
  check_no_overlap(op, "workspace", workspace, "A", x.a);
  check_no_overlap(op, "workspace", workspace, "B", x.b);
  check_no_overlap(op, "workspace", workspace, "C", x.c);
}

}  // namespace

void check_whole_numbers(char const* operation, double alpha, double beta) {
  for (double const y : {alpha, beta})
    if (!(std::fabs(y) <= INT32_MAX) || y != std::trunc(y))
      throw Error(ErrorCode::value, std::string(operation) + ": alpha " + std::to_string(alpha) + " and beta " +
                                        std::to_string(beta) + " of a product of integers are whole numbers");
}

void check_gemm_operands(GemmOperandArrays const& x) {
  check_extents(op, x);
  check_batches(x);
  if (x.integers) check_whole_numbers(op, x.alpha, x.beta);
  check_memory(op, x);
  check_workspace(x);
}

void check_gemm_blocks(GemmOperandArrays const& x, AnyArray const& offsets) {
  constexpr char const* grouped = "tessera::gemm_grouped";
  std::string const of_offsets = ", offsets " + shape(offsets);
  check_extents(grouped, x, of_offsets);
  if (offsets.extent[0] != x.b.extent[0] + 1)
    fail(grouped, x, "there is not one offset more than matrices of B", of_offsets);
  if (offsets.extent[0] > 1 && offsets.stride[0] != 1) fail(grouped, x, "the offsets are not contiguous", of_offsets);
  if (x.integers) check_whole_numbers(grouped, x.alpha, x.beta);
  check_memory(grouped, x);
  check_data(grouped, "offsets", offsets);
  check_no_overlap(grouped, "C", x.c, "offsets", offsets);
}

}  // namespace tessera::detail
