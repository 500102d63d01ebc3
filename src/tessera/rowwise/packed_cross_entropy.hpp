// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_CROSS_ENTROPY_HPP
#define TESSERA_ROWWISE_PACKED_CROSS_ENTROPY_HPP

#include <tessera/cross_entropy.hpp>
#include <tessera/rowwise/labels.hpp>
#include <tessera/rowwise/packed_pairs.hpp>
#include <tessera/rowwise/packed_softmax.hpp>
#include <tessera/rowwise/staying_rows.hpp>

namespace tessera::detail {

/// Of some logits: the maximum, the sum of exponentials relative to reference_of(it), and the sum of themselves.
struct LossPart {
  float top = -Kokkos::Experimental::infinity_v<float>, sum = 0, total = 0;
};

struct JoinLoss {
  template <class Join>
  KOKKOS_FORCEINLINE_FUNCTION LossPart operator()(LossPart x, Join const& join) const {
    float const top = join(x.top, [](float a, float b) { return larger(a, b); });
    float const sum = join(x.sum * exponential_below(x.top - reference_of(top)), Add{});
    return {top, sum, join(x.total, Add{})};
  }
};

/// What both kernels have.
template <class T>
struct CrossEntropyRows {
  PackedGrid grid;
  Operand logits, loss, d_logits, log_sum;
  LossTargets<float> targets;
  float smoothing, each;  // the part that is spread, and what of it a class gets

  KOKKOS_FORCEINLINE_FUNCTION LossTarget<float> target(PackedRowPlace const& row) const {
    return targets.read(row.offset(targets.place), row.offset(targets.d_loss));
  }
  KOKKOS_FORCEINLINE_FUNCTION float logit(PackedRowPlace const& row, LossTarget<float> const& target) const {
    return target.counts() ? static_cast<float>(static_cast<T const*>(logits.data)[row.offset(logits) + target.label])
                           : 0.0f;
  }
  /// For one thread of a row.
  KOKKOS_FORCEINLINE_FUNCTION void write_loss(PackedRowPlace const& row, LossTarget<float> const& target,
                                              LossPart const& all, float logit) const {
    float const whole = reference_of(all.top) + Kokkos::log(all.sum);
    if (log_sum.present()) row.template value<float>(log_sum) = whole;
    if (loss.present()) row.template value<float>(loss) = loss_of(target, whole, logit, all.total, smoothing, each);
  }
};

/// The gradient of the logits of a row.
struct LossSlope {
  float top, factor, less, hit;
  int label;

  KOKKOS_FORCEINLINE_FUNCTION LossSlope(LossTarget<float> const& target, LossPart const& all, float smoothing,
                                        float each)
      : top(reference_of(all.top)),
        factor(target.gradient / all.sum),
        less(target.gradient * each),
        hit(target.gradient * (1 - smoothing)),
        label(static_cast<int>(target.label)) {}

  /// Of a pack whose first logit is that of class `first`.
  template <int Width>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(int first, Pack<float, Width>& x) const {
    bool const counts = label >= 0;
    for (int j = 0; j < Width; ++j) x[j] = counts ? exponential_below(x[j] - top) * factor - less : 0.0f;
    int const at = label - first;
    if (at >= 0 && at < Width)
      for (int j = 0; j < Width; ++j)
        if (j == at) x[j] -= hit;
  }
};

/// Rows that their threads hold in registers.
template <class Exec, class T, class Shape>
struct PackedCrossEntropy : CrossEntropyRows<T> {
  using Row = PackedRow<Exec, Shape, T>;
  using Base = CrossEntropyRows<T>;
  static constexpr int packs = Shape::packs, width = Row::width;
  static constexpr float lowest = -Kokkos::Experimental::infinity_v<float>;

  explicit PackedCrossEntropy(Base const& rows) : Base(rows) {}

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Row const row(this->grid, team.league_rank());
    typename Row::Raw raw[packs];
    row.load(this->logits, raw, T(lowest));
    LossTarget<float> target;
    float logit = 0;
    if (row.inside()) {
      target = this->target(row.place);
      if (row.lane == 0) logit = this->logit(row.place, target);
    }
    LossPart part;
    unroll<packs>([&](auto k) {
      typename Row::Values const x = Row::Atoms::widened(raw[k]);
      for (int j = 0; j < width; ++j) part.top = larger(part.top, x[j]);
    });
    part.top = Row::join(part.top, [](float a, float b) { return larger(a, b); });
    float const relative_to = reference_of(part.top);
    unroll<packs>([&](auto k) {
      typename Row::Values const x = Row::Atoms::widened(raw[k]);
      for (int j = 0; j < width; ++j) part.sum += exponential_below(x[j] - relative_to);
      if (this->smoothing != 0 && row.has(k))
        for (int j = 0; j < width; ++j) part.total += x[j];
    });
    part.sum = Row::join(part.sum, Add{});
    if (this->smoothing != 0) part.total = Row::join(part.total, Add{});
    if constexpr (Shape::warps > 1) {
      part = Row::template of_warp<PackedCrossEntropy>(part);
      part = JoinLoss{}(part, [](float x, auto const& f) { return Row::join_parts(x, f); });
    }
    if (row.lane == 0 && row.inside()) this->write_loss(row.place, target, part, logit);
    if (!this->d_logits.present()) return;
    LossSlope const slope(target, part, this->smoothing, this->each);
    row.template store<T>(this->d_logits, [&](auto k) {
      typename Row::Values x = Row::Atoms::widened(raw[k]);
      slope(row.pack(k) * width, x);
      return x;
    });
  }
};

