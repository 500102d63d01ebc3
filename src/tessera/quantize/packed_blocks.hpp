// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_QUANTIZE_PACKED_BLOCKS_HPP
#define TESSERA_QUANTIZE_PACKED_BLOCKS_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/passing.hpp>
#include <tessera/quantize/blocks.hpp>
#include <tessera/quantize/eight_words.hpp>
#include <tessera/quantize/packed.hpp>
#include <tessera/quantize/short_division.hpp>
#include <tessera/quantize/turned_block.hpp>

// Blocks of 128 x 128 elements on machines with warps, where rows are whole packs of 8: each thread keeps 8 x 8
// elements in registers, 16 threads side by side. Maxima of rows and columns meet in scratch, and so does the
// transposed copy, 16 bytes of which are then stored at a time.
namespace tessera::detail {

/// `Draws`: rounds stochastically.
template <class Exec, class T, bool Draws = false>
struct PackedBlocks {
  static constexpr int side = block_side, width = group_width, beside = side / width, threads = beside * beside;
  static constexpr int registers = sizeof(T) > 2 ? 128 : !Draws && std::is_same_v<T, bf16_t> ? 64 : 80;
  using Atoms = WarpAtoms<Exec>;
  using Eight = EightWords<Exec, T>;
  using Words = typename Eight::Words;
  using Values = typename Eight::Values;
  static constexpr int words = Eight::words;
  template <class To>
  using Sixteen = Pack<To, 16>;
  static constexpr bool starts_early = true;
  static_assert(width == 8 && beside == 16, "the order in scratch is made for these");

  using Division = ShortDivision<Draws>;
  using Reciprocal = typename Division::Reciprocal;
  using Bytes = TurnedBlock::Bytes;
  struct Scratch {
    TurnedBlock turned;  // before that the largest magnitudes of the columns' pieces, (pieces, columns)
    alignas(16) Reciprocal by_row[side], by_column[side];
    float row_scale[side], column_scale[side];
    MagnitudeBits row_top[side], warp_top[threads / 32];
    int irregular;  // a scale that the short division does not take
  };
  static_assert(sizeof(T) * beside * side <= side * side);

  BlockProblem p;
  bool wide_stores;                 // of the transposed copy
  std::uint32_t in_step, out_step;  // from row to row, in bytes
  PhiloxKeys keys;
  ReadOnce once;

  /// A thread's place: its pieces of rows and of columns, each of 8; and what there is of the block.
  struct Thread {
    unsigned index, rows, columns;
    int rows_inside, columns_inside;

