// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_CUDA_ASYNC_TILES_HPP
#define TESSERA_CUDA_ASYNC_TILES_HPP

#include <cstddef>
#include <cstdint>

#include <tessera/atoms.hpp>
#include <tessera/cuda/ptx.hpp>
#include <tessera/portable/pack.hpp>

// Tiles in shared memory and the asynchronous copies that fill them (sm_80 and up).
namespace tessera::detail::async {

/// Lines without gaps, their packs of 16 bytes swizzled: pack c of a line lies in place c ^ swizzle(line). Then the
/// same pack of eight lines lies in all banks, as do two neighbouring packs of lines 0 to 3 and 4 to 7. `Transposed`: a
/// tile of the transpose of the matrix it is copied from.
template <class Element, int Lines, int Cols, bool Transposed = false, int Alignment = 1024>
struct SwizzledTile {
  static constexpr int lines = Lines, cols = Cols, pack = 16 / static_cast<int>(sizeof(Element)), packs = Cols / pack;
  static constexpr int pitch = packs * 16;  // bytes
  static constexpr bool transposed = Transposed, swizzled = true;
  static constexpr int bank_bytes = packs >= 8 ? 128 : 64;  // within which packs are swizzled
  static_assert(is_power_of_two(packs) && packs >= 4 && Lines % 8 == 0, "lines of 64 bytes or a larger power of two");

  // Addresses of packs differ by exclusive or, which asks for a base that is a multiple of the pitch.
  static_assert(Alignment >= 128 && Alignment % pitch == 0);
  alignas(Alignment) unsigned char v[Lines * pitch];

  /// The place of a pack in bytes.
  __device__ __forceinline__ static int place(int line, int p) {
    int const u = packs >= 8 ? line % 8 : line / 2 % 4;  // lines of 64 bytes are in two halves of the banks
    int const swizzle = packs >= 8 ? u % 4 * 2 + u / 4 : u % 2 * 2 + u / 2;
    return line * pitch + ((p ^ swizzle) * 16);
  }
  __device__ __forceinline__ Element* at(int line, int col) {
    return reinterpret_cast<Element*>(v + place(line, col / pack) + col % pack * static_cast<int>(sizeof(Element)));
  }
};

/// A line for every k, with a gap behind it: so that eight k of four columns lie in all banks when they are written one
/// by one. A tile of the transpose, since columns are rows of a factor.
template <class Element, int K, int Cols>
struct PaddedTile {
  static constexpr int lines = K, cols = Cols, pack = 16 / static_cast<int>(sizeof(Element)), packs = Cols / pack;
  static constexpr int pitch = Cols + pack;  // elements
  static constexpr bool transposed = true;
  static_assert(is_power_of_two(packs) && Cols % 16 == 0);

  alignas(1024) Element v[K][pitch];

  __device__ __forceinline__ Element* at(int line, int col) { return &v[line][col]; }
};

/// A matrix of a stack as tiles are copied from it.
struct Source {
  MatrixStack m;
  bool packs;  // contiguous along a tile's lines, in multiples of 16 bytes
};

/// How tiles are copied among products: no tile hangs over an edge of C; some may; or some may, and elements of 8 bytes
/// come one by one, since packs do not fit.
enum class Way : std::uint8_t { whole, edges, elements };

/// The copy of a tile by the threads of a team, side by side where memory is contiguous.
template <class Element, int Threads>
struct TileCopy {
  static constexpr int size = static_cast<int>(sizeof(Element)), pack = 16 / size, warps = Threads / 32;
  int thread;

