// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_BULK_STORES_HPP
#define TESSERA_CUDA_BULK_STORES_HPP

#include <cstdint>
#include <type_traits>

#include <tessera/cuda/bulk_elements.hpp>
#include <tessera/cuda/bulk_slices.hpp>
#include <tessera/cuda/lines.hpp>
#include <tessera/cuda/rounding.hpp>
#include <tessera/cuda/store_boxes.hpp>
#include <tessera/cuda/tensor_map.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/unroll.hpp>

// Where accumulators of a warpgroup go: shared memory in the form that a bulk store or a warp's lines have, and from
// there to a matrix.
namespace tessera::detail::bulk {

/// A matrix of a stack as accumulators are stored to it.
struct Target {
  CUtensorMap whole, shorter;  // for the staged store: boxes of 128 bytes' columns, and of what remains
  MatrixStack strides;         // for every other
  bool staged;                 // may leave through the copy engine
  int at_once;                 // neighbours of a row that may be stored at once
};

/// A target that only the device knows.
struct LateTarget {
  MatrixStack strides;
  static constexpr bool staged = false;
  int at_once;
};

/// 16 rows of a warp without padding: 8 columns of row r lie in place c ^ r, so that the writes of four rows meet
/// in no bank.
template <int Width>
struct Swizzled {
  static constexpr int rows = 16, width = Width;
  static constexpr bool in_order = true;
  __device__ __forceinline__ static int place(int line, int col) {
    return line * width + (col ^ ((line & (width / 8 - 1)) << 3));
  }
  __device__ __forceinline__ static int row(int line) { return line; }
};

template <class Element, class Sizes>
struct StoreMath : ElementMath<Element, Sizes> {
  using Base = ElementMath<Element, Sizes>;
  using Base::group, Base::warp, Base::thread, Base::meet;
  using typename Base::Compute, typename Base::Held;
  template <int M, int N>
  using Accumulator = typename Base::template Accumulator<M, N>;
  /// One consumer's stage for the store.
  using Staging = std::uint16_t[Sizes::store_boxes][64][64];

  Staging* staging;
  uint4* exchange;            // the ring, for what other teams send when it is idle
  std::uint64_t* joined;      // completes when they have
  std::uint64_t (*added)[2];  // of each consumer's boxes: completes when what is added has come into it
  int slices;                 // teams that share a tile along K
  bool rehearsal = false;     // nothing is sent

  /// Teams that share a tile along K add up its sums: true in the warps that then have some.
  template <int M, int N>
  __device__ __forceinline__ bool join(Accumulator<M, N>& acc) const {
    if constexpr (!Sizes::joins) return true;
    return slices == 1 || join_slices<Sizes::consumers>(acc.r[0], slices, *this, exchange, joined);
  }