    KOKKOS_FORCEINLINE_FUNCTION Thread(BlockProblem const& p, BlockPlace const& at)
        : index(static_cast<unsigned>(Atoms::thread())), rows(index / beside), columns(index % beside) {
      auto const inside = [](std::int64_t left) { return left < side ? static_cast<int>(left) : side; };
      rows_inside = inside(p.rows - at.row());
      columns_inside = inside(p.columns - at.column());
    }
    KOKKOS_FORCEINLINE_FUNCTION int first_row() const { return static_cast<int>(rows) * width; }
    KOKKOS_FORCEINLINE_FUNCTION int first_column() const { return static_cast<int>(columns) * width; }
    KOKKOS_FORCEINLINE_FUNCTION bool has(int k) const {
      return first_row() + k < rows_inside && first_column() < columns_inside;
    }
  };

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    auto& scratch = *static_cast<Scratch*>(team.team_shmem().get_shmem(sizeof(Scratch)));
    BlockPlace const at(p, team.league_rank());
    Thread const thread(p, at);
    wait_for_kernels_before<Exec>();
    float const given = given_scale(at, thread);
    Words raw[width];
    load(at, thread, raw);
    find_maxima(team, scratch, thread, raw);
    team.team_barrier();
    MagnitudeBits top = 0;
    for (MagnitudeBits const x : scratch.warp_top) top = x > top ? x : top;
    if (thread.index == 0 && p.amax != nullptr) raise(p.amax, canonical(top));
    find_scale(scratch, at, thread, top, given);
    team.team_barrier();
    bool const divides_shortly = scratch.irregular == 0 && top < Division::moderate;
    PackedBytes::visit(p.out.type, [&](auto tag) TESSERA_INLINE_LAMBDA {
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

  /// So many rows below an element. The product of two words is one instruction with the sum.
  template <class As, class Element>
  KOKKOS_FORCEINLINE_FUNCTION static As* below(Element* first, int rows, std::uint32_t step) {
    using Byte = std::conditional_t<std::is_const_v<Element>, char const, char>;
    return reinterpret_cast<As*>(reinterpret_cast<Byte*>(first) +
                                 std::uint64_t{static_cast<std::uint32_t>(rows)} * step);
  }

  /// Beyond the edges the last elements before them are read again, which changes no maximum.
  KOKKOS_FORCEINLINE_FUNCTION void load(BlockPlace const& at, Thread const& thread, Words (&raw)[width]) const {
    int const column =
        thread.first_column() < thread.columns_inside ? thread.first_column() : thread.columns_inside - width;
    T const* const first = once(static_cast<T const*>(p.in.data)) + at.row() * p.in.row + at.column() + column;
    unroll<width>([&](auto k) {
      int const wanted = thread.first_row() + k, row = wanted < thread.rows_inside ? wanted : thread.rows_inside - 1;
      raw[k] = load_pack<words>(below<std::uint32_t const>(first, row, in_step));
    });
  }

  /// Into scratch: the warp's, and what the scales come from.
  KOKKOS_FORCEINLINE_FUNCTION void find_maxima(TeamMember<Exec> const& team, Scratch& scratch, Thread const& thread,
                                               Words const (&raw)[width]) const {
    auto const larger = [](std::uint32_t a, std::uint32_t b) { return Atoms::template larger_magnitudes<T>(a, b); };
    auto const magnitude = [&](auto k, auto w) { return Atoms::template magnitudes<T>(raw[k][w]); };
    MagnitudeBits top = 0;
    if (p.source == ScaleSource::line) {
      MagnitudeBits of_rows[width];
      unroll<width>([&](auto k) {
        std::uint32_t in_row = 0;
        unroll<words>([&](auto w) { in_row = larger(in_row, magnitude(k, w)); });
        of_rows[k] = Eight::magnitude_of(in_row);
        top = LargerBits{}(top, of_rows[k]);
      });
      MagnitudeBits const row_top = join_lines(team, static_cast<int>(thread.index), of_rows);
      if (thread.index % 2 == 0) scratch.row_top[thread.rows * width + thread.columns / 2] = row_top;
      if (turned_has_scales()) {
        Words of_columns;
        unroll<words>([&](auto w) {
          of_columns[w] = 0;
          unroll<width>([&](auto k) { of_columns[w] = larger(of_columns[w], magnitude(k, w)); });
        });
        store_pack<words>(
            reinterpret_cast<std::uint32_t*>(scratch.turned.bytes) + (thread.rows * beside + thread.columns) * words,
            of_columns);
      }
    } else {
      std::uint32_t in_all = 0;
      unroll<width>([&](auto k) { unroll<words>([&](auto w) { in_all = larger(in_all, magnitude(k, w)); }); });
      top = Eight::magnitude_of(in_all);
    }
    top = Atoms::template join<32>(top, LargerBits{});
    if (thread.index % 32 == 0) scratch.warp_top[thread.index / 32] = top;
    if (thread.index == 0) scratch.irregular = 0;
  }

  /// The row or column whose scale a thread finds: those of rows, then those of columns.
  struct Line {
    bool of_column;
    int index;
    std::int64_t row, column;  // of the scale's element
    bool inside;

    KOKKOS_FORCEINLINE_FUNCTION Line(BlockProblem const& p, BlockPlace const& at, Thread const& thread)
        : of_column(thread.index >= side), index(static_cast<int>(thread.index % side)) {
      row = (of_column ? at.column() : at.row()) + index;
      column = of_column ? at.row() : at.column();
      inside = row < (of_column ? p.columns : p.rows) && (!of_column || p.transposed_scales.present());
    }
    KOKKOS_FORCEINLINE_FUNCTION float& scale(BlockProblem const& p) const {
      return (of_column ? p.transposed_scales : p.scales)(row, column);
    }
  };
  /// Read before the elements.
  KOKKOS_FORCEINLINE_FUNCTION float given_scale(BlockPlace const& at, Thread const& thread) const {
    if (p.source != ScaleSource::given) return 1;
    Line const line(p, at, thread);
    return line.inside ? line.scale(p) : 1.0f;
  }

  KOKKOS_FORCEINLINE_FUNCTION void find_scale(Scratch& scratch, BlockPlace const& at, Thread const& thread,
                                              MagnitudeBits top, float scale) const {
    Line const line(p, at, thread);
    if (line.of_column && !turned_has_scales()) return;
    if (p.source != ScaleSource::given) {
      if (p.source == ScaleSource::line) {
        top = scratch.row_top[line.index];
        if (line.of_column) {
          top = 0;
          T const* const tops = reinterpret_cast<T const*>(scratch.turned.bytes) + line.index;
          unroll<beside>(
              [&](auto piece) { top = LargerBits{}(top, magnitude_bits(static_cast<float>(tops[piece * side]))); });
        }
      }
      scale = scale_of(canonical(top), p.largest);
      if (line.inside && (p.source == ScaleSource::line || line.index == 0)) line.scale(p) = scale;
    }
    if (!Division::is_regular(scale)) scratch.irregular = 1;
    (line.of_column ? scratch.column_scale : scratch.row_scale)[line.index] = scale;
    (line.of_column ? scratch.by_column : scratch.by_row)[line.index] = Division::reciprocal(scale);
  }

  KOKKOS_FORCEINLINE_FUNCTION static Values quotients(Words const& raw, Reciprocal const& by) {
    Values x;
    unroll<width / 2>([&](auto j) {
      Pack<float, 2> const two = Eight::pair(raw, j);
      x[2 * j] = Division::quotient(two[0], by);
      x[2 * j + 1] = Division::quotient(two[1], by);
    });
    return x;
  }

  /// How many elements of the thread are.
  KOKKOS_FORCEINLINE_FUNCTION int cut_off(Scratch const& scratch, Thread const& thread,
                                          Words const (&raw)[width]) const {
    int cut = 0;
    unroll<width>([&](auto k) {
      if (!thread.has(k)) return;
      Values const x = quotients(raw[k], scratch.by_row[thread.rows * width + k]);
      for (int j = 0; j < width; ++j) cut += Kokkos::fabs(x[j]) >= p.rounding.cut_off;
    });
    return cut;
  }

  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void write(TeamMember<Exec> const& team, Scratch& scratch, BlockPlace const& at,
                                         Thread const& thread, Words (&raw)[width]) const {
    To* const first =
        static_cast<To*>(const_cast<void*>(p.out.data)) + at.row() * p.out.row + at.column() + thread.first_column();
    Bytes bytes[width];
    auto const store = [&](auto k) {
      int const row = thread.first_row() + k;
      if (thread.has(k)) store_pack<2>(below<std::uint32_t>(first, row, out_step), bytes[k]);
    };
    if constexpr (Draws) {
      draw<To>(scratch, at, thread, raw, bytes, store);
    } else {
      if (p.saturated != nullptr) count(thread, cut_off(scratch, thread, raw));
      if (turned_has_scales()) turn_rounded<To>(scratch, thread, raw);  // first: then raw and bytes share registers
      unroll<width>([&](auto k) {
        Reciprocal const by = scratch.by_row[thread.rows * width + k];
        if constexpr (sizeof(T) == 2) Atoms::renew(raw[k]);  // is widened again, which meanwhile takes no registers
        bytes[k] = Atoms::template narrowed_words<To>(quotients(raw[k], by));
        store(k);
      });
    }
    if (!p.transposed.present()) return;
    if (!turned_has_scales()) scratch.turned.template store_rows<Atoms>(thread, bytes);
    team.team_barrier();
    write_turned<To>(scratch, at, thread);
  }

  /// Rounds stochastically: for the transposed copy by the scales of columns and, with the same words, by those of
  /// rows.
  template <class To, class Store>
  KOKKOS_FORCEINLINE_FUNCTION void draw(Scratch& scratch, BlockPlace const& at, Thread const& thread,
                                        Words (&raw)[width], Bytes (&bytes)[width], Store const& store) const {
    std::uint64_t const first =
        p.rounding.index(at.row() + thread.first_row(), at.column() + thread.first_column()) / width;
    std::uint64_t const step = static_cast<std::uint64_t>(p.rounding.row) / width;
    auto const group = [&](int k) { return first + step * static_cast<unsigned>(k); };
    auto const ignored = [](Values const&) {};
    if (turned_has_scales()) {
      unroll<width>([&](auto k) TESSERA_INLINE_LAMBDA {
        Pack<Reciprocal, width> const by = load_pack<width>(scratch.by_column + thread.columns * width);
        bytes[k] = drawn<To>(raw[k], group(k), by, ignored);
      });
      scratch.turned.template store_rows<Atoms>(thread, bytes);
    }
    int cut = 0;
    unroll<width>([&](auto k) TESSERA_INLINE_LAMBDA {
      Pack<Reciprocal, width> by;
      by[0] = scratch.by_row[thread.rows * width + k];
      unroll<width>([&](auto j) { by[j] = by[0]; });
      auto const seen = [&](Values const& q) TESSERA_INLINE_LAMBDA {
        if (p.saturated != nullptr && thread.has(k))
          unroll<width>([&](auto j) { cut += Kokkos::fabs(q[j]) >= p.rounding.cut_off; });
      };
      if constexpr (sizeof(T) == 2) Atoms::renew(raw[k]);
      bytes[k] = drawn<To>(raw[k], group(k), by, seen);
      store(k);
    });
    if (p.saturated != nullptr) count(thread, cut);
  }

  /// Eight elements divided by `by`, of which `seen` is told, and rounded by the words of the counter `group`.
  template <class To, class Seen>
  KOKKOS_FORCEINLINE_FUNCTION Bytes drawn(Words const& raw, std::uint64_t group, Pack<Reciprocal, width> const& by,
                                          Seen const& seen) const {
    using Rounding = DrawnRounding<To>;
    PhiloxCounter const words = keys.words(p.rounding.offset, group);
    Values const x = Eight::elements(raw);
    auto const magnitude = [](float value) { return 2 * __builtin_bit_cast(std::uint32_t, value); };
    std::uint32_t least = ~0u;  // the smallest magnitude but 0, less one
    float largest_scale = 0;
    Values q;
    unroll<width>([&](auto j) {
      largest_scale = larger(largest_scale, by[j][0]);
      std::uint32_t less = magnitude(x[j]) - 1;
      least = less < least ? less : least;
      q[j] = Quotient::rounded(x[j], by[j][0], by[j][1]);
    });
    seen(q);
    constexpr float nearly_one = 1.0001f;
    float const normal = largest_scale * (Rounding::smallest_normal * nearly_one);
    if (least < magnitude(normal)) {
      // What is divided may be so small that nothing is left.
      unsigned zeros = 0;
      unroll<width>([&](auto j) { zeros |= Kokkos::fabs(x[j]) * 0x1p89f <= by[j][0] * 0x1p-61f ? 1u << int{j} : 0u; });
      draw_small<To>(q, zeros, words);
    } else {
      unroll<width>([&](auto j) { q[j] = Rounding::normal(q[j], shared_word(words, j)); });
    }
    return Atoms::template narrowed_words<To>(q);
  }

  /// Where some are smaller than the normal numbers: rare, and so in a loop, through whose first element all go.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION static void draw_small(Values& q, unsigned zeros, PhiloxCounter words) {
    TESSERA_ROLLED
    for (int j = 0; j < width; ++j) {
      float const rounded = DrawnRounding<To>::any(q[0], words[0], (zeros >> j & 1) != 0);
      unroll<width - 1>([&](auto i) { q[i] = q[i + 1]; });
      q[width - 1] = rounded;
      std::uint32_t const next = halves_exchanged(words[0]);
      bool const shared = j % 2 == 0;
      words = {shared ? next : words[1], shared ? words[1] : words[2], shared ? words[2] : words[3],
               shared ? words[3] : next};
    }
  }

  KOKKOS_FORCEINLINE_FUNCTION void count(Thread const& thread, int cut) const {
    cut = Atoms::template join<32>(cut, Add{});
    if (thread.index % 32 == 0 && cut > 0) Kokkos::atomic_add(p.saturated, std::int64_t{cut});
  }

  /// Divided by the scales of columns.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION static void turn_rounded(Scratch& scratch, Thread const& thread,
                                                       Words const (&raw)[width]) {
    unsigned char* const piece = scratch.turned.piece(thread);
    unroll<width / 2>([&](auto j) {
      auto const by = load_pack<2>(scratch.by_column + thread.columns * width + 2 * j);
      Values low, high;
      unroll<width>([&](auto k) {
        Pack<float, 2> const two = Eight::pair(raw[k], j);
        low[k] = Division::quotient(two[0], by[0]);
        high[k] = Division::quotient(two[1], by[1]);
      });
      TurnedBlock::store(piece + 2 * j * side, Atoms::template narrowed_words<To>(low));
      TurnedBlock::store(piece + (2 * j + 1) * side, Atoms::template narrowed_words<To>(high));
    });
  }

