// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_PERF_DOCUMENTS_HPP
#define TESSERA_PERF_DOCUMENTS_HPP

#include <algorithm>
#include <cstdint>
#include <vector>

#include <Kokkos_Core.hpp>

namespace tessera::perf {

/// Pairs of a query and a key that is not behind it.
inline std::int64_t triangle(std::int64_t side) { return side * (side + 1) / 2; }
/// The same of the last `keys` keys alone.
inline std::int64_t window_pairs(std::int64_t length, std::int64_t keys) {
  return triangle(length) - (length > keys ? triangle(length - keys) : 0);
}

/// Where documents of 512 to 4096 tokens begin, which make 16384 together and then begin again; and the end.
inline std::vector<int> document_starts(std::int64_t length) {
  std::vector<int> starts = {0};
  for (int i = 0; starts.back() < length; ++i) {
    constexpr int lengths[] = {512, 1024, 4096, 2048, 1024, 3584, 1024, 3072};
    starts.push_back(starts.back() + static_cast<int>(std::min<std::int64_t>(lengths[i % 8], length - starts.back())));
  }
  return starts;
}
/// The same where Exec reads them.
template <class Exec>
Kokkos::View<int*, typename Exec::memory_space> copied_starts(std::vector<int> const& starts) {
  Kokkos::View<int*, typename Exec::memory_space> copy("starts", starts.size());
  Kokkos::deep_copy(copy,
                    Kokkos::View<int const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(starts.data(), starts.size()));
  return copy;
}
inline std::int64_t document_pairs(std::vector<int> const& starts) {
  std::int64_t pairs = 0;
  for (std::size_t i = 1; i < starts.size(); ++i) pairs += triangle(starts[i] - starts[i - 1]);
  return pairs;
}

/// Which document a token is of, (1, token).
template <class Exec>
Kokkos::View<int**, Kokkos::LayoutRight, typename Exec::memory_space> document_ids(std::vector<int> const& starts) {
  Kokkos::View<int**, Kokkos::LayoutRight, typename Exec::memory_space> ids("ids", 1, starts.back());
  auto const host = Kokkos::create_mirror_view(ids);
  for (std::size_t d = 0; d + 1 < starts.size(); ++d)
    for (int token = starts[d]; token < starts[d + 1]; ++token) host(0, token) = static_cast<int>(d);
  Kokkos::deep_copy(ids, host);
  return ids;
}

}  // namespace tessera::perf

#endif
