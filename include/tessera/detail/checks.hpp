// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_DETAIL_CHECKS_HPP
#define TESSERA_DETAIL_CHECKS_HPP

#include <cstdint>
#include <string>

#include <tessera/error.hpp>

// What is checked about operands on the host before a launch: compiled once, whatever the types of the Views.
namespace tessera::detail {

/// An Array without its type.
struct AnyArray {
  void const* data = nullptr;
  std::int64_t bytes = 0;  // of an element
  int rank = 0;
  std::int64_t extent[8] = {};
  std::int64_t stride[8] = {};  // in elements

  std::int64_t size() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= extent[i];
    return n;
  }
};

// `op` is the operation as the user spells it ("tessera::gemm"), names are the user's operand names.

/// "(3, 5, 7)"
std::string shape(AnyArray const& a);

/// Two elements have a byte in common. Interleaved parts of one matrix (its left and its right columns, the blocks of a
/// factorisation) span the same memory and share nothing, so the spans alone are not enough. Exact for the strides of
/// real arrays; "yes" for strides so irregular that the search takes over 1000 steps.
bool shares_bytes(AnyArray const& a, AnyArray const& b);

/// Same element size, same first element, same extents and strides: element i of one is element i of the other.
bool same_elements(AnyArray const& a, AnyArray const& b);

void check_data(char const* op, char const* name, AnyArray const& a);

/// Both have the same rank.
void check_same_extents(char const* op, char const* name, AnyArray const& a, char const* name2, AnyArray const& b);

/// Extent `dim` of the operand must be `wanted`, which is `meaning` ("columns of A").
void check_extent(char const* op, char const* name, AnyArray const& a, int dim, std::int64_t wanted,
                  std::string const& meaning);

/// Output and input share no byte.
void check_no_overlap(char const* op, char const* out_name, AnyArray const& out, std::string const& in_name,
                      AnyArray const& in);

/// Output and input share no byte, or are the same elements (in place).
void check_no_partial_overlap(char const* op, char const* out_name, AnyArray const& out, char const* in_name,
                              AnyArray const& in);

/// An output must hold every element at its own address (a broadcast View with stride 0 cannot be written).
void check_writable(char const* op, char const* name, AnyArray const& a);

void check_value(bool good, char const* op, std::string const& sentence);

/// What gemm() says of its operands: Error{extent} where they do not fit, {overlap}, {null_data}, {value}, {workspace}.
struct GemmOperandArrays {
  AnyArray a, b, c;
  bool transpose_a, transpose_b;
  double alpha, beta;
  bool integers;  // C is of integers
  void* workspace;
  std::size_t workspace_bytes;
};
void check_gemm_operands(GemmOperandArrays const& x);
/// The same for gemm_grouped() with blocks of rows, of which `offsets` tell: B has a matrix for each.
void check_gemm_blocks(GemmOperandArrays const& operands, AnyArray const& offsets);

/// Error{value}: a product of integers has factors that are no whole numbers of 32 bits.
void check_whole_numbers(char const* operation, double alpha, double beta);

}  // namespace tessera::detail

#endif
