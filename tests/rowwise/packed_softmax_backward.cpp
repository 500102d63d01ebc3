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
void expect(HostView<T**> const& d_in, HostView<T**> const& d_out, HostView<T**> const& in, bool log,
            bool from_output) {
  SoftmaxBackwardOptions const options{.scale = 0.5, .from_output = from_output};
  log ? log_softmax_backward(d_in, d_out, in, options) : softmax_backward(d_in, d_out, in, options);
}

template <class T>
void check_softmax(std::size_t rows, std::size_t n) {
  CAPTURE(rows);
  CAPTURE(n);
  HostView<T**> const in("in", rows, n), d_out("d_out", rows, n), d_in("d_in", rows, n), expected("expected", rows, n);
  fill(in, uniform<T>(rows * n, 1, -4, 4));
  fill(d_out, uniform<T>(rows * n, 2, -2, 3));
  for (bool log : {false, true})
    for (bool from_output : {false, true}) {
      expect(expected, d_out, in, log, from_output);
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

/// Rows that teams on all multiprocessors of a GPU share by mail: here by few, which reach each other's scratch.
template <class T>
void check_pairs(std::size_t rows, std::size_t n, int teams, int groups) {
  CAPTURE(rows);
  CAPTURE(n);
  using Rows = detail::MailedPairs<Warps, T>;
  HostView<T**> const in("in", rows, n), d_out("d_out", rows, n), d_in("d_in", rows, n), expected("expected", rows, n);
  fill(in, uniform<T>(rows * n, 1, -4, 4));
  fill(d_out, uniform<T>(rows * n, 2, -2, 3));
  auto const grid = detail::row_grid(detail::row_array(detail::array(in)));
  auto const operand = [&](auto const& x) {
    return detail::operand(detail::row_array(detail::array(x)), grid, Rows::width, true);
  };
  detail::PackedGrid const packed(grid, Rows::width);
  detail::RowStream stream{.teams = teams, .streams = groups};
  stream.part = detail::part_of_team(packed.packs, teams);
  REQUIRE(stream.part <= Rows::most_packs);
  stream.ring = Rows::waiting + Rows::fewest_on_their_way;
  for (bool log : {false, true})
    for (bool from_output : {false, true}) {
      expect(expected, d_out, in, log, from_output);
      poison(d_in);
      detail::LongSoftmaxBackward<Rows> const kernel{packed, operand(d_in), operand(d_out), operand(in), 0.5f,
                                                     log,    from_output,   T(0.0f),        stream};
      detail::launch_together<Rows::threads, 1>("pairs", Warps{}, groups * teams, teams, Rows::scratch_bytes(stream),
                                                kernel);
      CHECK(apart(values(d_in), values(expected), tolerance<T>) == 0);
    }
}

}  // namespace

TEST_CASE("packed rows on warps: gradients of softmax whose second operand waits in registers") {
  check_pairs<float>(14, 4 * 2032, 2, 1);  // four packs a thread, or three,
  check_pairs<bf16_t>(9, 8 * 700, 2, 2);   // one or none
  check_pairs<bf16_t>(1, 8 * 3000, 3, 1);
}

TEST_CASE("packed rows on warps: gradients of softmax") {
  for (std::size_t n : {8u, 64u, 72u, 520u, 1032u, 2056u, 2560u, 4096u, 5000u, 8200u, 12000u, 14336u, 16384u})
    check_softmax<bf16_t>(5, n);
  for (std::size_t n : {4u, 260u, 4100u}) check_softmax<float>(70, n);
  for (std::size_t n : {10000u, 5001u, 8193u, 10001u}) check_softmax<float>(3, n);
  for (std::size_t n : {9001u, 12001u, 16385u}) check_softmax<bf16_t>(3, n);
  check_softmax<fp16_t>(7, 16392);  // rows that come through scratch
  check_softmax<bf16_t>(5, 40000);
  check_softmax<bf16_t>(4, 65536);
  check_softmax<float>(4, 10244);
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
