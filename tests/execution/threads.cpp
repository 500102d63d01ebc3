// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// CPUs with any number of threads, also more than there are cores; CTest runs these cases with several numbers.
#include <algorithm>
#include <thread>

#include <tessera/arg_reduce.hpp>
#include <tessera/attention.hpp>
#include <tessera/cast.hpp>
#include <tessera/functors.hpp>
#include <tessera/gemm.hpp>
#include <tessera/normalization.hpp>
#include <tessera/quantize.hpp>
#include <tessera/reduce.hpp>
#include <tessera/softmax.hpp>
#include <tessera/transform.hpp>

#include "support/support.hpp"

using namespace tessera;
using namespace tessera::test;

#if defined(KOKKOS_ENABLE_OPENMP) && defined(KOKKOS_ENABLE_SERIAL)
namespace {

/// Operations whose results do not depend on who does what, enough of each for several cores.
template <class Exec>
struct Several {
  ViewOf<Exec, float**> a{"a", 301, 403}, b{"b", 203, 403}, c{"c", 301, 203}, y{"y", 301, 403}, z{"z", 301, 403};
  ViewOf<Exec, float*> columns{"columns", 403}, weight{"weight", 403};
  ViewOf<Exec, std::int64_t*> places{"places", 301};
  ViewOf<Exec, float> all{"all"};
  Kokkos::View<std::byte*, typename Exec::memory_space> workspace{"workspace", 16384};
  ViewOf<Exec, bf16_t**> narrow{"narrow", 301, 403};
  ViewOf<Exec, e4m3_t**> quantized{"quantized", 301, 403};
  ViewOf<Exec, float**> scales{"scales", 301, 4};
  ViewOf<Exec, float****> q{"q", 2, 3, 130, 64}, o{"o", 2, 3, 130, 64};

  Several() {
    fill(a, uniform<float>(a.size(), 1)), fill(b, uniform<float>(b.size(), 2));
    fill(weight, uniform<float>(weight.size(), 3)), fill(q, uniform<float>(q.size(), 4));
  }
  void run(Exec const& e) const {
    gemm(e, 1, a, b, 0, c, {.op_b = Op::transpose});
    softmax(e, y, a);
    rms_norm(e, z, y, weight);
    transform(e, z, fn::multiply{}, z, a);
    cast(e, narrow, z);
    quantize(e, quantized, scales, narrow, {.granularity = Granularity::tile_1x128});
    reduce(e, all, z, Reduction::sum, {.workspace = workspace});
    reduce(e, columns, z, Reduction::norm2, {.axis = 0, .workspace = workspace});
    argmax(e, places, z, {.axis = 1, .workspace = workspace});
    attention(e, o, q, q, q, {.causal = true});
  }
  std::vector<double> results() const {
    std::vector<double> r;
    auto const add = [&](auto const& view) {
      for (auto const& x : values(view)) r.push_back(to_double(x));
    };
    add(c), add(y), add(z), add(narrow), add(quantized), add(scales), add(all), add(columns), add(places), add(o);
    return r;
  }
};

}  // namespace

TEST_CASE("threads: as many as there are give the bits of one (OpenMP)") {
  Several<Kokkos::Serial> const one;
  Several<Kokkos::OpenMP> const all;
  one.run(Kokkos::Serial{});
  for (int i = 0; i < 3; ++i) {
    all.run(Kokkos::OpenMP{});
    Kokkos::fence();
    CHECK(all.results() == one.results());
  }
}

TEST_CASE("threads: those of a parallel region call operations (OpenMP)") {
  int const callers = std::min(3, Kokkos::OpenMP{}.concurrency());  // Kokkos has data for no more
  Several<Kokkos::Serial> const one;
  one.run(Kokkos::Serial{});
  std::vector<Several<Kokkos::OpenMP>> const each(callers);
#pragma omp parallel for num_threads(callers)
  for (int i = 0; i < callers; ++i) each[i].run(Kokkos::OpenMP{});
  Kokkos::fence();
  for (auto const& x : each) CHECK(x.results() == one.results());
}

TEST_CASE("threads: those that OpenMP did not start call operations (OpenMP)") {
  Several<Kokkos::Serial> const one;
  one.run(Kokkos::Serial{});
  Several<Kokkos::OpenMP> const first, second;
  std::thread other([&] { first.run(Kokkos::OpenMP{}); });
  second.run(Kokkos::OpenMP{});
  other.join();
  Kokkos::fence();
  CHECK(first.results() == one.results());
  CHECK(second.results() == one.results());
}
#endif
