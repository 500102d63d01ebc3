// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <climits>

#include <tessera/model/occupancy.hpp>

#include "support/support.hpp"

namespace model = tessera::model;
using model::Limiter;
using tessera::ErrorCode;
using tessera::test::contains;
using tessera::test::error_of;

namespace {

struct Case {
  int threads, registers;
  std::int64_t shared;
  int blocks;
  Limiter limiter;
};

void check(model::DeviceModel const& d, Case const& c) {
  CAPTURE(d.name);
  CAPTURE(c.threads);
  CAPTURE(c.registers);
  CAPTURE(c.shared);
  auto const o = model::occupancy(d, c.threads, c.registers, c.shared);
  CHECK(o.active_blocks == c.blocks);
  CHECK(o.active_warps == c.blocks * ((c.threads + 31) / 32));
  CHECK(o.fraction == doctest::Approx(o.active_warps / 64.0));
  CHECK_MESSAGE(o.limiter == c.limiter, model::to_string(o));
}

}  // namespace

// Every count below is what NVIDIA's own cuda_occupancy.h (CUDA 13.0) gives for the same arguments.
TEST_CASE("model: occupancy as NVIDIA's calculator has it, both machines alike") {
  for (auto const& d : {model::a100_80gb(), model::h100_sxm(), model::b200()})
    for (Case const& c : {
             Case{1024, 32, 0, 2, Limiter::warps},      // 2·32 = 64 warps, and just all registers
             Case{256, 32, 0, 8, Limiter::warps},       //
             Case{256, 64, 0, 4, Limiter::registers},   // 2048 a warp: 32 warps
             Case{256, 33, 0, 6, Limiter::registers},   // 1056 -> 1280 a warp: 12 a partition, 48 in all
             Case{128, 40, 0, 12, Limiter::registers},  // 1280 a warp again
             Case{96, 72, 0, 9, Limiter::registers},    // 2304: 7 a partition, 28 in all, 3 a team
             Case{256, 255, 0, 1, Limiter::registers},  // 8160 -> 8192: 2 a partition
             Case{1024, 64, 0, 1, Limiter::registers},  // all 65536
             Case{1024, 65, 0, 0, Limiter::registers},  // does not fit
             Case{288, 225, 0, 0, Limiter::registers},  // 9 warps would fit by sum, not as 12 over 4 partitions
             Case{640, 96, 0, 1, Limiter::registers},   //
             Case{160, 168, 0, 2, Limiter::registers},  //
             Case{384, 168, 0, 1, Limiter::registers},  // the warp-specialised matrix products
             Case{32, 16, 0, 32, Limiter::blocks},      // 32 teams of one warp: half the warps
             Case{64, 32, 0, 32, Limiter::warps},       // all limits agree
             Case{512, 48, 33792, 2, Limiter::registers},
             Case{33, 100, 1, 8, Limiter::registers},  // 33 threads are two warps
             Case{192, 90, 20000, 3, Limiter::registers},
             Case{128, 32, 6272, 16, Limiter::warps},
         })
      check(d, c);
}

TEST_CASE("model: occupancy by shared memory, with 1 KB a team reserved") {
  check(model::a100_80gb(), {384, 168, 208 * 1024, 0, Limiter::shared_memory});
  check(model::h100_sxm(), {384, 168, 208 * 1024, 1, Limiter::registers});
  check(model::a100_80gb(), {128, 128, 48 * 1024, 3, Limiter::shared_memory});
  check(model::h100_sxm(), {128, 128, 48 * 1024, 4, Limiter::registers});
  check(model::a100_80gb(), {128, 255, 100 * 1024, 1, Limiter::shared_memory});
  check(model::h100_sxm(), {128, 255, 100 * 1024, 2, Limiter::registers});
  check(model::h100_sxm(), {128, 32, 227 * 1024, 1, Limiter::shared_memory});
  check(model::h100_sxm(), {128, 32, 227 * 1024 + 1, 0, Limiter::shared_memory});
  check(model::h100_sxm(), {128, 32, 113 * 1024, 2, Limiter::shared_memory});      // 2·(113 + 1) = 228 KB
  check(model::h100_sxm(), {128, 32, 113 * 1024 + 1, 1, Limiter::shared_memory});  // rounded up to 128 bytes
}

TEST_CASE("model: 64 warps a multiprocessor are the most of an H100") {
  int most = 0;
  for (int threads = 1; threads <= 1024; ++threads)
    most = std::max(most, model::occupancy(model::h100_sxm(), threads, 32, 0).active_warps);
  CHECK(most == 64);
  CHECK(model::occupancy(model::h100_sxm(), 256, 32, 0).fraction == 1);
}

TEST_CASE("model: occupancy never rises with registers or shared memory") {
  auto const d = model::h200_sxm();
  for (int threads = 32; threads <= 1024; threads += 96) {
    for (int r = 1; r <= 255; ++r)
      REQUIRE(model::occupancy(d, threads, r, 0).active_blocks <= model::occupancy(d, threads, r - 1, 0).active_blocks);
    for (std::int64_t s = 0; s <= 228 * 1024; s += 997)
      REQUIRE(model::occupancy(d, threads, 0, s + 997).active_blocks <=
              model::occupancy(d, threads, 0, s).active_blocks);
  }
}

TEST_CASE("model: occupancy without registers, and on a machine that has no such limits") {
  auto const o = model::occupancy(model::h100_sxm(), 256, 0, 0);
  CHECK(o.block_limit_registers == INT_MAX);
  CHECK(o.block_limit_warps == 8);
  CHECK(o.block_limit_blocks == 32);
  CHECK(o.block_limit_shared_memory == 228);
  model::DeviceModel bare;
  bare.warp_size = 1;
  bare.max_warps_per_multiprocessor = 2;
  auto const b = model::occupancy(bare, 1, 1000, 1 << 30);
  CHECK(b.active_blocks == 2);
  CHECK(b.limiter == Limiter::warps);
  CHECK(b.block_limit_shared_memory == INT_MAX);
}

TEST_CASE("model: occupancy refuses what cannot be meant") {
  auto const d = model::h100_sxm();
  CHECK(contains(error_of([&] { model::occupancy(d, 0, 32, 0); }, ErrorCode::value), "threads_per_block is 0"));
  CHECK(contains(error_of([&] { model::occupancy(d, 1025, 32, 0); }, ErrorCode::value), "1 to 1024"));
  CHECK(contains(error_of([&] { model::occupancy(d, 32, -1, 0); }, ErrorCode::value), "registers_per_thread is -1"));
  CHECK(contains(error_of([&] { model::occupancy(d, 32, 256, 0); }, ErrorCode::value), "0 to 255"));
  CHECK(contains(error_of([&] { model::occupancy(d, 32, 32, -1); }, ErrorCode::value), "shared_bytes is -1"));
  error_of([] { model::occupancy(model::DeviceModel{}, 32, 32, 0); }, ErrorCode::value);
  error_of([] { model::to_string(static_cast<Limiter>(9)); }, ErrorCode::value);
}

TEST_CASE("model: occupancy prints itself") {
  CHECK(model::to_string(model::occupancy(model::h100_sxm(), 128, 128, 60 * 1024)) ==
        "3 blocks, 12 warps, 18.75 % of a multiprocessor, limited by shared memory");
}
