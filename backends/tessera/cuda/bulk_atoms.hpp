// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_BULK_ATOMS_HPP
#define TESSERA_CUDA_BULK_ATOMS_HPP

#include <cstddef>
#include <cstdint>

#include <tessera/atoms.hpp>
#include <tessera/cuda/bulk_stores.hpp>
#include <tessera/cuda/bulk_tiles.hpp>
#include <tessera/cuda/largest.hpp>
#include <tessera/cuda/lines.hpp>
#include <tessera/cuda/mma.hpp>
#include <tessera/cuda/rounding.hpp>
#include <tessera/flags.hpp>

// Hopper's atoms (sm_90a): tiles in swizzled shared memory filled by the bulk copy engine, warpgroup products,
// accumulators in the registers of one to three consumer warpgroups: 64 rows each, the same 64 rows and half of the
// columns, or, in ping-pong, a tile each.
namespace tessera::detail::bulk {

inline constexpr int warpgroup = 128;

template <class Element, class Sizes, class RightElement = Element>
struct Atoms : Sizes {
  static_assert(sizeof(Element) == sizeof(RightElement), "both factors of a product have elements of one size");
  using Compute = Sum<Element>;
  using Sizes::consumers;
  static constexpr int team_threads = warpgroup * (1 + consumers);
  static constexpr bool in_turns = Sizes::take_turns && consumers > 1;
  static constexpr int line = line_bytes / static_cast<int>(sizeof(Element));  // elements
  /// The tensor cores read factors of other than 16 bits along the contracted index only: the right factor of rounded
  /// weights then lies with its rows contiguous, in the order of RowOrder, and zero behind the last that counts.
  static constexpr bool rows_contiguous = sizeof(Element) != 2;
  using RowOrder = bulk::RowOrder<sizeof(Element)>;
  /// Rows inside an operand but past a limit of the caller's are copied as they are: Math::clear_rows() is for them.
  static constexpr bool clips_rows = rows_contiguous;
  /// What weights are rounded to: e5m2 would leave them two bits, and the tensor cores take a factor of each kind.
  using Weight = std::conditional_t<std::is_same_v<Element, e5m2_t>, e4m3_t, Element>;
  /// Weights, at most 1, are rounded times 2 to that power: e4m3 has its 448 as the largest number.
  static constexpr int weight_exponent = sizeof(Weight) == 1 ? 8 : 0;
  /// Weights have the exponents of fp32.
  static constexpr bool wide_weights = std::is_same_v<Element, bf16_t>;

  using Source = CUtensorMap;
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
  KOKKOS_FUNCTION static LateTarget late_target(MatrixStack const& m) { return {m, stored_at_once(m)}; }

  template <int Lines, int Cols, bool Transposed = false>
  using Lined = Boxes<Element, Lines, Cols, Transposed>;
  template <int M, int K>
  struct Left : std::conditional_t<Sizes::left_across, Lined<K, M, true>, Lined<M, K>> {  // (M,K)
    static constexpr bool left = true;
  };
  template <int N, int K>
  struct Right : std::conditional_t<Sizes::right_across, Lined<K, N, true>, Lined<N, K>> {  // (N,K)
    static constexpr bool left = false;
  };
  /// What is added to a sum of products, of any type of 16 bits.
  template <int M, int N>
  struct Addend : Boxes<std::uint16_t, M, N> {  // (M,N)
    static constexpr bool left = true;
  };
  template <int K, int N>
  struct RightTransposed : std::conditional_t<rows_contiguous, Lined<N, K, true>, Lined<K, N>> {};  // (K,N)
  /// Factors of products along either index: the tensor cores read 16 bits both ways.
  template <int R, int C>
  struct LeftEither : Left<R, C> {};  // (R,C)
  template <int R, int C>
  struct RightEither : Lined<R, C> {  // (R,C)
    static constexpr bool left = false;
  };

  template <class Tile>
  static Source source(MatrixStack const& m, int teams_together = 1) {
    return tensor_map(Tile::transposed ? m.transposed() : m, Tile::lines / teams_together);
  }
  /// The same for a matrix that may have fewer rows than a tile: the copy engine is slow to fill what is missing, so
  /// nothing is, and rows of products that are not stored come from whatever the stage holds.
  template <class Tile>
  static Source clipped_source(MatrixStack const& m, int teams_together = 1) {
    if (teams_together > 1) return source<Tile>(m, teams_together);
    return tensor_map(Tile::transposed ? m.transposed() : m, box_lines<Tile>(m));
  }
  /// The same for tiles of rows that lie in pages: whole ones, or parts of larger ones.
  template <class Tile>
  static Source paged_source(MatrixStack const& m) {
    static_assert(!Tile::transposed);
    return tensor_map(m, box_lines<Tile>(m));
  }
  /// What copies of a tile from there bring.
  template <class Tile>
  static int copied_bytes(MatrixStack const& m, int teams_together = 1) {
    return Tile::boxes * line_bytes * (teams_together > 1 ? Tile::lines : box_lines<Tile>(m));
  }
  template <class Accumulator>
  static Target target(MatrixStack const& m) {
    Target t{{}, {}, m, false, stored_at_once(m)};
    if constexpr (Sizes::staged_store) {
      StoreBoxes const boxes = store_boxes_of<Accumulator>(static_cast<int>(size_of(m.type)));
      t.staged = boxes.all && bulk_copyable(m);
      if (t.staged && boxes.whole > 0) t.whole = tensor_map(m, 64);
      if (t.staged && boxes.shorter > 0) t.shorter = tensor_map(m, 64, boxes.line);
    }
    return t;
  }

  /// Boxes that the columns of a consumer fill, side by side: first those with lines of 128 bytes, then those with
  /// lines of `line`.
  struct StoreBoxes {
    int whole, shorter, line;
    bool all;  // no column is left over
  };
  template <class Accumulator>
  static constexpr StoreBoxes store_boxes_of(int element_bytes) {
    int const bytes = Accumulator::columns * element_bytes, rest = bytes % line_bytes, line = rest % 64 == 0 ? 64 : 32;
    return {bytes / line_bytes, rest / line, line, rest % line == 0};
  }

  struct Math;

