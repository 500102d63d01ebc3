// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_ROTARY_HPP
#define TESSERA_ROWWISE_ROTARY_HPP

#include <limits>

#include <tessera/divisor.hpp>
#include <tessera/element/strip.hpp>
#include <tessera/launch.hpp>
#include <tessera/pack_conversion.hpp>
#include <tessera/passing.hpp>
#include <tessera/portable/pack.hpp>
#include <tessera/rotary.hpp>
#include <tessera/rowwise/row_types.hpp>
#include <tessera/rowwise/shapes.hpp>

namespace tessera::detail {

/// Where the heads of a token lie, and its angles. Rows are counted with the head last.
struct RotaryRows {
  std::int64_t tokens, heads, batches;
  Divisor by_heads, by_tokens;
  bool small;  // fewer than 2^31 rows
  Operand out, in;
  float const *cosine, *sine;  // of the first token
  std::int64_t position;       // distance of two tokens' cosines
  float sign;

  struct Place {
    std::int64_t out, in, token;
  };
  KOKKOS_FORCEINLINE_FUNCTION Place place(std::int64_t row) const {
    std::int64_t const token = by_heads.quotient(row, small), head = row - token * heads;
    std::int64_t const batch = by_tokens.quotient(token, small), s = token - batch * tokens;
    auto const offset = [&](Operand const& a) { return batch * a.outer + s * a.inner + head * a.row; };
    return {offset(out), offset(in), s};
  }
};

/// Any layout and types: one index a head of a token.
template <class Exec, class Acc>
struct RotaryKernel {
  RotaryRows rows;
  std::int64_t pairs, features, cosine_step, sine_step, sine_position;
  bool interleaved;

  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    RotaryRows::Place const at = rows.place(row);
    RowInputs<Acc>::visit(rows.in.type, [&](auto from_tag) {
      RowInputs<Acc>::visit(rows.out.type, [&](auto to_tag) {
        turn(at, static_cast<typename decltype(from_tag)::type const*>(rows.in.data) + at.in,
             static_cast<typename decltype(to_tag)::type*>(const_cast<void*>(rows.out.data)) + at.out);
      });
    });
  }

  template <class From, class To>
  KOKKOS_FORCEINLINE_FUNCTION void turn(RotaryRows::Place const& at, From const* from, To* to) const {
    float const *const cosine = rows.cosine + at.token * rows.position, *const sine =
                                                                            rows.sine + at.token * sine_position;
    for (std::int64_t j = 0; j < pairs; ++j) {
      std::int64_t const a = interleaved ? 2 * j : j, b = interleaved ? a + 1 : j + pairs;
      auto const c = static_cast<Acc>(cosine[j * cosine_step]), s = static_cast<Acc>(rows.sign * sine[j * sine_step]);
      auto const x = static_cast<Acc>(from[a * rows.in.column]), y = static_cast<Acc>(from[b * rows.in.column]);
      to[a * rows.out.column] = static_cast<To>(x * c - y * s);
      to[b * rows.out.column] = static_cast<To>(y * c + x * s);
    }
    for (std::int64_t j = 2 * pairs; j < features; ++j)
      to[j * rows.out.column] = static_cast<To>(static_cast<Acc>(from[j * rows.in.column]));
  }
};

/// Neighbouring elements of at most 32 bits on a CPU: one index a head of a token. What is read, turned and rounded of
/// a strip of pairs are loops of their own.
template <bool Interleaved>
struct HostRotary {
  static constexpr bool vectorises = true;
  static constexpr int strip = 128;

