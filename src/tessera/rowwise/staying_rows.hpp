// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_STAYING_ROWS_HPP
#define TESSERA_ROWWISE_STAYING_ROWS_HPP

#include <algorithm>

#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/unroll.hpp>

// Long packed rows, of which there are many: teams stay for the whole launch and take one row after the other. What of
// a row fits lies in scratch, each thread's own packs, between the pass that finds its sums and the one that writes;
// the rest is read again, while it lies in the second-level cache. As soon as a pack has been used that of the next row
// takes its place, so that the memory is read and written all the time and a team waits once a row, for its sums.
namespace tessera::detail {

/// One thread's part in such a team, for `Operands` operands that are read.
template <class Exec, class T, int Threads, int Operands>
struct StayingRows {
  static constexpr int threads = Threads, width = packed_width<T>, batch = 4 / Operands, warps = Threads / 32;
  using Atoms = WarpAtoms<Exec>;
  using Raw = Pack<T, width>;
  using Values = Pack<float, width>;
  using Batch = Raw[Operands][batch];

  /// Packs of an operand that each thread has room for, where as many teams run as 64 registers a thread allow.
  static constexpr int most_kept = (Threads == 1024 ? 14 : 12) / Operands;

  Raw* room;  // (kept, Operands, threads), this thread's place in it
  int packs;  // of a row, without those before this thread's first one
  int kept;

  KOKKOS_FORCEINLINE_FUNCTION StayingRows(TeamMember<Exec> const& team, PackedGrid const& grid, int slots)
      : packs(grid.packs - Atoms::thread()), kept(slots) {
    room = static_cast<Raw*>(team.team_scratch(0).get_shmem_aligned(scratch(slots), 16)) + Atoms::thread();
  }
  KOKKOS_FUNCTION static constexpr std::size_t scratch(int slots) {
    return std::size_t{sizeof(Raw)} * Operands * Threads * slots;
  }
  static int slots(PackedGrid const& grid) { return std::min((grid.packs + Threads - 1) / Threads, most_kept); }

  /// This thread's first pack of a row.
  KOKKOS_FORCEINLINE_FUNCTION static T* data(Operand const& a, PackedRowPlace const& place) {
    return static_cast<T*>(const_cast<void*>(a.data)) + place.offset(a) + Atoms::thread() * width;
  }

  /// One row is written while the next is read: write(first, raw) for each pack of `now` that this thread has, raw of
  /// each operand, the pack's first element `first` behind this thread's first one; then take(batch, has) for batches
  /// of `next`, whose pack k is filled up with `rest` unless has(k). Either may be left out.
  template <class Write, class Take>
  KOKKOS_FORCEINLINE_FUNCTION void pass(bool writes, bool reads, T const* const (&now)[Operands],
                                        T const* const (&next)[Operands], T const (&rest)[Operands], Write const& write,
                                        Take const& take) const {
    TESSERA_ROLLED
    for (int slot = 0; slot * Threads < packs; slot += batch) {
      Batch fetched;
      auto const has = [&](int k) { return (slot + k) * Threads < packs; };
      auto const first = [&](int k) { return (slot + k) * (Threads * width); };
      auto const place = [&](int k, int which) { return ((slot + k) * Operands + which) * Threads; };
      if (reads)
        unroll<batch>([&](auto k) {
          unroll<Operands>([&](auto which) {
            for (int j = 0; j < width; ++j) fetched[which][k][j] = rest[which];
            if (has(k)) fetched[which][k] = load_pack<width>(next[which] + first(k));
          });
        });
      if (writes)
        unroll<batch>([&](auto k) {
          if (!has(k)) return;
          Raw raw[Operands];
          unroll<Operands>([&](auto which) {
            raw[which] = slot + k < kept ? room[place(k, which)] : load_pack<width>(now[which] + first(k));
          });
          write(first(k), raw);
        });
      if (reads) {
        take(fetched, has);
        unroll<batch>([&](auto k) {
          if (slot + k < kept) unroll<Operands>([&](auto which) { room[place(k, which)] = fetched[which][k]; });
        });
      }
    }
  }

  /// merge(x, join) over the team, as SharedRow::merged; `turn` is 0, 1, 0 and so on.
  template <class Tag, class X, class Merge>
  KOKKOS_FORCEINLINE_FUNCTION static X merged(X x, int turn, Merge const& merge) {
    x = merge(x, [](auto y, auto const& f) { return Atoms::template join<32>(y, f); });
    return merge(Atoms::template share_in_turn<Tag, warps>(x, turn),
                 [](auto y, auto const& f) { return Atoms::template join<warps>(y, f); });
  }
};

/// e^x for x <= 0, 0 below 2^-126: such a weight is nothing beside that of the maximum.
KOKKOS_FORCEINLINE_FUNCTION float exponential_below(float x) {
  KOKKOS_IF_ON_HOST((return exp_below(x);))
  KOKKOS_IF_ON_DEVICE((return exp2_approximate(x * 1.44269504088896341f);))
}

/// f(Constant<Threads>{}): two teams of 512 threads a multiprocessor for rows that they keep, else one of 1024.
template <class F>
void with_staying_threads(PackedGrid const& grid, F const& f) {
  if (grid.packs <= 512 * 12)
    f(Constant<512>{});
  else
    f(Constant<1024>{});
}

/// Starts a kernel with the members `kept` and `teams`; one that does not write keeps nothing.
template <class Rows, class Exec, class Kernel>
void launch_staying(char const* label, Exec const& exec, PackedGrid const& grid, Kernel kernel, bool writes = true) {
  constexpr int at_once = 1024 / Rows::threads;
  kernel.kept = writes ? Rows::slots(grid) : 0;
  kernel.teams = static_cast<int>(std::min<std::int64_t>(grid.rows, at_once * Machine<Exec>::concurrency(exec)));
  launch<Rows::threads, at_once>(label, exec, kernel.teams, Rows::scratch(kernel.kept), kernel);
}

}  // namespace tessera::detail

#endif
