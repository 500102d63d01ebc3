// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_PEERS_HPP
#define TESSERA_PERF_PEERS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/gemm.hpp>
#include "support/contest.hpp"
#include "support/data.hpp"

#if defined(TESSERA_PERF_OPENBLAS)
#include <cblas.h>
#include <cctype>
#include <cstdlib>
#endif
#if defined(TESSERA_PERF_ONEDNN)
#include <dnnl.h>
#endif
#if defined(TESSERA_PERF_CUBLASLT) && defined(KOKKOS_ENABLE_CUDA)
#include "support/cublaslt.hpp"
#endif
#if defined(_OPENMP)
#include <omp.h>
#endif

// The matrix products of other libraries, as far as they were there when this was built.
namespace tessera::perf {

/// C (M, N) = op(A) op(B), all row-major without gaps: A (M, K), or (K, M) to be transposed; B (K, N), or (N, K).
template <class Exec, class T, class TC>
struct GemmOperands {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  Matrix<Exec, T> a, b;
  Matrix<Exec, TC> c;
  bool tf32 = false;  // fp32 operands may be rounded to it

  GemmOptions options(Algorithm algorithm = Algorithm::automatic) const {
    return {.op_a = transpose_a ? Op::transpose : Op::none,
            .op_b = transpose_b ? Op::transpose : Op::none,
            .algorithm = algorithm,
            .allow_tf32 = tf32};
  }
};

/// What C holds: 8-bit products are stored in bf16, as is usual.
template <class T>
using GemmResult = std::conditional_t<sizeof(T) == 1, bf16_t, T>;

/// variant: "NN", "NT", "TN" or "TT", op(A) first.
template <class Exec, class T>
GemmOperands<Exec, T, GemmResult<T>> gemm_operands(Exec const& exec, std::string const& variant, std::int64_t m,
                                                   std::int64_t n, std::int64_t k) {
  using TC = GemmResult<T>;
  bool const ta = variant[0] == 'T', tb = variant[1] == 'T';
  return {m,
          n,
          k,
          ta,
          tb,
          random_view<Matrix<Exec, T>>(exec, 1, ta ? k : m, ta ? m : k),
          random_view<Matrix<Exec, T>>(exec, 2, tb ? n : k, tb ? k : n),
          zero_view<Matrix<Exec, TC>>(exec, m, n)};
}

inline std::string check_gemm_variant(std::string const& variant) {
  if (variant != "NN" && variant != "NT" && variant != "TN" && variant != "TT")
    throw std::invalid_argument("--variant=" + variant + ": NN, NT, TN or TT");
  return variant;
}

#if defined(TESSERA_PERF_OPENBLAS)
template <class Exec, class T>
Implementation openblas_gemm(Exec const& exec, GemmOperands<Exec, T, T> const& x) {
  int const threads = exec.concurrency();
  Implementation peer{"openblas", [x, threads] {
                        auto const i = [](std::int64_t value) { return static_cast<blasint>(value); };
                        auto const op = [](bool transpose) { return transpose ? CblasTrans : CblasNoTrans; };
                        blasint const lda = i(x.transpose_a ? x.m : x.k), ldb = i(x.transpose_b ? x.k : x.n);
                        openblas_set_num_threads(threads);
                        if constexpr (std::is_same_v<T, double>)
                          cblas_dgemm(CblasRowMajor, op(x.transpose_a), op(x.transpose_b), i(x.m), i(x.n), i(x.k), 1,
                                      x.a.data(), lda, x.b.data(), ldb, 0, x.c.data(), i(x.n));
                        else
                          cblas_sgemm(CblasRowMajor, op(x.transpose_a), op(x.transpose_b), i(x.m), i(x.n), i(x.k), 1,
                                      x.a.data(), lda, x.b.data(), ldb, 0, x.c.data(), i(x.n));
                      }};
  peer.own_threads = openblas_get_parallel() == OPENBLAS_THREAD;
  // The library's own threads are made on the core to which OpenMP has bound ours, all of them.
  char const* const bound = std::getenv("OMP_PROC_BIND");
  if (peer.own_threads && bound != nullptr && std::tolower(*bound) != 'f')  // "false", in any case
    peer.error = "this OpenBLAS has threads of its own, which OMP_PROC_BIND puts on one core: use its OpenMP build";
  return peer;
}
#endif

#if defined(TESSERA_PERF_ONEDNN)
template <class Exec>
Implementation onednn_gemm(Exec const& exec, GemmOperands<Exec, float, float> const& x) {
  int const threads = exec.concurrency();
  return {"onednn", [x, threads] {
#if defined(_OPENMP)
            int const before = omp_get_max_threads();
            omp_set_num_threads(threads);
#endif
            dnnl_status_t const status =
                dnnl_sgemm(x.transpose_a ? 'T' : 'N', x.transpose_b ? 'T' : 'N', x.m, x.n, x.k, 1, x.a.data(),
                           x.transpose_a ? x.m : x.k, x.b.data(), x.transpose_b ? x.k : x.n, 0, x.c.data(), x.n);
#if defined(_OPENMP)
            omp_set_num_threads(before);
#endif
            if (status != dnnl_success) throw std::runtime_error("dnnl_sgemm: status " + std::to_string(status));
          }};
}
#endif

/// The names of the libraries that can multiply these types on this backend.
template <class Exec, class T>
std::vector<std::string> gemm_peers() {
  std::vector<std::string> names;
  if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible) {
#if defined(TESSERA_PERF_OPENBLAS)
    if (std::is_same_v<T, float> || std::is_same_v<T, double>) names.push_back("openblas");
#endif
#if defined(TESSERA_PERF_ONEDNN)
    if (std::is_same_v<T, float>) names.push_back("onednn");
#endif
  } else {
#if defined(TESSERA_PERF_CUBLASLT) && defined(KOKKOS_ENABLE_CUDA)
    names.push_back("cublaslt");
#endif
  }
  return names;
}

/// The implementation of one of gemm_peers().
template <class Exec, class T>
Implementation gemm_peer([[maybe_unused]] std::string const& name, [[maybe_unused]] Exec const& exec,
                         [[maybe_unused]] GemmOperands<Exec, T, GemmResult<T>> const& x) {
  if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible) {
#if defined(TESSERA_PERF_OPENBLAS)
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
      if (name == "openblas") return openblas_gemm<Exec, T>(exec, x);
#endif
#if defined(TESSERA_PERF_ONEDNN)
    if constexpr (std::is_same_v<T, float>)
      if (name == "onednn") return onednn_gemm(exec, x);
#endif
  } else {
#if defined(TESSERA_PERF_CUBLASLT) && defined(KOKKOS_ENABLE_CUDA)
    return cublaslt_gemm(exec.cuda_stream(), x.m, x.n, x.k, x.transpose_a, x.transpose_b, x.a.data(), x.b.data(),
                         x.c.data(), x.tf32);
#endif
  }
  throw std::logic_error("no peer " + name);
}

/// Versions of the libraries compared with.
template <class Exec>
Facts peer_facts() {
  Facts facts;
#if defined(TESSERA_PERF_OPENBLAS)
  facts.emplace_back("openblas", std::string(openblas_get_config()) + " on " + openblas_get_corename());
#endif
#if defined(TESSERA_PERF_ONEDNN)
  dnnl_version_t const* const v = dnnl_version();
  facts.emplace_back("onednn",
                     std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch));
#endif
#if defined(TESSERA_PERF_CUBLASLT) && defined(KOKKOS_ENABLE_CUDA)
  facts.emplace_back("cublaslt", cublaslt_version());
#endif
  return facts;
}

}  // namespace tessera::perf

#endif
