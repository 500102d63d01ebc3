// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/device_model.hpp>
#include <tessera/model/device.hpp>

namespace tessera::model {

template <class ExecutionSpace>
DeviceModel read_device(ExecutionSpace const& exec) {
  return tessera::detail::DeviceReader<ExecutionSpace>::read(exec);
}

template DeviceModel read_device(TESSERA_EXECUTION_SPACE const& exec);

}  // namespace tessera::model
