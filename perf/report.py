#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables and figures from the JSON of the benchmarks, of tessera_tour and of peers_torch.py.

    perf/report.py FILE.json FOLDER ... --output report

Prints the tables; writes report/index.html with the figures inside, and each figure as PNG and SVG. Without matplotlib
there are tables only.
"""
import argparse
import base64
import collections
import html
import io
import itertools
import json
import math
import pathlib
import re
import sys

try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    plt = None

STEPS = ["naive", "coalesced", "tiled", "coarsened", "tensor_core", "hopper"]
BASELINES = ["plain", "unfused", "copy", "no_epilogue", "one_product"]
# Okabe and Ito's colours, which people with any colour vision tell apart.
COLORS = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#5C5C5C", "#B8A800"]
TYPE_COLOR = {"fp64": COLORS[5], "fp32": COLORS[0], "tf32": COLORS[4], "fp16": COLORS[1], "bf16": COLORS[2],
              "e4m3": COLORS[3], "e4m3fast": COLORS[3], "e4m3block": COLORS[3], "e5m2": COLORS[7], "int8": COLORS[6]}
RANDOM = "gemm_random"  # as many shapes as one likes: told of by their distribution

Key = collections.namedtuple("Key", "operation backend type variant shape")


class Result:
    """One measured implementation: seconds, its rate in FLOP/s or B/s, and the counters."""

    def __init__(self, entry, source):
        unit = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[entry.get("time_unit", "ns")]
        self.seconds = entry["real_time"] * unit
        self.counters = entry
        self.source = source
        self.is_flops = "flops" in entry
        self.rate = entry.get("flops", entry.get("bytes", 0))
        self.roofline = entry.get("of_roofline", 0)


class Machine:
    """Everything measured on one device with one backend."""

    def __init__(self, context):
        self.context = context
        self.contexts = [context]
        self.cases = collections.OrderedDict()  # Key -> {implementation: Result}

    @property
    def title(self):
        return f"{self.context.get('device', 'unknown device')}, {self.context.get('backend', '')}"

    @property
    def slug(self):
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def read(paths):
    """Machines by (device, backend), from all JSON files under the paths."""
    files = []
    for path in map(pathlib.Path, paths):
        files += sorted(path.rglob("*.json")) if path.is_dir() else [path]
    machines = collections.OrderedDict()
    for file in files:
        with open(file, encoding="utf-8") as stream:
            document = json.load(stream)
        if "benchmarks" not in document:
            continue
        context = document.get("context", {})
        by_backend = {c.get("backend"): c for c in context.get("backends", [context])}
        grouped = collections.OrderedDict()
        for entry in document["benchmarks"]:
            parts = entry["name"].split("/")
            failed = entry.get("error_occurred") or entry.get("skipped")
            if len(parts) == 6 and not failed and entry.get("run_type", "iteration") == "iteration":
                grouped.setdefault((Key(*parts[:5]), parts[5]), []).append(entry)
        for (key, implementation), entries in grouped.items():
            own = by_backend.get(key.backend, context)
            machine = machines.setdefault((own.get("device"), key.backend), Machine(own))
            if own not in machine.contexts:
                machine.contexts.append(own)
            # Of repetitions the median one.
            entries.sort(key=lambda e: e["real_time"])
            result = Result(entries[len(entries) // 2], file.name)
            machine.cases.setdefault(key, {})[implementation] = result
    return list(machines.values())


def readable(value, unit):
    if not value or not math.isfinite(value):
        return ""
    prefixes = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
    power = max(-9, min(15, 3 * math.floor(math.log10(abs(value)) / 3)))
    scaled = value / 10**power
    digits = 2 if scaled < 10 else 1 if scaled < 100 else 0
    return f"{scaled:.{digits}f} {prefixes[power]}{unit}"


def rate_text(result):
    return readable(result.rate, "FLOP/s" if result.is_flops else "B/s") if result else ""


def is_peer(implementation):
    return implementation != "tessera" and implementation not in BASELINES and implementation not in STEPS


def best_peer(results):
    peers = [(r.seconds, name) for name, r in results.items() if is_peer(name)]
    return min(peers)[1] if peers else None


# ---- tables: (title, columns, rows of text)


def operations(machine):
    return list(collections.OrderedDict.fromkeys(key.operation for key in machine.cases))


def sweeps_of(machine):
    """Products of one type, variant, M and K with eight N or more: {(type, variant, m, k): {n: results}}."""
    sweeps = collections.defaultdict(dict)
    for key, results in machine.cases.items():
        parts = key.shape.split("x")
        if key.operation == "gemm" and len(parts) == 3 and "tessera" in results:
            m, n, k = map(int, parts)
            sweeps[(key.type, key.variant, m, k)][n] = results
    return {sweep: cases for sweep, cases in sweeps.items() if len(cases) >= 8}


def single_cases(machine):
    """The cases that are not part of a sweep, nor drawn at random."""
    swept = {id(results) for cases in sweeps_of(machine).values() for results in cases.values()}
    return {k: results for k, results in machine.cases.items() if id(results) not in swept and k.operation != RANDOM}


def operation_table(machine, operation, cases):
    """One row a case: our rate beside the others' and the ratios."""
    cases = {k: v for k, v in cases.items() if k.operation == operation and "tessera" in v}
    if not cases:
        return None
    peers = [n for n in collections.OrderedDict.fromkeys(n for v in cases.values() for n in v) if n != "tessera"]
    ratio_to_peer = any(best_peer(v) for v in cases.values())
    columns = ["type", "variant", "shape", "time", "tessera", "of roofline"] + peers
    columns += ["× best peer"] if ratio_to_peer else []
    columns += [f"× {n}" for n in BASELINES if n in peers]
    rows = []
    for key, results in cases.items():
        ours = results["tessera"]
        row = [key.type, key.variant, key.shape, readable(ours.seconds, "s"), rate_text(ours)]
        row.append(f"{100 * ours.roofline:.0f} %" if ours.roofline else "")
        row += [rate_text(results.get(n)) + (" *" if n in results and results[n].source != ours.source else "") for n in peers]
        if ratio_to_peer:
            peer = best_peer(results)
            row.append(f"{results[peer].seconds / ours.seconds:.2f}" if peer else "")
        row += [f"{results[n].seconds / ours.seconds:.2f}" if n in results else "" for n in BASELINES if n in peers]
        rows.append(row)
    return (operation, columns, rows)


