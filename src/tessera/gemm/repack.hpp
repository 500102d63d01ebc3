// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_REPACK_HPP
#define TESSERA_GEMM_REPACK_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <numeric>

#include <tessera/detail/matrix.hpp>
#include <tessera/launch.hpp>

// Copies of factors that a pipeline cannot read where they lie: one more read and write of a factor against K reads of
// a slower path.
namespace tessera::detail {

inline constexpr int repack_bytes = 16;  // of a pack
/// Lines begin at multiples of it: a line of a tile that lies across two of the cache's takes twice the time to copy.
inline constexpr int repack_line_bytes = 128;

/// The stack's elements in lines of whole packs, one line after the other; along K unless `across` says otherwise.
inline MatrixStack repacked(MatrixStack const& m, bool across, void* to) {
  MatrixStack r = across ? m.transposed() : m;
  auto const pack = static_cast<std::int64_t>(repack_line_bytes / size_of(m.type));
  r.data = to;
  r.col_stride = 1;
  r.row_stride = (r.cols + pack - 1) / pack * pack;
  r.inner_stride = r.row_stride * r.rows;
  r.outer_stride = r.inner_stride * r.inner;
  return across ? r.transposed() : r;
}
/// Bytes behind `data` of such a stack.
inline std::size_t repacked_bytes(MatrixStack const& m, bool across) {
  MatrixStack const r = repacked(m, across, nullptr);
  return static_cast<std::size_t>(r.outer_stride * r.outer) * size_of(m.type);
}

/// Bytes that can be loaded at once from every pack of such a stack's lines: 8 or 4, 1 where fewer.
inline int repack_word(MatrixStack const& m) {
  if (m.col_stride != 1) return 1;
  auto const size = static_cast<std::int64_t>(size_of(m.type));
  auto multiple = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(m.data) % repack_bytes);
  if (m.rows > 1) multiple = std::gcd(multiple, m.row_stride * size);
  if (m.inner > 1) multiple = std::gcd(multiple, m.inner_stride * size);
  if (m.outer > 1) multiple = std::gcd(multiple, m.outer_stride * size);
  return multiple % 8 == 0 ? 8 : (multiple % 4 == 0 ? 4 : 1);
}

/// One pack of `to`, whose contiguous index is the second; what hangs over a line's end is zero. `Bits` has an
/// element's size.
template <class Bits>
struct Repack {
  static constexpr int count = repack_bytes / static_cast<int>(sizeof(Bits));
  struct alignas(repack_bytes) Pack {
    Bits v[count];
  };
  MatrixStack from, to;
  bool along_rows;  // neighbours take neighbouring lines: where those are contiguous in `from`
  int word;

  /// What lies behind the last pack of a line is never read.
  KOKKOS_FUNCTION std::int64_t line_packs() const { return (to.cols + count - 1) / count; }
  std::int64_t packs() const { return line_packs() * to.rows * to.inner * to.outer; }

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    std::int64_t const a_line = line_packs(), inner = along_rows ? to.rows : a_line,
                       middle = along_rows ? a_line : to.rows;
    std::int64_t rest = i, first = take_remainder(rest, inner), second = take_remainder(rest, middle);
    Plane plane;
    plane.inner = take_remainder(rest, to.inner);
    plane.outer = rest;
    std::int64_t const row = along_rows ? first : second, col = (along_rows ? second : first) * count;
    Bits const* const source = static_cast<Bits const*>(from.data) + from.offset(plane, row, col);
    auto* const at = static_cast<Bits*>(const_cast<void*>(to.data)) + to.offset(plane, row, col);
    bool const whole = col + count <= from.cols;
    if (whole && word == 8) return copy_words<std::uint64_t>(source, at);
    if (whole && word == 4) return copy_words<std::uint32_t>(source, at);
    Pack pack;
    for (int e = 0; e < count; ++e) pack.v[e] = col + e < from.cols ? source[e * from.col_stride] : Bits(0);
    *reinterpret_cast<Pack*>(at) = pack;
  }

 private:
  template <class Word>
  KOKKOS_FORCEINLINE_FUNCTION static void copy_words(Bits const* source, Bits* at) {
    struct alignas(repack_bytes) Words {
      Word v[repack_bytes / sizeof(Word)];
    } pack;
    for (int w = 0; w < int(repack_bytes / sizeof(Word)); ++w) pack.v[w] = reinterpret_cast<Word const*>(source)[w];
    *reinterpret_cast<Words*>(at) = pack;
  }
};

/// Fills repacked(from, across, ...).
template <class Exec>
void repack(Exec const& exec, MatrixStack from, bool across, MatrixStack to) {
  if (across) {
    from = from.transposed();
    to = to.transposed();
  }
  auto const run = [&](auto bits) {
    Repack<decltype(bits)> const kernel{from, to, from.col_stride != 1 && from.row_stride == 1, repack_word(from)};
    for_each_index("tessera::gemm repack", exec, kernel.packs(), kernel);
  };
  switch (size_of(from.type)) {
    case 1:
      return run(std::uint8_t());
    case 2:
      return run(std::uint16_t());
    default:
      return run(std::uint32_t());
  }
}

}  // namespace tessera::detail

#endif
