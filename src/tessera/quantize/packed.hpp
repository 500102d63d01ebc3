// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_PACKED_HPP
#define TESSERA_QUANTIZE_PACKED_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#include <tessera/quantize.hpp>
#include <tessera/quantize/scale.hpp>
#include <tessera/rowwise/packed_pairs.hpp>
#include <tessera/rowwise/packed_rows.hpp>

// Groups of whole packs of 8 elements on machines with warps (see packed_rows.hpp): rows, tiles of 128 as rows of their
// own, squares of 128, and matrices without gaps as rows of 8192 elements.
namespace tessera::detail {

/// Of all elements and types: 16 bytes of 16-bit ones, twice as much of fp32, 8 bytes of 8-bit ones.
inline constexpr int group_width = 8;

/// What packs of 8-bit numbers are read as before their type is looked at.
using PackedBytes = TypeList<e4m3_t, e5m2_t>;

struct LargerBits {
  KOKKOS_FORCEINLINE_FUNCTION MagnitudeBits operator()(MagnitudeBits a, MagnitudeBits b) const { return b > a ? b : a; }
};

/// The group's maximum from each thread's packs.
template <class Group>
KOKKOS_FORCEINLINE_FUNCTION MagnitudeBits packed_amax(typename Group::Raw const (&raw)[Group::packs]) {
  MagnitudeBits bits = Group::Atoms::largest_magnitude(raw);
  bits = Group::join(bits, LargerBits{});
  if constexpr (Group::warps > 1) bits = Group::join_parts(Group::template of_warp<Group>(bits), LargerBits{});
  return canonical(bits);
}

/// Groups that are rows.
template <class Exec, class Shape, class T>
struct LineGroup : PackedRow<Exec, Shape, T, group_width> {
  static constexpr int threads = Shape::threads, warps = Shape::warps, groups_a_team = Shape::rows_a_team;
  static constexpr int registers = Shape::registers;
  using Element = T;
  using PackedRow<Exec, Shape, T, group_width>::PackedRow;

  KOKKOS_FORCEINLINE_FUNCTION float& scale(Operand const& a) const { return this->place.template value<float>(a); }
};

/// A square of 128 x 128, or what there is of it, for a team: 16 threads side by side, 16 below each other.
template <class Exec, class T>
struct SquareGroup {
  static constexpr int threads = 256, warps = threads / 32, groups_a_team = 1, width = group_width,
                       side = quantized_tile / width, below = threads / side, packs = quantized_tile / below;
  static constexpr int registers = sizeof(T) < 4 ? 80 : 128;
  using Element = T;
  using Atoms = WarpAtoms<Exec>;
  using Raw = Pack<T, width>;
  using Values = Pack<float, width>;

  int lane;                  // of the team
  int rows;                  // of the square, for a thread that is beside the matrix none
  std::int64_t row, column;  // of the square, in squares

  KOKKOS_FORCEINLINE_FUNCTION SquareGroup(PackedGrid const& grid, int team) : lane(Atoms::thread()) {
    row = grid.matrix_rows.quotient(team, true);
    column = team - row * grid.matrix_rows.by;
    std::int64_t const left = grid.rows - row * quantized_tile;
    rows = (column * side + lane % side) < grid.packs ? static_cast<int>(left < quantized_tile ? left : quantized_tile)
                                                      : 0;
  }
  KOKKOS_FORCEINLINE_FUNCTION bool inside() const { return true; }
  KOKKOS_FORCEINLINE_FUNCTION bool has(int k) const { return lane / side + k * below < rows; }
  KOKKOS_FORCEINLINE_FUNCTION float& scale(Operand const& a) const {
    return static_cast<float*>(const_cast<void*>(a.data))[row * a.row + column * a.column];
  }
  KOKKOS_FORCEINLINE_FUNCTION std::int64_t offset(Operand const& a) const {
    return (row * quantized_tile + lane / side) * a.row + column * quantized_tile + lane % side * width;
  }
  KOKKOS_FORCEINLINE_FUNCTION void load(Operand const& from, Raw (&to)[packs], T rest) const {
    T const* const first = static_cast<T const*>(from.data) + offset(from);
    unroll<packs>([&](auto k) {
      for (int j = 0; j < width; ++j) to[k][j] = rest;
      if (has(k)) to[k] = load_pack<width>(first + k * below * from.row);
    });
  }
  template <class To, class Value>
  KOKKOS_FORCEINLINE_FUNCTION void store(Operand const& to, Value const& value) const {
    To* const first = static_cast<To*>(const_cast<void*>(to.data)) + offset(to);
    unroll<packs>([&](auto k) {
      Pack<To, width> const x = Atoms::template narrowed<To>(value(k));
      if (has(k)) store_pack<width>(first + k * below * to.row, x);
    });
  }
  template <class X, class Join>
  KOKKOS_FORCEINLINE_FUNCTION static X join(X x, Join const& f) {
    return Atoms::template join<32>(x, f);
  }
  template <class Tag, class X>
  KOKKOS_FORCEINLINE_FUNCTION static X of_warp(X x) {
    return Atoms::template share<Tag, warps>(x);
  }
  template <class X, class Join>
  KOKKOS_FORCEINLINE_FUNCTION static X join_parts(X x, Join const& f) {
    return Atoms::template join<warps>(x, f);
  }
};

/// The scale is read, or it is the group's own. Without an output there is nothing but that, and a maximum to be
/// raised.
template <class Exec, class Group>
struct PackedQuantize {
  static constexpr bool starts_early = true;

