// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_PAGED_HPP
#define TESSERA_TESTS_PAGED_HPP

#include <numeric>
#include <utility>
#include <vector>

#include <tessera/attention_options.hpp>

#include "reference/attention.hpp"

namespace tessera::test {

/// (B, H, S, c) as (B, S, H, c), elements listed last index first.
template <class T>
std::vector<T> swapped_heads(std::vector<T> const& from, int batch, int heads, int rows, int d) {
  auto to = from;
  for (int b = 0; b < batch; ++b)
    for (int h = 0; h < heads; ++h)
      for (int i = 0; i < rows; ++i)
        for (int c = 0; c < d; ++c)
          to[((std::size_t(b) * rows + i) * heads + h) * d + c] =
              from[((std::size_t(b) * heads + h) * rows + i) * d + c];
  return to;
}

/// Keys and values of sequences, and the same in the pages of a pool, in shuffled order with pages between them that
/// nobody uses. What does not count is NaN, and entries of the table that do not count are no pages.
template <class Exec, class T>
struct PagedKeys {
  std::vector<T> kh, vh;  // (B, H_kv, keys, ·)
  ViewOf<Exec, T****> k, v;
  ViewOf<Exec, int**> table;
  ViewOf<Exec, int*> lengths;

  PagedKeys(AttentionShape z, int page, std::vector<int> const& of_entries, AttentionLayout layout)
      : PagedKeys(z, page, of_entries, layout, uniform<T>(std::size_t(z.batch) * z.kv_heads * z.keys * z.d, 1, -2, 2),
                  uniform<T>(std::size_t(z.batch) * z.kv_heads * z.keys * z.d_v, 2)) {}
  PagedKeys(AttentionShape z, int page, std::vector<int> const& of_entries, AttentionLayout layout, std::vector<T> keys,
            std::vector<T> their_values)
      : kh(std::move(keys)), vh(std::move(their_values)) {
    int const columns = (z.keys + page - 1) / page, pages = z.batch * columns + 3;
    int step = 7;  // without a common factor, all pages differ
    while (std::gcd(step, pages) > 1) ++step;
    bool const heads_first = layout == AttentionLayout::bhsd;
    int const second = heads_first ? z.kv_heads : page, third = heads_first ? page : z.kv_heads;
    k = ViewOf<Exec, T****>("K", pages, second, third, z.d);
    v = ViewOf<Exec, T****>("V", pages, second, third, z.d_v);
    table = ViewOf<Exec, int**>("table", z.batch, columns);
    lengths = ViewOf<Exec, int*>("lengths", z.batch);
    std::vector<T> k_pool(k.size(), T(NAN)), v_pool(v.size(), T(NAN));
    std::vector<int> entries(table.size(), -1);
    for (int b = 0; b < z.batch; ++b)
      for (int i = 0; i * page < of_entries[b]; ++i) {
        int const to = (b * columns + i) * step % pages;
        entries[b * columns + i] = to;
        for (int h = 0; h < z.kv_heads; ++h)
          for (int j = i * page; j < std::min(of_entries[b], (i + 1) * page); ++j) {
            std::size_t const from = (std::size_t(b) * z.kv_heads + h) * z.keys + j,
                              row = (std::size_t(to) * z.kv_heads + h) * page + j % page;
            std::copy_n(&kh[from * z.d], z.d, &k_pool[row * z.d]);
            std::copy_n(&vh[from * z.d_v], z.d_v, &v_pool[row * z.d_v]);
          }
      }
    fill(k, heads_first ? k_pool : swapped_heads(k_pool, pages, z.kv_heads, page, z.d));
    fill(v, heads_first ? v_pool : swapped_heads(v_pool, pages, z.kv_heads, page, z.d_v));
    fill(table, entries);
    fill(lengths, of_entries);
  }
};

}  // namespace tessera::test

#endif
