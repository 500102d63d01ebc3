// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_PACKED_BLOCKS_HPP
#define TESSERA_QUANTIZE_PACKED_BLOCKS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>

#include <tessera/quantize/blocks.hpp>
#include <tessera/quantize/packed.hpp>

// Blocks of 128 x 128 elements on machines with warps, where rows are whole packs of 8: each thread keeps 8 x 8
// elements in registers, 16 threads side by side. Maxima of rows and columns meet in scratch, and so does the
// transposed copy, 16 bytes of which are then stored at a time.
namespace tessera::detail {

template <class Exec, class T>
struct PackedBlocks {
  static constexpr int side = block_side, width = group_width, beside = side / width, threads = beside * beside;
  static constexpr int registers = sizeof(T) < 4 ? 80 : 128;
  using Atoms = WarpAtoms<Exec>;
  using Raw = Pack<T, width>;
  using Values = Pack<float, width>;
  static_assert(width == 8 && beside == 16, "the order in scratch is made for these");

  /// What a quotient takes for each row or column: its scale and the reciprocal of that.
  using Scale = Pack<float, 2>;
  using Bytes = Pack<std::uint32_t, 2>;  // eight 8-bit numbers
  struct Scratch {
    /// Columns of 128 bytes in which the 16 pieces of 8 rows lie in an order that spares bank conflicts; before that
    /// the largest magnitudes of the columns' pieces, (pieces, columns).
    alignas(16) unsigned char turned[side * side];
    alignas(16) Scale of_rows[side], of_columns[side];
    MagnitudeBits row_top[side], warp_top[threads / 32];
    int irregular;  // a scale that the short division does not take
  };
  static_assert(sizeof(T) * beside * side <= side * side);

  BlockProblem p;
  bool wide_stores;  // of the transposed copy

  /// A thread's place: its pieces of rows and of columns, each of 8.
  struct Thread {
    int index, rows, columns;
    int rows_inside;  // 0 if its columns are not

    KOKKOS_FORCEINLINE_FUNCTION Thread(BlockProblem const& p, BlockPlace const& at)
        : index(Atoms::thread()), rows(index / beside), columns(index % beside) {
      std::int64_t const left = p.rows - at.row() - rows * width;
      bool const beyond = at.column() + columns * width >= p.columns || left <= 0;
      rows_inside = beyond ? 0 : left < width ? static_cast<int>(left) : width;
    }
    /// Of its first element in an operand of neighbouring elements.
    KOKKOS_FORCEINLINE_FUNCTION std::int64_t offset(Operand const& a, BlockPlace const& at) const {
      return (at.row() + rows * width) * a.row + at.column() + columns * width;
    }
  };

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    auto& scratch = *static_cast<Scratch*>(team.team_shmem().get_shmem(sizeof(Scratch)));
    BlockPlace const at(p, team.league_rank());
    Thread const thread(p, at);
    Raw raw[width];
    T const* const first = static_cast<T const*>(p.in.data) + thread.offset(p.in, at);
    unroll<width>([&](auto k) {
      for (int j = 0; j < width; ++j) raw[k][j] = T(0.0f);
      if (k < thread.rows_inside) raw[k] = load_pack<width>(first + k * p.in.row);
    });
    find_maxima(team, scratch, thread, raw);
    team.team_barrier();
    MagnitudeBits top = 0;
    for (MagnitudeBits const x : scratch.warp_top) top = x > top ? x : top;
    if (thread.index == 0 && p.amax != nullptr) raise(p.amax, canonical(top));
    find_scale(scratch, at, thread, top);
    team.team_barrier();
    constexpr MagnitudeBits moderate = 0x5d800000;  // 2^60: quotients by regular scales do not overflow
    bool const divides_shortly = scratch.irregular == 0 && top < moderate && !p.rounding.stochastic;
    PackedBytes::visit(p.out.type, [&](auto tag) {
      using To = typename decltype(tag)::type;
      if (divides_shortly)
        write<To>(team, scratch, at, thread, raw);
      else
        write_elements<To>(scratch, at, thread);
    });
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION bool turned_has_scales() const { return p.transposed_scales.present(); }

