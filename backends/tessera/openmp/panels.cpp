// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>

#include <tessera/detail/matrix.hpp>
#include <tessera/openmp/micro_kernel.hpp>
#include <tessera/openmp/panels.hpp>

namespace tessera::detail::openmp {
namespace {

template <int Width, class T, class Compute>
void pack(T const* from, std::int64_t row_stride, std::int64_t col_stride, int n, int k, Compute* to) {
  if (row_stride == 1 && n == Width) {
    for (int c = 0; c < k; ++c)
      for (int r = 0; r < Width; ++r) to[c * Width + r] = Compute(from[c * col_stride + r]);
    return;
  }
  if (n < Width)
    for (int c = 0; c < k; ++c)
      for (int r = n; r < Width; ++r) to[c * Width + r] = 0;
  if (row_stride == 1) {
    for (int c = 0; c < k; ++c)
      for (int r = 0; r < n; ++r) to[c * Width + r] = Compute(from[c * col_stride + r]);
  } else {
    // Sixteen columns of every row before the next sixteen: both sides stay in the first-level cache.
    constexpr int columns = 16;
    for (int c0 = 0; c0 < k; c0 += columns)
      for (int r = 0; r < n; ++r)
        for (int c = c0, end = std::min(k, c0 + columns); c < end; ++c)
          to[c * Width + r] = Compute(from[r * row_stride + c * col_stride]);
  }
}

}  // namespace

template <class Compute, int Width>
void pack_panel(Scalar type, void const* from, std::int64_t row_stride, std::int64_t col_stride, int n, int k,
                Compute* to) {
  visit_scalar<Compute>(type, [&](auto tag) {
    pack<Width>(static_cast<typename decltype(tag)::type const*>(from), row_stride, col_stride, n, k, to);
  });
}

template <class Compute>
void store_row(Scalar type, Compute const* row, int n, void* to, std::int64_t stride) {
  visit_scalar<Compute>(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const line = static_cast<T*>(to);
    if (stride == 1)
      for (int c = 0; c < n; ++c) line[c] = T(row[c]);
    else
      for (int c = 0; c < n; ++c) line[c * stride] = T(row[c]);
  });
}

#define TESSERA_PANELS(COMPUTE)                                                                                       \
  template void pack_panel<COMPUTE, panel_rows>(Scalar, void const*, std::int64_t, std::int64_t, int, int, COMPUTE*); \
  template void pack_panel<COMPUTE, panel_cols<COMPUTE>>(Scalar, void const*, std::int64_t, std::int64_t, int, int,   \
                                                         COMPUTE*);                                                   \
  template void store_row(Scalar, COMPUTE const*, int, void*, std::int64_t);
TESSERA_PANELS(float)
TESSERA_PANELS(double)
TESSERA_PANELS(std::int32_t)

}  // namespace tessera::detail::openmp
