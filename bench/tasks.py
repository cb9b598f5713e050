#!/usr/bin/env python3
"""Kernels from tasks beside the same written by hand as operators, and beside torch (cuBLAS, cuDNN), in one process, in turns.

    python3 bench/tasks.py                               # all sets
    python3 bench/tasks.py --set gemm attention
    python3 bench/tasks.py --emit-launches launches      # no GPU: compiles only
    python3 bench/tasks.py --launches launches           # compiles nothing

Needs a Hopper GPU, torch and cuda-bindings, but with --check or --emit-launches. A job is a file of `examples/tasks` with one of its mappings, or an operator with its
words. The two ratios are the time of the operator that stands first in its set over ours, and the fastest peer's. Results are compared with those of f32 or f64 first.
"""

import argparse

import common

SQUARES = [(4096, 4096, 4096), (8192, 8192, 8192)]
HEADS = [(64, 4096, 4096), (16, 16384, 16384), (256, 1024, 1024)]
# By set: shapes, mappings of files, and operators with their words; the first operator has the form of the first mapping.
SETS = {
    "gemm": (SQUARES, ["gemm.h200", "gemm.deferred", "gemm.pairs"], ["gemm_hopper rasterization=serpentine(12)", "gemm_hopper rasterization=serpentine(12) overlap_epilogue=true"]),
    "batched": ([(16, 1024, 1024, 1024), (8, 2048, 2048, 2048)], ["gemm_batched.h200", "gemm_batched.deferred"], ["gemm_hopper batch=packed rasterization=serpentine(12)", "gemm_hopper batch=packed rasterization=serpentine(12) overlap_epilogue=true"]),
    "dual": (SQUARES, ["gemm_dual.h200"], ["gemm_hopper dual=add bn=256 stages=2", "gemm_hopper dual=add bn=128"]),
    "sum": (SQUARES, ["gemm_sum.h200"], ["gemm_hopper sums_a=true"]),
    "gated": ([(4096, 14336, 4096), (8192, 8192, 8192)], ["gated.h200"], ["gemm_hopper dual=silu_mul bn=128"]),
    "attention": (HEADS, ["attention.fa2", "attention.fa2_three", "attention.fa3", "attention.fa3_by_hand"], ["attention d=128 warpgroups=2 bn=128 persistent=true", "attention d=128"]),
    "causal": (HEADS, ["attention_causal.fa2", "attention_causal.fa2_blocks", "attention_causal.fa2_three", "attention_causal.fa3", "attention_causal.fa3_blocks"], ["attention d=128 mask=causal warpgroups=2 bn=128 persistent=true", "attention d=128 mask=causal warpgroups=2 bn=128", "attention d=128 mask=causal"]),
    "mlp": ([(16384, 1024)], ["mlp.h200"], []),
}  # fmt: skip


def sizes_of(name, shape, task):
    """The sizes of a set's shape, as a file of tasks or an operator calls them."""
    if name == "mlp":
        return dict(zip("mf", shape))
    if name in ("attention", "causal"):
        heads, s, t = shape
        return {"l": heads, "s": s, "t": t} if task else {"b": heads, "hq": 1, "hk": 1, "sq": s, "sk": t}
    if name == "batched":
        return dict(zip("lmnk" if task else ("batch", "m", "n", "k"), shape))
    return dict(zip("mnk", shape))


def work(args):
    """The shapes, each with its jobs: those of tasks first."""
    found = []
    for name in args.set:
        shapes, mappings, operators = SETS[name]
        mappings = [*mappings, *args.tiles]
        for shape in shapes:
            jobs = []
            for mapping in mappings:
                file, of = mapping.rsplit(".", 1)
                if of == "tile":
                    jobs.append({"operator": mapping, "words": [], "config": "", "sizes": sizes_of(name, shape, True), "set": name, "label": mapping})
                    continue
                jobs.append({"operator": f"examples/tasks/{file}.task", "words": [], "config": of, "sizes": sizes_of(name, shape, True), "set": name, "label": mapping})
            for operator in operators:
                kind, *words = operator.split()
                jobs.append({"operator": kind, "words": [], "config": " ".join(words), "sizes": sizes_of(name, shape, False), "set": name, "label": operator})
            found.append((shape, jobs))
    return found


