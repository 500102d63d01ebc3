// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_HOST_STRIPS_HPP
#define TESSERA_QUANTIZE_HOST_STRIPS_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/byte_moves.hpp>
#include <tessera/launch.hpp>
#include <tessera/quantize/scale.hpp>
#include <tessera/rowwise/operand.hpp>
#include <tessera/streaming.hpp>
#include <tessera/unroll.hpp>

// Rows of a matrix on a CPU, in strips that stay in the first-level cache between the passes over them.
namespace tessera::detail {

inline constexpr int host_strip = 1024;

/// Asks for what is read two strips later: between the reads of two strips the memory would idle.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void fetch_strip_ahead(T const* strip, int n) {
  fetch_ahead(reinterpret_cast<char const*>(strip) + 2 * host_strip * sizeof(T),
              static_cast<std::size_t>(n) * sizeof(T));
}

/// Types whose neighbours are read where they lie.
using NeighbourTypes = TypeList<bf16_t, fp16_t, float>;

/// Some divisors, and what division of strips by them takes.
template <int Most>
struct Divisors {
  float divisor[Most], reciprocal[Most];
  bool usual;  // all from least_divisor to largest_divisor

  KOKKOS_FORCEINLINE_FUNCTION void prepare(int count) {
    int others = 0;
    for (int i = 0; i < count; ++i) {
      reciprocal[i] = 1.0f / divisor[i];
      others += !(divisor[i] >= least_divisor && divisor[i] <= largest_divisor);
    }
    usual = others == 0;
  }
};

/// Those of columns, and what division of many rows by them takes.
template <int Most>
struct ColumnDivisors : Divisors<Most> {
  alignas(line_of_memory) unsigned char steps[Most * steps_of_column];
};

template <class To>
void round_strip(float const* from, int n, void* to) {
  store_neighbours(from, n, static_cast<To*>(to));
}

/// f(begin, end, group) for the groups of 2^shift among n neighbours, if a group is more than one of them.
template <class F>
KOKKOS_FORCEINLINE_FUNCTION void for_shared(int n, int shift, F const& f) {
  int const size = 1 << shift;
  if (shift != 0)
    for (int begin = 0, group = 0; begin < n; begin += size, ++group)
      f(begin, n - begin < size ? n : begin + size, group);
}

/// From the types of an input and of 8 bits to the loops between them: so kernels are compiled once for each type and
/// not once for each pair of types.
struct StripDivision {
  Dividing of_input, of_floats;  // nullptr: quotients are rounded by
  RoundStrip round;
  ColumnQuotients by_columns;  // of the input

  StripDivision(Scalar in, Scalar out) : of_input(nullptr), of_floats(nullptr), round(nullptr), by_columns{} {
    QuantizedTypes::visit_on_host(out, [&](auto out_tag) {
      using To = typename decltype(out_tag)::type;
      round = round_strip<To>;
      of_floats = strip_division<float, To>();
      NeighbourTypes::visit_on_host(in, [&](auto in_tag) {
        using In = typename decltype(in_tag)::type;
        of_input = strip_division<In, To>();
        by_columns = column_division<In, To>();
      });
    });
  }

  template <int Most>
  KOKKOS_FORCEINLINE_FUNCTION void prepare(ColumnDivisors<Most>& by, int count) const {
    by.prepare(count);
    if (by_columns.prepare != nullptr && by.usual)
      by_columns.prepare(by.divisor, by.reciprocal, count, static_cast<void*>(by.steps));
  }
  /// to[i] = x[i] / the divisor of column first + i, where `first` is a multiple of columns_together.
  template <class T, int Most>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(T const* x, int n, ColumnDivisors<Most> const& by, int first,
                                              unsigned char* to) const {
    Divisors<Most> const& plain = by;
    if (by_columns.divide == nullptr || !by.usual || std::is_same_v<T, float>)
      return (*this)(x, n, plain, first, 0, to);
    by_columns.divide(x, n, by.divisor + first, by.reciprocal + first, by.steps + first * steps_of_column, to);
  }

