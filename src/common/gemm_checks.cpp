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

void check_extents(GemmOperandArrays const& x) {
  auto const fail = [&](std::string const& why) {
    throw Error(ErrorCode::extent, std::string(op) + ": " + why + "; A " + shape(x.a) +
                                       (x.transpose_a ? " transposed" : "") + ", B " + shape(x.b) +
                                       (x.transpose_b ? " transposed" : "") + ", C " + shape(x.c));
  };
  if (extent(x.a, x.transpose_a, 1) != extent(x.b, x.transpose_b, 0))
    fail("the inner extents of op(A) and op(B) differ");
  if (extent(x.a, x.transpose_a, 0) != extent(x.c, false, 0)) fail("the rows of op(A) and of C differ");
  if (extent(x.b, x.transpose_b, 1) != extent(x.c, false, 1)) fail("the columns of op(B) and of C differ");
  auto const check_batch = [&](AnyArray const& a, char const* name) {
    if (batch(a) != batch(x.c) && batch(a) != 1) fail(std::string("the batch of ") + name + " is neither C's nor 1");
  };
  check_batch(x.a, "A");
  check_batch(x.b, "B");
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
  check_extents(x);
  if (x.integers) check_whole_numbers(op, x.alpha, x.beta);
  check_writable(op, "C", x.c);
  check_data(op, "C", x.c);
  if (x.c.size() > 0) {
    check_data(op, "A", x.a);
    check_data(op, "B", x.b);
  }
  check_no_overlap(op, "C", x.c, "A", x.a);
  check_no_overlap(op, "C", x.c, "B", x.b);
  check_workspace(x);
}

}  // namespace tessera::detail
