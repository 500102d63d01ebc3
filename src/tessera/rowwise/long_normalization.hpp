// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_LONG_NORMALIZATION_HPP
#define TESSERA_ROWWISE_LONG_NORMALIZATION_HPP

#include <tessera/rowwise/long_rows.hpp>
#include <tessera/rowwise/packed_normalization.hpp>
#include <tessera/rowwise/plain_normalization.hpp>
#include <tessera/rowwise/relayed_normalization.hpp>
#include <tessera/rowwise/sample_moments.hpp>

namespace tessera::detail {

/// The norms of long rows; with two operands the second is the residual.
template <class Rows>
struct LongNorm {
  using Exec = typename Rows::Space;
  using T = typename Rows::Element;
  using Atoms = typename Rows::Atoms;
  using Raw = typename Rows::Raw;
  using Values = typename Rows::Values;
  static constexpr int width = Rows::width, operands = Rows::operands;
  static constexpr bool starts_early = true;

  PackedGrid grid;
  Operand out, in, weight, bias, mean, rstd, residual, sum;
  float epsilon, inverse_length;
  bool centered;
  RowStream stream = {};

  KOKKOS_FORCEINLINE_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    Rows::template begin<LongNorm>(stream);
    wait_for_kernels_before<Exec>();
    if constexpr (operands == 1)
      all_rows(Rows(team, grid, stream, {in}, {T(0.0f)}));
    else
      all_rows(Rows(team, grid, stream, {in, residual}, {T(0.0f), T(0.0f)}));
  }

  KOKKOS_FORCEINLINE_FUNCTION void all_rows(Rows rows) const {
    Parameters const parameters = kept(rows);
    rows.template each_row<LongNorm>(
        [] { return State{}; },
        [&](State& row, auto const& packs) TESSERA_INLINE_LAMBDA { add(row.part, rows, packs); },
        [&](auto const& each, int elements) {
          if (!centered) return SampleMoments{0, 0, each(Add{}, [](auto const& x) { return x.squares; })};
          auto count = static_cast<float>(elements);
          if constexpr (Rows::ragged) count = each(Add{}, [](auto const& x) { return x.count; });
          return joined_moments(each, count);
        },
        [&](SampleMoments const& all, auto const& run)
            TESSERA_INLINE_LAMBDA { write_row(rows, parameters, all, run); });
  }
  /// Of a row that is read.
  struct State {
    SampleMoments part;
  };

