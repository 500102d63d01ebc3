// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_LABELS_HPP
#define TESSERA_ROWWISE_LABELS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/cross_entropy.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/rowwise/operand.hpp>
#include <tessera/rowwise/shapes.hpp>
#include <tessera/rowwise/walk.hpp>
#include <tessera/unroll.hpp>

namespace tessera::detail {

/// A class for each row.
struct Labels {
  static constexpr std::int64_t ignored = -1, out_of_range = -2;

  void const* data;
  bool wide;  // of 64 bits
  std::int64_t ignored_label, classes;

  /// The bits of a label, which are on their way until something is done with them.
  using Bits = Pack<std::int32_t, 2>;
  KOKKOS_FORCEINLINE_FUNCTION Bits bits(std::int64_t offset) const {
    if (wide) return load_pack<2>(static_cast<std::int32_t const*>(data) + 2 * offset);
    return {{static_cast<std::int32_t const*>(data)[offset], 0}};
  }
  /// The class, or one of the two above.
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t operator()(Bits const& bits) const {
    return class_of(wide ? __builtin_bit_cast(std::int64_t, bits) : bits[0]);
  }
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t operator()(std::int64_t offset) const {
    return class_of(wide ? static_cast<std::int64_t const*>(data)[offset]
                         : static_cast<std::int32_t const*>(data)[offset]);
  }
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t class_of(std::int64_t label) const {
    if (label == ignored_label) return ignored;
    return label >= 0 && label < classes ? label : out_of_range;
  }
};

/// What a row of the loss is about, besides its logits.
template <class Acc>
struct LossTarget {
  std::int64_t label = Labels::ignored;
  Acc gradient = 0, part = 0;  // of the loss; of the row in the mean

  KOKKOS_FORCEINLINE_FUNCTION bool counts() const { return label >= 0; }
};

/// Reads them, for kernels over rows.
template <class Acc>
struct LossTargets {
  Labels labels;
  Operand place, d_loss;        // of the labels; may be absent
  std::int64_t const* counted;  // rows that count, where the mean is asked for

  /// Offsets of the row in both operands.
  KOKKOS_FORCEINLINE_FUNCTION LossTarget<Acc> read(std::int64_t label, std::int64_t gradient) const {
    return target(labels(label), part_of(sharing()), slope(gradient));
  }
  /// How many rows share the mean.
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t sharing() const { return counted == nullptr ? 1 : *counted; }
  /// Of a row in the mean.
  KOKKOS_FORCEINLINE_FUNCTION static Acc part_of(std::int64_t sharing) {
    return Acc(1) / static_cast<Acc>(sharing > 0 ? sharing : 1);
  }
  KOKKOS_FORCEINLINE_FUNCTION Acc slope(std::int64_t gradient) const {
    if (!d_loss.present()) return Acc(1);
    return d_loss.type == Scalar::fp64 ? static_cast<Acc>(static_cast<double const*>(d_loss.data)[gradient])
                                       : static_cast<Acc>(static_cast<float const*>(d_loss.data)[gradient]);
  }
  KOKKOS_FORCEINLINE_FUNCTION static LossTarget<Acc> target(std::int64_t label, Acc part, Acc slope) {
    return {label, part * slope, part};
  }
};

/// The loss of a row: 0 where it is ignored, NaN where its label is none.
template <class Acc>
KOKKOS_FORCEINLINE_FUNCTION Acc loss_of(LossTarget<Acc> const& target, Acc log_sum, Acc logit, Acc total, Acc smoothing,
                                        Acc each) {
  if (target.label == Labels::ignored) return Acc(0);
  if (target.label == Labels::out_of_range) return Kokkos::Experimental::quiet_NaN_v<Acc>;
  Acc loss = log_sum - (Acc(1) - smoothing) * logit;
  if (smoothing != Acc(0)) loss -= each * total;
  return target.part * loss;
}

/// counts(0) rows that count, counts(1) labels out of range; integers, added in any order. One team alone writes them.
template <class Exec>
struct CountLabels {
  static constexpr int threads = 256, at_once = 8;
  static constexpr std::int64_t labels_a_team = threads * at_once, labels_alone = 4 * labels_a_team;
  static constexpr bool starts_early = Machine<Exec>::lanes > 1;

  Labels labels;
  Operand place;
  TileGrid grid;
  std::int64_t* counts;

  KOKKOS_FUNCTION std::int64_t of_each() const { return grid.tiles() <= labels_alone ? labels_alone : labels_a_team; }
  std::int64_t teams() const { return (grid.tiles() + of_each() - 1) / of_each(); }

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    if constexpr (starts_early) wait_for_kernels_before<Exec>();
    Lanes<Exec, Worker::team> const lanes(team);
    std::int64_t const begin = team.league_rank() * of_each(), rows = grid.tiles();
    std::int64_t const end = begin + of_each() < rows ? begin + of_each() : rows;
    std::int64_t mine = 0;  // both, the second times 2^32
    for (std::int64_t i = begin + lanes.lane(); i < end; i += at_once * lanes.count()) {
      Labels::Bits bits[at_once];
      auto const is = [&](int u) { return i + u * lanes.count() < end; };
      unroll<at_once>([&](auto u) {
        if (is(u)) bits[u] = labels.bits(place.value_offset(tile_index(grid, i + u * lanes.count())));
      });
      unroll<at_once>([&](auto u) {
        if (!is(u)) return;
        std::int64_t const label = labels(bits[u]);
        mine += label >= 0 ? 1 : label == Labels::out_of_range ? std::int64_t{1} << 32 : 0;
      });
    }
    std::int64_t const all = lanes.template join<Add>(mine, std::int64_t{0});
    if (lanes.lane() != 0) return;
    for (int which = 0; which < 2; ++which) {
      std::int64_t const count = which == 0 ? all & 0xffffffff : all >> 32;
      if (rows <= labels_alone)
        counts[which] = count;
      else if (count > 0)
        Kokkos::atomic_add(counts + which, count);
    }
  }
};

/// For both counts, one after the other.
template <class Exec>
struct ClearCounts {
  static constexpr bool starts_early = Machine<Exec>::lanes > 1;
  std::int64_t* counts;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const { counts[i] = 0; }
  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    if (int const i = thread_of<Exec>(team); i < 2) counts[i] = 0;
  }
};

template <class Exec>
void count_labels(Exec const& exec, CrossEntropyProblem const& problem, Labels const& labels, Operand const& place,
                  TileGrid const& grid) {
  using Space = KernelSpace<Exec>;
  using Kernel = CountLabels<Space>;
  Kernel const kernel{labels, place, grid, problem.counts};
  if (kernel.teams() != 1) {  // none or several
    constexpr char const* label = "tessera::cross_entropy::clear";
    ClearCounts<Space> const clear{problem.counts};
    if constexpr (Machine<Exec>::lanes > 1)
      launch<32>(label, exec, 1, 0, clear);
    else
      for_each_index(label, exec, 2, clear, 2);
  }
  launch<Kernel::threads>("tessera::cross_entropy::count", exec, kernel.teams(), 0, kernel);
}

}  // namespace tessera::detail

#endif