  /// Of eight numbers of each of 16 neighbouring threads the maxima over these: threads 2 k and 2 k + 1 get number k's.
  KOKKOS_FORCEINLINE_FUNCTION static MagnitudeBits join_lines(TeamMember<Exec> const& team, int thread,
                                                              MagnitudeBits (&x)[width]) {
    MagnitudeBits* const no_room = nullptr;
    unroll<3>([&](auto step) {
      constexpr int half = 4 >> decltype(step)::value;
      bool const upper = (thread & 2 * half) != 0;
      unroll<half>([&](auto i) {
        MagnitudeBits const mine = upper ? x[i + half] : x[i], other = upper ? x[i] : x[i + half];
        x[i] = LargerBits{}(mine, exchange<Exec>(team, thread, other, 2 * half, no_room));
      });
    });
    return LargerBits{}(x[0], exchange<Exec>(team, thread, x[0], 1, no_room));
  }

  /// Into scratch: the warp's, and what the scales come from.
  KOKKOS_FORCEINLINE_FUNCTION void find_maxima(TeamMember<Exec> const& team, Scratch& scratch, Thread const& thread,
                                               Raw const (&raw)[width]) const {
    MagnitudeBits top = 0;
    if (p.source == ScaleSource::line) {
      MagnitudeBits of_rows[width];
      unroll<width>([&](auto k) {
        Raw const row[1] = {raw[k]};
        of_rows[k] = Atoms::largest_magnitude(row);
        top = LargerBits{}(top, of_rows[k]);
      });
      MagnitudeBits const row_top = join_lines(team, thread.index, of_rows);
      if (thread.index % 2 == 0) scratch.row_top[thread.rows * width + thread.columns / 2] = row_top;
      if (turned_has_scales()) {
        Raw of_columns = raw[0];
        unroll<width>([&](auto k) { of_columns = Atoms::larger_magnitudes(of_columns, raw[k]); });
        store_pack<width>(reinterpret_cast<T*>(scratch.turned) + thread.rows * side + thread.columns * width,
                          of_columns);
      }
    } else {
      top = Atoms::largest_magnitude(raw);
    }
    top = Atoms::template join<32>(top, LargerBits{});
    if (thread.index % 32 == 0) scratch.warp_top[thread.index / 32] = top;
    if (thread.index == 0) scratch.irregular = 0;
  }

  /// Each thread one: those of rows, then those of columns.
  KOKKOS_FORCEINLINE_FUNCTION void find_scale(Scratch& scratch, BlockPlace const& at, Thread const& thread,
                                              MagnitudeBits top) const {
    bool const of_column = thread.index >= side;
    int const line = thread.index % side;
    if (of_column && !turned_has_scales()) return;
    ScaleMap const& map = of_column ? p.transposed_scales : p.scales;
    std::int64_t const i = (of_column ? at.column() : at.row()) + line, j = of_column ? at.row() : at.column();
    bool const inside = i < (of_column ? p.columns : p.rows);
    float scale = 1;
    if (p.source == ScaleSource::given) {
      if (inside) scale = map(i, j);
    } else {
      if (p.source == ScaleSource::line) {
        top = scratch.row_top[line];
        if (of_column) {
          top = 0;
          T const* const tops = reinterpret_cast<T const*>(scratch.turned) + line;
          unroll<beside>(
              [&](auto piece) { top = LargerBits{}(top, magnitude_bits(static_cast<float>(tops[piece * side]))); });
        }
      }
      scale = scale_of(canonical(top), p.largest);
      if (inside && (p.source == ScaleSource::line || line == 0)) map(i, j) = scale;
    }
    constexpr std::uint32_t smallest = 0x21800000, largest = 0x5d800000;  // 2^-60, 2^60
    if (__builtin_bit_cast(std::uint32_t, scale) - smallest > largest - smallest) scratch.irregular = 1;
    (of_column ? scratch.of_columns : scratch.of_rows)[line] = Scale{{scale, 1.0f / scale}};
  }

