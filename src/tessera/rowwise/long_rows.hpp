// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ROWWISE_LONG_ROWS_HPP
#define TESSERA_ROWWISE_LONG_ROWS_HPP

#include <type_traits>

#include <tessera/rowwise/held_rows.hpp>
#include <tessera/rowwise/mailed_rows.hpp>
#include <tessera/rowwise/streamed_rows.hpp>

namespace tessera::detail {

/// How many packs a thread has that are worked on together.
template <class Packs>
inline constexpr int batch_of = std::remove_cvref_t<Packs>::batch;

/// Where a long row's result goes, of T or of 8 bits. Which is asked with each pack, so that there is one text of what
/// is computed.
template <class Rows>
class LongOutput {
 public:
  KOKKOS_FORCEINLINE_FUNCTION LongOutput(Rows const& of_rows, Operand const& out) : rows(of_rows), type(out.type) {
    Types::visit(type, [&](auto tag) { to = rows.template data<typename decltype(tag)::type>(out); });
  }
  template <class Packs, class K>
  KOKKOS_FORCEINLINE_FUNCTION void store(Packs const& packs, K k, typename Rows::Values const& x) const {
    Types::visit(type, [&](auto tag) TESSERA_INLINE_LAMBDA {
      using To = typename decltype(tag)::type;
      rows.store(static_cast<To*>(to), packs, k, Rows::Atoms::template narrowed<To>(x));
    });
  }
  template <class Packs>
  KOKKOS_FORCEINLINE_FUNCTION void store_ends(Packs const& packs) const {
    if constexpr (Rows::ragged) rows.store_ends(static_cast<typename Rows::Element*>(to), packs);
  }

 private:
  using Types =
      std::conditional_t<Rows::ragged, TypeList<typename Rows::Element>, PackedOutputs<typename Rows::Element>>;
  Rows const& rows;
  Scalar type;
  void* to = nullptr;
};

/// Starts make(Rows type) over packed rows that several teams hold, if it can: with as many packs a thread as lets more
/// of the rows be held at once: one more can spare every row a team that would be half empty. A kernel that has the
/// registers for it says so by a member `has_room_for_more`.
template <class Exec, class T, int Operands, bool Ragged, class Space, class Make>
bool launch_held(char const* label, Space const& exec, PackedGrid const& rows, StreamUse const& use, Make const& make) {
  using Held = HeldRows<Exec, T, Operands, Ragged>;
  auto const kernel = make(std::type_identity<Held>{});
  auto const layout = held_layout<Held, decltype(kernel)>(exec, rows, use);
  if constexpr (requires { decltype(kernel)::has_room_for_more; }) {
    using More = HeldRows<Exec, T, Operands, Ragged, held_packs + 1>;
    auto const of_more = make(std::type_identity<More>{});
    auto const more = held_layout<More, decltype(of_more)>(exec, rows, use);
    if (more.held > layout.held) return launch_held<More>(label, exec, of_more, more);
  }
  return launch_held<Held>(label, exec, kernel, layout);
}

template <class Exec, class T, int Operands, bool Ragged, class Space, class Make>
bool launch_streamed(char const* label, Space const& exec, StreamUse const& use, Make const& make) {
  using Streamed = StreamedRows<Exec, T, Operands, Ragged>;
  return launch_streamed<Streamed>(label, exec, make(std::type_identity<Streamed>{}), use);
}

/// Starts make(Rows type) over packed rows that are too long for a team, if it can: held by several teams, or else
/// through scratch. make() gives a kernel with the members `grid` and `stream`.
template <class Exec, class T, int Operands, class Space, class Make>
bool launch_long(char const* label, Space const& exec, PackedGrid const& rows, StreamUse const& use, Make const& make) {
  auto const start = [&](auto ragged) {
    constexpr bool is_ragged = decltype(ragged)::value;
    return launch_held<Exec, T, Operands, is_ragged>(label, exec, rows, use, make) ||
           launch_streamed<Exec, T, Operands, is_ragged>(label, exec, use, make);
  };
  if (rows.ragged) return start(std::true_type{});
  return start(std::false_type{});
}

/// The same, through the scratch of all multiprocessors where memory is lent for it.
template <class Exec, class T, int Operands, class Space, class Make>
bool launch_long(char const* label, Space const& exec, PackedGrid const& rows, StreamUse const& use,
                 LentMemory const& lent, Make const& make) {
  if (are_mailed<T>(rows, lent)) {
    using Mailed = MailedRows<Exec, T, Operands>;
    if (launch_mailed<Mailed>(label, exec, make(std::type_identity<Mailed>{}), use, lent)) return true;
  }
  return launch_long<Exec, T, Operands>(label, exec, rows, use, make);
}

/// The same of rows that have nothing in common, some of which are best on their way through the scratch of several
/// teams: of 16 bits those that are not held, and with `nearby_first` others.
template <class Exec, class T, int Operands, class Space, class Make>
bool launch_long(char const* label, Space const& exec, PackedGrid const& rows, LentMemory const& lent,
                 bool nearby_first, Make const& make) {
  if (sizeof(T) != 2 || rows.ragged || are_mailed<T>(rows, lent))
    return launch_long<Exec, T, Operands>(label, exec, rows, {}, lent, make);
  // If so much of the machine is busy.
  auto const through_teams = [&](double least) {
    using Nearby = MailedRows<Exec, T, Operands>;
    return launch_nearby<Nearby>(label, exec, make(std::type_identity<Nearby>{}), least);
  };
  return (nearby_first && through_teams(0.645)) || launch_held<Exec, T, Operands, false>(label, exec, rows, {}, make) ||
         through_teams(nearby_first ? 0.5 : 0.35) || launch_streamed<Exec, T, Operands, false>(label, exec, {}, make);
}

}  // namespace tessera::detail

#endif
