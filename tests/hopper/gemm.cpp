// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The warp-specialised pipeline against the fp64 reference; built only where it is part of the library.
#include <tessera/gemm.hpp>

#include <algorithm>
#include <tuple>

#include "reference/gemm.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Exec = Kokkos::Cuda;
using Kokkos::LayoutLeft;
using Kokkos::LayoutRight;
using Matrix = ViewOf<Exec, bf16_t**>;

/// Refuses any other algorithm.
constexpr GemmOptions hopper{.op_b = Op::transpose, .algorithm = Algorithm::hopper, .allow_fallback = false};

struct Size {
  int m, n, k;
};

template <class T>
std::vector<T> transposed(std::vector<T> const& x, int rows, int cols) {
  auto y = x;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) y[std::size_t(j) * rows + i] = x[std::size_t(i) * cols + j];
  return y;
}

/// What the tensor cores lose beside the sum in fp32. tf32: two factors rounded to 11 bits. 8 bits: 32 products and the
/// sum so far are aligned to the largest of them and cut at 13 bits; of 32 products of uniform numbers the largest is
/// below an eighth of their sum. In fast accumulation the sum so far is a larger one at every step.
template <class T>
double lost(int k, GemmOptions const& options) {
  if (sizeof(T) == 4) return std::ldexp(1.0, -10);
  if (sizeof(T) == 2) return 0;
  return std::ldexp(33.0 / 8 + (options.fast_accumulation ? k / 32.0 : 4), -13);
}

/// Operands and what their product must be: the last one asked for is kept, as a loop on the host takes longer than
/// all kernels that are compared with it.
template <class TA, class TB, class TC>
struct Expected {
  Size size{};
  double beta = 0;
  std::vector<TA> a;
  std::vector<TB> b;  // (n, k)
  std::vector<TC> c;
  GemmReference reference;

  static Expected const& of(Size s, double beta) {
    static Expected last;
    if (last.size.m != s.m || last.size.n != s.n || last.size.k != s.k || last.beta != beta) {
      last = {s,
              beta,
              uniform<TA>(std::size_t(s.m) * s.k, 1),
              uniform<TB>(std::size_t(s.n) * s.k, 2),
              uniform<TC>(std::size_t(s.m) * s.n, 3),
              {}};
      last.reference = gemm_reference(s.m, s.n, s.k, 1.5, last.a, transposed(last.b, s.n, s.k), beta, last.c);
    }
    return last;
  }
};

/// One product through gemm() and the reference. A is (m, k), B is (n, k), rows `pad` elements longer than they need be
/// and begun `begin` elements late.
template <class TA, class TB, class TC, class LA = LayoutRight, class LB = LayoutRight, class LC = LayoutRight>
void check_product(Size s, GemmOptions const& options = hopper, double beta = 0, int pad = 0, int begin = 0) {
  CAPTURE(s.m);
  CAPTURE(s.n);
  CAPTURE(s.k);
  CAPTURE(options.tile_m);
  CAPTURE(options.tile_n);
  CAPTURE(options.slices);
  CAPTURE(options.splits);
  CAPTURE(options.cluster_m);
  CAPTURE(options.cluster_n);
  CAPTURE(options.schedule);
  ViewOf<Exec, TA**, LA> a_wide("A", s.m, s.k + pad);
  ViewOf<Exec, TB**, LB> b_wide("B", s.n, s.k + pad);
  ViewOf<Exec, TC**, LC> c("C", s.m, s.n);
  auto const columns = std::pair(begin, begin + s.k);
  auto const a = Kokkos::subview(a_wide, Kokkos::ALL, columns);
  auto const b = Kokkos::subview(b_wide, Kokkos::ALL, columns);
  poison(a_wide, 0xFF), poison(b_wide, 0xFF);  // NaN in bf16, fp16, fp32 and 8 bits
  auto const& expected = Expected<TA, TB, TC>::of(s, beta);
  fill(a, expected.a), fill(b, expected.b), fill(c, expected.c);
  if (beta == 0) poison(c, 0xFF);
  GemmOptions with_workspace = options;
  with_workspace.workspace_bytes = gemm_workspace_size(Exec{}, 1.5, a, b, beta, c, options);
  GuardedWorkspace<Exec> const workspace(with_workspace.workspace_bytes);
  with_workspace.workspace = workspace.data();
  gemm(Exec{}, 1.5, a, b, beta, c, with_workspace);
  CHECK(workspace.margins_untouched());
  check_gemm<float>(expected.reference, values(c), s.k, lost<TA>(s.k, options));
}