  /// See Quotient, of which this is what regular scales and moderate elements need.
  KOKKOS_FORCEINLINE_FUNCTION static float quotient(float x, Scale const& by) {
    float q = x * by[1];
    q = Kokkos::fma(Kokkos::fma(by[0], q, -x), -by[1], q);
    return Kokkos::fma(Kokkos::fma(by[0], q, -x), -by[1], q);
  }

  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void write(TeamMember<Exec> const& team, Scratch& scratch, BlockPlace const& at,
                                         Thread const& thread, Raw (&raw)[width]) const {
    To* const first = static_cast<To*>(const_cast<void*>(p.out.data)) + thread.offset(p.out, at);
    Bytes bytes[width];
    int cut_off = 0;
    if (turned_has_scales()) turn_rounded<To>(scratch, thread, raw);  // first: then raw and bytes share registers
    unroll<width>([&](auto k) {
      Scale const by = scratch.of_rows[thread.rows * width + k];
      if constexpr (sizeof(T) == 2) Atoms::renew(raw[k]);  // is widened again, which meanwhile takes no registers
      Values x = Atoms::widened(raw[k]);
      for (int j = 0; j < width; ++j) x[j] = quotient(x[j], by);
      if (p.saturated != nullptr)
        for (int j = 0; j < width; ++j) cut_off += Kokkos::fabs(x[j]) >= p.rounding.cut_off;
      auto const rounded = Atoms::template narrowed<To>(x);
      if (k < thread.rows_inside) store_pack<width>(first + k * p.out.row, rounded);
      bytes[k] = __builtin_bit_cast(Bytes, rounded);
    });
    if (p.saturated != nullptr) count(thread, cut_off);
    if (!p.transposed.present()) return;
    if (!turned_has_scales()) turn_bytes(scratch, thread, bytes);
    team.team_barrier();
    write_turned<To>(scratch, at, thread);
  }

  KOKKOS_FORCEINLINE_FUNCTION void count(Thread const& thread, int cut_off) const {
    cut_off = Atoms::template join<32>(cut_off, Add{});
    if (thread.index % 32 == 0 && cut_off > 0) Kokkos::atomic_add(p.saturated, std::int64_t{cut_off});
  }

  /// The eight rows of a thread in column j of its eight. The pieces of 8 threads that store together, and the pairs of
  /// them that are loaded together, lie in different banks.
  KOKKOS_FORCEINLINE_FUNCTION static unsigned char* turned_piece(Scratch& scratch, Thread const& thread, int j) {
    int const pair = (thread.rows / 2) ^ (thread.columns % 8), half = (thread.rows % 2) ^ (thread.columns / 8);
    return scratch.turned + (thread.columns * width + j) * side + pair * 16 + half * 8;
  }

  /// Divided by the scales of columns.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION static void turn_rounded(Scratch& scratch, Thread const& thread,
                                                       Raw const (&raw)[width]) {
    unroll<width / 2>([&](auto pair) {
      constexpr int j = 2 * decltype(pair)::value;
      Values low, high;
      unroll<width>([&](auto k) {
        auto const x = Atoms::widened(Pack<T, 2>{{raw[k][j], raw[k][j + 1]}});
        low[k] = quotient(x[0], scratch.of_columns[thread.columns * width + j]);
        high[k] = quotient(x[1], scratch.of_columns[thread.columns * width + j + 1]);
      });
      store_pack<width>(reinterpret_cast<To*>(turned_piece(scratch, thread, j)), Atoms::template narrowed<To>(low));
      store_pack<width>(reinterpret_cast<To*>(turned_piece(scratch, thread, j + 1)),
                        Atoms::template narrowed<To>(high));
    });
  }

  /// Rounded already: rows of words of four columns.
  KOKKOS_FORCEINLINE_FUNCTION static void turn_bytes(Scratch& scratch, Thread const& thread,
                                                     Bytes const (&bytes)[width]) {
    unroll<2>([&](auto half) {
      std::uint32_t upper[4], lower[4];
      unroll<4>([&](auto k) {
        upper[k] = bytes[k][half];
        lower[k] = bytes[k + 4][half];
      });
      Atoms::transpose_bytes(upper);
      Atoms::transpose_bytes(lower);
      unroll<4>([&](auto j) {
        store_pack<2>(reinterpret_cast<std::uint32_t*>(turned_piece(scratch, thread, 4 * half + j)),
                      Bytes{{upper[j], lower[j]}});
      });
    });
  }

