// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_GEMM_PACKED_HPP
#define TESSERA_GEMM_PACKED_HPP

#include <cstdint>

#include <tessera/gemm/kernel.hpp>
#include <tessera/gemm/problem.hpp>
#include <tessera/launch.hpp>
#include <tessera/machine.hpp>

// Factors packed once, into the caller's workspace, for all tiles that read them. The sums are the same to the bit.
namespace tessera::detail {

/// Whether there are kernels of such factors: those of the library.
template <class Exec, class Epilogue>
inline constexpr bool packs_gemm_factors = has_packed_atoms<Exec> && !own_epilogue<Epilogue>;

inline constexpr std::size_t packed_alignment = 64;

/// Where both are packed to, and a part of that work for each team.
template <class Atoms>
struct GemmPacking {
  using Left = typename Atoms::template Left<Atoms::BM, Atoms::BK>;
  using Right = typename Atoms::template Right<Atoms::BN, Atoms::BK>;
  MatrixStack a, b;
  char *packed_a, *packed_b;
  std::int64_t parts_a, parts_b;

  explicit GemmPacking(GemmProblem const& p)
      : a(p.a),
        b(p.b),
        packed_a(aligned(static_cast<char*>(p.workspace))),
        packed_b(aligned(packed_a + packed_bytes<Left>(a))),
        parts_a(Atoms::template packing_parts<Left>(a)),
        parts_b(Atoms::template packing_parts<Right>(b)) {}

  static std::size_t bytes(GemmProblem const& p) {
    return packed_bytes<Left>(p.a) + packed_bytes<Right>(p.b) + 2 * packed_alignment;
  }
  std::int64_t teams() const { return parts_a + parts_b; }
  /// The same product of what was packed.
  GemmProblem packed(GemmProblem p) const {
    p.a.data = packed_a;
    p.b.data = packed_b;
    return p;
  }
  void operator()(TeamMember<typename Atoms::Space> const& team) const {
    std::int64_t const part = team.league_rank();
    if (part < parts_a)
      Atoms::template pack_part<Left>(a, part, packed_a);
    else
      Atoms::template pack_part<Right>(b, part - parts_a, packed_b);
  }

 private:
  static char* aligned(char* at) {
    auto const over = reinterpret_cast<std::uintptr_t>(at) % packed_alignment;
    return over == 0 ? at : at + (packed_alignment - over);
  }
};

/// Packs both factors. The product that is left to run.
template <class Atoms, class Exec>
GemmProblem pack_gemm_factors(Exec const& exec, GemmProblem const& p) {
  GemmPacking<Atoms> const packing(p);
  launch<32>("tessera::gemm pack", exec, packing.teams(), 0, packing);
  return packing.packed(p);
}

}  // namespace tessera::detail

#endif
