// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_RUN_BLOCKS_HPP
#define TESSERA_QUANTIZE_RUN_BLOCKS_HPP

#include <tessera/quantize/host_blocks.hpp>
#include <tessera/quantize/packed_blocks.hpp>

namespace tessera::detail {

/// A matrix without gaps and with one given scale is one of rows of 128, however short its own are.
inline void make_square_blocks(QuantizeProblem& problem) {
  std::int64_t const elements = problem.in.rows() * problem.in.extent[3];
  auto const without_gaps = [](RowArray const& a) {
    return a.stride[3] == 1 && (a.extent[2] == 1 || a.stride[2] == a.extent[3]);
  };
  if (problem.granularity != Granularity::per_tensor || problem.transposed.present() ||
      elements % quantized_tile != 0 || !without_gaps(problem.in) || !without_gaps(problem.out))
    return;
  for (RowArray* a : {&problem.in, &problem.out}) {
    a->extent[2] = elements / quantized_tile;
    a->extent[3] = a->stride[2] = quantized_tile;
  }
}

template <class Exec>
bool finds_scales_of_blocks(Exec const&, QuantizeProblem const& problem) {
  return Machine<Exec>::is_host || has_packed_blocks<Exec>(problem);
}

template <class Exec>
void run_quantize_blocks(Exec const& exec, QuantizeProblem const& given) {
  QuantizeProblem problem = given;
  make_square_blocks(problem);
  if constexpr (Machine<Exec>::is_host) {
    auto const bytes = [](RowArray const& a) {
      return a.present() ? a.rows() * a.extent[3] * static_cast<std::int64_t>(size_of(a.type)) : 0;
    };
    BlockProblem const blocks(problem);
    HostBlocks const kernel{
        blocks, StripDivision(problem.in.type, problem.out.type), HostAreas(blocks, Machine<Exec>::concurrency(exec)),
        worth_streaming(bytes(problem.in) + bytes(problem.out) + bytes(problem.transposed)), byte_moves()};
    launch<32>("tessera::quantize::blocks", exec, kernel.areas.all, sizeof(HostBlocks::Room) + line_of_memory, kernel);
  } else if (has_packed_blocks<Exec>(problem)) {
    start_packed_blocks(exec, problem);
  } else {
    run_by_elements(exec, BlockProblem(problem));
  }
}

}  // namespace tessera::detail

#endif