GemmOptions with_tile(GemmOptions options, int m, int n, int slices) {
  options.tile_m = m, options.tile_n = n, options.slices = slices, options.splits = 1;
  return options;
}
GemmOptions with_tile(GemmOptions const& options, detail::GemmBulkTile const& tile, int slices) {
  GemmOptions chosen = with_tile(options, tile.rows, tile.columns, slices);
  chosen.schedule = tile.schedule;
  return chosen;
}
GemmOptions with_schedule(GemmOptions options, Schedule schedule) {
  options.schedule = schedule;
  return options;
}
GemmOptions with_cluster(GemmOptions options, detail::Cluster const& cluster) {
  options.cluster_m = cluster.rows, options.cluster_n = cluster.cols;
  return options;
}
/// Whether there is such a kernel for factors of 16 bits, whatever C is.
bool takes_any_result(detail::GemmBulkTile const& tile) {
  return detail::has_gemm_bulk_tile(tile, 2, false, false, false) && !tile.turned();
}
/// Every kernel there is for factors of T, with as many slices as K can have.
enum class Results { any, packs };
template <class T>
std::vector<GemmOptions> all_tiles(GemmOptions const& options, int k, bool across = false,
                                   Results results = Results::any) {
  constexpr detail::BulkSum sum = detail::bulk_sum(scalar_of<T>, scalar_of<T>);
  std::vector<GemmOptions> all;
  for (detail::GemmBulkTile const& tile : detail::gemm_bulk_tiles) {
    bool const promoted = detail::gemm_bulk_promotes(sum, tile, options.fast_accumulation);
    if (!detail::has_gemm_bulk_tile(tile, sizeof(T), across, promoted, false)) continue;
    if (tile.turned() && results == Results::any) continue;
    int const most = std::min(tile.max_slices, (k * int(sizeof(T)) + 127) / 128);
    for (int slices = 1; slices <= most; ++slices) all.push_back(with_tile(options, tile, slices));
    for (detail::Cluster const& cluster : detail::gemm_clusters)
      if (detail::divides_tile(cluster, tile)) all.push_back(with_cluster(with_tile(options, tile, 1), cluster));
  }
  return all;
}

}  // namespace

TEST_CASE("the hopper pipeline multiplies sizes that are no multiple of its tiles") {
  for (Size s : {Size{128, 256, 64}, Size{1, 8, 8}, Size{136, 264, 72}, Size{64, 1000, 8}, Size{257, 520, 328},
                 Size{3000, 2056, 136}})
    for (double beta : {0.0, 0.5}) check_product<bf16_t, bf16_t, bf16_t>(s, hopper, beta);
}

TEST_CASE("the hopper pipeline multiplies with every tile and number of slices") {
  for (Size s : {Size{200, 304, 264}, Size{64, 128, 512}, Size{600, 1304, 1032}, Size{139, 401, 200}}) {
    auto const options = all_tiles<bf16_t>(hopper, s.k);
    for (GemmOptions const& o : options) check_product<bf16_t, bf16_t, bf16_t>(s, o, 0.5);
    for (double beta : {0.0, -0.5})
      for (GemmOptions const& o : options) check_product<fp16_t, fp16_t, float>(s, o, beta);
  }
}

TEST_CASE_TEMPLATE("the hopper pipeline stores packs by every tile, turned ones too", T, bf16_t, fp16_t) {
  for (Size s : {Size{200, 304, 264}, Size{1, 8, 8}, Size{64, 128, 512}, Size{139, 1304, 200}})
    for (GemmOptions const& options : all_tiles<T>(hopper, s.k, false, Results::packs)) {
      check_product<T, T, T>(s, options);
      if (s.m % 8 == 0) check_product<T, T, T, LayoutRight, LayoutRight, LayoutLeft>(s, options, 0, 3, 1);
    }
}

TEST_CASE("turned tiles refuse what is not stored by packs") {
  Matrix a("A", 64, 64), b("B", 72, 64), c("C", 64, 72), odd("C", 64, 65);
  ViewOf<Exec, float**> wide("C", 64, 72);
  GemmOptions const options = with_schedule(hopper, Schedule::turned);
  CHECK_NOTHROW(gemm(Exec{}, 1, a, b, 0, c, options));
  CHECK_THROWS_AS(gemm(Exec{}, 1, a, b, 1, c, options), Error);
  CHECK_THROWS_AS(gemm(Exec{}, 1, a, b, 0, wide, options), Error);
  CHECK_THROWS_AS(gemm(Exec{}, 1, a, Kokkos::subview(b, std::pair(0, 65), Kokkos::ALL), 0, odd, options), Error);
  Exec{}.fence();
}

