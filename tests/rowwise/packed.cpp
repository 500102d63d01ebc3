// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <Kokkos_Macros.hpp>

#if !defined(KOKKOS_ENABLE_CUDA)

#include <tessera/quantize/mx.hpp>
#include <tessera/rowwise/rotary.hpp>

#include "packed.hpp"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("packed rows on warps: rotary embedding and MX blocks give the bits of the portable kernels") {
  HostView<bf16_t****> const in("in", 2, 5, 3, 64), out("out", 2, 5, 3, 64), expected("expected", 2, 5, 3, 64);
  HostView<float**> const cosine("cosine", 5, 32), sine("sine", 5, 32);
  fill(in, uniform<bf16_t>(2 * 5 * 3 * 64, 1));
  fill(cosine, uniform<float>(5 * 32, 2));
  fill(sine, uniform<float>(5 * 32, 3));
  for (bool interleaved : {false, true}) {
    rotary_embedding(expected, in, cosine, sine, {.interleaved = interleaved, .backward = true});
    poison(out);
    detail::RotaryProblem const problem{detail::row_array(detail::array(out)),
                                        detail::row_array(detail::array(in)),
                                        detail::row_array(detail::array(cosine)),
                                        detail::row_array(detail::array(sine)),
                                        interleaved,
                                        true,
                                        0};
    REQUIRE(detail::start_packed_rotary(Warps{}, problem, detail::row_grid(problem.in)));
    CHECK(apart(values(out), values(expected), limits<bf16_t>::roundoff) == 0);
  }
  for (bool stochastic : {false, true}) {
    constexpr std::size_t rows = 37, n = 160;
    HostView<bf16_t**> const x("x", rows, n), y("y", rows, n), expected_y("ey", rows, n);
    HostView<e4m3_t**> const q("q", rows, n), expected_q("eq", rows, n);
    HostView<e8m0_t**> const s("s", rows, n / 32), expected_s("es", rows, n / 32);
    fill(x, uniform<bf16_t>(rows * n, 4, -50, 50));
    MxOptions const options{.stochastic = stochastic, .seed = 3};
    mx_quantize(expected_q, expected_s, x, options);
    mx_dequantize(expected_y, expected_q, expected_s);
    auto problem = detail::mx_problem<Host>("", q, x, s);
    problem.quantized = Scalar::e4m3;
    problem.options = options;
    REQUIRE(detail::start_packed_mx("", Warps{}, problem, detail::mx_rows(problem), true));
    auto back = detail::mx_problem<Host>("", y, q, s);
    back.quantized = Scalar::e4m3;
    REQUIRE(detail::start_packed_mx("", Warps{}, back, detail::mx_rows(back), false));
    int wrong = 0;
    auto const a = values(q), b = values(expected_q);
    for (std::size_t i = 0; i < a.size(); ++i) wrong += a[i].bits() != b[i].bits();
    auto const c = values(s), d = values(expected_s);
    for (std::size_t i = 0; i < c.size(); ++i) wrong += c[i].bits() != d[i].bits();
    CHECK(wrong == 0);
    CHECK(apart(values(y), values(expected_y), 0) == 0);
  }
}

#endif
