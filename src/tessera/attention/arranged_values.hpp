// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_ARRANGED_VALUES_HPP
#define TESSERA_ATTENTION_ARRANGED_VALUES_HPP

#include <cstddef>
#include <cstdint>

#include <tessera/attention/problem.hpp>
#include <tessera/launch.hpp>
#include <tessera/machine.hpp>
#include <tessera/unroll.hpp>

// V as atoms want it that read the right factor of weights with its rows, the keys, contiguous: one more read and write
// of V, against a read for every tile of queries.
namespace tessera::detail {

/// (keys, features) planes in lines of a feature's keys, each at a multiple of 128 bytes. Keys are rounded up to 32
/// bytes.
inline MatrixStack arranged_values(MatrixStack const& v, void* to) {
  auto const size = static_cast<std::int64_t>(size_of(v.type));
  auto const rounded_up = [&](std::int64_t bytes) { return (v.rows * size + bytes - 1) / bytes * bytes / size; };
  MatrixStack m = v;
  m.data = to;
  m.rows = rounded_up(32);
  m.row_stride = 1;
  m.col_stride = rounded_up(128);
  m.inner_stride = m.col_stride * m.cols;
  m.outer_stride = m.inner_stride * m.inner;
  return m;
}
/// Bytes of it, so many that what follows is aligned.
inline std::size_t arranged_bytes(MatrixStack const& v) {
  MatrixStack const m = arranged_values(v, nullptr);
  return (static_cast<std::size_t>(m.outer_stride * m.outer) * size_of(m.type) + 255) / 256 * 256;
}

/// A few keys of each of a few neighbouring features, together four bytes. `Order` says which key is in which
/// place; those behind the last that counts become zero, since weight 0 times NaN is NaN.
template <class Bits, class Order>
struct ArrangeValues {
  static constexpr int features = 4 / static_cast<int>(sizeof(Bits)), keys = Order::rows;
  struct alignas(4) Word {
    Bits v[features];
  };
  struct alignas(16) Pack {
    Bits v[keys];
  };
  MatrixStack from, to;
  int const* key_lengths;
  std::int64_t key_lengths_stride;
  bool words;  // features of a key lie in aligned words

  KOKKOS_FUNCTION std::int64_t feature_words() const { return (from.cols + features - 1) / features; }
  std::int64_t calls() const { return feature_words() * (to.rows / keys) * to.inner * to.outer; }

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    std::int64_t const col = take_remainder(i, feature_words()) * features,
                       first = take_remainder(i, to.rows / keys) * keys, inner = take_remainder(i, to.inner);
    Plane const plane{i, inner};
    std::int64_t end = from.rows;
    if (key_lengths != nullptr) {
      std::int64_t const length = key_lengths[plane.outer * key_lengths_stride];
      end = length < end ? length : end;
    }
    Word word[keys];
    if (words && first + keys <= end) {  // all on their way at once
      Bits const* const source = static_cast<Bits const*>(from.data) + from.offset(plane, first, col);
      TESSERA_UNROLL
      for (int k = 0; k < keys; ++k) word[k] = *reinterpret_cast<Word const*>(source + k * from.row_stride);
    } else {
      TESSERA_UNROLL
      for (int k = 0; k < keys; ++k) word[k] = first + k < end ? read(plane, first + k, col) : Word{};
    }
    TESSERA_UNROLL
    for (int f = 0; f < features; ++f) {
      if (col + f >= from.cols) return;
      Pack pack;
      TESSERA_UNROLL
      for (int place = 0; place < keys; ++place) pack.v[place] = word[Order::row(place)].v[f];
      auto* const line = static_cast<Bits*>(const_cast<void*>(to.data)) + to.offset(plane, first, col + f);
      *reinterpret_cast<Pack*>(line) = pack;
    }
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION Word read(Plane plane, std::int64_t row, std::int64_t col) const {
    Bits const* const source = static_cast<Bits const*>(from.data) + from.offset(plane, row, col);
    Word word{};
    for (int f = 0; f < features; ++f)
      if (col + f < from.cols) word.v[f] = source[f * from.col_stride];
    return word;
  }
};

/// Fills arranged_values(p.v, ...) for these atoms. `Bits` has an element's size.
template <class Bits, class Atoms, class Exec>
void arrange_values(Exec const& exec, AttentionProblem const& p, MatrixStack const& to) {
  using Kernel = ArrangeValues<Bits, typename Atoms::RowOrder>;
  Kernel const kernel{p.v, to, p.key_lengths, p.key_lengths_stride,
                      bulk_copyable(p.v) && p.v.cols % Kernel::features == 0};
  for_each_index("tessera::attention values", exec, kernel.calls(), kernel);
}

}  // namespace tessera::detail

#endif
