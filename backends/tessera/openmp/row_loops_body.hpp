// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_ROW_LOOPS_BODY_HPP
#define TESSERA_OPENMP_ROW_LOOPS_BODY_HPP

// Included by one source per instruction set, each compiled for its own. No standard header here: an inline function
// compiled for AVX-512 and merged by the linker would run on processors without it.
#include <cstdint>

#include <tessera/openmp/row_loops.hpp>

namespace {

using tessera::detail::openmp::RowAhead;
using tessera::detail::openmp::RowLoops;

// `Simd` is the instruction set: `Vector` of `lanes` fp32 numbers with operators, and what is said where it is used.
// A `Type` of elements has `size` bytes each, and reads and writes two vectors of them at a time, in an order of its
// own.

/// Two vectors, so that 16-bit elements fill one, and chains of additions are two.
template <class Simd>
struct Two {
  typename Simd::Vector a, b;
};

/// The loops for one type of element.
template <class Simd, class Type>
struct Loops {
  using Vector = typename Simd::Vector;
  using Pair = Two<Simd>;
  static constexpr int lanes = Simd::lanes, step = 2 * lanes, size = Type::size;
  static constexpr int step_bytes = step * size;

  static char const* at(void const* x, std::int64_t i) { return static_cast<char const*>(x) + i * size; }
  static char* at(void* x, std::int64_t i) { return static_cast<char*>(x) + i * size; }

  /// Lines of the next row that lie where those of this step do in theirs.
  static void fetch(RowAhead const& ahead, std::int64_t i) {
    std::int64_t const first = i * size;
    for (int line = 0; line < step_bytes; line += 64)
      if (first + line < ahead.bytes) __builtin_prefetch(ahead.from + first + line, 0, 2);
  }

  /// The elements from i on of which `count` are there; `fill` in place of the others.
  static Pair part(void const* x, std::int64_t i, int count, float fill) {
    alignas(64) char all[step_bytes];
    Type::store({Vector{} + fill, Vector{} + fill}, all);
    char const* const from = at(x, i);
    for (int byte = 0; byte < count * size; ++byte) all[byte] = from[byte];
    return Type::load(all);
  }
  static void store_part(Pair const& v, void* y, std::int64_t i, int count) {
    alignas(64) char all[step_bytes];
    Type::store(v, all);
    char* const to = at(y, i);
    for (int byte = 0; byte < count * size; ++byte) to[byte] = all[byte];
  }

  /// f(pair, i) for all steps of a row; elements beyond its end are `fill`.
  template <class F>
  static void each(void const* x, std::int64_t count, float fill, RowAhead const& ahead, F const& f) {
    std::int64_t i = 0;
    for (; i + step <= count; i += step) {
      fetch(ahead, i);
      f(Type::load(at(x, i)), i);
    }
    if (i < count) f(part(x, i, static_cast<int>(count - i), fill), i);
  }
  /// y = f(pair, i), pairs of x or of what f finds itself.
  template <class Read, class F>
  static void map(Read const& read, std::int64_t count, void* y, bool streamed, RowAhead const& ahead, F const& f) {
    std::int64_t i = 0;
    if (streamed) {
      for (; i + step <= count; i += step) {
        fetch(ahead, i);
        Type::stream(f(read(i, step), i), at(y, i));
      }
    } else {
      for (; i + step <= count; i += step) {
        fetch(ahead, i);
        Type::store(f(read(i, step), i), at(y, i));
      }
    }
    if (i < count) store_part(f(read(i, static_cast<int>(count - i)), i), y, i, static_cast<int>(count - i));
  }
  /// How map() reads a row of elements.
  static auto reader(void const* x) {
    return [x](std::int64_t i, int count) { return count == step ? Type::load(at(x, i)) : part(x, i, count, 0); };
  }

  static float largest(void const* x, std::int64_t count, RowAhead ahead) {
    constexpr float lowest = -__builtin_inff();
    Vector top = Vector{} + lowest, other = top;
    each(x, count, lowest, ahead, [&](Pair const& v, std::int64_t) {
      top = Simd::larger(v.a, top);
      other = Simd::larger(v.b, other);
    });
    return Simd::largest(Simd::larger(top, other));
  }

  static float exponentials(void const* x, std::int64_t count, float scale, float top, float* room, RowAhead ahead) {
    typename Type::Exponential const exponential(scale, top);
    Vector sum{}, other{};
    // Beyond the end e^-Inf, nothing.
    auto const run = [&](auto const& keep) {
      each(x, count, -__builtin_inff(), ahead, [&](Pair const& v, std::int64_t i) {
        Vector const a = exponential(v.a), b = exponential(v.b);
        sum += a;
        other += b;
        keep(Pair{a, b}, i);
      });
    };
    if (room != nullptr)
      run([room](Pair const& e, std::int64_t i) {
        Simd::write(e.a, room + i);
        Simd::write(e.b, room + i + lanes);
      });
    else
      run([](Pair const&, std::int64_t) {});
    return Simd::sum(sum + other);
  }

  static void scaled(float const* room, std::int64_t count, float factor, void* y, bool streamed, RowAhead ahead) {
    auto const read = [room](std::int64_t i, int) { return Pair{Simd::read(room + i), Simd::read(room + i + lanes)}; };
    map(read, count, y, streamed, ahead, [factor](Pair const& v, std::int64_t) {
      return Pair{v.a * factor, v.b * factor};
    });
  }

