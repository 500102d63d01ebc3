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
  p.v.data = keys_contiguous ? static_cast<void const*>(turned.data()) : as_it_lies.data();
  p.v.type = scalar_of<T>;
  p.v.outer = z.batch, p.v.inner = z.kv_heads, p.v.rows = z.keys, p.v.cols = d;
  p.v.row_stride = keys_contiguous ? 1 : d, p.v.col_stride = keys_contiguous ? z.keys : 1;
  p.v.inner_stride = std::int64_t(z.keys) * d, p.v.outer_stride = p.v.inner_stride * z.kv_heads;
  ViewOf<Exec, int*> const device_lengths("lengths", z.batch);
  fill(device_lengths, lengths);
  p.key_lengths = device_lengths.data();
  p.key_lengths_stride = 1;
  ViewOf<Exec, T*> const out("arranged", detail::arranged_bytes(p.v) / sizeof(T));
  poison(out);
  detail::MatrixStack const to = detail::arranged_values(p.v, out.data());
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

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("values are arranged with the keys contiguous, whatever their strides", Exec, arranged_id) {
  for (bool keys_contiguous : {false, true}) {
    run_case<Exec, e4m3_t, std::uint8_t, Backwards<16>>({2, 1, 2, 1, 70, 1, 32}, keys_contiguous, {70, 33});
    run_case<Exec, e4m3_t, std::uint8_t, Backwards<16>>({2, 1, 1, 1, 33, 1, 7}, keys_contiguous, {0, 99});
    run_case<Exec, float, std::uint32_t, Backwards<8>>({2, 1, 2, 1, 70, 1, 8}, keys_contiguous, {70, 33});
    run_case<Exec, float, std::uint32_t, Backwards<8>>({2, 1, 1, 1, 9, 1, 5}, keys_contiguous, {9, 0});
  }
}
TEST_CASE_TEMPLATE_APPLY(arranged_id, Spaces);