  template <int M, int N>
  struct Accumulator {
    static constexpr std::size_t scratch_bytes = 0;
    static constexpr bool by_rows = Sizes::ping_pong || M == 64 * consumers;  // else consumers share the columns
    static constexpr int blocks = Sizes::ping_pong ? M / 64 : 1, columns = by_rows ? N : N / consumers;
    static_assert(M == 64 * blocks * (by_rows && !Sizes::ping_pong ? consumers : 1));
    Compute r[blocks][columns / 2];  // of 64 rows: 8-column groups of four elements, two in each of two rows
    __device__ __forceinline__ explicit Accumulator(Math&) {}
  };
  template <int M, class T = Compute>
  struct RowValues {
    static constexpr std::size_t scratch_bytes = 0;
    static constexpr int blocks = Accumulator<M, 64>::blocks;
    T v[2 * blocks];  // of the rows this thread has a part in, the same in the four threads that share them
    __device__ __forceinline__ explicit RowValues(Math&, T start = {}) {
#pragma unroll
      for (T& x : v) x = start;
    }
  };
  template <int M, int K>
  struct Rounded {
    static constexpr std::size_t scratch_bytes = 0;
    static constexpr int steps = K * static_cast<int>(sizeof(Element)) / 32;  // of the tensor cores along K
    std::uint32_t r[steps][4];
    __device__ __forceinline__ explicit Rounded(Math&) {}
  };

  /// Flags of a thread's elements of an (M, N) accumulator, a bit each. Tiles begin at multiples of 32.
  template <int M, int N, class F>
  struct Flags {
    static_assert(Accumulator<M, N>::blocks == 1 && Accumulator<M, N>::by_rows && N % 64 == 0);
    std::uint32_t bits[N / 64];
  };

  /// What the consumers share of rounded (M, N) accumulators: in two boxes of each one's stage for the store in turns,
  /// so that one is filled while others may read what was shared before.
  template <int M, int N>
  struct Shared {
    static constexpr std::size_t scratch_bytes = 0;
    static_assert(Sizes::store_boxes > 3 && N == 64 && M == 64 * consumers);
    static constexpr int first_box = Sizes::store_boxes - 2;  // stores use the others
    __device__ __forceinline__ explicit Shared(Math&) {}
  };

  /// Where add_to() adds the elements of an (M, N) accumulator, as warps have them: those of rows r and r + 8 in eight
  /// columns from a multiple of 8 on are 16 numbers side by side, two of the one and two of the other in turns.
  template <int M, int N>
  struct SumOrder {
    static_assert(M == 64);
    KOKKOS_FUNCTION static constexpr int at(int row, int col) {
      constexpr int columns = Accumulator<M, N>::columns;
      int const pack = (col / columns * 4 + row / 16) * (columns / 8) + col % columns / 8;
      return (pack * 32 + row % 8 * 4 + col % 8 / 2) * 4 + row % 16 / 8 * 2 + col % 2;
    }
  };

  template <int M, int N, class Of>
  struct Words {
    static constexpr int ahead = N / 64;  // blocks of 32 columns
    std::uint32_t r[ahead * 8];           // of two elements each, in an accumulator's order
    Of of;

    /// Of both of a thread's rows at once, since what of() computes for columns alone serves both.
    __device__ __forceinline__ void find(Math const& math, int block, std::uint32_t* to) const {
      static_assert(Accumulator<M, N>::blocks == 1 && N % 32 == 0);
      auto const upper = of(math.template row<M, N>(0), math.template col<M, N>(block * 16)),
                 lower = of(math.template row<M, N>(2), math.template col<M, N>(block * 16));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        to[2 * k] = upper[k];
        to[2 * k + 1] = lower[k];
      }
    }
  };

  struct Copy {
    std::uint64_t* full;  // completes when the bytes have landed
    Neighbours together;
    /// Copies from there are to come.
    __device__ __forceinline__ void announce(Source const& source) const { ptx::fetch_tensor_map(&source); }
    /// The same, where a kernel before this one has bound the source.
    __device__ __forceinline__ void acquire(Source const& source) const { ptx::acquire_tensor_map(&source); }
    template <class Tile>
    __device__ __forceinline__ void operator()(Source const& source, Plane plane, std::int64_t row, std::int64_t col,
                                               Tile& to) const {
      int const line0 = static_cast<int>(Tile::transposed ? col : row),
                across = static_cast<int>(Tile::transposed ? row : col);
      int const inner = static_cast<int>(plane.inner), outer = static_cast<int>(plane.outer);
      if constexpr (Sizes::multicast)
        if (Tile::left ? together.left : together.right) {
          constexpr int half = Tile::lines / 2;
          static_assert(half % 8 == 0, "the swizzle goes by groups of eight lines");
          int const l = together.second ? half : 0;
#pragma unroll
          for (int box = 0; box < Tile::boxes; ++box)
            ptx::bulk_load_4d_multicast(to.v[box][l], &source, full, 3, across + box * line, line0 + l, inner, outer);
          return;
        }
#pragma unroll
      for (int box = 0; box < Tile::boxes; ++box)
        ptx::bulk_load_4d(to.v[box], &source, full, across + box * line, line0, inner, outer);
    }
    template <class Tile>
    __device__ __forceinline__ void operator()(Source const& source, Plane plane, std::int64_t row, std::int64_t col,
                                               Tile& to, std::int64_t) const {
      (*this)(source, plane, row, col, to);
    }
    /// Numbers side by side, from an address that is a multiple of 16 bytes.
    template <int N>
    __device__ __forceinline__ void values(Compute const* from, Compute (&to)[N]) const {
      static_assert(N * sizeof(Compute) % 16 == 0);
      ptx::bulk_load(to, from, sizeof(to), full);
    }
    /// A box a page: pages are of whole groups of eight lines, and divide a tile or are divided by it.
    template <class Tile>
    __device__ __forceinline__ void operator()(Source const& source, PagedRows const& pages, std::int64_t row,
                                               std::int64_t col, Tile& to) const {
      int const first = static_cast<int>(row), across = static_cast<int>(col),
                lines = pages.table.rows < Tile::lines ? pages.table.rows : Tile::lines;
#pragma unroll 1
      for (int l = 0; l < Tile::lines; l += lines) {
        Plane const page = pages.plane(first + l);
#pragma unroll
        for (int box = 0; box < Tile::boxes; ++box)
          ptx::bulk_load_4d(to.v[box][l], &source, full, across + box * line, pages.in_page(first + l),
                            static_cast<int>(page.inner), static_cast<int>(page.outer));
      }
    }
    template <class Tile>
    __device__ __forceinline__ void operator()(Source const& source, PagedRows const& pages, std::int64_t row,
                                               std::int64_t col, Tile& to, std::int64_t) const {
      (*this)(source, pages, row, col, to);
    }
  };

