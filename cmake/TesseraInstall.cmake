# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The installed package: one library, the headers of the three roots in one folder, TesseraConfig.cmake.
include(CMakePackageConfigHelpers)

foreach(root IN ITEMS include src backends)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${root}/tessera")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/${root}/tessera" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING
            PATTERN "*.hpp")
  endif()
endforeach()
install(FILES "${PROJECT_BINARY_DIR}/include/tessera/config.hpp" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/tessera")

set(package_directory "${CMAKE_INSTALL_LIBDIR}/cmake/Tessera")
install(TARGETS tessera EXPORT TesseraTargets)
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION "${package_directory}")
configure_package_config_file(cmake/TesseraConfig.cmake.in "${PROJECT_BINARY_DIR}/TesseraConfig.cmake"
                              INSTALL_DESTINATION "${package_directory}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake" COMPATIBILITY SameMajorVersion)
install(FILES "${PROJECT_BINARY_DIR}/TesseraConfig.cmake" "${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/TesseraHopper.cmake"
        DESTINATION "${package_directory}")
