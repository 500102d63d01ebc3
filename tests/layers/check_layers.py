#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the layering rules: include/ -> src/ -> backends/, and what each layer must not name.

usage: check_layers.py ROOT          every violation is a line FILE:LINE: rule; exit status 1 when there is one
       check_layers.py --self-test   each rule catches a sample of what it forbids
"""
import pathlib
import re
import sys
import tempfile

# A machine: its execution spaces, its macros, its intrinsics.
MACHINE = re.compile(
    r"__CUDA_ARCH__|__CUDACC__|KOKKOS_ENABLE_(?:CUDA|OPENMP|SERIAL)|\basm\b|_mm(?:256|512)?_|threadIdx|blockIdx"
    r"|<immintrin|Kokkos::(?:Cuda|OpenMP|Serial)\b|\bcuda[A-Z]\w+")
ALGORITHM = re.compile(r"gemm|attention|softmax|layer_?norm", re.IGNORECASE)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](tessera/[^">]+)[>"]')
MACHINE_HEADER = re.compile(r"tessera/(?:cuda|openmp)/")
TILE_HEADER = re.compile(r"tessera/(?:atoms\.hpp|portable/)")

# What backends/ may use of the layer above it: storage types, errors, plans of launches, arrays without a View, the
# description of a machine.
SHARED = re.compile(r"tessera/(?:types|error|config|launch_plan)\.hpp|tessera/detail/|tessera/model/device\.hpp")


def without_comments(text):
    """The text with comments blanked and the lines kept; strings stay, since they name things too."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)

    def blank(match):
        token = match.group(0)
        return token if token.startswith('"') else re.sub(r"[^\n]", " ", token)

    return pattern.sub(blank, text)


def check_file(root, layer, path):
    violations = []
    name = path.relative_to(root)
    hopper = layer == "src" and name.parts[1] == "hopper"
    for number, line in enumerate(without_comments(path.read_text(encoding="utf-8")).splitlines(), 1):
        def report(rule, line_number=number):
            violations.append(f"{name}:{line_number}: {rule}")

        if layer in ("include", "src") and not hopper:
            found = MACHINE.search(line)
            if found:
                report(f"{layer}/ names a machine: {found.group(0)}")
        if layer == "backends":
            found = ALGORITHM.search(line)
            if found:
                report(f"backends/ names an algorithm: {found.group(0)}")
        included = INCLUDE.match(line)
        if not included:
            continue
        header = included.group(1)
        if layer == "backends" and not (root / "backends" / header).is_file() and not SHARED.match(header):
            report(f"backends/ includes a header of a layer above: {header}")
        if layer in ("include", "src") and not hopper and MACHINE_HEADER.match(header):
            report(f"{layer}/ includes a machine's header: {header}")
        if layer == "include" and TILE_HEADER.match(header):
            report(f"include/ includes the tile machinery: {header}")
    return violations


def check(root):
    violations = []
    for layer in ("include", "src", "backends"):
        for path in sorted((root / layer).rglob("*")):
            if path.suffix in (".hpp", ".cpp"):
                violations += check_file(root, layer, path)
    return violations


def self_test():
    samples = {
        "include/tessera/a.hpp": ["#include <tessera/atoms.hpp>", "#include <tessera/cuda/launch.hpp>",
                                  "void f(Kokkos::Cuda const&);", "#ifdef __CUDACC__"],
        "src/a.cpp": ["#if defined(KOKKOS_ENABLE_CUDA)", 'asm volatile("exit;");', "auto v = _mm512_add_ps(a, b);",
                      "int i = threadIdx.x;", "#include <immintrin.h>", "#include <tessera/openmp/atoms.hpp>"],
        "backends/tessera/a.hpp": ["struct GemmAtom;", "int layer_norm;", "#include <tessera/gemm.hpp>",
                                   "#include <tessera/rowwise/rows.hpp>"],
    }
    allowed = {
        "include/tessera/b.hpp": "// on Kokkos::Cuda this is fast\n#include <tessera/detail/array.hpp>\n",
        "src/tessera/b.hpp": "/* not asm */ #include <tessera/atoms.hpp>\nint f(TESSERA_EXECUTION_SPACE);\n",
        "src/hopper/b.cpp": "#include <tessera/cuda/launch.hpp>\nTESSERA_INSTANTIATE(Kokkos::Cuda)\n",
        "backends/tessera/b.hpp": "// used by attention\n#include <tessera/types.hpp>\n#include <tessera/a.hpp>\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in [(n, "\n".join(lines) + "\n") for n, lines in samples.items()] + list(allowed.items()):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = {violation.rsplit(": ", 2)[0].split(": ")[0] for violation in check(root)}
        expected = {f"{name}:{line}" for name, lines in samples.items() for line in range(1, len(lines) + 1)}
        if found != expected:
            print(f"missed: {sorted(expected - found)}\nwrongly reported: {sorted(found - expected)}")
            return 1
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    violations = check(pathlib.Path(sys.argv[1]))
    print("\n".join(violations) or "the layers hold")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