  /// Whole groups of eight lines, which the swizzle goes by.
  template <class Tile>
  static int box_lines(MatrixStack const& m) {
    if (Tile::transposed || m.rows >= Tile::lines) return Tile::lines;
    return static_cast<int>((m.rows + 7) / 8 * 8);
  }

  /// One consumer's stage for the store.
  using Staging = std::uint16_t[Sizes::store_boxes][64][64];

  struct Math {
    int group, warp, thread;  // of this consumer warpgroup, of this warp and of this thread in it
    Staging* staging;
    uint4* exchange;            // the ring, for what other teams send when it is idle
    std::uint64_t* joined;      // completes when they have
    std::uint64_t* shared;      // completes when every warp of the consumers has shared its part
    std::uint64_t (*added)[2];  // of each consumer's boxes: completes when what is added has come into it
    int slices;                 // teams that share a tile along K
    bool rehearsal = false;     // nothing is sent
    unsigned box = 1;  // of the two for what is shared, which in turns is filled; and the phase of that barrier

    /// Where this consumer's share of an (M, N) tile begins.
    template <class Acc>
    __device__ __forceinline__ int row_of() const {
      return Acc::by_rows && !Sizes::ping_pong ? group * 64 : 0;
    }
    template <class Acc>
    __device__ __forceinline__ int col_of() const {
      return Acc::by_rows ? 0 : group * Acc::columns;
    }
    template <int M, int N>
    __device__ __forceinline__ int row() const {
      return row_of<Accumulator<M, N>>();
    }
    template <int M, int N>
    __device__ __forceinline__ int col() const {
      return col_of<Accumulator<M, N>>();
    }
    /// Where element i of a thread's part of a block of it lies in the tile.
    template <int M, int N>
    __device__ __forceinline__ int row(int i, int block = 0) const {
      return row<M, N>() + block * 64 + thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
    }
    template <int M, int N>
    __device__ __forceinline__ int col(int i) const {
      return col<M, N>() + thread % 4 * 2 + i / 4 * 8 + i % 2;
    }

