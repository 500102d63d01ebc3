// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_MERGE_DETAIL_HPP
#define TESSERA_ATTENTION_MERGE_DETAIL_HPP

#include <tessera/attention/packed_merge.hpp>
#include <tessera/attention_merge.hpp>
#include <tessera/elementary.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/rowwise/shapes.hpp>

namespace tessera::detail {

/// A row of O from its partial results. Every lane reads all LSEs of the row, which are few, and so knows their weights
/// without asking the others.
template <class Exec, class Acc, class Shape, bool Few>
struct MergeKernel {
  using Portion = typename Walk<Exec, Acc, Shape>::Portion;
  // Parts on their way at a time: many hide the latency of memory where rows are few; where parts are few, more teams
  // do.
  static constexpr int ahead = Machine<Exec>::lanes == 1 ? 1 : (Few ? 2 : 32 / (Shape::packs * Shape::width));
  static constexpr Acc lowest = -Kokkos::Experimental::infinity_v<Acc>;
  static constexpr bool starts_early = true;

  TileGrid grid;
  Operand out, lse, own, own_lse, part, part_lse;
  std::int64_t stride, lse_stride;
  int count;
  std::int64_t tiles = 0, tiles_a_team = 1;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>(true);  // attention may follow, whose teams have barriers and maps to make first
    for_each_tile<Exec, Acc, Shape>(team, grid, tiles, tiles_a_team, [&](auto& row) {
      RowInputs<Acc>::visit(part.type, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (Machine<Exec>::lanes > 1 && part.packed && grid.columns % Shape::width == 0)
          one_row<T, Machine<Exec>::lanes != 1>(row);
        else
          one_row<T, false>(row);
      });
    });
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION static Operand later(Operand a, std::int64_t elements) {
    a.data = static_cast<char const*>(a.data) + elements * static_cast<std::int64_t>(size_of(a.type));
    return a;
  }
  KOKKOS_FORCEINLINE_FUNCTION static Acc value(Operand const& a, TileIndex const& at, std::int64_t elements = 0) {
    std::int64_t const i = a.value_offset(at) + elements;
    if (std::is_same_v<Acc, double> && a.type == Scalar::fp64)
      return static_cast<Acc>(static_cast<double const*>(a.data)[i]);
    return static_cast<Acc>(static_cast<float const*>(a.data)[i]);
  }

  /// The lane's elements of a part of T. `Whole`: packs are inside of the row or beside it, and then read from its
  /// beginning in vain: without a branch the packs of several parts are on their way at once.
  template <class T, bool Whole, class Row>
  KOKKOS_FORCEINLINE_FUNCTION void read(Row const& row, std::int64_t elements, std::int64_t p, Portion& y) const {
    if constexpr (Whole) {
      T const* const first = static_cast<T const*>(part.data) + part.offset(grid, row.at()) + elements;
      unrolled<Shape::packs>([&](int k) {
        std::int64_t const column = ((p * Shape::packs + k) * row.lanes() + row.lane()) * Shape::width;
        auto const pack =
            *reinterpret_cast<RowPack<T, Shape::width, true> const*>(first + (column < row.columns() ? column : 0));
        for (int j = 0; j < Shape::width; ++j) y[k][j] = static_cast<Acc>(pack.element[j]);
      });
    } else {
      row.template load<TypeList<T>>(later(part, elements), p, y, Acc(0));
    }
  }

