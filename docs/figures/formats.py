#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""formats.py FILE.svg: what e4m3, e5m2 and int8 can hold of a group whose largest magnitude is 1, and how they round it."""
import sys

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "formats"
import matplotlib.pyplot as plt
import numpy as np


def floats(exponent_bits, mantissa_bits, largest):
    """The positive numbers of a format up to its largest one."""
    bias, steps = 2 ** (exponent_bits - 1) - 1, 2**mantissa_bits
    numbers = [m / steps * 2.0 ** (1 - bias) for m in range(1, steps)]
    for exponent in range(1, 2**exponent_bits):
        numbers += [(1 + m / steps) * 2.0 ** (exponent - bias) for m in range(steps)]
    return np.array([x for x in numbers if x <= largest])


FORMATS = {
    "e4m3, largest 448": floats(4, 3, 448.0),
    "e5m2, largest 57344": floats(5, 2, 57344.0),
    "int8, largest 127": np.arange(1.0, 128.0),
}


def relative_error(numbers, x):
    """Of x rounded to the nearest of the numbers or 0."""
    all_numbers = np.concatenate(([0.0], numbers))
    above = np.clip(np.searchsorted(all_numbers, x), 1, len(all_numbers) - 1)
    return np.minimum(np.abs(all_numbers[above] - x), np.abs(x - all_numbers[above - 1])) / x


def main(path):
    figure, (values, errors) = plt.subplots(2, 1, figsize=(9, 5.4), sharex=True, height_ratios=(1, 1.6))
    x = 2.0 ** np.linspace(-22, 0, 6000)
    for row, (name, numbers) in enumerate(FORMATS.items()):
        scaled = numbers / numbers[-1]
        values.vlines(scaled, -row - 0.35, -row + 0.35, color=f"C{row}", linewidth=0.6)
        # The largest error of a neighbourhood: the error itself goes to 0 at every number.
        error = relative_error(scaled, x)
        errors.plot(x, [error[max(0, i - 140):i + 140].max() for i in range(len(x))], color=f"C{row}", label=name)
    values.set_yticks([0, -1, -2], [name.split(",")[0] for name in FORMATS])
    values.set_title("Numbers that a group with the largest magnitude 1 can be rounded to")
    errors.set(xscale="log", yscale="log", xlim=(2.0**-22, 1.1), ylim=(1e-3, 1.3),
               xlabel="magnitude, as a fraction of the group's largest", ylabel="largest relative error")
    errors.set_xscale("log", base=2)
    errors.grid(alpha=0.3)
    errors.legend(loc="lower left")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


main(sys.argv[1])
