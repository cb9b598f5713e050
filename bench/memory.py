#!/usr/bin/env python3
"""Times the operators that are bound by memory beside a copy of the same bytes, torch, torch.compile, Liger and vLLM, in one interleaved run.

    bench/memory.py --emit-launches DIR --bin target/release/tilewright     # where there is Rust: compiles candidates of every case
    for op in rmsnorm softmax; do bench/memory.py --warm --only $op & done; wait   # torch.compile's cache, where there is a GPU
    bench/memory.py --launches DIR --json rows.jsonl --limit-seconds 540    # there, with torch and cuda-bindings

Cases that rows.jsonl has already are left out, so that the second command is repeated until it says that nothing is left. Peers are taken
where they are found: Liger where `import liger_kernel` works, vLLM's operators from the library that PEERS_VLLM names.

Of each case, every candidate is checked against torch in f32 and timed in a quick round; the fastest then runs beside the peers: `--runs`
runs, in each of which every implementation has several turns, each after a spin that lets the host queue ahead and a write of 256 MiB that
evicts the L2. A run's time is the median of its turns; a row has the median of the runs and their spread. GB/s counts what is read and
written once. The copy is ours, of as many bytes in all, its configuration chosen in the same way.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import common

ROWS = [(4096, 4096), (16384, 8192), (128, 8192), (16384, 128), (1048576, 128), (512, 131072), (8192, 11008)]
LONG = [(128, 131072), (4096, 128256), (16384, 8192), (32768, 1000)]
TOKENS = [(256, 32), (512, 32), (4096, 32), (32768, 32)]
SQUARES = [(1024, 1024), (4096, 4096), (8192, 8192), (16384, 8192), (100000, 512)]
SCANS = [(1, 4096, 1024), (1, 4096, 4096), (1, 4096, 16384), (1, 8192, 4096), (2, 5120, 2048), (4, 5120, 2048), (8, 4096, 2048), (8, 5120, 2048),
         (8, 5120, 4096), (8, 8192, 2048), (8, 8192, 16384), (1, 5120, 1024)]  # fmt: skip
MIDDLES = [(64, 1024, 1024), (4096, 128, 128), (8, 4096, 4096)]
VECTORS = [(4096, 4096), (28672, 8192), (8192, 28672), (16384, 8192), (128256, 8192)]


def randn(*shape):
    import torch

    return torch.randn(*shape, device="cuda", dtype=torch.float16)


class Case:
    """A problem on the GPU: tensors by the names of our parameters, what is right, bytes, and the peers as functions."""

    def __init__(self, tensors, exact, elements, peers, bound=5e-3, part=None):
        self.part = part or (lambda result: result)  # what is compared of a result
        self.tensors, self.exact, self.bytes, self.peers, self.bound = tensors, exact, 2 * elements, peers, bound


def compiled(f, *a):
    """`f(*a)` by eager torch and by torch.compile."""
    import torch

    g = torch.compile(f, dynamic=False)
    return {"eager": lambda: f(*a), "compile": lambda: g(*a)}


def quantised(most, dtype, block):
    """What quantises rows, or blocks of columns of rows, in torch."""
    import torch

    def f(x):
        parts = x.float().unflatten(-1, (-1, block)) if block else x.float()
        s = parts.abs().amax(-1, keepdim=True).clamp(min=1.1754943508222875e-38 * most) / most
        q = parts / s
        q = q.round().clamp(-most, most).to(torch.int8) if dtype == torch.int8 else q.clamp(-most, most).to(dtype)
        return (q.flatten(-2), s.squeeze(-1)) if block else (q, s.squeeze(-1))

    return f


def quantise(most, name, block):
    """A case that quantises to 8 bits."""

    def make(m, n):
        import torch

        x, f = randn(m, n), quantised(most, getattr(torch, name), block)
        return Case({"x": x}, {"y": lambda: f(x)[0].float(), "s": lambda: f(x)[1]}, 3 * m * n // 2, compiled(f, x), bound=2e-2)

    return make


def causal_conv1d(b, d, l):
    import torch
    import torch.nn.functional as F

    x, w, bias = randn(b, d, l), randn(d, 4), randn(d)

    def f(x, w, bias):
        return F.silu(F.conv1d(x, w[:, None], bias, padding=3, groups=w.shape[0])[..., : x.shape[-1]])

    exact = {"y": lambda: f(x.float(), w.float(), bias.float())}
    return Case({"x": x, "w": w, "bias": bias}, exact, 2 * b * d * l, compiled(f, x, w, bias))


def permute(l, m, n, d):
    x = randn(l, m, n, d)
    return Case({"x": x}, {"y": lambda: x.transpose(1, 2).float()}, 2 * l * m * n * d, compiled(lambda x: x.transpose(1, 2).contiguous(), x))


def cross_entropy(m, n):
    import torch
    import torch.nn.functional as F

    x, target = randn(m, n), torch.randint(0, n, (m,), device="cuda")
    exact = {"loss": lambda: F.cross_entropy(x.float(), target, reduction="none")}
    peers = compiled(lambda x, target: F.cross_entropy(x.float(), target, reduction="none"), x, target)
    return Case({"x": x, "target": target.int()}, exact, m * n, peers)


def liger(name, *a):
    """Liger's function of this name, where it is installed."""
    try:
        import liger_kernel.transformers.functional as functional
    except ImportError:
        return {}
    return {"liger": lambda: getattr(functional, name)(*a)} if hasattr(functional, name) else {}


def vllm(run):
    """A call of vLLM's operators, where they are."""
    import torch

    library = os.environ.get("PEERS_VLLM")
    if not library:
        return {}
    torch.ops.load_library(library)
    return {"vllm": lambda: run(torch.ops._C)}


def single(result):
    """The first of several results."""
    return result[0] if isinstance(result, tuple) else result


