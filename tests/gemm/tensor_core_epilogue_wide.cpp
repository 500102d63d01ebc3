// SPDX-FileCopyrightText: The Tessera authors
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "epilogue.hpp"

using namespace tessera;
using namespace tessera::test;

TEST_CASE_TEMPLATE_DEFINE("tensor_core calls a user's epilogue once an element: fp64", Exec, fp64_id) {
  check_epilogue<Exec, double, double>({.algorithm = Algorithm::tensor_core});
}
TEST_CASE_TEMPLATE_APPLY(fp64_id, Spaces);

TEST_CASE_TEMPLATE_DEFINE("tensor_core and coarsened call a user's epilogue once an element: fp32", Exec, fp32_id) {
  check_epilogue<Exec, float, float>({.algorithm = Algorithm::coarsened});
  check_epilogue<Exec, float, float>({.algorithm = Algorithm::tensor_core, .allow_tf32 = true});
}
TEST_CASE_TEMPLATE_APPLY(fp32_id, Spaces);