TEST_CASE("the hopper pipeline multiplies with K in parts and every tile") {
  auto const with_splits = [](GemmOptions options, int splits) {
    options.splits = splits;
    return options;
  };
  for (int const splits : {2, 5})
    for (Size s : {Size{200, 304, 1032}, Size{64, 128, 520}}) {
      for (detail::GemmBulkTile const& tile : detail::gemm_bulk_tiles) {
        if (!takes_any_result(tile)) continue;
        GemmOptions const options = with_splits(with_tile(hopper, tile, 1), splits);
        check_product<bf16_t, bf16_t, bf16_t>(s, options, 0.5);
        check_product<fp16_t, fp16_t, float>(s, options);
        check_product<bf16_t, bf16_t, e4m3_t, LayoutRight, LayoutRight, LayoutLeft>(s, options, -0.5);
      }
      for (detail::Cluster const& cluster : detail::gemm_clusters)
        check_product<bf16_t, bf16_t, bf16_t>(
            s, with_splits(with_cluster(with_tile(hopper, 128, 256, 1), cluster), splits));
      check_product<bf16_t, bf16_t, float, LayoutLeft, LayoutRight>(s, with_splits(hopper, splits));
      check_product<bf16_t, bf16_t, bf16_t, LayoutLeft, LayoutLeft>(s, with_splits(hopper, splits), 0.5, 3, 1);
      check_product<e4m3_t, e4m3_t, bf16_t>(s, with_splits(hopper, splits), 0, 3, 1);
      check_product<e4m3_t, e5m2_t, float>(s, with_splits(hopper, splits), 0.5);
    }
  GemmOptions tf32 = with_splits(hopper, 3);
  tf32.allow_tf32 = true;
  check_product<float, float, float>({200, 304, 516}, tf32, 0.5);
}

TEST_CASE("the halves of a team take turns over many tiles") {
  for (Size s : {Size{3000, 2600, 72}, Size{2300, 2104, 264}})
    for (double beta : {0.0, 0.5})
      for (detail::GemmBulkTile const& tile : detail::gemm_bulk_tiles)
        if (tile.ping_pong())
          for (detail::Cluster const& cluster : detail::gemm_clusters)
            if (detail::divides_tile(cluster, tile))
              check_product<bf16_t, bf16_t, bf16_t>(s, with_cluster(with_tile(hopper, tile, 1), cluster), beta);
}

TEST_CASE("the hopper pipeline multiplies 16-bit types with a tile of 64 columns") {
  for (detail::Cluster const& cluster : detail::gemm_clusters) {
    GemmOptions const options = with_cluster(with_tile(hopper, 64, 64, 1), cluster);
    for (Size s : {Size{200, 304, 264}, Size{64, 64, 8}, Size{300, 72, 520}}) {
      check_product<bf16_t, bf16_t, bf16_t>(s, options, 0.5);
      check_product<fp16_t, fp16_t, e4m3_t>(s, options);
    }
  }
}

TEST_CASE("the hopper pipeline repeats its bits") {
  int const m = 200, n = 304, k = 1024;
  Matrix a("A", m, k), b("B", n, k), c("C", m, n);
  fill(a, uniform<bf16_t>(a.size(), 1)), fill(b, uniform<bf16_t>(b.size(), 2));
  for (GemmOptions const& options : all_tiles<bf16_t>(hopper, k, false, Results::packs)) {
    gemm(Exec{}, 1, a, b, 0, c, options);
    auto const first = values(c);
    for (int i = 0; i < 3; ++i) {
      gemm(Exec{}, 1, a, b, 0, c, options);
      auto const again = values(c);
      CHECK(std::memcmp(first.data(), again.data(), first.size() * sizeof(bf16_t)) == 0);
    }
  }
}