  template <class Tile>
  __device__ __forceinline__ void operator()(Source const& source, Plane plane, std::int64_t row, std::int64_t col,
                                             Tile& to) const {
    constexpr bool turned = Tile::transposed;
    MatrixStack const& m = source.m;
    Part part;
    part.from = static_cast<Element const*>(m.data) + m.offset(plane, row, col);
    part.line_stride = turned ? m.col_stride : m.row_stride;
    part.col_stride = turned ? m.row_stride : m.col_stride;
    part.lines = held(turned ? m.cols - col : m.rows - row, Tile::lines);
    part.cols = held(turned ? m.rows - row : m.cols - col, Tile::cols);
    bool const whole = part.lines == Tile::lines && part.cols == Tile::cols;
    if (source.packs) {
      if (whole)
        copy_packs(part, to);
      else
        copy_edge(part, to);
    } else if constexpr (size >= 4) {
      if (part.col_stride == 1)
        copy_along(part, to);
      else if (whole && part.line_stride == 1)
        copy_across<true>(part, to);
      else
        copy_across<false>(part, to);
    }
  }

  template <class Tile>
  static constexpr bool swizzled = requires {
    requires Tile::swizzled;
  };

  /// A thread's way through the tiles of one factor that are whole along K, step by step, in jumps from one place in a
  /// tile to the next: without branches, so that the compiler spreads the copies over the products of a step.
  struct Walk {
    char const* next;
    std::int64_t jump, step;  // bytes, to the next place and from the last one to the first of the next tile
    std::int64_t apart;       // of elements of one place that are copied one by one, not contiguous along K
    int to;                   // in a tile, bytes
    int rows;                 // from the first place's row on that the matrix has
  };
  /// Whether there are walks through tiles of this kind, where they are whole.
  template <class Tile>
  __host__ __device__ static bool follows(Source const& source) {
    return source.packs || (!swizzled<Tile> && source.m.col_stride == 1);
  }
  /// Whether elements are copied one by one: those of 8 bytes. For sm_80 ptxas spills it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  template <class Tile, Way W>
  static constexpr bool by_elements = swizzled<Tile>&& size == 8 && W == Way::elements;
#else
  template <class, Way>
  static constexpr bool by_elements = false;
#endif
  /// The same where rows may be missing: elements of 4 bytes whatever their strides, those of 8 along a tile's lines.
  template <class Tile, Way W>
  __device__ static bool follows_edges(Source const& source) {
    if constexpr (by_elements<Tile, W>)
      return (Tile::transposed ? source.m.row_stride : source.m.col_stride) == 1;
    else
      return source.packs || !swizzled<Tile>;
  }
  /// Takes the walks to a tile and counts the whole ones from there on.
  template <Way W>
  struct Start {
    static constexpr bool all_whole = W == Way::whole;
    int thread;
    Walk* walks;
    int& whole;
    mutable int factor = 0;

    template <class Tile>
    __device__ __forceinline__ void operator()(Source const& source, Plane plane, std::int64_t row, std::int64_t col,
                                               Tile& tile) const {
      using Places = TilePlaces<Tile>;
      constexpr int rows = Tile::transposed ? Tile::cols : Tile::lines,
                    depth = Tile::transposed ? Tile::lines : Tile::cols;
      MatrixStack const& m = source.m;
      bool const packs = source.packs && !by_elements<Tile, W>;
      int const r = Places::row(thread, m, packs), k = Places::col(thread, m, packs);
      // What rows past the last hold goes to elements that are not stored; but a pack must not hang over.
      bool const runs = (all_whole ? follows<Tile>(source) : follows_edges<Tile, W>(source)) &&
                        (!Tile::transposed || !packs || m.rows - row >= rows || m.rows % pack == 0);
      std::int64_t const tiles = runs && m.cols > col ? (m.cols - col) / depth : 0;
      whole = tiles < whole ? static_cast<int>(tiles) : whole;
      Walk& walk = walks[factor++];
      walk.rows = held(m.rows - row, rows) - r;
      walk.next = reinterpret_cast<char const*>(static_cast<Element const*>(m.data) + m.offset(plane, row, col) +
                                                r * m.row_stride + k * m.col_stride);
      walk.jump = size * Places::jump(m, packs);
      // The compiler would compute it again for every copy. Elsewhere there are no registers for it.
      if constexpr (all_whole) asm volatile("" : "+l"(walk.jump));
      walk.step = depth * size * m.col_stride - Places::jumps_of(packs) * walk.jump;
      if constexpr (!swizzled<Tile>) walk.apart = size * Places::apart(m);
      Element const* const to = Tile::transposed ? tile.at(k, r) : tile.at(r, k);
      walk.to = static_cast<int>(reinterpret_cast<char const*>(to) - reinterpret_cast<char const*>(&tile));
    }
  };
  /// Copies what belongs to step `i` of `Steps`, of a part of a tile, one of `Parts`. `W`: in rows too.
  template <int Parts, int Steps, Way W>
  struct Share {
    static constexpr bool all_whole = W == Way::whole;
    bool wanted;
    int part, i;
    Walk* walks;
    mutable int factor = 0;