  template <class T, bool Whole, class Row>
  KOKKOS_FORCEINLINE_FUNCTION void one_row(Row& row) const {
    TileIndex const at = row.at();
    // Read before the lanes meet, since one of them will write it.
    Acc const own_value = own.present() ? value(own_lse, at) : lowest;
    Acc top = Larger{}(lowest, own_value);
    for (int t = row.lane(); t < count; t += row.lanes()) top = Larger{}(top, value(part_lse, at, t * lse_stride));
    top = row.template join<Larger>(top, lowest);
    if (top == lowest) top = 0;  // nothing but -Inf and NaN: the weights are 0 and NaN

    Acc total = 0;
    auto const merge = [&](std::int64_t p) {
      total = 0;
      auto const add = [&](Portion const& from, Acc weight) {
        total += weight;
        row.map(from, [&](Acc x, Acc from_part) { return weight == Acc(0) ? x : x + weight * from_part; });
      };
      Portion y[ahead];
      Acc values[ahead];
      row.map([](Acc) { return Acc(0); });
      if (own.present()) {
        row.template load<RowInputs<Acc>>(own, p, y[0], Acc(0));
        add(y[0], exp_below(own_value - top));
      }
      for (int first = 0; first < count; first += ahead) {
        unrolled<ahead>([&](int i) {
          int const t = first + i < count ? first + i : count - 1;
          values[i] = value(part_lse, at, t * lse_stride);
          read<T, Whole>(row, t * stride, p, y[i]);
        });
        unrolled<ahead>([&](int i) { add(y[i], first + i < count ? exp_below(values[i] - top) : Acc(0)); });
      }
    };
    row.for_each_portion(merge, [&](std::int64_t p) {
      Acc const factor = total == Acc(0) ? Acc(0) : Acc(1) / total;
      row.map([&](Acc x) { return x * factor; });
      row.template store<RowInputs<Acc>>(out, p);
    });
    if (lse.present() && row.is_first_lane()) row.store_value(lse, total == Acc(0) ? lowest : top + Kokkos::log(total));
  }
};

/// f(shape, few): rows are the features of a head, which a warp holds; longer ones are walked, and those of fp64, which
/// no attention on a GPU makes and which took two thirds of the compiler's time.
template <class Exec, class Acc, class F>
void with_merge_shape(std::int64_t features, bool few, F const& f) {
  auto const with_few = [&](auto shape) { few ? f(shape, std::true_type{}) : f(shape, std::false_type{}); };
  if constexpr (Machine<Exec>::lanes == 1)
    f(HostShape{}, std::true_type{});
  else if constexpr (std::is_same_v<Acc, double>)
    f(Shape<128, Worker::thread, false, 2, 4>{}, std::false_type{});
  else if (features <= 128)
    with_few(Shape<128, Worker::thread, true, 1, 4>{});
  else if (features <= 256)
    with_few(Shape<128, Worker::thread, true, 2, 4>{});
  else
    with_few(Shape<128, Worker::thread, false, 2, 4>{});
}

template <class Acc, class Exec>
void start_merge(Exec const& exec, MergeProblem problem) {
  constexpr bool wide = Machine<Exec>::lanes > 1;
  collapse(problem.out, problem.lse, problem.own, problem.own_lse, problem.part, problem.part_lse);
  TileGrid const grid = row_grid(problem.out);
  with_merge_shape<Exec, Acc>(grid.columns, problem.count <= 2, [&](auto shape, auto few) {
    using Shape = decltype(shape);
    auto const rows = [&](RowArray const& a) { return operand(a, grid, Shape::width, wide); };
    Operand part = rows(problem.part);
    // Parts behind the first are read in packs as well if they begin where packs may.
    auto const pack = static_cast<std::int64_t>(16 / size_of(part.type));
    if (wide && problem.stride % pack != 0) part.packed = false;
    launch_tiles<Shape>("tessera::merge_attention", exec, grid,
                        MergeKernel<KernelSpace<Exec>, Acc, Shape, decltype(few)::value>{
                            grid, rows(problem.out), rows(problem.lse), rows(problem.own), rows(problem.own_lse), part,
                            rows(problem.part_lse), problem.stride, problem.lse_stride, problem.count});
  });
}

template <class Exec>
void run_merge(Exec const& exec, MergeProblem const& problem) {
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available)
    if (start_packed_merge(exec, problem)) return;
  if (any_is_double(problem.out, problem.part))
    start_merge<double>(exec, problem);
  else
    start_merge<float>(exec, problem);
}

}  // namespace tessera::detail

#endif