// A kernel begins while those before it run, and goes through its end beforehand where its teams have one tile each.
TEST_CASE("a product waits for those whose factors and results it reads and writes") {
  int const n = 328;
  Matrix a("A", n, n), x[2] = {Matrix("x", n, n), Matrix("y", n, n)};
  auto const start = uniform<bf16_t>(a.size(), 2);
  fill(a, uniform<bf16_t>(a.size(), 1));
  for (GemmOptions const& options : all_tiles<bf16_t>(hopper, n, false, Results::packs)) {
    auto const chain = [&](bool fenced) {
      fill(x[0], start), poison(x[1], 0xFF);
      for (int i = 0; i < 12; ++i) {
        gemm(Exec{}, 0.1, a, x[i % 2], 0, x[(i + 1) % 2], options);
        if (fenced) Exec{}.fence();
      }
      return values(x[0]);
    };
    auto const one_by_one = chain(true), in_a_row = chain(false);
    CAPTURE(options.tile_m);
    CAPTURE(options.tile_n);
    CHECK(std::isfinite(static_cast<float>(one_by_one.front())));
    CHECK(std::memcmp(one_by_one.data(), in_a_row.data(), one_by_one.size() * sizeof(bf16_t)) == 0);
  }
}

TEST_CASE_TEMPLATE("the hopper pipeline takes factors contiguous along either index", T, bf16_t, fp16_t) {
  for (Size s : {Size{200, 304, 232}, Size{64, 128, 264}})
    for (GemmOptions const& options : all_tiles<T>(hopper, s.k, true)) {
      check_product<T, T, T, LayoutLeft, LayoutRight>(s, options);
      check_product<T, T, T, LayoutRight, LayoutLeft>(s, options);
      check_product<T, T, T, LayoutLeft, LayoutLeft>(s, options, 0.5);
      check_product<T, T, T, LayoutLeft, LayoutRight, LayoutLeft>(s, options);
    }
  check_product<T, T, T, LayoutLeft, LayoutRight>({256, 512, 101});  // K itself need be no multiple of anything
  check_product<T, T, T, LayoutLeft, LayoutLeft>({256, 512, 101});
}

TEST_CASE_TEMPLATE("the hopper pipeline takes any address and leading dimension with a workspace", T, bf16_t, fp16_t,
                   e4m3_t) {
  for (Size s : {Size{1, 1, 1}, Size{9, 23, 65}, Size{255, 257, 127}, Size{300, 517, 203}})
    for (auto [pad, begin] : {std::pair(0, 0), std::pair(6, 3), std::pair(1, 1)}) {
      check_product<T, T, T>(s, hopper, 0.5, pad, begin);
      check_product<T, T, T, LayoutLeft, LayoutRight>(s, hopper, 0, pad, begin);
      check_product<T, T, T, LayoutLeft, LayoutLeft>(s, hopper, 0, pad, begin);
    }
  for (GemmOptions const& options : all_tiles<T>(hopper, 600))
    if (options.tile_n < 256 || sizeof(T) > 1) check_product<T, T, T>({255, 517, 600}, options, 0, 3, 1);
}

TEST_CASE("the hopper pipeline stores any type, with any strides") {
  for (Size s : {Size{200, 304, 136}, Size{129, 257, 72}})
    for (detail::GemmBulkTile const& tile : detail::gemm_bulk_tiles) {
      if (!takes_any_result(tile)) continue;
      GemmOptions const options = with_tile(hopper, tile, 1);
      check_product<bf16_t, bf16_t, float>(s, options, 0.5);
      check_product<bf16_t, bf16_t, float>(s, options);
      check_product<bf16_t, bf16_t, fp16_t>(s, options);
      check_product<bf16_t, bf16_t, e4m3_t>(s, options);
      check_product<fp16_t, fp16_t, e5m2_t>(s, options);
      check_product<bf16_t, bf16_t, float, LayoutRight, LayoutRight, LayoutLeft>(s, options, 0.5);
    }
}

TEST_CASE_TEMPLATE("the hopper pipeline rounds to 8 bits as a cast does, also what does not fit", T, e4m3_t, e5m2_t) {
  int const m = 130, n = 272, k = 8;
  Matrix a("A", m, k), b("B", n, k);
  ViewOf<Exec, float**> wide("C", m, n);
  ViewOf<Exec, T**> narrow("C", m, n);
  auto ah = uniform<bf16_t>(a.size(), 1, -1e5, 1e5);
  ah[0] = bf16_t(NAN), ah[k] = bf16_t(INFINITY), ah[2 * k] = bf16_t(-INFINITY);
  for (int i = 3 * k; i < 40 * k; ++i) ah[i] = bf16_t(float(ah[i]) * std::ldexp(1.f, -i / k));
  fill(a, ah), fill(b, uniform<bf16_t>(b.size(), 2));
  for (auto [tile_m, tile_n] : {std::pair(128, 256), std::pair(64, 128)}) {  // through the copy engine, and without
    GemmOptions const options = with_tile(hopper, tile_m, tile_n, 1);
    gemm(Exec{}, 1, a, b, 0, wide, options);
    gemm(Exec{}, 1, a, b, 0, narrow, options);
    auto const x = values(wide);
    auto const y = values(narrow);
    int wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) wrong += y[i].bits() != T(x[i]).bits();
    CHECK(wrong == 0);
  }
}

