// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/column_loops_avx512.hpp>
#include <tessera/openmp/micro_kernel_words_avx512.hpp>

namespace {

/// vdpbf16ps: two products a word, each added in fp32, to nearest; subnormal factors and sums count as zero.
struct DotBf16 {
  using Vector = __m512;
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(float const* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Vector x) { _mm512_storeu_ps(to, x); }
  static Vector add(Vector sum, __m512i left, __m512i right) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(left), reinterpret_cast<__m512bh>(right));
  }
};

/// The words of two sums of each of 16 columns.
inline __m512i words_of(__m512 even, __m512 odd) {
  __m512i const neighbours = _mm512_mullo_epi32(
      _mm512_set1_epi32(0x10001), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  __m512i const order = _mm512_add_epi32(neighbours, _mm512_set1_epi32(16 << 16));
  return _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even)));
}
constexpr int words_of_lines(int k) { return (k + 2 * line_words - 1) / (2 * line_words) * line_words; }

/// See WordWeights.
void round_columns(float const* from, int k, void* to) {
  char* at = static_cast<char*>(to);
  for (int w = 0; w < words_of_lines(k); ++w, from += 2 * word_panel)
    for (int half = 0; half < word_panel; half += 16, at += line_bytes) {
      __m512 const even = 2 * w < k ? _mm512_loadu_ps(from + half) : _mm512_setzero_ps();
      __m512 const odd = 2 * w + 1 < k ? _mm512_loadu_ps(from + word_panel + half) : _mm512_setzero_ps();
      store_line(at, words_of(even, odd));
    }
}

/// See WordWeights. The words of a half lie before what has not been read of it.
void weigh_columns(float* x, int k, int columns, float scale, float const* base, float* sums) {
  for (int half = 0; half < columns; half += 16) {
    __m512 const relative = _mm512_loadu_ps(base + half);
    __m512 sum = _mm512_loadu_ps(sums + half);
    auto const weight = [&](int i) {
      return power_of_two<Avx512>(_mm512_loadu_ps(x + i * word_panel + half) * scale - relative);
    };
    char* at = reinterpret_cast<char*>(x + half);
    int w = 0;
    for (; 2 * w + 1 < k; ++w, at += 2 * line_bytes) {
      __m512 const even = weight(2 * w), odd = weight(2 * w + 1);
      sum = sum + even + odd;
      store_line(at, words_of(even, odd));
    }
    for (; w < words_of_lines(k); ++w, at += 2 * line_bytes) {
      __m512 const last = 2 * w < k ? weight(2 * w) : _mm512_setzero_ps();
      sum += last;
      store_line(at, words_of(last, _mm512_setzero_ps()));
    }
    _mm512_storeu_ps(sums + half, sum);
  }
}

/// x = f(x, c) in column c of k, and words of these.
template <class F>
inline void words_of_columns(float* x, int k, int columns, void* to, F const& f) {
  for (int half = 0; half < columns; half += 16) {
    char* at = static_cast<char*>(to) + half / 16 * line_bytes;
    auto const changed = [&](int c) {
      float* const place = x + c * word_panel + half;
      __m512 const y = f(place, c);
      _mm512_storeu_ps(place, y);
      return y;
    };
    int w = 0;
    for (; 2 * w + 1 < k; ++w, at += 2 * line_bytes) {
      __m512 const even = changed(2 * w), odd = changed(2 * w + 1);
      store_line(at, words_of(even, odd));
    }
    for (; w < words_of_lines(k); ++w, at += 2 * line_bytes)
      store_line(at, words_of(2 * w < k ? changed(2 * w) : _mm512_setzero_ps(), _mm512_setzero_ps()));
  }
}
/// See WordWeights.
void exponentials_of_columns(float* x, int k, int columns, float scale, float const* base, void* to) {
  words_of_columns(x, k, columns, to,
                   [&](float const* at, int c) { return power_of_two<Avx512>(_mm512_loadu_ps(at) * scale - base[c]); });
}
void differences_of_columns(float* x, float const* factors, int k, int columns, float const* base, void* to) {
  words_of_columns(x, k, columns, to, [&](float const* at, int c) {
    return _mm512_loadu_ps(factors + (at - x)) * (_mm512_loadu_ps(at) - base[c]);
  });
}
void lines_of_columns(float const* from, int k, int columns, void* to, std::int64_t panel) {
  auto const held = [&](int first) {
    return static_cast<__mmask16>(columns - first >= 16 ? 0xffff : columns > first ? (1 << (columns - first)) - 1 : 0);
  };
  __mmask16 const low = held(0), high = held(16);
  for (int r = 0; r < k; ++r, from += word_panel) {
    char* const at = static_cast<char*>(to) + r / word_panel * panel + r % word_panel * line_bytes;
    __m512 const first = _mm512_maskz_loadu_ps(low, from), second = _mm512_maskz_loadu_ps(high, from + 16);
    store_line(at, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
  }
}

}  // namespace

namespace tessera::detail::openmp {

extern WordWeights const weights_avx512_bf16;
WordWeights const weights_avx512_bf16{round_columns, weigh_columns, exponentials_of_columns, differences_of_columns,
                                      lines_of_columns};

extern Bf16Kernel const bf16_avx512_bf16;
Bf16Kernel const bf16_avx512_bf16{pack_left<std::uint16_t>, pack_right<std::uint16_t>,
                                  multiply_word_panels<DotBf16, float>, 32, &weights_avx512_bf16};

}  // namespace tessera::detail::openmp