class Problem:
    """A set's tensors at a shape, what torch has for it, and its exact result."""

    def __init__(self, name, shape):
        import torch
        from torch.nn import functional

        self.shape, self.scalars, self.tolerance = shape, {}, 5e-4
        half = torch.float16

        def random(*extents, scale=1.0):
            return torch.randn(*extents, device="cuda", dtype=half) * scale

        self.sums = None
        if name in ("attention", "causal"):
            heads, s, t = shape
            q, k, v = random(heads, s, 128), random(heads, t, 128), random(heads, t, 128)
            self.tensors = {"q": q, "k": k, "v": v, "o": None}
            self.flops = 4 * heads * s * t * 128 // (2 if name == "causal" else 1)
            self.peers = self.attention_peers(q, k, v, name == "causal")
            exact = torch.empty(heads, s, 128, device="cuda", dtype=torch.float32)
            for head in range(heads):
                for first in range(0, s, 4096):
                    rows = q[head, first : first + 4096].float() @ k[head].float().T * 128**-0.5
                    if name == "causal":
                        rows += torch.full_like(rows, float("-inf")).triu(1 + first)
                    exact[head, first : first + 4096] = torch.softmax(rows, 1) @ v[head].float()
            self.exact, self.tolerance = exact, 2e-3
            return
        if name == "mlp":
            m, f = shape
            x, w1, w2 = random(m, 128), random(f, 128, scale=128**-0.5), random(128, f, scale=f**-0.5)
            self.tensors, self.flops = {"x": x, "w1": w1, "w2": w2, "y": None}, 4 * m * f * 128
            whole = torch.compile(lambda x: functional.gelu(x @ w1.T) @ w2.T, dynamic=False)
            self.peers = [("torch.compile", lambda: whole(x))]
            self.exact, self.tolerance = functional.gelu(x.float() @ w1.float().T) @ w2.float().T, 2e-3
            return
        if name == "batched":
            batch, m, n, k = shape
            a, b = random(batch, m, k, scale=k**-0.25), random(batch, n, k, scale=k**-0.25)
            self.tensors, self.flops = {"a": a, "b": b, "c": None}, 2 * batch * m * n * k
            out = torch.empty(batch, m, n, device="cuda", dtype=half)
            self.peers = [("torch.bmm", lambda: torch.bmm(a, b.transpose(1, 2), out=out))]
            self.exact = a.float() @ b.float().transpose(1, 2)
            return
        m, n, k = shape
        a, b, up = (random(rows, k, scale=k**-0.25) for rows in (m, n, n))
        g, u = (torch.empty(m, n, device="cuda", dtype=half) for _ in range(2))
        wide, both = torch.empty(m, 2 * n, device="cuda", dtype=half), torch.cat([b, up])
        one = lambda: torch.mm(a, b.T, out=g)
        self.flops = 2 * m * n * k * (2 if name in ("dual", "gated") else 1)
        first = a.float() @ b.float().T
        if name in ("dual", "gated"):
            combine = torch.compile((lambda g, u: functional.silu(g) * u) if name == "gated" else (lambda g, u: g + u), dynamic=False)
            second = a.float() @ up.float().T
            self.exact, self.tolerance = functional.silu(first) * second if name == "gated" else first + second, 2e-3
            self.tensors = {"a": a, "b": b, "up": up, "b1": b, "b2": up, "w1": b, "w2": up, "c": None, "y": None}

            def apart():
                one()
                torch.mm(a, up.T, out=u)
                return combine(g, u)

            def together():
                torch.mm(a, both.T, out=wide)
                return combine(*wide.chunk(2, dim=1))

            self.peers = [("two products", apart), ("one product", together), ("cuBLAS alone", lambda: torch.mm(a, both.T, out=wide))]
            return
        self.exact = first
        self.tensors, self.peers = {"a": a, "b": b, "c": None}, [("cuBLAS", one)]
        if name == "sum":
            self.sums = a.double().sum(dim=1)
            found = torch.zeros(m, device="cuda")
            self.tensors |= {"y": found, "sums_a": found}

            def beside():
                one()
                return torch.sum(a, dim=1, dtype=torch.float32)

            self.peers = [("cuBLAS + torch.sum", beside), ("cuBLAS alone", one)]

    @staticmethod
    def attention_peers(q, k, v, causal):
        """cuDNN and FlashAttention-2, as torch calls them."""
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def run(backend):
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=causal)[:, 0]

        return [(name, lambda backend=backend: run(backend)) for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION))]


