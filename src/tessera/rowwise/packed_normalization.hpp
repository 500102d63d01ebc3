// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_PACKED_NORMALIZATION_HPP
#define TESSERA_ROWWISE_PACKED_NORMALIZATION_HPP

#include <algorithm>

#include <tessera/normalization.hpp>
#include <tessera/rowwise/few_rows_normalization.hpp>
#include <tessera/rowwise/packed_rows.hpp>
#include <tessera/rowwise/streamed_rows.hpp>

namespace tessera::detail {

/// A pack of a parameter of the columns, of T or fp32, from column `at` on.
template <class Atoms, class T, int Width>
KOKKOS_FORCEINLINE_FUNCTION Pack<float, Width> load_parameter(Operand const& from, std::int64_t at) {
  if constexpr (!std::is_same_v<T, float>)
    if (from.type == scalar_of<T>) return Atoms::widened(load_pack<Width>(static_cast<T const*>(from.data) + at));
  return load_pack<Width>(static_cast<float const*>(from.data) + at);
}
/// x = x weight + bias, either of which may be missing. With `Together`, for which it takes registers, both are on
/// their way before one is waited for.
template <class Atoms, class T, bool Together, int Width>
KOKKOS_FORCEINLINE_FUNCTION void scale_pack(Operand const& weight, Operand const& bias, std::int64_t at,
                                            Pack<float, Width>& x) {
  if (Together && weight.present() && bias.present() && weight.type == scalar_of<T> && bias.type == scalar_of<T>) {
    auto const w = load_pack<Width>(static_cast<T const*>(weight.data) + at),
               b = load_pack<Width>(static_cast<T const*>(bias.data) + at);
    Pack<float, Width> const slope = Atoms::widened(w), offset = Atoms::widened(b);
    for (int j = 0; j < Width; ++j) x[j] = x[j] * slope[j] + offset[j];
    return;
  }
  if (weight.present()) {
    Pack<float, Width> const w = load_parameter<Atoms, T, Width>(weight, at);
    for (int j = 0; j < Width; ++j) x[j] *= w[j];
  }
  if (bias.present()) {
    Pack<float, Width> const b = load_parameter<Atoms, T, Width>(bias, at);
    for (int j = 0; j < Width; ++j) x[j] += b[j];
  }
}

/// Weight and bias of all columns of ragged rows in a team's scratch. Columns that are `Width` apart lie side by side:
/// lanes that look up the same element of their packs find neighbours, wherever packs begin.
template <int Width, int Packs>
struct ParameterTable {
  static constexpr int pitch = Packs + 1;
  using Pair = Pack<float, 2>;
  static constexpr std::size_t bytes = sizeof(Pair) * Width * pitch;

  Pair* pairs = nullptr;  // (Width, pitch)

  KOKKOS_FORCEINLINE_FUNCTION Pair& of_column(int column) const {
    return pairs[column % Width * pitch + column / Width];
  }
  /// A pack of x, `before` + Width times `pack` being its first column.
  KOKKOS_FORCEINLINE_FUNCTION void scale(int before, int pack, Pack<float, Width>& x) const {
    Pair const* const first = pairs + before * pitch + pack;
    for (int j = 0; j < Width; ++j) {
      Pair const p = first[before + j < Width ? j * pitch : (j - Width) * pitch + 1];
      x[j] = x[j] * p[0] + p[1];
    }
  }
  KOKKOS_FORCEINLINE_FUNCTION void scale(int column, Pack<float, 1>& x) const {
    Pair const p = of_column(column);
    x[0] = x[0] * p[0] + p[1];
  }
};

/// LayerNorm if `centered`, else RMSNorm. With a residual the row is in + residual, rounded where that sum is written.
template <class Exec, class T, class Shape>
struct PackedNorm {
  using Row = PackedRow<Exec, Shape, T>;
  using Raw = typename Row::RawParts;
  using Values = typename Row::ValueParts;
  static constexpr int packs = Shape::packs, width = Row::width;
  struct Tag {};

  PackedGrid grid;
  Operand out, in, weight, bias, mean, rstd, residual, sum;
  float epsilon, inverse_length;
  bool centered;
  int steps = 0, teams = 0;  // ragged rows: each team stays, for every `teams`-th of so many steps