    /// With the P columns of b from `col` on.
    template <int M, int N, int P, int K>
    __device__ __forceinline__ void multiply(Left<M, K> const& a, Right<N, K> const& b, Accumulator<M, P>& acc,
                                             bool add, int col = 0) const {
      int const left = row<M, P>(), right = col + this->col<M, P>();
      pin(acc);
      ptx::wgmma_fence();
      constexpr int steps = K * static_cast<int>(sizeof(Element)) / 32;  // 32 bytes of K each
#pragma unroll
      for (int k = 0; k < steps; ++k)
#pragma unroll
        for (int block = 0; block < Accumulator<M, P>::blocks; ++block)
          ptx::wgmma(Factor<Element>{}, Factor<RightElement>{}, ptx::Across<Sizes::left_across, Sizes::right_across>{},
                     acc.r[block], factor<Sizes::left_across>(a, left + block * 64, k),
                     factor<Sizes::right_across>(b, right, k), add || k > 0);
      ptx::wgmma_commit();
    }
    template <int M, int N, int K>
    __device__ __forceinline__ void multiply(Left<M, K> const& a, RightEither<N, K> const& b, Accumulator<M, N>& acc,
                                             bool add) const {
      int const left = row<M, N>(), right = col<M, N>();
      if (!add) discard(acc);
      pin(acc);
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < K / 16; ++k)
        ptx::wgmma(Factor<Element>{}, Factor<Element>{}, ptx::Across<false, false>{}, acc.r[0],
                   factor<false>(a, left, k), factor<false>(b, right, k), add || k > 0);
      ptx::wgmma_commit();
    }
    /// Across: the rows of b are contracted.
    template <int M, int N, int K>
    __device__ __forceinline__ void multiply(Rounded<M, K> const& a, RightEither<K, N> const& b, Accumulator<M, N>& acc,
                                             bool add) const {
      pin(acc);
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < Rounded<M, K>::steps; ++k)
        ptx::wgmma(Factor<Element>{}, Factor<RightElement>{}, acc.r[0], a.r[k], factor<true>(b, 0, k), add || k > 0);
      ptx::wgmma_commit();
    }
    /// Each consumer's rows of a rounded accumulator, for all of them; what was shared last may still be multiplied.
    template <int M, int N>
    __device__ __forceinline__ void share(Rounded<M, N> const& from, Shared<M, N> const&) {
      box ^= 1;
      auto const lane = static_cast<unsigned>(ptx::lane()), line = warp * 16 + lane % 16;
      std::uint32_t const to =
          ptx::shared_address(staging[group][Shared<M, N>::first_box]) + box * 64 * line_bytes + line * line_bytes;
#pragma unroll
      for (unsigned j = 0; j < Rounded<M, N>::steps; ++j)
        ptx::store_matrix_x4(to + (((j * 2 + lane / 16) ^ line % 8) << 4), from.r[j]);
      ptx::async_proxy_fence();
      __syncwarp();
      if (lane == 0) ptx::barrier_arrive(shared);
    }
    /// acc = (what was shared last)^T b, when all have shared it: the rows of both are contracted, and the consumers
    /// have columns of their own.
    template <int M, int N, int P>
    __device__ __forceinline__ void multiply(Shared<M, N> const&, LeftEither<M, P> const& b,
                                             Accumulator<N, P>& acc) const {
      ptx::barrier_wait(shared, box);
      discard(acc);
      pin(acc);
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < M / 16; ++k) {
        std::uint32_t const lines =
            ptx::shared_address(staging[k / 4][Shared<M, N>::first_box]) + box * 64 * line_bytes;
        ptx::wgmma(Factor<Element>{}, Factor<Element>{}, ptx::Across<true, true>{}, acc.r[0],
                   ptx::wgmma_descriptor(lines, 64 * line_bytes, k % 4 * (16 * line_bytes / 16)),
                   factor<true>(b, col<N, P>(), k), k > 0);
      }
      ptx::wgmma_commit();
    }
    /// With the P columns of b from `col` on.
    template <int M, int N, int P, int K>
    __device__ __forceinline__ void multiply(Rounded<M, K> const& a, RightTransposed<K, N> const& b,
                                             Accumulator<M, P>& acc, bool add, int col = 0) const {
      static_assert(rows_contiguous || P == N);
      pin(acc);
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < Rounded<M, K>::steps; ++k) {
        std::uint64_t const right = rows_contiguous ? factor<false>(b, col, k)  // 16 rows are 2048 bytes
                                                    : ptx::wgmma_descriptor(ptx::shared_address(b.v), K * 128, k * 128);
        ptx::wgmma(Factor<Weight>{}, Factor<RightElement>{}, acc.r[0], a.r[k], right, add || k > 0);
      }
      ptx::wgmma_commit();
    }
    /// Rows of a right factor become zero from `first` on: by each consumer for itself, since zeros that the other
    /// writes once more do no harm.
    template <int K, int N>
    __device__ __forceinline__ void clear_rows(RightTransposed<K, N> const& tile, int first) const {
      if (first >= K) return;
      auto& boxes = const_cast<RightTransposed<K, N>&>(tile).v;  // a stage is a consumer's until it is given back
      if constexpr (rows_contiguous) {
        constexpr int rows = 16 / static_cast<int>(sizeof(Element)), group = RowOrder::rows;  // of a pack; that mix
        for (int i = first / group * (group / rows) * N + thread; i < K / rows * N; i += warpgroup) {
          int const l = i % N, pack = i / N, begin = pack * rows / group * group;
          Element* const to = reinterpret_cast<Element*>(boxes[pack / 8][l] + (pack % 8 ^ l % 8) * 16);
          if (begin >= first)
            *reinterpret_cast<uint4*>(to) = {};
          else
            for (int k = 0; k < rows; ++k)
              if (begin + RowOrder::row(pack * rows % group + k) >= first) to[k] = Element(0.0f);
        }
      } else {
        clear_lines(boxes, first);
      }
      ptx::async_proxy_fence();
      ptx::named_sync(4 + group, warpgroup);
    }
    template <class Tile>
    __device__ __forceinline__ void clear_rows(Tile const& tile, int first) const {
      if (first >= Tile::lines) return;
      clear_lines(const_cast<Tile&>(tile).v, first);
      ptx::async_proxy_fence();
      ptx::named_sync(4 + group, warpgroup);
    }
    template <int Pending, class Acc>
    __device__ __forceinline__ void wait_all_but(Acc& acc) const {
      ptx::wgmma_wait<Pending>();
      if constexpr (Pending == 0 || Sizes::take_turns) pin(acc);
    }
    /// The products in acc are done, `Pending` newer ones of others need not be.
    template <int Pending, class Acc>
    __device__ __forceinline__ void wait_for(Acc& acc) const {
      ptx::wgmma_wait<Pending>();
      pin(acc);
    }
    /// The consumers take turns at the tensor cores: one multiplies while the others do their row work.
    template <class F>
    __device__ __forceinline__ void turn(F const& f) const {
      if constexpr (in_turns) ptx::named_sync(1 + group, 2 * warpgroup);
      f();
      if constexpr (in_turns) ptx::named_arrive(1 + (group + 1) % consumers, 2 * warpgroup);
    }

    template <int M, int N>
    __device__ __forceinline__ void clear(Accumulator<M, N>& acc) const {
#pragma unroll
      for (auto& block : acc.r)
#pragma unroll
        for (Compute& x : block) x = 0;
    }
    /// Before a tile's first product. Every product names its accumulator as read: without this, what the tile before
    /// left would count as in use through that tile's epilogue, which would have few registers.
    template <int M, int N>
    __device__ __forceinline__ void begin(Accumulator<M, N>& acc) const {
      clear(acc);
    }
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each(Accumulator<M, N>& acc, F const& f) const {
#pragma unroll
      for (int block = 0; block < Accumulator<M, N>::blocks; ++block)
#pragma unroll
        for (int i = 0; i < Accumulator<M, N>::columns / 2; ++i) {
          // What f reads is on its way for so many elements at a time: for all of them there are not registers enough.
          if (i % 32 == 0) ptx::keep_order();
          f(acc.r[block][i], row<M, N>(i, block), col<M, N>(i));
        }
    }
    /// A thread's words for an (M, N) accumulator, where of(row, column) has four words for eight columns of 32: for
    /// that column, its neighbour and those 8, 16 and 24 behind the first such, a word for every two. These are the
    /// columns that a thread has. Half of them are found at once, under what follows: for all there are no registers.
    /// The question whether anybody looks at them keeps the compiler from finding them later.
    template <int M, int N, class Of>
    __device__ __forceinline__ Words<M, N, Of> words(bool wanted, Of const& of) const {
      Words<M, N, Of> all{{}, of};
      if (wanted)
#pragma unroll
        for (int block = 0; block < all.ahead; ++block) all.find(*this, block, all.r + block * 8);
      return all;
    }
    /// f(element, word, whether its column is odd)
    template <int M, int N, class Of, class F>
    __device__ __forceinline__ void for_each_of_words(Accumulator<M, N>& acc, Words<M, N, Of> const& words,
                                                      F const& f) const {
#pragma unroll
      for (int block = 0; block < N / 32; ++block) {
        std::uint32_t own[8];
        if (block >= words.ahead) words.find(*this, block, own);
#pragma unroll
        for (int i = 0; i < 16; ++i)
          f(acc.r[0][block * 16 + i], block < words.ahead ? words.r[block * 8 + i / 2] : own[i / 2], i % 2 != 0);
      }
    }
    template <int M, int N, class F>
    __device__ __forceinline__ void find_flags(F const& f, Flags<M, N, F>& flags) const {
#pragma unroll
      for (int part = 0; part < N / 64; ++part)
        flags.bits[part] = F::words_for_rows ? flags_of_rows<M, N>(f, part * 32) : flags_of_columns<M, N>(f, part * 32);
    }
    /// acc = acc scale + at + row per_row + col per_col: a number of a thread's own and multiples of constants.
    template <int M, int N>
    __device__ __forceinline__ void add_plane(Accumulator<M, N>& acc, Compute scale, Compute at, Compute per_row,
                                              Compute per_col) const {
      static_assert(Accumulator<M, N>::blocks == 1);
      Compute const first = at + per_row * Compute(row<M, N>(0)) + per_col * Compute(col<M, N>(0));
      Compute const begin[2] = {first, first + per_row * Compute(8)};
#pragma unroll
      for (int i = 0; i < Accumulator<M, N>::columns / 2; ++i)
        acc.r[0][i] = acc.r[0][i] * scale + (begin[i % 4 / 2] + per_col * Compute(i / 4 * 8 + i % 2));
    }
    /// Of this thread's in an (M, N) accumulator.
    template <int M, int N>
    __device__ __forceinline__ Compute first_column(Accumulator<M, N> const*) const {
      return Compute(col<M, N>(0));
    }
    /// acc = acc factor + column - first_column(): a multiply-add an element, with constants.
    template <int M, int N>
    __device__ __forceinline__ void add_columns(Accumulator<M, N>& acc, Compute factor) const {
      static_assert(Accumulator<M, N>::blocks == 1);
#pragma unroll
      for (int i = 0; i < Accumulator<M, N>::columns / 2; ++i)
        acc.r[0][i] = acc.r[0][i] * factor + Compute(i / 4 * 8 + i % 2);
    }
    /// acc = acc scale + f(column - row). A thread's eight rows further down have what eight columns to the left had,
    /// and its warp needs N + 16 numbers in all: each lane asks for a few, 32 side by side, and hands them round.
    template <int M, int N, class F>
    __device__ __forceinline__ void add_by_distance(Accumulator<M, N>& acc, Compute scale, F const& f) const {
      static_assert(Accumulator<M, N>::blocks == 1 && N % 16 == 0);
      constexpr int most = 7;  // rows that the first of a quad lies above the warp's last
      int const lane = thread % 32, from = lane % 4 * 2 - lane / 4 + most;
      int const first = col<M, N>() - row<M, N>() - thread / 32 * 16 - most - 8;  // distance of lane 0's first number
      Compute above[2] = {}, here[2], numbers = 0;
#pragma unroll
      for (int block = -1; block < N / 8; ++block) {
        if (block % 2 != 0) numbers = f(first + (block + 1) * 8 + lane);
#pragma unroll
        for (int e = 0; e < 2; ++e) here[e] = __shfl_sync(~0u, numbers, from + e + (block % 2 != 0 ? 0 : 8));
        if (block >= 0)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            Compute* const to = acc.r[0] + block * 4 + e;
            to[0] = to[0] * scale + here[e];
            to[2] = to[2] * scale + above[e];
          }
        above[0] = here[0], above[1] = here[1];
      }
    }
    /// acc = acc scale + tile, whose elements are of type T. Every thread of the consumer has read the tile afterwards.
    template <class T, int M, int N>
    __device__ __forceinline__ void add_tile(Accumulator<M, N>& acc, Compute scale, Addend<M, N> const& tile) const {
      static_assert(Accumulator<M, N>::blocks == 1 && N % 16 == 0 && sizeof(T) == 2);
      int const lane = thread % 32, line = row<M, N>() + thread / 32 * 16 + lane % 16;
      std::uint32_t const first = ptx::shared_address(tile.v) + line * line_bytes;
      std::uint32_t const place = lane / 16 ^ line % 8;  // packs of eight columns are swizzled
#pragma unroll
      for (int pack = 0; pack < N / 8; pack += 2) {
        std::uint32_t x[4];
        ptx::load_matrix_x4(x, first + pack / 8 * (M * line_bytes) + (place ^ pack % 8) * 16);
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // rows in turns
          auto const pair = Kokkos::bit_cast<Pair<T>>(x[i]);
          Compute* const to = acc.r[0] + pack * 4 + i * 2;
          to[0] = to[0] * scale + static_cast<Compute>(pair.low);
          to[1] = to[1] * scale + static_cast<Compute>(pair.high);
        }
      }
      ptx::named_sync(4 + group, warpgroup);
    }
    /// A thread's numbers of those of N columns, read before they are needed.
    template <int N>
    struct ColumnValues {
      float2 v[N / 8];
    };
    template <int N>
    __device__ __forceinline__ ColumnValues<N> columns(Compute const (&cols)[N]) const {
      ColumnValues<N> own;
#pragma unroll
      for (int i = 0; i < N / 8; ++i) own.v[i] = *reinterpret_cast<float2 const*>(cols + thread % 4 * 2 + i * 8);
      return own;
    }
    /// f(element, its column's value)
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each_with_column(Accumulator<M, N>& acc, ColumnValues<N> const& cols,
                                                         F const& f) const {
      static_assert(Accumulator<M, N>::blocks == 1 && Accumulator<M, N>::by_rows);
#pragma unroll
      for (int i = 0; i < N / 2; ++i) f(acc.r[0][i], i % 2 ? cols.v[i / 4].y : cols.v[i / 4].x);
    }
    /// f(element of one, element of the other, its column's value)
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                                    ColumnValues<N> const& cols, F const& f) const {
      static_assert(Accumulator<M, N>::blocks == 1 && Accumulator<M, N>::by_rows);
#pragma unroll
      for (int i = 0; i < N / 2; ++i) f(acc.r[0][i], other.r[0][i], i % 2 ? cols.v[i / 4].y : cols.v[i / 4].x);
    }
    /// f(element of one, element of the other, its row's value)
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                                    RowValues<M> const& rows, F const& f) const {
#pragma unroll
      for (int i = 0; i < N / 2; ++i) f(acc.r[0][i], other.r[0][i], rows.v[i % 4 / 2]);
    }
    /// f(element, its neighbour, row, column): the column is even
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each_pair(Accumulator<M, N>& acc, F const& f) const {
      static_assert(Accumulator<M, N>::blocks == 1);
#pragma unroll
      for (int i = 0; i < Accumulator<M, N>::columns / 2; i += 2)
        f(acc.r[0][i], acc.r[0][i + 1], row<M, N>(i), col<M, N>(i));
    }
    /// to += from, in the columns of `to` from Col on
    template <int Col, int M, int P, int N>
    __device__ __forceinline__ void add(Accumulator<M, P> const& from, Accumulator<M, N>& to) const {
#pragma unroll
      for (int block = 0; block < Accumulator<M, P>::blocks; ++block)
#pragma unroll
        for (int i = 0; i < Accumulator<M, P>::columns / 2; ++i) to.r[block][Col / 2 + i] += from.r[block][i];
    }
    /// to(i, j) += from(i, j - Col) * rows(i) * cols[j / 64], in the columns of `to` from Col on
    template <int Col, int M, int P, int N>
    __device__ __forceinline__ void add_scaled(Accumulator<M, P> const& from, RowValues<M> const& rows,
                                               Compute const* cols, Accumulator<M, N>& to) const {
      using Acc = Accumulator<M, P>;
      constexpr int first = Col / 64, groups = Acc::columns / 64;
      static_assert(Col % 64 == 0 && Acc::columns % 64 == 0);
#pragma unroll
      for (int g = 0; g < groups; ++g)
#pragma unroll
        for (int h = 0; h < 2 * Acc::blocks; ++h) {
          Compute const col = Acc::by_rows || group == 0 ? cols[first + g] : cols[N / 64 - groups + g];
          Compute const scale = rows.v[h] * col;
          auto const& part = from.r[h / 2];
          auto& sum = to.r[h / 2];
#pragma unroll
          for (int i = g * 32 + h % 2 * 2; i < (g + 1) * 32; i += 4) {
            sum[Col / 2 + i] += part[i] * scale;
            sum[Col / 2 + i + 1] += part[i + 1] * scale;
          }
        }
    }
    /// Teams that share a tile along K add up in the first of them: true there.
    template <int M, int N>
    __device__ __forceinline__ bool join(Accumulator<M, N>& acc) const {
      if (Sizes::ping_pong || slices == 1) return true;
      return join_slices<consumers * warpgroup>(acc.r[0], slices, group * warpgroup + thread, exchange, joined);
    }
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each_with(Accumulator<M, N>& acc, RowValues<M> const& rows, F const& f) const {
#pragma unroll
      for (int i = 0; i < N / 2; ++i) f(acc.r[0][i], rows.v[i % 4 / 2]);
    }
    /// to(i, j) = to(i, j) * rows(i) + from(i, j - Col), in the columns of `to` from Col on
    template <int Col, int M, int P, int N>
    __device__ __forceinline__ void scale_and_add(Accumulator<M, N>& to, RowValues<M> const& rows,
                                                  Accumulator<M, P> const& from) const {
#pragma unroll
      for (int i = 0; i < P / 2; ++i) to.r[0][Col / 2 + i] = to.r[0][Col / 2 + i] * rows.v[i % 4 / 2] + from.r[0][i];
    }
    /// f(element, its row's value, row, column)
    template <int M, int N, class F>
    __device__ __forceinline__ void for_each_placed(Accumulator<M, N>& acc, RowValues<M> const& rows,
                                                    F const& f) const {
      static_assert(Accumulator<M, N>::blocks == 1);
#pragma unroll
      for (int i = 0; i < N / 2; ++i) f(acc.r[0][i], rows.v[i % 4 / 2], row<M, N>(i), col<M, N>(i));
    }
    /// f(element of one, element of the other, its column's value, flag). Columns are read as in round_each().
    template <int M, int N, class Flags, class F>
    __device__ __forceinline__ void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                                    Compute const (&cols)[N], Flags flags, F const& f) const {
      separate(flags);
#pragma unroll
      for (int i = 0; i < N / 2; i += 2) {
        float2 const values = *reinterpret_cast<float2 const*>(cols + thread % 4 * 2 + i / 4 * 8);
        f(acc.r[0][i], other.r[0][i], values.x, flag_of(flags, i));
        f(acc.r[0][i + 1], other.r[0][i + 1], values.y, flag_of(flags, i + 1));
      }
    }
    /// f(element of one, element of the other, its row's value, flag)
    template <int M, int N, class Flags, class F>
    __device__ __forceinline__ void for_each_of_two(Accumulator<M, N>& acc, Accumulator<M, N> const& other,
                                                    RowValues<M> const& rows, Flags flags, F const& f) const {
      separate(flags);
#pragma unroll
      for (int i = 0; i < N / 2; ++i) f(acc.r[0][i], other.r[0][i], rows.v[i % 4 / 2], flag_of(flags, i));
    }
    template <class F, int M, class... Rows>
    __device__ __forceinline__ void for_rows(F const& f, RowValues<M>& first, Rows&... rest) const {
#pragma unroll
      for (int h = 0; h < 2 * RowValues<M>::blocks; ++h) f(first.v[h], rest.v[h]...);
    }
    /// f(value, row) by every thread that has a part in the row
    template <int M, class T, class F>
    __device__ __forceinline__ void each_row(RowValues<M, T>& rows, F const& f) const {
#pragma unroll
      for (int h = 0; h < 2 * RowValues<M>::blocks; ++h) f(rows.v[h], row<M, 128>(h % 2 * 2, h / 2));
    }
    template <int M, class F>
    __device__ __forceinline__ void once_per_row(RowValues<M> const& rows, F const& f) const {
      if (thread % 4 == 0)
#pragma unroll
        for (int h = 0; h < 2; ++h) f(rows.v[h], row<M, 64>(h * 2));
    }
    template <int M, int N>
    __device__ __forceinline__ void row_max(Accumulator<M, N> const& acc, RowValues<M>& rows) const {
      own_row_max(acc, rows);
      join_row_max(rows);
    }
    /// The largest of this thread's part of a row, and of all its threads'.
    template <int M, int N>
    __device__ __forceinline__ void own_row_max(Accumulator<M, N> const& acc, RowValues<M>& rows) const {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float m = rows.v[h];
        if constexpr (sizeof(Element) == 1) {
          float n = acc.r[0][h * 2];
#pragma unroll
          for (int i = h * 2; i < N / 2; i += 4) {
            m = fmaxf(m, acc.r[0][i]);
            n = fmaxf(n, acc.r[0][i + 1]);
          }
          m = fmaxf(m, n);
        } else {
#pragma unroll
          for (int i = h * 2; i < N / 2; i += 4) m = fmaxf(m, fmaxf(acc.r[0][i], acc.r[0][i + 1]));
        }
        rows.v[h] = m;
      }
    }
    template <int M>
    __device__ __forceinline__ void join_row_max(RowValues<M>& rows) const {
#pragma unroll
      for (float& row : rows.v) {
        row = fmaxf(row, __shfl_xor_sync(~0u, row, 1));
        row = fmaxf(row, __shfl_xor_sync(~0u, row, 2));
      }
    }
    /// Whether, in all rows of a warp, no element is above its row's limit; false where a limit is negative.
    template <int M, int N>
    __device__ __forceinline__ bool none_above(Accumulator<M, N> const& acc, RowValues<M> const& limits) const {
      static_assert(Accumulator<M, N>::blocks == 1);
      bool none = true;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        LargestOf<2> top;
#pragma unroll
        for (int i = h * 2; i < N / 2; i += 4) top.join(i / 4, acc.r[0][i], acc.r[0][i + 1]);
        none = none && top.within(limits.v[h]);
      }
      return holds_for_all(none);
    }
    /// For all threads that share rows with this one.
    __device__ __forceinline__ bool holds_for_all(bool own) const { return __all_sync(~0u, own); }
    /// rows = max(rows, |acc|) of this thread's part of a row, for a start that is not negative
    template <int M, int N>
    __device__ __forceinline__ void own_row_max_magnitude(Accumulator<M, N> const& acc, RowValues<M>& rows) const
        requires(sizeof(Element) == 2) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float m = rows.v[h], n = m;
