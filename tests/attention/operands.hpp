// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_ATTENTION_OPERANDS_HPP
#define TESSERA_TESTS_ATTENTION_OPERANDS_HPP

#include <tessera/attention.hpp>

#include "reference/attention.hpp"

namespace tessera::test {

inline constexpr auto everything = [](int, int, int) { return true; };
inline constexpr auto unchanged = [](double s, int, int, int, int) { return s; };

/// The keys that causal masks and windows to the left leave.
inline auto left_by(AttentionOptions const& options, AttentionShape z) {
  return [causal = options.causal, left = options.window_left, offset = z.keys - z.queries](int, int i, int j) {
    int const own = i + offset;
    return (!causal || j <= own) && (!left || j >= own - *left);
  };
}

/// Random Q, K and V of a shape, on the host and as Views, and poisoned outputs.
template <class Exec, class T, class TO = T>
struct Operands {
  AttentionShape z;
  std::vector<T> q, k, v;
  ViewOf<Exec, T****> qv, kv, vv;
  ViewOf<Exec, TO****> ov;
  ViewOf<Exec, std::conditional_t<std::is_same_v<T, double>, double, float>***> lse;

  explicit Operands(AttentionShape shape, unsigned seed = 1)
      : z(shape),
        q(uniform<T>(std::size_t(z.batch) * z.heads * z.queries * z.d, seed, -2, 2)),
        k(uniform<T>(std::size_t(z.batch) * z.kv_heads * z.keys * z.d, seed + 1, -2, 2)),
        v(uniform<T>(std::size_t(z.batch) * z.kv_heads * z.keys * z.d_v, seed + 2)),
        qv("Q", z.batch, z.heads, z.queries, z.d),
        kv("K", z.batch, z.kv_heads, z.keys, z.d),
        vv("V", z.batch, z.kv_heads, z.keys, z.d_v),
        ov("O", z.batch, z.heads, z.queries, z.d_v),
        lse("LSE", z.batch, z.heads, z.queries) {
    fill(qv, q);
    fill(kv, k);
    fill(vv, v);
    poison(ov);
    poison(lse);
  }
  AttentionOptions options() const {
    AttentionOptions o;
    if constexpr (std::is_same_v<T, double>)
      o.lse_fp64 = lse;
    else
      o.lse = lse;
    return o;
  }
  /// With as much workspace as is asked for.
  template <class Score = score::Identity>
  void attend(AttentionOptions options, Score const& score = {}) const {
    auto const own = this->options();
    options.lse = own.lse;
    options.lse_fp64 = own.lse_fp64;
    ViewOf<Exec, char*> const workspace("workspace", attention_workspace_size(Exec{}, ov, qv, kv, vv, options, score));
    if (workspace.size() > 0) options.workspace = workspace.data();
    options.workspace_bytes = workspace.size();
    attention(Exec{}, ov, qv, kv, vv, options, score);
  }
  double scale() const { return 1 / std::sqrt(double(z.d)); }
  template <class Visible, class Score>
  void check(Visible const& visible, Score const& score, double factor) const {
    using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
    // Only 16-bit paths round weights, and only on some machines; the bound covers them.
    double const u_p = sizeof(T) == 2 ? 2 * unit_roundoff<T>() : 0;
    auto const r = attention_reference(z, q, k, v, factor, visible, score, unit_roundoff<Compute>(), u_p);
    check_attention(r, values(ov));
    check_lse(r, values(lse));
  }
};

/// The keys that a query sees, without a mask or with a causal one.
constexpr auto seen_by(AttentionShape z, bool causal) {
  return [causal, offset = z.keys - z.queries](int, int i, int j) { return !causal || j <= i + offset; };
}

/// Attention of random operands beside the reference.
template <class Exec, class T>
void check_case(AttentionShape z, bool causal, AttentionAlgorithm algorithm = AttentionAlgorithm::automatic) {
  CAPTURE(z.queries);
  CAPTURE(z.keys);
  CAPTURE(z.d);
  CAPTURE(z.d_v);
  CAPTURE(causal);
  Operands<Exec, T> x(z);
  AttentionOptions options = x.options();
  options.causal = causal;
  options.algorithm = algorithm;
  attention(Exec{}, x.ov, x.qv, x.kv, x.vv, options);
  x.check(seen_by(z, causal), unchanged, x.scale());
}

}  // namespace tessera::test

#endif
