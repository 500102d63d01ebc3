// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_CROSS_ENTROPY_HPP
#define TESSERA_ROWWISE_PACKED_CROSS_ENTROPY_HPP

#include <tessera/cross_entropy.hpp>
#include <tessera/rowwise/labels.hpp>
#include <tessera/rowwise/packed_pairs.hpp>
#include <tessera/rowwise/packed_softmax.hpp>
#include <tessera/rowwise/streamed_rows.hpp>

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
    typename Row::ValueParts e;  // the logits, then their exponentials relative to the maximum of a warp's
    LossPart part;
    unroll<Row::parts>([&](auto k) {
      e[k] = Row::Atoms::widened(raw[k]);
      for (int j = 0; j < e[k].size; ++j) part.top = larger(part.top, e[k][j]);
    });
    part.top = Row::join(part.top, [](float a, float b) { return larger(a, b); });
    if (this->smoothing != 0) part.total = Row::join(total_of(row, e), Add{});
    float const top_of_warp = part.top, relative_to = reference_of(part.top);
    unroll<Row::parts>([&](auto k) {
      for (int j = 0; j < e[k].size; ++j) {
        e[k][j] = exponential_below(e[k][j] - relative_to);
        part.sum += e[k][j];
      }
    });
    part.sum = Row::join(part.sum, Add{});
    if constexpr (Shape::warps > 1) {
      part = Row::template of_warp<PackedCrossEntropy>(part);
      part = JoinLoss{}(part, [](float x, auto const& f) { return Row::join_parts(x, f); });
    }
    if (row.lane == 0 && row.inside()) this->write_loss(row.place, target, part, Kokkos::log(part.sum), logit);
    if (!this->d_logits.present()) return;
    LossSlope slope(target, part, this->smoothing, this->each);
    float const to = reference_of(part.top), of_label = slope.of_label(exponential_below(logit - to));
    if constexpr (Shape::warps > 1) slope.factor *= exponential_below(top_of_warp - to);
    row.template store<T>(this->d_logits, [&](auto k) {
      slope(e[k]);
      return e[k];
    });
    if (target.counts() && row.has_column(static_cast<int>(target.label)))
      (&row.place.template value<T>(this->d_logits))[target.label] = T(of_label);
  }

  KOKKOS_FORCEINLINE_FUNCTION static float total_of(Row const& row, typename Row::ValueParts const& x) {
    float total = 0;
    unroll<Row::parts>([&](auto k) {
      if (row.has(k))
        for (int j = 0; j < x[k].size; ++j) total += x[k][j];
    });
    return total;
  }
};

/// Longer ones, which come through scratch.
template <class Exec, class T, bool Ragged>
struct StreamedCrossEntropy : CrossEntropyRows<T> {
  using Rows = StreamedRows<Exec, T, 1, Ragged>;
  using State = RelativeState<LossPart>;
  using Base = CrossEntropyRows<T>;
  static constexpr int width = Rows::width;
  static constexpr float lowest = -Kokkos::Experimental::infinity_v<float>;
  static constexpr bool starts_early = true;

  RowStream stream = {};