  using Table = ParameterTable<width, Shape::lanes * packs>;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    if constexpr (Row::ragged) {
      Table const table = parameters(team);
      int turn = 0;
      TESSERA_ROLLED
      for (int step = team.league_rank(); step < steps; step += teams) {
        work(Row(grid, step), table, turn);
        turn ^= 1;
      }
    } else {
      work(Row(grid, team.league_rank()), Table{}, 0);
    }
  }

  KOKKOS_FORCEINLINE_FUNCTION Table parameters(TeamMember<Exec> const& team) const {
    if (!weight.present() && !bias.present()) return {};
    Table const table{
        static_cast<typename Table::Pair*>(team.team_scratch(0).get_shmem_aligned(std::size_t{Table::bytes}, 16))};
    TESSERA_ROLLED
    for (int i = Row::Atoms::thread(); i < grid.columns; i += Shape::threads) {
      float const slope = weight.present() ? load_parameter<typename Row::Atoms, T, 1>(weight, i)[0] : 1.0f,
                  offset = bias.present() ? load_parameter<typename Row::Atoms, T, 1>(bias, i)[0] : 0.0f;
      table.of_column(i) = {{slope, offset}};
    }
    team.team_barrier();
    return table;
  }

  KOKKOS_FORCEINLINE_FUNCTION void work(Row const& row, Table const& table, int turn) const {
    Raw raw;
    Values x;
    row.load(in, raw, T(0.0f));
    if (residual.present()) {
      Raw added;
      row.load(residual, added, T(0.0f));
      unroll<Row::parts>([&](auto k) {
        x[k] = Row::Atoms::widened(raw[k]);
        add(x[k], added[k]);
      });
      if (sum.present()) row.template store<T>(sum, [&](auto k) { return x[k]; });
    } else {
      unroll<Row::parts>([&](auto k) { x[k] = Row::Atoms::widened(raw[k]); });
    }
    one_row(row, table, turn, x);
  }

  template <int N>
  KOKKOS_FORCEINLINE_FUNCTION void add(Pack<float, N>& x, Pack<T, N> const& added) const {
    Pack<float, N> const y = Row::Atoms::widened(added);
    for (int j = 0; j < N; ++j) x[j] += y[j];
    if (sum.present()) x = Row::Atoms::widened(Row::Atoms::template narrowed<T>(x));
  }

  KOKKOS_FORCEINLINE_FUNCTION void one_row(Row const& row, Table const& table, int turn, Values& x) const {
    Moments const all = RowMoments<Row, Shape, Tag>{inverse_length, centered}(row, x, turn);
    float const center = inverse_length * all.sum, factor = Kokkos::rsqrt(all.squares * inverse_length + epsilon);
    if (row.lane == 0 && row.inside()) {
      if (mean.present()) row.place.template value<float>(mean) = center;
      if (rstd.present()) row.place.template value<float>(rstd) = factor;
    }

    Row::Outputs::visit(out.type, [&](auto tag) {
      row.template store<typename decltype(tag)::type>(out, [&](auto k) {
        for (int j = 0; j < x[k].size; ++j) x[k][j] = (x[k][j] - center) * factor;
        scale(row, table, k, x[k]);
        return x[k];
      });
    });
  }

  template <class K, int N>
  KOKKOS_FORCEINLINE_FUNCTION void scale(Row const& row, Table const& table, K k, Pack<float, N>& x) const {
    if (!row.has(k)) return;
    if constexpr (!Row::ragged) {
      scale_pack<typename Row::Atoms, T, (packs >= 4)>(weight, bias, row.column(k), x);
    } else if (table.pairs != nullptr) {
      if constexpr (N == 1)
        table.scale(row.column(k), x);
      else
        table.scale(row.before, K::value * Row::lanes + row.lane, x);
    }
  }
};

/// How many elements, their mean, and their squares about it (about 0 if the norm is not centered).
struct SampleMoments {
  float count = 0, mean = 0, squares = 0;
};

/// The same for long rows, which come through scratch; with two operands the second is the residual.
template <class Exec, class T, int Operands>
struct StreamedNorm {
  using Rows = StreamedRows<Exec, T, Operands>;
  using Atoms = typename Rows::Atoms;
  using Raw = typename Rows::Raw;
  using Values = typename Rows::Values;
  static constexpr int width = Rows::width;
  static constexpr bool starts_early = true;