TEST_CASE("the hopper pipeline multiplies integers with every tile and number of slices") {
  int const m = 130, n = 272, k = 1040;
  ViewOf<Exec, std::int8_t**> a("A", m, k), b("B", n, k);
  ViewOf<Exec, std::int32_t**> c("C", m, n), expected("C", m, n);
  fill(a, uniform<std::int8_t>(a.size(), 1, -129, 128)), fill(b, uniform<std::int8_t>(b.size(), 2, -129, 128));
  gemm(Exec{}, 1, a, b, 0, expected, {.op_b = Op::transpose, .algorithm = Algorithm::coalesced});
  for (GemmOptions const& options : all_tiles<std::int8_t>(hopper, k)) {
    poison(c);
    gemm(Exec{}, 1, a, b, 0, c, options);
    CHECK(values(c) == values(expected));
  }
  GemmOptions split = hopper;
  split.splits = 4;
  split.workspace_bytes = gemm_workspace_size(Exec{}, 1, a, b, 0, c, split);
  ViewOf<Exec, unsigned char*> const workspace("workspace", split.workspace_bytes);
  split.workspace = workspace.data();
  poison(c);
  gemm(Exec{}, 1, a, b, 0, c, split);
  CHECK(values(c) == values(expected));
}

TEST_CASE("the hopper pipeline multiplies 8-bit types with each other") {
  for (bool const fast : {false, true}) {
    GemmOptions options = hopper;
    options.fast_accumulation = fast;
    for (Size s : {Size{200, 304, 272}, Size{1, 8, 16}}) {
      check_product<e4m3_t, e4m3_t, bf16_t>(s, options);
      check_product<e4m3_t, e5m2_t, float>(s, options, 0.5);
      check_product<e5m2_t, e4m3_t, fp16_t>(s, options);
      check_product<e5m2_t, e4m3_t, e4m3_t>(s, options, 1);
    }
    for (GemmOptions const& tile : all_tiles<e4m3_t>(options, 528))
      check_product<e4m3_t, e4m3_t, bf16_t>({200, 304, 528}, tile);
  }
}

TEST_CASE("the hopper pipeline rounds fp32 factors to tf32 where that is allowed") {
  GemmOptions options = hopper;
  options.allow_tf32 = true;
  for (Size s : {Size{200, 304, 132}, Size{64, 4, 256}})
    for (GemmOptions const& tile : all_tiles<float>(options, s.k)) check_product<float, float, float>(s, tile, 0.5);
  check_product<float, float, bf16_t>({129, 256, 100}, options);
  check_product<float, float, float>({129, 255, 99}, options, 0, 1, 1);
  check_product<float, float, float, LayoutLeft, LayoutLeft>({129, 255, 99}, options);
}

TEST_CASE("the hopper pipeline leaves what lies around a strided C alone") {
  Matrix a("A", 100, 64), b("B", 200, 64), wide("C", 103, 232);
  fill(a, uniform<bf16_t>(a.size(), 1)), fill(b, uniform<bf16_t>(b.size(), 2));
  poison(wide);
  auto const c = Kokkos::subview(wide, std::pair(2, 102), std::pair(16, 216));
  gemm(Exec{}, 1, a, b, 0, c, hopper);
  check_gemm<float>(gemm_reference(100, 200, 64, 1, values(a), transposed(values(b), 200, 64), 0, values(c)), values(c),
                    64);
  auto const all = values(wide);
  for (int i = 0; i < 103; ++i)
    for (int j = 0; j < 232; ++j)
      if (i < 2 || i >= 102 || j < 16 || j >= 216) CHECK(all[i * 232 + j].bits() == 0xA5A5);
}

