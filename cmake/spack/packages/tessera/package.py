# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# spack repo add cmake/spack && spack dev-build tessera@main +openmp
from spack.package import *


class Tessera(CMakePackage):
    """Matrix products, fused element and row operations, attention, casts and quantisation on Kokkos Views: one source
    for OpenMP, Serial and CUDA."""

    maintainers = []
    license("Apache-2.0 WITH LLVM-exception")

    version("main", branch="main")

    variant("openmp", default=True, description="Compile the operations for Kokkos::OpenMP")
    variant("cuda", default=False, description="Compile the operations for Kokkos::Cuda")
    variant("shared", default=False, description="Build a shared library")
    variant("tests", default=False, description="Build the tests")
    variant("perf", default=False, description="Build the benchmarks and the tour")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("kokkos@4.7: +serial cxxstd=20")
    depends_on("kokkos +openmp", when="+openmp")
    depends_on("kokkos +cuda", when="+cuda")
    depends_on("doctest", type=("build", "test"), when="+tests")
    depends_on("python@3.8:", type=("build", "test"), when="+tests")
    depends_on("benchmark", when="+perf")
    depends_on("cli11", when="+perf")
    depends_on("nlohmann-json", when="+perf")

    def cmake_args(self):
        spaces = ["Serial"]
        if self.spec.satisfies("+openmp"):
            spaces.append("OpenMP")
        if self.spec.satisfies("+cuda"):
            spaces.append("Cuda")
        args = [
            self.define("Tessera_EXECUTION_SPACES", spaces),
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("Tessera_ENABLE_TESTS", "tests"),
            self.define_from_variant("Tessera_ENABLE_PERF", "perf"),
            self.define("Tessera_ENABLE_DOCS", False),
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CXX_COMPILER", self.spec["kokkos"].kokkos_cxx))
        return args