  PackedGrid grid;
  Operand out, in, weight, bias, mean, rstd, residual, sum;
  float epsilon, inverse_length;
  bool centered;
  RowStream stream = {};

  KOKKOS_FORCEINLINE_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Rows::template begin<StreamedNorm>(stream);
    wait_for_kernels_before<Exec>();
    if constexpr (Operands == 1)
      all_rows(Rows(team, grid, stream, {in}, {T(0.0f)}));
    else
      all_rows(Rows(team, grid, stream, {in, residual}, {T(0.0f), T(0.0f)}));
  }

  KOKKOS_FORCEINLINE_FUNCTION void all_rows(Rows rows) const {
    Parameters const parameters = kept(rows);
    rows.template each_row<StreamedNorm>(
        [] { return State{}; },
        [&](State& row, auto const& packs) TESSERA_INLINE_LAMBDA { add(row.part, rows, packs); },
        [&](auto const& each, int elements) {
          if (!centered) return SampleMoments{0, 0, each(Add{}, [](auto const& x) { return x.squares; })};
          auto const count = static_cast<float>(elements);
          float const center =
              each(Add{}, [](auto const& x) { return x.count * x.mean; }) * (elements > 0 ? 1 / count : 0.0f);
          return SampleMoments{count, center, each(Add{}, [&](auto const& x) {
                                 float const difference = x.mean - center;
                                 return x.squares + x.count * difference * difference;
                               })};
        },
        [&](SampleMoments const& all, auto const& run)
            TESSERA_INLINE_LAMBDA { write_row(rows, parameters, all, run); });
  }
  /// Of a row that is read.
  struct State {
    SampleMoments part;
  };

  /// Where this thread reads the parameters, from its first column on.
  struct Parameters {
    Operand weight, bias;
  };
  /// Those of the team's columns are the same for all rows: they are kept in scratch where there is room.
  KOKKOS_FORCEINLINE_FUNCTION Parameters kept(Rows const& rows) const {
    Parameters own{weight, bias};
    std::size_t before = 0;  // bytes of a column that are kept
    auto const keep = [&](Operand& a) {
      if (!a.present()) return;
      TypeList<T, float>::visit(a.type, [&](auto tag) {
        using Parameter = typename decltype(tag)::type;
        auto const* const from = static_cast<Parameter const*>(a.data) + rows.first_column();
        a.data = from;
        if (!stream.keeps_columns) return;
        auto* const to = reinterpret_cast<Parameter*>(rows.columns_room(before, sizeof(Parameter)));
        rows.each_pack([&](int first) { store_pack<width>(to + first, load_pack<width>(from + first)); });
        a.data = to;
        before += sizeof(Parameter);
      });
    };
    keep(own.weight);
    keep(own.bias);
    return own;
  }

  template <class Run>
  KOKKOS_FORCEINLINE_FUNCTION void write_row(Rows const& rows, Parameters const& parameters, SampleMoments const& all,
                                             Run const& run) const {
    float const center = all.mean, factor = Kokkos::rsqrt(all.squares * inverse_length + epsilon);
    if (rows.is_first_lane()) {
      if (mean.present()) rows.place().template value<float>(mean) = center;
      if (rstd.present()) rows.place().template value<float>(rstd) = factor;
    }
    auto const is_own = [](Operand const& a) { return a.present() && a.type == scalar_of<T>; };
    bool const own = is_own(weight) && (is_own(bias) || !bias.present());
    PackedOutputs<T>::visit(out.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using To = typename decltype(tag)::type;
      To* const to = rows.template data<To>(out);
      auto const put = [&](auto const& packs) TESSERA_INLINE_LAMBDA {
        auto const write = [&](auto const& scale) TESSERA_INLINE_LAMBDA {
          unroll<Rows::batch>([&](auto k) {
            Values x = values(packs, k);
            for (int j = 0; j < width; ++j) x[j] = (x[j] - center) * factor;
            scale(k, x);
            rows.store(to, packs, k, Atoms::template narrowed<To>(x));
          });
        };
        if (own && bias.present())
          scaled<true>(parameters, packs, write);
        else if (own)
          scaled<false>(parameters, packs, write);
        else
          write([&](auto k, Values& x) TESSERA_INLINE_LAMBDA {
            if (packs.has(k))
              scale_pack<Atoms, T, false>(parameters.weight, parameters.bias, packs.first + k * Rows::step, x);
          });
      };
      run(put, std::true_type{});
    });
  }
  /// With parameters of T, all of which are read before the first is waited for: there is no question among them.
  template <bool Biased, class Packs, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void scaled(Parameters const& parameters, Packs const& packs, Write const& write) const {
    Raw slopes[Rows::batch], offsets[Rows::batch];
    unroll<Rows::batch>([&](auto k) {
      int const at = packs.has(k) ? packs.first + k * Rows::step : packs.first;
      slopes[k] = load_pack<width>(static_cast<T const*>(parameters.weight.data) + at);
      if constexpr (Biased) offsets[k] = load_pack<width>(static_cast<T const*>(parameters.bias.data) + at);
    });
    write([&](auto k, Values& x) TESSERA_INLINE_LAMBDA {
      Values const slope = Atoms::widened(slopes[k]);
      if constexpr (Biased) {
        Values const offset = Atoms::widened(offsets[k]);
        for (int j = 0; j < width; ++j) x[j] = x[j] * slope[j] + offset[j];
      } else {
        for (int j = 0; j < width; ++j) x[j] *= slope[j];
      }
    });
  }

  /// What is normalised: a sum that is kept is rounded.
  template <class Packs, class K>
  KOKKOS_FORCEINLINE_FUNCTION Values values(Packs const& packs, K k) const {
    Values x = Atoms::widened(packs.raw[0][k]);
    if constexpr (Operands == 2) {
      Values const added = Atoms::widened(packs.raw[1][k]);
      for (int j = 0; j < width; ++j) x[j] += added[j];
      if (sum.present()) x = Atoms::widened(Atoms::template narrowed<T>(x));
    }
    return x;
  }

  /// Of some packs of the row that is read; writes the sum with the residual.
  template <class Packs>
  KOKKOS_FORCEINLINE_FUNCTION void add(SampleMoments& all, Rows const& rows, Packs const& packs) const {
    Values x[Rows::batch];
    unroll<Rows::batch>([&](auto k) {
      x[k] = values(packs, k);
      if (Operands == 2 && sum.present())
        rows.store(rows.data_of_read(sum), packs, k, Atoms::template narrowed<T>(x[k]));
    });
    if (centered)
      include(all, x, packs);
    else
      unroll<Rows::batch>([&](auto k) {
        for (int j = 0; j < width; ++j) all.squares += x[k][j] * x[k][j];
      });
  }

  template <class Packs>
  KOKKOS_FORCEINLINE_FUNCTION void include(SampleMoments& all, Values const (&x)[Rows::batch],
                                           Packs const& packs) const {
    int const packs_here = packs.count();
    auto const count = static_cast<float>(packs_here * width);
    float center = 0, squares = 0;
    unroll<Rows::batch>([&](auto k) { center += sum_of(x[k]); });
    center *= packs_here == Rows::batch ? 1.0f / (Rows::batch * width) : 1 / count;
    unroll<Rows::batch>([&](auto k) {
      float own = 0;
      for (int j = 0; j < width; ++j) own += (x[k][j] - center) * (x[k][j] - center);
      squares += packs.has(k) ? own : 0.0f;
    });
    if (all.count == 0) {
      all = {count, center, squares};
      return;
    }
    float const both = all.count + count, difference = center - all.mean, part = count / both;
    all = {both, all.mean + difference * part, all.squares + squares + difference * difference * all.count * part};
  }
};

