#!/usr/bin/env python3
"""Products by groups of rows, as the experts of a mixture do them, beside torch: `torch._grouped_mm`, and a loop of `torch.mm`.

    python3 bench/grouped.py --condition rested
    python3 bench/grouped.py --set decode --config "swap=true bn=32 stages=8" "batch=ragged swap=true bn=32 stages=8"
    python3 bench/grouped.py --emit-launches launches      # no GPU: compiles only
    python3 bench/grouped.py --launches launches           # compiles nothing

Needs what bench/gemm.py needs. The operator is `gemm_hopper` with `batch=grouped`, or `batch=ragged` among the words of a configuration. Shapes are
groups, rows of A a group, n, k; the rows of each group are drawn once, so that they differ (`--even`: all the same). torch gets the rows without padding; ours
are padded to whole tiles (not if ragged). The throughput counts rows that are not padding, the ratio is the fastest of torch's times over ours.
"""

import argparse
import json
import random
import statistics

import common

# Those that DeepGEMM's README times, and Mixtral's; groups, rows a group on average, n, k.
SETS = {
    "prefill": [(4, 8192, 4096, 7168), (4, 8192, 7168, 2048), (8, 4096, 4096, 7168), (8, 4096, 7168, 2048), (8, 1024, 28672, 4096), (8, 1024, 4096, 14336)],
    "many": [(32, 1024, 4096, 7168), (32, 1024, 7168, 2048), (64, 512, 4096, 7168), (128, 256, 4096, 7168)],
    "decode": [(32, 16, 4096, 7168), (32, 64, 4096, 7168), (32, 16, 7168, 2048), (64, 32, 4096, 7168)],
}  # fmt: skip
DEFAULTS = {"bm": "128", "bn": "256", "swap": "false", "batch": "grouped"}


