// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ladder of matrix-product algorithms, each step's gain: ladder/BACKEND/TYPE/VARIANT/MxNxK/STEP
#include <string>
#include <vector>

#include <tessera/gemm.hpp>
#include "support/peers.hpp"
#include "support/program.hpp"

namespace tessera::perf {
namespace {

std::vector<Algorithm> const& steps() {
  static std::vector<Algorithm> const all = {Algorithm::naive,     Algorithm::coalesced,   Algorithm::tiled,
                                             Algorithm::coarsened, Algorithm::tensor_core, Algorithm::hopper};
  return all;
}

/// Bytes that the algorithm asks memory and caches for, where the model has a formula for it.
Counters traffic_counters(GemmPlan const& plan, model::MatmulShape const& shape) {
  switch (plan.algorithm) {
    case Algorithm::naive:
      return {{"requested_bytes", model::hbm_traffic_matmul_naive(shape).total_bytes()}};
    case Algorithm::coalesced:
      return {{"requested_bytes", model::hbm_traffic_matmul_coalesced(shape).total_bytes()}};
    default:
      return {{"requested_bytes", model::hbm_traffic_matmul_tiled(shape, plan.tile_m, plan.tile_n).total_bytes()}};
  }
}

template <class Exec, class T>
Implementation step(Exec const& exec, GemmOperands<Exec, T, T> const& x, Algorithm algorithm) {
  Implementation one{name(algorithm), {}};
  GemmOptions options = x.options(algorithm);
  options.allow_fallback = false;
  try {
    GemmPlan const plan = gemm_plan(exec, 1, x.a, x.b, 0, x.c, options);
    one.label = to_string(plan);
    if (!std::is_same_v<T, double>) one.counters = traffic_counters(plan, {x.m, x.n, x.k, static_cast<int>(sizeof(T))});
    one.launch = [=] { gemm(exec, 1, x.a, x.b, 0, x.c, options); };
  } catch (Error const& e) {
    one.error = e.what();
  }
  return one;
}

template <class Exec, class T>
Case ladder_case(Session<Exec>& session, std::string const& variant, ProductShape const& shape) {
  Case c{"ladder", name(scalar_of<T>), check_gemm_variant(variant), to_string(shape)};
  c.work = model::gemm_work(shape.m, shape.n, shape.k, sizeof(T), sizeof(T), sizeof(T));
  c.arithmetic = model::type_from_string(c.type);
  c.counts_flops = true;
  std::vector<Algorithm> rungs;
  for (Algorithm const algorithm : steps()) {
    bool const runs =
        algorithm == Algorithm::tensor_core ? sizeof(T) != 4 : algorithm != Algorithm::hopper || sizeof(T) == 2;
    if (runs && (!session.on_host || algorithm <= Algorithm::coarsened)) rungs.push_back(algorithm);
  }
  for (Algorithm const algorithm : rungs) c.implementations.push_back(name(algorithm));
  std::vector<std::string> const peers = session.arguments().peers ? gemm_peers<Exec, T>() : std::vector<std::string>();
  c.implementations.insert(c.implementations.end(), peers.begin(), peers.end());
  c.prepare = [&session, variant, shape, rungs, peers] {
    auto const x = gemm_operands<Exec, T>(session.exec(), variant, shape);
    std::vector<Implementation> all;
    for (Algorithm const algorithm : rungs) all.push_back(step<Exec, T>(session.exec(), x, algorithm));
    for (std::string const& peer : peers) all.push_back(gemm_peer<Exec, T>(peer, session.exec(), x));
    return all;
  };
  return c;
}

struct Ladder {
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    for (std::string const& type : session.types({"fp32"}, {"fp32", "fp64", "bf16"}))
      for (std::string const& variant : session.variants({type == "bf16" ? "NT" : "NN"}))
        for (Extents const& e : parse_extents(session.sizes({"256", "512"}, {"2048", "4096"}), 3))
          with_type<float, double, bf16_t, fp16_t>(type, [&]<class T>() {
            session.add(ladder_case<Exec, T>(session, variant, {1, e[0], e[1], e[2]}));
          });
  }
};

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) {
  return tessera::perf::run_program(argc, argv, "The ladder of matrix-product algorithms; --size=MxNxK",
                                    tessera::perf::Ladder{});
}
