#!/usr/bin/env python3
"""Products of experts with weights of 4 bits whose layouts synthesis finds (`w4a16 batch=ragged`): whole, in the dataflow that Triton has, and without layouts
of shared memory (*Hexcute*, CGO 2026, Fig. 14), in one interleaved run.

    python3 bench/experts.py                                    # 256 experts, 8 of a token, both products, six numbers of tokens
    python3 bench/experts.py --set mixtral --tokens 64
    python3 bench/experts.py --config "bm=16 bn=64 bk=256"      # another tile
    python3 bench/experts.py --emit-launches launches           # no GPU: compiles only
    python3 bench/experts.py --launches launches                # compiles nothing

Needs what bench/gemm.py needs. `up` has the rows of tokens gathered and both matrices ahead in one, `down` rows as they follow each other. Of each form the fastest tile
counts; the last lines say what a form loses of the speed, in the mean over the cases, beside the paper's figures. Results are compared with dequantised
weights in f32 first.
"""

import argparse
import statistics

import common
from moe import BLOCK, SETS

TOKENS = [1, 16, 64, 256, 1024, 4096]
PARTS = ("up", "down")
# Forms: what is said of the kernel, and what the paper loses of the speed without it (Fig. 14).
FORMS = {"whole": ("", None), "Triton's dataflow": ("weights=cast", 0.285), "without shared layouts": ("without=shared-layouts", 0.375)}
# Tiles for so many rows of an expert in the mean, at most.
TILES = [
    (16, ["bm=16 bn=64 bk=256 kk=64 stages=3", "bm=16 bn=128 bk=128 kk=64 stages=4", "bm=16 bn=64 bk=128 kk=64 stages=4"]),
    (48, ["bm=32 bn=128 bk=128 kk=32 stages=3", "bm=32 bn=64 bk=256 kk=32 stages=2", "bm=16 bn=64 bk=256 kk=64 stages=3"]),
    (1 << 30, ["bm=64 bn=128 bk=128 kk=32 stages=3", "bm=64 bn=128 bk=256 kk=32 stages=2", "bm=128 bn=128 bk=64 kk=32 stages=3 threads=256"]),
]  # fmt: skip