#pragma unroll
        for (int i = h * 2; i < N / 2; i += 4) {
          m = fmaxf(m, fabsf(acc.r[0][i]));
          n = fmaxf(n, fabsf(acc.r[0][i + 1]));
        }
        rows.v[h] = fmaxf(m, n);
      }
    }
    template <int M, int N>
    __device__ __forceinline__ void row_add_partial(Accumulator<M, N> const& acc, RowValues<M>& rows) const {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float sum = 0;
#pragma unroll
        for (int i = h * 2; i < N / 2; i += 4) sum += acc.r[0][i] + acc.r[0][i + 1];
        rows.v[h] += sum;
      }
    }
    template <int M>
    __device__ __forceinline__ void row_combine(RowValues<M>& rows) const {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        rows.v[h] += __shfl_xor_sync(~0u, rows.v[h], 1);
        rows.v[h] += __shfl_xor_sync(~0u, rows.v[h], 2);
      }
    }
    __device__ __forceinline__ static float exp2(float x) { return ptx::exp2_approximate(x); }

    /// Accumulators become a left factor without an exchange between lanes: what a thread has of their columns is what
    /// it has of the factor's, with other than 16 bits in another order (RowOrder).
    template <int M, int K>
    __device__ __forceinline__ void round(Accumulator<M, K> const& from, Rounded<M, K>& to) const {
      auto const& x = from.r[0];
      if constexpr (sizeof(Element) == 1) {
#pragma unroll
        for (int i = 0; i < K / 8; ++i) {  // rows in turns, 16 columns each two
          int const at = i / 2 * 8 + i % 2 * 2;
          to.r[i / 4][i % 4] = ptx::narrow_four(Factor<Weight>{}, x[at], x[at + 1], x[at + 4], x[at + 5]);
        }
      } else if constexpr (sizeof(Element) == 4) {
#pragma unroll
        for (int i = 0; i < K / 2; ++i)
          to.r[i / 4][i % 4] = ptx::round_to_tf32(__float_as_uint(x[i / 4 * 4 + i % 2 * 2 + i % 4 / 2]));
      } else {
#pragma unroll
        for (int i = 0; i < K / 4; ++i) to.r[i / 4][i % 4] = packed_pair<Element>(x[i * 2], x[i * 2 + 1]);
      }
    }
    template <int M, int K>
    __device__ __forceinline__ void round(Accumulator<M, K> const& from, NoFlags, Rounded<M, K>& to) const {
      round(from, to);
    }
    /// Those whose flag is not set as 0.
    template <int M, int K, class F>
    __device__ __forceinline__ void round(Accumulator<M, K> const& from, Flags<M, K, F> const& flags,
                                          Rounded<M, K>& to) const {
      static_assert(sizeof(Element) == 2);
#pragma unroll
      for (int i = 0; i < K / 4; ++i)
        to.r[i / 4][i % 4] = packed_pair<Element>(flag_of(flags, i * 2) ? from.r[0][i * 2] : Compute(0),
                                                  flag_of(flags, i * 2 + 1) ? from.r[0][i * 2 + 1] : Compute(0));
    }
    /// to = what f(element, its column's value, row, column, flag) returns, which may change the element. Beside f
    /// there are no registers for all columns' values.
    template <int M, int K, class Flags, class F>
    __device__ __forceinline__ void round_each(Accumulator<M, K>& from, Compute const (&cols)[K], Flags const& flags,
                                               Rounded<M, K>& to, F const& f) const {
      static_assert(Accumulator<M, K>::blocks == 1 && sizeof(Element) == 2);
#pragma unroll
      for (int i = 0; i < K / 4; ++i) {
        int const at = i * 2, r = row<M, K>(at), c = col<M, K>(at);
        float2 const values = *reinterpret_cast<float2 const*>(cols + thread % 4 * 2 + i / 2 * 8);
        Compute const x = f(from.r[0][at], values.x, r, c, flag_of(flags, at)),
                      y = f(from.r[0][at + 1], values.y, r, c + 1, flag_of(flags, at + 1));
        to.r[i / 4][i % 4] = packed_pair<Element>(x, y);
      }
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
      constexpr int numbers = Accumulator<M, N>::columns * 16;  // of a warp
      auto const lane = static_cast<unsigned>(ptx::lane());
      Compute* const to = sums + SumOrder<M, N>::at(warp * 16, col<M, N>());
      if constexpr (Sizes::staged_adds) {
        static_assert(Sizes::adds && 4 * numbers * sizeof(Compute) <= 2 * sizeof(Staging) / Sizes::store_boxes);
        Compute* const part = reinterpret_cast<Compute*>(staging[group]) + warp * numbers;
        if (lane == 0) ptx::bulk_wait_read();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < Accumulator<M, N>::columns / 2; i += 4)
          *reinterpret_cast<float4*>(part + i * 32 + lane * 4) = {acc.r[0][i], acc.r[0][i + 1], acc.r[0][i + 2],
                                                                  acc.r[0][i + 3]};
        ptx::async_proxy_fence();
        __syncwarp();
        if (lane == 0) {
          ptx::bulk_add(to, part, numbers * sizeof(Compute));
          ptx::bulk_commit();
        }
      } else {
#pragma unroll
        for (int i = 0; i < Accumulator<M, N>::columns / 2; i += 4) ptx::add_four(to + i * 32 + lane * 4, acc.r[0] + i);
      }
    }
    /// The first boxes of what store_whole() will add are on their way, if it is the copy engine that brings them.
    template <class Acc>
    __device__ __forceinline__ void fetch_added(Target const& target, Plane plane, std::int64_t row0,
                                                std::int64_t col0) const {
      if (slices == 1) fetch_first<Acc>(target, plane, static_cast<int>(row0), static_cast<int>(col0));
    }
    /// alpha * acc + beta * matrix, which the copy engine takes away and, behind fetch_added(), brings; false: it does
    /// not, nothing is done.
    template <int M, int N>
    __device__ __forceinline__ bool store_whole(Accumulator<M, N>& acc, Target const& target, Plane plane,
                                                std::int64_t row0, std::int64_t col0, Compute alpha,
                                                Compute beta) const {
      static_assert(Sizes::staged_store);
      if (!target.staged) return false;
      if (beta == Compute(0)) {
        if (alpha != Compute(1)) for_each(acc, [&](Compute& x, int, int) TESSERA_INLINE_LAMBDA { x *= alpha; });
        return store_sent(acc, target, plane, row0, col0);
      }
      int const row = static_cast<int>(row0), col = static_cast<int>(col0);
      if (slices > 1) fetch_first<Accumulator<M, N>>(target, plane, row, col);
      return with_added<Accumulator<M, N>>(target, [&](auto units) TESSERA_INLINE_LAMBDA {
        add_units<decltype(units)>(acc, target, plane, row, col, alpha, beta);
      });
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
    template <int M, int N, class F>
    __device__ __forceinline__ static bool flag_of(Flags<M, N, F> const& flags, int i) {
      return (flags.bits[i / 32] >> i % 32 & 1) != 0;
    }
    __device__ __forceinline__ static bool flag_of(NoFlags, int) { return true; }
    /// From here on the compiler looks at bits anew. Else it keeps what it has taken apart before, a register each.
    template <int M, int N, class F>
    __device__ __forceinline__ static void separate(Flags<M, N, F>& flags) {
      ptx::pin(flags.bits);
    }
    __device__ __forceinline__ static void separate(NoFlags) {}
    /// Of 32 elements from `first` on, words being for rows. Neighbours of a column are in lanes 4 apart and have words
    /// in common: either finds those of every other column, for both.
    template <int M, int N, class F>
    __device__ __forceinline__ std::uint32_t flags_of_rows(F const& f, int first) const {
      int const upper = row<M, N>(0), lower = row<M, N>(2);
      bool const odd = upper % 2 != 0;
      std::uint32_t of_even = 0, of_odd = 0;
#pragma unroll
      for (int i = 0; i < 32; i += 4) {
        auto const four = f.words(upper, col<M, N>(first + i) + odd);
        std::uint32_t const words[2] = {word_of(four, upper), word_of(four, lower)};
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          of_even |= std::uint32_t(f.flag(words[h], false)) << (i + 2 * h);
          of_odd |= std::uint32_t(f.flag(words[h], true)) << (i + 2 * h);
        }
      }
      std::uint32_t const own = odd ? of_odd << 1 : of_even, others = odd ? of_even << 1 : of_odd;
      return own | __shfl_xor_sync(~0u, others, 4);
    }
    /// The same, words being for columns: a thread has both neighbours, in all words.
    template <int M, int N, class F>
    __device__ __forceinline__ std::uint32_t flags_of_columns(F const& f, int first) const {
      std::uint32_t bits = 0;
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        int const at = quarter / 2 * 16 + quarter % 2 * 2;
        auto const four = f.words(row<M, N>(at), col<M, N>(first + at));
#pragma unroll
        for (int i = 0; i < 8; ++i) bits |= std::uint32_t(f.flag(four[i / 2], i % 2 != 0)) << (at + i / 2 * 4 + i % 2);
      }
      return bits;
    }
    template <int Boxes, int Lines>
    __device__ __forceinline__ void clear_lines(unsigned char (&boxes)[Boxes][Lines][line_bytes], int first) const {
      constexpr int packs = line_bytes / static_cast<int>(sizeof(uint4));
      for (auto& box : boxes)
        for (int i = first * packs + thread; i < Lines * packs; i += warpgroup) reinterpret_cast<uint4*>(box)[i] = {};
    }
    template <class Acc>
    __device__ __forceinline__ static void pin(Acc& acc) {
#pragma unroll
      for (auto& block : acc.r) ptx::pin(block);
    }
    /// What is there counts as in use no longer, though the next product names it as read.
    template <class Acc>
    __device__ __forceinline__ static void discard(Acc& acc) {
#pragma unroll
      for (auto& block : acc.r) ptx::discard(block);
    }
    /// Straight from registers, two columns at a time, which lie in aligned pairs: the factors' type or fp32.
    template <class T, int M, int N>
    __device__ __forceinline__ void store_direct(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                                 std::int64_t row0, std::int64_t col0, std::int64_t end) const {
      MatrixStack const& m = target.strides;
      int const cols = static_cast<int>(m.cols - col0);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        std::int64_t const r = row0 + row<M, N>(h * 2);
        T* const first = static_cast<T*>(const_cast<void*>(m.data)) + m.offset(plane, r, col0);
        bool const inside = r < end;
#pragma unroll
        for (int i = h * 2; i < N / 2; i += 4) {
          int const c = col<M, N>(i);
          if (inside && c < cols)
            *reinterpret_cast<Pair<T>*>(first + c) = rounded_pair<T>(acc.r[0][i], acc.r[0][i + 1]);
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
        std::int64_t const r = row0 + row<M, N>(h * 2);
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
      row0 += row<M, N>() + warp * Layout::rows;
      col0 += col<M, N>();
      if (Sizes::adds || target.staged) {  // a tile before, or sums, may have left through the same memory
        if ((Sizes::adds || warp == 0) && lane == 0) ptx::bulk_wait_read();
        ptx::named_sync(4 + group, warpgroup);
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
    __device__ __forceinline__ void store_bulk(Accumulator<M, N> const& acc, Target const& target, Plane plane,
                                               int row0, int col0) const {
      constexpr int size = static_cast<int>(sizeof(T)), width = line_bytes / size;
      constexpr StoreBoxes boxes = store_boxes_of<Accumulator<M, N>>(size);
      constexpr int whole = boxes.whole, shorter = boxes.shorter, line = boxes.line;
      constexpr int most = Sizes::store_boxes > 1 ? 2 : 1;
      row0 += row<M, N>();
      col0 += col<M, N>();
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
      row = ptx::anew(row + row_of<Acc>());  // there is no register to keep them until store_whole()
      col = ptx::anew(col + col_of<Acc>());
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
                          col + U::col(Unit) + b * line / static_cast<int>(sizeof(typename U::Type)),
                          row + U::row(Unit), static_cast<int>(plane.inner), static_cast<int>(plane.outer));
    }
    /// Each unit is added to in its box and goes from there; the next is then fetched into it. A barrier has two
    /// phases, of which a tile begins with the first: one of an odd number of units has another that brings nothing.
    template <class U, int M, int N>
    __device__ __forceinline__ void add_units(Accumulator<M, N>& acc, Target const& target, Plane plane, int row0,
                                              int col0, Compute alpha, Compute beta) const {
      using T = typename U::Type;
      int const row = row0 + row_of<Accumulator<M, N>>(), col = col0 + col_of<Accumulator<M, N>>();
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
      ptx::named_sync(4 + group, warpgroup);
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
      ptx::named_sync(4 + group, warpgroup);
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
};

}  // namespace tessera::detail::bulk

#endif
