// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What micro_kernel_amx.cpp is to those who use it, for any processor: the same panels, rows that are read and written
// where they lie, halves of panels that are read and written whole. For tests, on machines without AMX.
#include <bit>
#include <cstring>

#include <tessera/openmp/word_weights_body.hpp>

namespace {

using tessera::detail::openmp::line_bytes;
using tessera::detail::openmp::line_panel_bytes;
using tessera::detail::openmp::line_words;
using tessera::detail::openmp::word_panel;
using tessera::detail::openmp::WordProduct;

/// A tile of AMX has so many rows or words.
constexpr int half = word_panel / 2;
constexpr int whole_halves(int n) { return (n + half - 1) / half * half; }

/// Vectors, for speed's sake, of 16 bytes, as every processor has them.
typedef float Sums __attribute__((vector_size(16)));
typedef std::int32_t Integers __attribute__((vector_size(16)));
constexpr int lanes = 4, vectors = half / lanes;
constexpr std::int32_t sign = 1 << 31, fp32_exponent = 0x7f800000;

/// So many are a word and a line.
template <class Element>
struct Elements {
  using Storage = Element;
  static constexpr int a_word = 4 / static_cast<int>(sizeof(Storage)), a_line = line_words * a_word;
};
/// The bits of tdpbf16ps: products are exact, their sums to nearest in fp32; subnormal factors and sums count as zero.
/// But a product that overflows or is subnormal is rounded before it is added, as it is not there.
struct Bf16 : Elements<std::uint16_t> {
  using Vector = Sums;
  static float factor(Storage x) {
    std::uint32_t const bits = static_cast<std::uint32_t>(x) << 16;
    return std::bit_cast<float>((bits & fp32_exponent) == 0 ? bits & sign : bits);
  }
  static void add(Vector& sum, Vector const& x) {
    sum += x;
    Integers const bits = reinterpret_cast<Integers>(sum), normal = (bits & fp32_exponent) != 0;
    sum = reinterpret_cast<Vector>(bits & (normal | sign));
  }
};
/// tdpbssd: exact.
struct Int8 : Elements<std::int8_t> {
  using Vector = Integers;
  static std::int32_t factor(Storage x) { return x; }
  static void add(Vector& sum, Vector const& x) { sum += x; }
};

/// See WordKernel. `Bytes` of a row lie side by side, then those of the next row.
template <class Storage, int Bytes>
void pack(Storage const* from, std::int64_t row_stride, std::int64_t col_stride, int n, int k, void* to) {
  constexpr int together = Bytes / static_cast<int>(sizeof(Storage)), a_line = Elements<Storage>::a_line;
  char* const panel = static_cast<char*>(to);
  for (int c = 0; c < (k + a_line - 1) / a_line * a_line; ++c)
    for (int r = 0; r < word_panel; ++r) {
      Storage const x = r < n && c < k ? from[r * row_stride + c * col_stride] : Storage(0);
      int const place = (c / together * word_panel + r) * together + c % together;
      std::memcpy(panel + place * sizeof x, &x, sizeof x);
    }
}

/// c += a line of a row times that of half a right panel. Of each word the first products are summed by themselves, and
/// so are the second ones and the others.
template <class Type, class Sum>
void add_products(char const* a, typename Type::Vector const (*b)[vectors], Sum* c) {
  typename Type::Vector sums[Type::a_word][vectors] = {}, all;
  for (int w = 0; w < line_words; ++w, b += Type::a_word) {
    typename Type::Storage word[Type::a_word];
    std::memcpy(word, a + w * sizeof word, sizeof word);
#pragma GCC unroll 4
    for (int i = 0; i < Type::a_word; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) Type::add(sums[i][v], Type::factor(word[i]) * b[i][v]);
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    for (int i = 1; i < Type::a_word; ++i) Type::add(sums[0][v], sums[i][v]);
    std::memcpy(&all, c + v * lanes, sizeof all);
    Type::add(all, sums[0][v]);
    std::memcpy(c + v * lanes, &all, sizeof all);
  }
}

/// The factors of a line of half a right panel, those of all columns side by side.
template <class Type>
void widen(char const* panel, typename Type::Vector (*to)[vectors]) {
  for (int k = 0; k < Type::a_line; ++k)
    for (int c = 0; c < half; ++c) {
      typename Type::Storage x;
      int const place = (k / Type::a_word * word_panel + c) * Type::a_word + k % Type::a_word;
      std::memcpy(&x, panel + place * sizeof x, sizeof x);
      to[k][c / lanes][c % lanes] = Type::factor(x);
    }
}

/// See WordProduct.
template <class Type, class Sum>
void multiply(WordProduct<Sum> const& p) {
  bool const packed = p.a_row == 0;
  std::int64_t const a_row = packed ? line_bytes : p.a_row, a_next = packed ? line_panel_bytes : line_bytes;
  int const rows = whole_halves(p.rows);
  for (int j = 0; j < p.cols; j += half) {
    char const* const b = static_cast<char const*>(p.b) + j / word_panel * p.b_panel + j % word_panel * 4;
    Sum* const c = p.c + j / word_panel * p.c_panel + j % word_panel;
    if (!p.add)
      for (int i = 0; i < rows; ++i) std::memset(c + i * p.c_row, 0, half * sizeof(Sum));
    for (int l = 0; l < p.lines; ++l) {
      typename Type::Vector right[Type::a_line][vectors];
      widen<Type>(b + std::int64_t(l) * line_panel_bytes, right);
      for (int i = 0; i < rows; ++i)
        add_products<Type>(
            static_cast<char const*>(p.a) + i / word_panel * p.a_panel + i % word_panel * a_row + l * a_next, right,
            c + i * p.c_row);
    }
  }
}

/// See column_loops_body.hpp and word_weights_body.hpp.
struct Plain {
  using Vector = Sums;
  using Words = Integers;
  static constexpr int lanes = ::lanes;