def work(args):
    """The cases, each with its jobs."""
    found = []
    for tokens in args.tokens:
        experts, k, hidden, between = SETS[args.set]
        tiles = args.config or next(tiles for most, tiles in TILES if tokens * k / experts <= most)
        for part in args.part:
            n, depth, words = (2 * between, hidden, ["gather=true"]) if part == "up" else (hidden, between, [])
            jobs = []
            for form, (words_of_form, _) in FORMS.items():
                for tile in tiles:
                    rows = int(next(word for word in tile.split() if word.startswith("bm="))[3:])
                    m = tokens * k
                    sizes = {"m": m, "n": n, "k": depth, "g": experts, "t": min(experts, m) + m // rows, **({"r": tokens} if part == "up" else {})}
                    jobs.append({
                        "operator": "w4a16", "arch": "sm_80", "words": ["batch=ragged", *words], "sizes": sizes, "form": form, "rows": rows, "part": part,
                        "config": f"{tile} {words_of_form}".strip(),
                    })  # fmt: skip
            found.append(((experts, tokens, part), jobs))
    return found


def tables(ids, experts, rows, tiles):
    """The tables of a product in tiles of so many rows: each row's token, each tile's expert and first row, and the row behind each expert's last."""
    import torch

    flat = ids.flatten()
    order = torch.argsort(flat, stable=True)
    counts = torch.bincount(flat, minlength=experts)
    ends = counts.cumsum(0)
    of_expert = -(-counts // rows)
    groups = torch.repeat_interleave(torch.arange(experts, device="cuda"), of_expert)
    nth = torch.arange(len(groups), device="cuda") - (of_expert.cumsum(0) - of_expert)[groups]
    first = (ends - counts)[groups] + nth * rows
    padded = [torch.nn.functional.pad(table, (0, tiles - len(groups)), value=-1) for table in (groups, first)]
    return dict(zip(("rows", "groups", "first", "ends"), (table.to(torch.int32) for table in (order // ids.shape[1], *padded, ends))))


def measure(args, case, jobs, launches, modules, clock, file):
    """Checks and times one product; how many configurations are wrong."""
    import peers
    import torch

    if not jobs:
        return 0
    experts, tokens, part = case
    _, k, hidden, between = SETS[args.set]
    n, depth = (2 * between, hidden) if part == "up" else (hidden, between)
    label, wrong, ours = f"{experts} experts, {tokens} tokens, {part}", 0, []
    ids = torch.rand(tokens, experts, device="cuda").topk(k).indices
    codes = torch.randint(0, 16, (experts, n, depth), device="cuda", dtype=torch.uint8)
    scales = ((torch.rand(experts, depth // BLOCK, n, device="cuda") + 0.5) * depth**-0.5 / 4).to(torch.float16)
    a = torch.randn(tokens if part == "up" else tokens * k, depth, device="cuda", dtype=torch.float16)
    given, made = {"a": a, "w": codes, "s": scales, "c": None}, {}
    sample = sorted({0, tokens * k // 2, tokens * k - 1})
    order = torch.argsort(ids.flatten(), stable=True)
    exact = []
    for row in sample:
        place = int(order[row])
        expert, plain = int(ids.flatten()[place]), a[place // k if part == "up" else row].float()
        whole = codes[expert].float()
        whole = (whole - 16 * (whole >= 8)) * scales[expert].float().T.repeat_interleave(BLOCK, 1)
        exact.append(whole @ plain)
    exact = torch.stack(exact)
    for job, each in zip(jobs, launches):
        clock.watch(f"{label} {job['config']}")
        own = tables(ids, experts, job["rows"], job["sizes"]["t"])
        # Weights are packed once for all.
        kept = {key: tensor for key, tensor in made.items() if key[0] in given}
        plan = common.Plan(each, modules, {**given, **own}, {}, kept)
        made |= kept
        first, notes = common.repeated(plan, args.repeat)
        error = peers.error_of(first[sample], exact)
        if "launches differ" in notes or not error < peers.TOLERANCE[torch.float16]:
            notes.append("WRONG")
        wrong += any("WRONG" in note for note in notes)
        ours.append((job, plan, error, notes))
    hit = ids.unique().numel()
    size = hit * n * depth * (0.5 + 2 / BLOCK)
    times = {}

    def speed(job, ms):
        times.setdefault(job["form"], []).append((ms, job["config"]))
        return f"{ms * 1000:8.1f} µs {size / ms / 1e6:5.0f} GB/s {2 * tokens * k * n * depth / ms / 1e9:6.1f} TFLOP/s"

    common.raced(
        clock, args, list(case), label, [], ours, file, speed=speed, head=lambda job, error: f"{label:<36} {job['config']:<72} {error:.1e}",
        shown=lambda name, ms: f"{name} {ms * 1000:.1f}", more=lambda plan, error: {"error": error, "experts_hit": hit},
    )  # fmt: skip
    if "whole" in times:
        best, tile = min(times["whole"])
        for form, all_of_form in times.items():
            if form != "whole":
                ms, other = min(all_of_form)
                LOST.setdefault(form, []).append(1 - best / ms)
                print(f"{label:<36} {form}: {best * 1000:.1f} µs ({tile}), {ms * 1000:.1f} µs ({other}), {1 - best / ms:.1%} of the speed lost", flush=True)
    return wrong


# What each form loses of the speed, by case.
LOST = {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="deepseek", choices=list(SETS))
    parser.add_argument("--tokens", nargs="+", type=int, default=TOKENS)
    parser.add_argument("--part", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--config", nargs="+", help="other tiles than the list's")
    parser.add_argument("--dtype", default="f16", choices=["f16"])
    args = common.parsed(parser, repeat=2)
    ready, failed = common.ready_of(work(args), args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)
    try:
        common.measured(ready, failed, args, measure)
    finally:
        for form, lost in LOST.items():
            print(f"{form}: {statistics.mean(lost):.1%} of the speed lost in the mean over {len(lost)}; the paper loses {FORMS[form][1]:.1%} (Hexcute, CGO 2026, Fig. 14)")


if __name__ == "__main__":
    main()