  template <int M, int N>
  __device__ __forceinline__ void store(Accumulator<M, N> const& acc, LateTarget const& target, Plane plane,
                                        std::int64_t row0, std::int64_t col0) const {
    store_lines(acc, target, plane, row0, col0, Compute(1), Compute(0), Unchanged{}, target.strides.rows);
  }
  template <int M, int N>
  __device__ __forceinline__ void store(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                        std::int64_t row0, std::int64_t col0) const {
    store(acc, target, plane, row0, col0, target.strides.rows);
  }
  /// In the rows before `end`. The copy engine knows no end but the matrix's.
  template <int M, int N>
  __device__ __forceinline__ void store(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                        std::int64_t row0, std::int64_t col0, std::int64_t end) const {
    if constexpr (!Sizes::staged_store) {
      if (target.strides.type == scalar_of<float>)
        store_direct<float>(acc, target, plane, row0, col0, end);
      else if (target.strides.cols % 8 == 0)
        store_packs(acc, target, plane, row0, col0, end);
      else
        store_direct<Element>(acc, target, plane, row0, col0, end);
    } else if ((end < target.strides.rows && row0 + M > end) || !store_sent(acc, target, plane, row0, col0)) {
      store_lines(acc, target, plane, row0, col0, Compute(1), Compute(0), Unchanged{}, end);
    }
  }
  /// Numbers in memory, in SumOrder, grow by acc's, in no particular order: straight from registers, which stay in
  /// use until memory takes them, or by the copy engine, from each warp's part of the stage for the store.
  template <int M, int N>
  __device__ __forceinline__ void add_to(Accumulator<M, N> const& acc, Compute* sums) const {
    using Acc = Accumulator<M, N>;
    constexpr int most = 64, columns = Acc::columns < most ? Acc::columns : most, numbers = columns * 16;  // of a warp
    static_assert(Acc::blocks == 1 && Acc::columns % columns == 0);
    auto const lane = static_cast<unsigned>(ptx::lane());
    Compute* to = sums + Held::template SumOrder<M, N>::at(Acc::row(*this) + warp * 16, Acc::col(*this));
    unroll<Acc::columns / columns>([&](auto pass) TESSERA_INLINE_LAMBDA {
      Compute const* const r = acc.r[0] + pass * columns / 2;
      if constexpr (Sizes::staged_adds) {
        static_assert(Sizes::adds && 4 * numbers * sizeof(Compute) <= 2 * sizeof(Staging) / Sizes::store_boxes);
        Compute* const part = reinterpret_cast<Compute*>(staging[group]) + warp * numbers;
        if (lane == 0) ptx::bulk_wait_read();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < columns / 2; i += 4)
          *reinterpret_cast<float4*>(part + i * 32 + lane * 4) = {r[i], r[i + 1], r[i + 2], r[i + 3]};
        ptx::async_proxy_fence();
        __syncwarp();
        if (lane == 0) {
          ptx::bulk_add(to, part, numbers * sizeof(Compute));
          ptx::bulk_commit();
        }
      } else {
#pragma unroll
        for (int i = 0; i < columns / 2; i += 4) ptx::add_four(to + i * 32 + lane * 4, r + i);
      }
      to += numbers;
    });
  }
  /// Numbers in memory, in SumOrder, become acc's.
  template <int M, int N>
  __device__ __forceinline__ void write_to(Accumulator<M, N> const& acc, Compute* numbers) const {
    using Acc = Accumulator<M, N>;
    static_assert(Acc::blocks == 1);
    Compute* const to =
        numbers + Held::template SumOrder<M, N>::at(Acc::row(*this) + warp * 16, Acc::col(*this)) + ptx::lane() * 4;
    Compute const* const r = acc.r[0];
#pragma unroll
    for (int i = 0; i < Acc::columns / 2; i += 4)
      *reinterpret_cast<float4*>(to + i * 32) = {r[i], r[i + 1], r[i + 2], r[i + 3]};
  }
  /// The first boxes of what store_whole() will add are on their way, if it is the copy engine that brings them.
  template <class Acc>
  __device__ __forceinline__ void fetch_added(Target const& target, Plane plane, std::int64_t row0,
                                              std::int64_t col0) const {
    if constexpr (!Sizes::joins) fetch_first<Acc>(target, plane, static_cast<int>(row0), static_cast<int>(col0));
  }
  /// alpha * acc + beta * matrix, which the copy engine takes away and, behind fetch_added(), brings; false: it does
  /// not, nothing is done. Sums of which each team has but some warps' go by packs from registers where they can.
  /// Turned results are not added to anything.
  template <int M, int N>
  __device__ __forceinline__ bool store_whole(Accumulator<M, N>& acc, Target const& target, Plane plane,
                                              std::int64_t row0, std::int64_t col0, Compute alpha, Compute beta) const {
    static_assert(Sizes::staged_store);
    if constexpr (Sizes::turned) {
      store_turned(acc, target, plane, row0, col0, alpha);
      return true;
    } else if constexpr (Sizes::joins) {
      return target.staged && store_joined(acc, target, plane, row0, col0, alpha, beta);
    } else {
      if (!target.staged) return false;
      if (beta == Compute(0)) {
        scale(acc, alpha);
        return store_sent(acc, target, plane, row0, col0);
      }
      int const row = static_cast<int>(row0), col = static_cast<int>(col0);
      return with_added<Accumulator<M, N>>(target, [&](auto units) TESSERA_INLINE_LAMBDA {
        add_units<decltype(units)>(acc, target, plane, row, col, alpha, beta);
      });
    }
  }
  /// What f makes of alpha * acc + beta * matrix, in the rows before `end`.
  template <int M, int N, class F>
  __device__ __forceinline__ void store_finished(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                                 std::int64_t row0, std::int64_t col0, Compute alpha, Compute beta,
                                                 F const& f, std::int64_t end) const {
    store_lines(acc, target, plane, row0, col0, alpha, beta, f, end);
  }
  template <int M, int N, class To, class F>
  __device__ __forceinline__ void store_finished(Accumulator<M, N> const& acc, To const& target, Plane plane,
                                                 std::int64_t row0, std::int64_t col0, Compute alpha, Compute beta,
                                                 F const& f) const {
    store_lines(acc, target, plane, row0, col0, alpha, beta, f, target.strides.rows);
  }
  /// Stores still under way have read this team's memory: it may end. They are done before the grid is.
  __device__ __forceinline__ void drain() const {
    if constexpr (Sizes::staged_store)
      if ((Sizes::adds || warp == 0) && ptx::lane() == 0) ptx::bulk_wait_read();
  }

