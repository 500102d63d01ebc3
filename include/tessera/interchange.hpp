// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The storage types exchanged with those of Kokkos and of CUDA, bit for bit: NaNs keep their payload.
///
/// This header needs none of CUDA's. Its functions for CUDA's types can be called wherever the program includes the
/// header that defines the type (cuda_fp16.h, cuda_bf16.h, cuda_fp8.h), before or after this one. Sizes are equal, so
/// whole arrays need no conversion: wrap the memory of one type in an unmanaged View of the other.
#ifndef TESSERA_INTERCHANGE_HPP
#define TESSERA_INTERCHANGE_HPP

#include <Kokkos_Core.hpp>
#include <concepts>
#include <tessera/types.hpp>
#include <type_traits>

// CUDA's headers declare these names in the global namespace too.
struct __half;
struct __nv_bfloat16;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;

namespace tessera {

namespace detail {

template <class T, class Other>
struct Peers {
  using storage = T;
  using other = Other;
};

template <class T>
struct CudaPeers {};
template <>
struct CudaPeers<fp16_t> : Peers<fp16_t, ::__half> {};
template <>
struct CudaPeers<::__half> : Peers<fp16_t, ::__half> {};
template <>
struct CudaPeers<bf16_t> : Peers<bf16_t, ::__nv_bfloat16> {};
template <>
struct CudaPeers<::__nv_bfloat16> : Peers<bf16_t, ::__nv_bfloat16> {};
template <>
struct CudaPeers<e4m3_t> : Peers<e4m3_t, ::__nv_fp8_e4m3> {};
template <>
struct CudaPeers<::__nv_fp8_e4m3> : Peers<e4m3_t, ::__nv_fp8_e4m3> {};
template <>
struct CudaPeers<e5m2_t> : Peers<e5m2_t, ::__nv_fp8_e5m2> {};
template <>
struct CudaPeers<::__nv_fp8_e5m2> : Peers<e5m2_t, ::__nv_fp8_e5m2> {};

/// Kokkos makes half_t and bhalf_t other names of float where the machine has no such types; then T has no peer.
template <class T>
struct KokkosPeers {};
template <class T>
requires(sizeof(Kokkos::Experimental::half_t) == 2 &&
         (std::same_as<T, fp16_t> || std::same_as<T, Kokkos::Experimental::half_t>)) struct KokkosPeers<T>
    : Peers<fp16_t, Kokkos::Experimental::half_t> {
};
template <class T>
requires(sizeof(Kokkos::Experimental::bhalf_t) == 2 &&
         (std::same_as<T, bf16_t> || std::same_as<T, Kokkos::Experimental::bhalf_t>)) struct KokkosPeers<T>
    : Peers<bf16_t, Kokkos::Experimental::bhalf_t> {
};

template <class To, class From>
KOKKOS_INLINE_FUNCTION To same_bits(From const& value) {
  static_assert(sizeof(To) == sizeof(From));
  return Kokkos::bit_cast<To>(value);
}

}  // namespace detail

/// fp16_t from Kokkos::Experimental::half_t, bf16_t from bhalf_t; only where Kokkos has them as 16-bit types.
template <class T>
requires(std::same_as<T, typename detail::KokkosPeers<T>::other>) KOKKOS_INLINE_FUNCTION
    auto from_kokkos(T const& value) {
  return detail::same_bits<typename detail::KokkosPeers<T>::storage>(value);
}

/// Kokkos::Experimental::half_t from fp16_t, bhalf_t from bf16_t; only where Kokkos has them as 16-bit types.
template <class T>
requires(std::same_as<T, typename detail::KokkosPeers<T>::storage>) KOKKOS_INLINE_FUNCTION
    auto to_kokkos(T const& value) {
  return detail::same_bits<typename detail::KokkosPeers<T>::other>(value);
}

/// fp16_t from __half, bf16_t from __nv_bfloat16, e4m3_t from __nv_fp8_e4m3, e5m2_t from __nv_fp8_e5m2.
template <class T>
requires(std::same_as<T, typename detail::CudaPeers<T>::other>) KOKKOS_INLINE_FUNCTION auto from_cuda(T const& value) {
  return detail::same_bits<typename detail::CudaPeers<T>::storage>(value);
}

/// __half from fp16_t, __nv_bfloat16 from bf16_t, __nv_fp8_e4m3 from e4m3_t, __nv_fp8_e5m2 from e5m2_t.
template <class T>
requires(std::same_as<T, typename detail::CudaPeers<T>::storage>) KOKKOS_INLINE_FUNCTION auto to_cuda(T const& value) {
  return detail::same_bits<typename detail::CudaPeers<T>::other>(value);
}

}  // namespace tessera

#endif
