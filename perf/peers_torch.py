#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Tessera authors
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's figures for the operations of the benchmarks, in the same JSON: matmul, scaled_dot_product_attention by
backend, row and element operations eager and compiled.

    perf/peers_torch.py --output perf/results/h200/torch.json [--device cuda|cpu] [--only gemm,attention_fwd] [--seconds 0.3]
"""
import argparse
import datetime
import json
import math
import platform
import re
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
GROUPS = (248, 776, 1272, 1800, 2296, 2824, 3320, 3848)  # rows of A in each group; older kernels want multiples of 8
LAUNCH = 20e-6  # seconds: launched from Python, a call looks longer by this
SHORT_BYTES = 64 << 20  # ours are replayed below 20 us, which a copy of so many bytes takes
REST = 0.3  # seconds before the samples, as ours: what ran before leaves a card at its power limit at a lower clock


def last_cache_bytes():
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size", encoding="utf-8") as stream:
            return int(stream.read().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return 32 << 20


class Timer:
    """Medians; the caches are written over between the samples."""

    def __init__(self, device, seconds):
        self.cuda, self.seconds = device == "cuda", seconds
        cache = 128 << 20 if self.cuda else last_cache_bytes()
        self.flushed = torch.empty(2 * cache, dtype=torch.uint8, device=device)

    def once(self, run, calls, reads_only):
        """What only reads begins with caches full of what has been read: it would pay for what it has not written."""
        self.flushed.zero_()
        if reads_only:
            self.flushed.view(torch.int64).sum()
        if not self.cuda:
            begin = time.perf_counter()
            for _ in range(calls):
                run()
            return (time.perf_counter() - begin) / calls
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end) / calls

    def graph(self, run, calls):
        """What is short is replayed as a graph, like ours: the host's launches do not count."""
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, stream=torch.cuda.current_stream()):
            for _ in range(calls):
                run()
        return captured.replay

    def calls(self, run, reads_only):
        """As many of a short operation as ours: 200 us of what one takes alone, 20 to 100."""
        replay = self.graph(run, 1)
        replay()
        return int(min(max(200e-6 / self.once(replay, 1, reads_only), 20), 100))

    def median(self, run, work, reads_only=False):
        """What memory bounds is timed alone, after other data have been in the caches, for as long as ours is."""
        memory = "flops" not in work
        for _ in range(3):
            run()
        estimate = self.once(run, 1, reads_only)
        calls, launch = 1, run
        if self.cuda:
            short = work["bytes"] < SHORT_BYTES if memory else estimate < 100e-6 + LAUNCH
            if short or memory and estimate < 2e-3:
                calls = self.calls(run, reads_only) if short else 1
                launch = self.graph(run, calls)
        else:
            calls = max(1, int(2e-3 / estimate))
        repeat = min(100, max(3, int(self.seconds / (estimate * calls))))
        divisor = calls if launch is not run else 1
        if self.cuda and not memory:
            time.sleep(REST)
        samples = [self.once(launch, 1 if launch is not run else calls, reads_only) / divisor for _ in range(repeat)]
        return statistics.median(samples), repeat, calls


def gemm_cases(cuda):
    cube = lambda *sizes: [(1, n, n, n) for n in sizes]
    large = cube(4096, 8192) + [(1, 16384, 16384, 8192), (1, 2048, 28672, 8192), (1, 4096, 8192, 28672)]
    small = cube(512, 1024, 2048) + [(1, 1, 8192, 8192), (1, 64, 8192, 8192), (1, 256, 8192, 8192)]
    odd = cube(8191) + [(1, 2047, 2049, 2051), (1, 4097, 1280, 5120)]
    batches = [(64, 1024, 1024, 1024), (512, 128, 128, 128)]
    lines = [("bf16", large + small + odd + batches), ("fp16", large), ("fp32", cube(4096)), ("fp64", cube(4096))]
    for name, shapes in lines if cuda else [(t, cube(512, 1024)) for t in ("fp32", "fp64", "bf16")]:
        for batch, m, n, k in shapes:
            def prepare(batch=batch, m=m, n=n, k=k, dtype=TYPES[name]):
                a, b = random(batch, m, k, dtype), random(batch, n, k, dtype)
                c = torch.empty(batch, m, n, dtype=dtype, device=a.device)
                if batch == 1:
                    return lambda: torch.mm(a[0], b[0].t(), out=c[0])
                return lambda: torch.bmm(a, b.transpose(1, 2), out=c)
            shape = f"{m}x{n}x{k}" if batch == 1 else f"{batch}x{m}x{n}x{k}"
            yield f"gemm/{{}}/{name}/NT/{shape}/torch", {"flops": 2.0 * batch * m * n * k}, prepare


