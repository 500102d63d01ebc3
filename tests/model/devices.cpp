// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/model.hpp>

#include "support/support.hpp"
#include "tessera/cuda/peak_rates.hpp"

namespace model = tessera::model;
using model::Type;
using tessera::ErrorCode;
using tessera::test::contains;
using tessera::test::error_of;

TEST_CASE("model: built-in machines have every figure") {
  for (auto const& d : {model::a100_80gb(), model::h100_sxm(), model::h200_sxm(), model::b200()}) {
    CAPTURE(d.name);
    CHECK(d.warp_size == 32);
    CHECK(d.max_threads_per_block == 1024);
    CHECK(d.max_warps_per_multiprocessor == 64);
    CHECK(d.max_blocks_per_multiprocessor == 32);
    CHECK(d.registers_per_multiprocessor == 65536);
    CHECK(d.max_shared_bytes_per_block + d.reserved_shared_bytes_per_block == d.shared_bytes_per_multiprocessor);
    CHECK(d.l2_bytes > d.shared_bytes_per_multiprocessor);
    CHECK(d.hbm_bytes >= 80e9);
    for (Type const t : model::all_types)
      if (!(t == Type::fp8 && d.name.substr(0, 4) == "A100")) CHECK(d.peak(t) > 0);
    // fp32 on plain units: two operations a core and clock. The sheets round to two or three digits.
    double const fp32 = 2.0 * d.multiprocessors * d.cores_per_multiprocessor * d.clock_hz;
    CHECK(d.peak(Type::fp32) == doctest::Approx(fp32).epsilon(0.01));
    CHECK(d.peak(Type::bf16) == d.peak(Type::fp16));
    CHECK(d.peak(Type::bf16) == doctest::Approx(2 * d.peak(Type::tf32)).epsilon(1e-3));
    CHECK(d.peak(Type::int8) == doctest::Approx(2 * d.peak(Type::bf16)).epsilon(1e-12));
  }
  CHECK(model::a100_80gb().peak(Type::fp8) == 0);
  CHECK(model::a100_80gb().max_shared_bytes_per_block == 163 * 1024);
  CHECK(model::h100_sxm().max_shared_bytes_per_block == 227 * 1024);
  CHECK(model::h200_sxm().peak(Type::bf16) == model::h100_sxm().peak(Type::bf16));
  CHECK(model::h200_sxm().hbm_bytes_per_second == 4.8e12);
}

TEST_CASE("model: rates by compute capability give the peaks of the data sheets") {
  struct Case {
    model::DeviceModel sheet;
    int major, minor;
  };
  for (Case const& c : {Case{model::a100_80gb(), 8, 0}, Case{model::h100_sxm(), 9, 0}, Case{model::b200(), 10, 0}}) {
    CAPTURE(c.sheet.name);
    model::DeviceModel read;
    read.multiprocessors = c.sheet.multiprocessors;
    read.clock_hz = c.sheet.clock_hz;
    tessera::detail::set_peaks(read, c.major, c.minor);
    CHECK(read.cores_per_multiprocessor == c.sheet.cores_per_multiprocessor);
    for (Type const t : model::all_types) {
      CAPTURE(model::to_string(t));
      CHECK(read.peak(t) == doctest::Approx(c.sheet.peak(t)).epsilon(0.01));
    }
  }
  model::DeviceModel unknown;
  unknown.multiprocessors = 1;
  unknown.clock_hz = 1e9;
  tessera::detail::set_peaks(unknown, 99, 0);
  for (Type const t : model::all_types) CHECK(unknown.peak(t) == 0);
}

TEST_CASE("model: types and their names") {
  for (Type const t : model::all_types) CHECK(model::type_from_string(model::to_string(t)) == t);
  CHECK(model::type_from_string("e4m3") == Type::fp8);
  CHECK(model::type_from_string("e5m2") == Type::fp8);
  CHECK(contains(error_of([] { model::type_from_string("fp12"); }, ErrorCode::value), "fp12"));
  CHECK(model::bytes_per_element(Type::fp64) == 8);
  CHECK(model::bytes_per_element(Type::tf32) == 4);
  CHECK(model::bytes_per_element(Type::bf16) == 2);
  CHECK(model::bytes_per_element(Type::int8) == 1);
  error_of([] { model::bytes_per_element(static_cast<Type>(99)); }, ErrorCode::value);
}

TEST_CASE("model: the host's peaks follow the instructions it lists") {
  using model::detail::host_flops_per_clock;
  auto const at = [](char const* features, Type t) {
    return host_flops_per_clock(features)[static_cast<std::size_t>(t)];
  };
  // Lanes × multiply and add × two units.
  CHECK(at("fpu sse2", Type::fp32) == 4 * 1 * 2);
  CHECK(at("sse2 avx avx2 fma", Type::fp32) == 8 * 2 * 2);
  CHECK(at("avx avx2 fma avx512f", Type::fp32) == 16 * 2 * 2);
  CHECK(at("avx avx2 fma avx512f", Type::fp64) == 8 * 2 * 2);
  CHECK(at("avx avx2 fma avx512f", Type::bf16) == 64);
  CHECK(at("avx fma avx512f avx512_bf16", Type::bf16) == 128);
  CHECK(at("avx fma avx512f avx512_fp16", Type::fp16) == 128);
  CHECK(at("avx fma avx512f avx512_vnni", Type::int8) == 256);
  CHECK(at("avx fma avx512f avx512_bf16 amx_bf16 amx_int8", Type::bf16) == 1024);
  CHECK(at("avx fma avx512f avx512_bf16 amx_bf16 amx_int8", Type::int8) == 2048);
  CHECK(at("fp asimd asimdhp asimddp bf16 i8mm", Type::fp32) == 16);
  CHECK(at("fp asimd asimdhp asimddp bf16 i8mm", Type::fp16) == 32);
  CHECK(at("fp asimd asimdhp asimddp bf16 i8mm", Type::bf16) == 64);
  CHECK(at("fp asimd asimdhp asimddp bf16 i8mm", Type::int8) == 128);
  // A name inside another is not that name.
  CHECK(at("xavx512f fma4", Type::fp32) == 8);
  for (double const rate : host_flops_per_clock("")) CHECK(rate > 0);
}

