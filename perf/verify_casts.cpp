// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Proves that tessera::cast gives the same bits on every backend: every pattern of fp32, fp16, bf16, e4m3 and e5m2, and
// a fixed sample of fp64, is cast to every type, saturating and not. One line per pair holds a checksum of all (input,
// output) bits for each device, to be compared between devices here and between machines by eye. Where the results
// are in host memory, some or all of them are also compared with rounding by search in the table of all numbers.

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <tessera/cast.hpp>
#include <tessera/cast/convert.hpp>
#include <tuple>
#include <vector>

#include "../tests/reference/float_formats.hpp"

namespace {

using namespace tessera;
using reference::BitsOf;

constexpr std::uint64_t piece = 1 << 20;  // inputs at a time: a few MB

struct Options {
  std::vector<std::string> devices, inputs = {"fp64", "fp32", "fp16", "bf16", "e4m3", "e5m2"};
  std::uint64_t every = 1;
  std::uint64_t doubles = std::uint64_t{1} << 24;
  std::uint64_t reference = 65521;
};

struct Result {
  std::uint64_t inputs = 0, compared = 0, wrong = 0;
  std::map<std::string, std::uint64_t> checksums;  // by device
};
using Results = std::map<std::tuple<std::string, std::string, bool>, Result>;  // input, output, saturate

/// SplitMix64's mixing function (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
KOKKOS_INLINE_FUNCTION std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The i-th input: every pattern in turn; random patterns for fp64, whose patterns are too many.
template <class In>
KOKKOS_INLINE_FUNCTION BitsOf<In> input_pattern(std::uint64_t i) {
  return static_cast<BitsOf<In>>(sizeof(In) == 8 ? mix(i) : i);
}

template <class In, class Memory>
struct FillInputs {
  Kokkos::View<In*, Memory> in;
  std::uint64_t first, step;
  KOKKOS_FUNCTION void operator()(std::uint64_t i) const {
    in(i) = detail::from_pattern<In>(input_pattern<In>((first + i) * step));
  }
};

/// The sum over all inputs does not depend on the order, so that every backend may add as it likes.
template <class In, class Out, class Memory>
struct AddChecksum {
  Kokkos::View<In*, Memory> in;
  Kokkos::View<Out*, Memory> out;
  KOKKOS_FUNCTION void operator()(std::uint64_t i, std::uint64_t& sum) const {
    sum += mix(mix(detail::pattern_of(in(i))) ^ detail::pattern_of(out(i)));
  }
};

template <class Exec, class In, class Out>
void verify_piece(Exec const& exec, Kokkos::View<In*, typename Exec::memory_space> const& in,
                  Kokkos::View<Out*, typename Exec::memory_space> const& all_out, std::string const& device,
                  std::uint64_t reference_step, Results& results) {
  using Memory = typename Exec::memory_space;
  auto const out = Kokkos::subview(all_out, Kokkos::make_pair(std::size_t{0}, in.size()));
  for (bool const saturate : {false, true}) {
    cast(exec, out, in, {saturate});
    std::uint64_t sum = 0;
    Kokkos::parallel_reduce("checksum", Kokkos::RangePolicy<Exec>(exec, 0, in.size()),
                            AddChecksum<In, Out, Memory>{in, out}, sum);
    Result& result = results[{name(scalar_of<In>), name(scalar_of<Out>), saturate}];
    result.checksums[device] += sum;
    result.inputs += in.size();
    if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, Memory>::accessible) {
      for (std::size_t i = 0; i < in.size(); i += reference_step) {
        auto const expected = reference::nearest_pattern<Out>(reference::decode(in(i)), saturate);
        result.wrong += reference::bits_of(out(i)) != expected;
        ++result.compared;
      }
    }
  }
}