  /// 16 rows of a column each time: eight threads store 128 neighbours.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void write_turned(Scratch& scratch, BlockPlace const& at, Thread const& thread) const {
    constexpr int rows_of_pair = 16, pairs = side / rows_of_pair, together = threads / pairs;
    unsigned const pair = thread.index % pairs, line = thread.index / pairs;
    int const row = static_cast<int>(pair) * rows_of_pair, rows_left = thread.rows_inside - row;
    if (rows_left <= 0) return;
    Operand const& t = p.transposed;
    To* const first =
        static_cast<To*>(const_cast<void*>(t.data)) + (at.column() + line) * t.row + (at.row() + row) * t.column;
    unsigned const order = TurnedBlock::place_of_pair(pair, line);
    unroll<side / together>([&](auto i) {
      constexpr int below = decltype(i)::value * together;
      if (static_cast<int>(line) + below >= thread.columns_inside) return;
      auto const x = scratch.turned.template pair<below>(line, order);
      To* const to = first + below * t.row;
      auto const rounded = __builtin_bit_cast(Sixteen<To>, x);
      if (wide_stores)
        store_pack<rows_of_pair>(to, rounded);
      else
        unroll<rows_of_pair>([&](auto r) {
          if (r < rows_left) to[r * t.column] = rounded[r];
        });
    });
  }