  explicit StreamedCrossEntropy(Base const& rows) : Base(rows) {}

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Rows::template begin<StreamedCrossEntropy>(stream);
    wait_for_kernels_before<Exec>();
    bool const writes = this->d_logits.present();
    RelativeExponential const exponential(1.0f);
    Rows rows(team, this->grid, stream, {this->logits}, {T(lowest)});
    float const share = this->targets.part();
    Questions questions;
    LossTarget<float> read;  // if there is no gradient, of the row that is read
    Logit logit;             // of the row that is written, or if there is no gradient, read
    rows.template each_row<StreamedCrossEntropy>(
        [&] {
          ask_ahead(questions, rows, share);
          if (!writes) read = questions.target(questions.read - 1, share);
          return State{{}, exponential.reference(lowest)};
        },
        [&](State& row, auto const& packs) {
          if (!writes) logit.look_for(packs, read);
          add(row, rows, packs, exponential);
        },
        [&](auto const& each, int) {
          float const top = each(Larger{}, [](auto const& x) { return x.top; });
          auto const to = exponential.reference(top);
          float const sum = each(Add{}, [&](auto const& x) { return x.sum * exponential.change(x.top, to); });
          return LossPart{top, sum, this->smoothing != 0 ? each(Add{}, [](auto const& x) { return x.total; }) : 0.0f};
        },
        [&](LossPart const& all, auto const& run) {
          auto const to = exponential.reference(all.top);
          LossTarget<float> const target = questions.target(questions.written++, share);
          if (writes && target.counts())
            write_slopes(rows, all, target, logit, exponential, to, run);
          else if (writes)
            write_zeros(rows, run);
          if (target.counts() ? logit.is_here : rows.is_first_lane())
            this->write_loss(rows.place(), target, all, exponential.log_of_sum(all.sum, all.top, to), logit.value);
          logit.is_here = false;
        });
  }

  /// The label's logit, for the thread that meets it among those of its row.
  struct Logit {
    float value = 0;
    bool is_here = false;

    template <class Packs>
    KOKKOS_FORCEINLINE_FUNCTION void look_for(Packs const& packs, LossTarget<float> const& target) {
      int const behind = target.counts() ? static_cast<int>(target.label) - packs.column : -1;
      auto const in_slot = static_cast<unsigned>(behind - packs.first), k = in_slot / Rows::step,
                 j = in_slot % Rows::step;
      if (k >= Rows::batch || j >= width || !packs.has(static_cast<int>(k))) return;
      value = static_cast<float>(reinterpret_cast<T const*>(packs.place + k * Rows::threads)[j]);
      is_here = true;
    }
  };

  template <class Run>
  KOKKOS_FORCEINLINE_FUNCTION void write_slopes(Rows const& rows, LossPart const& all, LossTarget<float> const& target,
                                                Logit& logit, RelativeExponential const& exponential,
                                                RelativeExponential::Reference const& to, Run const& run) const {
    LossSlope const slope(target, all, this->smoothing, this->each);
    T* const out = rows.data(this->d_logits);
    auto const put = [&](auto const& packs) {
      logit.look_for(packs, target);
      unroll<Rows::batch>([&](auto k) {
        typename Rows::Values x = Rows::Atoms::widened(packs.raw[0][k]);
        for (int j = 0; j < width; ++j) x[j] = exponential(x[j], to) * slope.factor - slope.less;
        rows.store(out, packs, k, Rows::Atoms::template narrowed<T>(x));
      });
      rows.store_ends(out, packs);
    };
    run(put, std::true_type{});
    if (logit.is_here)
      (&rows.place().template value<T>(this->d_logits))[target.label] = T(slope.of_label(exponential(logit.value, to)));
  }
  /// The gradient of a row that does not count.
  template <class Run>
  KOKKOS_FORCEINLINE_FUNCTION void write_zeros(Rows const& rows, Run const& run) const {
    T* const to = rows.data(this->d_logits);
    auto const put = [&](auto const& packs) {
      typename Rows::Raw zero;
      for (int j = 0; j < width; ++j) zero[j] = T(0.0f);
      unroll<Rows::batch>([&](auto k) { rows.store(to, packs, k, zero); });
      rows.store_ends(to, packs);
    };
    run(put, std::false_type{});
  }

  /// What rows are about, of 32 of them one a lane. A load waits behind all that is on its way into the ring, so that
  /// it is asked for long before.
  struct Questions {
    Labels::Bits label = {};  // on their way, of the 32 rows that come
    float slope = 0;
    int known = 0, known_before = 0;  // the labels of these rows and of the 32 before, of which some are to be written
    float gradient = 0, gradient_before = 0;
    int read = 0, written = 0;  // rows

    KOKKOS_FORCEINLINE_FUNCTION LossTarget<float> target(int row, float share) const {
      bool const before = row / 32 < (read - 1) / 32;
      return {Rows::Atoms::of_lane(before ? known_before : known, row % 32),
              Rows::Atoms::of_lane(before ? gradient_before : gradient, row % 32), share};
    }
  };
  KOKKOS_FORCEINLINE_FUNCTION void ask(Questions& x, Rows const& rows, int later) const {
    int const row = later + Rows::Atoms::thread() % 32;
    if (!rows.is_row(row)) return;
    StreamedPlace const place = rows.place(row);
    x.label = this->targets.labels.bits(place.offset(this->targets.place));
    x.slope = this->targets.slope(place.offset(this->targets.d_loss));
  }
  /// For every row that is read, before.
  KOKKOS_FORCEINLINE_FUNCTION void ask_ahead(Questions& x, Rows const& rows, float share) const {
    if (x.read % 32 == 0) {
      if (x.read == 0) ask(x, rows, 0);
      auto const own = LossTargets<float>::target(this->targets.labels(x.label), share, x.slope);
      x.known_before = x.known;
      x.gradient_before = x.gradient;
      x.known = static_cast<int>(own.label);
      x.gradient = own.gradient;
      ask(x, rows, 32);
    }
    ++x.read;
  }

  template <class Packs>
  KOKKOS_FORCEINLINE_FUNCTION void add(State& row, Rows const& rows, Packs const& packs,
                                       RelativeExponential const& exponential) const {
    LossPart& part = row.part;
    typename Rows::Values x[Rows::batch];
    float top = part.top, sum = 0;
    unroll<Rows::batch>([&](auto k) {
      x[k] = Rows::Atoms::widened(packs.raw[0][k]);
      top = larger(top, largest(x[k]));
    });
    if (this->smoothing != 0)
      unroll<Rows::batch>([&](auto k) {
        for (int j = 0; j < width; ++j)
          if (rows.has_element(packs, k, j)) part.total += x[k][j];
      });
    auto const to = exponential.reference(top);
    unroll<Rows::batch>([&](auto k) {
      for (int j = 0; j < width; ++j) x[k][j] = exponential(x[k][j], to);
      sum += sum_of(x[k]);
    });
    part.sum = part.sum * exponential.change(part.top, row.to, to) + sum;
    part.top = top;
    row.to = to;
  }
};