  static Vector read(float const* from) { return first(from, lanes); }
  static void write(Vector x, float* to) { std::memcpy(to, &x, sizeof x); }
  static Vector unless_below(float limit, Vector x, Vector y) {
    return reinterpret_cast<Vector>(reinterpret_cast<Words>(y) & ~(x < limit));
  }
  static Vector first(float const* from, int n) {
    Vector x{};
    for (int i = 0; i < lanes && i < n; ++i) x[i] = from[i];
    return x;
  }
  static void write_words(Vector x, Vector y, char* to) {
    std::uint16_t words[lanes][2];
    for (int i = 0; i < lanes; ++i) words[i][0] = rounded(x[i]), words[i][1] = rounded(y[i]);
    std::memcpy(to, words, sizeof words);
  }
  static void write_line(Vector x, Vector y, char* to) {
    std::uint16_t line[2][lanes];
    for (int i = 0; i < lanes; ++i) line[0][i] = rounded(x[i]), line[1][i] = rounded(y[i]);
    std::memcpy(to, line, sizeof line);
  }
  /// To nearest, ties to even. A NaN becomes the one that the storage type has.
  static std::uint16_t rounded(float x) {
    auto const bits = std::bit_cast<std::uint32_t>(x);
    if (x != x) return 0x7fff;
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

/// See WordKernel.
void round_rows(float const* from, std::int64_t pitch, int rows, int n, void* to, std::int64_t row_bytes) {
  char* out = static_cast<char*>(to);
  for (int r = 0; r < rows; ++r, from += pitch, out += row_bytes)
    for (int c = 0; c < n; ++c) {
      std::uint16_t const x = Plain::rounded(from[c]);
      std::memcpy(out + c * sizeof x, &x, sizeof x);
    }
}

}  // namespace

namespace tessera::detail::openmp {

extern Bf16Kernel const bf16_amx_stand_in;
extern Int8Kernel const int8_amx_stand_in;
Bf16Kernel const bf16_amx_stand_in{pack<std::uint16_t, line_bytes>,
                                   pack<std::uint16_t, 4>,
                                   multiply<Bf16, float>,
                                   amx_bf16_clocks,
                                   &ColumnsToWords<Plain>::table,
                                   true,
                                   round_rows};
Int8Kernel const int8_amx_stand_in{
    pack<std::int8_t, line_bytes>, pack<std::int8_t, 4>, multiply<Int8, std::int32_t>, amx_int8_clocks, nullptr, true};

}  // namespace tessera::detail::openmp
