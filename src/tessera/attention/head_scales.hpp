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

  bool present() const { return q.data != nullptr || k.data != nullptr || v.data != nullptr; }
};

}  // namespace tessera::detail

#endif
