# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The library, and what the project's own executables share with it.

include("${CMAKE_CURRENT_LIST_DIR}/TesseraHopper.cmake")

# Tessera_CUDA_ARCHITECTURES, from Kokkos' where it is not set: sm_90 means sm_90a, which has wgmma and setmaxnreg.
macro(tessera_choose_cuda_architectures)
  if("Cuda" IN_LIST Tessera_KOKKOS_SPACES)
    if(NOT Tessera_CUDA_ARCHITECTURES)
      set(Tessera_CUDA_ARCHITECTURES "${Tessera_KOKKOS_CUDA_ARCHITECTURES}")
      list(TRANSFORM Tessera_CUDA_ARCHITECTURES REPLACE "^90$" "90a")
    endif()
    if(NOT Tessera_KOKKOS_LANGUAGE STREQUAL "CUDA")
      # Its own flags choose the architecture of every source, and 90 is not 90a.
      message(STATUS "Tessera: CUDA architecture ${Tessera_KOKKOS_CUDA_ARCHITECTURES}; the kernels for Hopper need a Kokkos "
                     "built with Kokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE")
    else()
      message(STATUS "Tessera: CUDA architectures ${Tessera_CUDA_ARCHITECTURES}")
      if("${Tessera_CUDA_ARCHITECTURES}" MATCHES "(^|;)90a")
        set(TESSERA_ENABLE_HOPPER ON)
      endif()
    endif()
  endif()
endmacro()

