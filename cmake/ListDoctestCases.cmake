# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Included by CTest with `family` and `executable` set: adds a test for each case the executable lists.
set(listed 1)
if(EXISTS "${executable}")
  execute_process(COMMAND "${executable}" --list-test-cases --no-intro=true OUTPUT_VARIABLE output RESULT_VARIABLE listed
                  ERROR_QUIET)
endif()
if(NOT listed EQUAL 0)
  # Not built, or it cannot start here: a test that fails and shows why.
  add_test(${family}.list_the_cases "${executable}" --list-test-cases)
  return()
endif()

# Characters that CMake's lists would split at or join.
string(REPLACE ";" "<semicolon>" output "${output}")
string(REPLACE "[" "<open>" output "${output}")
string(REPLACE "]" "<close>" output "${output}")
string(REPLACE "\n" ";" lines "${output}")

# The case `name`, in an environment, under its name and a suffix.
macro(add_case suffix)
  set(environment OMP_PROC_BIND=false ${ARGN})
  add_test("${family}.${name}${suffix}" "${executable}" "--test-case=${filter}")
  set_tests_properties(
    "${family}.${name}${suffix}" PROPERTIES ENVIRONMENT "${environment}" PROCESSORS ${processors} LABELS "${family}" TIMEOUT 300
                                            # doctest calls it a success when no case has the name.
                                            FAIL_REGULAR_EXPRESSION "test cases: +0 ")
endmacro()

foreach(line IN LISTS lines)
  if(line MATCHES "^(<open>doctest<close>|====|$)")
    continue()
  endif()
  string(REPLACE "<semicolon>" ";" name "${line}")
  string(REPLACE "<open>" "[" name "${name}")
  string(REPLACE "<close>" "]" name "${name}")
  string(REPLACE "," "\\," filter "${name}")
  # Two threads find races and still fit two at a time on a small machine; the cases of Serial use one core, and what
  # helps them has no other: threads that wait for each other's core take ten times as long.
  set(processors 2)
  if(name MATCHES "Serial")
    set(processors 1)
  endif()
  add_case("" OMP_NUM_THREADS=${processors})
  # One thread, and more than a small machine has cores.
  if(name MATCHES "^threads: ")
    foreach(threads 1 7)
      add_case(" with ${threads}" OMP_NUM_THREADS=${threads})
    endforeach()
  endif()
  # What depends on the instructions of a CPU also runs with less than this one has.
  if(name MATCHES "^(narrow factors: .*(Serial|OpenMP)|vector units: )")
    foreach(isa baseline avx2 avx512 avx512_vnni avx512_bf16)
      add_case(" up to ${isa}" OMP_NUM_THREADS=${processors} TESSERA_MAX_ISA=${isa})
    endforeach()
  endif()
  # And on the paths that AMX takes, on every machine.
  if(name MATCHES "^narrow factors: .*(Serial|OpenMP)")
    add_case(" by amx_stand_in" OMP_NUM_THREADS=${processors} TESSERA_WORD_KERNELS=amx_stand_in)
  endif()
endforeach()

# Cases of the family that a filter of doctest's chooses, as one test, in an environment.
macro(add_family suffix filter)
  add_test("${family}${suffix}" "${executable}" "${filter}")
  set(environment OMP_NUM_THREADS=2 OMP_PROC_BIND=false ${ARGN})
  set_tests_properties("${family}${suffix}" PROPERTIES ENVIRONMENT "${environment}" PROCESSORS 2 LABELS "${family}" TIMEOUT 600)
endmacro()

# The kernels of rows and elements are compiled for several kinds of vector units: all cases of a CPU with each.
if(family MATCHES "^(rowwise|quantize|reduce|cast|transform)$")
  foreach(isa baseline avx2)
    add_family(" up to ${isa}" "--test-case=*OpenMP*" TESSERA_MAX_ISA=${isa})
  endforeach()
endif()
# Products and attention of bf16 and int8 go other ways where there is AMX: all cases of one space of a CPU that are not
# listed above, may have such factors and ask for what a CPU has.
if(family MATCHES "^(attention|gemm)$")
  set(others "*Cuda*,narrow factors:*,fp32 and fp64*,*on tensor cores*")
  if(output MATCHES "OpenMP")
    string(APPEND others ",*Serial*")
  endif()
  add_family(" by amx_stand_in" "--test-case-exclude=${others}" TESSERA_WORD_KERNELS=amx_stand_in)
endif()
