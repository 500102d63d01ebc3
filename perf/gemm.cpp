// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products beside the libraries that are here: gemm/BACKEND/TYPE/VARIANT/MxNxK/IMPLEMENTATION
#include <string>
#include <vector>

#include <tessera/gemm.hpp>
#include "support/peers.hpp"
#include "support/plain.hpp"
#include "support/program.hpp"

namespace tessera::perf {
namespace {

/// The arithmetic whose peak bounds a product of T.
template <class T>
model::Type gemm_arithmetic(model::DeviceModel const& device, bool tf32) {
  if (tf32) return model::Type::tf32;
  if (std::is_same_v<T, double> && device.peak(model::Type::fp64_tensor) > 0) return model::Type::fp64_tensor;
  return model::type_from_string(name(scalar_of<T>));
}

/// How the tiles that the plan chose fall into waves, for the saw-tooth of throughput against N.
Counters wave_counters(model::DeviceModel const& device, GemmPlan const& plan, std::int64_t m, std::int64_t n) {
  if (plan.tile_m <= 1 || device.multiprocessors == 0) return {};
  model::Waves const waves = model::waves(device, m, n, plan.tile_m, plan.tile_n);
  return {{"waves", static_cast<double>(waves.waves)}, {"wave_efficiency", waves.efficiency()}};
}

template <class Exec, class T>
Implementation tessera_gemm(Session<Exec> const& session, GemmOperands<Exec, T, GemmResult<T>> const& x) {
  Exec const exec = session.exec();
  GemmOptions options = x.options();
  options.workspace_bytes = gemm_workspace_size(exec, 1, x.a, x.b, 0, x.c, options);
  Kokkos::View<unsigned char*, typename Exec::memory_space> const workspace(
      Kokkos::view_alloc("workspace", Kokkos::WithoutInitializing), options.workspace_bytes);
  if (options.workspace_bytes > 0) options.workspace = workspace.data();
  GemmPlan const plan = gemm_plan(exec, 1, x.a, x.b, 0, x.c, options);
  return {"tessera", [=, keep = workspace] { gemm(exec, 1, x.a, x.b, 0, x.c, options); }, to_string(plan),
          wave_counters(session.device(), plan, x.m, x.n)};
}

template <class Exec, class T>
Case gemm_case(Session<Exec>& session, std::string const& variant, Extents const& shape, bool tf32) {
  std::int64_t const m = shape[0], n = shape[1], k = shape[2];
  Case c{"gemm", tf32 ? "tf32" : name(scalar_of<T>), check_gemm_variant(variant), to_string(shape)};
  int const in = sizeof(T), out = sizeof(GemmResult<T>);
  c.work = model::gemm_work(m, n, k, in, in, out);
  c.arithmetic = gemm_arithmetic<T>(session.device(), tf32);
  c.counts_flops = true;
  c.implementations = {"tessera"};
  std::vector<std::string> peers;
  bool const plain = session.arguments().peers && c.work.flops <= (session.on_host ? 2.2e9 : 1e11);
  if (session.arguments().peers) peers = gemm_peers<Exec, T>();
  c.implementations.insert(c.implementations.end(), peers.begin(), peers.end());
  if (plain) c.implementations.push_back("plain");
  c.prepare = [&session, variant, m, n, k, peers, plain, tf32] {
    auto x = gemm_operands<Exec, T>(session.exec(), variant, m, n, k);
    x.tf32 = tf32;
    std::vector<Implementation> all = {tessera_gemm<Exec, T>(session, x)};
    for (std::string const& peer : peers) all.push_back(gemm_peer<Exec, T>(peer, session.exec(), x));
    if (plain) all.push_back(plain_gemm(session.exec(), x));
    return all;
  };
  return c;
}

struct Gemm {
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    std::vector<std::string> const large = {"1024",
                                            "2048",
                                            "4096",
                                            "8192",
                                            "64x8192x8192",
                                            "256x8192x8192",
                                            "2048x28672x8192",
                                            "4096x8192x28672",
                                            "4097x1280x5120",
                                            "2047x2049x2051"};
    for (std::string const& type :
         session.types({"fp32", "fp64", "bf16"}, {"bf16", "fp16", "e4m3", "tf32", "fp32", "fp64"})) {
      bool const wide = type == "fp32" || type == "fp64" || type == "tf32";
      auto const sizes = session.sizes(type == "fp32" ? std::vector<std::string>{"64", "255x257x511", "512", "1024"}
                                                      : std::vector<std::string>{"512"},
                                       wide ? std::vector<std::string>{"1024", "2048", "4096", "8192"} : large);
      int const random = session.arguments().random;
      auto const shapes =
          random > 0 ? random_extents(random, 3, session.on_host ? 1024 : 8192) : parse_extents(sizes, 3);
      for (std::string const& variant : session.variants({"NT"}))
        for (Extents const& shape : shapes)
          with_type<float, double, bf16_t, fp16_t, e4m3_t>(type == "tf32" ? "fp32" : type, [&]<class T>() {
            session.add(gemm_case<Exec, T>(session, variant, shape, type == "tf32"));
          });
    }
  }
};

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) {
  return tessera::perf::run_program(argc, argv, "C = op(A) op(B); --size=MxNxK, --variant=NN,NT,TN,TT",
                                    tessera::perf::Gemm{});
}
