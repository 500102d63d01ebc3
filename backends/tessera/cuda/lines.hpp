// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_LINES_HPP
#define TESSERA_CUDA_LINES_HPP

#include <cstdint>
#include <type_traits>

#include <tessera/atoms.hpp>
#include <tessera/cuda/rounding.hpp>
#include <tessera/portable/pack.hpp>

// The way of accumulators to a matrix of any type, address and strides: a warp's lines in shared memory, where a lane
// finds neighbours of a row instead of what the tensor cores gave it. What is done with an element is compiled once for
// a loop over lines, not once for every register.
namespace tessera::detail {

/// Whether `count` neighbours of a row, the first at a multiple of `count`, can be stored at once.
KOKKOS_INLINE_FUNCTION bool stores_packs(MatrixStack const& m, int count) {
  auto const size = static_cast<std::int64_t>(size_of(m.type)), whole = count * size, pack = whole < 16 ? whole : 16;
  auto const fits = [&](std::int64_t extent, std::int64_t stride) { return extent <= 1 || stride * size % pack == 0; };
  return m.col_stride == 1 && reinterpret_cast<std::uintptr_t>(m.data) % static_cast<std::uintptr_t>(pack) == 0 &&
         fits(m.rows, m.row_stride) && fits(m.inner, m.inner_stride) && fits(m.outer, m.outer_stride);
}

/// How many, 4 at most.
KOKKOS_INLINE_FUNCTION int stored_at_once(MatrixStack const& m) {
  return stores_packs(m, 4) ? 4 : stores_packs(m, 2) ? 2 : 1;
}

/// Stores a pack whole: copied as a struct it may become a store for every element.
template <class T, int N>
__device__ __forceinline__ void store_words(T* to, Pack<T, N> const& pack) {
  constexpr std::size_t bytes = sizeof(pack);
  using Short = std::conditional_t<bytes == 2, unsigned short, unsigned>;
  using Word = std::conditional_t<(bytes < 8), Short, std::conditional_t<bytes == 8, uint2, uint4>>;
  struct Words {
    Word v[bytes / sizeof(Word)];
  };
  auto const words = Kokkos::bit_cast<Words>(pack);
#pragma unroll
  for (int i = 0; i < static_cast<int>(bytes / sizeof(Word)); ++i) __stcg(reinterpret_cast<Word*>(to) + i, words.v[i]);
}

/// Lines of Width accumulators. Layout has place(line, column), where Most neighbours are together, row(line), the row
/// of the block that a line holds, and in_order, whether that is the line's number. What is read from memory for AtOnce
/// elements is on its way before the first of them is used.
template <class Compute, int Most, int AtOnce, int Lines, int Width, class Layout>
struct WarpLines {
  Compute* lines;
  MatrixStack const& to;
  std::int64_t row, col;  // of the block in the matrix
  std::int64_t first;     // where that is
  int rows, cols;         // to the end of what is stored

  __device__ __forceinline__ WarpLines(Compute* memory, MatrixStack const& matrix, Plane plane, std::int64_t row0,
                                       std::int64_t col0, std::int64_t end, std::int64_t columns = INT64_MAX)
      : lines(memory),
        to(matrix),
        row(row0),
        col(col0),
        first(matrix.offset(plane, row0, col0)),
        rows(ptx::uniform(held(end - row0))),
        cols(ptx::uniform(held(matrix.cols - col0 < columns ? matrix.cols - col0 : columns))) {}

  /// matrix = f(alpha * x + beta * matrix, row, column) for what is inside the matrix, x the Blocks blocks, side by
  /// side, of `columns` columns that write(block) brings into the lines. `at_once`: so many neighbours can be stored at
  /// once.
  template <int Blocks, class F, class Write>
  __device__ __forceinline__ void store(Compute alpha, Compute beta, F const& f, int at_once,
                                        Write const& write) const {
    bool aligned = at_once >= Most && whole(Blocks - 1);
    if constexpr (!std::is_same_v<F, Unchanged>) aligned = aligned && f.template aligned<Most>();
    // The vote tells the compiler that it is the same in all lanes: a meeting of lanes that might have parted would
    // take the uniform registers from the mainloop.
    if (__all_sync(~0u, aligned)) {
      store_packs<Most, Blocks>(alpha, beta, f, write);
    } else if (std::is_same_v<F, Unchanged> && __all_sync(~0u, at_once >= 2 && whole(Blocks - 1))) {
      if constexpr (std::is_same_v<F, Unchanged>) store_packs<2, Blocks>(alpha, beta, f, write);
    } else {
      write(Constant<0>{});
#pragma unroll 1
      for (int block = 0; block < Blocks; ++block) {
        __syncwarp();
        store_elements(alpha, beta, f, block);
        __syncwarp();
        write_next<Blocks>(write, block);
      }
    }
  }

