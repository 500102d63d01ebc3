// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ATTENTION_HEAD_SCALES_HPP
#define TESSERA_ATTENTION_HEAD_SCALES_HPP

#include <Kokkos_Macros.hpp>
#include <cstdint>

namespace tessera::detail {

/// What the elements of a head's Q, K and V are times; each may be missing.
struct HeadScales {
  struct Operand {
    float const* data = nullptr;  // (batch, head); a stride of 0: one for all of them
    std::int64_t batch_stride = 0, head_stride = 0;
    KOKKOS_FUNCTION float operator()(int batch, int head) const {
      return data == nullptr ? 1.0f : data[batch * batch_stride + head * head_stride];
    }
  };
  Operand q, k, v;

  KOKKOS_FUNCTION bool present() const { return q.data != nullptr || k.data != nullptr || v.data != nullptr; }
};

/// What the scales of a query head make of what gradients are formed of: of products of Q and K exponents of 2; of
/// those of dO and V, and of delta, what arrives for scores times the scale of Q, which dS is then multiplied by; and
/// of products of that dS and K, dQ.
template <class Compute>
struct alignas(16) HeadFactors {
  Compute exponent, arrived, query, result;

  KOKKOS_FUNCTION static HeadFactors of(HeadScales const& scales, int batch, int head, int heads_per_kv,
                                        Compute scale) {
    int const of_keys = head / heads_per_kv;
    Compute const q = scales.q(batch, head), k = scales.k(batch, of_keys), v = scales.v(batch, of_keys);
    return {scale * (q * k) * Compute(1.44269504088896340736), q * v, q, scale * k / q};
  }
};

}  // namespace tessera::detail

#endif
