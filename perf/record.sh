#!/bin/sh
# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# perf/record.sh BUILD DEVICE [flags]   runs every benchmark of a build folder and keeps the results
#
#   perf/record.sh build/cuda h200 --device=cuda
#   perf/record.sh build/openmp epyc-9965 --device=openmp
#
# Writes perf/results/DEVICE/NAME.json for gemm, gemm_random (tessera_perf_gemm --random: 200 shapes with
# --device=cuda, 20 without), gemm_epilogue, ladder, transform, rowwise, rowwise_backward, attention, attention_backward
# and quantize; flags go to each of them. attention_tensor_core and attention_backward_tensor_core have to be asked for:
# what GPUs without Hopper's pipeline run, on one that has it.
# TESSERA_PERF_ONLY="gemm ladder" runs these alone; TESSERA_COMMIT names the commit where git cannot. All that is about
# gemm, in less than three minutes of a GPU:
#
#   TESSERA_PERF_ONLY="gemm gemm_random gemm_epilogue ladder" perf/record.sh build/cuda h200 --device=cuda --seconds=0.3
set -eu
if [ $# -lt 2 ]; then sed -n '5,17s/^# \{0,1\}//p' "$0"; exit 2; fi
build=$1
device=$2
shift 2
results="$(dirname "$0")/results/$device"
mkdir -p "$results"

# What the programs cannot read themselves: clocks and power limit of the GPU, or the CPU's governor and load.
clocks='' power='' state=''
if command -v nvidia-smi >/dev/null 2>&1; then
  clocks="$(nvidia-smi --query-gpu=clocks.sm,clocks.max.sm,clocks.mem --format=csv,noheader | head -n 1)" || clocks=''
  power="$(nvidia-smi --query-gpu=power.limit --format=csv,noheader | head -n 1)" || power=''
fi
governor=/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
[ ! -r "$governor" ] || state="governor $(cat "$governor"), "
state="${state}load $(cut -d ' ' -f 1-3 /proc/loadavg 2>/dev/null || echo unknown)"

sizes=--size=B4Hq32Sq4096D64,B4Hq16Sq4096D128,B4Hq8Sq4096D256
# These variants of a program on the pipeline of asynchronous copies.
tensor_core() { printf -- '--variant='; printf '%s_tensor_core,' "$@" | sed 's/,$//'; }
random=20
case " $* " in *' --device=cuda '*) random=200 ;; esac

failed=''
for name in ${TESSERA_PERF_ONLY:-gemm gemm_random gemm_epilogue ladder transform rowwise rowwise_backward attention attention_backward quantize}; do
  program="$build/perf/tessera_perf_$name" own=''
  case "$name" in
    gemm_random) program="$build/perf/tessera_perf_gemm" own="--random=$random" ;;
    attention_tensor_core)
      program="$build/perf/tessera_perf_attention"
      own="--type=bf16 $sizes $(tensor_core full causal full_dropout causal_dropout)" ;;
    attention_backward_tensor_core)
      program="$build/perf/tessera_perf_attention_backward"
      own="--type=bf16 $sizes $(tensor_core full causal full_dropout causal_dropout full_deterministic causal_deterministic)" ;;
  esac
  [ -x "$program" ] || { echo "$program is not built" >&2; failed="$failed $name"; continue; }
  printf '\n== %s\n' "$name"
  "$program" --context="clocks_sm_max_memory=$clocks" --context="power_limit=$power" --context="host_state=$state" \
    --benchmark_out="$results/$name.json.part" --benchmark_out_format=json $own "$@" || failed="$failed $name"
  [ ! -s "$results/$name.json.part" ] || mv "$results/$name.json.part" "$results/$name.json"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
printf '\nresults in %s; tables and figures: perf/report.py %s\n' "$results" "$results"
