// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_WORD_WEIGHTS_BODY_HPP
#define TESSERA_OPENMP_WORD_WEIGHTS_BODY_HPP

// WordWeights, for a source of an instruction set `Simd` that has what column_loops_body.hpp asks for and
//
//     first(from, n)          the first n numbers of a vector, zero behind them
//     write_words(x, y, to)   a word of each pair of numbers, that of x first, as bf16
//     write_line(x, y, to)    the numbers of x and those of y behind them, as bf16
#include <tessera/openmp/column_loops_body.hpp>

namespace {

template <class Simd>
struct ColumnsToWords {
  using Vector = typename Simd::Vector;
  static constexpr int lanes = Simd::lanes;
  static constexpr int pitch = tessera::detail::openmp::word_panel, words_a_line = tessera::detail::openmp::line_words;
  static constexpr int word_bytes = 4, word_pitch = word_bytes * pitch;
  static constexpr int words_of_lines(int k) { return (k + 2 * words_a_line - 1) / (2 * words_a_line) * words_a_line; }

  static void round(float const* from, int k, void* to) {
    char* at = static_cast<char*>(to);
    for (int w = 0; w < words_of_lines(k); ++w, from += 2 * pitch)
      for (int part = 0; part < pitch; part += lanes, at += word_bytes * lanes) {
        Vector const even = 2 * w < k ? Simd::read(from + part) : Vector{};
        Vector const odd = 2 * w + 1 < k ? Simd::read(from + pitch + part) : Vector{};
        Simd::write_words(even, odd, at);
      }
  }

  /// The words of a part lie before what has not been read of it.
  static void weigh(float* x, int k, int columns, float scale, float const* base, float* sums) {
    for (int part = 0; part < columns; part += lanes) {
      Vector const relative = Simd::read(base + part);
      Vector sum = Simd::read(sums + part);
      auto const weight = [&](int i) {
        return power_of_two<Simd>(Simd::read(x + i * pitch + part) * scale - relative);
      };
      char* at = reinterpret_cast<char*>(x + part);
      int w = 0;
      for (; 2 * w + 1 < k; ++w, at += word_pitch) {
        Vector const even = weight(2 * w), odd = weight(2 * w + 1);
        sum = sum + even + odd;
        Simd::write_words(even, odd, at);
      }
      for (; w < words_of_lines(k); ++w, at += word_pitch) {
        Vector const last = 2 * w < k ? weight(2 * w) : Vector{};
        sum += last;
        Simd::write_words(last, Vector{}, at);
      }
      Simd::write(sum, sums + part);
    }
  }

  static void exponentials(float* x, int k, int columns, float scale, float const* base, void* to) {
    change(x, k, columns, to,
           [&](float const* at, int c) { return power_of_two<Simd>(Simd::read(at) * scale - base[c]); });
  }
  static void differences(float* x, float const* factors, int k, int columns, float const* base, void* to) {
    change(x, k, columns, to,
           [&](float const* at, int c) { return Simd::read(factors + (at - x)) * (Simd::read(at) - base[c]); });
  }

  static void lines(float const* from, int k, int columns, void* to, std::int64_t panel) {
    constexpr int bytes = tessera::detail::openmp::line_bytes;
    for (int r = 0; r < k; ++r, from += pitch) {
      char* const at = static_cast<char*>(to) + r / pitch * panel + r % pitch * bytes;
      for (int part = 0; part < pitch; part += 2 * lanes)
        Simd::write_line(Simd::first(from + part, columns - part),
                         Simd::first(from + part + lanes, columns - part - lanes), at + 2 * part);
    }
  }

  static constexpr tessera::detail::openmp::WordWeights table{round, weigh, exponentials, differences, lines};

 private:
  /// x = f(x, c) in column c of k, and words of these.
  template <class F>
  static void change(float* x, int k, int columns, void* to, F const& f) {
    for (int part = 0; part < columns; part += lanes) {
      char* at = static_cast<char*>(to) + word_bytes * part;
      auto const changed = [&](int c) {
        float* const place = x + c * pitch + part;
        Vector const y = f(place, c);
        Simd::write(y, place);
        return y;
      };
      int w = 0;
      for (; 2 * w + 1 < k; ++w, at += word_pitch) {
        Vector const even = changed(2 * w), odd = changed(2 * w + 1);
        Simd::write_words(even, odd, at);
      }
      for (; w < words_of_lines(k); ++w, at += word_pitch)
        Simd::write_words(2 * w < k ? changed(2 * w) : Vector{}, Vector{}, at);
    }
  }
};

}  // namespace

#endif
