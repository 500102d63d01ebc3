// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions: cast/BACKEND/FROM/to_TYPE/RxC, quantize/BACKEND/FROM/TYPE_GRANULARITY/RxC and dequantize/...; of
// quantize also TYPE_GRANULARITY_given, with scales that are given, _transposed, with a transposed copy, and
// _stochastic; mx_quantize and mx_dequantize/BACKEND/FROM/TYPE/RxC.
#include <string>
#include <vector>

#include <tessera/cast.hpp>
#include <tessera/mx.hpp>
#include <tessera/quantize.hpp>
#include "support/plain.hpp"
#include "support/program.hpp"

namespace tessera::perf {
namespace {

template <class Exec, class From, class To>
Case cast_case(Session<Exec>& session, Extents const& shape) {
  Case c{"cast", name(scalar_of<From>), std::string("to_") + name(scalar_of<To>), to_string(shape)};
  c.work = model::cast_work(shape[0] * shape[1], sizeof(From), sizeof(To));
  c.implementations = {"tessera", "plain", "copy"};
  c.prepare = [&session, shape, bytes = c.work.bytes]() -> std::vector<Implementation> {
    Exec const exec = session.exec();
    auto const y = zero_view<Matrix<Exec, To>>(exec, shape[0], shape[1]);
    auto const x = random_view<Matrix<Exec, From>>(exec, 1, shape[0], shape[1]);
    return {{"tessera", [=] { cast(exec, y, x); }},
            {"plain",
             [=] {
               plain_loop(exec, shape[0] * shape[1], PlainTransform<PlainSame, To, From>{{}, y.data(), x.data()});
             }},
            device_copy(exec, bytes)};
  };
  return c;
}

template <class Exec, class Scales, class From, class To>
std::vector<Implementation> quantize_on(Exec const& exec, Extents const& shape, Granularity granularity,
                                        Scales const& scales, bool back) {
  auto const x = random_view<Matrix<Exec, From>>(exec, 1, shape[0], shape[1]);
  auto const y = zero_view<Matrix<Exec, To>>(exec, shape[0], shape[1]);
  QuantizeOptions<> options;
  options.granularity = granularity;
  if (!back) return {{"tessera", [=] { quantize(exec, y, scales, x, options); }}};
  quantize(exec, y, scales, x, options);
  DequantizeOptions const inverse{granularity};
  return {{"tessera", [=] { dequantize(exec, x, y, scales, inverse); }}};
}

std::int64_t tiles(std::int64_t extent) { return (extent + 127) / 128; }

std::int64_t scale_count(Extents const& shape, Granularity granularity) {
  switch (granularity) {
    case Granularity::per_tensor:
      return 1;
    case Granularity::per_row:
      return shape[0];
    case Granularity::tile_1x128:
      return shape[0] * tiles(shape[1]);
    case Granularity::tile_128x128:
      return tiles(shape[0]) * tiles(shape[1]);
  }
  return 1;
}

template <class Exec, class From, class To>
Case quantize_case(Session<Exec>& session, Extents const& shape, Granularity granularity, bool back) {
  Case c{back ? "dequantize" : "quantize", name(scalar_of<From>),
         std::string(name(scalar_of<To>)) + "_" + detail::granularity_name(granularity), to_string(shape)};
  std::int64_t const n = shape[0] * shape[1];
  c.work =
      model::quantize_work(n, std::max<std::int64_t>(n / scale_count(shape, granularity), 1), sizeof(From), sizeof(To));
  c.implementations = {"tessera", "copy"};
  c.prepare = [&session, shape, granularity, back, bytes = c.work.bytes] {
    Exec const exec = session.exec();
    using Memory = typename Exec::memory_space;
    using Rank0 = Kokkos::View<float, Memory>;
    std::vector<Implementation> all;
    if (granularity == Granularity::per_tensor)
      all = quantize_on<Exec, Rank0, From, To>(exec, shape, granularity, Rank0("scales"), back);
    else if (granularity == Granularity::per_row)
      all = quantize_on<Exec, Vector<Exec, float>, From, To>(exec, shape, granularity,
                                                             zero_view<Vector<Exec, float>>(exec, shape[0]), back);
    else
      all = quantize_on<Exec, Matrix<Exec, float>, From, To>(
          exec, shape, granularity,
          zero_view<Matrix<Exec, float>>(exec, granularity == Granularity::tile_1x128 ? shape[0] : tiles(shape[0]),
                                         tiles(shape[1])),
          back);
    all.push_back(device_copy(exec, bytes));
    return all;
  };
  return c;
}

/// Scales of tiles whose neighbours along a column are neighbours in memory: a block of 128 x 128 writes 128 of them.
template <class Exec>
using TileScales = Kokkos::View<float**, Kokkos::LayoutLeft, typename Exec::memory_space>;

/// What quantize does beside dividing by scales of its own.
struct Extra {
  bool given = false, transposed = false, stochastic = false;

