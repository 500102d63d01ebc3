// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_BULK_ATOMS_HPP
#define TESSERA_CUDA_BULK_ATOMS_HPP

#include <cstddef>
#include <cstdint>

#include <tessera/atoms.hpp>
#include <tessera/cuda/bulk_registers.hpp>
#include <tessera/cuda/bulk_stores.hpp>
#include <tessera/cuda/bulk_tiles.hpp>
#include <tessera/cuda/lines.hpp>
#include <tessera/cuda/wgmma.hpp>

// Hopper's atoms (sm_90a): tiles in swizzled shared memory filled by the bulk copy engine, warpgroup products,
// accumulators in the registers of one to three consumer warpgroups.
namespace tessera::detail::bulk {

template <class Element, class Sizes, class RightElement = Element>
struct Atoms : Registers<Element, Sizes> {
  static_assert(sizeof(Element) == sizeof(RightElement), "both factors of a product have elements of one size");
  using Held = Registers<Element, Sizes>;
  using Held::consumers;
  using typename Held::Compute, typename Held::Weight;
  template <int M, int N>
  using Accumulator = typename Held::template Accumulator<M, N>;
  template <int M, int K>
  using Rounded = typename Held::template Rounded<M, K>;
  static constexpr int team_threads = warpgroup * (1 + consumers);
  static constexpr bool in_turns = Sizes::take_turns && consumers > 1;
  static constexpr int line = line_bytes / static_cast<int>(sizeof(Element));  // elements
  /// The tensor cores read factors of other than 16 bits along the contracted index only: the right factor of rounded
  /// weights then lies with its rows contiguous, in the order of RowOrder, and zero behind the last that counts.
  static constexpr bool rows_contiguous = sizeof(Element) != 2;
  using RowOrder = bulk::RowOrder<sizeof(Element)>;
  /// Rows inside an operand but past a limit of the caller's are copied as they are: Math::clear_rows() is for them.
  static constexpr bool clips_rows = rows_contiguous;

  using Source = CUtensorMap;
  using Target = bulk::Target;
  using LateTarget = bulk::LateTarget;
  using Staging = typename StoreMath<Element, Sizes>::Staging;
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

  /// Bytes of a row that are copied at a time.
  template <class Tile>
  KOKKOS_FUNCTION static constexpr int together() {
    return Tile::boxes * line_bytes;
  }

  template <class Tile>
  static Source source(MatrixStack const& m, int teams_together = 1) {
    return tensor_map(Tile::transposed ? m.transposed() : m, Tile::lines / teams_together, together<Tile>());
  }
  /// The same for a matrix that may have fewer rows than a tile: the copy engine is slow to fill what is missing, so
  /// nothing is, and rows of products that are not stored come from whatever the stage holds.
  template <class Tile>
  static Source clipped_source(MatrixStack const& m, int teams_together = 1) {
    if (teams_together > 1) return source<Tile>(m, teams_together);
    return tensor_map(Tile::transposed ? m.transposed() : m, box_lines<Tile>(m), together<Tile>());
  }
  /// The last tiles of a matrix, of which one may hang over its edge and, of those of a cluster of `along` teams, some
  /// may lie outside: lines that are not there are not copied, but for the rest of the eight by which the swizzle goes.
  template <class Tile>
  struct Edge {
    Source part;        // of the tile, or the share of it, that hangs over
    std::int64_t rows;  // of the matrix; across, where nothing is left out, more than any tile has
    int share;          // lines that a team loads of a tile
    bool hangs, any;    // a tile or share is there in part; something is left out
    Edge(MatrixStack const& m, int teams_together, int along)
        : part(),
          rows(Tile::transposed ? INT64_MAX : m.rows),
          share(Tile::lines / teams_together),
          hangs(!Tile::transposed && rows % share != 0),
          any(!Tile::transposed && rows % (Tile::lines * along) != 0 &&
              (rows > Tile::lines || teams_together * along > 1)) {
      if (hangs) part = tensor_map(m, eights(rows % share), together<Tile>());
    }
    /// That are copied of a tile from `row` on.
    KOKKOS_FUNCTION int lines(std::int64_t row) const {
      std::int64_t const rest = rows - row;
      return rest >= Tile::lines ? Tile::lines : (rest > 0 ? eights(rest) : 0);
    }
    KOKKOS_FUNCTION int bytes(std::int64_t row) const { return lines(row) * together<Tile>(); }

