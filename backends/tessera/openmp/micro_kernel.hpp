// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_MICRO_KERNEL_HPP
#define TESSERA_OPENMP_MICRO_KERNEL_HPP

// The CPU's multiply atoms: panels of rows times panels of columns. One binary holds a version for every instruction
// set; the best one the processor has is picked at run time. docs/adding-a-micro-kernel.md tells how to add one.
#include <cstdint>

namespace tessera::detail::openmp {

/// Rows of a left panel and columns of a right one. 12 x 2 vectors is what 32 registers of AVX-512 hold beside the
/// operands; AVX2 walks the same panels in pieces of 6 x 2 vectors.
inline constexpr int panel_rows = 12;
template <class T>
inline constexpr int panel_cols = 128 / static_cast<int>(sizeof(T));
/// Those of matrices that are packed once for all tiles, for AVX-512, which walks 8 x 3 vectors at a time: 11 loads for
/// 24 products in place of 14, worth 5 %. (Small tiles would have more of a panel left. AVX2 would lose 3 %.)
inline constexpr int wide_rows = 16;
template <class T>
inline constexpr int wide_cols = 192 / static_cast<int>(sizeof(T));

/// What a micro-kernel fetches meanwhile: the left panel that comes next, the sums that lie behind those of c, and, a
/// line of the cache each step of k as far as those go, of a right panel that comes next and of a left one for later,
/// into the second-level cache. Nothing where there is no next left panel.
struct PanelsAhead {
  char const* next_left = nullptr;
  char const* right = nullptr;
  char const* left = nullptr;
  int right_lines = 0, left_lines = 0;
};

/// c[rows][cols] (+)= a[k][rows]^T b[k][cols] of a panel's rows and columns; a, b and c 64-byte aligned or not.
template <class T>
using MicroKernel = void (*)(T const* a, T const* b, T* c, int k, bool add, PanelsAhead ahead);
struct MicroKernelsOfTypes {
  MicroKernel<float> fp32 = nullptr;
  MicroKernel<double> fp64 = nullptr;
  MicroKernel<std::int32_t> int32 = nullptr;
};
struct MicroKernels {
  MicroKernelsOfTypes of_panels;
  MicroKernelsOfTypes of_wide_panels = {};  // where it has any, of wide_rows x wide_cols
};

/// The best version this processor runs, or the one TESSERA_MAX_ISA caps it to.
template <class T>
MicroKernel<T> micro_kernel();
/// For wide panels; nullptr: it would gain nothing by them.
template <class T>
MicroKernel<T> wide_micro_kernel();

/// Lines of memory that what comes next reads or writes: `lines` of each of `rows` rows.
struct LinesAhead {
  char const* from = nullptr;
  std::int64_t row_bytes = 0;
  int rows = 0, lines = 0;
};

/// The same of up to panel_rows rows and panel_cols columns, of factors that lie anywhere: a(i, p) at a[i * a_row + p *
/// a_k], b(p, j) at b[p * b_k + j], c(i, j) at c[i * c_row + j]. Nothing else is read or written.
template <class T>
struct StridedProduct {
  T const* a;
  std::int64_t a_row, a_k;
  T const* b;
  std::int64_t b_k;
  T* c;
  std::int64_t c_row;
  int rows, cols, k;
  bool add;
  LinesAhead factor = {}, result = {};  // one of each is fetched every step of k, as long as there are some
};
template <class T>
using StridedKernel = void (*)(StridedProduct<T> const&);
/// nullptr: no instruction set that runs is good at it, and factors are packed.
template <class T>
StridedKernel<T> strided_kernel();

/// c(i, j) (+)= the sum over p of a(i, p) b(j, p), of factors that are contiguous along p: a(i, p) at a[i * a_row + p],
/// b(j, p) at b[j * b_row + p], c(i, j) at c[i * c_row + j * c_col]. Nothing else is read or written.
template <class T>
struct DotProducts {
  T const* a;
  std::int64_t a_row;
  T const* b;
  std::int64_t b_row;
  T* c;
  std::int64_t c_row, c_col;
  int rows, cols;
  std::int64_t k;
  bool add;
};
template <class T>
using DotKernel = void (*)(DotProducts<T> const&);
/// nullptr: no instruction set that runs is good at it.
template <class T>
DotKernel<T> dot_kernel();

/// How elements of the type of the sum become panels.
template <class T>
struct PanelPacking {
  /// Rows that are contiguous along k: to[c * width + r] = from[r * row_stride + c] for n <= width rows of k elements,
  /// zero for what a panel of `width` rows has beyond. Unless `ahead` is 0, what lies so many elements further is
  /// fetched meanwhile.
  void (*along)(T const* from, std::int64_t row_stride, int n, int k, std::int64_t ahead, T* to, int width);
  /// Any number n of rows that are neighbours: to[r / width * panel + c * width + r % width] = from[c * col_stride +
  /// r], zero for what the last panel has beyond.
  void (*across)(T const* from, std::int64_t col_stride, int n, int k, T* to, std::int64_t panel, int width);
};
/// nullptr: no instruction set that runs is better at it than what compilers make of vectors of 16 bytes.
template <class T>
PanelPacking<T> const* panel_packing();

/// Panels of narrow elements, for instructions that multiply words of 32 bits: two neighbours along K of 16 bits, or
/// four of 8, are a dot product. 32 x 32 is what AMX has tiles for; vectors walk it in pieces. A line is 64 bytes of K.
inline constexpr int word_panel = 32, line_bytes = 64, line_words = 16, line_panel_bytes = word_panel * line_bytes;

/// Panels times panels, of one tile.
template <class Sum>
struct WordProduct {
  void const *a, *b;              // panels, one behind the other
  std::int64_t a_panel, b_panel;  // bytes from one to the next
  Sum* c;                         // [panel of columns][row][word_panel]
  std::int64_t c_panel;           // elements from one panel of columns to the next
  int rows, cols, lines;          // that hold something
  bool add;
  // Of kernels that read rows: bytes from a row to the next of a left factor that lies anywhere, of whole lines and
  // whole halves of panels, 0 where it is packed; and elements of c from a row to the next.
  std::int64_t a_row = 0, c_row = word_panel;
};

/// k sums of word_panel columns side by side become a panel of a right factor, whose rows those columns are.
struct WordWeights {
  void (*round)(float const* from, int k, void* to);
  /// The same, in place, of 2^(x scale - base[c]) of the first `columns`, 16 or 32, as ColumnLoops has it.
  void (*weigh)(float* x, int k, int columns, float scale, float const* base, float* sums);
  /// Sums become exponentials or differences as ColumnLoops has them, where base is of each of the k, and words too.
  void (*exponentials)(float* x, int k, int columns, float scale, float const* base, void* to);
  void (*differences)(float* x, float const* factors, int k, int columns, float const* base, void* to);
  /// The same sums as a line of each of k rows of a left factor, of which word_panel are a panel and those lie
  /// `panel` bytes apart: the first `columns` of them, zero behind.
  void (*lines)(float const* from, int k, int columns, void* to, std::int64_t panel);
};

/// A micro-kernel for narrow elements and how it wants them packed. Storage is the bits of bf16 (std::uint16_t) or
/// int8.
template <class Storage, class Sum>
struct WordKernel {
  using Element = Storage;
  /// n rows of k elements, strides in elements of which one is 1, become a panel [line][word_panel][line_bytes] of a
  /// left factor, or [line][line_words][word_panel][4] of a right one. What the rows lack, and k of a line, becomes
  /// zero.
  using Pack = void (*)(Storage const* from, std::int64_t row_stride, std::int64_t col_stride, int n, int k, void* to);
  Pack pack_left, pack_right;
  void (*multiply)(WordProduct<Sum> const&);
  double step_clocks;                    // of a step of k of a panel times a panel, for those who choose tiles
  WordWeights const* weights = nullptr;  // nullptr: this kernel has no such
  bool reads_rows = false;               // it takes a_row and c_row
  /// Then: n sums of each of `rows` rows, `pitch` elements apart, become bf16. What lies behind them is read up to the
  /// end of a panel.
  void (*round_rows)(Sum const* from, std::int64_t pitch, int rows, int n, void* to, std::int64_t row_bytes) = nullptr;
};
using Bf16Kernel = WordKernel<std::uint16_t, float>;
using Int8Kernel = WordKernel<std::int8_t, std::int32_t>;
/// `step_clocks` of AMX, which what stands in for it has too: users then choose the same tiles.
inline constexpr double amx_bf16_clocks = 3, amx_int8_clocks = 1.5;

/// The best version this processor runs, within the cap, or the one TESSERA_WORD_KERNELS names; nullptr: it has none,
/// and elements are widened.
template <class Kernel>
Kernel const* word_kernel();

/// Contiguous elements between memory and fp32, to the bits as the storage types convert (but for the payload of a NaN
/// that is widened).
struct Conversions {
  using Widen = void (*)(void const* from, int n, float* to);
  using Round = void (*)(float const* from, int n, void* to);
  Widen fp16, bf16, e4m3, e5m2;
  Round to_fp16, to_bf16;
};
/// nullptr: no instruction set that runs is faster than what compilers make of the storage types.
Conversions const* conversions();

/// The instruction set of what micro_kernel<T>() or word_kernel<T>() chose, as TESSERA_MAX_ISA has it: "baseline",
/// "avx2", "avx512", "avx512_vnni", "avx512_bf16" or "amx"; or "amx_stand_in", as TESSERA_WORD_KERNELS has it.
template <class T>
char const* instruction_set();

}  // namespace tessera::detail::openmp

#endif
