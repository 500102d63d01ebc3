# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The target tessera_docs: the API pages, from docs/Doxyfile.in, under docs/html of the build folder.
find_package(Doxygen QUIET)
if(DOXYGEN_FOUND AND EXISTS "${PROJECT_SOURCE_DIR}/docs/Doxyfile.in")
  configure_file("${PROJECT_SOURCE_DIR}/docs/Doxyfile.in" "${PROJECT_BINARY_DIR}/docs/Doxyfile" @ONLY)
  add_custom_target(
    tessera_docs
    COMMAND Doxygen::doxygen "${PROJECT_BINARY_DIR}/docs/Doxyfile"
    WORKING_DIRECTORY "${PROJECT_BINARY_DIR}/docs"
    COMMENT "Doxygen"
    VERBATIM)
else()
  message(STATUS "Tessera: no target tessera_docs: doxygen is not installed")
endif()
