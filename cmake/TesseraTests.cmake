# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# tessera_discover_tests(target): every doctest case is a CTest test of its own. The cases are listed when CTest runs,
# not when the target is built, so that a machine without a GPU can build the CUDA tests.
find_package(doctest REQUIRED)
include(doctest)

function(tessera_discover_tests target)
  set(list_file "${CMAKE_CURRENT_BINARY_DIR}/${target}_tests.cmake")
  set(include_file "${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake")
  string(REGEX REPLACE "^tessera_test_" "" family ${target})
  file(
    GENERATE
    OUTPUT "${include_file}"
    CONTENT
      "if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
  add_test(${target}.not_built \"$<TARGET_FILE:${target}>\")
  return()
endif()
if(\"$<TARGET_FILE:${target}>\" IS_NEWER_THAN \"${list_file}\")
  execute_process(
    COMMAND \"${CMAKE_COMMAND}\" -D \"TEST_EXECUTABLE=$<TARGET_FILE:${target}>\" -D \"TEST_PREFIX=${family}.\"
            -D TEST_LIST=tests -D \"TEST_WORKING_DIR=${CMAKE_CURRENT_BINARY_DIR}\" -D \"CTEST_FILE=${list_file}\"
            -P \"${_DOCTEST_DISCOVER_TESTS_SCRIPT}\"
    RESULT_VARIABLE code ERROR_VARIABLE text)
  if(code)
    message(\"\${text}\")
    add_test(${target}.cannot_list_its_cases \"$<TARGET_FILE:${target}>\" --list-test-cases)
    return()
  endif()
endif()
include(\"${list_file}\")
# Two threads find races and still fit two at a time on a small machine; cases of Serial use one core.
foreach(test IN LISTS tests)
  set(processors 2)
  if(test MATCHES \"Serial\")
    set(processors 1)
  endif()
  set_tests_properties(\"\${test}\" PROPERTIES ENVIRONMENT \"OMP_NUM_THREADS=2;OMP_PROC_BIND=false\"
                       PROCESSORS \${processors} LABELS ${family} TIMEOUT 300)
endforeach()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${include_file}")
endfunction()
