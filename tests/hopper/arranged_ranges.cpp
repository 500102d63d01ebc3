// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "hopper/arranged_values.hpp"

using namespace tessera;
using namespace tessera::test;

// Windows, packed sequences, pages and scales of tiles of keys.

namespace {

template <class T, class TO>
void run_all(int d, int d_v) {
  for (bool causal : {false, true}) {
    run_case<T, TO>({2, 4, 2, 200, 411, d, d_v}, {.causal = causal, .left = 60});
    run_case<T, TO>({1, 2, 1, 300, 270, d, d_v}, {.causal = causal, .left = 130, .right = 20});
    run_case<T, TO>({2, 8, 2, 3, 700, d, d_v}, {.causal = causal, .spoiled = true, .lengths = {700, 333}, .left = 190});
    // The second sequence has no queries, and lies before and behind what others see; tiles of keys hang over.
    Setting const packed{.causal = causal,
                         .query_starts = {0, 70, 70, 220, 290},
                         .key_starts = {0, 33, 60, 350, 417},
                         .spoiled_sequence = 1};
    run_case<T, TO>({1, 4, 2, 290, 417, d, d_v}, packed);
    auto window = packed;
    window.left = 50;
    run_case<T, TO>({1, 4, 2, 290, 417, d, d_v}, window);
    run_case<T, TO>({3, 8, 2, 1, 600, d, d_v}, {.causal = causal, .lengths = {600, 77, 0}, .page = 16});
    run_case<T, TO>({2, 2, 1, 150, 500, d, d_v}, {.causal = causal, .lengths = {500, 301}, .page = 64});
    run_case<T, TO>({2, 8, 2, 2, 900, d, d_v}, {.causal = causal, .splits = 3, .lengths = {900, 300}, .page = 128});
    run_case<T, TO>({2, 2, 1, 100, 300, d, d_v},
                    {.causal = causal, .bshd = true, .lengths = {300, 299}, .left = 80, .page = 8});
  }
}

template <class T, class TO>
void run_scaled(int d, int d_v) {
  for (bool causal : {false, true}) {
    run_case<T, TO>({2, 4, 2, 200, 700, d, d_v}, {.causal = causal, .scale_keys = 128});
    run_case<T, TO>({2, 4, 2, 140, 600, d, d_v}, {.causal = causal, .scaled = true, .left = 300, .scale_keys = 256});
    run_case<T, TO>({2, 8, 2, 3, 900, d, d_v}, {.causal = causal, .splits = 3, .scale_keys = 128});
    run_case<T, TO>({2, 8, 2, 1, 600, d, d_v},
                    {.causal = causal, .lengths = {600, 170}, .page = 64, .scale_keys = 128});
    run_case<T, TO>(
        {1, 4, 2, 290, 417, d, d_v},
        {.causal = causal, .query_starts = {0, 70, 220, 290}, .key_starts = {0, 33, 380, 417}, .scale_keys = 128});
  }
}

}  // namespace

TEST_CASE("the hopper pipeline takes windows, packed sequences and pages of e4m3") {
  run_all<e4m3_t, bf16_t>(128, 128);
  run_all<e4m3_t, float>(64, 40);
  run_all<e4m3_t, bf16_t>(256, 200);
}

TEST_CASE("the hopper pipeline takes windows, packed sequences and pages of e5m2") {
  run_all<e5m2_t, bf16_t>(128, 128);
}

TEST_CASE("the hopper pipeline takes windows, packed sequences and pages of fp32 in tf32") {
  run_all<float, float>(128, 128);
  run_all<float, float>(64, 36);
}

TEST_CASE("the hopper pipeline takes scales of tiles of keys") {
  run_scaled<e4m3_t, bf16_t>(128, 128);
  run_scaled<e4m3_t, bf16_t>(64, 64);
  run_scaled<e4m3_t, float>(256, 256);
  run_scaled<e5m2_t, bf16_t>(128, 72);
}