  RotaryRows rows;
  std::int64_t pairs, features, sine_position;

  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    RotaryRows::Place const at = rows.place(row);
    RowInputs<float>::visit(rows.in.type, [&](auto from_tag) TESSERA_INLINE_LAMBDA {
      RowInputs<float>::visit(rows.out.type, [&](auto to_tag) TESSERA_INLINE_LAMBDA {
        turn(at, static_cast<typename decltype(from_tag)::type const*>(rows.in.data) + at.in,
             static_cast<typename decltype(to_tag)::type*>(const_cast<void*>(rows.out.data)) + at.out);
      });
    });
  }

  template <class From, class To>
  KOKKOS_FORCEINLINE_FUNCTION void turn(RotaryRows::Place const& at, From const* from, To* to) const {
    float in[2 * strip], out[2 * strip];
    for (std::int64_t k = 0; k < pairs; k += strip) {
      auto const n = static_cast<int>(pairs - k < strip ? pairs - k : strip);
      float const *const c = rows.cosine + at.token * rows.position + k, *const s =
                                                                             rows.sine + at.token * sine_position + k;
      if constexpr (Interleaved) {
        read_strip(from + 2 * k, 1, 2 * n, in);
        turn_strip<2, 1>(in, out, c, s, n);
        write_strip(out, 2 * n, to + 2 * k, 1);
      } else {
        read_strip(from + k, 1, n, in);
        read_strip(from + pairs + k, 1, n, in + strip);
        turn_strip<1, strip>(in, out, c, s, n);
        write_strip(out, n, to + k, 1);
        write_strip(out + strip, n, to + pairs + k, 1);
      }
    }
    for (std::int64_t k = 2 * pairs; k < features; k += strip) {
      auto const n = static_cast<int>(features - k < strip ? features - k : strip);
      read_strip(from + k, 1, n, in);
      write_strip(in, n, to + k, 1);
    }
  }
  /// Pairs begin `Step` elements from each other and their second elements lie `Other` behind the first.
  template <int Step, int Other>
  KOKKOS_FORCEINLINE_FUNCTION void turn_strip(float const* in, float* out, float const* c, float const* s,
                                              int n) const {
    for (int i = 0; i < n; ++i) {
      float const x = in[Step * i], y = in[Step * i + Other], sine = rows.sign * s[i];
      out[Step * i] = x * c[i] - y * sine;
      out[Step * i + Other] = y * c[i] + x * sine;
    }
  }
};

/// Packs of T: a thread has a pack of each half of a head, or a pack of neighbouring pairs. All features are turned.
template <class Exec, class T, bool Interleaved>
struct PackedRotary {
  static constexpr int width = static_cast<int>(pack_bytes / sizeof(T)), angles = Interleaved ? width / 2 : width;
  static constexpr int threads = 128;
  static constexpr bool starts_early = true;

  RotaryRows rows;
  std::int64_t slots;  // all of them; of a head:
  Divisor by_slots;
  int half;  // elements, from the first half's packs to the second's
  ReadOnce once;

  KOKKOS_FUNCTION void operator()(TeamMember<Exec> const& team) const {
    wait_for_kernels_before<Exec>();
    std::int64_t const slot = std::int64_t{team.league_rank()} * threads + thread_of<Exec>(team);
    if (slot >= slots) return;
    std::int64_t const row = by_slots.quotient(slot, slots <= std::numeric_limits<std::int32_t>::max());
    auto const k = static_cast<int>(slot - row * by_slots.by);
    RotaryRows::Place const at = rows.place(row);
    T const* const from = once(static_cast<T const*>(rows.in.data)) + at.in + k * width;
    T* const to = static_cast<T*>(const_cast<void*>(rows.out.data)) + at.out + k * width;
    Pack<T, width> const first = load_pack<width>(from);
    Pack<T, width> second = first;
    if constexpr (!Interleaved) second = load_pack<width>(from + half);
    std::int64_t const angle = at.token * rows.position + k * angles;
    auto const c = load_pack<angles>(rows.cosine + angle), s = load_pack<angles>(rows.sine + angle);
    auto a = widened_pack(first);
    if constexpr (Interleaved) {
      for (int j = 0; j < angles; ++j) {
        float const x = a[2 * j], y = a[2 * j + 1], sine = rows.sign * s[j];
        a[2 * j] = x * c[j] - y * sine;
        a[2 * j + 1] = y * c[j] + x * sine;
      }
    } else {
      auto b = widened_pack(second);
      for (int j = 0; j < width; ++j) {
        float const x = a[j], y = b[j], sine = rows.sign * s[j];
        a[j] = x * c[j] - y * sine;
        b[j] = y * c[j] + x * sine;
      }
      store_pack<width>(to + half, narrowed(b));
    }
    store_pack<width>(to, narrowed(a));
  }

  KOKKOS_FORCEINLINE_FUNCTION static Pack<T, width> narrowed(Pack<float, width> const& x) {
    if constexpr (sizeof(T) == 4)
      return x;
    else
      return rounded_pack<T>(x);
  }
};

