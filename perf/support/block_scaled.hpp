// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_BLOCK_SCALED_HPP
#define TESSERA_PERF_BLOCK_SCALED_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <tessera/gemm_block_scaled.hpp>
#include <tessera/quantize.hpp>
#include "support/data.hpp"
#include "support/peers.hpp"

// Products of e4m3 matrices with scales in fp32, as models in 8 bits have them: one for 128 elements of a row of the
// activations A, one for 128x128 of the weights B.
namespace tessera::perf {

template <class Exec>
struct BlockScaledOperands {
  GemmOperands<Exec, e4m3_t, bf16_t> product;
  Matrix<Exec, float> scales_a, scales_b;  // (M, blocks of K), (blocks of N, blocks of K)
};

/// What quantize makes of random numbers in bf16.
template <class Exec>
BlockScaledOperands<Exec> block_scaled_operands(Exec const& exec, ProductShape const& s) {
  auto const blocks = [](std::int64_t extent) { return (extent + 127) / 128; };
  BlockScaledOperands<Exec> const x{gemm_operands<Exec, e4m3_t>(exec, "NT", s),
                                    zero_view<Matrix<Exec, float>>(exec, s.m, blocks(s.k)),
                                    zero_view<Matrix<Exec, float>>(exec, blocks(s.n), blocks(s.k))};
  auto const a = random_view<Matrix<Exec, bf16_t>>(exec, 1, s.m, s.k);
  auto const b = random_view<Matrix<Exec, bf16_t>>(exec, 2, s.n, s.k);
  QuantizeOptions<> options;
  options.granularity = Granularity::tile_1x128;
  quantize(exec, x.product.a, x.scales_a, a, options);
  options.granularity = Granularity::tile_128x128;
  quantize(exec, x.product.b, x.scales_b, b, options);
  return x;
}

template <class Exec>
Implementation tessera_block_scaled(Exec const& exec, BlockScaledOperands<Exec> const& x) {
  return {"tessera", [=] {
            gemm_block_scaled(exec, 1, x.product.a, x.scales_a, x.product.b, x.scales_b, 0, x.product.c,
                              {.op_b = Op::transpose});
          }};
}

#if defined(TESSERA_PERF_CUBLASLT) && defined(KOKKOS_ENABLE_CUDA)
/// The library wants the scales of A with M contiguous, and those of B with K contiguous in rows of a multiple of 4.
template <class Exec>
Implementation cublaslt_block_scaled(Exec const& exec, BlockScaledOperands<Exec> const& x) {
  using ColumnMajor = Kokkos::View<float**, Kokkos::LayoutLeft, typename Exec::memory_space>;
  std::size_t const steps = x.scales_b.extent(1);
  ColumnMajor const scales_a(Kokkos::view_alloc(exec, "scales of A"), x.scales_a.extent(0), x.scales_a.extent(1));
  auto const scales_b = zero_view<Matrix<Exec, float>>(exec, x.scales_b.extent(0), (steps + 3) / 4 * 4);
  Kokkos::deep_copy(exec, scales_a, x.scales_a);
  Kokkos::deep_copy(exec, Kokkos::subview(scales_b, Kokkos::ALL, std::pair<std::size_t, std::size_t>(0, steps)),
                    x.scales_b);
  CublasLtProblem problem = cublaslt_problem(x.product);
  problem.scales_a = scales_a.data();
  problem.scales_b = scales_b.data();
  return cublaslt_gemm(exec.cuda_stream(), problem, std::pair(x, std::pair(scales_a, scales_b)));
}
#endif

/// The implementation of one of gemm_peers<Exec, e4m3_t>().
template <class Exec>
Implementation block_scaled_peer([[maybe_unused]] std::string const& name, [[maybe_unused]] Exec const& exec,
                                 [[maybe_unused]] BlockScaledOperands<Exec> const& x) {
#if defined(TESSERA_PERF_CUBLASLT) && defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>)
    if (name == "cublaslt") return cublaslt_block_scaled(exec, x);
#endif
  throw std::logic_error("no peer " + name);
}

}  // namespace tessera::perf

#endif