  /// Whatever the scales, the elements and the rounding, from a second read of the block, which the caches still hold.
  template <class To>
  KOKKOS_FORCEINLINE_FUNCTION void write_elements(Scratch const& scratch, BlockPlace const& at,
                                                  Thread const& thread) const {
    constexpr int together = 4;
    int cut = 0;
    TESSERA_ROLLED
    for (int e = static_cast<int>(thread.index); e < side * side / together; e += threads) {
      int const r = e / (side / together), c = e % (side / together) * together;
      std::int64_t const i = at.row() + r, j = at.column() + c;
      if (i >= p.rows || j >= p.columns) continue;
      auto const elements = Atoms::widened(load_pack<together>(static_cast<T const*>(p.in.data) + i * p.in.row + j));
      To* const to = static_cast<To*>(const_cast<void*>(p.out.data)) + i * p.out.row + j;
      To* const turned =
          static_cast<To*>(const_cast<void*>(p.transposed.data)) + j * p.transposed.row + i * p.transposed.column;
      std::uint32_t words[together] = {};
      if constexpr (Draws) {
        std::uint64_t const index = p.rounding.index(i, j);
        PhiloxCounter const of_eight = keys.words(p.rounding.offset, index / 8);
        unroll<together>([&](auto k) {
          words[k] = index % 8 == 0 ? shared_word(of_eight, k) : shared_word(of_eight, together + k);
        });
      }
      float const scale = scratch.row_scale[r];
      auto const round = [&](float q, int k) {
        if constexpr (Draws) return QuotientRounding::with_word<To>(q, words[k]);
        return stored<To>(q);
      };
      unroll<together>([&](auto k) {
        float const x = elements[k], q = x / scale;
        To const rounded = round(q, k);
        to[k] = rounded;
        cut += p.rounding.cuts_off(x, q);
        if (p.transposed.present())
          turned[k * p.transposed.row] = turned_has_scales() ? round(x / scratch.column_scale[c + k], k) : rounded;
      });
    }
    if (p.saturated != nullptr) count(thread, cut);
  }
};

