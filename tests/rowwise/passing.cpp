// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How operands are read depends on what a GPU's caches have room for (passing.hpp): the results of 48 MB must be those
// of halves, whose results alone fit, and of eighths, which fit altogether.
#include <cstring>

#include <tessera/functors.hpp>
#include <tessera/normalization.hpp>
#include <tessera/normalization_backward.hpp>
#include <tessera/softmax.hpp>
#include <tessera/softmax_backward.hpp>
#include <tessera/transform.hpp>

#include "rows.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int columns = 4096;
template <class Exec>
constexpr int rows = runs_on_host<Exec> ? 48 : 6144;
template <class Exec>
using Rows = ViewOf<Exec, bf16_t**>;

/// Numbers that differ in all rows, without drawing each.
template <class Exec>
Rows<Exec> products(unsigned seed) {
  Rows<Exec> const all("products", rows<Exec>, columns);
  ViewOf<Exec, float*> const of_column("of_column", columns);
  ViewOf<Exec, float**> const of_row("of_row", rows<Exec>, 1);
  fill(of_column, uniform<float>(columns, seed, -3, 3));
  fill(of_row, uniform<float>(rows<Exec>, seed + 1, 0.5, 2));
  transform(Exec{}, all, fn::multiply{}, of_column, of_row);
  return all;
}

template <class Exec, class... Views>
void check_parts(char const* name, auto const& run, Views const&... operands) {
  CAPTURE(name);
  Rows<Exec> const whole("whole", rows<Exec>, columns);
  run(whole, operands...);
  auto const x = values(whole);
  for (int parts : {2, 8}) {
    CAPTURE(parts);
    Rows<Exec> const by_parts("by_parts", rows<Exec>, columns);
    for (int which = 0; which < parts; ++which) {
      auto const part = [&](Rows<Exec> const& v) -> Rows<Exec> {
        int const of_part = rows<Exec> / parts;
        return Kokkos::subview(v, std::pair<int, int>(which * of_part, (which + 1) * of_part), Kokkos::ALL);
      };
      run(part(by_parts), part(operands)...);
    }
    auto const y = values(by_parts);
    CHECK(std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0);
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("results of operands of any size are those of their parts", Exec, passing) {
  Exec const exec;
  Rows<Exec> const x = products<Exec>(1), y = products<Exec>(5);
  ViewOf<Exec, bf16_t*> const weight("weight", columns), bias("bias", columns);
  fill(weight, uniform<bf16_t>(columns, 8, 0.5, 2));
  fill(bias, uniform<bf16_t>(columns, 9));
  using View = Rows<Exec>;
  check_parts<Exec>(
      "transform", [&](View const& out, View const& a, View const& b) { transform(exec, out, fn::add{}, a, b); }, x, y);
  check_parts<Exec>(
      "softmax", [&](View const& out, View const& in) { softmax(exec, out, in); }, x);
  check_parts<Exec>(
      "its gradient",
      [&](View const& d_in, View const& d_out, View const& in) { softmax_backward(exec, d_in, d_out, in); }, x, y);
  check_parts<Exec>(
      "layer_norm", [&](View const& out, View const& in) { layer_norm(exec, out, in, weight, bias); }, x);
  check_parts<Exec>(
      "rms_norm with a residual",
      [&](View const& out, View const& in, View const& residual) {
        rms_norm(exec, out, in, weight, NormOptions<None, None, View>{.residual = residual});
      },
      x, y);
  ViewOf<Exec, float*> const mean("mean", rows<Exec>), rstd("rstd", rows<Exec>);
  ViewOf<Exec, bf16_t*> const d_weight("d_weight", columns), d_bias("d_bias", columns);
  Kokkos::deep_copy(mean, 0.25f);
  Kokkos::deep_copy(rstd, 0.75f);
  ViewOf<Exec, std::byte*> const workspace("workspace", norm_backward_workspace_size(exec, x));
  check_parts<Exec>(
      "gradient of layer_norm",
      [&](View const& d_in, View const& d_out, View const& in) {
        auto const part = std::pair<std::size_t, std::size_t>(0, in.extent(0));
        layer_norm_backward(exec, d_in, d_weight, d_bias, d_out, in, Kokkos::subview(mean, part),
                            Kokkos::subview(rstd, part), weight, NormBackwardOptions<>{.workspace = workspace});
      },
      x, y);
}
TEST_CASE_TEMPLATE_APPLY(passing, Spaces);