def grouped_cases(cuda):
    """Products with a matrix B of their own for each group of rows of A; the groups differ and end anywhere."""
    if not cuda or not hasattr(torch, "_grouped_mm"):
        return
    rows, n, k = GROUPS, 4096, 4096

    def prepare():
        ends = torch.tensor(rows, device="cuda").cumsum(0).to(torch.int32)
        a, b = random(sum(rows), k, torch.bfloat16), random(len(rows), n, k, torch.bfloat16)
        return lambda: torch._grouped_mm(a, b.transpose(1, 2), offs=ends)
    yield (f"gemm_grouped/{{}}/bf16/NT/{len(rows)}x{sum(rows)}x{n}x{k}/torch", {"flops": 2.0 * sum(rows) * n * k}, prepare)


def attention_cases(cuda):
    kinds = {"torch_cudnn": SDPBackend.CUDNN_ATTENTION, "torch_flash": SDPBackend.FLASH_ATTENTION}
    kinds = kinds if cuda else {"torch": None}
    shapes = [(16384 // s, 2048 // d, 2048 // d, s, s, d) for d in (64, 128, 256) for s in (1024, 4096, 16384)]
    shapes += [(16, 16, 16, 777, 777, 128)]
    shapes += [(4, 2048 // d, 2048 // d, 4096, 4096, d) for d in (72, 96, 112, 160, 192)]
    decode = [(64, 32, 8, 1, 8192, 128), (16, 32, 8, 1, 8192, 128), (1, 32, 8, 1, 131072, 128)] if cuda else []
    host_shapes = [(1, 4, 4, 512, 512, 64), (1, 8, 2, 512, 512, 128), (1, 32, 32, 1024, 1024, 64),
                   (1, 16, 16, 1024, 1024, 128), (1, 16, 16, 4096, 4096, 64), (1, 8, 8, 4096, 4096, 128)]
    shapes = shapes if cuda else host_shapes
    for name in ("bf16",) if cuda else ("fp32", "bf16"):
        for b, hq, hkv, sq, sk, d in shapes + decode:
            for causal in (False, True) if sq > 1 else (False,):
                for implementation, backend in kinds.items():
                    def prepare(b=b, hq=hq, hkv=hkv, sq=sq, sk=sk, d=d, causal=causal, backend=backend,
                                dtype=TYPES[name], **_):
                        q, k, v = random(b, hq, sq, d, dtype), random(b, hkv, sk, d, dtype), random(b, hkv, sk, d, dtype)
                        # PyTorch aligns the mask at the top left: one query of many keys sees them all in ours.
                        options = {"is_causal": causal and sq == sk, "enable_gqa": hq != hkv}

                        def run():
                            if backend is None:
                                return F.scaled_dot_product_attention(q, k, v, **options)
                            with sdpa_kernel(backend):
                                return F.scaled_dot_product_attention(q, k, v, **options)
                        return run
                    pairs = sq * sk - sq * sq / 2 if causal else sq * sk
                    shape = f"B{b}Hq{hq}Hkv{hkv}Sq{sq}Sk{sk}D{d}"
                    variant = "causal" if causal else "full" if sq > 1 else "decode"
                    work = {"flops": 4.0 * b * hq * pairs * d} if sq > 1 else {"bytes": 2.0 * d * TYPES[name].itemsize * (
                        b * hkv * sk + b * hq * sq)}
                    yield f"attention_fwd/{{}}/{name}/{variant}/{shape}/{implementation}", work, prepare


def attention_gradient_cases(cuda):
    """Gradients alone: the forward has run."""
    kinds = {"torch_cudnn": SDPBackend.CUDNN_ATTENTION, "torch_flash": SDPBackend.FLASH_ATTENTION}
    kinds = kinds if cuda else {"torch": None}
    shapes = [(16384 // s, 2048 // d, 2048 // d, s, d) for d in (64, 128, 256) for s in (1024, 4096, 16384)]
    shapes += [(1, 16, 2, 4096, 128), (1, 8, 2, 4096, 256)]
    host_shapes = [(1, h, h, s, d) for h, s, d in ((4, 512, 64), (8, 512, 128), (32, 1024, 64), (16, 1024, 128),
                                                   (16, 4096, 64), (8, 4096, 128))]
    for name in ("bf16",) if cuda else ("fp32", "bf16"):
        for b, h, h_kv, s, d in shapes if cuda else host_shapes:
            for causal in (False, True):
                for implementation, backend in kinds.items():
                    def prepare(b=b, h=h, h_kv=h_kv, s=s, d=d, causal=causal, backend=backend, dtype=TYPES[name]):
                        q, k, v = (random(b, n, s, d, dtype).requires_grad_() for n in (h, h_kv, h_kv))
                        d_o = random(b, h, s, d, dtype)
                        options = {"is_causal": causal, "enable_gqa": h != h_kv}
                        if backend is None:
                            o = F.scaled_dot_product_attention(q, k, v, **options)
                        else:
                            with sdpa_kernel(backend):
                                o = F.scaled_dot_product_attention(q, k, v, **options)
                        return lambda: torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True)
                    pairs = s * s / 2 if causal else s * s
                    yield (f"attention_bwd/{{}}/{name}/{'causal' if causal else 'full'}/B{b}Hq{h}Hkv{h_kv}Sq{s}Sk{s}D{d}/"
                           f"{implementation}", {"flops": 10.0 * b * h * pairs * d}, prepare)


def masked_attention_cases(cuda):
    """FlexAttention for the variants with masks, which PyTorch's other kernels do not skip; its block mask is made
    beforehand, as is our table."""
    if not cuda:
        return
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    heads, length, d, width = 16, 16384, 128, 1024
    documents = (512, 1024, 4096, 2048, 1024, 3584, 1024, 3072)
    triangle = lambda n: n * (n + 1) / 2
    near = lambda ids: lambda b, h, i, j: (i >= j) & (i - j < width)
    same = lambda ids: lambda b, h, i, j: (i >= j) & (ids[i] == ids[j])
    pairs = sum(triangle(n) for n in documents)
    for variant, visible, mask in (("window1024", triangle(length) - triangle(length - width), near),
                                   ("packed", pairs, same), ("documents", pairs, same)):
        def prepare(mask=mask):
            q, k, v = (random(1, heads, length, d, torch.bfloat16) for _ in range(3))
            ids = torch.arange(len(documents), device="cuda").repeat_interleave(torch.tensor(documents, device="cuda"))
            blocks = create_block_mask(mask(ids), None, None, length, length, device="cuda")
            compiled = torch.compile(flex_attention)
            return lambda: compiled(q, k, v, block_mask=blocks)
        shape = f"B1Hq{heads}Hkv{heads}Sq{length}Sk{length}D{d}"
        yield f"attention_fwd/{{}}/bf16/{variant}/{shape}/torch_flex", {"flops": 4.0 * heads * visible * d}, prepare


def alibi(heads):
    """Linear biases with the slopes of Press, Smith and Lewis (2022)."""
    slopes = torch.exp2(torch.arange(1, heads + 1, device="cuda") * (-8 / heads))
    return lambda s, b, h, i, j: s + slopes[h] * (j - i)


def scored_attention_cases(cuda):
    """FlexAttention for causal attention with score functors: those of our benchmark, and none."""
    if not cuda:
        return
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    heads, length, d, far = 16, 16384, 128, 128

    def relative():
        table = random(heads, 2 * far + 1, torch.float32)
        return lambda s, b, h, i, j: s + table[h, (j - i).clamp(-far, far) + far]

    def bias():
        values = random(length, length, torch.bfloat16)
        return lambda s, b, h, i, j: s + values[i, j]
    functors = {"causal": lambda: None, "alibi": lambda: alibi(heads), "relative": relative, "bias": bias,
                "softcap": lambda: lambda s, b, h, i, j: 50 * torch.tanh(s / 50)}
    for variant, functor in functors.items():
        def prepare(functor=functor):
            q, k, v = (random(1, heads, length, d, torch.bfloat16) for _ in range(3))
            score = functor()
            blocks = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device="cuda")
            torch._dynamo.reset()
            compiled = torch.compile(flex_attention)
            return lambda: compiled(q, k, v, score_mod=score, block_mask=blocks)
        shape = f"B1Hq{heads}Hkv{heads}Sq{length}Sk{length}D{d}"
        yield (f"attention_fwd/{{}}/bf16/{variant}/{shape}/torch_flex", {"flops": 2.0 * heads * length * length * d},
               prepare)


def flex_gradient_cases(cuda):
    """Gradients by FlexAttention of what PyTorch's other kernels do not do, causal throughout; the forward has run."""
    if not cuda:
        return
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    heads, length, d, width = 16, 16384, 128, 1024
    documents = (512, 1024, 4096, 2048, 1024, 3584, 1024, 3072)
    triangle = lambda n: n * (n + 1) / 2
    ids = lambda: torch.arange(len(documents), device="cuda").repeat_interleave(torch.tensor(documents, device="cuda"))

    def same():
        of = ids()
        return lambda b, h, i, j: (i >= j) & (of[i] == of[j])

    before = lambda: lambda b, h, i, j: i >= j
    near = lambda: lambda b, h, i, j: (i >= j) & (i - j < width)
    none = lambda: None
    table = [("window1024", triangle(length) - triangle(length - width), near, none),
             ("documents", sum(triangle(n) for n in documents), same, none),
             ("packed", sum(triangle(n) for n in documents), same, none),
             ("alibi", length * length / 2, before, lambda: alibi(heads)),
             ("softcap", length * length / 2, before, lambda: lambda s, b, h, i, j: 50 * torch.tanh(s / 50))]
    for variant, visible, mask, functor in table:
        def prepare(mask=mask, functor=functor):
            q, k, v = (random(1, heads, length, d, torch.bfloat16).requires_grad_() for _ in range(3))
            blocks = create_block_mask(mask(), None, None, length, length, device="cuda")
            torch._dynamo.reset()
            o = torch.compile(flex_attention)(q, k, v, score_mod=functor(), block_mask=blocks)
            d_o = random(1, heads, length, d, torch.bfloat16)
            return lambda: torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True)
        shape = f"B1Hq{heads}Hkv{heads}Sq{length}Sk{length}D{d}"
        yield f"attention_bwd/{{}}/bf16/{variant}/{shape}/torch_flex", {"flops": 10.0 * heads * visible * d}, prepare


def packed_gradient_cases(cuda):
    """Gradients over documents told by where they begin, causal: FlashAttention-2 as PyTorch has it; the forward has run."""
    if not cuda:
        return
    heads, length, d = 16, 16384, 128
    documents = (512, 1024, 4096, 2048, 1024, 3584, 1024, 3072)
    pairs = sum(n * (n + 1) / 2 for n in documents)

    def prepare():
        q, k, v, d_o = (random(length, heads, d, torch.bfloat16) for _ in range(4))
        starts = F.pad(torch.tensor(documents, device="cuda").cumsum(0), (1, 0)).int()
        most, aten = max(documents), torch.ops.aten
        o, lse, state, unused, _ = aten._flash_attention_forward(q, k, v, starts, starts, most, most, 0.0, True, False)
        return lambda: aten._flash_attention_backward(d_o, q, k, v, o, lse, starts, starts, most, most, 0.0, True, state,
                                                      unused)
    shape = f"B1Hq{heads}Hkv{heads}Sq{length}Sk{length}D{d}"
    yield f"attention_bwd/{{}}/bf16/packed/{shape}/torch_flash", {"flops": 10.0 * heads * pairs * d}, prepare


def row_cases(cuda):
    def sin2_cos2(x, w, b, r): return torch.sin(x) ** 2 + torch.cos(x) ** 2
    def gelu_bias(x, w, b, r): return F.gelu(x + b)
    def elu(x, w, b, r): return F.elu(x)
    def gelu_sin_cos(x, w, b, r): return F.gelu(x + b) * torch.sin(x) + torch.cos(x)
    def add(x, w, b, r): return x + r
    def swiglu(x, w, b, r): return F.silu(x) * r
    def gelu_gradient(x, w, b, r): return torch.ops.aten.gelu_backward(x, r)
    def sum_rows(x, w, b, r): return x.sum(-1)
    def softmax(x, w, b, r): return torch.softmax(x, -1)
    def layer_norm(x, w, b, r): return F.layer_norm(x, x.shape[-1:], w, b)
    def rms_norm(x, w, b, r): return F.rms_norm(x, x.shape[-1:], w, 1e-5)
    def residual(x, w, b, r):
        s = x + r
        return F.rms_norm(s, x.shape[-1:], w, 1e-5), s
    # name, function, tensors moved
    table = [("transform", "sin2_cos2", sin2_cos2, 2), ("transform", "gelu_bias", gelu_bias, 2), ("transform", "elu", elu, 2),
             ("transform", "gelu_sin_cos", gelu_sin_cos, 2), ("transform", "add", add, 3), ("transform", "swiglu", swiglu, 3),
             ("transform", "gelu_gradient", gelu_gradient, 3),
             ("reduce", "sum_rows", sum_rows, 1), ("softmax", "rows", softmax, 2), ("layer_norm", "weight", layer_norm, 2),
             ("rms_norm", "weight", rms_norm, 2), ("rms_norm", "residual", residual, 4)]
    sizes = [(1024, 1024), (16384, 4096), (65536, 8192), (262144, 64), (32768, 5120), (16384, 10240), (512, 131072), (128, 1048576)] if cuda else [(1024, 4096), (16384, 4096)]
    for rows, columns in sizes:
        for name in ("fp32", "bf16"):
            for operation, variant, function, moved in table:
                for implementation in ("torch", "torch_compile"):
                    def prepare(rows=rows, columns=columns, function=function, compiled=implementation != "torch",
                                dtype=TYPES[name], **_):
                        x, r = random(rows, columns, dtype), random(rows, columns, dtype)
                        w, b = random(columns, dtype), random(columns, dtype)
                        if compiled:
                            torch._dynamo.reset()
                        run = torch.compile(function) if compiled else function
                        return lambda: run(x, w, b, r)
                    size = torch.finfo(TYPES[name]).bits // 8
                    yield (f"{operation}/{{}}/{name}/{variant}/{rows}x{columns}/{implementation}",
                           {"bytes": float(moved * rows * columns * size)}, prepare)


def row_gradient_cases(cuda):
    """Backward passes by the operations that autograd calls; of what is compiled, the function written out. The statistics
    are those of the forward pass."""
    def softmax(x, g, w, t): return torch._softmax_backward_data(g, x, -1, x.dtype)
    def softmax_formula(x, g, w, t): return x * (g - (x * g).sum(-1, keepdim=True))
    def log_softmax(x, g, w, t): return torch._log_softmax_backward_data(g, x, -1, x.dtype)
    def log_softmax_formula(x, g, w, t): return g - torch.exp(x) * g.sum(-1, keepdim=True)
    def layer_norm(x, g, w, t):
        return torch.ops.aten.native_layer_norm_backward(g, x, x.shape[-1:], t[0], t[1], w, w, [True, True, True])
    def layer_norm_formula(x, g, w, t):
        x_hat, g = (x.float() - t[0]) * t[1], g.float()
        s = g * w
        d = t[1] * (s - s.mean(-1, keepdim=True) - x_hat * (s * x_hat).mean(-1, keepdim=True))
        return d.to(x.dtype), (g * x_hat).sum(0).to(x.dtype), g.sum(0).to(x.dtype)
    def rms_norm_formula(x, g, w, t):
        x_hat, g = x.float() * t[1], g.float()
        s = g * w
        d = t[1] * (s - x_hat * (s * x_hat).mean(-1, keepdim=True))
        return d.to(x.dtype), (g * x_hat).sum(0).to(x.dtype)
    # operation, variant, eager, compiled, tensors moved
    table = [("softmax_backward", "rows", softmax, softmax_formula, 3),
             ("log_softmax_backward", "rows", log_softmax, log_softmax_formula, 3),
             ("layer_norm_backward", "weight", layer_norm, layer_norm_formula, 3),
             ("rms_norm_backward", "weight", rms_norm_formula, rms_norm_formula, 3),
             ("cross_entropy", "mean", None, None, 2)]
    rows_of = [(1024, 1024), (16384, 4096), (65536, 8192), (262144, 64), (32768, 5120), (16384, 10240), (512, 131072), (128, 1048576)] if cuda else [(1024, 4096), (16384, 4096)]
    classes = [(16384, 32000), (8192, 128256)] if cuda else [(16384, 4096), (64, 32000)]
    for name in ("fp32", "bf16"):
        for operation, variant, eager, compiled, moved in table:
            for rows, columns in classes if operation == "cross_entropy" else rows_of:
                for implementation, function in (("torch", eager), ("torch_compile", compiled)):
                    def prepare(rows=rows, columns=columns, function=function, operation=operation,
                                compile=implementation != "torch", dtype=TYPES[name]):
                        x, w = random(rows, columns, dtype), random(columns, dtype)
                        if operation == "cross_entropy":
                            labels = torch.arange(rows, device=x.device) * 7919 % columns
                            loss = torch.compile(F.cross_entropy) if compile else F.cross_entropy
                            x.requires_grad_()

                            def run():
                                x.grad = None
                                loss(x, labels).backward()
                            return run
                        g = random(rows, columns, dtype)
                        kept = torch.float32 if cuda else dtype
                        statistics = (random(rows, 1, kept), random(rows, 1, kept))
                        if compile:
                            torch._dynamo.reset()
                        run = torch.compile(function) if compile else function
                        return lambda: run(x, g, w, statistics)
                    size = torch.finfo(TYPES[name]).bits // 8
                    yield (f"{operation}/{{}}/{name}/{variant}/{rows}x{columns}/{implementation}",
                           {"bytes": float(moved * rows * columns * size)}, prepare)


def random(*shape_and_type):
    *shape, dtype = shape_and_type
    return (torch.rand(*shape, device=random.device) * 2 - 1).to(dtype)


def device_name(device):
    if device == "cuda":
        return torch.cuda.get_device_name()
    with open("/proc/cpuinfo", encoding="utf-8") as stream:
        names = [line.split(":", 1)[1].strip() for line in stream if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--only",
                        default="gemm,gemm_grouped,attention_fwd,attention_bwd,flex_gradients,packed_gradients,"
                                "masked_attention,scored_attention,rows,row_gradients",
                        help="gemm, gemm_grouped, attention_fwd, attention_bwd, flex_gradients, packed_gradients, "
                             "masked_attention, scored_attention, rows, row_gradients")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--filter", default="", help="a regular expression that names of cases must contain")
    arguments = parser.parse_args()
    random.device = arguments.device
    cuda = arguments.device == "cuda"
    backend = "cuda" if cuda else "openmp"
    if cuda:  # where a second stream has had work, too, each kernel of a graph on an H200 begins 0.4 us later
        torch.cuda.set_stream(torch.cuda.Stream())
    timer = Timer(arguments.device, arguments.seconds)
    context = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
               "device": device_name(arguments.device), "backend": backend, "torch": torch.__version__,
               "torch_cuda": str(torch.version.cuda), "torch_cudnn": str(torch.backends.cudnn.version()),
               "torch_threads": torch.get_num_threads()}
    benchmarks = []
    families = {"gemm": gemm_cases, "gemm_grouped": grouped_cases, "attention_fwd": attention_cases,
                "attention_bwd": attention_gradient_cases, "flex_gradients": flex_gradient_cases,
                "packed_gradients": packed_gradient_cases,
                "masked_attention": masked_attention_cases, "scored_attention": scored_attention_cases,
                "rows": row_cases, "row_gradients": row_gradient_cases}
    for family in arguments.only.split(","):
        for name, work, prepare in families[family](cuda):
            name = name.format(backend)
            if not re.search(arguments.filter, name):
                continue
            try:
                seconds, samples, calls = timer.median(prepare(), work, name.startswith("reduce/"))
            except (RuntimeError, NotImplementedError, torch._dynamo.exc.BackendCompilerFailed) as error:
                print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            entry = {"name": name, "run_name": name, "run_type": "iteration", "repetitions": 1, "iterations": 1,
                     "real_time": seconds * 1e6, "cpu_time": seconds * 1e6, "time_unit": "us", "samples": samples,
                     "calls": calls}
            entry.update({kind: value / seconds for kind, value in work.items()})
            benchmarks.append(entry)
            rate = next(iter(work.values())) / seconds
            print(f"{name:90} {seconds * 1e6:12.1f} us {rate / 10 ** (3 * int(math.log10(rate) // 3)):8.1f} "
                  f"{'kMGTP'[int(math.log10(rate) // 3) - 1]}{'FLOP/s' if 'flops' in work else 'B/s'}", flush=True)
            with open(arguments.output, "w", encoding="utf-8") as stream:  # after each, so that a stop loses nothing
                json.dump({"context": context, "benchmarks": benchmarks}, stream, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
