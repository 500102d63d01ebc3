// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "hopper/masks.hpp"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("the hopper pipeline skips what documents do not share") {
  AttentionShape const z = masked_shape;
  std::vector<int> ids_h(z.keys);
  for (int j = 0; j < z.keys; ++j) ids_h[j] = j < 600 ? j / 280 : j / 33;
  ViewOf<Kokkos::Cuda, int**> const ids("ids", 1, z.keys), own("ids of queries", 1, z.queries);
  fill(ids, ids_h), fill(own, std::vector<int>(ids_h.end() - z.queries, ids_h.end()));
  check_mask_on_hopper(mask::consecutive_documents(own, ids),
                       [&](int, int, int i, int j) { return ids_h[i + z.keys - z.queries] == ids_h[j]; });
}