/// Longer ones, on teams that stay.
template <class Exec, class T, int Threads>
struct StayingCrossEntropy : CrossEntropyRows<T> {
  using Rows = StayingRows<Exec, T, Threads, 1>;
  using Base = CrossEntropyRows<T>;
  static constexpr int width = Rows::width;
  static constexpr float lowest = -Kokkos::Experimental::infinity_v<float>;
  static constexpr bool starts_early = true;

  int kept = 0, teams = 1;

  explicit StayingCrossEntropy(Base const& rows) : Base(rows) {}

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    Rows const rows(team, this->grid, kept);
    int const thread = Rows::Atoms::thread();
    T const rest[1] = {T(lowest)};
    bool const writes = this->d_logits.present();
    PackedRowPlace now, next(this->grid, team.league_rank());
    LossTarget<float> target, of_next = this->target(next);
    float logit = thread == 0 ? this->logit(next, of_next) : 0.0f;
    LossPart part, all;
    auto const take = [&](typename Rows::Batch const& batch, auto const& has) { add(part, batch[0], has); };
    T const* const from[1] = {Rows::data(this->logits, next)};
    rows.pass(
        false, true, from, from, rest, [](int, typename Rows::Raw const(&)[1]) {}, take);
    int turn = 0;
    for (std::int64_t i = team.league_rank(); i < this->grid.rows; i += teams) {
      all = Rows::template merged<StayingCrossEntropy>(part, turn, JoinLoss{});
      turn ^= 1;
      now = next;
      target = of_next;
      if (thread == 0) this->write_loss(now, target, all, logit);
      bool const reads = i + teams < this->grid.rows;
      part = {};
      if (reads) {
        next = PackedRowPlace(this->grid, i + teams);
        of_next = this->target(next);
        if (thread == 0) logit = this->logit(next, of_next);
      }
      LossSlope const slope(target, all, this->smoothing, this->each);
      T* const to = Rows::data(this->d_logits, now);
      T const* const old[1] = {Rows::data(this->logits, now)};
      T const* const fresh[1] = {Rows::data(this->logits, next)};
      rows.pass(
          writes, reads, old, fresh, rest,
          [&](int first, typename Rows::Raw const(&raw)[1]) {
            typename Rows::Values x = Rows::Atoms::widened(raw[0]);
            slope(thread * width + first, x);
            store_pack<width>(to + first, Rows::Atoms::template narrowed<T>(x));
          },
          take);
    }
  }

  template <class Has>
  KOKKOS_FORCEINLINE_FUNCTION void add(LossPart& part, typename Rows::Raw const (&batch)[Rows::batch],
                                       Has const& has) const {
    unroll<Rows::batch>([&](auto k) {  // one after the other: widened at once they would not fit into registers
      typename Rows::Values const x = Rows::Atoms::widened(batch[k]);
      float top = part.top;
      for (int j = 0; j < width; ++j) top = larger(top, x[j]);
      float const to = reference_of(top);
      part.sum *= exponential_below(part.top - to);
      part.top = top;
      for (int j = 0; j < width; ++j) part.sum += exponential_below(x[j] - to);
      if (this->smoothing != 0 && has(k))
        for (int j = 0; j < width; ++j) part.total += x[j];
    });
  }
};

/// Whether the problem was one of packed rows, and has been started.
template <class Exec>
bool start_packed_cross_entropy(Exec const& exec, CrossEntropyProblem const& problem, TileGrid const& grid,
                                LossTargets<float> const& targets) {
  bool started = false;
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available) {
    Scalar const type = problem.logits.type;
    if (!packed_rows(grid, type)) return false;
    RowInputs<float>::visit(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using Space = KernelSpace<Exec>;
      constexpr int width = packed_width<T>;
      constexpr char const* label = "tessera::cross_entropy";
      for (RowArray const* a : {&problem.logits, &problem.d_logits})
        if (!is_packed_operand(*a, grid, width, type)) return;
      PackedGrid const rows(grid, width);
      auto const packed = [&](RowArray const& a) { return operand(a, grid, width, true); };
      CrossEntropyRows<T> const common{rows,
                                       packed(problem.logits),
                                       packed(problem.loss),
                                       packed(problem.d_logits),
                                       packed(problem.log_sum),
                                       targets,
                                       static_cast<float>(problem.smoothing),
                                       static_cast<float>(problem.smoothing / static_cast<double>(grid.columns))};
      auto const start = [&](auto shape) {
        using Shape = decltype(shape);
        launch_packed<Shape>(label, exec, rows, PackedCrossEntropy<Space, T, Shape>(common));
      };
      if (rows.packs <= 16)
        start(PairShape<8, 256>{});
      else if (rows.packs <= longest_packed_row)
        with_packed_shape(rows.packs, start);
      else
        with_staying_threads(rows, [&](auto threads) {
          using Kernel = StayingCrossEntropy<Space, T, decltype(threads)::value>;
          launch_staying<typename Kernel::Rows>(label, exec, rows, Kernel(common), problem.d_logits.present());
        });
      started = true;
    });
  }
  return started;
}

}  // namespace tessera::detail

#endif
