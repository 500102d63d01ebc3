// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ELEMENT_CORE_TRANSFORM_HPP
#define TESSERA_ELEMENT_CORE_TRANSFORM_HPP

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/element/common_rows.hpp>
#include <tessera/element/convert.hpp>
#include <tessera/element/dimensions.hpp>
#include <tessera/element/draws.hpp>
#include <tessera/element/leaves.hpp>
#include <tessera/element/magnitude.hpp>
#include <tessera/element/strip.hpp>
#include <tessera/element/transform_data.hpp>
#include <tessera/element/word_pairs.hpp>
#include <tessera/elementary.hpp>
#include <tessera/functor_traits.hpp>
#include <tessera/narrow_functors.hpp>
#include <tessera/streaming.hpp>
#include <tessera/strip_rounding.hpp>
#include <tessera/types.hpp>

namespace tessera::detail {

/// On machines of few threads with vector units a thread has a run of elements and works on it in strips, gathered
/// and converted into arrays that loops vectorise over and that stay in the first-level cache.
template <class F, class To, class... From>
struct RunTransform {
  using Operands = Elements<F, To, From...>;
  using Real = typename Operands::Real;
  static constexpr int operands = Operands::operands;
  static constexpr bool vectorises = true;
  /// Whether a strip is asked for its largest magnitudes, which another text of the functor may do for: that for usual
  /// arguments, else that for moderate ones.
  static constexpr bool has_usual = Operands::may_be_usual && usual_by_magnitude_v<F>;
  static constexpr bool asks = (has_usual || Operands::may_be_moderate) &&
                               ((std::is_same_v<From, float> || (narrow_type<From> && sizeof(From) == 2)) && ...);
  /// Whether inputs may be taken as words of two.
  static constexpr bool has_words =
      has_word_pairs && !Operands::indexed && std::is_same_v<To, bf16_t> && (std::is_same_v<From, bf16_t> && ...);
  static constexpr int strip = 256;  // 8 inputs of fp32 take 8 KB
  // Elements per index, so that the start of a run and waiting for streamed results behind it cost nothing.
  static constexpr std::int64_t run = 8192;
  // Strips before it is worked on a strip of an input larger than the caches is asked for: processors fetch ahead of
  // the reads that they have begun, which are few while they compute.
  static constexpr int strips_ahead = 8;

  template <class T>
  struct Strip {
    T value[strip];  // (strip)
  };

  Operands elements;
  Dimensions<operands> dims;
  CommonRows<operands, Operands::inputs> rows;
  std::int64_t total;
  bool streamed = false;  // results go past the caches
  bool may_ask = has_usual || has_moderate_texts();

  RunTransform(Operands const& o, Dimensions<operands> const& d) : elements(o), dims(d), rows(d), total(d.size()) {
    may_stream(std::index_sequence_for<From...>{});
  }

  std::int64_t threads() const { return (total + run - 1) / run; }

  KOKKOS_FUNCTION void operator()(std::int64_t thread) const {
    std::int64_t left = total - thread * run < run ? total - thread * run : run;
    std::int64_t at[max_dimensions], offset[operands] = {};
    std::int64_t rest = thread * run;
    for (int d = 0; d < dims.rank; ++d) {
      at[d] = rest % dims.extent[d];
      rest /= dims.extent[d];
      for (int o = 0; o < operands; ++o) offset[o] += at[d] * dims.stride[o][d];
    }
    work_on_run(left, at, offset, std::index_sequence_for<From...>{});
    if (streamed) streaming_done();
  }

 private:
  using Inputs = Leaves<From const*...>;

  /// Short rows are strips together, for which the rows that they have in common are repeated once.
  template <std::size_t... I>
  KOKKOS_FUNCTION void work_on_run(std::int64_t left, std::int64_t* at, std::int64_t* offset,
                                   std::index_sequence<I...> inputs) const {
    std::int64_t const length = dims.extent[0], joined = rows.any && 2 * length <= strip ? strip / length : 0;
    [[maybe_unused]] Leaves<Strip<From>...> repeated;
    if (joined > 0) (repeat(rows.has(I), leaf<I>(elements.in), length, joined, leaf<I>(repeated)), ...);
    while (left > 0) {
      bool const several = joined > 0 && at[0] == 0 && left >= joined * length;
      std::int64_t const row = several ? joined * length : length - at[0];
      int const n = static_cast<int>(row < strip ? (row < left ? row : left) : (left < strip ? left : strip));
      Inputs const from = {
          {several && rows.has(I) ? leaf<I>(repeated).value : leaf<I>(elements.in) + offset[I + 1]}...};
      work(n, from, offset, inputs);
      left -= n;
      if (several)
        advance_rows(joined, at, offset);
      else
        advance(n, at, offset);
    }
  }

