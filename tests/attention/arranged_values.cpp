// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/attention/arranged_values.hpp>

#include "attention/operands.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Atoms that want their keys backwards, `Rows` at a time.
template <int Rows>
struct Backwards {
  struct RowOrder {
    static constexpr int rows = Rows;
    KOKKOS_FUNCTION static constexpr int row(int place) { return Rows - 1 - place; }
  };
};

/// Every key is in its place, those behind a length are 0, and so is what hangs over behind the last.
template <class Exec, class T, class Bits, class Atoms>
void run_case(AttentionShape z, bool keys_contiguous, std::vector<int> const& lengths) {
  CAPTURE(z.keys);
  CAPTURE(z.d_v);
  CAPTURE(keys_contiguous);
  constexpr int rows = Atoms::RowOrder::rows;
  int const d = z.d_v;
  auto const in = uniform<T>(std::size_t(z.batch) * z.kv_heads * z.keys * d, 1);
  ViewOf<Exec, T****> const as_it_lies("V", z.batch, z.kv_heads, z.keys, d),
      turned("V", z.batch, z.kv_heads, d, z.keys);
  auto moved = in;
  for (std::size_t i = 0; i < in.size(); ++i) moved[(i / d / z.keys * d + i % d) * z.keys + i / d % z.keys] = in[i];
  fill(as_it_lies, in), fill(turned, moved);

  detail::AttentionProblem p;
  p.k.rows = z.keys;
  p.v.data = keys_contiguous ? static_cast<void const*>(turned.data()) : as_it_lies.data();
  p.v.type = scalar_of<T>;
  p.v.outer = z.batch, p.v.inner = z.kv_heads, p.v.rows = z.keys, p.v.cols = d;
  p.v.row_stride = keys_contiguous ? 1 : d, p.v.col_stride = keys_contiguous ? z.keys : 1;
  p.v.inner_stride = std::int64_t(z.keys) * d, p.v.outer_stride = p.v.inner_stride * z.kv_heads;
  ViewOf<Exec, int*> const device_lengths("lengths", z.batch);
  fill(device_lengths, lengths);
  p.key_lengths = device_lengths.data();
  p.key_lengths_stride = 1;
  ViewOf<Exec, T*> const out("arranged", detail::arranged_bytes(p) / sizeof(T));
  poison(out);
  detail::MatrixStack const to = detail::arranged_values(p, out.data());
  CHECK(to.col_stride * sizeof(T) % 128 == 0);
  CHECK(to.rows >= z.keys);
  detail::arrange_values<Bits, Atoms>(Exec{}, p, to);

  auto const got = values(out);
  int wrong = 0;
  for (int b = 0; b < z.batch; ++b)
    for (int h = 0; h < z.kv_heads; ++h)
      for (int place = 0; place < to.rows; ++place)
        for (int c = 0; c < d; ++c) {
          int const key = place / rows * rows + rows - 1 - place % rows;
          double const expected = key < std::min(lengths[b], z.keys)
                                      ? to_double(in[((std::size_t(b) * z.kv_heads + h) * z.keys + key) * d + c])
                                      : 0;
          if (to_double(got[to.offset({b, h}, place, c)]) != expected) ++wrong;
        }
  CHECK(wrong == 0);
}

/// One head of contiguous values, arranged backwards by groups of 16; behind a sequence's keys in a group there is 0.
template <class Exec>
struct Arranged {
  int rows, cols;
  std::vector<e4m3_t> in;
  ViewOf<Exec, e4m3_t**> v;
  detail::AttentionProblem p;

