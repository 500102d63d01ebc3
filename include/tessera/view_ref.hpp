// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_VIEW_REF_HPP
#define TESSERA_VIEW_REF_HPP

#include <type_traits>

#include <tessera/detail/array.hpp>

namespace tessera {

/// An optional operand in an options struct: a reference to a View of any layout and memory space, or nothing. The
/// View's owner keeps its data alive until the operation has run.
template <class T, int Rank>
class ViewRef {
 public:
  ViewRef() = default;
  template <detail::view V>
  ViewRef(V const& v)  // NOLINT(google-explicit-constructor): a View is what one passes
      : array_{},
        present_(true),
        host_(Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace, typename V::memory_space>::accessible),
        device_(Kokkos::SpaceAccessibility<Kokkos::DefaultExecutionSpace, typename V::memory_space>::accessible) {
    static_assert(static_cast<int>(V::rank()) == Rank, "this option takes a View of another rank");
    static_assert(std::is_convertible_v<typename V::value_type*, T*>, "this option takes a View of another value type");
    auto const a = detail::array(v);
    array_.data = a.data;
    for (int i = 0; i < Rank; ++i) {
      array_.extent[i] = a.extent[i];
      array_.stride[i] = a.stride[i];
    }
  }

  explicit operator bool() const { return present_; }
  detail::Array<T, Rank> const& array() const { return array_; }
  bool host_accessible() const { return host_; }

  /// @throws Error{value} when Exec cannot reach the View's memory
  template <class Exec>
  void check_accessible(char const* op, char const* name) const {
    bool const on_host =
        Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace, typename Exec::memory_space>::accessible;
    detail::check_value(!present_ || (on_host ? host_ : device_), op,
                        std::string(name) + " lies in memory that the execution space cannot access");
  }

 private:
  detail::Array<T, Rank> array_;
  bool present_ = false, host_ = false, device_ = false;
};

}  // namespace tessera

#endif