  template <class T>
  KOKKOS_FUNCTION static void repeat(bool common, T const* row, std::int64_t length, std::int64_t times,
                                     Strip<T>& copy) {
    if (!common) return;
    for (std::int64_t r = 0; r < times; ++r)
      for (std::int64_t j = 0; j < length; ++j) copy.value[r * length + j] = row[j];
  }

  /// With the inputs, which lie elsewhere, results are larger than the caches.
  template <std::size_t... I>
  void may_stream(std::index_sequence<I...>) {
    auto const bytes = [&](std::size_t size, int operand) {
      bool const repeated = dims.stride[operand][dims.rank - 1] == 0;
      return repeated ? 0 : total * static_cast<std::int64_t>(size);
    };
    streamed = dims.stride[0][0] == 1 && reinterpret_cast<std::uintptr_t>(elements.out) % line_of_memory == 0 &&
               ((static_cast<void const*>(leaf<I>(elements.in)) != elements.out) && ...) &&
               worth_streaming((bytes(sizeof(To), 0) + ... + bytes(sizeof(From), I + 1)));
  }

  KOKKOS_FUNCTION void advance(int n, std::int64_t* at, std::int64_t* offset) const {
    at[0] += n;
    for (int o = 0; o < operands; ++o) offset[o] += n * dims.stride[o][0];
    for (int d = 0; d + 1 < dims.rank && at[d] == dims.extent[d]; ++d) {
      at[d] = 0;
      ++at[d + 1];
      for (int o = 0; o < operands; ++o) offset[o] += dims.stride[o][d + 1] - dims.extent[d] * dims.stride[o][d];
    }
  }

  KOKKOS_FUNCTION void advance_rows(std::int64_t n, std::int64_t* at, std::int64_t* offset) const {
    at[1] += n;
    for (int o = 0; o < operands; ++o) offset[o] += n * dims.stride[o][1];
  }

  template <class T>
  KOKKOS_FUNCTION static void fetch(T const* from, std::int64_t by) {
    if (by == 1) fetch_ahead(from + strips_ahead * strip, strip * sizeof(T));
  }

  /// Input elements as the functor takes them: where they are if that is their stored form, else copied to `strip`.
  template <class T>
  KOKKOS_FUNCTION static Widened<Real, T> const* gather(int n, T const* from, std::int64_t by,
                                                        Strip<Widened<Real, T>>& copy) {
    if constexpr (std::is_same_v<T, Widened<Real, T>>) {
      if (by == 1) return from;
    }
    read_strip(from, by, n, copy.value);
    return copy.value;
  }

  template <std::size_t... I>
  KOKKOS_FUNCTION void work(int n, Inputs const& from, std::int64_t const* offset,
                            std::index_sequence<I...> inputs) const {
    if (streamed) (fetch(leaf<I>(from), rows.has(I) ? 0 : dims.stride[I + 1][0]), ...);
    if constexpr (asks)
      if (may_ask && other_text_does<I...>(n, from)) return work_by(other_text(), n, from, offset, inputs);
    work_by(elements.f, n, from, offset, inputs);
  }