/// Whether the problem was one of packed rows, and has been started.
template <class Exec>
bool start_packed_cross_entropy(Exec const& exec, CrossEntropyProblem const& problem, TileGrid const& grid,
                                LossTargets<float> const& targets) {
  bool started = false;
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available) {
    Scalar const type = problem.logits.type;
    RowInputs<float>::visit_on_host(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using Space = KernelSpace<Exec>;
      constexpr int width = packed_width<T>;
      constexpr char const* label = "tessera::cross_entropy";
      PackedGrid rows(grid, width);
      bool whole = packed_rows(grid, type);
      for (RowArray const* a : {&problem.logits, &problem.d_logits})
        whole = whole && is_packed_operand(*a, grid, width, type);
      if (!whole && !make_ragged<T>(rows, grid, problem.logits, problem.d_logits)) return;
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
        using Shape = LossShape<T, decltype(shape)>;
        launch_packed<Shape>(label, exec, rows, PackedCrossEntropy<Space, T, Shape>(common));
        started = true;
      };
      if (!fits_a_team(rows))
        with_row_kind(rows, [&](auto ragged) {
          using Kernel = StreamedCrossEntropy<Space, T, decltype(ragged)::value>;
          started = launch_streamed<typename Kernel::Rows>(label, exec, Kernel(common),
                                                           {.writes = problem.d_logits.present()});
        });
      else if (rows.ragged)
        with_ragged_shape(rows.packs, start);
      else if (rows.packs <= 16)
        start(PairShape<8, 256>{});
      else
        with_longer_packed_shape(rows.packs, start);
    });
  }
  return started;
}

}  // namespace tessera::detail

#endif
