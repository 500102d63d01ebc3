// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "epilogue.hpp"

using namespace tessera;
using namespace tessera::test;

TEST_CASE_TEMPLATE_DEFINE("tensor_core calls a user's epilogue once an element: bf16", Exec, bf16_id) {
  check_epilogue<Exec, bf16_t, float>({.algorithm = Algorithm::tensor_core});
}
TEST_CASE_TEMPLATE_APPLY(bf16_id, Spaces);
