// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_SCORE_HPP
#define TESSERA_SCORE_HPP

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/dual.hpp>
#include <tessera/elementary.hpp>
#include <tessera/error.hpp>

/// Changes to attention scores before the softmax. A score functor is trivially copyable,
///
///     template <class T> KOKKOS_FUNCTION T operator()(T s, int b, int h, int i, int j) const;
///
/// called with the scaled score s of query i and key j in batch b and query head h, for every visible pair; what it
/// returns goes into the softmax, −∞ hiding the key. It may be asked about other pairs of a query and a key that there
/// are as well, and then nobody looks at what it returns; if it says `static constexpr bool anywhere = true`, about any
/// i and j whatever. What is the same for all scores of a head need not be found
/// for each of them: it may also have
///
///     template <class T> KOKKOS_FUNCTION auto prepare(int b, int h) const;
///
/// which is called once a tile of queries, and whose result f is called in its place as f(s, i, j). Where f only adds
/// to scores, it may say so with one of
///
///     KOKKOS_FUNCTION bool adds_constant(int i_begin, int i_end, int j_begin, int j_end, T& c) const;
///     KOKKOS_FUNCTION score::Plane<T> plane(int i, int j) const;
///     KOKKOS_FUNCTION bool has_pairs() const;
///     KOKKOS_FUNCTION score::Pair<E> pair(int i, int j) const;
///
/// the first true if one number c is added to all scores of that rectangle; the second what is added to those of
/// queries from i and keys from j on, of any number; the third what is added to the scores of the keys j and j + 1, j
/// being even, in 16 bits each. Each is asked in place of f(s, i, j). Where
/// f(s, i, j) is a function of s alone that is simpler for small s,
///
///     static constexpr int nears;
///     template <int Which> KOKKOS_FUNCTION auto near(T scale, T unit) const;
///
/// give such functions n for Which from 0 to nears - 1, simple ones first: unit·f(x·scale, i, j) - y is n.minus(x, y),
/// where n.covers(the largest |x| of some). So does whole(scale, unit) for all x. Without y it is odd in x and grows
/// with it.
///
/// attention_backward() needs the derivative of what is returned with respect to s. A functor that only adds to scores
/// says `static constexpr bool only_adds = true`; another may have
///
///     template <class T> KOKKOS_FUNCTION T slope(T s, int b, int h, int i, int j) const;
///
/// and one that takes any T is differentiated by calling it with a Dual number, see dual.hpp. What prepare() returns
/// may have both in one,
///
///     KOKKOS_FUNCTION Dual<T> with_slope(T s, int i, int j) const;
namespace tessera::score {

/// What is added to the score of query i + r and key j + c: at + r·per_query + c·per_key.
template <class T>
struct Plane {
  T at, per_query, per_key;
};
/// Two neighbours of bf16_t or fp16_t.
template <class E>
struct alignas(4) Pair {
  E first, second;
};

/// Leaves the scores as they are.
struct Identity {
  template <class T>
  KOKKOS_FUNCTION T operator()(T s, int, int, int, int) const {
    return s;
  }
};

/// A score whose kernel can drop weights, as AttentionOptions::dropout says: for callers' own scores and masks, which
/// are compiled into the kernel.
template <class Score>
struct WithDropout {
  Score own;
};
template <class Score = Identity>
WithDropout<Score> with_dropout(Score const& score = {}) {
  return {score};
}

/// limit·tanh(s / limit), as Gemma 2 bounds its scores; limit is positive. For float the error is at most limit·2^-20.
/// Where scores are up to 0.15 limit or limit / 2 it is a polynomial, which takes attention less time.
struct SoftCap {
  static constexpr bool anywhere = true;
  double limit;

