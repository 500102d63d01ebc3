#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks what ptxas reported (-Xptxas -v) about the kernels in a build log.

usage: check_resources.py LOG

Fails when a hot kernel spills registers or has a stack frame, when ptxas serialised a wgmma (C7508..C7514) in any
kernel, or when the log holds no report at all. Prints the register-heaviest hot kernels of each architecture.
"""
import re
import shutil
import subprocess
import sys

# Kernels that lose most of their speed to a spill, by a word in their demangled name: those of the two pipelines of asynchronous copies.
HOT = re.compile(r"tessera::detail::(?:bulk|async)::Pipeline", re.ASCII)
# Kernels that need not be hot: the first rungs of the ladder and the reductions' last step keep small arrays in memory.
COLD = re.compile(r"Naive|Kokkos::Impl::ViewFill|Kokkos::Impl::ViewCopy")

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
STEP = re.compile(r"^\[\d+/\d+\]")  # of the build: another source begins
SERIALISED = re.compile(r"\(?C75(?:08|09|10|11|12|13|14)\)?")


def demangle(names):
    """Readable names, by the first demangler there is."""
    tool = shutil.which("cu++filt") or shutil.which("c++filt")
    if not tool or not names:
        return dict(zip(names, names))
    out = subprocess.run([tool], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(zip(names, out))


def read(lines):
    """[(mangled name, architecture, {stack, stores, loads, registers})] and the lines that tell of serialised wgmma."""
    kernels, serialised, current = [], [], None
    for line in lines:
        if STEP.match(line):
            current = None
        entry = ENTRY.search(line)
        if entry:
            current = {"stack": 0, "stores": 0, "loads": 0, "registers": 0}
            kernels.append((entry.group(1), entry.group(2), current))
        frame = FRAME.search(line)
        # A device function that was not inlined reports its own frame; it counts for the kernel before it in its source.
        if frame and current is not None:
            for key, value in zip(("stack", "stores", "loads"), frame.groups()):
                current[key] = max(current[key], int(value))
        registers = REGISTERS.search(line)
        if registers and current is not None:
            current["registers"] = int(registers.group(1))
        if SERIALISED.search(line):
            serialised.append(line.strip())
    return kernels, serialised


def shorten(name, width=150):
    return name if len(name) <= width else name[: width - 1] + "…"


def main():
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        kernels, serialised = read(log)
    names = demangle(sorted({name for name, _, _ in kernels}))
    hot = [(names[name], arch, use) for name, arch, use in kernels if HOT.search(names[name]) and not COLD.search(names[name])]
    if not hot:
        print("no report about a hot kernel in the log: was it compiled with -Xptxas -v?")
        return 1

    for arch in sorted({arch for _, arch, _ in hot}):
        of_arch = sorted((k for k in hot if k[1] == arch), key=lambda k: -k[2]["registers"])
        print(f"{arch}: {len(of_arch)} hot kernels; most registers:")
        for name, _, use in of_arch[:5]:
            print(f"  {use['registers']:4d}  {shorten(name)}")

    bad = [(name, arch, use) for name, arch, use in hot if use["stack"] or use["stores"] or use["loads"]]
    for name, arch, use in bad:
        print(f"{arch}: {use['stack']} bytes of stack, {use['stores']} + {use['loads']} bytes spilled: {shorten(name, 400)}")
    for line in sorted(set(serialised)):
        print(f"serialised wgmma: {line}")
    print(f"{len(hot)} hot kernels, {len(bad)} with spills or a stack frame, {len(serialised)} serialised wgmma")
    return 1 if bad or serialised else 0


if __name__ == "__main__":
    sys.exit(main())