    template <class Tile>
    __device__ __forceinline__ void operator()(Source const& source, Plane, std::int64_t, std::int64_t,
                                               Tile& tile) const {
      using Places = TilePlaces<Tile>;
      constexpr int jumps = Places::count / Parts;
      static_assert(jumps * Parts == Places::count);
      Walk& walk = walks[factor++];
      std::uint32_t const to = ptx::shared_address(&tile) + walk.to;
#pragma unroll
      for (int j = i * jumps / Steps; j < (i + 1) * jumps / Steps; ++j) {
        int const place = part * jumps + j;
        auto const copy_pack = [&] {
          ptx::copy_async_if<16>(wanted && source.packs && (all_whole || Places::packs_row(place) < walk.rows),
                                 to + Places::packs_at(place), walk.next + Places::packs_from(place));
        };
        if constexpr (!swizzled<Tile>) {
          copy_pack();
#pragma unroll
          for (int l = 0; l < Tile::lines; l += Places::lines)
            ptx::copy_async_if<size>(wanted && !source.packs && (all_whole || place * Places::cols < walk.rows),
                                     to + place * (Places::cols * size) + l * Tile::pitch * size,
                                     walk.next + (all_whole ? l * size : l / Places::lines * walk.apart));
        } else if constexpr (!by_elements<Tile, W>) {
          copy_pack();
        } else {
          using Elements = typename Places::Elements;
#pragma unroll
          for (int e = 0; e < pack; ++e) {
            ptx::copy_async_if<size>(wanted && Elements::row_of(place, e) < walk.rows, to + Elements::at(place, e),
                                     walk.next + Elements::from(place, e));
            if (Elements::in_lines) walk.next += walk.jump;
          }
          if (Elements::in_lines) continue;
        }
        if (Places::jumps(place)) walk.next += walk.jump;
      }
      if constexpr (Parts == 1)  // else it is left to the stream: a loop over parts would ask in every one
        if (i == Steps - 1) walk.next += walk.step;
    }
  };

 private:
  /// What a tile takes of a matrix, as lines and columns of the tile.
  struct Part {
    Element const* from;
    std::int64_t line_stride, col_stride;
    int lines, cols;  // inside
  };

