// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <Kokkos_Macros.hpp>

#if !defined(KOKKOS_ENABLE_CUDA)

#include <tessera/rowwise/softmax_backward.hpp>

#include "packed.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

template <class T>
void check_softmax(std::size_t rows, std::size_t n) {
  CAPTURE(rows);
  CAPTURE(n);
  HostView<T**> const in("in", rows, n), d_out("d_out", rows, n), d_in("d_in", rows, n), expected("expected", rows, n);
  fill(in, uniform<T>(rows * n, 1, -4, 4));
  fill(d_out, uniform<T>(rows * n, 2, -2, 3));
  for (bool log : {false, true})
    for (bool from_output : {false, true}) {
      if (from_output && !log) softmax_backward(expected, d_out, in, {.scale = 0.5, .from_output = true});
      if (from_output && log) log_softmax_backward(expected, d_out, in, {.scale = 0.5, .from_output = true});
      if (!from_output && !log) softmax_backward(expected, d_out, in, {.scale = 0.5});
      if (!from_output && log) log_softmax_backward(expected, d_out, in, {.scale = 0.5});
      poison(d_in);
      detail::SoftmaxBackwardProblem problem{detail::row_array(detail::array(d_in)),
                                             detail::row_array(detail::array(d_out)),
                                             detail::row_array(detail::array(in)),
                                             0.5,
                                             log,
                                             from_output,
                                             ""};
      detail::collapse(problem.in, problem.d_in, problem.d_out);
      REQUIRE(detail::start_packed_softmax_backward(Warps{}, problem, detail::row_grid(problem.in)));
      CHECK(apart(values(d_in), values(expected), tolerance<T>) == 0);
    }
}

}  // namespace

TEST_CASE("packed rows on warps: gradients of softmax") {
  for (std::size_t n : {8u, 64u, 72u, 520u, 1032u, 2056u, 4096u, 8200u, 16384u}) check_softmax<bf16_t>(5, n);
  for (std::size_t n : {4u, 260u, 4100u}) check_softmax<float>(70, n);
  check_softmax<fp16_t>(7, 16392);  // rows that come through scratch
  check_softmax<bf16_t>(5, 40000);
  check_softmax<bf16_t>(4, 65536);
  check_softmax<float>(4, 8196);
  check_softmax<bf16_t>(3, 131072);                                                     // shared by teams
  check_softmax<float>(2, 200000);                                                      // more than they keep
  for (std::size_t n : {1u, 7u, 63u, 257u, 1001u, 4095u}) check_softmax<bf16_t>(9, n);  // not of whole packs
  check_softmax<float>(9, 777);
  check_softmax<fp16_t>(5, 16393);
  check_softmax<bf16_t>(3, 131073);
  check_softmax<bf16_t>(3, 32768);  // held by teams
  check_softmax<fp16_t>(2, 32761);
  check_softmax<float>(2, 31000);
}

#endif