/// Whether they can be looked up column by column: of T or fp32, the same for all rows.
template <class T>
bool are_neighbouring_parameters(RowArray const& a) {
  return !a.present() || ((a.type == scalar_of<T> || a.type == Scalar::fp32) && a.stride[3] == 1 && a.stride[0] == 0 &&
                          a.stride[1] == 0 && a.stride[2] == 0);
}

/// Starts it for rows of T, unless what is read twice could have been overwritten meanwhile.
template <class T, int Operands, class Exec>
bool start_streamed_norm(Exec const& exec, NormProblem const& problem,
                         StreamedNorm<KernelSpace<Exec>, T, Operands> const& kernel) {
  using Rows = StreamedRows<KernelSpace<Exec>, T, Operands>;
  bool const overwrites =
      problem.sum.present() && (problem.sum.data == problem.in.data || problem.sum.data == problem.residual.data);
  std::size_t column_bytes = 0;
  for (Operand const* a : {&kernel.weight, &kernel.bias})
    if (a->present()) column_bytes += size_of(a->type);
  return launch_streamed<Rows>(problem.label, exec, kernel,
                               {.may_repeat = !overwrites, .is_light = !kernel.centered, .column_bytes = column_bytes});
}

/// As many teams as a multiprocessor has room for, with the parameters of each.
template <class Shape, class Exec, class Kernel>
void launch_ragged_norm(char const* label, Exec const& exec, Kernel kernel) {
  std::int64_t const steps = (kernel.grid.rows + Shape::rows_a_team - 1) / Shape::rows_a_team;
  check_tiles(label, steps);
  constexpr int wanted = teams_of_registers<Shape>;
  std::size_t const scratch = kernel.weight.present() || kernel.bias.present() ? Kernel::Table::bytes : 0;
  int at_once = wanted;
  while (at_once > 1 && scratch_of_each(exec, at_once) < scratch) --at_once;
  kernel.steps = static_cast<int>(steps);
  kernel.teams =
      static_cast<int>(std::min(steps, static_cast<std::int64_t>(at_once) * Machine<Exec>::concurrency(exec)));
  launch<Shape::threads, wanted>(label, exec, kernel.teams, scratch, kernel);
}