  /// Packs of a tile among threads: those of a line side by side.
  template <class Tile>
  struct PackPlace {
    static constexpr int at_once = Threads / Tile::packs;  // lines
    static_assert(Threads % Tile::packs == 0 && Tile::lines % at_once == 0);
    __device__ __forceinline__ static int line(int thread) { return thread / Tile::packs; }
    __device__ __forceinline__ static int col(int thread) { return thread % Tile::packs * pack; }
  };
  /// Elements of a tile whose lines lie across memory, eight lines and four columns a warp: they lie in all banks.
  template <class Tile>
  struct AcrossPlace {
    static constexpr int col_warps = warps < Tile::cols / 4 ? warps : Tile::cols / 4, line_warps = warps / col_warps;
    static constexpr int lines = 8 * line_warps, cols = 4 * col_warps;  // at once
    static_assert(Tile::cols % cols == 0 && Tile::lines % lines == 0);
    __device__ __forceinline__ static int line(int thread) { return thread / 32 / col_warps * 8 + thread % 8; }
    __device__ __forceinline__ static int col(int thread) { return thread / 32 % col_warps * 4 + thread % 32 / 8; }
  };
  /// The places where a thread copies something, one after the other.
  template <class Tile>
  struct TilePlaces : AcrossPlace<Tile> {
    using Packs = PackPlace<Tile>;
    using Across = AcrossPlace<Tile>;
    static constexpr int count = Tile::lines / Packs::at_once;
    static_assert(count == Tile::cols / Across::cols);
    /// Of a place, from the first: its row and where it is in the tile, and where in memory beside jumps.
    __device__ __forceinline__ static constexpr int packs_row(int) { return 0; }
    __device__ __forceinline__ static constexpr int packs_at(int place) {
      return place * (Packs::at_once * Tile::pitch * size);
    }
    __device__ __forceinline__ static constexpr int packs_from(int) { return 0; }
    __device__ __forceinline__ static constexpr bool jumps(int) { return true; }
    __device__ __forceinline__ static constexpr int jumps_of(bool) { return count; }
    /// Single elements that are not contiguous along K are copied by threads side by side along a line.
    __device__ __forceinline__ static int row(int thread, MatrixStack const& m, bool packs) {
      if (packs) return Packs::col(thread);
      return m.col_stride == 1 ? Across::col(thread) : thread % Across::cols;
    }
    __device__ __forceinline__ static int col(int thread, MatrixStack const& m, bool packs) {
      if (packs) return Packs::line(thread);
      return m.col_stride == 1 ? Across::line(thread) : thread / Across::cols;
    }
    __device__ __forceinline__ static std::int64_t jump(MatrixStack const& m, bool packs) {
      return packs ? Packs::at_once * m.col_stride : Across::cols * m.row_stride;
    }
    __device__ __forceinline__ static std::int64_t apart(MatrixStack const& m) { return Across::lines * m.col_stride; }
  };
  template <class Tile>
  requires requires { requires Tile::swizzled; }
  struct TilePlaces<Tile> {
    using Packs = PackPlace<Tile>;
    /// Of long lines a thread has packs in several blocks, so that the swizzle of a place is that of the first.
    static constexpr int blocks = Packs::at_once < 8 ? 8 / Packs::at_once : 1, block = Tile::packs / blocks;
    static constexpr int lines = Packs::at_once * blocks, count = Tile::lines / lines * blocks;
    static_assert(lines % 8 == 0 && Tile::lines % lines == 0 && (blocks == 1 || Tile::transposed));
    __device__ __forceinline__ static constexpr int packs_row(int place) {
      return Tile::transposed ? place % blocks * block * pack : place * lines;
    }
    __device__ __forceinline__ static constexpr int packs_at(int place) {
      return place / blocks * lines * Tile::pitch + packs_from(place);
    }
    __device__ __forceinline__ static constexpr int packs_from(int place) { return place % blocks * block * 16; }
    __device__ __forceinline__ static constexpr bool jumps(int place) { return place % blocks == blocks - 1; }
    /// The elements of places, copied one by one: of as many blocks of 8 lines, so that a swizzle is the same here too.
    /// A place's are in its lines or in a part of each of them, and so is what a jump leads to.
    struct Elements {
      static constexpr int in_line = Threads / 8 < Tile::cols ? Threads / 8 : Tile::cols, lines = Threads / in_line;
      static constexpr bool in_lines = in_line == Tile::cols;
      static_assert(size < 8 || (lines % 8 == 0 && lines * (in_lines ? pack : 1) == TilePlaces::lines));
      __device__ __forceinline__ static constexpr int row_of(int place, int e) {
        return Tile::transposed ? (place % blocks * pack + e) * in_line
                                : place * TilePlaces::lines + (in_lines ? e * lines : 0);
      }
      __device__ __forceinline__ static constexpr int at(int place, int e) {
        return place / blocks * TilePlaces::lines * Tile::pitch + (in_lines ? e * lines * Tile::pitch : from(place, e));
      }
      __device__ __forceinline__ static constexpr int from(int place, int e) {
        return in_lines ? 0 : (place % blocks * pack + e) * in_line * size;
      }
    };
    __device__ __forceinline__ static int row(int thread, MatrixStack const&, bool packs) {
      return Tile::transposed ? along(thread, packs) : thread / side_by_side(packs);
    }
    __device__ __forceinline__ static int col(int thread, MatrixStack const&, bool packs) {
      return Tile::transposed ? thread / side_by_side(packs) : along(thread, packs);
    }
    __device__ __forceinline__ static std::int64_t jump(MatrixStack const& m, bool packs) {
      return (packs ? lines : Elements::lines) * (Tile::transposed ? m.col_stride : m.row_stride);
    }
    __device__ __forceinline__ static constexpr int jumps_of(bool packs) {
      return Tile::lines / (packs ? lines : Elements::lines);
    }

