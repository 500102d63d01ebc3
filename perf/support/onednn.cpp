// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/onednn.hpp"

#include <dnnl.hpp>
#include <stdexcept>
#include <unordered_map>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace tessera::perf {
namespace {

/// oneDNN takes as many threads as OpenMP would.
class Threads {
 public:
#if defined(_OPENMP)
  explicit Threads(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(Threads const&) = delete;
  Threads& operator=(Threads const&) = delete;

 private:
  int before_;
#else
  explicit Threads(int) {}
#endif
};

std::function<void()> fp32_product(OneDnnProduct const& x) {
  return [x] {
    Threads const threads(x.threads);
    dnnl_status_t const status =
        dnnl_sgemm(x.transpose_a ? 'T' : 'N', x.transpose_b ? 'T' : 'N', x.m, x.n, x.k, 1,
                   static_cast<float const*>(x.a), x.transpose_a ? x.m : x.k, static_cast<float const*>(x.b),
                   x.transpose_b ? x.k : x.n, x.beta, static_cast<float*>(x.c), x.n);
    if (status != dnnl_success) throw std::runtime_error("dnnl_sgemm: status " + std::to_string(status));
  };
}

std::function<void()> bf16_product(OneDnnProduct const& x) {
  using dnnl::memory;
  dnnl::engine const engine(dnnl::engine::kind::cpu, 0);
  auto const bound = [&](void const* data, std::int64_t rows, std::int64_t cols, bool transposed) {
    memory::dims const strides = transposed ? memory::dims{1, rows} : memory::dims{cols, 1};
    return memory({{rows, cols}, memory::data_type::bf16, strides}, engine, const_cast<void*>(data));
  };
  std::unordered_map<int, memory> const arguments = {{DNNL_ARG_SRC, bound(x.a, x.m, x.k, x.transpose_a)},
                                                     {DNNL_ARG_WEIGHTS, bound(x.b, x.k, x.n, x.transpose_b)},
                                                     {DNNL_ARG_DST, bound(x.c, x.m, x.n, false)}};
  auto const describe = [&](int argument) { return arguments.at(argument).get_desc(); };
#if DNNL_VERSION_MAJOR >= 3
  dnnl::matmul::primitive_desc const product(engine, describe(DNNL_ARG_SRC), describe(DNNL_ARG_WEIGHTS),
                                             describe(DNNL_ARG_DST));
#else
  dnnl::matmul::primitive_desc const product(
      {describe(DNNL_ARG_SRC), describe(DNNL_ARG_WEIGHTS), describe(DNNL_ARG_DST)}, engine);
#endif
  return [x, arguments, engine, run = dnnl::matmul(product), stream = dnnl::stream(engine)] {
    Threads const threads(x.threads);
    run.execute(stream, arguments);
    dnnl::stream(stream).wait();
  };
}

}  // namespace

std::function<void()> onednn_product(OneDnnProduct const& x) { return x.bf16 ? bf16_product(x) : fp32_product(x); }

std::string onednn_version() {
  dnnl_version_t const* const v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

}  // namespace tessera::perf