 private:
  __device__ __forceinline__ static int held(std::int64_t rest) {
    return rest < (1 << 30) ? static_cast<int>(rest) : 1 << 30;
  }
  __device__ __forceinline__ bool whole(int block) const { return rows >= Layout::rows && cols >= (block + 1) * Width; }
  /// The block after this one: registers have no index.
  template <int Blocks, class Write>
  __device__ __forceinline__ static void write_next(Write const& write, int block) {
    unroll<Blocks - 1>([&](auto before) {
      if (before == block) write(Constant<before + 1>{});
    });
  }
  template <class T>
  __device__ __forceinline__ T* data() const {
    return static_cast<T*>(const_cast<void*>(to.data)) + first;
  }
  /// Count neighbours a lane, a block at a time. What f reads for the next block is on its way meanwhile.
  template <int Count, int Blocks, class F, class Write>
  __device__ __forceinline__ void store_packs(Compute alpha, Compute beta, F const& f, Write const& write) const {
    constexpr int lanes_a_line = Width / Count, together = 32 / lanes_a_line, steps = Lines / together;
    static_assert(32 % lanes_a_line == 0 && Lines % together == 0);
    constexpr int at_once = Count < Most ? AtOnce / 2 : AtOnce;  // the rarer way has less to compile
    constexpr int batch = at_once / Count < steps ? at_once / Count : steps, parts = steps / batch;
    static_assert(steps % batch == 0);
    using Steps = PackSteps<F, Count, batch, together>;
    int const at = ptx::lane(), c = at % lanes_a_line * Count, begin = at / lanes_a_line;
    auto read = Steps::read(*this, f, begin, c);
    write(Constant<0>{});
#pragma unroll 1
    for (int i = 0; i < Blocks * parts; ++i) {
      int const block = i / parts, line = begin + i % parts * (batch * together), k = block * Width + c;
      Compute x[batch][Count];
      if (i % parts == 0) __syncwarp();
      load<batch, together>(x, line, c);
      if (i % parts == parts - 1) {
        __syncwarp();
        write_next<Blocks>(write, block);
      }
      auto const now = read;
      if (i + 1 < Blocks * parts)
        read = Steps::read(*this, f, begin + (i + 1) % parts * (batch * together), (i + 1) / parts * Width + c);
      combine<together>(x, alpha, beta, line, k);
      Steps::apply(*this, f, x, now, line, k);
      visit_scalar<Compute>(to.type, [&](auto tag) {
        using T = typename decltype(tag)::type;
        each_pack<together, batch>(data<T>() + k, line, [&](int j, T* to_pack) {
          Pack<Compute, Count> pack;
#pragma unroll
          for (int e = 0; e < Count; ++e) pack[e] = x[j][e];
          store_words(to_pack, rounded<T>(pack));
        });
      });
    }
  }
  /// What f reads for a batch of packs, and f for them. Lines that are not in order are taken one by one.
  template <class F, int Count, int Batch, int Together>
  struct PackSteps {
    static constexpr int lines = Layout::in_order ? Batch : 1;
    template <class Read>
    struct Reads {
      Read v[Batch / lines];
    };
    __device__ __forceinline__ static auto read(WarpLines const& to, F const& f, int line, int k) {
      Reads<decltype(f.template read<lines, Count>(to.row, Together, to.col))> reads;
#pragma unroll
      for (int i = 0; i < Batch; i += lines)
        reads.v[i / lines] =
            f.template read<lines, Count>(to.row + Layout::row(line + i * Together), Together, to.col + k);
      return reads;
    }
    template <class Read>
    __device__ __forceinline__ static void apply(WarpLines const& to, F const& f, Compute (&x)[Batch][Count],
                                                 Reads<Read> const& reads, int line, int k) {
#pragma unroll
      for (int i = 0; i < Batch; i += lines)
        f.pack(reinterpret_cast<Compute(&)[lines][Count]>(x[i]), reads.v[i / lines],
               to.row + Layout::row(line + i * Together), Together, to.col + k);
    }
  };
  template <int Count, int Batch, int Together>
  struct PackSteps<Unchanged, Count, Batch, Together> {
    __device__ __forceinline__ static int read(WarpLines const&, Unchanged, int, int) { return 0; }
    __device__ __forceinline__ static void apply(WarpLines const&, Unchanged, Compute (&)[Batch][Count], int, int,
                                                 int) {}
  };
  template <int Batch, int Together, int Count>
  __device__ __forceinline__ void load(Compute (&x)[Batch][Count], int line, int c) const {
#pragma unroll
    for (int i = 0; i < Batch; ++i) {
      Pack<Compute, Count> const read = load_pack<Count>(lines + Layout::place(line + i * Together, c));
#pragma unroll
      for (int e = 0; e < Count; ++e) x[i][e] = read[e];
    }
  }
  /// alpha * x + beta * matrix
  template <int Together, int Batch, int Count>
  __device__ __forceinline__ void combine(Compute (&x)[Batch][Count], Compute alpha, Compute beta, int line,
                                          int k) const {
    if (alpha != Compute(1))
#pragma unroll
      for (int i = 0; i < Batch; ++i)
#pragma unroll
        for (int e = 0; e < Count; ++e) x[i][e] *= alpha;
    if (beta != Compute(0))
      visit_scalar<Compute>(to.type, [&](auto tag) {
        using T = typename decltype(tag)::type;
        Pack<T, Count> read[Batch];
        each_pack<Together, Batch>(data<T>() + k, line,
                                   [&](int i, T const* from) { read[i] = load_pack<Count>(from); });
#pragma unroll
        for (int i = 0; i < Batch; ++i) {
          Pack<Compute, Count> const c = widened<Compute>(read[i]);
#pragma unroll
          for (int e = 0; e < Count; ++e) x[i][e] += beta * c[e];
        }
      });
  }
  /// g(i, address) for a batch of packs, the first in line `begin`; `of_block` is where they would be in the first
  /// line.
  template <int Together, int Batch, class T, class G>
  __device__ __forceinline__ void each_pack(T* of_block, int begin, G const& g) const {
    T* at = of_block + Layout::row(begin) * to.row_stride;
    std::int64_t const step = Together * to.row_stride;
#pragma unroll
    for (int i = 0; i < Batch; ++i) {
      g(i, Layout::in_order ? at : of_block + Layout::row(begin + i * Together) * to.row_stride);
      at += step;
    }
  }
  /// One element a lane, so that what a warp reads and stores at a time lies side by side at any address.
  template <class F>
  __device__ __forceinline__ void store_elements(Compute alpha, Compute beta, F const& f, int block) const {
    constexpr int steps = Lines * Width / 32, most = AtOnce > 8 && !std::is_same_v<F, Unchanged> ? 8 : AtOnce,
                  batch = most < steps ? most : steps;
    static_assert(Width % 32 == 0 && steps % batch == 0 && batch * 32 % Width == 0);
#pragma unroll 1
    for (int part = 0; part < steps / batch; ++part) {
      int const begin = ptx::anew(part) * (batch * 32 / Width), c = ptx::lane();
      auto const each = [&](auto const& g) {  // g(i, row, column)
#pragma unroll
        for (int i = 0; i < batch; ++i) g(i, Layout::row(begin + i * 32 / Width), block * Width + c + i * 32 % Width);
      };
      auto const each_inside = [&](auto const& g) {
        each([&](int i, int r, int k) {
          if (r < rows && k < cols) g(i, r, k);
        });
      };
      Compute x[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) x[i] = alpha * lines[Layout::place(begin + i * 32 / Width, c + i * 32 % Width)];
      std::int64_t const at = Layout::row(begin) * to.row_stride + (block * Width + c) * to.col_stride;
      auto const place = [&](int i, int r) {
        std::int64_t const line =
            Layout::in_order ? i * 32 / Width * to.row_stride : (r - Layout::row(begin)) * to.row_stride;
        return at + line + i * 32 % Width * to.col_stride;
      };
      if (beta != Compute(0))
        visit_scalar<Compute>(to.type, [&](auto tag) {
          using T = typename decltype(tag)::type;
          T read[batch] = {};
          each_inside([&](int i, int r, int) { read[i] = data<T>()[place(i, r)]; });
#pragma unroll
          for (int i = 0; i < batch; i += 2) {
            Pack<Compute, 2> const c = widened<Compute>(Pack<T, 2>{{read[i], read[i + 1]}});
            x[i] += beta * c[0];
            x[i + 1] += beta * c[1];
          }
        });
      if constexpr (!std::is_same_v<F, Unchanged>) {
        auto const apply = [&](int i, int r, int k) { x[i] = f(x[i], row + r, col + k); };
        if (whole(block))  // without conditions what f reads is on its way for a whole batch
          each(apply);
        else
          each_inside(apply);
      }
      visit_scalar<Compute>(to.type, [&](auto tag) {
        using T = typename decltype(tag)::type;
        each_inside([&](int i, int r, int) { data<T>()[place(i, r)] = rounded<T>(x[i]); });
      });
    }
  }
};

}  // namespace tessera::detail

#endif