   private:
    __device__ __forceinline__ static int side_by_side(bool packs) { return packs ? block : Elements::in_line; }
    __device__ __forceinline__ static int along(int thread, bool packs) {
      return packs ? thread % block * pack : thread % Elements::in_line;
    }
  };

  __device__ __forceinline__ static int held(std::int64_t rest, int most) {
    return rest < most ? static_cast<int>(rest) : most;
  }

  template <class Tile>
  __device__ __forceinline__ void copy_packs(Part const& part, Tile& to) const {
    using P = PackPlace<Tile>;
    int const l = P::line(thread), c = P::col(thread);
    Element const* next = part.from + l * part.line_stride + c;
#pragma unroll
    for (int i = 0; i < Tile::lines; i += P::at_once) {
      ptx::copy_async<16>(to.at(l + i, c), next);
      next += P::at_once * part.line_stride;
    }
  }
  /// Packs that hang over an edge are read by elements: what follows the last of them may be no memory. Plain stores
  /// will do, since the barrier before a stage is used orders them too.
  template <class Tile>
  __device__ __forceinline__ void copy_edge(Part const& part, Tile& to) const {
    using P = PackPlace<Tile>;
    int const l = P::line(thread), c = P::col(thread), inside = part.cols - c;
    Element const* next = part.from + l * part.line_stride + c;
    std::int64_t const jump = P::at_once * part.line_stride;
    if (inside <= 0 || inside >= pack) {
#pragma unroll
      for (int i = 0; i < Tile::lines; i += P::at_once) {
        bool const there = inside > 0 && l + i < part.lines;
        ptx::copy_async_inside<16>(to.at(l + i, c), there ? next : part.from, there);
        next += jump;
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < Tile::lines; i += P::at_once) {
        Pack<Element, pack> some{};
#pragma unroll
        for (int e = 0; e < pack - 1; ++e)
          if (e < inside && l + i < part.lines) some[e] = next[e];
        store_pack(to.at(l + i, c), some);
        next += jump;
      }
    }
  }
  /// Element by element along lines.
  template <class Tile>
  __device__ __forceinline__ void copy_along(Part const& part, Tile& to) const {
#pragma unroll 4
    for (int e = thread; e < Tile::lines * Tile::cols; e += Threads)
      copy_element(part, e / Tile::cols, e % Tile::cols, to);
  }
  /// Element by element across lines. `Inside`: the tile is whole, and lines follow each other in memory.
  template <bool Inside, class Tile>
  __device__ __forceinline__ void copy_across(Part const& part, Tile& to) const {
    using P = AcrossPlace<Tile>;
    int const l = P::line(thread), c = P::col(thread);
    if constexpr (Inside) {
      Element const* next = part.from + c * part.col_stride + l;
#pragma unroll
      for (int j = 0; j < Tile::cols; j += P::cols) {
#pragma unroll
        for (int i = 0; i < Tile::lines; i += P::lines) ptx::copy_async<size>(to.at(l + i, c + j), next + i);
        next += P::cols * part.col_stride;
      }
    } else {
#pragma unroll 1
      for (int j = 0; j < Tile::cols; j += P::cols)
#pragma unroll 1
        for (int i = 0; i < Tile::lines; i += P::lines) copy_element(part, l + i, c + j, to);
    }
  }
  template <class Tile>
  __device__ __forceinline__ void copy_element(Part const& part, int l, int c, Tile& to) const {
    bool const inside = l < part.lines && c < part.cols;
    ptx::copy_async_inside<size>(to.at(l, c),
                                 inside ? part.from + l * part.line_stride + c * part.col_stride : part.from, inside);
  }
};

/// The copy of a tile of lines in packs of 16 bytes, of the same matrices as PackCopy's, without a branch: what is not
/// there, or not wanted, becomes zero.
template <class Element, int Threads>
struct StraightCopy {
  static constexpr int size = static_cast<int>(sizeof(Element)), pack = 16 / size;
  int thread;
  bool wanted;

