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
  if constexpr (std::is_same_v<T, std::int8_t>) return CUDA_R_8I;
  if constexpr (std::is_same_v<T, std::int32_t>) return CUDA_R_32I;
}

/// What a product is rounded to or counted in.
template <class TC>
constexpr cublasComputeType_t cublas_compute_type(bool tf32) {
  if constexpr (std::is_same_v<TC, double>) return CUBLAS_COMPUTE_64F;
  if constexpr (std::is_integral_v<TC>) return CUBLAS_COMPUTE_32I;
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/// A factor of a product, in every type that the library may want it in.
class CublasFactor {
 public:
  explicit CublasFactor(double value)
      : fp64_(value), fp32_(static_cast<float>(value)), int32_(static_cast<std::int32_t>(value)) {}
  void const* in(cublasComputeType_t compute) const {
    if (compute == CUBLAS_COMPUTE_64F) return &fp64_;
    return compute == CUBLAS_COMPUTE_32I ? static_cast<void const*>(&int32_) : &fp32_;
  }

 private:
  double fp64_;
  float fp32_;
  std::int32_t int32_;
};

/// C = op(A) op(B) + beta C, row-major.
struct CublasLtProblem {
  struct Operand {
    void* data;
    cudaDataType_t type;
    std::int64_t rows, cols;  // as stored, without gaps
    bool transpose;
  };
  Operand a, b, c;
  std::int64_t batch = 1;  ///< matrices one after the other
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  bool fast_accumulation = false;  ///< of 8-bit floating-point operands
  /// Of 128 elements of a row of A and of 128x128 of B; both or none.
  float const *scales_a = nullptr, *scales_b = nullptr;
  double beta = 0;

  /// Of alpha and beta.
  cudaDataType_t scale_type() const {
    if (compute == CUBLAS_COMPUTE_64F) return CUDA_R_64F;
    return compute == CUBLAS_COMPUTE_32I ? CUDA_R_32I : CUDA_R_32F;
  }
};

/// A row-major product is the column-major product of the transposes in the other order: B comes first.
class CublasLtGemm {
 public:
  CublasLtGemm(cudaStream_t stream, CublasLtProblem const& problem) : CublasLtGemm(problem, stream) {
    check_cublas(cublasLtCreate(&handle_), "cublasLtCreate");
    check_cuda(cudaMalloc(&workspace_, workspace_bytes), "cudaMalloc");
    describe();
    layout_a_ = layout(problem_.a);
    layout_b_ = layout(problem_.b);
    layout_c_ = layout(problem_.c);
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

  /// Complete before anything is asked of the library: what that leaves behind when it fails, the destructor frees.
  CublasLtGemm(CublasLtProblem const& problem, cudaStream_t stream)
      : stream_(stream), problem_(problem), beta_(problem.beta) {}

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check_cublas(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof(value)),
                 "cublasLtMatmulDescSetAttribute");
  }
  void describe() {
    check_cublas(cublasLtMatmulDescCreate(&operation_, problem_.compute, problem_.scale_type()),
                 "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, problem_.b.transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, problem_.a.transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (problem_.a.type == CUDA_R_8F_E4M3 || problem_.a.type == CUDA_R_8F_E5M2)
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(problem_.fast_accumulation));
    if (problem_.scales_a != nullptr) describe_scales();
  }
  void describe_scales() {
#if CUBLAS_VERSION >= 120900
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, problem_.scales_b);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, problem_.scales_a);
#else
    throw std::runtime_error("this cuBLASLt knows no scales of blocks: it takes CUDA 12.9");
#endif
  }
  cublasLtMatrixLayout_t layout(CublasLtProblem::Operand const& x) const {
    cublasLtMatrixLayout_t l = nullptr;
    check_cublas(cublasLtMatrixLayoutCreate(&l, x.type, static_cast<std::uint64_t>(x.cols),
                                            static_cast<std::uint64_t>(x.rows), x.cols),
                 "cublasLtMatrixLayoutCreate");
    auto const count = static_cast<std::int32_t>(problem_.batch);
    std::int64_t const stride = x.rows * x.cols;
    cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride));
    return l;
  }
  cublasStatus_t run(cublasLtMatmulAlgo_t const& algorithm) const {
    return cublasLtMatmul(handle_, operation_, one_.in(problem_.compute), problem_.b.data, layout_b_, problem_.a.data,
                          layout_a_, beta_.in(problem_.compute), problem_.c.data, layout_c_, problem_.c.data, layout_c_,
                          &algorithm, workspace_, workspace_bytes, stream_);
  }
  double timed(Launch const& launch) const {
    constexpr int repetitions = 3;
    CudaEvent begin, end;
    cudaEventRecord(begin.event, stream_);
    for (int i = 0; i < repetitions; ++i) launch();
    cudaEventRecord(end.event, stream_);
    check_cuda(cudaEventSynchronize(end.event), "cublasLtMatmul");
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, begin.event, end.event);
    return 1e-3 * milliseconds / repetitions;
  }
  /// Of one run. Short ones are replayed as a graph, as the samples are: otherwise the host's launches would choose.
  double seconds(cublasLtMatmulAlgo_t const& algorithm) const {
    if (run(algorithm) != CUBLAS_STATUS_SUCCESS) return INFINITY;
    Launch const once = [&] { check_cublas(run(algorithm), "cublasLtMatmul"); };
    double const alone = timed(once);
    if (alone >= Stopwatch<Kokkos::Cuda>::short_launch) return alone;
    constexpr int calls = 20;
    CudaGraph const graph(stream_, once, calls);
    if (!graph) return alone;
    graph();
    return timed([&] { graph(); }) / calls;
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
  CublasLtProblem problem_;
  CublasFactor one_{1}, beta_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t layout_a_ = nullptr, layout_b_ = nullptr, layout_c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  int chosen_ = 0, found_ = 0;
};

/// `keep` owns the operands.
template <class Keep>
Implementation cublaslt_gemm(cudaStream_t stream, CublasLtProblem const& problem, Keep const& keep) {
  Implementation peer{"cublaslt", {}};
  try {
    auto const gemm = std::make_shared<CublasLtGemm>(stream, problem);
    peer.launch = [gemm, keep] { (*gemm)(); };
    peer.label = gemm->label();
  } catch (std::exception const& e) {
    peer.error = e.what();
  }
  return peer;
}

}  // namespace tessera::perf

#endif