  PackedGrid grid;
  Operand out, in, scales;
  float* amax;  // may be absent
  float largest;
  bool scale_is_given;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    using T = typename Group::Element;
    wait_for_kernels_before<Exec>();
    Group const group(grid, team.league_rank());
    typename Group::Raw raw[Group::packs];
    group.load(in, raw, T(0.0f));
    float scale = 1;
    if (scale_is_given) {
      if (group.inside()) scale = group.scale(scales);
    } else {
      MagnitudeBits const bits = packed_amax<Group>(raw);
      scale = scale_of(bits, largest);
      if (group.lane == 0 && group.inside()) {
        if (scales.present()) group.scale(scales) = scale;
        if (amax != nullptr) raise(amax, bits);
      }
    }
    if (!out.present()) return;
    Quotient const quotient(scale);
    PackedBytes::visit(out.type, [&](auto tag) {
      group.template store<typename decltype(tag)::type>(out, [&](auto k) {
        auto x = Group::Atoms::widened(raw[k]);
        quotient.enlarge(x);
        for (int j = 0; j < group_width; ++j) x[j] = quotient(x[j]);
        return x;
      });
    });
  }
};

template <class Exec, class Group>
struct PackedDequantize {
  static constexpr bool starts_early = true;

  PackedGrid grid;
  Operand out, in, scales;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    Group const group(grid, team.league_rank());
    typename Group::Raw raw[Group::packs];
    group.load(in, raw, std::uint8_t{0});
    float const scale = group.inside() ? group.scale(scales) : 1.0f;
    typename Group::Values x[Group::packs];
    PackedBytes::visit(in.type, [&](auto tag) {
      using In = Pack<typename decltype(tag)::type, group_width>;
      unroll<Group::packs>([&](auto k) {
        x[k] = Group::Atoms::widened(reinterpret_cast<In const&>(raw[k]));
        for (int j = 0; j < group_width; ++j) x[k][j] *= scale;
      });
    });
    RowInputs<float>::visit(out.type, [&](auto tag) {
      group.template store<typename decltype(tag)::type>(out, [&](auto k) { return x[k]; });
    });
  }
};

// ---- from a problem to groups

/// The operands as rows of packs.
struct PackedOperands {
  TileGrid tiles;
  PackedGrid grid;
  Operand out, in, scales;
  bool packed;  // they are what such kernels take

  PackedOperands(RowArray const& y, RowArray const& x, RowArray const& s, std::int64_t missing = 0)
      : tiles(row_grid(x)),
        grid(tiles, group_width, missing),
        out(operand(y, tiles, group_width, true)),
        in(operand(x, tiles, group_width, true)),
        scales(operand(s, tiles, group_width, true)),
        packed(tiles.columns > 0 && tiles.columns % group_width == 0 && missing % group_width == 0 && in.packed &&
               out.packed) {
    std::int64_t const elements = tiles.tiles() * tiles.columns;
    auto const bytes = [&](RowArray const& a) { return elements * static_cast<std::int64_t>(size_of(a.type)); };
    grid.once = ReadOnce(bytes(x), bytes(y));
  }
};

/// Tiles of 128 columns as rows; the rows of the matrix become a leading index, which merges with that of the tiles
/// where there are no gaps.
inline PackedOperands tile_rows(RowArray out, RowArray in, RowArray scales) {
  std::int64_t const columns = in.extent[3], count = scales.extent[3];
  auto const cut = [&](RowArray& a, std::int64_t step) {
    a.extent[1] = a.extent[2], a.stride[1] = a.stride[2];
    a.extent[2] = count, a.stride[2] = step;
  };
  cut(in, quantized_tile * in.stride[3]);
  cut(out, quantized_tile * out.stride[3]);
  cut(scales, scales.stride[3]);
  in.extent[3] = out.extent[3] = columns < quantized_tile ? columns : quantized_tile;
  scales.extent[3] = 1;
  std::int64_t const missing = count * in.extent[3] - columns;
  if (missing == 0) collapse(in, out, scales);
  return {out, in, scales, missing};
}

/// A matrix of one row as rows of `length` elements.
inline PackedOperands line_rows(RowArray out, RowArray in, RowArray const& scales, std::int64_t length) {
  std::int64_t const columns = in.extent[3], count = (columns + length - 1) / length;
  for (RowArray* a : {&in, &out}) {
    a->extent[2] = count, a->stride[2] = length;
    a->extent[3] = columns < length ? columns : length;
  }
  return {out, in, scales, count * in.extent[3] - columns};
}

