// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Proves that tessera::cast gives the same bits on every backend: every pattern of fp32, fp16, bf16, e4m3 and e5m2, and
// a fixed sample of fp64, is cast to every type, saturating and not. One line per pair holds a checksum of all (input,
// output) bits for each device, to be compared between devices here and between machines by eye. Where the results
// are in host memory, some or all of them are also compared with rounding by search in the table of all numbers.

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <tessera/cast.hpp>
#include <tuple>
#include <type_traits>
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

// The elements are handled by their size here, so that there is one kernel for all types; only the casts have types.

KOKKOS_INLINE_FUNCTION std::uint64_t load(unsigned char const* elements, int size, std::uint64_t i) {
  std::uint64_t pattern = 0;
  unsigned char const* const from = elements + i * static_cast<std::uint64_t>(size);
  for (int byte = size - 1; byte >= 0; --byte) pattern = pattern << 8 | from[byte];
  return pattern;
}

/// Every pattern in turn; random ones for fp64, whose patterns are too many.
struct FillInputs {
  unsigned char* in;
  int size;
  std::uint64_t first, step;
  KOKKOS_FUNCTION void operator()(std::uint64_t i) const {
    std::uint64_t const number = (first + i) * step;
    std::uint64_t const pattern = size == 8 ? mix(number) : number;
    unsigned char* const to = in + i * static_cast<std::uint64_t>(size);
    for (int byte = 0; byte < size; ++byte) to[byte] = static_cast<unsigned char>(pattern >> (8 * byte));
  }
};

/// The sum over all inputs does not depend on the order, so that every backend may add as it likes.
struct AddChecksum {
  unsigned char const* in;
  unsigned char const* out;
  int in_size, out_size;
  KOKKOS_FUNCTION void operator()(std::uint64_t i, std::uint64_t& sum) const {
    sum += mix(mix(load(in, in_size, i)) ^ load(out, out_size, i));
  }
};

/// An element type with what the reference knows about it.
struct Type {
  Scalar scalar;
  double (*decode)(std::uint64_t pattern);
  std::uint64_t (*nearest)(double x, bool saturate);
  int size() const { return static_cast<int>(size_of(scalar)); }
};

template <class... T>
std::vector<Type> list_types() {
  return {{scalar_of<T>, [](std::uint64_t pattern) { return reference::decode<T>(static_cast<BitsOf<T>>(pattern)); },
           [](double x, bool saturate) -> std::uint64_t { return reference::nearest_pattern<T>(x, saturate); }}...};
}

std::vector<Type> const types = list_types<double, float, fp16_t, bf16_t, e4m3_t, e5m2_t>();

/// Calls f with std::type_identity of the floating-point type of that name.
template <class F>
void with_type(Scalar scalar, F f) {
  auto const call = [&]<class... T>(std::type_identity<T>... type) {
    ((scalar == scalar_of<T> ? f(type) : void()), ...);
  };
  call(std::type_identity<double>{}, std::type_identity<float>{}, std::type_identity<fp16_t>{},
       std::type_identity<bf16_t>{}, std::type_identity<e4m3_t>{}, std::type_identity<e5m2_t>{});
}

/// One backend with memory for a piece.
template <class Exec>
class Device {
  using Memory = typename Exec::memory_space;
  template <class T>
  using Elements = Kokkos::View<T*, Memory, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

 public:
  Device(std::string const& label, Options const& options, Results& results)
      : name_(label), options_(options), results_(results), in_("in", 8 * piece), out_("out", 8 * piece) {}

  void verify_input(Type const& in) {
    std::uint64_t const step = in.size() == 4 ? options_.every : 1;
    std::uint64_t const patterns = in.size() == 8 ? options_.doubles : std::uint64_t{1} << (8 * in.size());
    std::uint64_t const count = (patterns + step - 1) / step;
    std::uint64_t percent = 0;
    for (std::uint64_t first = 0; first < count; first += piece) {
      std::uint64_t const n = std::min(count - first, piece);
      Kokkos::parallel_for("inputs", Kokkos::RangePolicy<Exec>(exec_, 0, n),
                           FillInputs{in_.data(), in.size(), first, step});
      for (Type const& out : types)
        for (bool const saturate : {false, true}) verify_piece(out, in, n, saturate);
      if (100 * (first + n) / count > percent || first == 0) {
        percent = 100 * (first + n) / count;
        std::fprintf(stderr, "\r%s: casts from %s, %3d %%", name_.c_str(), name(in.scalar), static_cast<int>(percent));
      }
    }
    std::fprintf(stderr, "\n");
  }

 private:
  void verify_piece(Type const& out, Type const& in, std::uint64_t n, bool saturate) {
    with_type(out.scalar, [&]<class Out>(std::type_identity<Out>) {
      with_type(in.scalar, [&]<class In>(std::type_identity<In>) {
        cast(exec_, Elements<Out>(reinterpret_cast<Out*>(out_.data()), n),
             Elements<In>(reinterpret_cast<In*>(in_.data()), n), {saturate});
      });
    });
    std::uint64_t sum = 0;
    Kokkos::parallel_reduce("checksum", Kokkos::RangePolicy<Exec>(exec_, 0, n),
                            AddChecksum{in_.data(), out_.data(), in.size(), out.size()}, sum);
    Result& result = results_[{name(in.scalar), name(out.scalar), saturate}];
    result.checksums[name_] += sum;
    result.inputs += n;
    if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, Memory>::accessible) {
      std::uint64_t const stride = in.size() < 4 ? 1 : options_.reference;
      for (std::uint64_t i = 0; i < n; i += stride) {
        std::uint64_t const expected = out.nearest(in.decode(load(in_.data(), in.size(), i)), saturate);
        result.wrong += load(out_.data(), out.size(), i) != expected;
        ++result.compared;
      }
    }
  }

  Exec exec_;
  std::string name_;
  Options const& options_;
  Results& results_;
  Kokkos::View<unsigned char*, Memory> in_, out_;
};

template <class Exec>
void verify_device(std::string const& device, Options const& options, Results& results) {
  if (std::find(options.devices.begin(), options.devices.end(), device) == options.devices.end()) return;
  Device<Exec> verifier(device, options, results);
  for (Type const& in : types)
    if (std::find(options.inputs.begin(), options.inputs.end(), name(in.scalar)) != options.inputs.end())
      verifier.verify_input(in);
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