def measure(args, shape, jobs, launches, modules, clock, file):
    """Checks and times one shape; how many jobs are wrong."""
    wrong, ours = 0, []
    if not jobs:
        return 0
    name = jobs[0]["set"]
    label = f"{name} {'x'.join(map(str, shape))}"
    clock.watch(f"{label}: peers")
    problem = Problem(name, shape)
    for _, run in problem.peers:
        run()
    for job, each in zip(jobs, launches):
        clock.watch(f"{label} {job['label']}")
        task = job["operator"].endswith((".task", ".tile"))
        # The tasks' softmax is of powers of 2.
        scale = 128**-0.5 * (1.4426950408889634 if task else 1)
        tensors = problem.tensors
        if name in ("attention", "causal") and not task:
            tensors = {key: tensor if tensor is None else tensor[:, :, None] for key, tensor in tensors.items()}
        if problem.sums is not None and not task:
            tensors = {key: tensor for key, tensor in tensors.items() if key != "y"}
        plan = common.Plan(each, modules, tensors, {"scale": scale}, {})
        if problem.sums is not None:
            plan.out = next(made for kernel in plan.kernels for made in kernel.keep_tensors if made.shape == problem.exact.shape and made.data_ptr() not in (tensors["a"].data_ptr(), tensors["b"].data_ptr()))
        first, notes = common.repeated(plan, args.repeat)
        error = float((first.reshape(problem.exact.shape).float() - problem.exact).norm() / problem.exact.norm())
        if notes.count("launches differ") or not error < problem.tolerance:
            notes.append("WRONG")
        if problem.sums is not None and not (tensors["sums_a"].double() - problem.sums).abs().max() < 1e-4 * shape[-1] ** 0.5:
            notes.append("WRONG SUMS")
        wrong += any("WRONG" in note for note in notes)
        ours.append((job, plan, error, notes))
    problem.exact = None
    common.raced(
        clock, args, list(shape), label, problem.peers, ours, file,
        lambda job, error: f"{label:<28} {job['label']:<62} {error:.1e}",
        lambda job, ms: f"{ms:9.4f} ms {problem.flops / ms / 1e9:6.1f} TFLOP/s",
        lambda peer, ms: f"{peer} {ms:.4f} ms",
        lambda plan, error: {"set": name, "error": error, "registers": [kernel.registers for kernel in plan.kernels]},
        lambda peer, job: peer != "cuBLAS alone",
    )  # fmt: skip
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="+", choices=list(SETS), default=list(SETS), help="some of the sets")
    parser.add_argument("--tiles", nargs="+", default=[], metavar="FILE.tile", help="tile programs too, such as edited ones of `tilewright tasks --emit tile`")
    args = common.parsed(parser, repeat=3)
    args.dtype = "f16"
    ready, failed = common.ready_of(work(args), args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)
    common.measured(ready, failed, args, measure)


if __name__ == "__main__":
    main()
