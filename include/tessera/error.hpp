// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef TESSERA_ERROR_HPP
#define TESSERA_ERROR_HPP

#include <stdexcept>
#include <string>

namespace tessera {

/// What a caller did wrong, for programs that branch on it; the message says it to a person.
enum class ErrorCode {
  extent,       ///< extents of operands do not fit together
  overlap,      ///< an output shares memory with an input (or another output) it must not share with
  null_data,    ///< a View with elements has no data
  workspace,    ///< the workspace passed in is too small or missing
  scratch,      ///< more team scratch asked for than the machine has
  value,        ///< an option or scalar is outside its documented range
  unsupported,  ///< the forced algorithm cannot run this problem here, and falling back was refused
};

/// Thrown on the host, before anything is launched or written, by every operation that is called wrongly.
/// The message names the operation, the operands and their extents.
class Error : public std::invalid_argument {
 public:
  Error(ErrorCode code, std::string const& what) : std::invalid_argument(what), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace tessera

#endif