  /// Of |s| <= reach·limit: tanh z = z (c0 + c1 z^2 + ...), the least of all such polynomials in their largest error,
  /// 2^-20.6 of two terms and 2^-22.9 of four.
  template <int Terms>
  struct Near {
    static constexpr float reach = Terms == 2 ? 0.15f : 0.5f;
    float factor_of_z, c[Terms];
    KOKKOS_FUNCTION bool covers(float largest) const { return largest * factor_of_z <= reach; }
    KOKKOS_FUNCTION float minus(float x, float y) const {
      float const u = x * x;
      float sum = c[Terms - 1];
      for (int k = Terms - 2; k >= 0; --k) sum = c[k] + u * sum;
      return x * sum - y;
    }
  };
  /// Of all s: tanh z = 1 - 2 / (e^2z + 1), see tanh_by_exponential().
  struct Whole {
    float exponent, limit;
    KOKKOS_FUNCTION float minus(float x, float y) const {
      float const e = detail::exp2_approximate(x * exponent);
      return (limit - y) - 2.0f * limit * detail::reciprocal_approximate(e + 1.0f);
    }
  };
  template <class T>
  struct OfHead {
    T limit, reciprocal;
    KOKKOS_FUNCTION Whole whole(float scale, float unit) const requires std::is_same_v<T, float> {
      return {scale * reciprocal * 2.8853900817779268f, limit * unit};
    }
    static constexpr int nears = 2;
    template <int Which>
    KOKKOS_FUNCTION auto near(float scale, float unit) const requires std::is_same_v<T, float> {
      float const z = scale * reciprocal, u = z * z, c0 = scale * unit, c1 = c0 * u;
      if constexpr (Which == 0)
        return Near<2>{z, {c0 * 0.9999792f, c1 * -0.32962054f}};
      else
        return Near<4>{z, {c0 * 0.999997675f, c1 * -0.333206564f, c1 * u * 0.131451458f, c1 * u * u * -0.0433724821f}};
    }
    KOKKOS_FUNCTION T operator()(T s, int, int) const {
      if constexpr (std::is_same_v<T, float>)
        return limit * detail::tanh_by_exponential(s * reciprocal);
      else
        return limit * Kokkos::tanh(s * reciprocal);
    }
    /// limit tanh(s / limit) and 1 - tanh^2
    KOKKOS_FUNCTION Dual<T> with_slope(T s, int, int) const {
      T bounded;
      if constexpr (std::is_same_v<T, float>)
        bounded = detail::tanh_by_exponential(s * reciprocal);
      else
        bounded = Kokkos::tanh(s * reciprocal);
      return {limit * bounded, 1 - bounded * bounded};
    }
  };
  template <class T>
  KOKKOS_FUNCTION OfHead<T> prepare(int, int) const {
    if constexpr (std::is_same_v<T, float>)
      return {T(limit), detail::reciprocal_approximate(T(limit))};
    else
      return {T(limit), 1 / T(limit)};
  }
  template <class T>
  KOKKOS_FUNCTION T slope(T s, int b, int h, int i, int j) const {
    return prepare<T>(b, h).with_slope(s, i, j).slope;
  }
  template <class T>
  KOKKOS_FUNCTION T operator()(T s, int b, int h, int i, int j) const {
    return prepare<T>(b, h)(s, i, j);
  }
};

/// Attention with linear biases (Press, Smith and Lewis 2022): s + slope(h)·(j − i − offset), where offset aligns the
/// last query with the last key (keys − queries).
template <class V>
struct Alibi {
  static constexpr bool anywhere = true, few_registers = true, only_adds = true;
  V slopes;
  int offset = 0;

  template <class T>
  struct OfHead {
    T slope;
    int offset;
    KOKKOS_FUNCTION T operator()(T s, int i, int j) const { return s + slope * static_cast<T>(j - i - offset); }
    KOKKOS_FUNCTION Plane<T> plane(int i, int j) const {
      return {slope * static_cast<T>(j - i - offset), -slope, slope};
    }
  };
  template <class T>
  KOKKOS_FUNCTION OfHead<T> prepare(int, int h) const {
    return {static_cast<T>(slopes(h)), offset};
  }
  template <class T>
  KOKKOS_FUNCTION T operator()(T s, int b, int h, int i, int j) const {
    return prepare<T>(b, h)(s, i, j);
  }
};
template <class V>
Alibi<V> alibi(V const& slopes, int offset = 0) {
  static_assert(V::rank() == 1, "ALiBi slopes are a View of rank 1: one a head");
  return {slopes, offset};
}

/// Biases by distance, as T5 has them (Raffel et al. 2020): s + table(h, clamp(j − i − offset, −most, most) + most),
/// where offset aligns the last query with the last key (keys − queries). A table of one row serves all heads. Buckets
/// of distances are entries of the table that are alike.
template <class V>
struct RelativeBias {
  static constexpr bool anywhere = true, few_registers = true, only_adds = true;
  V table;
  int offset = 0;