/// Whether the problem was one of packed rows, and has been started.
template <class Exec>
bool start_packed_norm(Exec const& exec, NormProblem const& problem, TileGrid const& grid) {
  bool started = false;
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available) {
    Scalar const type = problem.in.type;
    RowInputs<float>::visit_on_host(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      constexpr int width = packed_width<T>;
      auto const is_parameter = [&](RowArray const& a) {
        return is_packed_operand(a, grid, width, type) || is_packed_operand(a, grid, width, Scalar::fp32);
      };
      PackedGrid rows(grid, width);
      bool whole = packed_rows(grid, type) && is_parameter(problem.weight) && is_parameter(problem.bias) &&
                   is_packed_output<T>(problem.out, grid);
      for (RowArray const* a : {&problem.in, &problem.residual, &problem.sum})
        whole = whole && is_packed_operand(*a, grid, width, type);
      if (!whole &&
          !(are_neighbouring_parameters<T>(problem.weight) && are_neighbouring_parameters<T>(problem.bias) &&
            make_ragged<T>(rows, grid, problem.in, problem.out, problem.residual, problem.sum) && fits_a_team(rows)))
        return;
      using Space = KernelSpace<Exec>;
      auto const packed = [&](RowArray const& a) { return operand(a, grid, width, true); };
      Operand const out = packed(problem.out), in = packed(problem.in), weight = packed(problem.weight),
                    bias = packed(problem.bias), mean = packed(problem.mean), rstd = packed(problem.rstd),
                    residual = packed(problem.residual), sum = packed(problem.sum);
      auto const epsilon = static_cast<float>(problem.epsilon),
                 inverse_length = static_cast<float>(1.0 / static_cast<double>(grid.columns));
      if (!fits_a_team(rows)) {
        auto const start = [&](auto operands) {
          return start_streamed_norm<T, decltype(operands)::value>(
              exec, problem,
              {rows, out, in, weight, bias, mean, rstd, residual, sum, epsilon, inverse_length, problem.centered});
        };
        started = residual.present() ? start(Constant<2>{}) : start(Constant<1>{});
        return;
      } else if (rows.ragged || !start_few_rows_norm<T>(exec, problem, rows, out, in, weight, bias, mean, rstd)) {
        with_packed_shape(rows, [&](auto shape) {
          using Shape = decltype(shape);
          PackedNorm<Space, T, Shape> const kernel{rows, out,      in,  weight,  bias,           mean,
                                                   rstd, residual, sum, epsilon, inverse_length, problem.centered};
          if constexpr (Shape::singles > 0)
            launch_ragged_norm<Shape>(problem.label, exec, kernel);
          else
            launch_packed<Shape>(problem.label, exec, rows, kernel);
        });
      }
      started = true;
    });
  }
  return started;
}

}  // namespace tessera::detail

#endif