  template <class G, std::size_t... I>
  KOKKOS_FUNCTION void work_by(G const& f, int n, Inputs const& from, std::int64_t const* offset,
                               std::index_sequence<I...>) const {
    // The result goes through an array of its own: the output may be one of the inputs, which must not stop the
    // compiler from vectorising.
    using Result = decltype(call(f, std::int64_t{}, std::declval<Widened<Real, From>>()...));
    using Stored = std::conditional_t<narrow_type<To> && std::is_same_v<Result, float>, float, To>;
    Strip<Stored> result;
    [[maybe_unused]] bool const whole = ((dims.stride[I + 1][0] == 1) && ...);
    if constexpr (has_words && std::is_same_v<Stored, float>) {
      if (whole && dims.stride[0][0] == 1 && n % 2 == 0) {
        apply_to_pairs(f, n / 2, result.value, result.value + strip / 2, leaf<I>(from)...);
        return write_pairs(result.value, result.value + strip / 2, n / 2, elements.out + offset[0], streamed);
      }
    }
    std::int64_t first = 0, by = 0;
    if constexpr (Operands::indexed) {
      first = offset[operands - 1];
      by = dims.stride[operands - 1][0];
    }
    [[maybe_unused]] Leaves<Strip<Widened<Real, From>>...> copies;
    // Usual elements are widened in the same loop: two vectors in turn of what takes long to come of each.
    if (asks && whole)
      apply(f, n, first, by, result.value, leaf<I>(from)...);
    else
      apply(f, n, first, by, result.value, gather(n, leaf<I>(from), dims.stride[I + 1][0], leaf<I>(copies))...);
    store(result, n, elements.out + offset[0]);
  }

  template <class Stored>
  KOKKOS_FUNCTION void store(Strip<Stored> const& result, int n, To* out) const {
    if (!streamed) return write_strip(result.value, n, out, dims.stride[0][0]);
    if constexpr (std::is_same_v<Stored, To>) {
      stream(out, result.value, n * sizeof(To));
    } else {
      if (RoundStrip const round = streamed_rounding<To>(); round != nullptr) return round(result.value, n, out);
      Strip<To> rounded;
      write_strip(result.value, n, rounded.value, 1);
      stream(out, rounded.value, n * sizeof(To));
    }
  }

  KOKKOS_INLINE_FUNCTION auto other_text() const {
    if constexpr (has_usual)
      return for_usual(elements.f);
    else
      return for_moderate(elements.f);
  }
  /// Whether it does for a whole strip, by the largest magnitudes; of rows in common first by those of the whole row,
  /// which are known.
  template <std::size_t... I>
  KOKKOS_FUNCTION bool other_text_does(int n, Inputs const& from) const {
    if (((dims.stride[I + 1][0] != 0 && dims.stride[I + 1][0] != 1) || ...)) return false;
    auto const largest = [&](std::size_t i, auto const* x, auto const* row, bool known) TESSERA_INLINE_LAMBDA {
      if (known && rows.has(i)) return __builtin_bit_cast(float, rows.largest_magnitude_of(i, row, dims.extent[0]));
      return __builtin_bit_cast(float, largest_magnitude(x, dims.stride[i + 1][0] == 0 ? 1 : n));
    };
    auto const does = [&](auto... magnitudes) TESSERA_INLINE_LAMBDA {
      if constexpr (has_usual)
        return usual(elements.f, magnitudes...);
      else
        return moderate(elements.f, magnitudes...);
    };
    if (rows.knows_magnitudes && does(largest(I, leaf<I>(from), leaf<I>(elements.in), true)...)) return true;
    return does(largest(I, leaf<I>(from), leaf<I>(elements.in), false)...);
  }

  /// f of n pairs of neighbours (word_pairs.hpp).
  template <class G, class... X>
  KOKKOS_INLINE_FUNCTION static void apply_to_pairs(G const& f, int n, float* KOKKOS_RESTRICT first,
                                                    float* KOKKOS_RESTRICT second, X const*... x) {
    for (int j = 0; j < n; ++j) {
      first[j] = f(first_of_pair(word_of_pair(x, j))...);
      second[j] = f(second_of_pair(word_of_pair(x, j))...);
    }
  }

  template <class G, class Stored, class... X>
  KOKKOS_INLINE_FUNCTION static void apply(G const& f, int n, std::int64_t first, std::int64_t by,
                                           Stored* KOKKOS_RESTRICT result, X const*... x) {
    if constexpr (draws_words_v<G>) {
      if (by == 1) {
        Draws<strip> draws;
        std::uint32_t const* const words = draws(f.seed(), f.offset(), static_cast<std::uint64_t>(first), n);
        for (int j = 0; j < n; ++j) result[j] = round_to<Stored>(f.drawn(words[j], widen<Real>(x[j])...));
        return;
      }
    }
    for (int j = 0; j < n; ++j) result[j] = round_to<Stored>(call(f, first + j * by, widen<Real>(x[j])...));
  }
};

}  // namespace tessera::detail

#endif