def rmsnorm(m, n):
    import torch
    import torch.nn.functional as F

    x, w = randn(m, n), torch.rand(n, device="cuda", dtype=torch.float16) + 0.5
    y = torch.empty_like(x)

    def theirs(C):
        C.rms_norm(y, x, w, 1e-6)
        return y

    peers = compiled(lambda x, w: F.rms_norm(x, w.shape, w, 1e-6), x, w) | liger("liger_rms_norm", x, w, 1e-6) | vllm(theirs)
    return Case({"x": x, "w": w}, {"y": lambda: F.rms_norm(x.float(), w.shape, w.float(), 1e-6)}, 2 * m * n, peers)


def add_rmsnorm(m, n):
    import torch
    import torch.nn.functional as F

    x, r, w = randn(m, n), randn(m, n), torch.rand(n, device="cuda", dtype=torch.float16) + 0.5

    def f(x, r, w):
        h = x + r
        return F.rms_norm(h, w.shape, w, 1e-6), h

    peers = compiled(f, x, r, w) | liger("liger_fused_add_rms_norm", x, r, w, 1e-6)
    exact = {"y": lambda: F.rms_norm((x + r).float(), w.shape, w.float(), 1e-6), "h": lambda: x.float() + r.float()}
    return Case({"x": x, "r": r, "w": w}, exact, 4 * m * n, peers)


def layernorm(m, n):
    import torch
    import torch.nn.functional as F

    x, w, b = randn(m, n), torch.rand(n, device="cuda", dtype=torch.float16) + 0.5, randn(n)
    peers = compiled(lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5), x, w, b) | liger("liger_layer_norm", x, w, b, 1e-5)
    exact = {"y": lambda: F.layer_norm(x.float(), w.shape, w.float(), b.float(), 1e-5)}
    return Case({"x": x, "w": w, "b": b}, exact, 2 * m * n, peers)


def add_layernorm(m, n):
    import torch
    import torch.nn.functional as F

    x, r, w, b = randn(m, n), randn(m, n), torch.rand(n, device="cuda", dtype=torch.float16) + 0.5, randn(n)

    def f(x, r, w, b):
        h = x + r
        return F.layer_norm(h, w.shape, w, b, 1e-5), h

    exact = {"y": lambda: F.layer_norm((x + r).float(), w.shape, w.float(), b.float(), 1e-5), "h": lambda: x.float() + r.float()}
    return Case({"x": x, "r": r, "w": w, "b": b}, exact, 4 * m * n, compiled(f, x, r, w, b))


def softmax(m, n):
    import torch

    x = randn(m, n)
    peers = compiled(lambda x: torch.softmax(x, -1), x) | liger("liger_softmax", x)
    return Case({"x": x}, {"y": lambda: torch.softmax(x.float(), -1)}, 2 * m * n, peers)


def log_softmax(m, n):
    import torch

    x = randn(m, n)
    return Case({"x": x}, {"y": lambda: torch.log_softmax(x.float(), -1)}, 2 * m * n, compiled(lambda x: torch.log_softmax(x, -1), x))


def silu_mul(m, n):
    import torch
    import torch.nn.functional as F

    a, b = randn(m, n), randn(m, n)
    y, both = torch.empty_like(a), torch.cat([a, b], 1)

    def theirs(C):
        C.silu_and_mul(y, both)
        return y

    peers = compiled(lambda a, b: F.silu(a) * b, a, b) | liger("liger_swiglu", a, b) | vllm(theirs)
    return Case({"a": a, "b": b}, {"y": lambda: F.silu(a.float()) * b.float()}, 3 * m * n, peers)


def gelu_mul(m, n):
    import torch.nn.functional as F

    a, b = randn(m, n), randn(m, n)
    peers = compiled(lambda a, b: F.gelu(a, approximate="tanh") * b, a, b) | liger("liger_geglu", a, b)
    return Case({"a": a, "b": b}, {"y": lambda: F.gelu(a.float(), approximate="tanh") * b.float()}, 3 * m * n, peers)


def angles(t, d):
    """Cosines and sines of `t` tokens, for pairs of heads of `d` numbers."""
    import torch

    a = torch.arange(t, device="cuda")[:, None] * (1e4 ** (-torch.arange(0, d, 2, device="cuda") / d))
    return a.cos().half(), a.sin().half()