def counts_of(shape, even):
    """The rows of each group: a quarter to seven quarters of the average, and none in one group of eight."""
    groups, rows, *_ = shape
    if even:
        return [rows] * groups
    source = random.Random(repr(shape))
    return [0 if i % 8 == 5 else source.randint(rows // 4, 7 * rows // 4) for i in range(groups)]


def words_of(config):
    """The parameters of a configuration that say how rows are tiled."""
    given = dict(word.split("=", 1) for word in config.split())
    return {name: given.get(name, default) for name, default in DEFAULTS.items()}


def tiling(config, counts):
    """How A is laid out: rows of a tile, where each group begins, the rows in all, and the tiles: (group, first row)."""
    words = words_of(config)
    rows = int(words["bn" if words["swap"] == "true" else "bm"])
    begins, tiles, at = [], [], 0
    for group, count in enumerate(counts):
        begins.append(at)
        tiles += [(group, at + first) for first in range(0, count, rows)]
        at += count if words["batch"] == "ragged" else -(-count // rows) * rows
    return rows, begins, max(at, 1), tiles


def job_of(shape, config, args):
    """What to compile."""
    groups, _, n, k = shape
    _, _, m, tiles = tiling(config, counts_of(shape, args.even))
    sizes = {"m": m, "n": n, "k": k, "g": groups}
    if words_of(config)["batch"] == "ragged":
        sizes["t"] = len(tiles)
    words = ["batch=grouped", f"dtype={args.dtype}"]
    return {"operator": "gemm_hopper", "words": words, "config": config, "sizes": sizes}


def tensors_of(config, counts, a, b):
    """What our kernel binds: A with each group's rows where the tiling puts them, and the tables; and which rows of C count."""
    import torch

    _, begins, m, tiles = tiling(config, counts)
    kept = torch.cat([torch.arange(first, first + count) for first, count in zip(begins, counts)]).cuda()
    padded = torch.zeros(m, a.shape[1], device="cuda", dtype=a.dtype)
    padded[kept] = a

    def table(values):
        return torch.tensor(values, device="cuda", dtype=torch.int32)

    ends = [first + count for first, count in zip(begins, counts)]
    tables = {"groups": table([group for group, _ in tiles]), "first": table([first for _, first in tiles]), "ends": table(ends)}
    return {"a": padded, "b": b, "c": None, **tables}, kept


def peers_of(counts, a, b, missing):
    """(name, prepare, run, result) of torch's ways; and C in f32 or f64."""
    import peers
    import torch

    ends = torch.tensor(counts).cumsum(0)
    spans = [slice(int(end) - count, int(end)) for end, count in zip(ends, counts)]
    loop = torch.empty(a.shape[0], b.shape[1], device="cuda", dtype=a.dtype)

    def one_by_one():
        for group, span in enumerate(spans):
            if span.stop > span.start:
                torch.mm(a[span], b[group].T, out=loop[span])

    exact = torch.cat([peers.product(a[span], b[group]).float() for group, span in enumerate(spans)])
    found = [("loop", peers.nothing, one_by_one, lambda: loop)]
    offsets, kept = ends.to(device="cuda", dtype=torch.int32), {}

    def grouped():
        kept["c"] = torch._grouped_mm(a, b.mT, offs=offsets)

    def tried():
        grouped()
        torch.cuda.synchronize()
        return [("grouped_mm", peers.nothing, grouped, lambda: kept["c"])]

    return found + peers.attempt(missing, "grouped_mm", tried), exact


def measure(args, shape, jobs, launches, modules, clock, file):
    """Checks and times one shape; how many configurations are wrong."""
    import peers
    import torch

    counts, (groups, _, n, k) = counts_of(shape, args.even), shape
    label, missing, wrong, ours = "x".join(map(str, shape)), [], 0, []
    dtype = common.torch_type(args.dtype)
    a = torch.randn(sum(counts), k, device="cuda", dtype=dtype)
    b = torch.randn(groups, n, k, device="cuda", dtype=dtype)
    others, exact = peers_of(counts, a, b, missing)
    for note in missing:
        print(f"{label:<22} without {note}", flush=True)
    for job, each in zip(jobs, launches):
        clock.watch(f"{label} {job['config'] or 'default'}")
        tensors, kept = tensors_of(job["config"], counts, a, b)
        plan = common.Plan(each, modules, tensors, {}, {})
        first, notes = common.repeated(plan, args.repeat, lambda out, kept=kept: out[kept])
        error = peers.error_of(first[kept], exact)
        if notes.count("launches differ") or not error < peers.TOLERANCE[dtype]:
            notes.append("WRONG")
            wrong += 1
        ours.append((job, plan, error, notes))
    errors = {}
    for name, _, run, result in others:
        run()
        torch.cuda.synchronize()
        errors[name] = peers.error_of(result(), exact)
    del exact
    turns = [(name, prepare, run, clock.once(run)) for name, prepare, run, _ in others]
    turns += [(i, peers.nothing, plan, clock.once(plan)) for i, (_, plan, _, notes) in enumerate(ours) if "WRONG" not in notes]
    for condition in args.conditions:
        clock.watch(f"{label}, {condition}")
        times = {name: statistics.median(rounds) for name, rounds in common.race(clock, turns, condition, args).items()}
        theirs = {name: times[name] for name, *_ in others}
        for i, (job, plan, error, notes) in enumerate(ours):
            line = f"{label:<22} {job['config'] or 'default':<36} {error:.1e}"
            if i in times:
                flops = 2 * sum(counts) * n * k
                line += f" {times[i]:9.4f} ms {flops / times[i] / 1e9:6.1f} TFLOP/s {condition} {min(theirs.values()) / times[i]:.3f}  ("
                line += " ".join(f"{name} {ms / times[i]:.3f}" for name, ms in theirs.items()) + ")"
                row = {"shape": shape, "rows": sum(counts), "dtype": args.dtype, "condition": condition, "config": job["config"], "ms": times[i],
                       "error": error, "peers": theirs, "peer_errors": errors, "registers": [kernel.registers for kernel in plan.kernels]}  # fmt: skip
                if file:
                    print(json.dumps(row), file=file, flush=True)
            print(f"{line}  {'; '.join(notes)}".rstrip(), flush=True)
    return wrong


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="prefill", choices=list(SETS))
    parser.add_argument("--shapes", nargs="+", metavar="G,ROWS,N,K", help="other shapes than the set's")
    parser.add_argument("--even", action="store_true", help="as many rows in each group")
    parser.add_argument("--dtype", default="bf16", choices=["f16", "bf16"])
    parser.add_argument("--config", nargs="+", default=["", "overlap_epilogue=true", "batch=ragged", "batch=ragged overlap_epilogue=true"], metavar="WORDS")
    return common.parsed(parser, repeat=5)


def main():
    args = arguments()
    shapes = [tuple(map(int, text.split(","))) for text in args.shapes] if args.shapes else SETS[args.set]
    todo = [(shape, [job_of(shape, config, args) for config in args.config]) for shape in shapes]
    ready, failed = common.ready_of(todo, args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)

    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    common.measured(ready, failed, args, measure, torch.cuda.empty_cache)


if __name__ == "__main__":
    main()