TEST_CASE("gemm checks its workspace before it writes") {
  Matrix a("A", 63, 63), b("B", 64, 63), c("C", 63, 64);
  poison(c);
  std::size_t const bytes = gemm_workspace_size(Exec{}, 1, a, b, 0, c, hopper);
  CHECK(bytes >= (63 + 64) * 64 * sizeof(bf16_t));
  ViewOf<Exec, unsigned char*> workspace("workspace", bytes + 256);
  GemmOptions options = hopper;
  options.workspace_bytes = bytes;
  CHECK(contains(error_of([&] { gemm(Exec{}, 1, a, b, 0, c, options); }, ErrorCode::workspace), "without an address"));
  options.workspace = workspace.data() + 1;
  CHECK(contains(error_of([&] { gemm(Exec{}, 1, a, b, 0, c, options); }, ErrorCode::workspace), "16 bytes"));
  options.workspace = a.data();
  CHECK(contains(error_of([&] { gemm(Exec{}, 1, a, b, 0, c, options); }, ErrorCode::overlap), "workspace"));
  options.workspace = workspace.data();
  options.workspace_bytes = bytes - 1;
  CHECK(contains(error_of([&] { gemm(Exec{}, 1, a, b, 0, c, options); }, ErrorCode::unsupported), "too small"));
  CHECK(is_poisoned(c));
}

TEST_CASE("the hopper pipeline multiplies batches") {
  int const batch = 3, m = 72, n = 80, k = 96;
  ViewOf<Exec, bf16_t***> a("A", batch, m, k), c("C", batch, m, n);
  Matrix b("B", n, k);
  auto const ah = uniform<bf16_t>(a.size(), 1), bh = uniform<bf16_t>(b.size(), 2);
  fill(a, ah), fill(b, bh);
  gemm(Exec{}, 1, a, b, 0, c, hopper);
  auto const ch = values(c);
  for (int i = 0; i < batch; ++i) {
    std::vector<bf16_t> const ai(ah.begin() + i * m * k, ah.begin() + (i + 1) * m * k),
        ci(ch.begin() + i * m * n, ch.begin() + (i + 1) * m * n);
    check_gemm<float>(gemm_reference(m, n, k, 1, ai, transposed(bh, n, k), 0, ci), ci, k);
  }
}

TEST_CASE("the hopper pipeline takes a user's epilogue") {
  int const m = 150, n = 296, k = 40;
  Matrix a("A", m, k), b("B", n, k), c("C", m, n);
  ViewOf<Exec, float*> bias("bias", n);
  auto const ah = uniform<bf16_t>(a.size(), 1), bh = uniform<bf16_t>(b.size(), 2);
  auto const biases = uniform<float>(n, 3);
  fill(a, ah), fill(b, bh), fill(bias, biases);
  gemm(Exec{}, 1, a, b, 0, c, hopper, epilogue::chain(epilogue::bias(bias), epilogue::Relu{}));
  auto r = gemm_reference(m, n, k, 1, ah, transposed(bh, n, k), 0, values(c));
  for (std::size_t i = 0; i < r.c.size(); ++i) {
    r.c[i] = std::max(0.0, r.c[i] + biases[i % n]);
    r.magnitude[i] += 1;
  }
  check_gemm<float>(r, values(c), k);
}

TEST_CASE("the plan names what keeps a product from the hopper pipeline") {
  Matrix a("A", 64, 64), b("B", 64, 64), c("C", 64, 64), odd("A", 64, 63), odd_b("B", 64, 63);
  ViewOf<Exec, float**> wide("C", 64, 64), wide_a("A", 64, 64), wide_b("B", 64, 64);
  auto const plan = [](auto const& x, auto const& y, auto const& z, Op op) {
    return gemm_plan(Exec{}, 1, x, y, 0, z, {.op_b = op});
  };
  CHECK(plan(a, b, c, Op::transpose).algorithm == Algorithm::hopper);
  CHECK(plan(a, b, c, Op::none).algorithm == Algorithm::hopper);
  CHECK(contains(plan(odd, odd_b, c, Op::transpose).reason, "options.workspace"));
  CHECK(plan(a, b, wide, Op::transpose).algorithm == Algorithm::hopper);
  CHECK(contains(plan(wide_a, wide_b, wide, Op::transpose).reason, "allow_tf32"));
  ViewOf<Exec, e5m2_t**> const narrow_a("A", 64, 64), narrow_b("B", 64, 64);
  CHECK(contains(plan(narrow_a, narrow_b, wide, Op::transpose).reason, "e4m3 with 8-bit"));
  CHECK(contains(plan(a, wide_b, wide, Op::transpose).reason, "with their own"));
  CHECK(contains(error_of([&] { gemm(Exec{}, 1, odd, odd_b, 0, c, hopper); }, ErrorCode::unsupported),
                 "options.workspace"));
  CHECK(contains(error_of([&] { gemm(Exec{}, 1, a, b, 0, c, with_tile(hopper, 32, 32, 1)); }, ErrorCode::unsupported),
                 "no such tile"));
}