  /// to[i] = x[i] / the divisor that it shares with 2^shift neighbours, the first of them the first-th; with `shift` 0,
  /// each its own. At most host_strip neighbours.
  template <class T, int Most>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(T const* x, int n, Divisors<Most> const& by, int first, int shift,
                                              unsigned char* to) const {
    Dividing const divide = std::is_same_v<T, float> ? of_floats : of_input;
    if (divide != nullptr && by.usual) return divide(x, n, by.divisor + first, by.reciprocal + first, shift, to);
    float quotients[host_strip];
    for_shared(n, shift, [&](int begin, int end, int group) TESSERA_INLINE_LAMBDA {
      float const divisor = by.divisor[first + group];
      for (int i = begin; i < end; ++i) quotients[i] = static_cast<float>(x[i]) / divisor;
    });
    if (shift == 0)
      for (int i = 0; i < n; ++i) quotients[i] = static_cast<float>(x[i]) / by.divisor[first + i];
    round(quotients, n, to);
  }
};

/// How rows are dealt out: segments of them, of which a team takes as many as are worth its start.
struct HostSegments {
  std::int64_t columns = 0, length = 0, a_row = 1, all = 0, a_team = 1;

  HostSegments(std::int64_t rows, std::int64_t columns_, bool whole_rows) : columns(columns_) {
    constexpr std::int64_t usual = 8 * host_strip, elements_a_team = 16384;
    length = whole_rows || columns < usual ? columns : usual;
    if (length > 0) a_row = (columns + length - 1) / length;
    all = rows * a_row;
    a_team = length >= elements_a_team ? 1 : elements_a_team / (length + 1) + 1;
  }
  std::int64_t teams() const { return (all + a_team - 1) / a_team; }

  /// f(row, first column, columns) for the segments of a team.
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION void of_team(int team, F const& f) const {
    std::int64_t const begin = team * a_team, end = begin + a_team < all ? begin + a_team : all;
    for (std::int64_t segment = begin; segment < end; ++segment) {
      std::int64_t const row = segment / a_row, first = (segment - row * a_row) * length, left = columns - first;
      f(row, first, left < length ? left : length);
    }
  }
};

/// f(first, n) for the strips of `count` columns from `first` on.
template <class F>
KOKKOS_FORCEINLINE_FUNCTION void for_strips(std::int64_t first, std::int64_t count, F const& f) {
  for (std::int64_t done = 0; done < count; done += host_strip)
    f(first + done, static_cast<int>(count - done < host_strip ? count - done : host_strip));
}

/// f(x) with n neighbours of `a`, one of WideTypes, from (row, first) on, as they lie there or widened in `room`.
template <class F>
KOKKOS_FORCEINLINE_FUNCTION void with_strip(Operand const& a, std::int64_t row, std::int64_t first, int n, float* room,
                                            F const& f) {
  void const* x = room;
  Scalar type = Scalar::fp32;
  WideTypes::visit(a.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
    using T = typename decltype(tag)::type;
    T const* const from = static_cast<T const*>(a.data) + row * a.row + first * a.column;
    if (!std::is_same_v<T, double> && a.column == 1) {
      fetch_strip_ahead(from, n);
      x = from;
      type = a.type;
    } else {
      for (int i = 0; i < n; ++i) room[i] = static_cast<float>(from[i * a.column]);
    }
  });
  NeighbourTypes::visit(
      type, [&](auto tag) TESSERA_INLINE_LAMBDA { f(static_cast<typename decltype(tag)::type const*>(x)); });
}