  std::string suffix() const {
    return std::string(given ? "_given" : "") + (transposed ? "_transposed" : "") + (stochastic ? "_stochastic" : "");
  }
};

template <class Exec, class Scales, class From, class To>
Implementation quantize_with(Exec const& exec, Extents const& shape, Granularity granularity, Scales const& scales,
                             Extra const& extra) {
  auto const x = random_view<Matrix<Exec, From>>(exec, 1, shape[0], shape[1]);
  auto const y = zero_view<Matrix<Exec, To>>(exec, shape[0], shape[1]);
  auto const turned = zero_view<Matrix<Exec, To>>(exec, extra.transposed ? shape[1] : 0, shape[0]);
  auto const call = [=](auto options) {
    options.granularity = granularity;
    options.given_scales = extra.given;
    options.stochastic = extra.stochastic;
    return Implementation{"tessera", [=] { quantize(exec, y, scales, x, options); }};
  };
  if (extra.given) Kokkos::deep_copy(exec, scales, 1.0f / 256);
  if (!extra.transposed) return call(QuantizeOptions{});
  if (granularity != Granularity::tile_1x128) return call(QuantizeOptions{.transposed = turned});
  return call(QuantizeOptions{.transposed = turned,
                              .transposed_scales = zero_view<TileScales<Exec>>(exec, shape[1], tiles(shape[0]))});
}

template <class Exec, class From, class To>
Case extra_case(Session<Exec>& session, Extents const& shape, Granularity granularity, Extra const& extra) {
  Case c{"quantize", name(scalar_of<From>),
         std::string(name(scalar_of<To>)) + "_" + detail::granularity_name(granularity) + extra.suffix(),
         to_string(shape)};
  std::int64_t const n = shape[0] * shape[1];
  c.work =
      model::quantize_work(n, std::max<std::int64_t>(n / scale_count(shape, granularity), 1), sizeof(From), sizeof(To));
  if (extra.transposed) {
    c.work.bytes += static_cast<double>(n * static_cast<std::int64_t>(sizeof(To)));
    if (granularity == Granularity::tile_1x128) c.work.bytes += static_cast<double>(4 * shape[1] * tiles(shape[0]));
  }
  c.implementations = {"tessera", "copy"};
  c.prepare = [&session, shape, granularity, extra, bytes = c.work.bytes]() -> std::vector<Implementation> {
    Exec const exec = session.exec();
    if (granularity == Granularity::per_tensor) {
      auto const scales = zero_view<Kokkos::View<float, typename Exec::memory_space>>(exec);
      return {quantize_with<Exec, decltype(scales), From, To>(exec, shape, granularity, scales, extra),
              device_copy(exec, bytes)};
    }
    auto const scales = zero_view<TileScales<Exec>>(
        exec, granularity == Granularity::tile_1x128 ? shape[0] : tiles(shape[0]), tiles(shape[1]));
    return {quantize_with<Exec, decltype(scales), From, To>(exec, shape, granularity, scales, extra),
            device_copy(exec, bytes)};
  };
  return c;
}

template <class Exec, class From, class To>
Case mx_case(Session<Exec>& session, Extents const& shape, bool back) {
  Case c{back ? "mx_dequantize" : "mx_quantize", name(scalar_of<From>), name(scalar_of<To>), to_string(shape)};
  std::int64_t const blocks = shape[0] * ((shape[1] + detail::mx_block - 1) / detail::mx_block);
  c.work = model::cast_work(shape[0] * shape[1], sizeof(From), sizeof(To));
  c.work.bytes += static_cast<double>(blocks);
  c.implementations = {"tessera", "copy"};
  c.prepare = [&session, shape, back, bytes = c.work.bytes]() -> std::vector<Implementation> {
    Exec const exec = session.exec();
    auto const x = random_view<Matrix<Exec, From>>(exec, 1, shape[0], shape[1]);
    auto const y = zero_view<Matrix<Exec, To>>(exec, shape[0], shape[1]);
    Kokkos::View<e8m0_t**, Kokkos::LayoutRight, typename Exec::memory_space> const scales(
        "scales", shape[0], (shape[1] + detail::mx_block - 1) / detail::mx_block);
    mx_quantize(exec, y, scales, x);
    if (back) return {{"tessera", [=] { mx_dequantize(exec, x, y, scales); }}, device_copy(exec, bytes)};
    return {{"tessera", [=] { mx_quantize(exec, y, scales, x); }}, device_copy(exec, bytes)};
  };
  return c;
}

struct Quantize {
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    auto const sizes = session.sizes({"1024x4096"}, {"16384x4096", "65536x8192"});
    auto const wanted = [&](Case const& c) {
      auto const variants = session.variants({c.variant});
      auto const types = session.types({c.type}, {c.type});
      return session.wants(c.operation) && std::find(variants.begin(), variants.end(), c.variant) != variants.end() &&
             std::find(types.begin(), types.end(), c.type) != types.end();
    };
    auto const add = [&](Case const& c) {
      if (wanted(c)) session.add(c);
    };
    for (Extents const& shape : parse_extents(sizes, 2)) {
      add(cast_case<Exec, float, bf16_t>(session, shape));
      add(cast_case<Exec, float, fp16_t>(session, shape));
      add(cast_case<Exec, float, e4m3_t>(session, shape));
      add(cast_case<Exec, bf16_t, e4m3_t>(session, shape));
      add(cast_case<Exec, bf16_t, float>(session, shape));
      for (Granularity const granularity :
           {Granularity::per_tensor, Granularity::per_row, Granularity::tile_1x128, Granularity::tile_128x128}) {
        add(quantize_case<Exec, bf16_t, e4m3_t>(session, shape, granularity, false));
        add(quantize_case<Exec, float, e4m3_t>(session, shape, granularity, false));
      }
      add(quantize_case<Exec, bf16_t, e4m3_t>(session, shape, Granularity::tile_1x128, true));
      for (Granularity const granularity :
           {Granularity::per_tensor, Granularity::tile_1x128, Granularity::tile_128x128}) {
        add(extra_case<Exec, bf16_t, e4m3_t>(session, shape, granularity, {.transposed = true}));
        add(extra_case<Exec, bf16_t, e4m3_t>(session, shape, granularity, {.given = true}));
      }
      add(extra_case<Exec, float, e4m3_t>(session, shape, Granularity::tile_1x128, {.transposed = true}));
      add(extra_case<Exec, bf16_t, e4m3_t>(session, shape, Granularity::per_tensor,
                                           {.given = true, .transposed = true}));
      add(extra_case<Exec, bf16_t, e4m3_t>(session, shape, Granularity::tile_1x128, {.stochastic = true}));
      add(mx_case<Exec, bf16_t, e4m3_t>(session, shape, false));
      add(mx_case<Exec, float, e4m3_t>(session, shape, false));
      add(mx_case<Exec, bf16_t, e4m3_t>(session, shape, true));
    }
  }
};

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) {
  return tessera::perf::run_program(
      argc, argv, "Casts and quantisation; --operation=cast,quantize,dequantize,mx_quantize,mx_dequantize --size=RxC",
      tessera::perf::Quantize{});
}