# The language Kokkos wants for the C++ sources of these targets, and the architectures that go with it.
function(tessera_set_language)
  foreach(target IN LISTS ARGN)
    if(NOT Tessera_KOKKOS_LANGUAGE STREQUAL "CXX")
      get_target_property(sources ${target} SOURCES)
      list(FILTER sources INCLUDE REGEX "\\.cpp$")
      set_source_files_properties(${sources} TARGET_DIRECTORY ${target} PROPERTIES LANGUAGE ${Tessera_KOKKOS_LANGUAGE})
      set_target_properties(
        ${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
                             CUDA_ARCHITECTURES "${Tessera_CUDA_ARCHITECTURES}")
    endif()
  endforeach()
endfunction()

# Most of a source's compile time is Kokkos' headers: the project's own targets take them precompiled. A library's
# sources as part of another project do not, nor does CUDA, which has no precompiled headers.
function(tessera_precompile_kokkos)
  if(PROJECT_IS_TOP_LEVEL AND Tessera_KOKKOS_LANGUAGE STREQUAL "CXX" AND NOT BUILD_SHARED_LIBS)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/precompiled.cpp" CONTENT "// Carries the precompiled header.\n")
    add_library(tessera_precompiled OBJECT "${PROJECT_BINARY_DIR}/precompiled.cpp")
    tessera_set_options(tessera_precompiled)
    target_link_libraries(tessera_precompiled PRIVATE Kokkos::kokkos)
    target_precompile_headers(tessera_precompiled PRIVATE <Kokkos_Core.hpp>)
  endif()
endfunction()

# For targets with the options of tessera_set_options() and Kokkos.
function(tessera_use_precompiled)
  if(TARGET tessera_precompiled)
    foreach(target IN LISTS ARGN)
      target_precompile_headers(${target} REUSE_FROM tessera_precompiled)
    endforeach()
  endif()
endfunction()

# How the project compiles its own targets. All of it PRIVATE: a consumer gets what Kokkos asks for and no more.
function(tessera_set_options)
  tessera_set_language(${ARGN})
  foreach(target IN LISTS ARGN)
    set_target_properties(${target} PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
    target_compile_options(
      ${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:--extended-lambda;--expt-relaxed-constexpr>")
    # Kernels are functions of host and device that call the atoms of the space they are for, on a host the host's; of
    # each such call nvcc says that a device could not make it. Where everything is for devices that would be a mistake.
    if("Serial" IN_LIST Tessera_KOKKOS_SPACES OR "OpenMP" IN_LIST Tessera_KOKKOS_SPACES)
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-diag-suppress=20011,20014>")
    endif()
    if("Cuda" IN_LIST Tessera_KOKKOS_SPACES AND CMAKE_CXX_COMPILER MATCHES "nvcc_wrapper")
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:--expt-relaxed-constexpr>")
    endif()
    if(PROJECT_IS_TOP_LEVEL)
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:-Wall;-Wextra>"
                                               "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:SHELL:-Xcompiler=-Wall,-Wextra>")
    endif()
  endforeach()
endfunction()

function(tessera_set_include_directories scope target)
  target_include_directories(
    ${target} ${scope} "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>"
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/backends>" "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>")
endfunction()

# Objects of the library.
function(tessera_join_library name)
  tessera_set_include_directories(PRIVATE ${name})
  if(BUILD_SHARED_LIBS)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
  target_sources(tessera PRIVATE "$<TARGET_OBJECTS:${name}>")
endfunction()

# A part of the library: the same sources are compiled into several parts, one for each execution space.
function(tessera_add_part name)
  add_library(${name} OBJECT ${ARGN})
  tessera_set_options(${name})
  tessera_join_library(${name})
  target_link_libraries(${name} PRIVATE Kokkos::kokkos)
  tessera_use_precompiled(${name})
endfunction()

# A part for Kokkos::Cuda, whose compiler has no precompiled headers: instead one source may include several. CMake's
# unity builds know CUDA from 3.31 on.
function(tessera_add_cuda_part name)
  set(sources ${ARGN})
  if(Tessera_SOURCES_TOGETHER GREATER 1)
    set(sources "")
    list(LENGTH ARGN count)
    foreach(begin RANGE 0 ${count} ${Tessera_SOURCES_TOGETHER})
      if(begin LESS count)
        list(SUBLIST ARGN ${begin} ${Tessera_SOURCES_TOGETHER} together)
        list(TRANSFORM together REPLACE "(.+)" "#include \"\\1\"\n")
        list(JOIN together "" content)
        list(APPEND sources "${PROJECT_BINARY_DIR}/${name}_${begin}.cpp")
        file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/${name}_${begin}.cpp" CONTENT "${content}" @ONLY)
      endif()
    endforeach()
  endif()
  tessera_add_part(${name} ${sources})
  target_compile_definitions(${name} PRIVATE TESSERA_EXECUTION_SPACE=Kokkos::Cuda)
  if(Tessera_PORTABLE_CUDA_ARCHITECTURES)
    set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES "${Tessera_PORTABLE_CUDA_ARCHITECTURES}")
  endif()
endfunction()

# A part that does not need Kokkos, and so no compiler for devices and no time for its headers.
function(tessera_add_plain_part name)
  add_library(${name} OBJECT ${ARGN})
  tessera_join_library(${name})
  set_target_properties(${name} PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  if(PROJECT_IS_TOP_LEVEL)
    target_compile_options(${name} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:-Wall;-Wextra>")
  endif()
endfunction()

include(CheckCXXCompilerFlag)

# The micro-kernels of the CPU backend: one source per instruction set, picked at run time.
function(tessera_add_micro_kernels)
  set(dir "${PROJECT_SOURCE_DIR}/backends/tessera/openmp")
  tessera_add_plain_part(tessera_micro_kernels "${dir}/micro_kernel.cpp" "${dir}/micro_kernel_baseline.cpp"
                         "${dir}/micro_kernel_amx_stand_in.cpp")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    target_sources(tessera_micro_kernels PRIVATE "${dir}/micro_kernel_avx2.cpp" "${dir}/micro_kernel_avx2_strided.cpp"
                                                 "${dir}/micro_kernel_avx512.cpp" "${dir}/micro_kernel_avx512_strided.cpp" "${dir}/conversions_avx512.cpp" "${dir}/panels_avx512.cpp"
                                                 "${dir}/row_loops_avx2.cpp" "${dir}/row_loops_avx512.cpp"
                                                 "${dir}/column_loops_avx2.cpp" "${dir}/column_loops_avx512.cpp"
                                                 "${dir}/dot_products_avx2.cpp" "${dir}/dot_products_avx512.cpp"
                                                 "${dir}/random_words_avx2.cpp" "${dir}/random_words_avx512.cpp" "${dir}/roundings_avx2.cpp" "${dir}/roundings_avx512.cpp"
                                                 "${dir}/byte_moves_baseline.cpp" "${dir}/byte_moves_avx2.cpp" "${dir}/byte_moves_avx512.cpp"
                                                 "${dir}/sines.cpp" "${dir}/sines_avx2.cpp" "${dir}/sines_avx512.cpp")
    set_source_files_properties("${dir}/micro_kernel_avx2.cpp" "${dir}/micro_kernel_avx2_strided.cpp"
                                "${dir}/column_loops_avx2.cpp" "${dir}/dot_products_avx2.cpp" "${dir}/random_words_avx2.cpp"
                                "${dir}/byte_moves_avx2.cpp" "${dir}/sines_avx2.cpp" PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma")
    set_source_files_properties("${dir}/row_loops_avx2.cpp" "${dir}/roundings_avx2.cpp" PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    set(avx512 "-mavx512f;-mfma")
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # whose intrinsics leave what they overwrite uninitialised
      list(APPEND avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
    endif()
    set_source_files_properties("${dir}/micro_kernel_avx512.cpp" "${dir}/micro_kernel_avx512_strided.cpp"
                                "${dir}/conversions_avx512.cpp" "${dir}/panels_avx512.cpp" "${dir}/row_loops_avx512.cpp"
                                "${dir}/column_loops_avx512.cpp" "${dir}/dot_products_avx512.cpp"
                                "${dir}/random_words_avx512.cpp" "${dir}/sines_avx512.cpp" PROPERTIES COMPILE_OPTIONS "${avx512}")
    set_source_files_properties("${dir}/byte_moves_avx512.cpp" "${dir}/roundings_avx512.cpp" PROPERTIES COMPILE_OPTIONS "${avx512};-mavx512bw")
    target_compile_definitions(tessera_micro_kernels PRIVATE TESSERA_X86_MICRO_KERNELS)
    # Newer instructions, which older compilers do not know.
    set(options_avx512_vnni "${avx512};-mavx512bw;-mavx512vnni")
    set(options_avx512_bf16 "${avx512};-mavx512bw;-mavx512bf16")
    set(options_amx "${avx512};-mavx512bw;-mavx512bf16;-mamx-tile;-mamx-bf16;-mamx-int8")
    check_cxx_compiler_flag("-mavx512vnni -mavx512bf16 -mamx-tile -mamx-bf16 -mamx-int8" TESSERA_KNOWS_WORD_INSTRUCTIONS)
    if(TESSERA_KNOWS_WORD_INSTRUCTIONS)
      foreach(isa avx512_vnni avx512_bf16 amx)
        target_sources(tessera_micro_kernels PRIVATE "${dir}/micro_kernel_${isa}.cpp")
        set_source_files_properties("${dir}/micro_kernel_${isa}.cpp" PROPERTIES COMPILE_OPTIONS "${options_${isa}}")
      endforeach()
      target_sources(tessera_micro_kernels PRIVATE "${dir}/roundings_avx512_bf16.cpp")
      set_source_files_properties("${dir}/roundings_avx512_bf16.cpp" PROPERTIES COMPILE_OPTIONS "${options_avx512_bf16};-mavx512dq")
      target_compile_definitions(tessera_micro_kernels PRIVATE TESSERA_WORD_MICRO_KERNELS)
    endif()
  endif()
endfunction()

# g++ selects by comparisons in SIMD code only if it need not keep the flags that these raise, which nobody reads; and its
# copies in place of loops move 16 bytes at a time, which the loop behind them cannot load 32 or 64 of until they are in
# the cache.
function(tessera_vectorise_host_kernels)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT "Cuda" IN_LIST Tessera_KOKKOS_SPACES)
    target_compile_options(tessera_host PRIVATE -fno-trapping-math -fno-tree-loop-distribute-patterns)
  endif()
endfunction()

# The sources of a folder for the operations asked for: gemm is gemm.cpp and gemm_*.cpp. The model is always there.
function(tessera_choose_sources result folder)
  file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cpp")
  if(Tessera_OPERATIONS)
    list(JOIN Tessera_OPERATIONS "|" names)
    list(FILTER sources INCLUDE REGEX "/(model|${names})(_[a-z0-9_]+)?\\.cpp$")
  endif()
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

function(tessera_add_library)
  set(src "${PROJECT_SOURCE_DIR}/src")
  file(GLOB common_sources CONFIGURE_DEPENDS "${src}/common/*.cpp")
  tessera_choose_sources(sources "${src}")
  tessera_choose_sources(ampere_sources "${src}/ampere")
  tessera_choose_sources(hopper_sources "${src}/hopper")

  configure_file("${PROJECT_SOURCE_DIR}/cmake/config.hpp.in" "${PROJECT_BINARY_DIR}/include/tessera/config.hpp" @ONLY)

  add_library(tessera)
  add_library(Tessera::tessera ALIAS tessera)
  set_target_properties(tessera PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  tessera_set_include_directories(PUBLIC tessera)
  target_include_directories(tessera PUBLIC "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_link_libraries(tessera PUBLIC Kokkos::kokkos)
  target_compile_features(tessera PUBLIC cxx_std_20)
  if(Tessera_KOKKOS_LANGUAGE STREQUAL "CUDA" AND "cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
    target_compile_features(tessera PUBLIC cuda_std_20)
  endif()

  tessera_add_plain_part(tessera_common ${common_sources})
  tessera_add_micro_kernels()
  if(sources)
    # The host spaces share their kernels.
    set(host_spaces ${Tessera_KOKKOS_SPACES})
    list(FILTER host_spaces INCLUDE REGEX "^(Serial|OpenMP)$")
    set(other_spaces ${Tessera_KOKKOS_SPACES})
    list(FILTER other_spaces EXCLUDE REGEX "^(Serial|OpenMP)$")
    if(host_spaces)
      tessera_add_part(tessera_host ${sources} "${PROJECT_SOURCE_DIR}/backends/tessera/openmp/panels.cpp")
      tessera_vectorise_host_kernels()
      list(POP_FRONT host_spaces first second)
      target_compile_definitions(
        tessera_host PRIVATE TESSERA_EXECUTION_SPACE=Kokkos::${first}
                             "$<$<BOOL:${second}>:TESSERA_SECOND_EXECUTION_SPACE=Kokkos::${second}>")
    endif()
    foreach(space IN LISTS other_spaces)
      string(TOLOWER tessera_${space} part)
      if(space STREQUAL "Cuda")
        tessera_add_cuda_part(${part} ${sources})
        separate_arguments(options NATIVE_COMMAND "${Tessera_PORTABLE_CUDA_OPTIONS}")
        target_compile_options(${part} PRIVATE ${options})
      else()
        tessera_add_part(${part} ${sources})
        target_compile_definitions(${part} PRIVATE TESSERA_EXECUTION_SPACE=Kokkos::${space})
      endif()
    endforeach()
  endif()
  # The pipeline of asynchronous copies: for every architecture, though it runs from sm_80 on.
  if(ampere_sources AND "Cuda" IN_LIST Tessera_KOKKOS_SPACES)
    tessera_add_cuda_part(tessera_ampere ${ampere_sources})
  endif()
  if(hopper_sources AND TESSERA_ENABLE_HOPPER)
    tessera_add_cuda_part(tessera_hopper ${hopper_sources})
    set_target_properties(tessera_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real)
  endif()
endfunction()
