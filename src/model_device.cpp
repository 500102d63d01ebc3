// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/compiled_spaces.hpp>
#include <tessera/device_model.hpp>
#include <tessera/model/device.hpp>

namespace tessera::model {

template <class ExecutionSpace>
DeviceModel read_device(ExecutionSpace const& exec) {
  return tessera::detail::DeviceReader<ExecutionSpace>::read(exec);
}

#define TESSERA_INSTANCES(EXTERN, EXEC) EXTERN template DeviceModel read_device(EXEC const&);
TESSERA_FOR_EACH_SPACE_OF_PART(TESSERA_INSTANCES)
#undef TESSERA_INSTANCES

}  // namespace tessera::model