  /// Where this thread reads the parameters, from its first column on; of ragged rows, which begin at another one each
  /// time, from the row's first.
  struct Parameters {
    Operand weight, bias;
  };
  /// Those of the team's columns are the same for all rows: they are kept in scratch where there is room.
  KOKKOS_FORCEINLINE_FUNCTION Parameters kept(Rows const& rows) const {
    Parameters own{weight, bias};
    if constexpr (Rows::ragged) return own;
    std::size_t before = 0;  // bytes of a column that are kept
    auto const keep = [&](Operand& a) {
      if (!a.present()) return;
      TypeList<T, float>::visit(a.type, [&](auto tag) {
        using Parameter = typename decltype(tag)::type;
        a.data = rows.keep(static_cast<Parameter const*>(a.data) + rows.first_column(), before);
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
    rows.wait_for_kept();
    auto const is_own = [](Operand const& a) { return a.present() && a.type == scalar_of<T>; };
    bool const own = is_own(weight) && (is_own(bias) || !bias.present());
    LongOutput<Rows> const output(rows, out);
    auto const put = [&](auto const& packs) TESSERA_INLINE_LAMBDA {
      auto const write = [&](auto k, auto const& scale) TESSERA_INLINE_LAMBDA {
        Values x = values(packs, k);
        for (int j = 0; j < width; ++j) x[j] = (x[j] - center) * factor;
        scale(x);
        output.store(packs, k, x);
      };
      if constexpr (Rows::ragged)
        scaled_by_element(rows, packs, write);
      else if (own)
        scaled(parameters, packs, write);
      else
        unroll<Rows::batch>([&](auto k) {
          write(k, [&](Values& x) TESSERA_INLINE_LAMBDA {
            if (packs.has(k))
              scale_pack<Atoms, T, false>(parameters.weight, parameters.bias, packs.first + k * Rows::step, x);
          });
        });
      output.store_ends(packs);
    };
    run(put, std::true_type{});
  }
  /// Of ragged rows, whose packs are not packs of parameters: element by element, of some packs at a time.
  template <class Packs, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void scaled_by_element(Rows const& rows, Packs const& packs, Write const& write) const {
    constexpr int all = batch_of<Packs>, some = all > 1 ? Rows::packs_with_parameters / 2 : 1;
    unroll<all / some>([&](auto group) TESSERA_INLINE_LAMBDA {
      constexpr int first = decltype(group)::value * some;
      Values slopes[some], offsets[some];
      auto const load = [&](Values(&to)[some], Operand const& from, float missing) TESSERA_INLINE_LAMBDA {
        unroll<some>([&](auto i) TESSERA_INLINE_LAMBDA {
          for (int j = 0; j < width; ++j) to[i][j] = missing;
        });
        if (!from.present()) return;
        TypeList<T, float>::visit(from.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
          using Parameter = typename decltype(tag)::type;
          unroll<some>([&](auto i) TESSERA_INLINE_LAMBDA {
            constexpr int k = first + decltype(i)::value;
            auto const* const at = static_cast<Parameter const*>(from.data) + column(packs, k);
            for (int j = 0; j < width; ++j)
              if (rows.has_element(packs, k, j)) to[i][j] = static_cast<float>(at[j]);
          });
        });
      };
      load(slopes, weight, 1.0f);
      load(offsets, bias, 0.0f);
      unroll<some>([&](auto i) TESSERA_INLINE_LAMBDA {
        write(Constant<first + decltype(i)::value>{}, [&](Values& x) TESSERA_INLINE_LAMBDA {
          for (int j = 0; j < width; ++j) x[j] = x[j] * slopes[i][j] + offsets[i][j];
        });
      });
    });
  }
  /// With parameters of T, of some packs at a time, all of which are read before the first is waited for.
  template <class Packs, class Write>
  KOKKOS_FORCEINLINE_FUNCTION void scaled(Parameters const& parameters, Packs const& packs, Write const& write) const {
    constexpr int some = Rows::packs_with_parameters;
    bool const biased = bias.present();
    unroll<Rows::batch / some>([&](auto group) {
      constexpr int first = decltype(group)::value * some;
      Raw slopes[some], offsets[some];
      // Of a pack that is not there anything is as good.
      auto const load = [&](Raw(&to)[some], Operand const& from, Operand const& any) TESSERA_INLINE_LAMBDA {
        unroll<some>([&](auto i) {
          T const* const at = static_cast<T const*>(from.data) + packs.first + (first + i) * Rows::step;
          to[i] = load_pack<width>(packs.has(first + i) ? at : static_cast<T const*>(any.data));
        });
      };
      load(slopes, parameters.weight, weight);
      if (biased) load(offsets, parameters.bias, bias);
      unroll<some>([&](auto i) {
        write(Constant<first + decltype(i)::value>{}, [&](Values& x) TESSERA_INLINE_LAMBDA {
          Values const slope = Atoms::widened(slopes[i]);
          if (biased) {
            Values const offset = Atoms::widened(offsets[i]);
            for (int j = 0; j < width; ++j) x[j] = x[j] * slope[j] + offset[j];
          } else {
            for (int j = 0; j < width; ++j) x[j] *= slope[j];
          }
        });
      });
    });
  }

  /// The first column of pack k of ragged rows; elements before the row's first one have negative columns.
  template <class Packs>
  KOKKOS_FORCEINLINE_FUNCTION static int column(Packs const& packs, int k) {
    return packs.column + packs.first + k * Rows::step;
  }
  /// How many of the packs' elements are in the row.
  template <class Packs>
  KOKKOS_FORCEINLINE_FUNCTION int elements(Packs const& packs) const {
    if constexpr (!Rows::ragged) {
      return packs.count() * width;
    } else {
      int all = 0;
      unroll<batch_of<Packs>>([&](auto k) {
        int const first = column(packs, k), begin = first > 0 ? first : 0,
                  end = first + width < grid.columns ? first + width : grid.columns;
        all += packs.has(k) && end > begin ? end - begin : 0;
      });
      return all;
    }
  }

  /// What is normalised: a sum that is kept is rounded.
  template <class Packs, class K>
  KOKKOS_FORCEINLINE_FUNCTION Values values(Packs const& packs, K k) const {
    Values x = packs.template values<0>(k);
    if constexpr (operands == 2) {
      Values const added = packs.template values<1>(k);
      for (int j = 0; j < width; ++j) x[j] += added[j];
      if (sum.present()) x = Atoms::widened(Atoms::template narrowed<T>(x));
    }
    return x;
  }

  /// Of some packs of the row that is read; writes the sum with the residual.
  template <class Packs>
  KOKKOS_FORCEINLINE_FUNCTION void add(SampleMoments& all, Rows const& rows, Packs const& packs) const {
    constexpr int batch = batch_of<Packs>;
    if (operands == 2 && sum.present())
      unroll<batch>([&](auto k) {
        rows.store_now(rows.data_of_read(sum), packs, k, Atoms::template narrowed<T>(values(packs, k)));
      });
    if (centered)
      include_packs<batch, width, Rows::ragged>(
          all, elements(packs), [&](auto k) TESSERA_INLINE_LAMBDA { return values(packs, k); },
          [&](auto k) TESSERA_INLINE_LAMBDA { return packs.has(k); },
          [&](auto k, int j) TESSERA_INLINE_LAMBDA { return rows.has_element(packs, k, j); });
    else
      unroll<batch>([&](auto k) {
        Values const x = values(packs, k);
        for (int j = 0; j < width; ++j) all.squares += x[j] * x[j];
      });
  }
};

/// Packs of the longest rows that a team holds. Of 16 bits RMSNorm has longer ones on their way through scratch.
template <class T>
std::int64_t longest_team_norm(bool is_layer_norm, bool adds) {
  if (sizeof(T) == 2) return is_layer_norm || adds ? longest_team_row<T> : longest_packed_row;
  return adds ? 3072 : longest_team_row<T>;
}

/// Packs of ragged rows from which on it is better that several teams hold them, if they can: a team has the parameters
/// of its threads in scratch, which gains most where there are two.
template <class T>
std::int64_t longest_ragged_norm(bool is_layer_norm, bool adds) {
  if (!is_layer_norm || adds) return longest_ragged_row;
  return sizeof(T) == 4 ? 3072 : 1536;
}

/// Unless what is read twice could have been overwritten meanwhile. Of ragged rows no thread has the same columns
/// twice, whose parameters could be kept.
inline StreamUse use_of_long_norm(NormProblem const& problem, bool ragged) {
  bool const overwrites =
      problem.sum.present() && (problem.sum.data == problem.in.data || problem.sum.data == problem.residual.data);
  auto const bytes = [&](RowArray const& a) { return a.present() && !ragged ? size_of(a.type) : 0; };
  return {.may_repeat = !overwrites,
          .is_light = !problem.centered,
          .column_bytes = {bytes(problem.weight), bytes(problem.bias)}};
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
      rows.pass(problem.residual.present() ? 2 : 1, problem.sum.present() ? 2 : 1);
      bool whole = packed_rows(grid, type) && is_parameter(problem.weight) && is_parameter(problem.bias) &&
                   is_packed_output<T>(problem.out, grid);
      for (RowArray const* a : {&problem.in, &problem.residual, &problem.sum})
        whole = whole && is_packed_operand(*a, grid, width, type);
      if (!whole && !(are_neighbouring_parameters<T>(problem.weight) && are_neighbouring_parameters<T>(problem.bias) &&
                      make_ragged<T>(rows, grid, problem.in, problem.out, problem.residual, problem.sum)))
        return;
      using Space = KernelSpace<Exec>;
      auto const packed = [&](RowArray const& a) { return operand(a, grid, width, true); };
      Operand const out = packed(problem.out), in = packed(problem.in), weight = packed(problem.weight),
                    bias = packed(problem.bias), mean = packed(problem.mean), rstd = packed(problem.rstd),
                    residual = packed(problem.residual), sum = packed(problem.sum);
      auto const epsilon = static_cast<float>(problem.epsilon),
                 inverse_length = static_cast<float>(1.0 / static_cast<double>(grid.columns));
      NormOperands const operands{out, in, weight, bias, mean, rstd, residual, sum};
      StreamUse const use = use_of_long_norm(problem, rows.ragged);
      auto const make = [&](auto kind) {
        return LongNorm<typename decltype(kind)::type>{rows, out,      in,  weight,  bias,           mean,
                                                       rstd, residual, sum, epsilon, inverse_length, problem.centered};
      };
      auto const of_operands = [&](auto const& f) { return residual.present() ? f(Constant<2>{}) : f(Constant<1>{}); };
      auto const start_long = [&] {
        started = start_relayed_norm<T>(exec, problem, rows, operands) || of_operands([&](auto read) {
                    constexpr int operands_read = decltype(read)::value;
                    if constexpr (operands_read == 1)  // by mail a residual is RelayedNorm's, or slower
                      return launch_long<Space, T, operands_read>(problem.label, exec, rows, use, problem.lent, make);
                    else
                      return launch_long<Space, T, operands_read>(problem.label, exec, rows, use, make);
                  });
      };
      if (!fits_a_team(rows, longest_team_norm<T>(problem.centered, residual.present()), longest_ragged_team_row<T>))
        return start_long();
      if (rows.ragged && rows.packs > longest_ragged_norm<T>(problem.centered, residual.present()))
        started = of_operands([&](auto read) {
          return launch_held<Space, T, decltype(read)::value, true>(problem.label, exec, rows, use, make);
        });
      if (started || (!rows.ragged && (started = start_plain_norm<T>(exec, problem, rows, operands)))) return;
      with_packed_shape<T>(rows, [&](auto shape) {
        using Shape = decltype(shape);
        PackedNorm<Space, T, Shape> const kernel{rows, out,      in,  weight,  bias,           mean,
                                                 rstd, residual, sum, epsilon, inverse_length, problem.centered};
        started = true;
        if constexpr (Shape::singles > 0)
          started = launch_ragged_norm<Shape>(problem.label, exec, kernel);
        else
          launch_packed<Shape>(problem.label, exec, rows, kernel);
      });
      if (!started) start_long();
    });
  }
  return started;
}

}  // namespace tessera::detail

#endif
