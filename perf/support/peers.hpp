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
#include "support/extents.hpp"

#if defined(TESSERA_PERF_OPENBLAS)
#include <cblas.h>
#include <cctype>
#include <cstdlib>
#endif
#if defined(TESSERA_PERF_ONEDNN)
#include "support/onednn.hpp"
#endif
#if defined(TESSERA_PERF_CUBLASLT) && defined(KOKKOS_ENABLE_CUDA)
#include "support/cublaslt.hpp"
#endif

// The matrix products of other libraries, as far as they were there when this was built.
namespace tessera::perf {

/// C (M, N) = op(A) op(B), all row-major without gaps: A (M, K), or (K, M) to be transposed; B (K, N), or (N, K). Of a
/// batch the matrices lie one below the other.
template <class Exec, class T, class TC>
struct GemmOperands {
  std::int64_t batch, m, n, k;
  bool transpose_a, transpose_b;
  Matrix<Exec, T> a, b;
  Matrix<Exec, TC> c;
  bool tf32 = false;               // fp32 operands may be rounded to it
  bool fast_accumulation = false;  // of 8-bit operands
  bool adds = false;               // C = op(A) op(B) + C / 2, which never overflows however often it runs

  double beta() const { return adds ? 0.5 : 0; }
  GemmOptions options(Algorithm algorithm = Algorithm::automatic) const {
    return {.op_a = transpose_a ? Op::transpose : Op::none,
            .op_b = transpose_b ? Op::transpose : Op::none,
            .algorithm = algorithm,
            .allow_tf32 = tf32,
            .fast_accumulation = fast_accumulation};
  }
};

/// What C holds: 8-bit floating-point products are stored in bf16, as is usual, and sums of integers as they are.
template <class T>
using GemmResult =
    std::conditional_t<std::is_same_v<T, std::int8_t>, std::int32_t, std::conditional_t<sizeof(T) == 1, bf16_t, T>>;

/// variant: "NN", "NT", "TN" or "TT", op(A) first.
template <class Exec, class T, class TC = GemmResult<T>>
GemmOperands<Exec, T, TC> gemm_operands(Exec const& exec, std::string const& variant, ProductShape const& s) {
  bool const ta = variant[0] == 'T', tb = variant[1] == 'T';
  return {s.batch,
          s.m,
          s.n,
          s.k,
          ta,
          tb,
          random_view<Matrix<Exec, T>>(exec, 1, s.batch * (ta ? s.k : s.m), ta ? s.m : s.k),
          random_view<Matrix<Exec, T>>(exec, 2, s.batch * (tb ? s.n : s.k), tb ? s.k : s.n),
          zero_view<Matrix<Exec, TC>>(exec, s.batch * s.m, s.n)};
}

/// Matrices one below the other as gemm takes a batch; `matrices` still owns the memory.
template <class View>
auto stacked(View const& matrices, std::int64_t batch) {
  using Stack = Kokkos::View<typename View::value_type***, Kokkos::LayoutRight, typename View::memory_space,
                             Kokkos::MemoryUnmanaged>;
  auto const count = static_cast<std::size_t>(batch);
  return Stack(matrices.data(), count, matrices.extent(0) / count, matrices.extent(1));
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
                        auto const beta = static_cast<T>(x.beta());
                        auto const op = [](bool transpose) { return transpose ? CblasTrans : CblasNoTrans; };
                        blasint const lda = i(x.transpose_a ? x.m : x.k), ldb = i(x.transpose_b ? x.k : x.n);
                        openblas_set_num_threads(threads);
                        if constexpr (std::is_same_v<T, double>)
                          cblas_dgemm(CblasRowMajor, op(x.transpose_a), op(x.transpose_b), i(x.m), i(x.n), i(x.k), 1,
                                      x.a.data(), lda, x.b.data(), ldb, beta, x.c.data(), i(x.n));
                        else
                          cblas_sgemm(CblasRowMajor, op(x.transpose_a), op(x.transpose_b), i(x.m), i(x.n), i(x.k), 1,
                                      x.a.data(), lda, x.b.data(), ldb, beta, x.c.data(), i(x.n));
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
/// fp32, and bf16, which BLAS does not have.
template <class Exec, class T>
Implementation onednn_gemm(Exec const& exec, GemmOperands<Exec, T, T> const& x) {
  auto const run = onednn_product({.m = x.m,
                                   .n = x.n,
                                   .k = x.k,
                                   .transpose_a = x.transpose_a,
                                   .transpose_b = x.transpose_b,
                                   .bf16 = std::is_same_v<T, bf16_t>,
                                   .a = x.a.data(),
                                   .b = x.b.data(),
                                   .c = x.c.data(),
                                   .beta = static_cast<float>(x.beta()),
                                   .threads = exec.concurrency()});
  return {"onednn", [x, run] { run(); }};
}
#endif

#if defined(TESSERA_PERF_CUBLASLT) && defined(KOKKOS_ENABLE_CUDA)
template <class Exec, class T, class TC>
CublasLtProblem cublaslt_problem(GemmOperands<Exec, T, TC> const& x) {
  auto const [batch, m, n, k] = ProductShape{x.batch, x.m, x.n, x.k};
  constexpr cudaDataType_t type = cuda_data_type<T>();
  return {.a = {x.a.data(), type, x.transpose_a ? k : m, x.transpose_a ? m : k, x.transpose_a},
          .b = {x.b.data(), type, x.transpose_b ? n : k, x.transpose_b ? k : n, x.transpose_b},
          .c = {x.c.data(), cuda_data_type<TC>(), m, n, false},
          .batch = batch,
          .compute = cublas_compute_type<TC>(x.tf32),
          .fast_accumulation = x.fast_accumulation,
          .beta = x.beta()};
}
#endif

/// The names of the libraries that can multiply `batch` matrices of these types, or add a product to C, in one call on
/// this backend.
template <class Exec, class T>
std::vector<std::string> gemm_peers([[maybe_unused]] std::int64_t batch = 1, [[maybe_unused]] bool adds = false) {
  std::vector<std::string> names;
  if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible) {
#if defined(TESSERA_PERF_OPENBLAS)
    if (batch == 1 && (std::is_same_v<T, float> || std::is_same_v<T, double>)) names.push_back("openblas");
#endif
#if defined(TESSERA_PERF_ONEDNN)
    if (batch == 1 && (std::is_same_v<T, float> || (std::is_same_v<T, bf16_t> && !adds))) names.push_back("onednn");
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
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, bf16_t>)
      if (name == "onednn") return onednn_gemm<Exec, T>(exec, x);
#endif
  } else {
#if defined(TESSERA_PERF_CUBLASLT) && defined(KOKKOS_ENABLE_CUDA)
    return cublaslt_gemm(exec.cuda_stream(), cublaslt_problem(x), x);
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
  facts.emplace_back("onednn", onednn_version());
#endif
#if defined(TESSERA_PERF_CUBLASLT) && defined(KOKKOS_ENABLE_CUDA)
  facts.emplace_back("cublaslt", cublaslt_version());
#endif
  return facts;
}

}  // namespace tessera::perf

#endif
