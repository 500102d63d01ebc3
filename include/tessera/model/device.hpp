// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_MODEL_DEVICE_HPP
#define TESSERA_MODEL_DEVICE_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::model {

/// The kinds of arithmetic a machine has a peak for. `fp64_tensor` is fp64 on tensor cores; `fp64` and `fp32` are the
/// plain units; the others are tensor-core products where the machine has them, dense, with fp32 (int32) accumulation.
enum class Type { fp64, fp64_tensor, fp32, tf32, fp16, bf16, fp8, int8 };

/// How many values `Type` has.
inline constexpr std::size_t type_count = 8;

/// All of them in order, to loop over.
inline constexpr std::array<Type, type_count> all_types = {Type::fp64, Type::fp64_tensor, Type::fp32, Type::tf32,
                                                           Type::fp16, Type::bf16,        Type::fp8,  Type::int8};

/// "fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "int8".
std::string to_string(Type type);

/// The inverse of to_string; "e4m3" and "e5m2" are fp8. \throws Error{value} for any other name.
Type type_from_string(std::string_view name);

/// Bytes one element occupies in memory (tf32 is stored as fp32: 4).
int bytes_per_element(Type type);

/// What the model knows of a machine. A figure of 0 means unknown or not there; the limits of `occupancy` treat it as
/// no limit, `roofline` refuses it.
///
/// On a CPU a multiprocessor is a core, a warp is one hardware thread, shared memory is the core's own L2 (where team
/// scratch lives), `l2_bytes` is the last-level cache and `hbm_*` is main memory; registers are not a limit.
struct DeviceModel {
  std::string name;
  int multiprocessors = 0;                                    ///< SMs; cores on a CPU
  int cores_per_multiprocessor = 0;                           ///< fp32 lanes that issue together
  int warp_size = 0;                                          ///< threads in lockstep; 1 on a CPU
  int max_threads_per_block = 0;                              ///< threads of one team
  int max_blocks_per_multiprocessor = 0;                      ///< teams resident at once
  int max_warps_per_multiprocessor = 0;                       ///< warps resident at once
  int registers_per_multiprocessor = 0;                       ///< 32-bit registers
  int max_registers_per_thread = 0;                           ///< the compiler's and hardware's limit
  int register_granularity_per_warp = 0;                      ///< a warp's registers are rounded up to this many
  int partitions_per_multiprocessor = 1;                      ///< schedulers, each with its share of the registers
  std::int64_t shared_bytes_per_multiprocessor = 0;           ///< largest carve-out
  std::int64_t max_shared_bytes_per_block = 0;                ///< what one team can ask for
  std::int64_t reserved_shared_bytes_per_block = 0;           ///< taken by the system from each team's share
  std::int64_t shared_granularity_bytes = 1;                  ///< a team's share is rounded up to this
  std::int64_t l2_bytes = 0;                                  ///< last cache before memory
  double hbm_bytes = 0;                                       ///< memory size
  double hbm_bytes_per_second = 0;                            ///< memory bandwidth, read and write together
  double clock_hz = 0;                                        ///< highest sustained clock of the plain units
  std::array<double, type_count> peak_flops_per_second = {};  ///< by Type, dense; 0: the machine has none

  /// Peak FLOP/s (OP/s for int8) of a kind of arithmetic; 0 when the machine has none.
  double peak(Type type) const { return peak_flops_per_second[static_cast<std::size_t>(type)]; }
  void set_peak(Type type, double flops_per_second) {
    peak_flops_per_second[static_cast<std::size_t>(type)] = flops_per_second;
  }
};

/// \name Built-in machines
/// Public data-sheet figures (NVIDIA A100, H100, H200 and B200 data sheets and the architecture white papers): dense
/// peaks at boost clock, decimal GB and GB/s. Limits of a multiprocessor are those of compute capability 8.0, 9.0
/// and 10.0 (CUDA C++ Programming Guide).
///@{
DeviceModel a100_80gb();  ///< A100 SXM 80 GB: 108 SMs, 312 TFLOP/s bf16, 2.039 TB/s
DeviceModel h100_sxm();   ///< H100 SXM: 132 SMs, 989.5 TFLOP/s bf16, 3.35 TB/s
DeviceModel h200_sxm();   ///< H200 SXM: an H100 with 141 GB at 4.8 TB/s
DeviceModel b200();       ///< B200: 148 SMs, 2250 TFLOP/s bf16, 180 GB at 8 TB/s
///@}

/// The CPU this process runs on, as far as the operating system tells; costs a few milliseconds the first time.
///
/// Cores: the physical ones that the process may use, at most `threads` (0: as many hardware threads as allowed).
/// Peaks: cores × clock × fp32 lanes × 2 (multiply and add, where the CPU fuses them) × 2 vector units, which holds for
/// current x86-64 servers and is rough elsewhere; 16-bit and 8-bit peaks follow the instructions the CPU lists
/// (AVX512-BF16, AMX, VNNI, FP16, bf16 and i8mm on Arm), and are the fp32 peak, with widening, where it lists none.
/// Clock: the highest of what the system says and what a chain of dependent one-cycle instructions shows, so that the
/// peak is a ceiling. The bandwidth is unknown (0): `read_device` measures it.
///
/// \throws Error{value} for negative threads.
DeviceModel host_device(int threads = 0);

/// The machine of an execution-space instance, read at run time.
///
/// On a GPU: attributes of the device; peaks from FLOP per clock and multiprocessor of its compute capability (0 for an
/// unknown one) × multiprocessors × clock; bandwidth from memory clock × bus width, which is a few percent above what
/// a copy reaches. On a CPU: `host_device(exec.concurrency())` with the bandwidth of a copy of up to 128 MiB, timed
/// once per process and number of threads (about half a second; it allocates, and fences the instance). Compiled for
/// every execution space the library was built with.
template <class ExecutionSpace>
DeviceModel read_device(ExecutionSpace const& exec);

/// Every figure with its unit, one a line.
std::string to_string(DeviceModel const& device);

namespace detail {

/// FLOP per clock of one core by Type, from the instruction sets the CPU lists ("flags" or "Features" of
/// /proc/cpuinfo, separated by spaces).
std::array<double, type_count> host_flops_per_clock(std::string_view features);

/// fp32 lanes of one vector register for the same list.
int host_lanes(std::string_view features);

/// "0-3,8" -> 5: how many indices a Linux CPU list names; 0 for an empty or malformed one.
int count_cpu_list(std::string_view list);

}  // namespace detail
}  // namespace tessera::model

#endif
