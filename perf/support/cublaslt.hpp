// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_CUBLASLT_HPP
#define TESSERA_PERF_CUBLASLT_HPP

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <tessera/types.hpp>
#include "support/contest.hpp"
#include "support/cuda.hpp"

// cuBLASLt as it should be called: a workspace, and the best of the first eight algorithms that its heuristic names.
namespace tessera::perf {

inline void check_cublas(cublasStatus_t status, char const* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": cuBLAS status " + std::to_string(static_cast<int>(status)));
}

inline std::string cublaslt_version() {
  std::size_t const v = cublasLtGetVersion();
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

template <class T>
constexpr cudaDataType_t cuda_data_type() {
  if constexpr (std::is_same_v<T, double>) return CUDA_R_64F;
  if constexpr (std::is_same_v<T, float>) return CUDA_R_32F;
  if constexpr (std::is_same_v<T, fp16_t>) return CUDA_R_16F;
  if constexpr (std::is_same_v<T, bf16_t>) return CUDA_R_16BF;
  if constexpr (std::is_same_v<T, e4m3_t>) return CUDA_R_8F_E4M3;
  if constexpr (std::is_same_v<T, e5m2_t>) return CUDA_R_8F_E5M2;
}

/// A row-major product is the column-major product of the transposes in the other order: B comes first.
class CublasLtGemm {
 public:
  struct Operand {
    void* data;
    cudaDataType_t type;
    std::int64_t rows, cols;  // as stored, row-major without gaps
    bool transpose;
  };

  CublasLtGemm(cudaStream_t stream, Operand const& a, Operand const& b, Operand const& c, bool tf32)
      : stream_(stream), a_(a), b_(b), c_(c), fp64_(c.type == CUDA_R_64F) {
    check_cublas(cublasLtCreate(&handle_), "cublasLtCreate");
    check_cuda(cudaMalloc(&workspace_, workspace_bytes), "cudaMalloc");
    check_cublas(
        cublasLtMatmulDescCreate(
            &operation_, fp64_ ? CUBLAS_COMPUTE_64F : (tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F),
            fp64_ ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, b.transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, a.transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
    layout_a_ = layout(a);
    layout_b_ = layout(b);
    layout_c_ = layout(c);
    choose();
  }
  ~CublasLtGemm() {
    for (cublasLtMatrixLayout_t const l : {layout_a_, layout_b_, layout_c_})
      if (l != nullptr) cublasLtMatrixLayoutDestroy(l);
    if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
    if (handle_ != nullptr) cublasLtDestroy(handle_);
    cudaFree(workspace_);
  }
  CublasLtGemm(CublasLtGemm const&) = delete;
  CublasLtGemm& operator=(CublasLtGemm const&) = delete;

  void operator()() const { check_cublas(run(algorithm_), "cublasLtMatmul"); }
  std::string label() const { return "algorithm " + std::to_string(chosen_ + 1) + " of " + std::to_string(found_); }

 private:
  static constexpr std::size_t workspace_bytes = 64 << 20;

  void set(cublasLtMatmulDescAttributes_t attribute, cublasOperation_t value) {
    check_cublas(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof(value)),
                 "cublasLtMatmulDescSetAttribute");
  }
  static cublasLtMatrixLayout_t layout(Operand const& x) {
    cublasLtMatrixLayout_t l = nullptr;
    check_cublas(cublasLtMatrixLayoutCreate(&l, x.type, static_cast<std::uint64_t>(x.cols),
                                            static_cast<std::uint64_t>(x.rows), x.cols),
                 "cublasLtMatrixLayoutCreate");
    return l;
  }
  cublasStatus_t run(cublasLtMatmulAlgo_t const& algorithm) const {
    double const one = 1, zero = 0;
    float const one32 = 1, zero32 = 0;
    void const* const alpha = fp64_ ? static_cast<void const*>(&one) : &one32;
    void const* const beta = fp64_ ? static_cast<void const*>(&zero) : &zero32;
    return cublasLtMatmul(handle_, operation_, alpha, b_.data, layout_b_, a_.data, layout_a_, beta, c_.data, layout_c_,
                          c_.data, layout_c_, &algorithm, workspace_, workspace_bytes, stream_);
  }
  double seconds(cublasLtMatmulAlgo_t const& algorithm) const {
    constexpr int repetitions = 3;
    if (run(algorithm) != CUBLAS_STATUS_SUCCESS) return INFINITY;
    CudaEvent begin, end;
    cudaEventRecord(begin.event, stream_);
    for (int i = 0; i < repetitions; ++i)
      if (run(algorithm) != CUBLAS_STATUS_SUCCESS) return INFINITY;
    cudaEventRecord(end.event, stream_);
    check_cuda(cudaEventSynchronize(end.event), "cublasLtMatmul");
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, begin.event, end.event);
    return 1e-3 * milliseconds / repetitions;
  }
  void choose() {
    cublasLtMatmulPreference_t preference = nullptr;
    check_cublas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    std::size_t const bytes = workspace_bytes;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes));
    std::array<cublasLtMatmulHeuristicResult_t, 8> results{};
    cublasStatus_t const status =
        cublasLtMatmulAlgoGetHeuristic(handle_, operation_, layout_b_, layout_a_, layout_c_, layout_c_, preference,
                                       static_cast<int>(results.size()), results.data(), &found_);
    cublasLtMatmulPreferenceDestroy(preference);
    check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
    double best = INFINITY;
    for (int i = 0; i < found_; ++i) {
      double const time = seconds(results[static_cast<std::size_t>(i)].algo);
      if (time < best) {
        best = time;
        chosen_ = i;
        algorithm_ = results[static_cast<std::size_t>(i)].algo;
      }
    }
    if (std::isinf(best)) throw std::runtime_error("cublasLt names no algorithm for this product");
  }

  cudaStream_t stream_;
  Operand a_, b_, c_;
  bool fp64_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t layout_a_ = nullptr, layout_b_ = nullptr, layout_c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  int chosen_ = 0, found_ = 0;
};

template <class T, class TC>
Implementation cublaslt_gemm(cudaStream_t stream, std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a,
                             bool transpose_b, T* a, T* b, TC* c, bool tf32) {
  Implementation peer{"cublaslt", {}};
  using Operand = CublasLtGemm::Operand;
  try {
    auto const gemm = std::make_shared<CublasLtGemm>(
        stream, Operand{a, cuda_data_type<T>(), transpose_a ? k : m, transpose_a ? m : k, transpose_a},
        Operand{b, cuda_data_type<T>(), transpose_b ? n : k, transpose_b ? k : n, transpose_b},
        Operand{c, cuda_data_type<TC>(), m, n, false}, tf32);
    peer.launch = [gemm] { (*gemm)(); };
    peer.label = gemm->label();
  } catch (std::exception const& e) {
    peer.error = e.what();
  }
  return peer;
}

}  // namespace tessera::perf

#endif