/// f(y) fills n neighbours of `a`, of `Bytes` each, from (row, first) on.
template <int Bytes, class F>
KOKKOS_FORCEINLINE_FUNCTION void fill_strip(Operand const& a, std::int64_t row, std::int64_t first, int n, F const& f) {
  auto* const y = static_cast<unsigned char*>(const_cast<void*>(a.data)) + (row * a.row + first * a.column) * Bytes;
  if (a.column == 1 && !a.streamed) return f(y);
  alignas(line_of_memory) unsigned char room[host_strip * Bytes];
  f(static_cast<unsigned char*>(room));
  if (a.streamed)
    stream(byte_moves(), y, room, static_cast<std::size_t>(n) * Bytes);
  else
    for (int i = 0; i < n; ++i)
      for (int byte = 0; byte < Bytes; ++byte) y[i * a.column * Bytes + byte] = room[i * Bytes + byte];
}

/// Products from the types of an input to those of 8 bits.
struct StripNarrowing {
  Multiplying of_input, of_floats;  // nullptr: products are rounded by
  RoundStrip round;

  StripNarrowing(Scalar in, Scalar out) : of_input(nullptr), of_floats(nullptr), round(nullptr) {
    TypeList<e4m3_t, e5m2_t>::visit_on_host(out, [&](auto out_tag) {
      using To = typename decltype(out_tag)::type;
      round = round_strip<To>;
      of_floats = strip_product<float, To>();
      NeighbourTypes::visit_on_host(
          in, [&](auto in_tag) { of_input = strip_product<typename decltype(in_tag)::type, To>(); });
    });
  }

  /// to[i] = x[i] times the factor that each 2^shift share, for at most host_strip neighbours.
  template <class T>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(T const* x, int n, float const* factors, int shift,
                                              unsigned char* to) const {
    Multiplying const multiply = std::is_same_v<T, float> ? of_floats : of_input;
    if (multiply != nullptr) return multiply(x, n, factors, shift, to);
    float products[host_strip];
    for_shared(n, shift, [&](int begin, int end, int group) TESSERA_INLINE_LAMBDA {
      float const factor = factors[group];
      for (int i = begin; i < end; ++i) products[i] = static_cast<float>(x[i]) * factor;
    });
    round(products, n, to);
  }
};

/// Products from an 8-bit type to a wide one.
struct StripProduct {
  Multiplying of_bytes;  // nullptr: in fp32, and rounded from there

  StripProduct(Scalar in, Scalar out) : of_bytes(nullptr) {
    QuantizedTypes::visit_on_host(in, [&](auto in_tag) {
      WideTypes::visit_on_host(out, [&](auto out_tag) {
        of_bytes = strip_product<typename decltype(in_tag)::type, typename decltype(out_tag)::type>();
      });
    });
  }

  /// n neighbours of `out` from (row, first) on become those of `in` times the factors that each 2^shift share.
  template <class Out>
  KOKKOS_FORCEINLINE_FUNCTION void widen(Operand const& in, Operand const& out, std::int64_t row, std::int64_t first,
                                         int n, float const* factors, int shift) const {
    fill_strip<sizeof(Out)>(out, row, first, n, [&](unsigned char* y) TESSERA_INLINE_LAMBDA {
      std::int64_t const at = row * in.row + first * in.column;
      if (of_bytes != nullptr && in.column == 1) {
        auto const* const bytes = static_cast<unsigned char const*>(in.data) + at;
        fetch_strip_ahead(bytes, n);
        return of_bytes(bytes, n, factors, shift, y);
      }
      float products[host_strip];
      QuantizedTypes::visit(in.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
        using In = typename decltype(tag)::type;
        In const* const x = static_cast<In const*>(in.data) + at;
        for_shared(n, shift, [&](int begin, int end, int group) TESSERA_INLINE_LAMBDA {
          float const factor = factors[group];
          if (in.column == 1)
            for (int i = begin; i < end; ++i) products[i] = static_cast<float>(x[i]) * factor;
          else
            for (int i = begin; i < end; ++i) products[i] = static_cast<float>(x[i * in.column]) * factor;
        });
      });
      store_neighbours(products, n, reinterpret_cast<Out*>(y));
    });
  }
};

}  // namespace tessera::detail

#endif