template <class Exec, class In>
void verify_input(Exec const& exec, std::string const& device, Options const& options, Results& results) {
  using Memory = typename Exec::memory_space;
  bool const wanted =
      std::find(options.inputs.begin(), options.inputs.end(), name(scalar_of<In>)) != options.inputs.end();
  if (!wanted) return;
  std::uint64_t const step = sizeof(In) == 4 ? options.every : 1;
  std::uint64_t const patterns = sizeof(In) == 8 ? options.doubles : (std::uint64_t{1} << (8 * sizeof(In) % 64));
  std::uint64_t const count = (patterns + step - 1) / step;
  std::uint64_t const reference_step = sizeof(In) < 4 ? 1 : options.reference;

  Kokkos::View<In*, Memory> const all_in("in", piece);
  std::tuple<Kokkos::View<double*, Memory>, Kokkos::View<float*, Memory>, Kokkos::View<fp16_t*, Memory>,
             Kokkos::View<bf16_t*, Memory>, Kokkos::View<e4m3_t*, Memory>, Kokkos::View<e5m2_t*, Memory>> const
      outs({"fp64", piece}, {"fp32", piece}, {"fp16", piece}, {"bf16", piece}, {"e4m3", piece}, {"e5m2", piece});
  std::uint64_t percent = 0;
  for (std::uint64_t first = 0; first < count; first += piece) {
    std::uint64_t const n = count - first < piece ? count - first : piece;
    Kokkos::View<In*, Memory> const in = Kokkos::subview(all_in, Kokkos::make_pair(std::uint64_t{0}, n));
    Kokkos::parallel_for("inputs", Kokkos::RangePolicy<Exec>(exec, 0, n), FillInputs<In, Memory>{in, first, step});
    std::apply([&](auto const&... out) { (verify_piece(exec, in, out, device, reference_step, results), ...); }, outs);
    if (100 * (first + n) / count > percent || first == 0) {
      percent = 100 * (first + n) / count;
      std::fprintf(stderr, "\r%s: casts from %s, %3d %%", device.c_str(), name(scalar_of<In>),
                   static_cast<int>(percent));
    }
  }
  std::fprintf(stderr, "\n");
}

template <class Exec>
void verify_device(std::string const& device, Options const& options, Results& results) {
  if (std::find(options.devices.begin(), options.devices.end(), device) == options.devices.end()) return;
  Exec const exec;
  verify_input<Exec, double>(exec, device, options, results);
  verify_input<Exec, float>(exec, device, options, results);
  verify_input<Exec, fp16_t>(exec, device, options, results);
  verify_input<Exec, bf16_t>(exec, device, options, results);
  verify_input<Exec, e4m3_t>(exec, device, options, results);
  verify_input<Exec, e5m2_t>(exec, device, options, results);
}

/// One line a pair; true when the devices agree with each other and with the reference everywhere.
bool report(Results const& results) {
  bool good = true;
  for (auto const& [pair, result] : results) {
    auto const& [input, output, saturate] = pair;
    bool agree = result.wrong == 0;
    for (auto const& checksum : result.checksums) agree &= checksum.second == result.checksums.begin()->second;
    std::printf("%s -> %s %-8s %11llu inputs ", input.c_str(), output.c_str(), saturate ? "saturate" : "overflow",
                static_cast<unsigned long long>(result.inputs / result.checksums.size()));
    for (auto const& [device, checksum] : result.checksums)
      std::printf(" %s %016llx", device.c_str(), static_cast<unsigned long long>(checksum));
    std::printf("  %llu of %llu compared are wrong  %s\n", static_cast<unsigned long long>(result.wrong),
                static_cast<unsigned long long>(result.compared), agree ? "same" : "DIFFERENT");
    good &= agree;
  }
  std::printf("%s\n", good ? "all casts agree" : "CASTS DISAGREE");
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> const built = {
#if defined(KOKKOS_ENABLE_SERIAL)
    "serial",
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
    "openmp",
#endif
#if defined(KOKKOS_ENABLE_CUDA)
    "cuda",
#endif
  };
  Options options;
  options.devices = built;
  CLI::App app("Compares the bits of tessera::cast between backends, for every input.");
  app.add_option("--device", options.devices, "backends to run (all that are built)")
      ->delimiter(',')
      ->check(CLI::IsMember(built));
  app.add_option("--input", options.inputs, "input types (all)")->delimiter(',')->check(CLI::IsMember(options.inputs));
  app.add_option("--every", options.every, "take every N-th of the 2^32 fp32 patterns only (1: all)")
      ->check(CLI::PositiveNumber);
  app.add_option("--doubles", options.doubles, "how many random fp64 patterns")->check(CLI::PositiveNumber);
  app.add_option("--reference", options.reference,
                 "on CPU backends compare every N-th fp32 and fp64 result of a piece with the table (1: all, slow)")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);

  Kokkos::ScopeGuard const guard(argc, argv);
  Results results;
#if defined(KOKKOS_ENABLE_SERIAL)
  verify_device<Kokkos::Serial>("serial", options, results);
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
  verify_device<Kokkos::OpenMP>("openmp", options, results);
#endif
#if defined(KOKKOS_ENABLE_CUDA)
  verify_device<Kokkos::Cuda>("cuda", options, results);
#endif
  return report(results) ? 0 : 1;
}
