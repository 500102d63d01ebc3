// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/detail/checks.hpp>

#include "lattice.hpp"

namespace tessera::detail {

namespace {

/// Bytes from the first element to one past the last; strides of Views are never negative.
std::uintptr_t span_bytes(AnyArray const& a) {
  if (a.size() == 0) return 0;
  std::int64_t last = 0;
  for (int i = 0; i < a.rank; ++i) last += (a.extent[i] - 1) * a.stride[i];
  return static_cast<std::uintptr_t>((last + 1) * a.bytes);
}

std::uintptr_t address(AnyArray const& a) { return reinterpret_cast<std::uintptr_t>(a.data); }

/// The spans have a byte in common.
bool overlaps(AnyArray const& a, AnyArray const& b) {
  std::uintptr_t const an = span_bytes(a), bn = span_bytes(b);
  return an > 0 && bn > 0 && address(a) < address(b) + bn && address(b) < address(a) + an;
}

[[noreturn]] void fail(ErrorCode code, char const* op, std::string const& sentence) {
  throw Error(code, std::string(op) + ": " + sentence);
}

}  // namespace

std::string shape(AnyArray const& a) {
  std::string s = "(";
  for (int i = 0; i < a.rank; ++i) s += (i ? ", " : "") + std::to_string(a.extent[i]);
  return s + ")";
}

bool shares_bytes(AnyArray const& a, AnyArray const& b) {
  if (!overlaps(a, b)) return false;
  // a + i + u = b + j + v, with j counted back from its end: i + u + (last_b - j) + (last_byte - v) is a constant.
  Lattice lattice;
  auto target = static_cast<std::int64_t>(address(b) - address(a));
  for (int d = 0; d < a.rank; ++d) lattice.add(a.stride[d] * a.bytes, a.extent[d] - 1);
  for (int d = 0; d < b.rank; ++d) {
    lattice.add(b.stride[d] * b.bytes, b.extent[d] - 1);
    target += b.stride[d] * b.bytes * (b.extent[d] - 1);
  }
  lattice.add(1, a.bytes + b.bytes - 2);
  target += b.bytes - 1;
  int work = 1000;
  return lattice.reaches(target, 0, work);
}

bool same_elements(AnyArray const& a, AnyArray const& b) {
  if (a.rank != b.rank || a.bytes != b.bytes || a.data != b.data) return false;
  for (int i = 0; i < a.rank; ++i)
    if (a.extent[i] != b.extent[i] || (a.extent[i] > 1 && a.stride[i] != b.stride[i])) return false;
  return true;
}

void check_data(char const* op, char const* name, AnyArray const& a) {
  if (a.data == nullptr && a.size() > 0)
    fail(ErrorCode::null_data, op, std::string(name) + " " + shape(a) + " has no data");
}

void check_same_extents(char const* op, char const* name, AnyArray const& a, char const* name2, AnyArray const& b) {
  for (int i = 0; i < a.rank; ++i)
    if (a.extent[i] != b.extent[i])
      fail(ErrorCode::extent, op,
           std::string(name) + " " + shape(a) + " and " + name2 + " " + shape(b) + " differ in extent " +
               std::to_string(i));
}

void check_extent(char const* op, char const* name, AnyArray const& a, int dim, std::int64_t wanted,
                  std::string const& meaning) {
  if (a.extent[dim] != wanted)
    fail(ErrorCode::extent, op,
         "extent " + std::to_string(dim) + " of " + name + " " + shape(a) + " must be " + std::to_string(wanted) +
             ", " + meaning);
}

void check_no_overlap(char const* op, char const* out_name, AnyArray const& out, std::string const& in_name,
                      AnyArray const& in) {
  if (shares_bytes(out, in))
    fail(
        ErrorCode::overlap, op,
        std::string("output ") + out_name + " " + shape(out) + " overlaps " + in_name + " " + shape(in) + " in memory");
}

void check_no_partial_overlap(char const* op, char const* out_name, AnyArray const& out, char const* in_name,
                              AnyArray const& in) {
  if (!same_elements(out, in)) check_no_overlap(op, out_name, out, in_name, in);
}

void check_writable(char const* op, char const* name, AnyArray const& a) {
  for (int i = 0; i < a.rank; ++i)
    if (a.size() > 0 && a.extent[i] > 1 && a.stride[i] == 0)
      fail(ErrorCode::overlap, op,
           std::string("output ") + name + " " + shape(a) + " has stride 0 in extent " + std::to_string(i) +
               ", so its elements share memory");
}

void check_value(bool good, char const* op, std::string const& sentence) {
  if (!good) fail(ErrorCode::value, op, sentence);
}

}  // namespace tessera::detail
