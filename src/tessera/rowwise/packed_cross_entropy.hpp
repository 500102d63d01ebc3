// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_CROSS_ENTROPY_HPP
#define TESSERA_ROWWISE_PACKED_CROSS_ENTROPY_HPP

#include <tessera/cross_entropy.hpp>
#include <tessera/rowwise/labels.hpp>
#include <tessera/rowwise/packed_pairs.hpp>
#include <tessera/rowwise/packed_softmax.hpp>

namespace tessera::detail {

/// Of some logits: the maximum, the sum of exponentials relative to reference_of(it), and the sum of themselves.
struct LossPart {
  float top = -Kokkos::Experimental::infinity_v<float>, sum = 0, total = 0;
};

/// What both kernels have.
template <class T>
struct CrossEntropyRows {
  PackedGrid grid;
  Operand logits, loss, d_logits, log_sum;
  LossTargets<float> targets;
  float smoothing, each;  // the part that is spread, and what of it a class gets

  template <class Place>
  KOKKOS_FORCEINLINE_FUNCTION LossTarget<float> target(Place const& row) const {
    LossTarget<float> target = targets.read(row.offset(targets.place), row.offset(targets.d_loss));
    target.label = static_cast<int>(target.label);  // one register of it is kept
    return target;
  }
  template <class Place>
  KOKKOS_FORCEINLINE_FUNCTION T logit(Place const& row, LossTarget<float> const& target) const {
    return target.counts() ? static_cast<T const*>(logits.data)[row.offset(logits) + target.label] : T(0.0f);
  }
  /// For one thread of a row.
  template <class Place>
  KOKKOS_FORCEINLINE_FUNCTION void write_loss(Place const& row, LossTarget<float> const& target, LossPart const& all,
                                              float log_of_sum, float logit) const {
    float const whole = reference_of(all.top) + log_of_sum;
    if (log_sum.present()) row.template value<float>(log_sum) = whole;
    if (loss.present()) row.template value<float>(loss) = loss_of(target, whole, logit, all.total, smoothing, each);
  }
};

/// The gradient of the logits of a row.
struct LossSlope {
  float factor, less, hit;
  bool counts;

  KOKKOS_FORCEINLINE_FUNCTION LossSlope(LossTarget<float> const& target, LossPart const& all, float smoothing,
                                        float each)
      : factor(target.gradient / all.sum),
        less(target.gradient * each),
        hit(target.gradient * (1 - smoothing)),
        counts(target.counts()) {}

  /// From exponentials, relative as the sum is. The label's own gradient is less by `hit`: the thread that has stored
  /// it stores it again, which takes fewer registers than to look for it in every pack.
  template <int Width>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(Pack<float, Width>& e) const {
    if (counts)
      for (int j = 0; j < Width; ++j) e[j] = e[j] * factor - less;
    else
      for (int j = 0; j < Width; ++j) e[j] = 0;
  }
  KOKKOS_FORCEINLINE_FUNCTION float of_label(float e) const { return e * factor - less - hit; }
};

/// Of fp16, which takes more registers to widen than bf16 does, fewer teams at a time.
template <class T, class Shape>
struct LossShape : Shape {
  static constexpr int registers = Shape::registers + (std::is_same_v<T, fp16_t> ? 8 : 0);
};

/// Rows that their threads hold in registers.
template <class Exec, class T, class Shape>
struct PackedCrossEntropy : CrossEntropyRows<T> {
  using Row = PackedRow<Exec, Shape, T>;
  using Base = CrossEntropyRows<T>;
  static constexpr float lowest = -Kokkos::Experimental::infinity_v<float>;
  static constexpr bool starts_early = true;

  explicit PackedCrossEntropy(Base const& rows) : Base(rows) {}

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Row const row(this->grid, team.league_rank());
    wait_for_kernels_before<Exec>();
    typename Row::RawParts raw;
    row.load(this->logits, raw, T(lowest));
    LossTarget<float> target;
    float logit = 0;
    if (row.inside()) {
      target = this->target(row.place);
      logit = static_cast<float>(this->logit(row.place, target));
    }
    typename RowExponentials<Row>::Exponential const exponential(1.0f);
    RowExponentials<Row> const exponentials(exponential, raw);
    typename Row::ValueParts e;
    LossPart part{exponentials.top, 0, 0};
    if (this->smoothing != 0) part.total = Row::join(total_of(row, raw), Add{});
    part.sum = exponentials(raw, e);
    auto to = exponentials.to;
    if constexpr (Shape::warps > 1) {
      LossPart const of_warp = Row::template of_warp<PackedCrossEntropy>(part);
      auto const each = [&](auto const& f, auto const& x)
                            TESSERA_INLINE_LAMBDA { return Row::join_parts(x(of_warp), f); };
      part = joined_exponentials<LossPart>(exponential, each, to);
      part.total = each(Add{}, [](auto const& x) TESSERA_INLINE_LAMBDA { return x.total; });
    }
    if (row.lane == 0 && row.inside())
      this->write_loss(row.place, target, part, exponential.log_of_sum(part.sum, part.top, to), logit);
    if (!this->d_logits.present()) return;
    LossSlope slope(target, part, this->smoothing, this->each);
    float const of_label = slope.of_label(exponential(logit, to));
    // exponentials.to is found a second time: kept, it would be two registers too many.
    if constexpr (Shape::warps > 1) slope.factor *= exponential.change(exponentials.top, to);
    row.template store<T>(this->d_logits, [&](auto k) {
      slope(e[k]);
      return e[k];
    });
    if (target.counts() && row.has_column(static_cast<int>(target.label)))
      (&row.place.template value<T>(this->d_logits))[target.label] = T(of_label);
  }

  KOKKOS_FORCEINLINE_FUNCTION static float total_of(Row const& row, typename Row::RawParts const& raw) {
    float total = 0;
    unroll<Row::parts>([&](auto k) {
      if (row.has(k)) total += sum_of(Row::Atoms::widened(raw[k]));
    });
    return total;
  }
};

}  // namespace tessera::detail

#endif