  template <class Tile>
  __device__ __forceinline__ void operator()(Source const& source, Plane plane, std::int64_t row, std::int64_t col,
                                             Tile& to) const {
    (*this)(source, plane, row, col, to, source.m.rows);
  }
  /// Rows from row_end on become zero.
  template <class Tile>
  __device__ __forceinline__ void operator()(Source const& source, Plane plane, std::int64_t row, std::int64_t col,
                                             Tile& to, std::int64_t row_end) const {
    constexpr int at_once = Threads / Tile::packs;  // lines
    static_assert(Threads % Tile::packs == 0 && Tile::lines % at_once == 0 && at_once % 8 == 0);
    MatrixStack const& m = source.m;
    int const line = thread / Tile::packs, c = thread % Tile::packs, cols = static_cast<int>(m.cols - col) - c * pack,
              rows = static_cast<int>((row_end < m.rows ? row_end : m.rows) - row);
    int const inside = cols < pack ? (cols < 0 ? 0 : cols * size) : 16, lines = wanted ? rows - line : 0;
    Element const* next =
        static_cast<Element const*>(m.data) + m.offset(plane, row, col) + line * m.row_stride + c * pack;
    std::uint32_t const to_tile = ptx::shared_address(to.v) + Tile::place(line, c);
    std::int64_t const jump = at_once * m.row_stride;
#pragma unroll
    for (int i = 0; i < Tile::lines; i += at_once) {
      ptx::copy_async_part(to_tile + i * Tile::pitch, next, i < lines ? inside : 0);
      next += jump;
    }
  }
  /// Numbers side by side, from an address that is a multiple of 16 bytes.
  template <class T, int N>
  __device__ __forceinline__ void values(T const* from, T (&to)[N]) const {
    constexpr int at_once = 16 / static_cast<int>(sizeof(T));
    static_assert(N % at_once == 0 && N / at_once <= Threads);
    ptx::copy_async_if<16>(wanted && thread < N / at_once, ptx::shared_address(to) + thread * 16,
                           from + thread * at_once);
  }
};

/// The copy of a tile of lines in packs of 16 bytes, which is all it can do: of a matrix whose rows are contiguous,
/// with address and strides in multiples of 16 bytes. A pack that hangs over an edge is read as far as the matrix goes.
template <class Element, int Threads>
struct PackCopy {
  static constexpr int size = static_cast<int>(sizeof(Element)), pack = 16 / size;
  int thread;