 private:
  /// Straight from registers, two columns at a time, which lie in aligned pairs: the factors' type or fp32.
  template <class T, int M, int N>
  __device__ __forceinline__ void store_direct(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                               std::int64_t row0, std::int64_t col0, std::int64_t end) const {
    MatrixStack const& m = target.strides;
    int const cols = static_cast<int>(m.cols - col0);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      std::int64_t const r = row0 + Accumulator<M, N>::row(*this, h * 2);
      T* const first = static_cast<T*>(const_cast<void*>(m.data)) + m.offset(plane, r, col0);
      bool const inside = r < end;
#pragma unroll
      for (int i = h * 2; i < N / 2; i += 4) {
        int const c = Accumulator<M, N>::col(*this, i);
        if (inside && c < cols) *reinterpret_cast<Pair<T>*>(first + c) = rounded_pair<T>(acc.r[0][i], acc.r[0][i + 1]);
      }
    }
  }
  /// The same of the factors' 16 bits in packs of 16 bytes: four lanes that share rows exchange columns. Addresses
  /// and strides are multiples of that.
  template <int M, int N>
  __device__ __forceinline__ void store_packs(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                              std::int64_t row0, std::int64_t col0, std::int64_t end) const {
    static_assert(N % 32 == 0);
    MatrixStack const& m = target.strides;
    int const lane = ptx::lane() % 4, cols = static_cast<int>(m.cols - col0) - lane * 8;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      std::int64_t const r = row0 + Accumulator<M, N>::row(*this, h * 2);
      Element* const first = static_cast<Element*>(const_cast<void*>(m.data)) + m.offset(plane, r, col0 + lane * 8);
      bool const inside = r < end;
#pragma unroll
      for (int c = 0; c < N; c += 32) {
        std::uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int const at = c / 2 + i * 4 + h * 2;
          x[i] = packed_pair<Element>(acc.r[0][at], acc.r[0][at + 1]);
        }
        ptx::transpose_in_four_lanes(x, lane);
        if (inside && c < cols) __stcg(reinterpret_cast<uint4*>(first + c), uint4{x[0], x[1], x[2], x[3]});
      }
    }
  }
  template <int M, int N>
  __device__ __forceinline__ void scale(Accumulator<M, N>& acc, Compute alpha) const {
    if (alpha != Compute(1)) this->for_each(acc, [&](Compute& x, int, int) TESSERA_INLINE_LAMBDA { x *= alpha; });
  }
  /// alpha * acc of the factors' 16 bits, by packs; false: nothing is done.
  template <int M, int N>
  __device__ __forceinline__ bool store_joined(Accumulator<M, N>& acc, Target const& target, Plane plane,
                                               std::int64_t row0, std::int64_t col0, Compute alpha,
                                               Compute beta) const {
    if constexpr (sizeof(Element) == 2 && Accumulator<M, N>::columns == N) {
      MatrixStack const& m = target.strides;
      if (beta != Compute(0) || m.type != scalar_of<Element> || m.cols % 8 != 0) return false;
      scale(acc, alpha);
      store_packs(acc, target, plane, row0, col0, m.rows);
      return true;
    } else {
      return false;
    }
  }
  /// alpha * acc of the factors' 16 bits to a matrix whose columns lie at multiples of 16 bytes: a warp's 16 rows are
  /// 32 bytes of each column, which pass through shared memory 64 columns at a time, two lanes a column.
  template <int M, int N>
  __device__ __forceinline__ void store_turned(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                               std::int64_t row0, std::int64_t col0, Compute alpha) const {
    using Acc = Accumulator<M, N>;
    static_assert(sizeof(Element) == 2 && Acc::blocks == 1);
    constexpr int groups = Acc::columns / 16, at_once = 4, bytes = 16 * 32;  // of 16 columns
    MatrixStack const& m = target.strides;
    int const lane = ptx::lane();
    char* const memory = reinterpret_cast<char*>(staging[group]) + warp * at_once * bytes;
    auto const place = [](int line, int half) { return line * 32 + ((half ^ (line / 4 & 1)) << 4); };
    std::uint32_t const to = ptx::shared_address(memory) + place(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    int const line = lane / 2, half = lane % 2;
    char const* const from = memory + place(line, half);
    row0 += Acc::row(*this) + warp * 16 + half * 8;
    col0 += Acc::col(*this) + line;
    int const rows = rest_of(m.rows - row0, 8), cols = rest_of(m.cols - col0, Acc::columns);
    Element* const first = static_cast<Element*>(const_cast<void*>(m.data)) + m.offset(plane, row0, col0);
#pragma unroll
    for (int pass = 0; pass < groups; pass += at_once) {
#pragma unroll
      for (int j = 0; j < at_once && pass + j < groups; ++j) {
        std::uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int const at = (pass + j) * 8 + i * 2;
          x[i] = packed_pair<Element>(alpha * acc.r[0][at], alpha * acc.r[0][at + 1]);
        }
        ptx::store_transposed_x4(to + j * bytes, x);
      }
      __syncwarp();
#pragma unroll
      for (int j = 0; j < at_once && pass + j < groups; ++j) {
        int const col = (pass + j) * 16;
        if (col >= cols) continue;
        uint4 const x = *reinterpret_cast<uint4 const*>(from + j * bytes);
        Element* const column = first + col * m.col_stride;
        if (rows == 8) {
          __stcg(reinterpret_cast<uint4*>(column), x);
        } else {
          auto const pack = Kokkos::bit_cast<Pack<Element, 8>>(x);
          for (int i = 0; i < rows; ++i) column[i] = pack[i];
        }
      }
      __syncwarp();  // the columns are read
    }
  }
  /// Of `most`, as many as there are: never below none, or kernels are half as large again.
  __device__ __forceinline__ static int rest_of(std::int64_t rest, int most) {
    return rest > most ? most : (rest < 0 ? 0 : static_cast<int>(rest));
  }
  /// Any type, address and strides, and what is done with elements on the way.
  template <int M, int N, class To, class F>
  __device__ __forceinline__ void store_lines(Accumulator<M, N> const& acc, To const& target, Plane plane,
                                              std::int64_t row0, std::int64_t col0, Compute alpha, Compute beta,
                                              F const& f, std::int64_t end) const {
    using Acc = Accumulator<M, N>;
    constexpr bool wide = Acc::columns % 64 == 0 && Sizes::store_boxes > 1;
    using Layout = Swizzled<wide ? 64 : 32>;
    constexpr int width = Layout::width, passes = (Acc::columns + width - 1) / width;
    constexpr int at_once = Acc::blocks * Acc::columns > 320 ? 4 : 16;  // elements that there are registers for
    int const lane = ptx::lane();                                       // no address is kept through the products
    Compute* const memory = reinterpret_cast<Compute*>(staging[group]) + warp * Layout::rows * width;
    row0 += Accumulator<M, N>::row(*this) + warp * Layout::rows;
    col0 += Accumulator<M, N>::col(*this);
    // A tile before, or sums, may have left through the same memory. Of shared tiles each is a team's only one.
    if (Sizes::adds || (target.staged && !(Sizes::joins && slices > 1))) {
      if ((Sizes::adds || warp == 0) && lane == 0) ptx::bulk_wait_read();
      meet();
    }
#pragma unroll 1
    for (int block = 0; block < Acc::blocks; ++block) {
      WarpLines<Compute, 4, at_once, Layout::rows, width, Layout> const lines(
          memory, target.strides, plane, row0 + block * 64, col0, end, Acc::columns);
      auto const write = [&](auto pass) {
#pragma unroll
        for (int b = 0; b < Acc::blocks; ++b)  // registers have no index
          if (b == block)
#pragma unroll
            for (int i = 0; i < width / 2 && pass * width / 2 + i < Acc::columns / 2; i += 2)
              *reinterpret_cast<Pair<Compute>*>(memory +
                                                Layout::place(lane / 4 + i % 4 / 2 * 8, lane % 4 * 2 + i / 4 * 8)) = {
                  acc.r[b][pass * width / 2 + i], acc.r[b][pass * width / 2 + i + 1]};
      };
      lines.template store<passes>(alpha, beta, f, target.at_once, write);
      __syncwarp();  // the lines are read
    }
  }
  /// acc, by the copy engine; false: it does not take it, nothing is done.
  template <int M, int N>
  __device__ __forceinline__ bool store_sent(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                             std::int64_t row0, std::int64_t col0) const {
    if (!target.staged) return false;
    int const row = static_cast<int>(row0), col = static_cast<int>(col0);
    visit_scalar<Compute>(target.strides.type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (store_boxes_of<Accumulator<M, N>>(sizeof(T)).all) store_bulk<T>(acc, target, plane, row, col);
    });
    return true;
  }
  /// A box or two at a time, then a bulk store that runs on under the next tile's products.
  template <class T, int M, int N>
  __device__ __forceinline__ void store_bulk(Accumulator<M, N> const& acc, Target const& target, Plane plane, int row0,
                                             int col0) const {
    constexpr int size = static_cast<int>(sizeof(T)), width = line_bytes / size;
    constexpr StoreBoxes boxes = store_boxes_of<Accumulator<M, N>>(size);
    constexpr int whole = boxes.whole, shorter = boxes.shorter, line = boxes.line;
    constexpr int most = Sizes::store_boxes > 1 ? 2 : 1;
    row0 += Accumulator<M, N>::row(*this);
    col0 += Accumulator<M, N>::col(*this);
    unroll<Accumulator<M, N>::blocks>([&](auto block) {
      unroll<(whole + most - 1) / most>([&](auto pass) {
        constexpr int first = pass * most, count = whole - first < most ? whole - first : most;
        send_boxes<T, line_bytes, count>(acc.r[block] + first * width / 2, target.whole, plane, row0 + block * 64,
                                         col0 + first * width);
      });
      if constexpr (shorter > 0)
        send_boxes<T, line, shorter>(acc.r[block] + whole * width / 2, target.shorter, plane, row0 + block * 64,
                                     col0 + whole * width);
    });
  }
  /// What comes and goes at a time where something is added, of elements T: a box with whole lines, while another is
  /// on its way, or two, or all boxes with shorter lines beside those of a block. Two, where twelve units unrolled
  /// would leave the compiler without registers.
  template <class Acc, class T>
  struct Units {
    using Type = T;
    static constexpr StoreBoxes boxes = store_boxes_of<Acc>(sizeof(T));
    static constexpr bool many = Acc::blocks * boxes.whole > 10, two = Sizes::store_boxes > 1;
    static constexpr int a_unit = two && many ? 2 : 1, at_once = two && !many ? 2 : 1,
                         wholes = (boxes.whole + a_unit - 1) / a_unit, a_block = wholes + (boxes.shorter > 0 ? 1 : 0),
                         count = Acc::blocks * a_block, width = line_bytes / static_cast<int>(sizeof(T));
    static constexpr bool is_shorter(int unit) { return unit % a_block == wholes; }
    static constexpr int line(int unit) { return is_shorter(unit) ? boxes.line : line_bytes; }
    static constexpr int together(int unit) {
      int const rest = boxes.whole - unit % a_block * a_unit;
      return is_shorter(unit) ? boxes.shorter : (rest < a_unit ? rest : a_unit);
    }
    static constexpr int row(int unit) { return unit / a_block * 64; }
    static constexpr int col(int unit) { return (is_shorter(unit) ? boxes.whole : unit % a_block * a_unit) * width; }
    /// Units whose turn it is to be in box `at`.
    static constexpr int uses(int at) { return (count - at + at_once - 1) / at_once; }
    __device__ __forceinline__ static CUtensorMap const& map(Target const& target, int unit) {
      return is_shorter(unit) ? target.shorter : target.whole;
    }
  };
  /// f(units) where the copy engine brings what is added; false: it does not.
  template <class Acc, class F>
  __device__ __forceinline__ static bool with_added(Target const& target, F const& f) {
    if constexpr (Sizes::staged_store && std::is_same_v<Compute, float>) {
      using Narrow = std::conditional_t<sizeof(Element) == 2, Element, bf16_t>;
      if (!target.staged) return false;
      if constexpr (store_boxes_of<Acc>(sizeof(Narrow)).all)
        if (target.strides.type == scalar_of<Narrow>) return f(Units<Acc, Narrow>{}), true;
      if constexpr (store_boxes_of<Acc>(sizeof(float)).all)
        if (target.strides.type == scalar_of<float>) return f(Units<Acc, float>{}), true;
    }
    return false;
  }
  /// The thread that sends the copy engine this consumer's boxes. Asked again each time: no register is left for it.
  __device__ __forceinline__ bool leads() const { return warp == 0 && ptx::lane() == 0; }
  template <class Acc>
  __device__ __forceinline__ void fetch_first(Target const& target, Plane plane, int row, int col) const {
    if (!leads()) return;
    row = ptx::anew(row + Acc::row(*this));  // there is no register to keep them until store_whole()
    col = ptx::anew(col + Acc::col(*this));
    with_added<Acc>(target, [&](auto units) TESSERA_INLINE_LAMBDA {
      using U = decltype(units);
      ptx::bulk_wait_read();
      unroll<(U::count < U::at_once ? U::count : U::at_once)>(
          [&](auto unit) TESSERA_INLINE_LAMBDA { fetch<U, unit>(target, plane, row, col); });
    });
  }
  /// By the thread that knows the unit's box to be free.
  template <class U, int Unit>
  __device__ __forceinline__ void fetch(Target const& target, Plane plane, int row, int col) const {
    constexpr int at = Unit % U::at_once, line = U::line(Unit), together = U::together(Unit), bytes = 64 * line;
    char* const memory = reinterpret_cast<char*>(staging[group][at]);
    ptx::barrier_arrive_expect(added[group] + at, together * bytes);
#pragma unroll
    for (int b = 0; b < together; ++b)
      ptx::bulk_load_4d(memory + b * bytes, &U::map(target, Unit), added[group] + at,
                        col + U::col(Unit) + b * line / static_cast<int>(sizeof(typename U::Type)), row + U::row(Unit),
                        static_cast<int>(plane.inner), static_cast<int>(plane.outer));
  }
  /// Each unit is added to in its box and goes from there; the next is then fetched into it. A barrier has two
  /// phases, of which a tile begins with the first: one of an odd number of units has another that brings nothing.
  template <class U, int M, int N>
  __device__ __forceinline__ void add_units(Accumulator<M, N>& acc, Target const& target, Plane plane, int row0,
                                            int col0, Compute alpha, Compute beta) const {
    using T = typename U::Type;
    int const row = row0 + Accumulator<M, N>::row(*this), col = col0 + Accumulator<M, N>::col(*this);
    unroll<U::count>([&](auto unit) TESSERA_INLINE_LAMBDA {
      constexpr int at = unit % U::at_once, line = U::line(unit), together = U::together(unit),
                    next = unit + U::at_once,
                    held = line / static_cast<int>(sizeof(T)) / 2;  // of a box by a thread
      char* const memory = reinterpret_cast<char*>(staging[group][at]);
      Compute* const r = acc.r[unit / U::a_block] + U::col(unit) / 2;
      ptx::barrier_wait(added[group] + at, unit / U::at_once % 2);
#pragma unroll
      for (int b = 0; b < together; ++b) add_box<T, line>(r + b * held, memory + b * 64 * line, warp, alpha, beta);
      __syncwarp();
      auto const fetch_next = [&]() TESSERA_INLINE_LAMBDA {
        if constexpr (next < U::count) {
          ptx::bulk_wait_read();
          fetch<U, next>(target, plane, row, col);
        }
      };
      fill_and_send<T, line, together>(r, memory, U::map(target, unit), plane, row + U::row(unit), col + U::col(unit),
                                       fetch_next);
    });
    unroll<U::at_once>([&](auto at) TESSERA_INLINE_LAMBDA {
      if constexpr (U::uses(at) % 2 != 0) {
        if (leads()) ptx::barrier_arrive(added[group] + at);
        ptx::barrier_wait(added[group] + at, 1);
      }
    });
  }
  /// 64 rows of Count swizzled boxes side by side, when those before have been read.
  template <class T, int Line, int Count>
  __device__ __forceinline__ void send_boxes(Compute const* r, CUtensorMap const& map, Plane plane, int row,
                                             int col) const {
    if (ptx::lane() == 0 && (Sizes::adds || warp == 0)) ptx::bulk_wait_read();
    meet();
    static_assert(Count * 64 * Line <= static_cast<int>(sizeof(Staging)));
    fill_and_send<T, Line, Count>(r, reinterpret_cast<char*>(staging[group]), map, plane, row, col, [] {});
  }
  /// What the thread that sends them does next is `then`.
  template <class T, int Line, int Count, class Then>
  __device__ __forceinline__ void fill_and_send(Compute const* r, char* memory, CUtensorMap const& map, Plane plane,
                                                int row, int col, Then const& then) const {
    constexpr int width = Line / static_cast<int>(sizeof(T)), box = 64 * Line;
#pragma unroll
    for (int b = 0; b < Count; ++b) fill_box<T, Line>(r + b * width / 2, memory + b * box, warp);
    ptx::async_proxy_fence();
    meet();
    if (leads() && !rehearsal) {
#pragma unroll
      for (int b = 0; b < Count; ++b) {
        int const inner = static_cast<int>(plane.inner), outer = static_cast<int>(plane.outer);
        ptx::bulk_store_4d(&map, memory + b * box, col + b * width, row, inner, outer);
      }
      ptx::bulk_commit();
      then();
    }
  }
};

}  // namespace tessera::detail::bulk

#endif