TEST_CASE("model: lists of processors") {
  using model::detail::count_cpu_list;
  CHECK(count_cpu_list("0") == 1);
  CHECK(count_cpu_list("0-3,8") == 5);
  CHECK(count_cpu_list("0-1,4-7\n") == 6);
  CHECK(count_cpu_list("") == 0);
  CHECK(count_cpu_list("none") == 0);
  CHECK(count_cpu_list("5-2") == 0);
  CHECK(count_cpu_list("3-") == 0);
}

TEST_CASE("model: the host is read") {
  auto const d = model::host_device();
  CHECK_FALSE(d.name.empty());
  CHECK(d.multiprocessors >= 1);
  CHECK(d.warp_size == 1);
  CHECK(d.max_warps_per_multiprocessor >= 1);
  CHECK(d.clock_hz > 1e8);
  CHECK(d.clock_hz < 1e10);
  for (Type const t : model::all_types) CHECK(d.peak(t) > 0);
  CHECK(d.peak(Type::fp32) == doctest::Approx(2 * d.peak(Type::fp64)));
  CHECK(d.hbm_bytes_per_second == 0);
  auto const one = model::host_device(1);
  CHECK(one.multiprocessors == 1);
  CHECK(one.peak(Type::fp32) == doctest::Approx(d.peak(Type::fp32) / d.multiprocessors));
  CHECK(model::host_device(1 << 20).multiprocessors >= d.multiprocessors);
  error_of([] { model::host_device(-1); }, ErrorCode::value);
}

TEST_CASE_TEMPLATE_DEFINE("model: the running machine is read", Exec, read_running) {
  Exec const exec{};
  auto const d = model::read_device(exec);
  MESSAGE(model::to_string(d));
  CHECK_FALSE(d.name.empty());
  CHECK(d.multiprocessors >= 1);
  CHECK(d.max_warps_per_multiprocessor >= 1);
  CHECK(d.clock_hz > 1e8);
  CHECK(d.hbm_bytes_per_second > 1e6);  // a busy machine may be slow
  CHECK(d.hbm_bytes_per_second < 1e14);
  CHECK(d.peak(Type::fp32) > 1e9);
  CHECK(model::occupancy(d, 1, 0, 0).active_blocks >= 1);
  CHECK(model::roofline(d, Type::fp32, 1e9, 1e6).seconds > 0);
  // A machine that is built in too agrees with its sheet: limits exactly, rates within 5 % (clocks are read, and memory
  // is counted at its pins).
  for (auto const& [part, sheet] :
       {std::pair{"A100-SXM4-80GB", model::a100_80gb()}, std::pair{"H100 80GB", model::h100_sxm()},
        std::pair{"H200", model::h200_sxm()}, std::pair{"B200", model::b200()}}) {
    if (!contains(d.name, part)) continue;
    CHECK(d.multiprocessors == sheet.multiprocessors);
    CHECK(d.max_shared_bytes_per_block == sheet.max_shared_bytes_per_block);
    CHECK(d.shared_bytes_per_multiprocessor == sheet.shared_bytes_per_multiprocessor);
    CHECK(d.reserved_shared_bytes_per_block == sheet.reserved_shared_bytes_per_block);
    CHECK(d.max_blocks_per_multiprocessor == sheet.max_blocks_per_multiprocessor);
    CHECK(d.max_warps_per_multiprocessor == sheet.max_warps_per_multiprocessor);
    CHECK(d.registers_per_multiprocessor == sheet.registers_per_multiprocessor);
    CHECK(d.hbm_bytes_per_second == doctest::Approx(sheet.hbm_bytes_per_second).epsilon(0.05));
    for (Type const t : model::all_types) CHECK(d.peak(t) == doctest::Approx(sheet.peak(t)).epsilon(0.05));
  }
  // The measurement is made once.
  CHECK(model::read_device(exec).hbm_bytes_per_second == d.hbm_bytes_per_second);
}
TEST_CASE_TEMPLATE_APPLY(read_running, tessera::test::Spaces);

TEST_CASE("model: machines print themselves with units") {
  std::string const text = model::to_string(model::h100_sxm());
  for (char const* part : {"H100 SXM", "132 multiprocessors", "1.98 GHz", "64 warps of 32 threads", "65536 registers",
                           "80 GB at 3.35 TB/s", "bf16 989.5 TFLOP/s", "int8 1.979 POP/s"})
    CHECK_MESSAGE(contains(text, part), text);
  CHECK(contains(model::to_string(model::host_device()), "unknown bandwidth"));
  CHECK_FALSE(contains(model::to_string(model::a100_80gb()), "fp8"));
}
