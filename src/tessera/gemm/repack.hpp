// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_REPACK_HPP
#define TESSERA_GEMM_REPACK_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <numeric>

#include <tessera/detail/matrix.hpp>
#include <tessera/launch.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/warp.hpp>

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
template <class Exec, class Bits>
struct Repack {
  static constexpr int words = repack_bytes / 4, of_word = 4 / static_cast<int>(sizeof(Bits)), count = words * of_word;
  using Pack = detail::Pack<std::uint32_t, words>;
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
    Bits* const place = static_cast<Bits*>(const_cast<void*>(to.data)) + to.offset(plane, row, col);
    // A compiler makes four or more stores of a pack that comes in several ways: 8191³ of bf16 1600 -> 1820 us.
    store_at_once<Exec>(reinterpret_cast<std::uint32_t*>(place), load(source, col));
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION Pack load(Bits const* source, std::int64_t col) const {
    Pack pack;
    if (col + count <= from.cols && word == 8) {
      for (int w = 0; w < words; w += 2) {
        std::uint64_t const two = reinterpret_cast<std::uint64_t const*>(source)[w / 2];
        pack[w] = static_cast<std::uint32_t>(two);
        pack[w + 1] = static_cast<std::uint32_t>(two >> 32);
      }
    } else if (col + count <= from.cols && word == 4) {
      for (int w = 0; w < words; ++w) pack[w] = reinterpret_cast<std::uint32_t const*>(source)[w];
    } else {
      for (int w = 0; w < words; ++w) {
        pack[w] = 0;
        for (int e = 0, at = w * of_word; e < of_word; ++e, ++at)
          if (col + at < from.cols)
            pack[w] |= static_cast<std::uint32_t>(source[at * from.col_stride]) << 32 / of_word * e;
      }
    }
    return pack;
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
    Repack<Exec, decltype(bits)> const kernel{from, to, from.col_stride != 1 && from.row_stride == 1,
                                              repack_word(from)};
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
