# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# tessera_discover_tests(target): every doctest case is a CTest test of its own. The cases are listed when CTest runs,
# not when the target is built, so that a machine without a GPU can build the CUDA tests. (doctest's own CMake code runs
# the executable in the build, and splits names at semicolons and brackets.)
find_package(doctest REQUIRED)

function(tessera_discover_tests target)
  set(include_file "${CMAKE_CURRENT_BINARY_DIR}/${target}_tests.cmake")
  string(REGEX REPLACE "^tessera_test_" "" family ${target})
  file(
    GENERATE
    OUTPUT "${include_file}"
    CONTENT
      "set(family \"${family}\")
set(executable \"$<TARGET_FILE:${target}>\")
include(\"${PROJECT_SOURCE_DIR}/cmake/ListDoctestCases.cmake\")
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${include_file}")
endfunction()