/// f(Shape{}) for groups of so many packs of T. A pack of bytes is half of one of 16 bits: of few, more threads read
/// longer lines together.
template <class T, class F>
void with_group_shape(std::int64_t packs, F const& f) {
  using Few = std::conditional_t<sizeof(T) == 1, PairShape<8, 256, 0, 2, 32>, PackedShape<4, 256, 4>>;
  if (packs <= 16)
    f(Few{});
  else if (packs <= 32)
    f(PackedShape<8, 256, 4>{});
  else if (packs <= 64)
    f(PackedShape<16, 256, 4>{});
  else if (packs <= 128)
    f(PackedShape<32, 256, 4>{});
  else if (packs <= 512)
    f(PackedShape<128, 128, 4>{});
  else
    f(PackedShape<256, 256, 4>{});
}
inline constexpr std::int64_t longest_packed_group = 8192;

/// The rows of elements that share a scale, or parts of them where the one scale is given.
inline PackedOperands group_rows(QuantizeProblem const& problem) {
  if (problem.granularity == Granularity::tile_1x128) return tile_rows(problem.out, problem.in, problem.scales);
  if (problem.granularity == Granularity::per_tensor && problem.in.extent[2] == 1 && problem.in.stride[3] == 1 &&
      problem.out.stride[3] == 1)
    return line_rows(problem.out, problem.in, problem.scales, longest_packed_group);
  return {problem.out, problem.in, problem.scales};
}

/// The squares of a matrix, whose extents are the grid's; a team's place is found by the squares in a row of them.
inline PackedOperands squares(QuantizeProblem const& problem) {
  PackedOperands operands{problem.out, problem.in, problem.scales};
  operands.grid.matrix_rows = Divisor(problem.scales.extent[3]);
  return operands;
}

/// f(group of elements of T, operands, number of teams) where the problem is one of whole packs; else false.
template <class Exec, class T, class F>
bool with_packed_groups(QuantizeProblem const& problem, F const& f) {
  if (problem.granularity == Granularity::tile_128x128) {
    PackedOperands const operands = squares(problem);
    if (!operands.packed) return false;
    f(std::type_identity<SquareGroup<Exec, T>>{}, operands, problem.scales.extent[2] * problem.scales.extent[3]);
    return true;
  }
  PackedOperands const operands = group_rows(problem);
  if (!operands.packed || operands.tiles.columns > longest_packed_group) return false;
  with_group_shape<T>(operands.grid.packs, [&](auto shape) {
    using Group = LineGroup<Exec, decltype(shape), T>;
    f(std::type_identity<Group>{}, operands, (operands.grid.rows + Group::groups_a_team - 1) / Group::groups_a_team);
  });
  return true;
}

/// What a launch over the groups does: all of it, or of a matrix with one scale only the first or the last part.
enum class QuantizePart { all, amax, rounding };

/// Whether the problem was one of whole packs, and has been started. An absent output as in PackedQuantize.
template <class Exec>
bool start_packed_quantize(char const* label, Exec const& exec, QuantizeProblem const& problem, QuantizePart part) {
  using Space = KernelSpace<Exec>;
  bool started = false;
  if constexpr (WarpAtoms<Space>::available) {
    if (problem.in.type == Scalar::fp64 || problem.out.type == Scalar::int8) return false;
    RowInputs<float>::visit_on_host(problem.in.type, [&](auto tag) {
      started = with_packed_groups<Space, typename decltype(tag)::type>(
          problem, [&](auto group, PackedOperands const& o, std::int64_t teams) {
            using Group = typename decltype(group)::type;
            PackedGrid grid = o.grid;
            if (part == QuantizePart::amax) grid.once = {};  // it will be read again
            launch<Group::threads, 65536 / Group::registers / Group::threads>(
                label, exec, teams, 0,
                PackedQuantize<Space, Group>{grid, part == QuantizePart::amax ? Operand{} : o.out, o.in,
                                             part == QuantizePart::amax ? Operand{} : o.scales, problem.amax,
                                             largest_of(problem.out.type), part == QuantizePart::rounding});
          });
    });
  }
  return started;
}

template <class Exec>
bool start_packed_dequantize(Exec const& exec, QuantizeProblem const& problem) {
  using Space = KernelSpace<Exec>;
  if constexpr (WarpAtoms<Space>::available) {
    if (problem.out.type == Scalar::fp64 || problem.in.type == Scalar::int8) return false;
    return with_packed_groups<Space, std::uint8_t>(
        problem, [&](auto group, PackedOperands const& o, std::int64_t teams) {
          using Group = typename decltype(group)::type;
          launch<Group::threads, 65536 / Group::registers / Group::threads>(
              "tessera::dequantize", exec, teams, 0, PackedDequantize<Space, Group>{o.grid, o.out, o.in, o.scales});
        });
  }
  return false;
}

}  // namespace tessera::detail

#endif
