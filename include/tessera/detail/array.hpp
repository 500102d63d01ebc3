// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_DETAIL_ARRAY_HPP
#define TESSERA_DETAIL_ARRAY_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include <tessera/detail/lattice.hpp>
#include <tessera/error.hpp>

// Views are turned at once into Arrays: a pointer, extents and element strides, all 64 bits. Every layout of Kokkos
// becomes the same type, so that the kernels behind are instantiated once per scalar type and not once per layout.
namespace tessera::detail {

template <class T>
concept execution_space = Kokkos::is_execution_space_v<T>;

template <class T>
concept view = Kokkos::is_view_v<T>;

template <class T, int Rank>
struct Array {
  static constexpr int slots = Rank > 0 ? Rank : 1;
  T* data = nullptr;
  std::int64_t extent[slots] = {};
  std::int64_t stride[slots] = {};  // in elements

  KOKKOS_FUNCTION std::int64_t size() const {
    std::int64_t n = 1;
    for (int i = 0; i < Rank; ++i) n *= extent[i];
    return n;
  }
  template <class... I>
  KOKKOS_FUNCTION T& operator()(I... i) const {
    static_assert(sizeof...(I) == Rank);
    std::int64_t at = 0;
    int d = 0;
    ((at += static_cast<std::int64_t>(i) * stride[d++]), ...);
    return data[at];
  }
};

template <view V>
auto array(V const& v) {
  Array<typename V::value_type, static_cast<int>(V::rank())> a;
  a.data = v.data();
  for (int i = 0; i < static_cast<int>(V::rank()); ++i) {
    a.extent[i] = static_cast<std::int64_t>(v.extent(i));
    a.stride[i] = static_cast<std::int64_t>(v.stride(i));
  }
  return a;
}

/// "(3, 5, 7)"
template <class T, int Rank>
std::string shape(Array<T, Rank> const& a) {
  std::string s = "(";
  for (int i = 0; i < Rank; ++i) s += (i ? ", " : "") + std::to_string(a.extent[i]);
  return s + ")";
}

/// Bytes from the first element to one past the last; strides of Views are never negative.
template <class T, int Rank>
std::int64_t span_bytes(Array<T, Rank> const& a) {
  if (a.size() == 0) return 0;
  std::int64_t last = 0;
  for (int i = 0; i < Rank; ++i) last += (a.extent[i] - 1) * a.stride[i];
  return (last + 1) * static_cast<std::int64_t>(sizeof(T));
}

/// Rows follow one another without a gap in the order of the last index, like a LayoutRight View.
template <class T, int Rank>
bool is_contiguous_right(Array<T, Rank> const& a) {
  std::int64_t expected = 1;
  for (int i = Rank - 1; i >= 0; --i) {
    if (a.extent[i] != 1 && a.stride[i] != expected) return false;
    expected *= a.extent[i];
  }
  return true;
}

/// The spans have a byte in common.
template <class T, int Rank, class U, int Rank2>
bool overlaps(Array<T, Rank> const& a, Array<U, Rank2> const& b) {
  auto const a0 = reinterpret_cast<std::uintptr_t>(a.data), b0 = reinterpret_cast<std::uintptr_t>(b.data);
  auto const an = static_cast<std::uintptr_t>(span_bytes(a)), bn = static_cast<std::uintptr_t>(span_bytes(b));
  return an > 0 && bn > 0 && a0 < b0 + bn && b0 < a0 + an;
}

/// Two elements have a byte in common. Interleaved parts of one matrix (its left and its right columns, the blocks of a
/// factorisation) span the same memory and share nothing, so the spans alone are not enough. Exact for the strides of
/// real arrays; "yes" for strides so irregular that the search takes over 1000 steps.
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

/// Same element size, same first element, same extents and strides: element i of one is element i of the other.
template <class T, int Rank, class U, int Rank2>
bool same_elements(Array<T, Rank> const& a, Array<U, Rank2> const& b) {
  if (Rank != Rank2 || sizeof(T) != sizeof(U) || static_cast<void const*>(a.data) != static_cast<void const*>(b.data))
    return false;
  for (int i = 0; i < Rank && i < Rank2; ++i)
    if (a.extent[i] != b.extent[i] || (a.extent[i] > 1 && a.stride[i] != b.stride[i])) return false;
  return true;
}

// ---- checks: `op` is the operation as the user spells it ("tessera::gemm"), names are the user's operand names.

template <class T, int Rank>
void check_data(char const* op, char const* name, Array<T, Rank> const& a) {
  if (a.data == nullptr && a.size() > 0)
    throw Error(ErrorCode::null_data, std::string(op) + ": " + name + " " + shape(a) + " has no data");
}

template <class T, int Rank, class U, int Rank2>
void check_same_extents(char const* op, char const* name, Array<T, Rank> const& a, char const* name2,
                        Array<U, Rank2> const& b) {
  static_assert(Rank == Rank2);
  for (int i = 0; i < Rank; ++i)
    if (a.extent[i] != b.extent[i])
      throw Error(ErrorCode::extent, std::string(op) + ": " + name + " " + shape(a) + " and " + name2 + " " + shape(b) +
                                         " differ in extent " + std::to_string(i));
}

/// Extent `dim` of the operand must be `wanted`, which is `meaning` ("columns of A").
template <class T, int Rank>
void check_extent(char const* op, char const* name, Array<T, Rank> const& a, int dim, std::int64_t wanted,
                  std::string const& meaning) {
  if (a.extent[dim] != wanted)
    throw Error(ErrorCode::extent, std::string(op) + ": extent " + std::to_string(dim) + " of " + name + " " +
                                       shape(a) + " must be " + std::to_string(wanted) + ", " + meaning);
}

/// Output and input share no byte.
template <class T, int Rank, class U, int Rank2>
void check_no_overlap(char const* op, char const* out_name, Array<T, Rank> const& out, std::string const& in_name,
                      Array<U, Rank2> const& in) {
  if (shares_bytes(out, in))
    throw Error(ErrorCode::overlap, std::string(op) + ": output " + out_name + " " + shape(out) + " overlaps " +
                                        in_name + " " + shape(in) + " in memory");
}

/// Output and input share no byte, or are the same elements (in place).
template <class T, int Rank, class U, int Rank2>
void check_no_partial_overlap(char const* op, char const* out_name, Array<T, Rank> const& out, char const* in_name,
                              Array<U, Rank2> const& in) {
  if (!same_elements(out, in)) check_no_overlap(op, out_name, out, in_name, in);
}

/// An output must hold every element at its own address (a broadcast View with stride 0 cannot be written).
template <class T, int Rank>
void check_writable(char const* op, char const* name, Array<T, Rank> const& a) {
  for (int i = 0; i < Rank; ++i)
    if (a.size() > 0 && a.extent[i] > 1 && a.stride[i] == 0)
      throw Error(ErrorCode::overlap, std::string(op) + ": output " + name + " " + shape(a) +
                                          " has stride 0 in extent " + std::to_string(i) +
                                          ", so its elements share memory");
}

inline void check_value(bool good, char const* op, std::string const& sentence) {
  if (!good) throw Error(ErrorCode::value, std::string(op) + ": " + sentence);
}

template <class Exec, class... V>
constexpr void require_views() {
  static_assert(execution_space<Exec>, "the first argument must be an instance of a Kokkos execution space");
  static_assert((view<V> && ...), "operands must be Kokkos::Views");
  static_assert((Kokkos::SpaceAccessibility<Exec, typename V::memory_space>::accessible && ...),
                "the execution space cannot access the memory of one of the Views: pass Views in its memory space");
}

template <class... V>
constexpr void require_outputs() {
  static_assert((!std::is_const_v<typename V::value_type> && ...), "an output View must not be of const elements");
}

}  // namespace tessera::detail

#endif