def random_table(machine, worst=10):
    """Of the shapes drawn at random the median, and the worst of them."""
    ratios = []
    for key, results in machine.cases.items():
        peer = best_peer(results)
        if key.operation == RANDOM and peer and "tessera" in results:
            ratios.append((results[peer].seconds / results["tessera"].seconds, key, results, peer))
    if not ratios:
        return None
    ratios.sort(key=lambda entry: entry[0])
    rows = [["", "", f"median of {len(ratios)}", "", "", "", f"{ratios[len(ratios) // 2][0]:.2f}"]]
    for ratio, key, results, peer in ratios[:worst]:
        rows.append([key.type, key.variant, key.shape, rate_text(results["tessera"]), peer, rate_text(results[peer]),
                     f"{ratio:.2f}"])
    return ("gemm, random shapes", ["type", "variant", "shape", "tessera", "best peer", "its rate", "× best peer"], rows)


def ladder_table(machine):
    rows = []
    for key, results in machine.cases.items():
        if key.operation != "ladder":
            continue
        before = first = None
        for name in [s for s in STEPS if s in results] + [n for n in results if is_peer(n)]:
            result = results[name]
            first = first or result
            gain = f"{before.seconds / result.seconds:.2f}" if before and name in STEPS else ""
            total = f"{first.seconds / result.seconds:.1f}" if result is not first else ""
            rows.append([key.type, key.variant, key.shape, name, readable(result.seconds, "s"), rate_text(result), gain, total])
            before = result
    columns = ["type", "variant", "shape", "step", "time", "rate", "× the step before", "× the first"]
    return ("ladder", columns, rows) if rows else None