  /// 16 rows of a column each time: eight threads store 128 neighbours.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void write_turned(Scratch& scratch, BlockPlace const& at, Thread const& thread) const {
    constexpr int rows_of_pair = 16, pairs = side / rows_of_pair, together = threads / pairs;
    int const pair = thread.index % pairs;
    std::int64_t const row = at.row() + pair * rows_of_pair;
    if (row >= p.rows) return;
    unroll<side / together>([&](auto i) {
      int const line = thread.index / pairs + i * together;
      constexpr bool swapped = (decltype(i)::value * together) / width >= 8;
      std::int64_t const column = at.column() + line;
      if (column >= p.columns) return;
      auto x = load_pack<4>(reinterpret_cast<std::uint32_t const*>(scratch.turned + line * side +
                                                                   (pair ^ (line / width % 8)) * rows_of_pair));
      if (swapped) x = {{x[2], x[3], x[0], x[1]}};
      To* const to = static_cast<To*>(const_cast<void*>(p.transposed.data)) + column * p.transposed.row +
                     row * p.transposed.column;
      auto const rounded = __builtin_bit_cast(Pack<To, rows_of_pair>, x);
      if (wide_stores) {
        store_pack<rows_of_pair>(to, rounded);
      } else {
        unroll<rows_of_pair>([&](auto r) {
          if (row + r < p.rows) to[r * p.transposed.column] = rounded[r];
        });
      }
    });
  }

  /// Whatever the scales, the elements and the rounding, from a second read of the block, which the caches still hold.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void write_elements(Scratch const& scratch, BlockPlace const& at,
                                                  Thread const& thread) const {
    constexpr int together = 4;  // which share an evaluation of Philox
    int cut_off = 0;
    TESSERA_ROLLED
    for (int e = thread.index; e < side * side / together; e += threads) {
      int const r = e / (side / together), c = e % (side / together) * together;
      std::int64_t const i = at.row() + r, j = at.column() + c;
      if (i >= p.rows || j >= p.columns) continue;
      auto const elements = Atoms::widened(load_pack<together>(static_cast<T const*>(p.in.data) + i * p.in.row + j));
      To* const to = static_cast<To*>(const_cast<void*>(p.out.data)) + i * p.out.row + j;
      To* const turned =
          static_cast<To*>(const_cast<void*>(p.transposed.data)) + j * p.transposed.row + i * p.transposed.column;
      std::uint64_t const group = p.rounding.index(i, j) / together;
      float const scale = scratch.of_rows[r][0];
      auto const round = [&](float q, int k) {
        return p.rounding.stochastic
                   ? p.rounding.template stochastically<To>(q, group * together + static_cast<std::uint64_t>(k))
                   : stored<To>(q);
      };
      unroll<together>([&](auto k) {
        float const x = elements[k], q = x / scale;
        To const rounded = round(q, k);
        to[k] = rounded;
        cut_off += p.rounding.cuts_off(x, q);
        if (p.transposed.present())
          turned[k * p.transposed.row] = turned_has_scales() ? round(x / scratch.of_columns[c + k][0], k) : rounded;
      });
    }
    if (p.saturated != nullptr) count(thread, cut_off);
  }
};

/// Whether rows are whole packs of types that such kernels take.
template <class Exec>
bool has_packed_blocks(QuantizeProblem const& problem) {
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available)
    return problem.in.type != Scalar::fp64 && problem.out.type != Scalar::int8 &&
           PackedOperands(problem.out, problem.in, problem.scales).packed;
  return false;
}

template <class Exec>
void start_packed_blocks(Exec const& exec, QuantizeProblem const& problem) {
  using Space = KernelSpace<Exec>;
  if constexpr (WarpAtoms<Space>::available) {
    RowArray const& turned = problem.transposed;
    auto const aligned = [](std::int64_t n) { return n % static_cast<std::int64_t>(pack_bytes) == 0; };
    bool const wide_stores = turned.stride[3] == 1 && aligned(turned.extent[3]) &&
                             (turned.extent[2] == 1 || aligned(turned.stride[2])) &&
                             aligned(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(turned.data)));
    constexpr int rows_of_blocks = 4;  // lines of the transposed copy grow by 512 bytes at a time
    BlockProblem const blocks(problem, turned.present() ? rows_of_blocks : 1);
    RowInputs<float>::visit(problem.in.type, [&](auto tag) {
      using Kernel = PackedBlocks<Space, typename decltype(tag)::type>;
      launch<Kernel::threads, 65536 / Kernel::registers / Kernel::threads>(
          "tessera::quantize::blocks", exec, blocks.blocks(), sizeof(typename Kernel::Scratch),
          Kernel{blocks, wide_stores});
    });
  }
}

}  // namespace tessera::detail

#endif
