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

/// Packed sequences begin at multiples of so many keys in it: of every RowOrder::rows, too.
inline constexpr int arranged_group = 16;

/// (keys, features) planes in lines of a feature's keys, each at a multiple of 128 bytes: of pages those of each batch
/// entry, of packed sequences their rows of tiles (SequenceStarts). Keys are rounded up to 32 bytes.
inline MatrixStack arranged_values(AttentionProblem const& p, void* to) {
  auto const size = static_cast<std::int64_t>(size_of(p.v.type));
  std::int64_t const keys =
      p.packed.count > 0 ? p.packed.keys.tiles(p.packed.count, arranged_group) * arranged_group : p.keys();
  auto const rounded_up = [&](std::int64_t bytes) { return (keys * size + bytes - 1) / bytes * bytes / size; };
  MatrixStack m = p.v;
  m.data = to;
  m.rows = rounded_up(32);
  m.row_stride = 1;
  m.col_stride = rounded_up(128);
  m.inner_stride = m.col_stride * m.cols;
  m.outer_stride = m.inner_stride * m.inner;
  if (p.pages.present()) m.outer = p.q.outer;
  return m;
}
/// Bytes of it, so many that what follows is aligned.
inline std::size_t arranged_bytes(AttentionProblem const& p) {
  MatrixStack const m = arranged_values(p, nullptr);
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
  PageTable pages;
  PackedSequences packed;
  int const* key_lengths;
  std::int64_t key_lengths_stride;
  int all_keys;  // of a batch entry
  bool words;    // features of a key lie in aligned words

  KOKKOS_FUNCTION std::int64_t feature_words() const { return (from.cols + features - 1) / features; }
  std::int64_t calls() const { return feature_words() * (to.rows / keys) * to.inner * to.outer; }

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    std::int64_t const col = take_remainder(i, feature_words()) * features,
                       first = take_remainder(i, to.rows / keys) * keys, inner = take_remainder(i, to.inner);
    Plane const plane{i, inner};
    Keys const own = keys_at(plane, static_cast<int>(first));
    Word word[keys];
    if (own.first >= 0 && own.first + keys <= own.end && own.side_by_side) {  // all on their way at once
      Bits const* const source = static_cast<Bits const*>(from.data) + offset(own, plane, own.first, col);
      TESSERA_UNROLL
      for (int k = 0; k < keys; ++k) word[k] = *reinterpret_cast<Word const*>(source + k * from.row_stride);
    } else {
      TESSERA_UNROLL
      for (int k = 0; k < keys; ++k) {
        int const key = own.first + k;
        word[k] = key >= 0 && key < own.end ? read(offset(own, plane, key, col), col) : Word{};
      }
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
  /// What a group of places in `to` is for.
  struct Keys {
    int sequence, row;  // of `from` where it begins
    int first, end;     // keys of the sequence: that of the first place; so many count
    bool side_by_side;  // the group in memory, in words
  };
  KOKKOS_FORCEINLINE_FUNCTION Keys keys_at(Plane plane, int place) const {
    Keys own{static_cast<int>(plane.outer), 0, place, all_keys, words && pages.rows % keys == 0};
    if (packed.count > 0) {
      own.sequence = packed.keys.of_tile(place / arranged_group, arranged_group, packed.count);
      own.row = packed.keys(own.sequence);
      own.first -= packed.keys.first_tile(own.sequence, arranged_group) * arranged_group;
      own.end = packed.keys(own.sequence + 1) - own.row;
    }
    if (key_lengths != nullptr) {
      int const length = key_lengths[own.sequence * key_lengths_stride];
      own.end = length < own.end ? length : own.end;
    }
    return own;
  }
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t offset(Keys const& own, Plane plane, int key, std::int64_t col) const {
    if (!pages.present()) return from.offset(plane, own.row + key, col);
    PagedRows const rows{pages, own.sequence, plane.inner};
    return from.offset(rows.plane(key), rows.in_page(key), col);
  }
  KOKKOS_FORCEINLINE_FUNCTION Word read(std::int64_t at, std::int64_t col) const {
    Bits const* const source = static_cast<Bits const*>(from.data) + at;
    Word word{};
    for (int f = 0; f < features; ++f)
      if (col + f < from.cols) word.v[f] = source[f * from.col_stride];
    return word;
  }
};

/// Fills arranged_values(p, ...) for these atoms. `Bits` has an element's size.
template <class Bits, class Atoms, class Exec>
void arrange_values(Exec const& exec, AttentionProblem const& p, MatrixStack const& to) {
  using Kernel = ArrangeValues<Bits, typename Atoms::RowOrder>;
  static_assert(arranged_group % Kernel::keys == 0);
  Kernel const kernel{p.v,
                      to,
                      p.pages,
                      p.packed,
                      p.key_lengths,
                      p.key_lengths_stride,
                      static_cast<int>(p.keys()),
                      bulk_copyable(p.v) && p.v.cols % Kernel::features == 0};
  for_each_index("tessera::attention values", exec, kernel.calls(), kernel);
}

}  // namespace tessera::detail

#endif