def rope(t, h, d=128):
    import torch

    x, (cos, sin) = randn(t, h, d), angles(t, d)
    wide = [torch.cat([a, a], -1)[None, :, None] for a in (cos, sin)]

    def f(q, cos, sin):
        return q * cos + torch.cat((-q[..., d // 2 :], q[..., : d // 2]), -1) * sin

    peers = compiled(f, x[None], *wide)
    turned, key = x[None].transpose(1, 2).contiguous(), torch.zeros(1, 1, t, d, device="cuda", dtype=torch.float16)
    flat = [a[:, :, 0].contiguous() for a in wide]
    # In place, so that it is not compared: what it turns changes from turn to turn, and keeps its norm.
    peers |= {f"{name}-inplace": run for name, run in liger("liger_rope", turned, key, *flat).items()}
    exact = {"y": lambda: f(x.float()[None], *[a.float() for a in wide])[0]}
    return Case({"x": x, "cos": cos, "sin": sin}, exact, 2 * t * h * d + t * d, peers)


def rope_interleaved(t, h, d=128):
    import torch

    x, (cos, sin) = randn(t, h, d), angles(t, d)

    def f(q, cos, sin):
        a, b, c, s = q[..., ::2], q[..., 1::2], cos[:, None], sin[:, None]
        return torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2)

    return Case({"x": x, "cos": cos, "sin": sin}, {"y": lambda: f(x.float(), cos.float(), sin.float())}, 2 * t * h * d + t * d, compiled(f, x, cos, sin))


def transpose(m, n):
    x = randn(m, n)
    return Case({"x": x}, {"y": lambda: x.t().float()}, 2 * m * n, compiled(lambda x: x.t().contiguous(), x))


def gemv(m, n):
    import torch

    a, x = randn(m, n), randn(n)
    peers = {"eager": lambda: a @ x, "compile": torch.compile(lambda a, x: (a * x).sum(-1), dynamic=False)}
    peers["compile"] = (lambda g: lambda: g(a, x))(peers["compile"])
    return Case({"a": a, "x": x}, {"y": lambda: (a.float() @ x.float())}, m * n, peers)


def gemv_transposed(m, n):
    import torch

    a, x = randn(m, n), randn(m)
    g = torch.compile(lambda a, x: (a * x[:, None]).sum(0, dtype=torch.float32), dynamic=False)
    peers = {"eager": lambda: x @ a, "compile": lambda: g(a, x)}
    return Case({"a": a, "x": x}, {"y": lambda: x.float() @ a.float()}, m * n, peers)


def permute_reversed(l, m, n):
    x = randn(l, m, n)
    return Case({"x": x}, {"y": lambda: x.permute(2, 1, 0).float()}, 2 * l * m * n, compiled(lambda x: x.permute(2, 1, 0).contiguous(), x))


def cross_entropy_backward(m, n):
    import torch

    x, target = randn(m, n), torch.randint(0, n, (m,), device="cuda")
    lse, scale = torch.logsumexp(x.float(), -1), torch.rand(m, device="cuda")

    def f(x, target, lse, scale):
        hit = torch.arange(x.shape[1], device=x.device)[None] == target[:, None]
        return (((x.float() - lse[:, None]).exp() - hit.float()) * scale[:, None]).to(x.dtype)

    tensors = {"x": x, "target": target.int(), "lse": lse, "dloss": scale}
    return Case(tensors, {"dx": lambda: f(x, target, lse, scale).float()}, 2 * m * n, compiled(f, x, target, lse, scale))


def norm_backward(centres, added=False):
    """The gradients of a norm; with `added` of one of a sum, which has a gradient of its own."""

    def make(m, n):
        import torch

        x, dy, w = randn(m, n), randn(m, n), torch.rand(n, device="cuda", dtype=torch.float16) + 0.5
        beside = [randn(m, n)] if added else []
        eps = 1e-5 if centres else 1e-6

        def f(x, dy, w, *beside):
            v, d = x.float(), dy.float()
            v = v - v.mean(-1, keepdim=True) if centres else v
            s = torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)
            h, g = v * s, d * w.float()
            flat = g.mean(-1, keepdim=True) if centres else 0
            dx = s * (g - flat - h * (g * h).mean(-1, keepdim=True)) + sum(dh.float() for dh in beside)
            return (dx.to(x.dtype), (d * h).sum(0), d.sum(0)) if centres else (dx.to(x.dtype), (d * h).sum(0))

        given = x, dy, w, *beside
        exact = {"dx": lambda: f(*given)[0].float(), "dw": lambda: f(*given)[1]} | ({"db": lambda: f(*given)[2]} if centres else {})
        tensors = {"x": x, "dy": dy, "w": w} | {"dh": dh for dh in beside}
        return Case(tensors, exact, (4 if added else 3) * m * n, compiled(f, *given), bound=1e-2)

    return make


def reduced(kind, axis):
    """Sums, means or maxima over an axis."""

    def make(*shape):
        import torch

        x = randn(*shape)
        if kind == "max":
            return Case({"x": x}, {"y": lambda: x.float().amax(axis)}, math.prod(shape), compiled(lambda x: x.amax(axis), x), bound=0.0)
        reduce = torch.sum if kind == "sum" else torch.mean
        peers = compiled(lambda x: reduce(x, axis, dtype=torch.float32), x)
        return Case({"x": x}, {"y": lambda: reduce(x.float(), axis)}, math.prod(shape), peers, bound=1e-2)

    return make


def dropout(m, n):
    import torch

    x = randn(m, n)
    # Other random numbers: what is compared is how many are kept, and their scale.
    peers = compiled(lambda x: torch.nn.functional.dropout(x, 0.25), x)
    return Case({"x": x}, {}, 2 * m * n, peers)


def cumsum(m, n):
    import torch

    x = randn(m, n)
    peers = compiled(lambda x: torch.cumsum(x, -1, dtype=torch.float32), x)
    return Case({"x": x}, {"y": lambda: x.double().cumsum(-1).float()}, 3 * m * n, peers, bound=1e-2)


def argmax(m, n):
    x = randn(m, n)
    return Case({"x": x}, {"y": lambda: x.argmax(-1).float(), "v": lambda: x.max(-1).values.float()}, m * n, compiled(lambda x: x.argmax(-1), x), bound=0.5)


def embedding(t, v, n):
    import torch

    w, ids = randn(v, n), torch.randint(0, v, (t,), device="cuda")
    peers = compiled(lambda w, ids: torch.nn.functional.embedding(ids, w), w, ids)
    return Case({"w": w, "ids": ids.int()}, {"y": lambda: w[ids].float()}, 2 * t * n, peers)


def softmax_ragged(m, n):
    import torch

    x, lengths = randn(m, n), torch.randint(1, n + 1, (m,), device="cuda")

    def f(x, lengths):
        there = torch.arange(x.shape[1], device=x.device)[None] < lengths[:, None]
        return torch.softmax(x.masked_fill(~there, float("-inf")), -1)

    elements = int(lengths.sum()) + m * n
    return Case({"x": x, "lengths": lengths.int()}, {"y": lambda: f(x.float(), lengths)}, elements, compiled(f, x, lengths))


def topk(k):
    """The largest elements of rows; beside FlashInfer's selection, where it is installed."""

    def make(m, n):
        import torch

        x = randn(m, n)
        peers = compiled(lambda x: torch.topk(x, k, -1), x)
        try:
            import flashinfer

            peers["flashinfer"] = lambda: flashinfer.top_k(x, k)
        except (ImportError, AttributeError):
            pass
        # Columns of equal elements are not compared: peers take any.
        return Case({"x": x}, {"v": lambda: x.float().topk(k, -1).values}, m * n, peers, bound=0.0)

    return make


def top_p(m, n):
    import torch

    x, u = randn(m, n), torch.rand(m, device="cuda")

    def f(x, u):
        share, order = torch.softmax(x.float(), -1).sort(-1, descending=True)
        up = share.cumsum(-1)
        share = torch.where(up - share < 0.9, share, 0)
        up = share.cumsum(-1)
        return order.gather(-1, torch.searchsorted(up, (u * up[:, -1])[:, None], right=True).clamp(max=x.shape[1] - 1))

    # Drawn in the order of shares by the peer, in that of columns by ours: other tokens, alike distributed.
    return Case({"x": x, "u": u}, {}, m * n, compiled(f, x, u))


def histogram(n, v):
    import torch

    x = torch.randint(0, v, (n,), device="cuda", dtype=torch.int32)
    peers = compiled(lambda x: torch.bincount(x, minlength=v), x)
    return Case({"x": x}, {"h": lambda: torch.bincount(x, minlength=v).float()}, 2 * n, peers, bound=0.0)


def embedding_backward(t, v, n):
    import torch

    dy, ids = randn(t, n), torch.randint(0, v, (t,), device="cuda")
    peers = compiled(lambda dy, ids: torch.ops.aten.embedding_dense_backward(dy, ids, v, -1, False), dy, ids)
    exact = {"dw": lambda: torch.zeros(v, n, device="cuda").index_add_(0, ids, dy.float())}
    # Rows of f32 are read and written where they are added, and filled with zeros before.
    return Case({"dy": dy, "ids": ids.int()}, exact, 5 * t * n + 2 * v * n, peers, bound=1e-2)


def scatter_add(t, v, n):
    import torch

    # Sums grow from launch to launch: of zeros, none does.
    x, y, ids = torch.zeros(t, n, device="cuda", dtype=torch.float16), randn(v, n), torch.randint(0, v, (t,), device="cuda")
    before = y.float()
    peers = compiled(lambda y, ids, x: y.index_add_(0, ids, x), y, ids, x)
    return Case({"x": x, "y": y, "ids": ids.int()}, {"y": lambda: before}, 3 * t * n, peers)


def batched_gemm(l, m, n, k):
    import torch

    a, b = randn(l, m, k), randn(l, n, k)
    exact = {"c": lambda: a.float() @ b.float().transpose(1, 2)}
    return Case({"a": a, "b": b}, exact, l * (m * k + n * k + m * n), compiled(lambda a, b: torch.bmm(a, b.transpose(1, 2)), a, b))


def linear_cross_entropy(m, n, k):
    import torch
    import torch.nn.functional as F

    x, w, target = randn(m, k) / 8, randn(n, k) / 8, torch.randint(0, n, (m,), device="cuda")

    def f(x, w, target):
        return F.cross_entropy((x @ w.t()).float(), target, reduction="none")

    exact = {"loss": lambda: torch.cat([f(part.float(), w.float(), t) for part, t in zip(x.split(512), target.split(512))])}
    return Case({"x": x, "w": w, "target": target.int()}, exact, k * (m + n), compiled(f, x, w, target))


def linear_cross_entropy_backward(m, n, k):
    """Beside torch in chunks of 1024 rows, as Liger has it."""
    import torch

    x, w, target = randn(m, k) / 8, randn(n, k) / 8, torch.randint(0, n, (m,), device="cuda")
    lse = torch.cat([torch.logsumexp((part @ w.t()).float(), -1) for part in x.split(1024)])
    scale = torch.rand(m, device="cuda")

    def gradient(x, w, target, lse, scale):
        hit = torch.arange(w.shape[0], device=x.device)[None] == target[:, None]
        return ((((x @ w.t()).float() - lse[:, None]).exp() - hit.float()) * scale[:, None]).to(x.dtype)

    made = torch.compile(gradient, dynamic=False)

    def parts(gradient):
        return (gradient(a, w, t, b, c) for a, t, b, c in zip(*(tensor.split(1024) for tensor in (x, target, lse, scale))))

    def f(gradient):
        dx, dw = [], torch.zeros(n, k, device="cuda")
        for g, part in zip(parts(gradient), x.split(1024)):
            dx.append(g @ w)
            dw += g.t() @ part
        return torch.cat(dx), dw

    exact = {"dx": lambda: torch.cat([g.float() @ w.float() for g in parts(gradient)]),
             "dw": lambda: sum(g.float().t() @ part.float() for g, part in zip(parts(gradient), x.split(1024)))}  # fmt: skip
    tensors = {"x": x, "w": w, "target": target.int(), "lse": lse, "dloss": scale, "meet": torch.zeros(1, device="cuda", dtype=torch.int32)}
    peers = {"eager": lambda: f(gradient), "compile": lambda: f(made)}
    return Case(tensors, exact, 2 * k * (2 * m + 3 * n), peers, bound=1e-2)


def mamba2(b, l, h):
    """Beside mamba-ssm's Triton kernels, where they are installed."""
    import torch
    import torch.nn.functional as F

    x, delta, bs, cs = randn(b, l, h, 64), randn(b, l, h) / 2, randn(b, l, 128), randn(b, l, 128)
    a, skip, bias = -torch.rand(h, device="cuda") - 0.1, torch.randn(h, device="cuda"), torch.rand(h, device="cuda") - 4

    def exact():
        dt, state, sums = F.softplus(delta.float() + bias), torch.zeros(b, h, 64, 128, device="cuda"), []
        for t in range(min(l, 256)):
            step = (dt[:, t, :, None] * x[:, t].float())[..., None] * bs[:, t, None, None].float()
            state = state * torch.exp(dt[:, t] * a)[..., None, None] + step
            sums.append((state * cs[:, t, None, None].float()).sum(-1))
        return torch.stack(sums, 1) + skip[:, None] * x[:, : min(l, 256)].float()

    peers = {}
    try:
        from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined as theirs

        wide = [t[:, :, None].contiguous() for t in (bs, cs)]
        peers["mamba-ssm"] = lambda: theirs(x, delta, a, *wide, 256, D=skip, dt_bias=bias, dt_softplus=True)
    except ImportError:
        pass
    tensors = {"x": x, "delta": delta, "a": a, "bs": bs, "cs": cs, "skip": skip, "bias": bias}
    return Case(tensors, {"y": exact}, 128 * b * l * h + 256 * b * l, peers, bound=2e-2, part=lambda y: y.reshape(b, l, h, 64)[:, :256].float())


def selective_scan(b, d, l):
    """Beside mamba-ssm's kernel, where PEERS_SCAN_SO names a library with `scan_fwd`."""
    import ctypes

    import torch
    import torch.nn.functional as F

    u, z, bs, cs = randn(b, d, l), randn(b, d, l), randn(b, 16, l), randn(b, 16, l)
    delta = (torch.rand(b, d, l, device="cuda") - 0.5).half()
    a, skip, bias = -torch.rand(d, 16, device="cuda") - 0.1, torch.randn(d, device="cuda"), torch.rand(d, device="cuda") - 4
    steps = min(l, 256)

    def right(y):
        # As far as is compared: steps one after another are slow in torch.
        return y.reshape(b, d, l)[..., :steps].float()

    def exact():
        dt, h, sums = F.softplus(delta.float() + bias[:, None]), torch.zeros(b, d, 16, device="cuda"), []
        for t in range(steps):
            h = h * torch.exp(dt[:, :, t, None] * a) + (dt[:, :, t] * u[:, :, t].float())[..., None] * bs[:, None, :, t].float()
            sums.append((h * cs[:, None, :, t].float()).sum(-1))
        return (torch.stack(sums, -1) + skip[:, None] * u[..., :steps].float()) * F.silu(z[..., :steps].float())

    peers = {}
    if os.environ.get("PEERS_SCAN_SO"):
        library = ctypes.CDLL(os.environ["PEERS_SCAN_SO"])
        o, oz, x = torch.empty_like(u), torch.empty_like(u), torch.empty(b, d, (l + 2047) // 2048, 32, device="cuda")
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (u, delta, a, bs, cs, skip, z, bias, o, oz, x)]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

        def theirs():
            assert library.scan_fwd(0, b, d, l, 16, *pointers, stream) == 0
            return oz

        # Its pointers alone do not keep these.
        theirs.kept = o, x

        peers["mamba-ssm"] = theirs
    tensors = {"u": u, "delta": delta, "a": a, "bs": bs, "cs": cs, "skip": skip, "z": z, "bias": bias}
    return Case(tensors, {"y": exact}, 4 * b * d * l + 32 * b * l, peers, bound=2e-2, part=right)


OPERATORS = {
    "rmsnorm": (rmsnorm, ROWS, "m n"), "layernorm": (layernorm, ROWS, "m n"), "softmax": (softmax, ROWS, "m n"),
    "add_rmsnorm": (add_rmsnorm, ROWS, "m n"), "add_layernorm": (add_layernorm, ROWS, "m n"), "silu_mul": (silu_mul, ROWS, "m n"),
    "gelu_mul": (gelu_mul, ROWS, "m n"), "log_softmax": (log_softmax, ROWS + LONG[:2], "m n"), "rope": (rope, TOKENS, "t h"),
    "rope_interleaved": (rope_interleaved, TOKENS, "t h"), "transpose": (transpose, SQUARES, "m n"), "gemv": (gemv, VECTORS, "m n"),
    "cross_entropy": (cross_entropy, LONG, "m n"), "sum_rows": (reduced("sum", -1), ROWS, "m n"),
    "mean_rows": (reduced("mean", -1), ROWS[1:2], "m n"), "max_rows": (reduced("max", -1), ROWS, "m n"),
    "mean_columns": (reduced("mean", 0), ROWS[1:2], "m n"), "max_columns": (reduced("max", 0), ROWS, "m n"),
    "mean_middle": (reduced("mean", 1), MIDDLES[:1], "l m n"), "max_middle": (reduced("max", 1), MIDDLES, "l m n"),
    "gemv_transposed": (gemv_transposed, VECTORS, "m n"), "permute_reversed": (permute_reversed, [(4096, 8, 4096), (1024, 64, 1024)], "l m n"),
    "add_rmsnorm_backward": (norm_backward(False, True), ROWS, "m n"), "add_layernorm_backward": (norm_backward(True, True), ROWS, "m n"),
    "linear_cross_entropy_backward": (linear_cross_entropy_backward, [(4096, 128256, 4096), (8192, 32000, 4096)], "m n k"),
    "permute": (permute, [(4, 4096, 32, 128), (1, 512, 32, 128), (16, 1024, 16, 64)], "l m n d"),
    "selective_scan": (selective_scan, SCANS, "b d l"),
    "causal_conv1d": (causal_conv1d, [(1, 4096, 4096), (8, 5120, 2048), (1, 5120, 1024)], "b d l"),
    "cross_entropy_backward": (cross_entropy_backward, LONG, "m n"), "rmsnorm_backward": (norm_backward(False), ROWS, "m n"),
    "layernorm_backward": (norm_backward(True), ROWS, "m n"), "sum_columns": (reduced("sum", 0), ROWS, "m n"),
    "dropout": (dropout, ROWS, "m n"), "softmax_ragged": (softmax_ragged, LONG, "m n"),
    "embedding": (embedding, [(65536, 128256, 4096), (262144, 128256, 128), (1048576, 32000, 512)], "t v n"), "argmax": (argmax, LONG, "m n"), "cumsum": (cumsum, ROWS, "m n"),
    "sum_middle": (reduced("sum", 1), MIDDLES, "l m n"), "topk": (topk(8), LONG + ROWS[1:3], "m n"),
    "top_p": (top_p, LONG[:2] + [(256, 32000)], "m n"), "histogram": (histogram, [(1 << 24, 256), (1 << 26, 4096), (1 << 20, 1024)], "n v"),
    "embedding_backward": (embedding_backward, [(65536, 32000, 4096), (262144, 32000, 128)], "t v n"),
    "scatter_add": (scatter_add, [(65536, 32000, 4096), (262144, 128256, 128)], "t v n"),
    "batched_gemm": (batched_gemm, [(4096, 64, 64, 64), (1024, 128, 128, 64), (16384, 32, 32, 32)], "l m n k"),
    "linear_cross_entropy": (linear_cross_entropy, [(4096, 128256, 4096), (8192, 32000, 4096), (1024, 128256, 2048)], "m n k"),
    "mamba2": (mamba2, [(8, 2048, 80), (1, 8192, 80), (2, 2048, 64)], "b l h"),
    "quantise_rows_fp8": (quantise(448.0, "float8_e4m3fn", 0), ROWS, "m n"), "quantise_rows_int8": (quantise(127.0, "int8", 0), ROWS, "m n"),
    "quantise_blocks_fp8": (quantise(448.0, "float8_e4m3fn", 128), ROWS, "m n"), "quantise_blocks_int8": (quantise(127.0, "int8", 128), ROWS, "m n"),
}  # fmt: skip


# What is compiled


def traffic(operator, shape):
    """Elements that a case reads and writes, for the copy beside it."""
    elements = math.prod(shape)
    if operator.startswith("rope"):
        return 2 * elements * 128 + 128 * shape[0]
    if operator.startswith("quantise"):
        return 3 * elements // 2
    if operator == "selective_scan":
        return 4 * elements + 32 * shape[0] * shape[2]
    if operator == "embedding":
        return 2 * shape[0] * shape[2]
    if operator == "softmax_ragged":
        return 3 * elements // 2
    if operator == "histogram":
        return 2 * shape[0]
    if operator == "embedding_backward":
        return 5 * shape[0] * shape[2] + 2 * shape[1] * shape[2]
    if operator == "scatter_add":
        return 3 * shape[0] * shape[2]
    if operator == "batched_gemm":
        l, m, n, k = shape
        return l * (m * k + n * k + m * n)
    if operator == "linear_cross_entropy":
        return shape[2] * (shape[0] + shape[1])
    if operator == "linear_cross_entropy_backward":
        return 2 * shape[2] * (2 * shape[0] + 3 * shape[1])
    if operator == "mamba2":
        return 128 * elements + 256 * shape[0] * shape[1]
    once = {"add_rmsnorm": 4, "add_layernorm": 4, "silu_mul": 3, "gelu_mul": 3, "gemv": 1, "sum_rows": 1, "cross_entropy": 1}
    once |= {"sum_middle": 1, "topk": 1, "top_p": 1, "sum_columns": 1, "argmax": 1, "cumsum": 3, "rmsnorm_backward": 3, "layernorm_backward": 3}
    once |= {"add_rmsnorm_backward": 4, "add_layernorm_backward": 4, "gemv_transposed": 1}
    once |= {f"{kind}_{axis}": 1 for kind in ("mean", "max") for axis in ("rows", "columns", "middle")}
    return once.get(operator, 2) * elements


def copy_of(operator, shape):
    """The sizes of a copy of as many bytes: the rows of the case where they are many, else rows of 4096."""
    half = traffic(operator, shape) // 2
    columns = next((c for c in (shape[-1], 4096, 128, 8) if c >= 64 and half % c == 0), 8)
    return {"m": max(1, half // columns), "n": columns}


def cases(args):
    """(operator, shape) of everything that is asked for."""
    wanted = args.only.split(",") if args.only else list(OPERATORS)
    for operator in wanted:
        if operator not in OPERATORS:
            raise SystemExit(f"there is no case `{operator}`; there are {', '.join(OPERATORS)}")
        for shape in OPERATORS[operator][1]:
            yield operator, shape


def candidates(binary, operator, sizes, top):
    """The configurations of an operator's space that its estimate ranks first, and its default."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        values = (word for name, value in sizes.items() for word in ("-p", f"{name}={value}"))
        command = [binary, "tune", operator, *values, "--device", "sim", "--arch", "sm_90a", "--top", str(top), "--no-cache", "--cache", folder, "--json", str(report)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or not report.exists():
            raise RuntimeError(f"{operator} {sizes}: {(done.stderr or done.stdout).strip()}")
        entries = json.loads(report.read_text())["problems"][0]["report"]["entries"]
    return list(dict.fromkeys([entry["configuration"] for entry in entries] + [""]))


def job(operator, config, sizes):
    return {"operator": operator, "words": [], "config": config, "sizes": sizes}


def emit(args):
    """Compiles the candidates of every case and writes them, with their list."""
    listed, jobs = {}, []
    for operator, shape in cases(args):
        sizes = dict(zip(OPERATORS[operator][2].split(), shape))
        for name, values in ((operator, sizes), ("copy", copy_of(operator, shape))):
            key = key_of(name, values)
            if key in listed:
                continue
            try:
                listed[key] = candidates(args.bin, name, values, args.top)
            except RuntimeError as error:
                print(error, flush=True)
                listed[key] = []
            jobs += [job(name, config, values) for config in listed[key]]
    found = common.launches_of(jobs, args)
    for each, launches in zip(jobs, found):
        if isinstance(launches, str):
            print(f"{each['operator']} {each['config']} {each['sizes']}: {launches[:300]}", flush=True)
        elif any(launch.get("spills") for launch in launches):
            print(f"{each['operator']} {each['config']} {each['sizes']}: spills", flush=True)
    pathlib.Path(args.emit_launches, "candidates.json").write_text(json.dumps(listed, indent=1))
    print(f"{sum(not isinstance(f, str) for f in found)} of {len(jobs)} candidates compiled")


def key_of(operator, sizes):
    return f"{operator} " + " ".join(f"{name}={value}" for name, value in sizes.items())


# On the GPU


class Turns:
    """Times functions in turns: a spin, a write that evicts the L2, an event, the function, an event."""

    def __init__(self):
        import torch

        self.torch = torch
        self.junk = torch.empty(64 << 20, dtype=torch.int32, device="cuda")

    def prepare(self, run):
        """Runs a function a few times; its microseconds on the host and its milliseconds in all."""
        for _ in range(3):
            run()
        self.torch.cuda.synchronize()
        begun = time.perf_counter()
        run()
        host = (time.perf_counter() - begun) * 1e6
        self.torch.cuda.synchronize()
        return host, (time.perf_counter() - begun) * 1e3

    def once(self, run, host):
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda._sleep(int((min(host, 3000) * 1.3 + 40) * 1980))
        self.junk.zero_()
        start.record()
        run()
        end.record()
        return start, end

    def run(self, functions, budget, least, most):
        """Median milliseconds of each function over its turns."""
        ready = {name: (run, *self.prepare(run)) for name, run in functions.items()}
        events = {name: [] for name in ready}
        counts = {name: max(least, min(most, int(budget / ms))) for name, (_, _, ms) in ready.items()}
        for turn in range(most):
            for name, (run, host, _) in ready.items() if turn % 2 == 0 else reversed(ready.items()):
                if turn < counts[name]:
                    events[name].append(self.once(run, host))
        self.torch.cuda.synchronize()
        return {name: statistics.median(a.elapsed_time(b) for a, b in pairs) for name, pairs in events.items()}


class Ours:
    """A configuration's kernels, bound to tensors by name; what the case does not have is a result, poisoned at first."""

    def __init__(self, launches, modules, given, made):
        import torch

        self.stream, self.kernels, self.made, self.notes = torch.cuda.current_stream().cuda_stream, [], made, []
        for launch in launches:
            module, said = modules[id(launch)]
            if module is None:
                raise RuntimeError(said)
            bound = {}
            for param in (p for p in launch["params"] if p["kind"] == "tensor"):
                name = param["name"]
                # What lies between two kernels has a shape of each configuration's own.
                if name not in given and (name not in made or list(made[name].shape) != list(param["shape"])):
                    dtype = common.torch_type(param["dtype"])
                    made[name] = poison(torch.empty(param["shape"], device="cuda", dtype=dtype))
                bound[name] = given.get(name, made.get(name))
            values = {param["name"]: SCALARS[param["name"]] for param in launch["params"] if param["kind"] == "scalar"}
            kernel = common.Kernel(launch, module, bound, values)
            self.kernels.append(kernel)
            self.notes += [f"{kernel.local_bytes} bytes of local memory"] if kernel.local_bytes else []
        self.registers = max(kernel.registers for kernel in self.kernels)

    def __call__(self):
        for kernel in self.kernels:
            kernel(self.stream)


def poison(tensor):
    """Fills a result with what no kernel gives."""
    import torch

    if tensor.element_size() == 1:
        tensor.view(torch.uint8).fill_(0x7F)
        return tensor
    return common.poison(tensor)


# Scalars of kernels, by name.
SCALARS = {"eps": 1e-6, "p": 0.25, "seed": 7}


def error_of(result, exact):
    """||result − exact|| / ||exact||; infinity where there is a NaN."""
    error = ((result.double() - exact.double()).norm() / exact.double().norm()).item()
    return error if error == error else math.inf


def fastest(turns, operator, sizes, listed, args, case):
    """The fastest of our candidates that are right: configuration, kernels, error, and how many were tried."""
    jobs = [job(operator, config, sizes) for config in listed.get(key_of(operator, sizes), [])]
    given, exact, bound = (case.tensors, case.exact, case.bound) if case else ({"x": randn(sizes["m"], sizes["n"])}, {}, 0)
    if not case:
        exact = {"y": lambda: given["x"].float()}
    ready, made = [], {}
    found = [(each, launches) for each, launches in zip(jobs, common.launches_of(jobs, args)) if not isinstance(launches, str)]
    modules = common.modules_of([launch for _, launches in found for launch in launches])
    wanted, part = {name: value() for name, value in exact.items()}, case.part if case else (lambda result: result)
    for each, launches in found:
        try:
            ours = Ours(launches, modules, given, made)
        except (RuntimeError, KeyError) as error:
            print(f"  {operator} {each['config']}: {error!r}"[:300], flush=True)
            continue
        for tensor in made.values():
            poison(tensor)
        ours()
        errors = {name: error_of(part({**made, **given}[name]).reshape(value.shape), value) for name, value in wanted.items()}
        error = max(errors.values(), default=0.0)
        if error > bound:
            print(f"  WRONG: {operator} {each['config']} {sizes}: {errors}", flush=True)
            continue
        ready.append((each["config"], ours, error))
    del wanted
    if not ready:
        return None
    times = turns.run({config: ours for config, ours, _ in ready}, 4, 3, 9)
    for config in sorted(times, key=times.get)[:5]:
        print(f"    {operator} {config or 'default'}: {times[config] * 1e3:.1f} µs", flush=True)
    config, ours, error = min(ready, key=lambda r: times[r[0]])
    return {"config": config, "run": ours, "error": error, "tried": len(ready)}


def measure(turns, operator, shape, listed, args):
    """Rows of a case: ours, the copy, and the peers that are right."""
    import torch

    make, _, names = OPERATORS[operator]
    sizes = dict(zip(names.split(), shape))
    copy_sizes = copy_of(operator, shape)
    torch.manual_seed(0)
    torch._dynamo.reset()
    SCALARS["eps"] = 1e-5 if "layernorm" in operator else 1e-6
    case = make(*shape)
    ours = fastest(turns, operator, sizes, listed, args, case)
    if ours is None:
        print(f"{operator} {shape}: no candidate", flush=True)
        return []
    functions, errors, notes = {"ours": ours["run"]}, {"ours": ours["error"]}, {}
    copy = fastest(turns, "copy", copy_sizes, listed, args, None)
    if copy:
        functions["copy"], errors["copy"] = copy["run"], 0.0
    wanted = next(iter(case.exact.values()))() if case.exact else None
    for name, run in case.peers.items():
        if name.split("-")[0] not in [*args.peers.split(","), "mamba", "flashinfer"]:
            continue
        try:
            alike = wanted is None or name.endswith("-inplace")
            result = single(run())
            error = 0.0 if alike else error_of(case.part(result).reshape(wanted.shape), wanted)
            torch.cuda.synchronize()
            if error > case.bound:
                notes[name] = f"differs by {error:.1e}"
            else:
                functions[name], errors[name] = run, error
        except Exception as error:  # noqa: BLE001: whatever a peer raises, the others go on
            notes[name] = f"{type(error).__name__}: {str(error)[:160]}"
    del wanted
    runs = [turns.run(functions, args.budget, 7, 25) for _ in range(args.runs)]
    medians = {name: statistics.median(run[name] for run in runs) for name in functions}
    theirs = {name: ms for name, ms in medians.items() if name not in ("ours", "copy", "eager")}
    rows = []
    for name, ms in medians.items():
        each = [run[name] for run in runs]
        row = {
            "operator": operator, "shape": list(shape), "impl": name, "ms": ms, "spread": (max(each) - min(each)) / ms, "runs": each,
            "gbps": case.bytes / ms / 1e6, "bytes": case.bytes, "error": errors[name], "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        }  # fmt: skip
        if name == "ours":
            row |= {"config": ours["config"], "tried": ours["tried"], "registers": ours["run"].registers, "notes": ours["run"].notes, "missing": notes}
            row |= {"of_copy": medians["copy"] / ms} if copy else {}
            row |= {"best_peer": min(theirs, key=theirs.get), "of_best_peer": min(theirs.values()) / ms} if theirs else {}
        if name == "copy":
            row |= {"config": copy["config"], "sizes": copy_sizes}
        rows.append(row)
    show(rows, notes)
    return rows


def warm(args):
    """Has torch.compile compile for every case."""
    import torch

    for operator, shape in cases(args):
        torch._dynamo.reset()
        try:
            OPERATORS[operator][0](*shape).peers["compile"]()
            torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001: the run itself says so again
            print(f"{operator} {shape}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        torch.cuda.empty_cache()


def show(rows, notes):
    """A line for a case."""
    ours = rows[0]
    others = " ".join(f"{row['impl']} {row['gbps']:.0f}" for row in rows[1:])
    line = f"{ours['operator']:<18} {'x'.join(map(str, ours['shape'])):<14} {ours['ms'] * 1e3:8.1f} µs {ours['gbps']:6.0f} GB/s ±{50 * ours['spread']:.1f} %"
    line += f"  of copy {ours['of_copy']:.3f}" if "of_copy" in ours else ""
    line += f"  of {ours['best_peer']} {ours['of_best_peer']:.3f}" if "best_peer" in ours else ""
    print(f"{line}  ({others})  {ours['config'] or 'default'}  {'; '.join(f'{k}: {v}' for k, v in notes.items())}".rstrip(), flush=True)


def table(rows):
    """The rows as a table in Markdown: a line for each case that ours has."""
    lines = ["| operator | sizes | µs | GB/s | of a copy | best peer | its time over ours |", "|---|---|--:|--:|--:|---|--:|"]
    for row in sorted((row for row in rows if row["impl"] == "ours"), key=lambda row: list(OPERATORS).index(row["operator"])):
        ratios = [f"{row[name]:.3f}" if name in row else "" for name in ("of_copy", "of_best_peer")]
        sizes = "×".join(map(str, row["shape"]))
        lines.append(f"| {row['operator']} | {sizes} | {row['ms'] * 1e3:.1f} | {row['gbps']:.0f} | {ratios[0]} | {row.get('best_peer', '')} | {ratios[1]} |")
    return "\n".join(lines)


def conclude(rows):
    """Whether the aims hold: 0.95 of a copy from 64 MiB on, 0.98 of the best peer below."""
    ours = [row for row in rows if row["impl"] == "ours"]
    large = [row for row in ours if row["bytes"] >= 64 << 20 and "of_copy" in row]
    small = [row for row in ours if row["bytes"] < 64 << 20 and "of_best_peer" in row]
    for what, some, key, aim in (("of a copy, from 64 MiB on", large, "of_copy", 0.95), ("of the best peer, below 64 MiB", small, "of_best_peer", 0.98)):
        if some:
            below = [f"{row['operator']} {'x'.join(map(str, row['shape']))} {row[key]:.3f}" for row in some if row[key] < aim]
            mean = common.geomean([row[key] for row in some])
            print(f"{what}: geometric mean {mean:.3f} over {len(some)}, {len(below)} below {aim}: {', '.join(below) or 'none'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="target/release/tilewright")
    parser.add_argument("--only", help="operators, with commas")
    parser.add_argument("--top", type=int, default=24, help="candidates of a case")
    parser.add_argument("--emit-launches", metavar="DIR", help="compile, write there, and stop; no GPU")
    parser.add_argument("--launches", metavar="DIR", help="compiled candidates, as --emit-launches leaves them")
    parser.add_argument("--ptxas", help="assemble with this ptxas instead of the driver (with --emit-launches)")
    parser.add_argument("--json", help="append the rows to this file, and leave out the cases that it has")
    parser.add_argument("--peers", default="compile,liger,vllm", help="with commas: eager too")
    parser.add_argument("--warm", action="store_true", help="only let torch.compile compile, for its cache: several processes may do so at once")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--budget", type=float, default=8, help="milliseconds of each implementation's turns in a run")
    parser.add_argument("--limit-seconds", type=float, default=1e9, help="begin no case after so many seconds")
    parser.add_argument("--table", action="store_true", help="print the rows of --json as a table of bench/README.md, and stop")
    parser.add_argument("--summary", action="store_true", help="say what the rows of --json come to, and stop")
    args = parser.parse_args()
    if args.emit_launches:
        emit(args)
        return
    done = [json.loads(line) for line in pathlib.Path(args.json).read_text().splitlines()] if args.json and os.path.exists(args.json) else []
    if args.summary:
        conclude(done)
        return
    if args.table:
        print(table(done))
        return
    if args.warm:
        warm(args)
        return
    if not args.launches:
        parser.error("--launches DIR: the candidates that --emit-launches wrote")
    listed = json.loads(pathlib.Path(args.launches, "candidates.json").read_text())
    begun, had = time.monotonic(), {(row["operator"], tuple(row["shape"])) for row in done}
    turns, left = Turns(), 0
    for operator, shape in cases(args):
        if (operator, shape) in had:
            continue
        if time.monotonic() - begun > args.limit_seconds:
            left += 1
            continue
        try:
            rows = measure(turns, operator, shape, listed, args)
        except Exception as error:  # noqa: BLE001: what one case cannot do, the next one may
            print(f"{operator} {shape}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            if "CUDA" in str(error) or "driver" in str(error):
                print("the GPU takes no more work from this process: run again without this case", flush=True)
                sys.exit(1)
            continue
        done += rows
        if args.json:
            with open(args.json, "a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
        turns.torch.cuda.empty_cache()
    conclude(done)
    print(f"{time.monotonic() - begun:.0f} s; {left} cases left", flush=True)


if __name__ == "__main__":
    main()