def check_table(machine):
    rows = []
    for key, results in machine.cases.items():
        ours = results.get("tessera")
        if ours and "check" in ours.counters:
            plain = results.get("plain")
            ratio = f"{plain.seconds / ours.seconds:.1f}" if plain else ""
            rows.append([key.operation, key.type, key.variant, key.shape, ours.counters["check"],
                         f"{ours.counters.get('error_of_bound', 0):.3f}", rate_text(ours), ratio,
                         f"{100 * ours.roofline:.0f} %"])
    columns = ["operation", "type", "variant", "shape", "check", "error / bound", "rate", "× plain", "of roofline"]
    return ("tour", columns, rows) if rows else None


def tables_of(machine):
    tables = [check_table(machine), ladder_table(machine)]
    if not tables[0]:
        single = single_cases(machine)
        swept = {k: results for k, results in machine.cases.items() if k not in single and k.operation != RANDOM}
        tables += [operation_table(machine, operation, single) for operation in operations(machine) if operation != "ladder"]
        tables.append(random_table(machine))
        sweep = operation_table(machine, "gemm", swept)
        tables += [("gemm, sweep over N",) + sweep[1:]] if sweep else []
    return [t for t in tables if t]


def text_table(table):
    title, columns, rows = table
    widths = [max(len(str(r[i])) for r in [columns] + rows) for i in range(len(columns))]
    lines = [f"\n{title}"]
    for row in [columns] + rows:
        lines.append("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip())
    return "\n".join(lines)


def html_table(table):
    title, columns, rows = table
    cell = lambda tag, text: f"<{tag}>{html.escape(str(text))}</{tag}>"
    head = "".join(cell("th", c) for c in columns)
    body = "".join("<tr>" + "".join(cell("td", c) for c in row) + "</tr>" for row in rows)
    return f"<h3>{html.escape(title)}</h3><div class=scroll><table><tr>{head}</tr>{body}</table></div>"


# ---- figures: (name, caption, figure)


def style():
    plt.rcParams.update({
        "figure.dpi": 110, "savefig.bbox": "tight", "font.size": 10, "axes.spines.top": False,
        "axes.spines.right": False, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
        "legend.frameon": False, "svg.fonttype": "none",
    })


def tidy_shape(key):
    """Equal extents once: 4096x4096x4096 is 4096³, and a head's usual parameters are left out."""
    parts = key.shape.split("x")
    if len(parts) == 3 and len(set(parts)) == 1:
        return f"{parts[0]}³"
    if len(parts) == 4 and len(set(parts[1:])) == 1:
        return f"{parts[0]} × {parts[1]}³"
    return key.shape.replace("x", "×") if parts[0].isdigit() else key.shape


def roofline_figure(machine):
    """Every result of ours under the roofs of the machine."""
    bandwidth = machine.context.get("bandwidth_bytes_per_second", 0)
    peaks = machine.context.get("peak_flops_per_second", {})
    points = []
    for key, results in single_cases(machine).items():
        ours = results.get("tessera")
        if ours and ours.counters.get("intensity", 0) > 0:
            x = ours.counters["intensity"]
            points.append((x, ours.rate if ours.is_flops else ours.rate * x, key))
    if not points or not bandwidth:
        return None
    figure, axes = plt.subplots(figsize=(9, 5.5))
    low, high = min(p[0] for p in points) / 2, max(max(p[0] for p in points) * 2, 1000)
    drawn = {}
    for name, peak in sorted(peaks.items(), key=lambda item: item[1]):
        drawn.setdefault(peak, []).append(name)
    top = max(drawn) if drawn else bandwidth * high
    ridge = top / bandwidth
    axes.plot([low, ridge], [low * bandwidth, top], color="#444444", lw=1.4)
    middle = math.sqrt(low * ridge)
    axes.annotate(f"memory, {readable(bandwidth, 'B/s')}", (middle, middle * bandwidth), xytext=(-8, 4),
                  textcoords="offset points", ha="right", color="#444444", fontsize=9)
    for peak, names in drawn.items():
        axes.plot([peak / bandwidth, high], [peak, peak], color="#888888", lw=1)
        axes.annotate(", ".join(names) + f" {readable(peak, 'FLOP/s')}", (high, peak), xytext=(0, 3),
                      textcoords="offset points", ha="right", fontsize=8, color="#444444")
    marks = dict(zip(operations(machine), itertools.cycle("osD^vPX*<>hdp8")))
    for x, y, key in points:
        axes.plot(x, y, marks[key.operation], color=TYPE_COLOR.get(key.type, "#000000"), ms=7, alpha=0.85,
                  mec="white", mew=0.6)
    used_operations = collections.OrderedDict.fromkeys(p[2].operation for p in points)
    used_types = [t for t in TYPE_COLOR if any(p[2].type == t for p in points)]
    entries = [plt.Line2D([], [], ls="", marker=marks[o], color="#444444", label=o) for o in used_operations]
    entries += [plt.Line2D([], [], ls="", marker="s", color=TYPE_COLOR[t], label=t) for t in used_types]
    axes.legend(handles=entries, loc="center left", bbox_to_anchor=(1.01, 0.5))
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte of the fewest bytes", ylabel="FLOP/s")
    axes.set_title(f"Roofline: {machine.title}")
    axes.grid(alpha=0.25, which="major")
    return ("roofline", "Each point is an operation of ours; the lines are what memory and arithmetic allow.", figure)


def ladder_figure(machine):
    cases = [(k, v) for k, v in machine.cases.items() if k.operation == "ladder"]
    if not cases:
        return None
    bars_of = [[s for s in STEPS if s in r] + [n for n in r if is_peer(n)] for _, r in cases]
    per_row = 3
    rows = (len(cases) + per_row - 1) // per_row
    figure, all_axes = plt.subplots(rows, min(len(cases), per_row), figsize=(min(4.8 * len(cases), 15), 3.8 * rows),
                                    squeeze=False)
    for axes in all_axes.flat[len(cases):]:
        axes.set_visible(False)
    for axes, (key, results), names in zip(all_axes.flat, cases, bars_of):
        rates = [results[n].rate for n in names]
        scale, unit = (1e12, "TFLOP/s") if max(rates) >= 1e12 else (1e9, "GFLOP/s")
        colors = [COLORS[0] if n in STEPS else "#9A9A9A" for n in names]
        bars = axes.bar(range(len(names)), [r / scale for r in rates], color=colors, width=0.7)
        for i, (bar, name) in enumerate(zip(bars, names)):
            value = rates[i] / scale
            text = f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"
            if i and name in STEPS:
                text += f"\n×{rates[i] / rates[i - 1]:.1f}"
            axes.annotate(text, (bar.get_x() + bar.get_width() / 2, bar.get_height()), ha="center", va="bottom",
                          xytext=(0, 2), textcoords="offset points", fontsize=9)
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
        axes.set_ylabel(unit)
        axes.margins(y=0.18)
        axes.set_title(f"{key.type} {key.variant} {tidy_shape(key)}")
    figure.suptitle(f"The ladder: {machine.title}", x=0.01, ha="left", fontweight="bold")
    figure.tight_layout()
    return ("ladder", "Matrix product, each algorithm and its gain over the one before (×); libraries in grey.", figure)


def peer_figure(machine):
    """Ours against the best peer, one bar a case."""
    rows = []
    for key, results in single_cases(machine).items():
        peer = best_peer(results)
        if key.operation != "ladder" and peer and "tessera" in results:
            label = f"{key.operation} {key.type} {key.variant} {tidy_shape(key)}"
            rows.append((label, results[peer].seconds / results["tessera"].seconds, peer))
    if not rows:
        return None
    rows = rows[::-1]
    figure, axes = plt.subplots(figsize=(8.5, 0.27 * len(rows) + 1.4))
    axes.barh(range(len(rows)), [r[1] for r in rows], color=[COLORS[2] if r[1] >= 1 else COLORS[0] for r in rows], height=0.7)
    for i, (_, ratio, peer) in enumerate(rows):
        axes.annotate(f"{ratio:.2f} × {peer}", (max(ratio, 1), i), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.axvline(1, color="#444444", lw=1)
    axes.set_yticks(range(len(rows)), [r[0] for r in rows], fontsize=8)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlim(0, max(1.15, max(r[1] for r in rows)) * 1.25)
    axes.set_xlabel("speed as a multiple of the best peer's")
    axes.set_title(f"Against the best peer: {machine.title}")
    return ("peers", "1 is as fast as the best other library measured on the same data.", figure)


def sawtooth_figure(machine):
    """Throughput against N where a sweep was measured, beside the model's waves."""
    sweeps = sweeps_of(machine)
    if not sweeps:
        return None
    figure, all_axes = plt.subplots(len(sweeps), 1, figsize=(9, 4 * len(sweeps)), squeeze=False)
    for axes, ((type_, variant, m, k), cases) in zip(all_axes[:, 0], sweeps.items()):
        ns = sorted(cases)
        names = collections.OrderedDict.fromkeys(n for r in cases.values() for n in r if n != "plain")
        best = max(r.rate for c in cases.values() for r in c.values())
        scale, unit = (1e12, "TFLOP/s") if best >= 1e12 else (1e9, "GFLOP/s")
        for color, name in zip(COLORS, names):
            have = [n for n in ns if name in cases[n]]
            axes.plot(have, [cases[n][name].rate / scale for n in have], ".-", color=color, lw=1.3, ms=5, label=name)
        model = [(n, cases[n]["tessera"]) for n in ns if cases[n].get("tessera")]
        # What one full wave reaches, times the model's efficiency: the shape is the model's, the height ours.
        efficient = [(r.rate / r.counters["wave_efficiency"]) for _, r in model if r.counters.get("wave_efficiency")]
        if efficient:
            full = sorted(efficient)[len(efficient) // 2]
            axes.plot([n for n, _ in model], [full * r.counters.get("wave_efficiency", 0) / scale for _, r in model],
                      color="#444444", lw=1, ls="--", label="model: waves of tiles")
        axes.set(xlabel="N", ylabel=unit, ylim=(0, None))
        axes.set_title(f"{type_} {variant}, M = {m}, K = {k}: {machine.title}")
        axes.legend(loc="lower right")
        axes.grid(alpha=0.25)
    figure.tight_layout()
    return ("sawtooth", "Wave quantisation: one column of tiles more than fits a wave costs a whole second one.", figure)


def tour_figure(machines):
    """Speed against the plain loop and fraction of the model, for every backend of a tour."""
    rows = []
    for machine in machines:
        for key, results in machine.cases.items():
            ours, plain = results.get("tessera"), results.get("plain")
            if ours and plain and "check" in ours.counters:
                rows.append((machine, key, plain.seconds / ours.seconds, ours.roofline, ours.counters["check"]))
    if not rows:
        return None
    labels = list(collections.OrderedDict.fromkeys((k.operation, k.type, k.variant) for _, k, *_ in rows))
    order = {}
    for operation, type_, variant in labels:
        order.setdefault((operation, type_, variant), len(order))
    backends = list(collections.OrderedDict.fromkeys(k.backend for _, k, *_ in rows))
    # Two shapes of one operation, type and variant get a line each.
    seen, lines = collections.Counter(), []
    for _, key, ratio, fraction, check in rows:
        base = (key.operation, key.type, key.variant)
        lines.append((order[base], seen[(base, key.backend)], key, ratio, fraction, check))
        seen[(base, key.backend)] += 1
    positions = {p: i for i, p in enumerate(sorted({(line[0], line[1]) for line in lines}))}
    count, height = len(positions), 0.8 / len(backends)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 0.32 * count * max(1, 0.6 * len(backends)) + 1.6), sharey=True)
    names = [""] * count
    for first, second, key, ratio, fraction, check in lines:
        i = positions[(first, second)]
        at = count - 1 - i + 0.4 - height * (backends.index(key.backend) + 0.5)
        color = COLORS[backends.index(key.backend)]
        names[count - 1 - i] = f"{key.operation} {key.type} {key.variant}" + (" (2)" if second else "")
        left.barh(at, ratio, height=height * 0.9, color=color)
        left.annotate(f"{ratio:.1f}×" + ("" if check == "ok" else "  WRONG"), (ratio, at), xytext=(3, 0),
                      textcoords="offset points", va="center", fontsize=7.5)
        right.barh(at, 100 * fraction, height=height * 0.9, color=color)
        right.annotate(f"{100 * fraction:.0f} %", (100 * fraction, at), xytext=(3, 0), textcoords="offset points",
                       va="center", fontsize=7.5)
    left.set(xscale="log", xlabel="times faster than the plain loop")
    left.axvline(1, color="#444444", lw=1)
    left.margins(x=0.12)
    left.set_yticks(range(count), names, fontsize=9)
    left.set_ylim(-0.6, count - 0.4)
    right.set_xlabel("percent of the roofline")
    right.margins(x=0.12)
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLORS[i]) for i in range(len(backends))]
    figure.suptitle("The tour: " + machines[0].context.get("device", ""), x=0.01, ha="left", fontweight="bold")
    figure.legend(handles, backends, loc="upper right", ncol=len(backends))
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    return ("tour", "Each row of the tour on each backend.", figure)


