// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/openmp/word_panels_avx512.hpp>

namespace {

/// All eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileShapes shapes;

/// tdpbf16ps: sums in fp32, to nearest; subnormal factors and sums count as zero. tdpbssd: exact. The tiles' numbers
/// are part of the instruction.
struct TilesBf16 {
  template <int C, int A, int B>
  static void add();
};
struct TilesInt8 {
  template <int C, int A, int B>
  static void add();
};
#define TESSERA_TILE_PRODUCT(C, A, B)     \
  template <>                             \
  inline void TilesBf16::add<C, A, B>() { \
    _tile_dpbf16ps(C, A, B);              \
  }                                       \
  template <>                             \
  inline void TilesInt8::add<C, A, B>() { \
    _tile_dpbssd(C, A, B);                \
  }
TESSERA_TILE_PRODUCT(0, 4, 6)
TESSERA_TILE_PRODUCT(1, 4, 7)
TESSERA_TILE_PRODUCT(2, 5, 6)
TESSERA_TILE_PRODUCT(3, 5, 7)

/// How a left factor and sums lie, in bytes: from a row to the next, and from a line of the factor to the next.
struct Pitches {
  std::int64_t a_row, a_line, c_row;
};

/// 16 rows and 16 columns, or twice as many where Two... says so: each tile that is loaded then serves two products.
/// Those of the next line are loaded as soon as the last product with these has begun: where another thread has half
/// the core, that is a tenth.
template <class Tiles, bool TwoRows, bool TwoCols, class Sum>
inline void multiply_tiles(char const* a, char const* b, int lines, Sum* c, bool add, Pitches const& pitch) {
  constexpr std::int64_t right_pitch = 2 * line_bytes;
  std::int64_t const sum_pitch = pitch.c_row, second_row = 16 * sum_pitch / std::int64_t(sizeof(Sum));
  if (add) {
    _tile_loadd(0, c, sum_pitch);
    if constexpr (TwoCols) _tile_loadd(1, c + 16, sum_pitch);
    if constexpr (TwoRows) _tile_loadd(2, c + second_row, sum_pitch);
    if constexpr (TwoRows && TwoCols) _tile_loadd(3, c + second_row + 16, sum_pitch);
  } else {
    _tile_zero(0);
    if constexpr (TwoCols) _tile_zero(1);
    if constexpr (TwoRows) _tile_zero(2);
    if constexpr (TwoRows && TwoCols) _tile_zero(3);
  }
  auto const load_second = [&] {
    if constexpr (TwoCols) _tile_loadd(7, b + line_bytes, right_pitch);
    if constexpr (TwoRows) _tile_loadd(5, a + 16 * pitch.a_row, pitch.a_row);
  };
  if (lines > 0) {
    _tile_loadd(6, b, right_pitch);
    _tile_loadd(4, a, pitch.a_row);
    load_second();
  }
  for (int l = 1; l <= lines; ++l) {
    bool const more = l < lines;
    a += pitch.a_line, b += line_panel_bytes;
    Tiles::template add<0, 4, 6>();
    if constexpr (TwoCols) Tiles::template add<1, 4, 7>();
    if (more) _tile_loadd(4, a, pitch.a_row);
    if constexpr (TwoRows) Tiles::template add<2, 5, 6>();
    if (more) _tile_loadd(6, b, right_pitch);
    if constexpr (TwoRows && TwoCols) Tiles::template add<3, 5, 7>();
    if (more) load_second();
  }
  _tile_stored(0, c, sum_pitch);
  if constexpr (TwoCols) _tile_stored(1, c + 16, sum_pitch);
  if constexpr (TwoRows) _tile_stored(2, c + second_row, sum_pitch);
  if constexpr (TwoRows && TwoCols) _tile_stored(3, c + second_row + 16, sum_pitch);
}

/// The thread has tiles only in here: while it has them, the system saves them with its registers.
template <class Tiles, class Sum>
void multiply(tessera::detail::openmp::WordProduct<Sum> const& p) {
  asm volatile("" ::: "memory");  // compilers do not know what the instructions read and write
  _tile_loadconfig(&shapes);
  bool const packed = p.a_row == 0;
  Pitches const pitch{packed ? line_bytes : p.a_row, packed ? line_panel_bytes : line_bytes,
                      p.c_row * std::int64_t(sizeof(Sum))};
  for (int j = 0; j * word_panel < p.cols; ++j)
    for (int i = 0; i < p.rows; i += word_panel) {
      char const* const a = static_cast<char const*>(p.a) + i / word_panel * p.a_panel;
      char const* const b = static_cast<char const*>(p.b) + j * p.b_panel;
      Sum* const c = p.c + j * p.c_panel + i * p.c_row;
      bool const two_rows = p.rows - i > 16, two_cols = p.cols - j * word_panel > 16;
      if (two_rows && two_cols)
        multiply_tiles<Tiles, true, true>(a, b, p.lines, c, p.add, pitch);
      else if (two_rows)
        multiply_tiles<Tiles, true, false>(a, b, p.lines, c, p.add, pitch);
      else if (two_cols)
        multiply_tiles<Tiles, false, true>(a, b, p.lines, c, p.add, pitch);
      else
        multiply_tiles<Tiles, false, false>(a, b, p.lines, c, p.add, pitch);
    }
  _tile_release();
  asm volatile("" ::: "memory");
}

/// A NaN becomes the one that the storage type has; there are no subnormal sums, which vcvtne2ps2bf16 would make zero.
inline __m512i rounded(__m512 low, __m512 high) {
  __m512i const nan = _mm512_set1_epi16(0x7fff);
  __mmask32 const nans =
      _mm512_kunpackw(_mm512_cmp_ps_mask(high, high, _CMP_UNORD_Q), _mm512_cmp_ps_mask(low, low, _CMP_UNORD_Q));
  return _mm512_mask_mov_epi16(reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)), nans, nan);
}

/// See WordKernel.
void round_rows(float const* from, std::int64_t pitch, int rows, int n, void* to, std::int64_t row_bytes) {
  char* out = static_cast<char*>(to);
  int const whole = n / 32 * 32, rest = n - whole;
  for (int r = 0; r < rows; ++r, from += pitch, out += row_bytes) {
    for (int c = 0; c < whole; c += 32)
      _mm512_storeu_si512(out + 2 * c, rounded(_mm512_loadu_ps(from + c), _mm512_loadu_ps(from + c + 16)));
    if (rest > 0)  // a panel has all sums
      _mm512_mask_storeu_epi16(out + 2 * whole, (1u << rest) - 1,
                               rounded(_mm512_loadu_ps(from + whole), _mm512_loadu_ps(from + whole + 16)));
  }
}

}  // namespace

namespace tessera::detail::openmp {

extern WordWeights const weights_avx512_bf16;  // which all that have AMX run

extern Bf16Kernel const bf16_amx;
extern Int8Kernel const int8_amx;
Bf16Kernel const bf16_amx{pack_left<std::uint16_t>,
                          pack_right<std::uint16_t>,
                          multiply<TilesBf16, float>,
                          amx_bf16_clocks,
                          &weights_avx512_bf16,
                          true,
                          round_rows};
Int8Kernel const int8_amx{
    pack_left<std::int8_t>, pack_right<std::int8_t>, multiply<TilesInt8, std::int32_t>, amx_int8_clocks, nullptr, true};

}  // namespace tessera::detail::openmp
