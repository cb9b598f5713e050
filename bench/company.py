#!/usr/bin/env python3
"""Products with company beside torch, in one process, in turns: gated products and sums of two, products with sums of the rows of A.

    python3 bench/company.py                          # all sets, about two minutes on an H200
    python3 bench/company.py --set gated --shapes 4096,14336,4096
    python3 bench/company.py --check                  # no GPU: compiles only

Needs a Hopper GPU, torch and cuda-bindings, but with --check. The peers of a gated product are two products of cuBLAS with a torch.compile'd silu(g) * u
behind them, and one of both matrices with the same behind it; of sums of rows cuBLAS and torch.sum. The ratio is the fastest peer's time over ours.
`cuBLAS alone` is the product without company, of as many multiplications: no peer, but what there is to reach. Results are compared with those of f32 sums first.
"""

import argparse

import common

GATED = [(4096, 14336, 4096), (8192, 8192, 8192), (1024, 28672, 8192), (16, 14336, 4096)]
SQUARES = [(4096, 4096, 4096), (8192, 8192, 8192)]
# Shapes, the words that ours always has, and configurations.
SETS = {
    "gated": (GATED, ["dual=silu_mul"], ["bn=128", "bn=176 stages=3", "fused=true bn=128", "bn=128 cluster=m2", "bn=176 stages=3 cluster=m2", "bn=160 stages=3", "bm=256 bn=80", "swap=true bm=64 bn=16 warpgroups=1 stages=10"]),
    "add": (SQUARES, ["dual=add"], ["bn=128", "swap=true stages=3 overlap_epilogue=true", "bn=224 stages=3 overlap_epilogue=true buffers=1"]),
    "sums": (SQUARES, ["sums_a=true"], ["overlap_epilogue=true", "overlap_epilogue=true sm_count=128", "bn=224 overlap_epilogue=true", "rasterization=serpentine(12) overlap_epilogue=true", "overlap_epilogue=true sums_a=false"]),
}  # fmt: skip


def work(args):
    """The shapes, each with its jobs; configurations that do not suit few rows, or many, are left out."""
    found = []
    for name in [args.set] if args.set else SETS:
        shapes, words, configs = SETS[name]
        for shape in [tuple(map(int, text.split(","))) for text in args.shapes] if args.shapes else shapes:
            m, n, k = shape
            some = [config for config in configs if ("swap" in config) == (m <= 64)]
            jobs = [{"operator": "gemm_hopper", "words": [f"dtype={args.dtype}", *words], "config": config, "sizes": {"m": m, "n": n, "k": k}, "set": name} for config in some]
            found.append((shape, jobs))
    return found


def peers_of(name, a, b, up):
    """(name, run) of torch's ways, the name and run of a product without company, C in f32, and the sums of A's rows."""
    import torch

    both = torch.cat([b, up])
    g, u = (torch.empty(a.shape[0], b.shape[0], device="cuda", dtype=a.dtype) for _ in range(2))
    wide = torch.empty(a.shape[0], 2 * b.shape[0], device="cuda", dtype=a.dtype)
    combine = torch.compile((lambda g, u: torch.nn.functional.silu(g) * u) if name == "gated" else (lambda g, u: g + u), dynamic=False)

    def apart():
        torch.mm(a, b.T, out=g)
        torch.mm(a, up.T, out=u)
        return combine(g, u)

    def together():
        torch.mm(a, both.T, out=wide)
        return combine(*wide.chunk(2, dim=1))

    def beside():
        torch.mm(a, b.T, out=g)
        return torch.sum(a, dim=1, dtype=torch.float32)

    rows = a.double().sum(dim=1)
    gate, other = a.float() @ b.float().T, None
    if name == "sums":
        return [("cuBLAS + torch.sum", beside)], ("cuBLAS alone", lambda: torch.mm(a, b.T, out=g)), gate, rows
    other = a.float() @ up.float().T
    exact = torch.nn.functional.silu(gate) * other if name == "gated" else gate + other
    alone = ("cuBLAS alone", lambda: torch.mm(a, both.T, out=wide))
    return [("two products", apart), ("one product", together)], alone, exact, rows


def measure(args, shape, jobs, launches, modules, clock, file):
    """Checks and times one shape; how many configurations are wrong."""
    import peers
    import torch

    (m, n, k), wrong, ours = shape, 0, []
    if not jobs:
        return 0
    name, dtype = jobs[0]["set"], common.torch_type(args.dtype)
    label = f"{name} {m}x{n}x{k}"
    a, *both = (torch.randn(rows, k, device="cuda", dtype=dtype) * k**-0.25 for rows in (m, n, n))
    clock.watch(f"{label}: peers")
    found, alone, exact, rows = peers_of(name, a, *both)
    for _, run in found:
        run()
    for job, each in zip(jobs, launches):
        clock.watch(f"{label} {job['config']}")
        b = torch.stack(both) if "fused=true" in job["config"] else both[0]
        sums = torch.zeros(m, device="cuda")
        plan = common.Plan(each, modules, {"a": a, "b": b, "up": both[1], "c": None, "sums_a": sums}, {}, {})
        first, notes = common.repeated(plan, args.repeat)
        error = peers.error_of(first, exact)
        if notes.count("launches differ") or not error < peers.TOLERANCE[dtype]:
            notes.append("WRONG")
        if name == "sums" and "sums_a=false" not in job["config"] and not (sums.double() - rows).abs().max() < 1e-4 * k**0.5:
            notes.append("WRONG SUMS")
        wrong += any("WRONG" in note for note in notes)
        ours.append((job, plan, error, notes))
    del exact
    flops = 2 * m * n * k * (1 if name == "sums" else 2)
    common.raced(
        clock, args, shape, label, [*found, alone], ours, file,
        lambda job, error: f"{label:<26} {job['config'] or 'default':<46} {error:.1e}",
        lambda job, ms: f"{ms:9.4f} ms {flops / ms / 1e9:6.1f} TFLOP/s",
        lambda peer, ms: f"{peer} {ms:.4f} ms",
        lambda plan, error: {"set": name, "error": error, "registers": [kernel.registers for kernel in plan.kernels]},
        lambda peer, job: peer != "cuBLAS alone" or "sums_a=false" in job["config"],
    )  # fmt: skip
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=list(SETS), help="one of the sets instead of all")
    parser.add_argument("--shapes", nargs="+", metavar="M,N,K", help="other shapes than the set's")
    parser.add_argument("--dtype", default="bf16", choices=["f16", "bf16"])
    args = common.parsed(parser, repeat=3)
    ready, failed = common.ready_of(work(args), args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)
    common.measured(ready, failed, args, measure)


if __name__ == "__main__":
    main()
