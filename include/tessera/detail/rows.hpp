// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_DETAIL_ROWS_HPP
#define TESSERA_DETAIL_ROWS_HPP

#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/detail/array.hpp>
#include <tessera/types.hpp>

namespace tessera {

/// Stands for an operand or an optional View that is not there.
struct None {};
inline constexpr None none{};

}  // namespace tessera

// What the operations on rows take behind their public signatures: arrays whose rank and element type are known at run
// time, so that a kernel is compiled once per accumulator and not once per combination of operand types.
namespace tessera::detail {

/// An array of rows: three leading extents (missing ones are 1) and the row's own, last. An absent operand has no data
/// and no elements. Strides in elements.
struct RowArray {
  void const* data = nullptr;
  Scalar type = Scalar::fp32;
  std::int64_t extent[4] = {1, 1, 1, 1};
  std::int64_t stride[4] = {};

  bool present() const { return data != nullptr; }
  std::int64_t rows() const { return extent[0] * extent[1] * extent[2]; }
};

template <class T, int Rank>
RowArray row_array(Array<T, Rank> const& a) {
  static_assert(Rank >= 1 && Rank <= 4);
  RowArray r;
  r.data = a.data;
  r.type = scalar_of<std::remove_const_t<T>>;
  for (int i = 0; i < Rank; ++i) {
    r.extent[4 - Rank + i] = a.extent[i];
    r.stride[4 - Rank + i] = a.stride[i];
  }
  return r;
}

/// One vector that serves every row: the leading strides are 0.
template <class T>
RowArray broadcast_row(Array<T, 1> const& a) {
  return row_array(a);
}

/// One value a row: the leading extents are those of the rows and the row's own is 1.
template <class T, int Rank>
RowArray value_per_row(Array<T, Rank> const& a) {
  static_assert(Rank <= 3);
  RowArray r;
  r.data = a.data;
  r.type = scalar_of<std::remove_const_t<T>>;
  for (int i = 0; i < Rank; ++i) {
    r.extent[3 - Rank + i] = a.extent[i];
    r.stride[3 - Rank + i] = a.stride[i];
  }
  return r;
}

template <class V>
inline constexpr bool is_present = !std::is_same_v<std::remove_cv_t<V>, None>;

template <class T>
inline constexpr bool is_row_input =
    std::is_same_v<T, double> || std::is_same_v<T, float> || std::is_same_v<T, fp16_t> || std::is_same_v<T, bf16_t>;

template <class T>
inline constexpr bool is_row_output = is_row_input<T> || std::is_same_v<T, e4m3_t> || std::is_same_v<T, e5m2_t>;

template <class Out, class In>
constexpr void require_rows() {
  static_assert(Out::rank() == In::rank(), "out and in must have the same rank");
  static_assert(In::rank() >= 1 && In::rank() <= 4, "operations on rows take Views of rank 1 to 4");
  static_assert(is_row_input<typename In::non_const_value_type>, "in must hold double, float, fp16_t or bf16_t");
  static_assert(is_row_output<typename Out::non_const_value_type>,
                "out must hold double, float, fp16_t, bf16_t, e4m3_t or e5m2_t");
}

}  // namespace tessera::detail

#endif