  static void shifted(void const* x, std::int64_t count, float scale, float top, float rest, void* y, bool streamed,
                      RowAhead ahead) {
    map(reader(x), count, y, streamed, ahead, [=](Pair const& v, std::int64_t) {
      return Pair{(v.a * scale - top) - rest, (v.b * scale - top) - rest};
    });
  }

  static float sum(void const* x, std::int64_t count, RowAhead ahead) {
    Vector all{}, other{};
    each(x, count, 0, ahead, [&](Pair const& v, std::int64_t) {
      all += v.a;
      other += v.b;
    });
    return Simd::sum(all + other);
  }

  static float squares(void const* x, std::int64_t count, float center, RowAhead ahead) {
    Vector all{}, other{};
    auto const take = [&](Pair const& v, std::int64_t) {
      Vector const a = v.a - center, b = v.b - center;
      all += a * a;
      other += b * b;
    };
    // What fills up the last step is the center, whose difference is nothing, where that is a number of the type.
    std::int64_t const whole = count / step * step;
    each(x, whole, 0, ahead, take);
    if (whole < count) {
      int const left = static_cast<int>(count - whole);
      Pair const v = part(x, whole, left, 0);
      Pair const there = part_of_ones(left);
      Vector const a = (v.a - center) * there.a, b = (v.b - center) * there.b;
      all += a * a;
      other += b * b;
    }
    return Simd::sum(all + other);
  }
  /// 1 for the elements that a last step has, 0 for the others.
  static Pair part_of_ones(int count) {
    alignas(64) char ones[step_bytes];
    Type::store({Vector{} + 1.0f, Vector{} + 1.0f}, ones);
    return part(ones, 0, count, 0);
  }

  static float add(void const* x, void const* added, std::int64_t count, void* sum, RowAhead ahead) {
    Vector all{}, other{};
    auto const both = [](Pair const& v, Pair const& w) { return Pair{v.a + w.a, v.b + w.b}; };
    std::int64_t i = 0;
    for (; i + step <= count; i += step) {
      fetch(ahead, i);
      Pair const stored = Type::store_rounded(both(Type::load(at(x, i)), Type::load(at(added, i))), at(sum, i));
      all += stored.a;
      other += stored.b;
    }
    if (i < count) {
      int const left = static_cast<int>(count - i);
      alignas(64) char room[step_bytes];
      Pair const stored = Type::store_rounded(both(part(x, i, left, 0), part(added, i, left, 0)), room);
      store_part(stored, sum, i, left);
      all += stored.a;
      other += stored.b;
    }
    return Simd::sum(all + other);
  }

  static void normalise(void const* x, std::int64_t count, float center, float factor, void const* weight,
                        void const* bias, void* y, bool streamed, RowAhead ahead) {
    auto const read = reader(x), weights = reader(weight), biases = reader(bias);
    auto const run = [&](auto const& finish) {
      map(read, count, y, streamed, ahead, [&](Pair const& v, std::int64_t i) {
        int const here = count - i < step ? static_cast<int>(count - i) : step;
        return finish(Pair{(v.a - center) * factor, (v.b - center) * factor}, i, here);
      });
    };
    if (bias != nullptr)
      run([&](Pair const& v, std::int64_t i, int here) {
        Pair const w = weights(i, here), b = biases(i, here);
        return Pair{v.a * w.a + b.a, v.b * w.b + b.b};
      });
    else if (weight != nullptr)
      run([&](Pair const& v, std::int64_t i, int here) {
        Pair const w = weights(i, here);
        return Pair{v.a * w.a, v.b * w.b};
      });
    else
      run([](Pair const& v, std::int64_t, int) { return v; });
  }

  static constexpr RowLoops table{largest, exponentials, scaled, shifted, sum, squares, add, normalise};
};

/// e^(scale x - top), 0 for x = -Inf: scale x - top = k ln 2 + r, |r| <= ln 2 / 2, ln 2 in two parts (W. J. Cody, W.
/// Waite, "Software Manual for the Elementary Functions", 1980), a polynomial of degree 7 in r (the coefficients of
/// Cephes' expf), and 2^k, subnormal results included.
template <class Simd>
struct Exponential {
  using Vector = typename Simd::Vector;
  float scale, top;
  Exponential(float s, float t) : scale(s), top(t) {}
  Vector operator()(Vector x) const {
    Vector const y = Simd::at_least(x * scale - top, -104.0f);
    Vector const k = Simd::nearest(y * 1.44269504088896341f);
    Vector const r = (y - k * 0.693359375f) - k * -2.12194440e-4f;
    Vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return Simd::times_power(p, k);
  }
};

/// The same as 2^(x scale log2 e - top log2 e) with a polynomial of degree 5 (least relative error on [-1/2, 1/2]:
/// 9.2e-8), where the rounding of the argument does no harm to what is stored in 16 bits.
template <class Simd>
struct ShortExponential {
  using Vector = typename Simd::Vector;
  float scale, top;
  ShortExponential(float s, float t) : scale(s * 1.44269504088896341f), top(t * 1.44269504088896341f) {}
  Vector operator()(Vector x) const {
    Vector const y = Simd::at_least(x * scale - top, -150.0f);
    Vector const k = Simd::nearest(y), r = y - k;
    Vector p = r * 1.326472863e-3f + 9.671513727e-3f;
    p = p * r + 5.550733750e-2f;
    p = p * r + 2.402224207e-1f;
    p = p * r + 6.931469776e-1f;
    p = p * r + 1.0f;
    return Simd::times_power(p, k);
  }
};

}  // namespace

#endif