  template <class Tile>
  __device__ __forceinline__ void operator()(Source const& source, Plane plane, std::int64_t row, std::int64_t col,
                                             Tile& to) const {
    (*this)(source, plane, row, col, to, source.m.rows);
  }
  /// Rows from row_end on become zero.
  template <class Tile>
  __device__ __forceinline__ void operator()(Source const& source, Plane plane, std::int64_t row, std::int64_t col,
                                             Tile& to, std::int64_t row_end) const {
    constexpr int at_once = Threads / Tile::packs;  // lines
    static_assert(Threads % Tile::packs == 0 && Tile::lines % at_once == 0 && Tile::lines % 8 == 0);
    MatrixStack const& m = source.m;
    int const line = thread / Tile::packs, c = thread % Tile::packs;
    std::int64_t const rows = (row_end < m.rows ? row_end : m.rows) - row, cols = m.cols - col;
    Element const* next =
        static_cast<Element const*>(m.data) + m.offset(plane, row, col) + line * m.row_stride + c * pack;
    std::uint32_t const to_tile = ptx::shared_address(to.v);
    std::int64_t const jump = at_once * m.row_stride;
    if (rows >= Tile::lines && cols >= Tile::cols) {
#pragma unroll
      for (int i = 0; i < Tile::lines; i += at_once) {
        // The swizzle goes by groups of eight lines.
        ptx::copy_async<16>(to_tile + Tile::place(line + i % 8, c) + i / 8 * 8 * Tile::pitch, next);
        next += jump;
      }
    } else {
      int const inside = bytes_inside(cols - c * pack);
#pragma unroll 1
      for (int i = line; i < Tile::lines; i += at_once) {
        ptx::copy_async_part(to_tile + Tile::place(i, c), next, i < rows ? inside : 0);
        next += jump;
      }
    }
  }
  template <class Tile>
  __device__ __forceinline__ void operator()(Source const& source, PagedRows const& pages, std::int64_t row,
                                             std::int64_t col, Tile& to) const {
    (*this)(source, pages, row, col, to, pages.table.sequence_rows());
  }
  /// Numbers side by side, from an address that is a multiple of 16 bytes.
  template <class T, int N>
  __device__ __forceinline__ void values(T const* from, T (&to)[N]) const {
    constexpr int at_once = 16 / static_cast<int>(sizeof(T));
    static_assert(N % at_once == 0 && N / at_once <= Threads);
    if (thread < N / at_once) ptx::copy_async<16>(to + thread * at_once, from + thread * at_once);
  }
  /// Pages of any size: a lane finds where some rows lie, all at once, and tells the others of its warp.
  template <class Tile>
  __device__ __forceinline__ void operator()(Source const& source, PagedRows const& pages, std::int64_t row,
                                             std::int64_t col, Tile& to, std::int64_t row_end) const {
    constexpr int at_once = Threads / Tile::packs, rounds = Tile::lines / 32;
    static_assert(32 % at_once == 0 && Tile::lines % 32 == 0);
    MatrixStack const& m = source.m;
    int const line = thread / Tile::packs, c = thread % Tile::packs;
    int const rows = static_cast<int>(row_end - row), inside = bytes_inside(m.cols - col - c * pack);
    Element const* const from = static_cast<Element const*>(m.data) + c * pack;
    std::uint32_t const to_tile = ptx::shared_address(to.v);
    long long at[rounds];
#pragma unroll
    for (int round = 0; round < rounds; ++round) {
      std::int64_t const r = row + round * 32 + thread % 32;
      at[round] = m.offset(pages.plane(r), pages.in_page(r), col);
    }
#pragma unroll
    for (int i = 0; i < Tile::lines; i += at_once)
      ptx::copy_async_part(to_tile + Tile::place(line + i, c), from + __shfl_sync(~0u, at[i / 32], (line + i) % 32),
                           line + i < rows ? inside : 0);
  }

 private:
  /// Of a pack that begins so many columns before the last.
  __device__ __forceinline__ static int bytes_inside(std::int64_t cols) {
    return size * static_cast<int>(cols < 0 ? 0 : (cols < pack ? cols : pack));
  }
};

}  // namespace tessera::detail::async

#endif
