// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an epilogue of the caller's costs: the product with bias, GELU, residual and quantisation beside the same
// product without, gemm_epilogue/BACKEND/TYPE/RESULT/MxNxK/IMPLEMENTATION. Compiled for the Hopper pipeline where that
// is part of the library, so that the epilogue becomes part of its kernels.
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/gemm.hpp>
#include <tessera/limits.hpp>
#include "support/peers.hpp"
#include "support/program.hpp"

namespace tessera::perf {
namespace {

template <class Exec, class T, class TC>
struct EpilogueOperands {
  GemmOperands<Exec, T, TC> product;
  Vector<Exec, T> bias;
  Matrix<Exec, T> residual;
  Kokkos::View<float, typename Exec::memory_space> amax;

  auto functor() const {
    return epilogue::chain(epilogue::bias(bias), epilogue::Gelu{}, epilogue::residual(residual),
                           epilogue::quantize(amax, 1.0f, static_cast<float>(limits<TC>::max)));
  }
};

template <class Exec, class T, class TC>
EpilogueOperands<Exec, T, TC> epilogue_operands(Exec const& exec, ProductShape const& s) {
  return {gemm_operands<Exec, T, TC>(exec, "NT", s), random_view<Vector<Exec, T>>(exec, 3, s.n),
          random_view<Matrix<Exec, T>>(exec, 4, s.m, s.n), Kokkos::View<float, typename Exec::memory_space>("amax")};
}

/// With the largest magnitude set to zero first, as every call needs it.
template <class Exec, class T, class TC>
Implementation with_epilogue(Exec const& exec, EpilogueOperands<Exec, T, TC> const& x) {
  auto const& p = x.product;
  auto const epilogue = x.functor();
  GemmOptions const options = p.options();
  return {"tessera",
          [=] {
            Kokkos::deep_copy(exec, x.amax, 0.0f);
            gemm(exec, 1, x.product.a, x.product.b, 0, x.product.c, options, epilogue);
          },
          to_string(gemm_plan(exec, 1, p.a, p.b, 0, p.c, options, epilogue))};
}

template <class Exec, class T, class TC>
Implementation without_epilogue(Exec const& exec, EpilogueOperands<Exec, T, TC> const& x) {
  auto const p = x.product;
  GemmOptions const options = p.options();
  return {"no_epilogue", [=] { gemm(exec, 1, p.a, p.b, 0, p.c, options); },
          to_string(gemm_plan(exec, 1, p.a, p.b, 0, p.c, options))};
}

template <class Exec, class T, class TC>
Case epilogue_case(Session<Exec>& session, ProductShape const& s) {
  Case c{"gemm_epilogue", name(scalar_of<T>), std::string("bias_gelu_residual_quantize_to_") + name(scalar_of<TC>),
         to_string(s)};
  auto const element = static_cast<double>(sizeof(T));
  c.work = model::gemm_work(s.m, s.n, s.k, sizeof(T), sizeof(T), sizeof(TC));
  c.work.bytes += element * (static_cast<double>(s.n) + static_cast<double>(s.m) * static_cast<double>(s.n));
  c.arithmetic = model::type_from_string(c.type);
  c.counts_flops = true;
  c.cost_in = "no_epilogue";
  c.implementations = {"tessera", "no_epilogue"};
  c.prepare = [&session, s]() -> std::vector<Implementation> {
    auto const x = epilogue_operands<Exec, T, TC>(session.exec(), s);
    return {with_epilogue(session.exec(), x), without_epilogue(session.exec(), x)};
  };
  return c;
}

struct GemmEpilogue {
  template <class Exec>
  void operator()(Session<Exec>& session) const {
    for (std::string const& type : session.types({"bf16"}, {"bf16"}))
      for (std::string const& result : session.variants({"bf16", "e4m3"}))
        for (std::string const& size : session.sizes({"512"}, {"8192"}))
          for (ProductShape const& s : parse_products(size, 1)) add<Exec>(session, type, result, s);
  }

  template <class Exec>
  static void add(Session<Exec>& session, std::string const& type, std::string const& result, ProductShape const& s) {
    if (s.batch != 1) throw std::invalid_argument("--size=" + to_string(s) + ": the residual has no batch");
    with_type<bf16_t>(type, [&]<class T>() {
      with_type<bf16_t, e4m3_t>(result, [&]<class TC>() { session.add(epilogue_case<Exec, T, TC>(session, s)); });
    });
  }
};

}  // namespace
}  // namespace tessera::perf

int main(int argc, char** argv) {
  return tessera::perf::run_program(
      argc, argv, "C = quantize(gelu(A Bt + bias) + residual); --size=MxNxK, --variant=bf16,e4m3 for the type of C",
      tessera::perf::GemmEpilogue{});
}
