#!/usr/bin/env python3
"""Attention forward (`attention`) beside cuDNN and FlashAttention, as torch's `scaled_dot_product_attention` calls them, in one interleaved run.

    python3 bench/attention.py --emit-launches launches      # no GPU: compiles only
    python3 bench/attention.py --launches launches           # compiles nothing
    python3 bench/attention.py --operator attention_sm80     # by mma.sync
    python3 bench/attention.py --shapes 4,4096,16,16,128,causal --config "warpgroups=2 bn=128"

Needs torch. A shape is batches, places, heads of q, heads of k, elements of a head, and `full` or `causal`; q, k, v and o are [b, s, h, d]. Without --config each shape
has the forms of the list below. FLOPs are 4 · b · h · s² · d, half of it where causal. The ratio is the faster peer's time over ours.
"""

import argparse
import json
import statistics

import common

# 16384 places in all; as many heads as fill a model of 2048, and with shared heads of k.
SHAPES = [(16384 // s, s, 2048 // d, 2048 // d, d, mask) for d in (128, 64) for s in (16384, 4096, 1024) for mask in ("full", "causal")]
SHAPES += [(4, 4096, 32, 8, 128, "causal"), (3, 5000, 16, 16, 128, "causal"), (2, 3000, 16, 4, 128, "full"), (2, 4096, 8, 8, 256, "causal")]
TURNS = "bn=128 warpgroups=2 ping_pong=true q_stages=2 persistent=true"
CONFIGS = {
    (64, "full"): ["bn=112 ping_pong=true q_stages=2 persistent=true", f"{TURNS} stages=3"],
    (64, "causal"): ["bn=96 stages=3 q_stages=2 persistent=true", f"{TURNS} stages=3"],
    (128, "full"): ["q_stages=2 persistent=true", TURNS],
    (128, "causal"): ["", TURNS],
    (256, "full"): ["warpgroups=2"],
    (256, "causal"): ["warpgroups=2"],
}
SM80_CONFIGS = {
    (64, "full"): ["blocks=3 bn=48", "bn=128", "blocks=2"],
    (64, "causal"): ["blocks=3 bn=48", "bn=96", "blocks=2"],
    (128, "full"): ["", "bn=32 stages=2", "bm=128 warps=8 bn=128"],
    (128, "causal"): ["", "bn=32 stages=2", "bm=64 bn=64"],
    (256, "causal"): ["warps=8", "bm=64 bn=32"],
}


def shape_of(text):
    """A shape of the command line."""
    *numbers, mask = text.split(",")
    if len(numbers) != 5 or mask not in ("full", "causal"):
        raise argparse.ArgumentTypeError(f"`{text}` is not B,S,HQ,HK,D,full or B,S,HQ,HK,D,causal")
    return (*map(int, numbers), mask)


def flops_of(shape):
    """Operations of the two products."""
    b, s, hq, _, d, mask = shape
    return 4 * b * hq * s * s * d / (2 if mask == "causal" else 1)


def job_of(shape, config, dtype, operator="attention"):
    """What to compile."""
    b, s, hq, hk, d, mask = shape
    words = [f"d={d}", f"mask={'causal' if mask == 'causal' else 'none'}"] + ([] if "dtype=" in config else [f"dtype={dtype}"])
    return {"operator": operator, "words": words, "config": config, "sizes": {"b": b, "hq": hq, "hk": hk, "sq": s, "sk": s}}


def peers_of(q, k, v, causal=False):
    """(name, run) of torch's ways, and notes on those that do not take the shape."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    heads_first = [t.transpose(1, 2) for t in (q, k, v)]

    def run(backend):
        with sdpa_kernel(backend):
            options = {"is_causal": causal, "enable_gqa": q.shape[2] != k.shape[2]}
            return torch.nn.functional.scaled_dot_product_attention(*heads_first, **options).transpose(1, 2)

    found, missing = [], []
    for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
        try:
            run(backend)
            found.append((name, lambda backend=backend: run(backend)))
        except RuntimeError as error:
            missing.append(f"{name}: {str(error).splitlines()[0]}")
    return found, missing


def exact_of(shape, q, k, v, batch, head):
    """One head in f64."""
    import torch

    b, s, hq, hk, d, mask = shape
    one = [t[batch, :, h].double() for t, h in ((q, head), (k, head // (hq // hk)), (v, head // (hq // hk)))]
    rows = []
    for first in range(0, s, 2048):
        scores = one[0][first : first + 2048] @ one[1].T / d**0.5
        if mask == "causal":
            places = torch.arange(first, first + scores.shape[0], device="cuda")[:, None]
            scores.masked_fill_(torch.arange(s, device="cuda")[None, :] > places, float("-inf"))
        rows.append(torch.softmax(scores, 1) @ one[2])
    return torch.cat(rows)


def measure(args, shape, jobs, launches, modules, clock, file):
    """Checks and times one shape; how many configurations are wrong."""
    import torch

    b, s, hq, hk, d, mask = shape
    label, dtype, wrong, ours = "x".join(map(str, shape)), common.torch_type(args.dtype), 0, []
    q = torch.randn(b, s, hq, d, device="cuda", dtype=dtype)
    k, v = (torch.randn(b, s, hk, d, device="cuda", dtype=dtype) for _ in range(2))
    found, missing = peers_of(q, k, v, mask == "causal")
    for note in missing:
        print(f"{label:<28} without {note}", flush=True)
    places = [(0, 0), (b - 1, hq - 1), (b // 2, hq // 2)]
    exact = [exact_of(shape, q, k, v, *place) for place in places]

    def error_of(o, exact=exact):
        return max(float((o[i, :, h].double() - want).norm() / want.norm()) for (i, h), want in zip(places, exact))

    # Heads of 8 bits, with scales of 1: what they are right for is what they were rounded to.
    small = [t.to(torch.float8_e4m3fn) for t in (q, k, v)]
    ones = torch.ones(b, hk, device="cuda")
    eight = {**dict(zip("qkv", small)), "o": None, "q_descale": ones, "k_descale": ones, "v_descale": ones}
    exact8 = [exact_of(shape, *(t.float() for t in small), *place) for place in places]

    theirs = found[0][1]() if found else None
    errors = {name: error_of(run()) for name, run in found}
    for job, each in zip(jobs, launches):
        clock.watch(f"{label} {job['config'] or 'default'}")
        is8 = "dtype=e4m3" in job["config"]
        plan = common.Plan(each, modules, eight if is8 else {"q": q, "k": k, "v": v, "o": None}, {"scale": d**-0.5}, {})
        first, notes = common.repeated(plan, args.repeat)
        error = error_of(first, exact8 if is8 else exact)
        apart = float((first.float() - theirs.float()).abs().max()) if theirs is not None else 0.0
        # Weights have 4 bits of precision in 8.
        limit = 5e-2 if is8 else 4e-4 if dtype == torch.float16 else 4e-3
        if notes.count("launches differ") or not error < limit or not apart < 20 * limit:
            notes.append(f"WRONG: {apart:.1e} from {found[0][0] if found else 'nothing'}")
            wrong += 1
        ours.append((job, plan, error, notes))
    turns = [(name, lambda: None, run, clock.once(run)) for name, run in found]
    turns += [(i, lambda: None, plan, clock.once(plan)) for i, (_, plan, _, notes) in enumerate(ours) if not any("WRONG" in n for n in notes)]
    for condition in args.conditions:
        clock.watch(f"{label}, {condition}")
        times = {name: statistics.median(rounds) for name, rounds in common.race(clock, turns, condition, args).items()}
        peers = {name: times[name] for name, _ in found}
        for i, (job, plan, error, notes) in enumerate(ours):
            line = f"{label:<28} {job['config'] or 'default':<26} {error:.1e}"
            if i in times:
                line += f" {times[i]:8.4f} ms {flops_of(shape) / times[i] / 1e9:5.0f} TFLOP/s {condition}"
                if peers:
                    line += f" {min(peers.values()) / times[i]:.3f}  (" + " ".join(f"{name} {ms:.4f}" for name, ms in peers.items()) + ")"
                row = {"shape": shape, "dtype": args.dtype, "condition": condition, "config": job["config"], "ms": times[i], "error": error,
                       "peers": peers, "peer_errors": errors, "registers": [kernel.registers for kernel in plan.kernels]}  # fmt: skip
                if file:
                    print(json.dumps(row), file=file, flush=True)
            print(f"{line}  {'; '.join(notes)}".rstrip(), flush=True)
    return wrong


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", type=shape_of, default=SHAPES, metavar="B,S,HQ,HK,D,MASK")
    parser.add_argument("--dtype", default="f16", choices=["f16", "bf16"])
    parser.add_argument("--operator", default="attention", choices=["attention", "attention_sm80"])
    parser.add_argument("--config", nargs="+", metavar="WORDS", help="configurations instead of those of the list")
    return common.parsed(parser, repeat=5)


def main():
    args = arguments()
    todo = []
    for shape in args.shapes:
        known = CONFIGS if args.operator == "attention" else SM80_CONFIGS
        configs = args.config or known.get((shape[4], shape[5]), [""])
        todo.append((shape, [job_of(shape, config, args.dtype, args.operator) for config in configs]))
    ready, failed = common.ready_of(todo, args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)

    common.measured(ready, failed, args, measure)


if __name__ == "__main__":
    main()
