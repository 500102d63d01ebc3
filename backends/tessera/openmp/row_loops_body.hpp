// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_OPENMP_ROW_LOOPS_BODY_HPP
#define TESSERA_OPENMP_ROW_LOOPS_BODY_HPP

// Included by one source per instruction set, each compiled for its own. No standard header here: an inline function
// compiled for AVX-512 and merged by the linker would run on processors without it.
#include <cstdint>

#include <tessera/openmp/row_loops.hpp>

namespace {

using tessera::detail::openmp::NormGradientRow;
using tessera::detail::openmp::RowAhead;
using tessera::detail::openmp::RowLoops;
using tessera::detail::openmp::RowSums;

// `Simd` is the instruction set: `Vector` of `lanes` fp32 numbers with operators, and what is said where it is used.
// A `Type` of elements has `size` bytes each, and reads and writes two vectors of them at a time, in an order of its
// own: place(i) is where element i of these is.

/// Two vectors, so that 16-bit elements fill one, and chains of additions are two.
template <class Simd>
struct Two {
  typename Simd::Vector a, b;
};

template <class Simd>
struct ExponentialBelow;

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
    return sum_of(typename Type::Exponential(scale, top), x, count, room, ahead);
  }
  static float exponentials_below(void const* x, std::int64_t count, float top, float* room, RowAhead ahead) {
    return sum_of(ExponentialBelow<Simd>{top}, x, count, room, ahead);
  }
  template <class Exponential>
  static float sum_of(Exponential const& exponential, void const* x, std::int64_t count, float* room,
                      RowAhead const& ahead) {
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
      run([room](Pair const& e, std::int64_t i) { keep(e, room + i); });
    else
      run([](Pair const&, std::int64_t) {});
    return Simd::sum(sum + other);
  }

  static Pair recall(float const* room) { return {Simd::read(room), Simd::read(room + lanes)}; }
  static void keep(Pair const& v, float* room) {
    Simd::write(v.a, room);
    Simd::write(v.b, room + lanes);
  }

  static void scaled(float const* room, std::int64_t count, float factor, float less, void* y, bool streamed,
                     RowAhead ahead) {
    auto const read = [room](std::int64_t i, int) { return recall(room + i); };
    map(read, count, y, streamed, ahead, [=](Pair const& v, std::int64_t) {
      return Pair{v.a * factor - less, v.b * factor - less};
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

  /// each() of two rows.
  template <class F>
  static void each_of_two(void const* x, float fill, void const* g, std::int64_t count, RowAhead const& ahead,
                          RowAhead const& g_ahead, F const& f) {
    std::int64_t i = 0;
    for (; i + step <= count; i += step) {
      fetch(ahead, i);
      fetch(g_ahead, i);
      f(Type::load(at(x, i)), Type::load(at(g, i)), i);
    }
    int const left = static_cast<int>(count - i);
    if (left > 0) f(part(x, i, left, fill), part(g, i, left, 0), i);
  }

  static RowSums weights(void const* x, void const* g, std::int64_t count, bool given, float scale, float top, bool log,
                         float* room, RowAhead ahead, RowAhead g_ahead) {
    Vector sum{}, other_sum{}, products{}, other_products{};
    auto const run = [&](float fill, auto const& weight, auto const& product) {
      each_of_two(x, fill, g, count, ahead, g_ahead, [&](Pair const& v, Pair const& d, std::int64_t i) {
        Pair const e{weight(v.a), weight(v.b)};
        sum += e.a;
        other_sum += e.b;
        products += product(e.a, d.a);
        other_products += product(e.b, d.b);
        keep(e, room + i);
      });
    };
    typename Type::Exponential const exponential(scale, top);
    constexpr float lowest = -__builtin_inff();  // whose exponential is nothing
    auto const itself = [](Vector v) { return v; };
    if (log)
      run(lowest, exponential, [](Vector, Vector d) { return d; });
    else if (given)
      run(0, itself, [](Vector e, Vector d) { return e * d; });
    else
      run(lowest, exponential, [](Vector e, Vector d) { return e * d; });
    return {Simd::sum(sum + other_sum), Simd::sum(products + other_products)};
  }

  static void weight_gradients(float const* room, void const* g, std::int64_t count, float factor, float total,
                               bool log, void* y, bool streamed) {
    if (log)
      map(reader(g), count, y, streamed, {}, [=](Pair const& d, std::int64_t i) {
        Pair const e = recall(room + i);
        return Pair{factor * (d.a - e.a * total), factor * (d.b - e.b * total)};
      });
    else
      map(reader(g), count, y, streamed, {}, [=](Pair const& d, std::int64_t i) {
        Pair const e = recall(room + i);
        return Pair{factor * e.a * (d.a - total), factor * e.b * (d.b - total)};
      });
  }

  static RowSums norm_sums(void const* x, void const* g, void const* weight, std::int64_t count, float center,
                           float factor, RowAhead ahead, RowAhead added_ahead) {
    Vector sum{}, other_sum{}, products{}, other_products{};
    auto const normal = [=](Pair const& v) { return Pair{(v.a - center) * factor, (v.b - center) * factor}; };
    auto const take = [&](Pair const& n, Pair const& d) {
      sum += d.a;
      other_sum += d.b;
      products += n.a * d.a;
      other_products += n.b * d.b;
    };
    auto const run = [&](auto const& weighted) {
      std::int64_t i = 0;
      for (; i + step <= count; i += step) {
        fetch(ahead, i);
        fetch(added_ahead, i);
        take(normal(Type::load(at(x, i))), weighted(Type::load(at(g, i)), i, step));
      }
      int const left = static_cast<int>(count - i);
      if (left > 0) take(first_of(normal(part(x, i, left, 0)), left), weighted(part(g, i, left, 0), i, left));
    };
    if (weight != nullptr)
      run([weights = reader(weight)](Pair const& d, std::int64_t i, int here) {
        Pair const w = weights(i, here);
        return Pair{d.a * w.a, d.b * w.b};
      });
    else
      run([](Pair const& d, std::int64_t, int) { return d; });
    return {Simd::sum(sum + other_sum), Simd::sum(products + other_products)};
  }
  /// The elements of which `count` are there, 0 in place of the others.
  static Pair first_of(Pair const& v, int count) {
    float all[step];
    keep(v, all);
    for (int i = count; i < step; ++i) all[Type::place(i)] = 0;
    return recall(all);
  }

  static void norm_gradients(NormGradientRow const* rows, int n, std::int64_t count, void const* weight,
                             float* d_weight, float* d_bias, bool streamed) {
    std::int64_t i = 0;
    for (; i + step <= count; i += step)
      norm_step(
          rows, n, i, weight != nullptr ? Type::load(at(weight, i)) : ones(), d_weight, d_bias,
          [=](NormGradientRow const& row, Pair const& y) {
            fetch(row.g_ahead, i);
            streamed ? Type::stream(y, at(row.y, i)) : Type::store(y, at(row.y, i));
          },
          [=](void const* x) { return Type::load(at(x, i)); });
    int const left = static_cast<int>(count - i);
    if (left > 0)
      norm_step(
          rows, n, i, weight != nullptr ? part(weight, i, left, 0) : ones(), d_weight, d_bias,
          [=](NormGradientRow const& row, Pair const& y) { store_part(y, row.y, i, left); },
          [=](void const* x) { return part(x, i, left, 0); });
  }
  static Pair ones() { return {Vector{} + 1.0f, Vector{} + 1.0f}; }
  /// The elements of a step of all rows; what they give to the parameters is in registers meanwhile.
  template <class Store, class Load>
  static void norm_step(NormGradientRow const* rows, int n, std::int64_t i, Pair const& w, float* d_weight,
                        float* d_bias, Store const& store, Load const& load) {
    Pair weights{}, biases{};
    if (d_weight != nullptr) weights = recall(d_weight + i);
    if (d_bias != nullptr) biases = recall(d_bias + i);
    for (int r = 0; r < n; ++r) {
      NormGradientRow const& row = rows[r];
      Pair const x = load(row.x), g = load(row.g);
      Pair const normal{(x.a - row.center) * row.factor, (x.b - row.center) * row.factor};
      weights.a += normal.a * g.a;
      weights.b += normal.b * g.b;
      biases.a += g.a;
      biases.b += g.b;
      Pair y{row.factor * (g.a * w.a - row.mean - normal.a * row.mean_product),
             row.factor * (g.b * w.b - row.mean - normal.b * row.mean_product)};
      if (row.added != nullptr) {
        Pair const added = load(row.added);
        y = {y.a + added.a, y.b + added.b};
      }
      store(row, y);
    }
    if (d_weight != nullptr) keep(weights, d_weight + i);
    if (d_bias != nullptr) keep(biases, d_bias + i);
  }

  static void in_order(float const* room, std::int64_t count, float* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = room[i / step * step + Type::place(static_cast<int>(i % step))];
  }

  static constexpr RowLoops table{
      largest,   exponentials, exponentials_below, scaled,    shifted,        sum,     squares, add,
      normalise, weights,      weight_gradients,   norm_sums, norm_gradients, in_order};
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

/// 2^r, |r| <= 1/2, by a polynomial of degree 5 (least relative error: 9.2e-8).
template <class Simd>
inline typename Simd::Vector power_of_fraction(typename Simd::Vector r) {
  typename Simd::Vector p = r * 1.326472863e-3f + 9.671513727e-3f;
  p = p * r + 5.550733750e-2f;
  p = p * r + 2.402224207e-1f;
  p = p * r + 6.931469776e-1f;
  return p * r + 1.0f;
}

/// The same as 2^(x scale log2 e - top log2 e), where the rounding of the argument does no harm to what is stored in 16
/// bits.
template <class Simd>
struct ShortExponential {
  using Vector = typename Simd::Vector;
  float scale, top;
  ShortExponential(float s, float t) : scale(s * 1.44269504088896341f), top(t * 1.44269504088896341f) {}
  Vector operator()(Vector x) const {
    Vector const y = Simd::at_least(x * scale - top, -150.0f);
    Vector const k = Simd::nearest(y);
    return Simd::times_power(power_of_fraction<Simd>(y - k), k);
  }
};

/// e^(x - top), x <= top, as 2^((x - top) log2 e), whose fraction is found with one rounding: by what x - top, which is
/// rounded once, and log2 e err the result does.
template <class Simd>
struct ExponentialBelow {
  using Vector = typename Simd::Vector;
  static constexpr float log2_e = 1.44269504088896341f;
  float top;
  Vector operator()(Vector x) const {
    Vector const d = Simd::at_least(x - top, -104.0f);
    Vector const k = Simd::nearest(d * log2_e);
    return Simd::times_power(power_of_fraction<Simd>(Simd::product_less(d, log2_e, k)), k);
  }
};

}  // namespace

#endif