  template <class T>
  struct OfHead {
    typename V::const_value_type* middle;
    std::int64_t stride;
    int most, offset;
    T least, largest;  // of the ends
    KOKKOS_FUNCTION T operator()(T s, int i, int j) const { return s + by_distance(j - i); }
    KOKKOS_FUNCTION T by_distance(int keys_less_query) const { return at(keys_less_query - offset); }
    KOKKOS_FUNCTION bool adds_constant(int i_begin, int i_end, int j_begin, int j_end, T& c) const {
      int const from = j_begin - i_end + 1 - offset, to = j_end - 1 - i_begin - offset;
      c = from >= most ? largest : least;
      return from >= most || to <= -most;
    }

   private:
    KOKKOS_FUNCTION T at(int distance) const {
      int const place = distance < -most ? -most : (distance > most ? most : distance);
      if constexpr (std::is_same_v<typename V::array_layout, Kokkos::LayoutRight>)
        return static_cast<T>(middle[place]);
      else
        return static_cast<T>(middle[place * stride]);
    }
  };
  template <class T>
  KOKKOS_FUNCTION OfHead<T> prepare(int, int h) const {
    int const most = static_cast<int>(table.extent(1)) / 2;
    int const row = table.extent(0) == 1 ? 0 : h;
    return {&table(row, most),
            static_cast<std::int64_t>(table.stride(1)),
            most,
            offset,
            static_cast<T>(table(row, 0)),
            static_cast<T>(table(row, 2 * most))};
  }
  template <class T>
  KOKKOS_FUNCTION T operator()(T s, int b, int h, int i, int j) const {
    return prepare<T>(b, h)(s, i, j);
  }
};
/// @throws Error{extent} the table has not an odd number of distances
template <class V>
RelativeBias<V> relative_bias(V const& table, int offset = 0) {
  static_assert(V::rank() == 2, "a relative bias is a View of rank 2: head, distance");
  if (table.extent(1) % 2 == 0)
    throw Error(ErrorCode::extent, "tessera::score::relative_bias: the table has " + std::to_string(table.extent(1)) +
                                       " distances, which are not those from -n to n");
  return {table, offset};
}

/// s + values(b, h, i, j); extents of 1 are shared. Values of 16 bits whose keys lie side by side, in rows that begin
/// at multiples of 4 bytes, are read in pairs.
template <class V>
struct AdditiveBias {
  static constexpr bool only_adds = true;
  V values;

  template <class T>
  struct OfHead {
    typename V::const_value_type* first;
    std::int64_t query_stride, key_stride;
    KOKKOS_FUNCTION T operator()(T s, int i, int j) const {
      return s + static_cast<T>(first[i * query_stride + j * key_stride]);
    }
    KOKKOS_FUNCTION bool has_pairs() const {
      return key_stride == 1 && query_stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(first) % 4 == 0;
    }
    KOKKOS_FUNCTION auto pair(int i, int j) const requires(sizeof(typename V::value_type) == 2) {
      auto const both = *reinterpret_cast<std::uint32_t const*>(first + i * query_stride + j);  // in one access
      return Kokkos::bit_cast<Pair<typename V::non_const_value_type>>(both);
    }
  };
  template <class T>
  KOKKOS_FUNCTION OfHead<T> prepare(int b, int h) const {
    auto const stride = [&](int k) { return values.extent(k) == 1 ? 0 : static_cast<std::int64_t>(values.stride(k)); };
    return {values.data() + b * stride(0) + h * stride(1), stride(2), stride(3)};
  }
  template <class T>
  KOKKOS_FUNCTION T operator()(T s, int b, int h, int i, int j) const {
    return prepare<T>(b, h)(s, i, j);
  }
};
template <class V>
AdditiveBias<V> additive_bias(V const& values) {
  static_assert(V::rank() == 4, "an additive bias is a View of rank 4: batch, head, query, key");
  return {values};
}

}  // namespace tessera::score

#endif
