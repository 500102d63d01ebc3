// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_MODEL_WORK_HPP
#define TESSERA_MODEL_WORK_HPP

#include <cstdint>
#include <string>

namespace tessera::model {

/// What an operation has to do at least: arithmetic, and bytes between memory and the chip when every input is read
/// once and every output written once.
struct Work {
  double flops = 0;  ///< a multiply and an add are two
  double bytes = 0;
};

inline Work operator+(Work const& a, Work const& b) { return {a.flops + b.flops, a.bytes + b.bytes}; }
inline Work operator*(double times, Work const& a) { return {times * a.flops, times * a.bytes}; }

/// Matrix product C ← α·A·B + β·C, A M×K, B K×N, C M×N, `batch` times: flops 2·M·N·K; bytes M·K·a + K·N·b + M·N·c, and
/// C once more when it is read.
/// \param a_bytes,b_bytes,c_bytes bytes of one element of A, B and C
/// \param reads_c β ≠ 0
/// \throws Error{extent} for negative extents, Error{value} for element sizes below 1.
Work gemm_work(std::int64_t m, std::int64_t n, std::int64_t k, int a_bytes, int b_bytes, int c_bytes,
               bool reads_c = false, std::int64_t batch = 1);

/// The extents of an attention: Q [B,Hq,Sq,D], K [B,Hkv,Skv,D], V [B,Hkv,Skv,Dv], O [B,Hq,Sq,Dv].
struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t query_heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t query_length = 0;
  std::int64_t kv_length = 0;
  std::int64_t head_size = 0;   ///< D, of Q and K
  std::int64_t value_size = 0;  ///< Dv, of V and O; 0: the same as head_size
};

/// (query, key) pairs of one head that are computed: Sq·Skv; causal, aligned at the bottom right, Sq·Skv − Sq²/2 for
/// Sq ≤ Skv and Skv²/2 otherwise. That is half of the square when Sq = Skv, as published figures count it.
/// \throws Error{extent} for negative lengths.
double attention_pairs(std::int64_t query_length, std::int64_t kv_length, bool causal);

/// Attention forward: flops B·Hq·pairs·2·(D + Dv); bytes of Q, K, V and O once, and LSE in fp32 when it is written.
/// \throws Error{extent} for negative extents or Hq not a multiple of Hkv, Error{value} for element_bytes below 1.
Work attention_work(AttentionShape const& shape, bool causal, int element_bytes, bool writes_lse = false);

/// Attention backward: 2.5 × the flops of the forward (five products for its two); bytes of Q, K, V, O, dO and LSE read
/// and dQ, dK, dV written once. Same errors as attention_work.
Work attention_backward_work(AttentionShape const& shape, bool causal, int element_bytes);

/// Element-wise operation over n elements: bytes n·(read + written) per element, flops n·flops_per_element.
/// \param read_bytes_per_element    bytes of all inputs together; a broadcast input counts as 0
/// \param written_bytes_per_element bytes of the output
/// \throws Error{extent} for negative n, Error{value} for negative rates.
Work transform_work(std::int64_t n, int read_bytes_per_element, int written_bytes_per_element,
                    double flops_per_element = 1);

/// Row operation (softmax, LayerNorm, RMSNorm) over rows×columns: every element read and written once, plus
/// `vectors` parameters of `columns` elements of the input's type read once. flops_per_element 5 is softmax (maximum,
/// subtract, exponential, sum, divide) and a fair figure for the norms. Same errors as transform_work.
Work rowwise_work(std::int64_t rows, std::int64_t columns, int in_bytes, int out_bytes, int vectors = 0,
                  double flops_per_element = 5);

/// Reduction of n elements to `results` of them. Same errors as transform_work.
Work reduce_work(std::int64_t n, std::int64_t results, int in_bytes, int out_bytes);

/// Cast of n elements: n·(in + out) bytes, one operation each.
Work cast_work(std::int64_t n, int in_bytes, int out_bytes);

/// Quantisation of n elements with one fp32 scale per `elements_per_scale`: a cast, the scales, three operations each
/// (absolute value, maximum, multiply). \throws also Error{value} for elements_per_scale below 1.
Work quantize_work(std::int64_t n, std::int64_t elements_per_scale, int in_bytes, int out_bytes);

/// "137.4 GFLOP, 100.7 MB"
std::string to_string(Work const& work);

}  // namespace tessera::model

#endif