/// Whether what lies between rows, in bytes, is a word.
inline bool has_word_steps(RowArray const& a) {
  std::int64_t const bytes = a.stride[2] * static_cast<std::int64_t>(size_of(a.type));
  return bytes >= 0 && bytes <= std::numeric_limits<std::uint32_t>::max();
}

/// Whether rows are whole packs of types that such kernels take.
template <class Exec>
bool has_packed_blocks(QuantizeProblem const& problem) {
  if constexpr (WarpAtoms<KernelSpace<Exec>>::available)
    return problem.in.type != Scalar::fp64 && problem.out.type != Scalar::int8 &&
           PackedOperands(problem.out, problem.in, problem.scales).packed && has_word_steps(problem.in) &&
           has_word_steps(problem.out);
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
    auto const step = [](RowArray const& a) {
      return static_cast<std::uint32_t>(a.stride[2] * static_cast<std::int64_t>(size_of(a.type)));
    };
    BlockProblem const blocks(problem);
    std::int64_t const elements = blocks.rows * blocks.columns;
    ReadOnce const once(elements * static_cast<std::int64_t>(size_of(problem.in.type)),
                        elements * (turned.present() ? 2 : 1));
    RowInputs<float>::visit_on_host(problem.in.type, [&](auto tag) {
      auto const start = [&](auto draws) {
        using Kernel = PackedBlocks<Space, typename decltype(tag)::type, decltype(draws)::value>;
        launch<Kernel::threads, 65536 / Kernel::registers / Kernel::threads>(
            "tessera::quantize::blocks", exec, blocks.blocks(), sizeof(typename Kernel::Scratch),
            Kernel{blocks, wide_stores, step(problem.in), step(problem.out), PhiloxKeys(problem.seed), once});
      };
      if (problem.stochastic)
        start(std::true_type{});
      else
        start(std::false_type{});
    });
  }
}

}  // namespace tessera::detail

#endif
