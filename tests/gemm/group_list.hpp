// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_GEMM_GROUP_LIST_HPP
#define TESSERA_TESTS_GEMM_GROUP_LIST_HPP

#include <tessera/gemm_grouped.hpp>

#include "product.hpp"

namespace tessera::test {

struct GroupSizes {
  int m, n, k;
};

/// A list of products in the memory of Exec, each of whose matrices has rows `pad` elements longer than they need be.
template <class Exec, class TA, class TB, class TC>
class GroupList {
  using Group = GemmGroup<TA, TB, TC>;

 public:
  GroupList(std::vector<GroupSizes> const& sizes, bool transpose_a, bool transpose_b, int pad)
      : sizes_(sizes), pad_(pad), transpose_a_(transpose_a), transpose_b_(transpose_b) {
    std::size_t in_a = 0, in_b = 0, in_c = 0;
    for (GroupSizes const& s : sizes) {
      in_a += std::size_t(transpose_a ? s.k : s.m) * pitch_a(s);
      in_b += std::size_t(transpose_b ? s.n : s.k) * pitch_b(s);
      in_c += std::size_t(s.m) * pitch_c(s);
    }
    a_ = ViewOf<Exec, TA*>("A", in_a);
    b_ = ViewOf<Exec, TB*>("B", in_b);
    c_ = ViewOf<Exec, TC*>("C", in_c);
    fill(a_, ah_ = uniform<TA>(in_a, 1, -4, 4));
    fill(b_, bh_ = uniform<TB>(in_b, 2, -4, 4));
    fill(c_, ch_ = uniform<TC>(in_c, 3, -4, 4));
    std::vector<Group> list;
    for_each([&](GroupSizes const& s, std::size_t at_a, std::size_t at_b, std::size_t at_c) {
      list.push_back(
          {s.m, s.n, s.k, a_.data() + at_a, pitch_a(s), b_.data() + at_b, pitch_b(s), c_.data() + at_c, pitch_c(s)});
    });
    groups_ = ViewOf<Exec, Group*>("groups", list.size());
    fill_groups(list);
  }

  auto const& groups() const { return groups_; }
  ViewOf<Exec, TC*> const& c() const { return c_; }

  /// The last product has fewer rows, as a kernel may say it that nobody waits for.
  void shorten_last(int rows) {
    sizes_.back().m = rows;
    auto const groups = groups_;
    Kokkos::parallel_for(
        "tessera::test::shorten_last", Kokkos::RangePolicy<Exec>(0, 1),
        KOKKOS_LAMBDA(int) { groups(groups.extent(0) - 1).m = rows; });
  }

  /// Every C against the reference plus added(row, column, group), and what lies between their rows as it was.
  template <class Compute>
  void check(double alpha, double beta) const {
    check<Compute>(alpha, beta, [](int, int, int) { return 0.; });
  }
  template <class Compute, class Added>
  void check(double alpha, double beta, Added const& added) const {
    auto const out = values(c_);
    int group = 0;
    for_each([&](GroupSizes const& s, std::size_t at_a, std::size_t at_b, std::size_t at_c) {
      CAPTURE(s.m);
      CAPTURE(s.n);
      CAPTURE(s.k);
      auto const a = matrix(ah_, at_a, s.m, s.k, pitch_a(s), transpose_a_);
      auto const b = matrix(bh_, at_b, s.k, s.n, pitch_b(s), transpose_b_);
      auto const before = matrix(ch_, at_c, s.m, s.n, pitch_c(s), false);
      auto const after = matrix(out, at_c, s.m, s.n, pitch_c(s), false);
      GemmReference r = gemm_reference(s.m, s.n, s.k, alpha, a, b, beta, before);
      for (std::size_t i = 0; i < r.c.size(); ++i) {
        double const more = added(static_cast<int>(i) / s.n, static_cast<int>(i) % s.n, group);
        r.c[i] += more;
        r.magnitude[i] += std::fabs(more);
      }
      ++group;
      if constexpr (std::is_integral_v<TC>) {
        long wrong = 0;
        for (std::size_t i = 0; i < after.size(); ++i) wrong += double(after[i]) != r.c[i];
        CHECK(wrong == 0);
      } else {
        check_gemm<Compute>(r, after, s.k);
      }
      long touched = 0;
      for (int i = 0; i < s.m; ++i)
        for (int j = s.n; j < pitch_c(s); ++j)
          touched += std::memcmp(&out[at_c + i * pitch_c(s) + j], &ch_[at_c + i * pitch_c(s) + j], sizeof(TC)) != 0;
      CHECK(touched == 0);
    });
  }

 private:
  std::int64_t pitch_a(GroupSizes const& s) const { return (transpose_a_ ? s.m : s.k) + pad_; }
  std::int64_t pitch_b(GroupSizes const& s) const { return (transpose_b_ ? s.k : s.n) + pad_; }
  std::int64_t pitch_c(GroupSizes const& s) const { return s.n + pad_; }

  template <class F>
  void for_each(F const& f) const {
    std::size_t at_a = 0, at_b = 0, at_c = 0;
    for (GroupSizes const& s : sizes_) {
      f(s, at_a, at_b, at_c);
      at_a += std::size_t(transpose_a_ ? s.k : s.m) * pitch_a(s);
      at_b += std::size_t(transpose_b_ ? s.n : s.k) * pitch_b(s);
      at_c += std::size_t(s.m) * pitch_c(s);
    }
  }
  template <class T>
  static std::vector<T> matrix(std::vector<T> const& from, std::size_t at, int rows, int cols, std::int64_t pitch,
                               bool transposed) {
    std::vector<T> x(std::size_t(rows) * cols);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j)
        x[std::size_t(i) * cols + j] = from[at + (transposed ? j * pitch + i : i * pitch + j)];
    return x;
  }
  void fill_groups(std::vector<Group> const& list) {
    Kokkos::View<Group const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> const host(list.data(), list.size());
    Kokkos::deep_copy(groups_, host);
  }

  std::vector<GroupSizes> sizes_;
  int pad_;
  bool transpose_a_, transpose_b_;
  ViewOf<Exec, TA*> a_;
  ViewOf<Exec, TB*> b_;
  ViewOf<Exec, TC*> c_;
  ViewOf<Exec, Group*> groups_;
  std::vector<TA> ah_;
  std::vector<TB> bh_;
  std::vector<TC> ch_;
};

}  // namespace tessera::test

#endif