inline RotaryRows rotary_rows(RotaryProblem const& problem, TileGrid const& grid, int width, bool wide) {
  RotaryRows rows;
  rows.tokens = problem.in.extent[1];
  rows.heads = problem.in.extent[2];
  rows.batches = problem.in.extent[0];
  rows.by_heads = Divisor(rows.heads);
  rows.by_tokens = Divisor(rows.tokens);
  rows.small = problem.in.rows() <= std::numeric_limits<std::int32_t>::max();
  rows.out = operand(problem.out, grid, width, wide);
  rows.in = operand(problem.in, grid, width, wide);
  rows.position = problem.cosine.stride[2];
  rows.cosine = static_cast<float const*>(problem.cosine.data) + problem.first_position * problem.cosine.stride[2];
  rows.sine = static_cast<float const*>(problem.sine.data) + problem.first_position * problem.sine.stride[2];
  rows.sign = problem.backward ? -1.0f : 1.0f;
  return rows;
}

/// Whether the problem was one of packs, and has been started.
template <class Exec>
bool start_packed_rotary(Exec const& exec, RotaryProblem const& problem, TileGrid const& grid) {
  bool started = false;
  if constexpr (Machine<Exec>::lanes > 1) {
    std::int64_t const pairs = problem.cosine.extent[3];
    bool const tables = problem.cosine.stride[2] == problem.sine.stride[2] && problem.cosine.stride[3] == 1 &&
                        problem.sine.stride[3] == 1 && problem.cosine.stride[2] % 4 == 0 &&
                        reinterpret_cast<std::uintptr_t>(problem.cosine.data) % 16 == 0 &&
                        reinterpret_cast<std::uintptr_t>(problem.sine.data) % 16 == 0;
    if (!tables || problem.in.type == Scalar::fp64 || problem.in.type != problem.out.type || 2 * pairs != grid.columns)
      return false;
    RowInputs<float>::visit_on_host(problem.in.type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      constexpr int width = PackedRotary<Exec, T, false>::width;
      if (grid.columns % (problem.interleaved ? width : 2 * width) != 0) return;
      RotaryRows const rows = rotary_rows(problem, grid, width, true);
      if (!rows.in.packed || !rows.out.packed) return;
      ReadOnce const once(grid.tiles() * grid.columns * static_cast<std::int64_t>(sizeof(T)), 1, 1);
      auto const start = [&](auto interleaved) {
        using Kernel = PackedRotary<KernelSpace<Exec>, T, decltype(interleaved)::value>;
        std::int64_t const of_head = grid.columns / width / (problem.interleaved ? 1 : 2), all = of_head * grid.tiles();
        launch<Kernel::threads, 8>(KernelLabel{"tessera::rotary_embedding", "packs"}, exec,
                                   (all + Kernel::threads - 1) / Kernel::threads, 0,
                                   Kernel{rows, all, Divisor(of_head), static_cast<int>(pairs), once});
      };
      if (problem.interleaved)
        start(std::true_type{});
      else
        start(std::false_type{});
      started = true;
    });
  }
  return started;
}

template <class Exec>
void run_rotary(Exec const& exec, RotaryProblem const& problem) {
  TileGrid const grid = row_grid(problem.in);
  if (start_packed_rotary(exec, problem, grid)) return;
  RotaryRows const rows = rotary_rows(problem, grid, 1, false);
  auto const start = [&](auto kernel) { for_each_index("tessera::rotary_embedding", exec, problem.in.rows(), kernel); };
  std::int64_t const pairs = problem.cosine.extent[3];
  using Space = KernelSpace<Exec>;
  bool const doubles = any_is_double(problem.in, problem.out);
  if constexpr (Machine<Exec>::is_host)
    if (!doubles && rows.in.column == 1 && rows.out.column == 1 && problem.cosine.stride[3] == 1 &&
        problem.sine.stride[3] == 1) {
      if (problem.interleaved)
        start(HostRotary<true>{rows, pairs, grid.columns, problem.sine.stride[2]});
      else
        start(HostRotary<false>{rows, pairs, grid.columns, problem.sine.stride[2]});
      return;
    }
  if (doubles)
    start(RotaryKernel<Space, double>{rows, pairs, grid.columns, problem.cosine.stride[3], problem.sine.stride[3],
                                      problem.sine.stride[2], problem.interleaved});
  else
    start(RotaryKernel<Space, float>{rows, pairs, grid.columns, problem.cosine.stride[3], problem.sine.stride[3],
                                     problem.sine.stride[2], problem.interleaved});
}

}  // namespace tessera::detail

#endif
