// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <cstring>
#include <map>
#include <tessera/cast.hpp>
#include <utility>
#include <vector>

#include "reference/float_formats.hpp"
#include "support/support.hpp"

// Every value that a cast can meet: all 16- and 8-bit inputs and a dense sample of the wider ones, to every type.
namespace {

using namespace tessera;
using namespace tessera::reference;

template <class In>
std::vector<In> make_inputs() {
  if constexpr (sizeof(In) >= 4) {
    return dense_sample<In>();
  } else {
    std::vector<In> patterns;
    for (std::uint32_t i = 0; i < (1u << (8 * sizeof(In))); ++i)
      patterns.push_back(In::from_bits(static_cast<BitsOf<In>>(i)));
    return patterns;
  }
}

/// The inputs of a type, as stored and as exact numbers.
struct Inputs {
  Scalar type;
  std::vector<unsigned char> bytes;
  std::vector<double> numbers;
};

template <class In>
Inputs const& inputs() {
  static Inputs const all = [] {
    std::vector<In> const values = make_inputs<In>();
    Inputs result{scalar_of<In>, std::vector<unsigned char>(values.size() * sizeof(In)), {}};
    std::memcpy(result.bytes.data(), values.data(), result.bytes.size());
    for (In const x : values) result.numbers.push_back(decode(x));
    return result;
  }();
  return all;
}

/// Rounded once and compared with every backend: each of them gives these bits, hence all give the same.
template <class Out>
std::vector<BitsOf<Out>> const& expected(Inputs const& in, bool saturate) {
  static std::map<std::pair<Scalar, bool>, std::vector<BitsOf<Out>>> known;
  auto& patterns = known[{in.type, saturate}];
  if (patterns.empty())
    for (double const x : in.numbers) patterns.push_back(nearest_pattern<Out>(x, saturate));
  return patterns;
}

void check_count(Scalar in, Scalar out, bool saturate, long wrong) {
  CAPTURE(name(in));
  CAPTURE(name(out));
  CAPTURE(saturate);
  CHECK(wrong == 0);
}

template <class Out>
void check_output(Inputs const& in, std::vector<unsigned char> const& out, bool saturate) {
  auto const& wanted = expected<Out>(in, saturate);
  REQUIRE(out.size() == wanted.size() * sizeof(Out));
  long wrong = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    wrong += std::memcmp(&out[i * sizeof(Out)], &wanted[i], sizeof(Out)) != 0;
  check_count(in.type, scalar_of<Out>, saturate, wrong);
}

/// Memory of a backend as bytes: one type for Kokkos to copy, whatever the elements are.
template <class Exec>
class Bytes {
 public:
  explicit Bytes(std::size_t size) : bytes_("bytes", size), host_(size) {}
  explicit Bytes(std::vector<unsigned char> const& values) : Bytes(values.size()) {
    host_ = values;
    Kokkos::deep_copy(bytes_, Host(host_.data(), host_.size()));
  }
  void poison() { Kokkos::deep_copy(bytes_, static_cast<unsigned char>(0xa5)); }
  std::vector<unsigned char> const& values() {
    Kokkos::deep_copy(Host(host_.data(), host_.size()), bytes_);
    return host_;
  }
  template <class T>
  auto as() const {
    return Kokkos::View<T*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
        reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T));
  }

 private:
  using Host = Kokkos::View<unsigned char*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  test::ViewOf<Exec, unsigned char*> bytes_;
  std::vector<unsigned char> host_;
};

template <class Exec, class Out, class In>
void check_pair(Bytes<Exec> const& in) {
  Bytes<Exec> out(inputs<In>().numbers.size() * sizeof(Out));
  for (bool const saturate : {false, true}) {
    out.poison();
    cast(Exec{}, out.template as<Out>(), in.template as<In>(), {saturate});
    Kokkos::fence();
    check_output<Out>(inputs<In>(), out.values(), saturate);
  }
}

template <class Exec, class In>
void check_all_outputs() {
  Bytes<Exec> const in(inputs<In>().bytes);
  check_pair<Exec, double, In>(in);
  check_pair<Exec, float, In>(in);
  check_pair<Exec, fp16_t, In>(in);
  check_pair<Exec, bf16_t, In>(in);
  check_pair<Exec, e4m3_t, In>(in);
  check_pair<Exec, e5m2_t, In>(in);
}

TEST_CASE_TEMPLATE_DEFINE("every 16- and 8-bit number is cast to every type", Exec, cast_narrow_inputs) {
  check_all_outputs<Exec, fp16_t>();
  check_all_outputs<Exec, bf16_t>();
  check_all_outputs<Exec, e4m3_t>();
  check_all_outputs<Exec, e5m2_t>();
}
TEST_CASE_TEMPLATE_APPLY(cast_narrow_inputs, tessera::test::Spaces);

TEST_CASE_TEMPLATE_DEFINE("a dense sample of fp32 is cast to every type", Exec, cast_fp32_inputs) {
  check_all_outputs<Exec, float>();
}
TEST_CASE_TEMPLATE_APPLY(cast_fp32_inputs, tessera::test::Spaces);

TEST_CASE_TEMPLATE_DEFINE("a dense sample of fp64 is cast to every type, rounded once", Exec, cast_fp64_inputs) {
  check_all_outputs<Exec, double>();
}
TEST_CASE_TEMPLATE_APPLY(cast_fp64_inputs, tessera::test::Spaces);

}  // namespace
