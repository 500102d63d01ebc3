# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# tessera_target_hopper(TARGET...): compiles these targets' sources for sm_90a, so that epilogues and score functors of
# their own become part of the Hopper kernels. Without it they run on the pipeline of asynchronous copies or on the portable
# kernels.
function(tessera_target_hopper)
  foreach(target IN LISTS ARGN)
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES 90a-real)
    target_compile_definitions(${target} PRIVATE TESSERA_TARGET_HOPPER)
  endforeach()
endfunction()
