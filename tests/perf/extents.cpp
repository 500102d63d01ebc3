// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/extents.hpp"

#include <doctest/doctest.h>

using namespace tessera::perf;

TEST_CASE("perf: a shape is a cube, extents or a sweep") {
  CHECK(parse_extents("4096", 3) == std::vector<Extents>{{4096, 4096, 4096}});
  CHECK(parse_extents("64x8192x128", 3) == std::vector<Extents>{{64, 8192, 128}});
  CHECK(parse_extents("2x8:24:8", 2) == std::vector<Extents>{{2, 8}, {2, 16}, {2, 24}});
  for (char const* wrong : {"", "64x64", "64x64x", "64x64x-1", "64x64xa", "1x1x1x1", "1:2", "1:9:0"})
    CHECK_THROWS_AS(parse_extents(wrong, 3), std::invalid_argument);
}

TEST_CASE("perf: a product may say its batch") {
  CHECK(parse_products("4096", 1) == std::vector<ProductShape>{{1, 4096, 4096, 4096}});
  CHECK(parse_products("64x128x256", 1) == std::vector<ProductShape>{{1, 64, 128, 256}});
  CHECK(parse_products("64x128x256", 8) == std::vector<ProductShape>{{8, 64, 128, 256}});
  CHECK(parse_products("512x64x128x256", 8) == std::vector<ProductShape>{{512, 64, 128, 256}});
  CHECK_THROWS_AS(parse_products("2x3", 1), std::invalid_argument);
  CHECK_THROWS_AS(parse_products("1x2x3x4x5", 1), std::invalid_argument);
  CHECK(to_string(ProductShape{1, 64, 128, 256}) == "64x128x256");
  CHECK(to_string(ProductShape{512, 64, 128, 256}) == "512x64x128x256");
}

TEST_CASE("perf: random shapes are those of their seed") {
  auto const shapes = random_extents(100, 3, 50, 7);
  CHECK(shapes.size() == 100);
  for (Extents const& shape : shapes) {
    CHECK(shape.size() == 3);
    for (std::int64_t const extent : shape) CHECK((extent >= 1 && extent <= 50));
  }
  CHECK(random_extents(100, 3, 50, 7) == shapes);
  CHECK(random_extents(100, 3, 50, 8) != shapes);
}
