// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products beside the libraries that are here: gemm/BACKEND/TYPE/VARIANT/MxNxK/IMPLEMENTATION, BxMxNxK for a
// batch; gemm_add/... where half of C is added; gemm_random/... of random shapes; gemm_grouped/... of blocks of rows;
// gemm_host/... is what one call costs the host.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tessera/gemm.hpp>
#include "support/block_scaled.hpp"
#include "support/grouped.hpp"
#include "support/peers.hpp"
#include "support/plain.hpp"
#include "support/program.hpp"

namespace tessera::perf {
namespace {

/// A type of the command line: that of the elements, and what the product may do with them.
struct GemmType {
  std::string name, elements;
  bool tf32 = false, fast_accumulation = false;
};

GemmType gemm_type(std::string const& name) {
  if (name == "tf32") return {name, "fp32", true, false};
  if (name == "e4m3fast") return {name, "e4m3", false, true};
  return {name, name};
}

/// The arithmetic whose peak bounds a product of T.
template <class T>
model::Type gemm_arithmetic(model::DeviceModel const& device, GemmType const& type) {
  if (type.tf32) return model::Type::tf32;
  if (std::is_same_v<T, double> && device.peak(model::Type::fp64_tensor) > 0) return model::Type::fp64_tensor;
  return model::type_from_string(type.elements);
}

/// How the tiles that the plan chose fall into waves, for the saw-tooth of throughput against N.
Counters wave_counters(model::DeviceModel const& device, GemmPlan const& plan, ProductShape const& s) {
  if (plan.tile_m <= 1 || device.multiprocessors == 0 || s.batch != 1) return {};
  model::Waves const waves = model::waves(device, s.m, s.n, plan.tile_m, plan.tile_n);
  return {{"waves", static_cast<double>(waves.waves)}, {"wave_efficiency", waves.efficiency()}};
}

template <class Exec, class T>
using Operands = GemmOperands<Exec, T, GemmResult<T>>;

/// As a user calls it; `keep` owns the operands.
template <class Exec, class A, class B, class C, class Keep>
Implementation tessera_gemm(Session<Exec> const& session, A const& a, B const& b, C const& c, GemmOptions options,
                            double beta, ProductShape const& shape, Keep const& keep) {
  Exec const exec = session.exec();
  options.workspace_bytes = gemm_workspace_size(exec, 1, a, b, beta, c, options);
  Kokkos::View<unsigned char*, typename Exec::memory_space> const workspace(
      Kokkos::view_alloc("workspace", Kokkos::WithoutInitializing), options.workspace_bytes);
  if (options.workspace_bytes > 0) options.workspace = workspace.data();
  GemmPlan const plan = gemm_plan(exec, 1, a, b, beta, c, options);
  return {"tessera", [=, owners = std::pair(workspace, keep)] { gemm(exec, 1, a, b, beta, c, options); },
          to_string(plan), wave_counters(session.device(), plan, shape)};
}

template <class Exec, class T>
Implementation tessera_gemm(Session<Exec> const& session, Operands<Exec, T> const& x) {
  ProductShape const shape{x.batch, x.m, x.n, x.k};
  if (x.batch == 1) return tessera_gemm(session, x.a, x.b, x.c, x.options(), x.beta(), shape, x);
  return tessera_gemm(session, stacked(x.a, x.batch), stacked(x.b, x.batch), stacked(x.c, x.batch), x.options(),
                      x.beta(), shape, x);
}

/// operation: "gemm", "gemm_add", "gemm_random" or, where the host's part of a call is timed, "gemm_host".
template <class Exec, class T>
Case gemm_case(Session<Exec>& session, std::string const& operation, GemmType const& type, std::string const& variant,
               ProductShape const& shape) {
  Case c{operation, type.name, check_gemm_variant(variant), to_string(shape)};
  int const in = sizeof(T), out = sizeof(GemmResult<T>);
  bool const adds = operation == "gemm_add";
  c.work = model::gemm_work(shape.m, shape.n, shape.k, in, in, out, adds, shape.batch);
  c.arithmetic = gemm_arithmetic<T>(session.device(), type);
  c.counts_flops = true;
  c.host_time = operation == "gemm_host";
  c.implementations = {"tessera"};
  std::vector<std::string> peers;
  bool const plain = session.arguments().peers && operation == "gemm" && shape.batch == 1 &&
                     c.work.flops <= (session.on_host ? 2.2e9 : 1e11);
  if (session.arguments().peers) peers = gemm_peers<Exec, T>(shape.batch, adds);
  c.implementations.insert(c.implementations.end(), peers.begin(), peers.end());
  if (plain) c.implementations.push_back("plain");
  c.prepare = [&session, type, variant, shape, peers, plain, adds] {
    auto x = gemm_operands<Exec, T>(session.exec(), variant, shape);
    x.tf32 = type.tf32;
    x.fast_accumulation = type.fast_accumulation;
    x.adds = adds;
    std::vector<Implementation> all = {tessera_gemm<Exec, T>(session, x)};
    for (std::string const& peer : peers) all.push_back(gemm_peer<Exec, T>(peer, session.exec(), x));
    if (plain) all.push_back(plain_gemm(session.exec(), x));
    return all;
  };
  return c;
}

template <class Exec>
Case block_scaled_case(Session<Exec>& session, std::string const& operation, ProductShape const& shape) {
  Case c{operation, "e4m3block", "NT", to_string(shape)};
  c.work = model::gemm_work(shape.m, shape.n, shape.k, 1, 1, sizeof(bf16_t));
  c.arithmetic = model::Type::fp8;
  c.counts_flops = true;
  c.host_time = operation == "gemm_host";
  c.implementations = {"tessera"};
  std::vector<std::string> peers;
  if (session.arguments().peers) peers = gemm_peers<Exec, e4m3_t>();
  c.implementations.insert(c.implementations.end(), peers.begin(), peers.end());
  c.prepare = [&session, shape, peers] {
    auto const x = block_scaled_operands(session.exec(), shape);
    std::vector<Implementation> all = {tessera_block_scaled(session.exec(), x)};
    for (std::string const& peer : peers) all.push_back(block_scaled_peer(peer, session.exec(), x));
    return all;
  };
  return c;
}

/// What is measured where the command line does not say it: every type of a line in every variant and size of it.
struct Line {
  std::vector<std::string> types, variants, sizes;
};

std::vector<Line> default_lines(bool on_host) {
  if (on_host) return {{{"fp32"}, {"NT"}, {"64", "255x257x511", "512", "1024"}}, {{"fp64", "bf16"}, {"NT"}, {"512"}}};
  return {
      {{"bf16", "fp16"}, {"NT"}, {"4096", "8192", "16384x16384x8192", "2048x28672x8192", "4096x8192x28672"}},
      {{"bf16"}, {"NT"}, {"512", "1024", "2048", "1x8192x8192", "64x8192x8192", "256x8192x8192"}},
      {{"bf16"}, {"NT"}, {"16x4096x4096", "72x4096x4096", "328x4096x4096", "192x14336x4096", "256x1536x7168"}},
      {{"bf16"}, {"NT"}, {"8191", "2047x2049x2051", "4097x1280x5120"}},
      {{"bf16", "fp32", "tf32", "fp64"}, {"NT"}, {"512x512x16384", "128x128x65536"}},
      {{"fp32", "fp64"}, {"NT", "NN"}, {"1x8192x8192", "4x8192x8192", "16x8192x8192", "64", "256", "1000"}},
      {{"fp64"}, {"NN", "TN", "TT"}, {"4096"}},
      {{"bf16"}, {"NT"}, {"64x1024x1024x1024", "512x128x128x128"}},
      {{"bf16"}, {"NN", "TN", "TT"}, {"4096", "8192"}},
      {{"int8"}, {"NT"}, {"8192"}},
      {{"e4m3", "e4m3fast"}, {"NT"}, {"4096", "8192"}},
      {{"e4m3block"}, {"NT"}, {"8192", "4096x7168x4096"}},
      {{"tf32"}, {"NT"}, {"4096", "8192"}},
      {{"fp64", "fp32"}, {"NT"}, {"4096"}},
  };
}

bool contains(std::vector<std::string> const& all, std::string const& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

class Gemm {
 public:
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    Arguments const& flags = session.arguments();
    bool const chosen =
        !flags.sizes.empty() || !flags.types.empty() || !flags.variants.empty() || flags.batch != 1 || flags.random > 0;
    if (flags.random > 0) return add_random(session);
    if (session.wants("gemm")) add_products(session);
    if (contains(flags.operations, "gemm_add") || (flags.operations.empty() && !chosen)) add_sums(session);
    bool const groups_asked = contains(flags.operations, "gemm_grouped");
    if (groups_asked || (!session.on_host && flags.operations.empty() && !chosen))
      session.add(grouped_case(session, 4096, 4096));
    // Host backends run a call before they return from it.
    bool const asked = contains(flags.operations, "gemm_host");
    if (!session.on_host && (asked || (flags.operations.empty() && !chosen))) add_host_times(session);
  }

 private:
  template <class Exec>
  static void add(Session<Exec>& session, std::string const& operation, std::string const& type_name,
                  std::string const& variant, ProductShape const& shape) {
    if (type_name == "e4m3block") {  // in one layout, and one at a time
      if (variant == "NT" && shape.batch == 1) session.add(block_scaled_case(session, operation, shape));
      return;
    }
    GemmType const type = gemm_type(type_name);
    with_type<float, double, bf16_t, fp16_t, e4m3_t, std::int8_t>(
        type.elements, [&]<class T>() { session.add(gemm_case<Exec, T>(session, operation, type, variant, shape)); });
  }

  /// Flags take the place of what the lines say; of lines that differ in nothing then, one is measured.
  template <class Exec>
  static void add_products(Session<Exec>& session) {
    Arguments const& flags = session.arguments();
    std::vector<Line> const lines = default_lines(session.on_host);
    std::vector<std::string> types;
    for (Line const& line : lines)
      for (std::string const& type : line.types)
        if (!contains(types, type)) types.push_back(type);
    std::set<std::string> seen;
    for (std::string const& type : session.types(types, types)) {
      auto const add_line = [&](Line const& line) {
        for (std::string const& variant : session.variants(line.variants))
          for (std::string const& size : session.sizes(line.sizes, line.sizes))
            for (ProductShape const& shape : parse_products(size, flags.batch))
              if (seen.insert(type + "/" + variant + "/" + to_string(shape)).second)
                add(session, "gemm", type, variant, shape);
      };
      if (!flags.sizes.empty() || !contains(types, type))
        add_line({{type}, {"NT"}, {session.on_host ? "512" : "4096"}});
      else
        for (Line const& line : lines)
          if (contains(line.types, type)) add_line(line);
    }
  }

  /// What is measured of an operation, unless flags say otherwise.
  struct Defaults {
    std::vector<std::string> types, sizes;
  };
  template <class Exec>
  static void add_each(Session<Exec>& session, std::string const& operation, Defaults const& host,
                       Defaults const& gpu) {
    for (std::string const& type : session.types(host.types, gpu.types))
      for (std::string const& variant : session.variants({"NT"}))
        for (std::string const& size : session.sizes(host.sizes, gpu.sizes))
          for (ProductShape const& shape : parse_products(size, session.arguments().batch))
            add(session, operation, type, variant, shape);
  }
  template <class Exec>
  static void add_sums(Session<Exec>& session) {
    add_each(session, "gemm_add", {{"fp32"}, {"512"}}, {{"bf16"}, {"1024", "4096", "8192x8192x1024"}});
  }

  template <class Exec>
  static void add_random(Session<Exec>& session) {
    Arguments const& flags = session.arguments();
    std::int64_t const largest = session.on_host ? 1024 : 8192;
    for (std::string const& type : session.types({"fp32"}, {"bf16"}))
      for (std::string const& variant : session.variants({"NT"}))
        for (Extents const& e : random_extents(flags.random, 3, largest, flags.seed))
          add(session, "gemm_random", type, variant, {flags.batch, e[0], e[1], e[2]});
  }

  template <class Exec>
  static void add_host_times(Session<Exec>& session) {
    Defaults const small{{"bf16"}, {"128"}};
    add_each(session, "gemm_host", small, small);
  }
};

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) {
  return tessera::perf::run_program(argc, argv,
                                    "C = op(A) op(B); --size=MxNxK or BxMxNxK, --variant=NN,NT,TN,TT, "
                                    "--operation=gemm,gemm_add,gemm_grouped,gemm_host",
                                    tessera::perf::Gemm{});
}
