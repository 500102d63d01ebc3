// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_LONG_CROSS_ENTROPY_HPP
#define TESSERA_ROWWISE_LONG_CROSS_ENTROPY_HPP

#include <tessera/rowwise/long_rows.hpp>
#include <tessera/rowwise/packed_cross_entropy.hpp>

namespace tessera::detail {

/// Cross-entropy of long rows.
template <class Rows>
struct LongCrossEntropy : CrossEntropyRows<typename Rows::Element> {
  using Exec = typename Rows::Space;
  using T = typename Rows::Element;
  using State = RelativeState<LossPart>;
  using Base = CrossEntropyRows<T>;
  static constexpr int width = Rows::width;
  static constexpr float lowest = -Kokkos::Experimental::infinity_v<float>;
  static constexpr bool starts_early = true, has_room_for_more = true;

  RowStream stream = {};

  explicit LongCrossEntropy(Base const& rows) : Base(rows) {}

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Rows::template begin<LongCrossEntropy>(stream);
    wait_for_kernels_before<Exec>();
    bool const writes = this->d_logits.present();
    RelativeExponential const exponential(1.0f);
    // On its way before the row is; nothing waits for it until the row has come.
    Questions questions{.sharing = this->targets.sharing()};
    Rows rows(team, this->grid, stream, {this->logits}, {T(lowest)});
    LossTarget<float> read;  // if there is no gradient, of the row that is read
    Logit logit;             // of the row that is written, or if there is no gradient, read
    rows.template each_row<LongCrossEntropy>(
        [&] {
          ask_ahead(questions, rows);
          if (!writes) read = questions.target(questions.read - 1);
          return State{{}, exponential.none()};
        },
        [&](State& row, auto const& packs) {
          if (!writes) logit.look_for(rows, packs, read);
          add(row, rows, packs, exponential);
        },
        [&](auto const& each, int) {
          RelativeExponential::Reference to;
          auto all = joined_exponentials<LossPart>(exponential, each, to);
          if (this->smoothing != 0) all.total = each(Add{}, [](auto const& x) { return x.total; });
          return all;
        },
        [&](LossPart const& all, auto const& run) {
          auto const to = exponential.reference(all.top);
          LossTarget<float> const target = questions.target(questions.written++);
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
    KOKKOS_FORCEINLINE_FUNCTION void look_for(Rows const& rows, Packs const& packs, LossTarget<float> const& target) {
      int const behind = target.counts() ? static_cast<int>(target.label) - packs.column : -1;
      auto const in_slot = static_cast<unsigned>(behind - packs.first), k = in_slot / Rows::step,
                 j = in_slot % Rows::step;
      if (k >= Packs::batch || j >= width || !packs.has(static_cast<int>(k))) return;
      value = static_cast<float>(rows.element(packs, static_cast<int>(k), static_cast<int>(j)));
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
      logit.look_for(rows, packs, target);
      unroll<batch_of<decltype(packs)>>([&](auto k) {
        typename Rows::Values x = packs.template values<0>(k);
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
      unroll<batch_of<decltype(packs)>>([&](auto k) { rows.store(to, packs, k, zero); });
      rows.store_ends(to, packs);
    };
    run(put, std::false_type{});
  }

  /// What rows are about, of 32 of them one a lane. A load waits behind all that is on its way into the ring, so that
  /// it is asked for long before.
  struct Questions {
    std::int64_t sharing;     // the mean
    Labels::Bits label = {};  // on their way, of the 32 rows that come
    float slope = 0;
    int known = 0, known_before = 0;  // the labels of these rows and of the 32 before, of which some are to be written
    float of_known = 0, of_known_before = 0;  // slopes
    int read = 0, written = 0;                // rows

    KOKKOS_FORCEINLINE_FUNCTION LossTarget<float> target(int row) const {
      bool const before = row / 32 < (read - 1) / 32;
      return LossTargets<float>::target(Rows::Atoms::of_lane(before ? known_before : known, row % 32),
                                        LossTargets<float>::part_of(sharing),
                                        Rows::Atoms::of_lane(before ? of_known_before : of_known, row % 32));
    }
  };
  KOKKOS_FORCEINLINE_FUNCTION void ask(Questions& x, Rows const& rows, int later) const {
    int const row = later + Rows::Atoms::thread() % 32;
    if (!rows.is_row(row)) return;
    LongRowPlace const place = rows.place(row);
    x.label = this->targets.labels.bits(place.offset(this->targets.place));
    x.slope = this->targets.slope(place.offset(this->targets.d_loss));
  }
  /// For every row that is read, before.
  KOKKOS_FORCEINLINE_FUNCTION void ask_ahead(Questions& x, Rows const& rows) const {
    if (x.read % 32 == 0) {
      if (x.read == 0) ask(x, rows, 0);
      x.known_before = x.known;
      x.of_known_before = x.of_known;
      x.known = static_cast<int>(this->targets.labels(x.label));
      x.of_known = x.slope;
      ask(x, rows, 32);
    }
    ++x.read;
  }

  template <class Packs>
  KOKKOS_FORCEINLINE_FUNCTION void add(State& row, Rows const& rows, Packs const& packs,
                                       RelativeExponential const& exponential) const {
    float const top = exponential.template top_of<Rows>(row.part.top, packs);
    if (this->smoothing != 0)
      unroll<batch_of<decltype(packs)>>([&](auto k) {
        auto const x = packs.template values<0>(k);
        for (int j = 0; j < width; ++j)
          if (rows.has_element(packs, k, j)) row.part.total += x[j];
      });
    exponential.take(row, top, packs, [](auto, typename Rows::Values const&) {});
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
      rows.pass(1, problem.d_logits.present() ? 1 : 0);
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
        started = launch_long<Space, T, 1>(label, exec, rows, {.writes = problem.d_logits.present()}, [&](auto kind) {
          return LongCrossEntropy<typename decltype(kind)::type>(common);
        });
      else if (rows.ragged)
        with_ragged_shape(rows.packs, start);
      else if (rows.packs <= 8)
        start(PairShape<4, 128, 0, 2, 56>{});
      else if (rows.packs <= 16)
        start(PairShape<8, 128, 0, 2, 56>{});
      else if (rows.packs <= 32)
        start(PackedShape<8, 128, 4>{});
      else if (rows.packs <= 64)
        start(PackedShape<16, 256, 4>{});
      else
        with_longer_packed_shape(rows.packs, start);
    });
  }
  return started;
}

}  // namespace tessera::detail

#endif