  Arranged(int all_rows, int features)
      : rows(all_rows), cols(features), in(uniform<e4m3_t>(std::size_t(rows) * cols, 1, 0.5, 2)), v("V", rows, cols) {
    fill(v, in);
    p.k.rows = p.v.rows = rows, p.v.cols = cols;
    p.v.data = v.data();
    p.v.type = Scalar::e4m3;
    p.v.row_stride = cols, p.v.col_stride = 1;
  }
  /// Element `place` of each feature is that of row row_of(place), or 0 where that is negative.
  template <class F>
  void check(int batch, F const& row_of) const {
    ViewOf<Exec, e4m3_t*> const out("arranged", detail::arranged_bytes(p));
    poison(out);
    detail::MatrixStack const to = detail::arranged_values(p, out.data());
    REQUIRE(to.outer == batch);
    detail::arrange_values<std::uint8_t, Backwards<16>>(Exec{}, p, to);
    auto const got = values(out);
    int wrong = 0;
    for (int b = 0; b < batch; ++b)
      for (int place = 0; place < to.rows; ++place)
        for (int c = 0; c < cols; ++c) {
          int const row = row_of(b, place / 16 * 16 + 15 - place % 16);
          wrong +=
              to_double(got[to.offset({b, 0}, place, c)]) != (row < 0 ? 0 : to_double(in[std::size_t(row) * cols + c]));
        }
    CHECK(wrong == 0);
  }
};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("packed sequences are arranged from multiples of 16 keys on", Exec, arranged_packed_id) {
  for (int features : {16, 7}) {
    Arranged<Exec> x(100, features);
    std::vector<int> const starts = {3, 20, 20, 55, 98}, lengths = {17, 5, 30, 99};
    ViewOf<Exec, int*> const starts_there("starts", starts.size()), lengths_there("lengths", lengths.size());
    fill(starts_there, starts), fill(lengths_there, lengths);
    x.p.packed.count = 4;
    x.p.packed.keys = {starts_there.data(), 1, 100};
    x.p.key_lengths = lengths_there.data(), x.p.key_lengths_stride = 1;
    x.check(1, [&](int, int place) {
      int s = 3;
      while (s > 0 && (starts[s] / 16 + s) * 16 > place) --s;
      int const key = place - (starts[s] / 16 + s) * 16, end = std::min(starts[s + 1] - starts[s], lengths[s]);
      return key >= 0 && key < end ? starts[s] + key : -1;
    });
  }
}
TEST_CASE_TEMPLATE_APPLY(arranged_packed_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("values in pages are arranged as those of their sequences", Exec, arranged_paged_id) {
  for (int page : {8, 32}) {
    CAPTURE(page);
    constexpr int columns = 3, pages = 7;
    Arranged<Exec> x(page, 16);
    x.in = uniform<e4m3_t>(std::size_t(pages) * page * 16, 1, 0.5, 2);
    x.v = ViewOf<Exec, e4m3_t**>("pages", pages * page, 16);
    fill(x.v, x.in);
    x.p.v.data = x.v.data();
    x.p.v.outer = pages, x.p.v.outer_stride = page * 16;
    std::vector<int> const table = {5, 0, 6, 2, 4, 99}, lengths = {3 * page, page + 3};
    ViewOf<Exec, int*> const table_there("table", table.size()), lengths_there("lengths", lengths.size());
    fill(table_there, table), fill(lengths_there, lengths);
    x.p.pages = {table_there.data(), columns, 1, columns, pages, page};
    x.p.q.outer = 2;
    x.p.key_lengths = lengths_there.data(), x.p.key_lengths_stride = 1;
    x.check(
        2, [&](int b, int key) { return key < lengths[b] ? table[b * columns + key / page] * page + key % page : -1; });
  }
}
TEST_CASE_TEMPLATE_APPLY(arranged_paged_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("values are arranged with the keys contiguous, whatever their strides", Exec, arranged_id) {
  for (bool keys_contiguous : {false, true}) {
    run_case<Exec, e4m3_t, std::uint8_t, Backwards<16>>({2, 1, 2, 1, 70, 1, 32}, keys_contiguous, {70, 33});
    run_case<Exec, e4m3_t, std::uint8_t, Backwards<16>>({2, 1, 1, 1, 33, 1, 7}, keys_contiguous, {0, 99});
    run_case<Exec, float, std::uint32_t, Backwards<8>>({2, 1, 2, 1, 70, 1, 8}, keys_contiguous, {70, 33});
    run_case<Exec, float, std::uint32_t, Backwards<8>>({2, 1, 1, 1, 9, 1, 5}, keys_contiguous, {9, 0});
  }
}
TEST_CASE_TEMPLATE_APPLY(arranged_id, Spaces);
