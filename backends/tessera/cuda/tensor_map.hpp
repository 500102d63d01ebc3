// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_TENSOR_MAP_HPP
#define TESSERA_CUDA_TENSOR_MAP_HPP

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdexcept>

#include <tessera/detail/matrix.hpp>

namespace tessera::detail::bulk {

/// cuTensorMapEncodeTiled from the driver in use: no link to it is needed.
inline auto tensor_map_encoder() {
  static auto const encode = [] {
    cudaDriverEntryPointQueryResult found;
    void* function = nullptr;
    cudaError_t const status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (status != cudaSuccess || found != cudaDriverEntryPointSuccess)
      throw std::runtime_error("tessera: the CUDA driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  return encode;
}

inline constexpr int line_bytes = 128;  // of a tile in shared memory: the width of the swizzle

inline CUtensorMapDataType tensor_map_type(Scalar type) {
  switch (type) {
    case Scalar::fp32:  // loads round to tf32, as products want it; stores keep every bit
      return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    case Scalar::int32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case Scalar::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case Scalar::fp16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

/// A map over a stack of matrices for boxes of `box_rows` rows and one line of columns, of 128, 64 or 32 bytes and so
/// swizzled in shared memory. Reads outside a matrix give zero, writes there are dropped. The stack satisfies
/// bulk_copyable().
///
/// With a line L2 fetches its neighbour, which another step will want, unless rows are copied whole (`together` bytes
/// of a row are at a time): two lines would fetch both (docs/measurements/attention-forward.md, Decoding).
inline CUtensorMap tensor_map(MatrixStack const& m, int box_rows, int together = line_bytes, int line = line_bytes) {
  CUtensorMap map;
  auto const size = static_cast<std::int64_t>(size_of(m.type));
  auto const promotion =
      m.cols * size > together ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  auto const extent = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  // An extent of one has no stride of its own: any multiple of 16 bytes will do.
  auto const stride = [&](std::int64_t n, std::int64_t s) { return static_cast<cuuint64_t>(n > 1 ? s * size : 16); };
  cuuint64_t const extents[4] = {extent(m.cols), extent(m.rows), extent(m.inner), extent(m.outer)};
  cuuint64_t const strides[3] = {stride(m.rows, m.row_stride), stride(m.inner, m.inner_stride),
                                 stride(m.outer, m.outer_stride)};
  cuuint32_t const box[4] = {static_cast<cuuint32_t>(line / size), static_cast<cuuint32_t>(box_rows), 1, 1};
  cuuint32_t const step[4] = {1, 1, 1, 1};
  CUresult const status = tensor_map_encoder()(&map, tensor_map_type(m.type), 4, const_cast<void*>(m.data), extents,
                                               strides, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                               line == line_bytes ? CU_TENSOR_MAP_SWIZZLE_128B
                                               : line == 64       ? CU_TENSOR_MAP_SWIZZLE_64B
                                                                  : CU_TENSOR_MAP_SWIZZLE_32B,
                                               promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) throw std::runtime_error("tessera: the CUDA driver refused a tensor map");
  return map;
}

}  // namespace tessera::detail::bulk

#endif