def save(figure, directory, name):
    """PNG and SVG beside the page; the PNG again inside it."""
    for suffix in ("png", "svg"):
        figure.savefig(directory / f"{name}.{suffix}")
    data = io.BytesIO()
    figure.savefig(data, format="png")
    plt.close(figure)
    return base64.b64encode(data.getvalue()).decode()


STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;font-size:13px}td,th{padding:2px 10px;border-bottom:1px solid #ddd;text-align:left;
white-space:nowrap}.scroll{overflow-x:auto}img{max-width:100%}dl{display:grid;grid-template-columns:max-content 1fr;
gap:0 1em;font-size:13px}dd{margin:0}"""


def context_html(machine):
    facts = collections.OrderedDict()
    for context in machine.contexts:
        for name, value in context.items():
            if not isinstance(value, (dict, list)):
                facts.setdefault(name, str(value))
    return "<dl>" + "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in facts.items()) + "</dl>"


def write_page(machines, directory):
    directory.mkdir(parents=True, exist_ok=True)
    body = []
    add = lambda made, name: body.append(
        f"<figure><img alt='{html.escape(made[1])}' src='data:image/png;base64,{save(made[2], directory, name)}'>"
        f"<figcaption>{html.escape(made[1])}</figcaption></figure>")
    if plt:
        style()
        made = tour_figure(machines)
        if made:
            add(made, "tour")
    else:
        body.append("<p>No figures: matplotlib is not installed.</p>")
    for machine in machines:
        body.append(f"<h2>{html.escape(machine.title)}</h2>" + context_html(machine))
        for draw in (peer_figure, ladder_figure, roofline_figure, sawtooth_figure) if plt else ():
            made = draw(machine)
            if made:
                add(made, f"{made[0]}-{machine.slug}")
        body += [html_table(table) for table in tables_of(machine)]
    body.append("<p>* measured in another process than ours. Rates are of the fewest operations or bytes; × ratios are of "
                "times, larger is better for us.</p>")
    page = f"<!doctype html><meta charset=utf-8><title>Tessera: measured</title><style>{STYLE}</style><h1>Tessera: measured</h1>"
    (directory / "index.html").write_text(page + "\n".join(body), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", help="JSON files, or folders that hold them")
    parser.add_argument("--output", default="report", help="folder for index.html and the figures (default: report)")
    parser.add_argument("--quiet", action="store_true", help="print no tables")
    arguments = parser.parse_args()
    machines = read(arguments.paths)
    if not machines:
        print("no results in " + ", ".join(arguments.paths), file=sys.stderr)
        return 1
    if not arguments.quiet:
        for machine in machines:
            print(f"\n== {machine.title}")
            for table in tables_of(machine):
                print(text_table(table))
    write_page(machines, pathlib.Path(arguments.output))
    if not arguments.quiet:
        print(f"\n{pathlib.Path(arguments.output) / 'index.html'}" + ("" if plt else " (no figures: matplotlib is missing)"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
