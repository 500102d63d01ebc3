// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_RELAY_HPP
#define TESSERA_RELAY_HPP

#include <Kokkos_Core.hpp>

namespace tessera::detail {

/// How neighbouring teams that run at the same time (launch_together) find out together what is to be known of one row
/// after another, while they work on the next ones; or by mail, through memory, more of them than can reach each
/// other's scratch (launch_all_together). The first `Warps` warps of a team, which have the rows, give their parts and
/// go on; warps behind them relay these to the other teams and say what has come of it. No two warps of the first kind
/// ever wait for each other. Specialised by the backend that has it:
///
///     bytes, turns    of scratch, at the same place in all teams; rows i and i + turns use the same part of it, so
///                     that whoever gives row i has been told of row i - (turns - 2) / 2 or a later one
///     bytes_by_mail(n)  enough of it for n teams by mail
///     Relay(scratch, n)  of n teams
///     Relay(scratch, n, mail, j)  of n teams, team j of them, by mail of post_bytes(n), zero before the launch; n is
///                     fewest_by_mail at least, and 12 bytes are the most that is exchanged
///     begin(), wait() one after the other by all threads, before what follows
///     lend(), borrow() by all threads that relay, four warps, and by all others, 16 warps, of kernels whose threads
///                     have 96 registers: the others have 104 from then on
///     give(x, i)      a warp's part of row i, 16 bytes at most, the same in all lanes
///     given<X>(i)     lane j of the warp that relays row i gets what warp j has given, or an X{} if there is none
///     exchange(x, i, joined)  the same warp, with its team's part; all lanes get joined(all), where X all[of_lane] are
///                     the parts of teams j, j + 32 and so on in lane j, or an X{} for each that there is not
///     tell(x, i)      the same warp, with what all give() have led to
///     told<X>(i)      which every warp of the first kind gets
///
/// Row i is relayed by a warp that relays row i + turns as well. `ByMail`: only so, in less scratch.
template <class Exec, int Warps, bool ByMail = false>
class Relay;

}  // namespace tessera::detail

#if defined(KOKKOS_ENABLE_CUDA)
#include <tessera/cuda/relay.hpp>
#endif

#endif