   private:
    KOKKOS_FUNCTION static constexpr int eights(std::int64_t lines) { return (static_cast<int>(lines) + 7) / 8 * 8; }
  };
  /// The same for tiles of rows that lie in pages: whole ones, or parts of larger ones.
  template <class Tile>
  static Source paged_source(MatrixStack const& m) {
    static_assert(!Tile::transposed);
    return tensor_map(m, box_lines<Tile>(m), together<Tile>());
  }
  /// What copies of a tile from there bring.
  template <class Tile>
  static int copied_bytes(MatrixStack const& m, int teams_together = 1) {
    return together<Tile>() * (teams_together > 1 ? Tile::lines : box_lines<Tile>(m));
  }
  template <class Accumulator>
  static Target target(MatrixStack const& m) {
    Target t{{}, {}, m, false, stored_at_once(m)};
    if constexpr (Sizes::staged_store && !Sizes::turned) {
      StoreBoxes const boxes = store_boxes_of<Accumulator>(static_cast<int>(size_of(m.type)));
      t.staged = boxes.all && bulk_copyable(m);
      if (t.staged && boxes.whole > 0) t.whole = tensor_map(m, 64);
      if (t.staged && boxes.shorter > 0) t.shorter = tensor_map(m, 64, boxes.line, boxes.line);
    }
    return t;
  }

  /// What the consumers share of rounded (M, N) accumulators: in two boxes of each one's stage for the store in turns,
  /// so that one is filled while others may read what was shared before.
  template <int M, int N>
  struct Shared {
    static constexpr std::size_t scratch_bytes = 0;
    static_assert(Sizes::store_boxes > 3 && N == 64 && M == 64 * consumers);
    static constexpr int first_box = Sizes::store_boxes - 2;  // stores use the others
    __device__ __forceinline__ explicit Shared(ConsumerThread const&) {}
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
        if (Share const& share = Tile::left ? together.left : together.right; share.shift > 0) {
          int const l = share.part * (Tile::lines >> share.shift);
#pragma unroll
          for (int box = 0; box < Tile::boxes; ++box)
            ptx::bulk_load_4d_multicast(to.v[box][l], &source, full, share.teams, across + box * line, line0 + l, inner,
                                        outer);
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
    /// Where this team's share of the tile from `row` on, which may hang over an edge, is copied from: nowhere, if
    /// nothing of it is there.
    template <class Tile>
    __device__ __forceinline__ Source const* from(Source const& whole, Edge<Tile> const& edge, std::int64_t row) const {
      int const there = edge.lines(row) - (Tile::left ? together.left : together.right).part * edge.share;
      return there <= 0 ? nullptr : (there < edge.share ? &edge.part : &whole);
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

  struct Math : StoreMath<Element, Sizes> {
    using Base = StoreMath<Element, Sizes>;
    using Base::group, Base::warp, Base::thread, Base::meet, Base::staging;

    std::uint64_t* shared;  // completes when every warp of the consumers has shared its part
    unsigned box = 1;       // of the two for what is shared, which in turns is filled; and the phase of that barrier

    /// With the P columns of b from `col` on.
    template <int M, int N, int P, int K>
    __device__ __forceinline__ void multiply(Left<M, K> const& a, Right<N, K> const& b, Accumulator<M, P>& acc,
                                             bool add, int col = 0) const {
      int const left = Accumulator<M, P>::row(*this), right = col + Accumulator<M, P>::col(*this);
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
      int const left = Accumulator<M, N>::row(*this), right = Accumulator<M, N>::col(*this);
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
                   factor<true>(b, Accumulator<N, P>::col(*this), k), k > 0);
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
      meet();
    }
    template <class Tile>
    __device__ __forceinline__ void clear_rows(Tile const& tile, int first) const {
      if (first >= Tile::lines) return;
      clear_lines(const_cast<Tile&>(tile).v, first);
      ptx::async_proxy_fence();
      meet();
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
    /// Before a tile's first product. Every product names its accumulator as read: without this, what the tile before
    /// left would count as in use through that tile's epilogue, which would have few registers.
    template <int M, int N>
    __device__ __forceinline__ void begin(Accumulator<M, N>& acc) const {
      this->clear(acc);
    }

   private:
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
  };
};

}  // namespace tessera::detail::bulk

#endif
