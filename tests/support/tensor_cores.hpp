// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_TESTS_TENSOR_CORES_HPP
#define TESSERA_TESTS_TENSOR_CORES_HPP

#include <tessera/attention_options.hpp>
#include <tessera/machine.hpp>

namespace tessera::test {

/// Whether this machine has the pipeline that the algorithm tensor_core names.
template <class Exec>
bool has_tensor_cores() {
  if constexpr (detail::has_async_pipeline<Exec>)
    return detail::AsyncPipeline<Exec>::runs_on(Exec{});
  else
    return false;
}

/// Asks for tensor_core, where there is one, and nothing in its place.
template <class Exec>
AttentionOptions on_tensor_cores(AttentionOptions options = {}) {
  options.algorithm = AttentionAlgorithm::tensor_core;
  options.allow_fallback = !has_tensor_cores<Exec>();
  return options;
}

}  // namespace tessera::test

#endif
