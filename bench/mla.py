#!/usr/bin/env python3
"""Multi-head latent attention of one query token (`attention_decode` with `mla=true`, heads of 576 and 512 elements) beside FlashMLA, in one interleaved run.

    python3 bench/mla.py --emit-launches launches      # no GPU: compiles only
    python3 bench/mla.py --launches launches           # compiles nothing
    python3 bench/mla.py --shapes 32,128,4096 --config "splits=2 chunk=2048"

Needs torch. A shape is sequences, heads of q and keys; keys lie in pages of 64, in a random order. FlashMLA is there if PEERS_FLASHMLA names `_flashmla_C.abi3.so` of a
vllm wheel. `splits` and `chunk` of a configuration are sizes of the program, the other words parameters. Gigabytes are those of the keys, read once.
"""

import argparse
import os

import common

D, DV, PAGE = 576, 512, 64
SHAPES = [(b, heads, 4096) for heads in (128, 16) for b in (1, 8, 32, 128)] + [(b, 128, 32768) for b in (1, 8)]
MULTIPROCESSORS = 132


def shape_of(text):
    """A shape of the command line."""
    numbers = tuple(map(int, text.split(",")))
    if len(numbers) != 3 or numbers[2] % PAGE:
        raise argparse.ArgumentTypeError(f"`{text}` is not B,HQ,KEYS with whole pages of {PAGE} keys")
    return numbers


def configs_of(shape):
    """The parts that fill the multiprocessors once, half as many and twice as many, where none are given."""
    b, heads, keys = shape
    blocks = keys // PAGE
    full = max(1, min(blocks, MULTIPROCESSORS // (b * -(-heads // 64))))
    parts = sorted({max(1, full // 2), full, min(blocks, 2 * full)})
    chunks = sorted({-(-blocks // n) * PAGE for n in parts})
    splits = [-(-keys // chunk) for chunk in chunks]
    together = [min(32, 1 << (n - 1).bit_length()) for n in splits]
    return [*(f"splits={n} chunk={chunk} parts={parts}" for n, chunk, parts in zip(splits, chunks, together)), *(["split=false"] if full <= 2 else [])]


def job_of(shape, config, dtype):
    """What to compile."""
    b, heads, keys = shape
    words = dict(word.split("=") for word in config.split())
    sizes = {"b": b, "hk": 1, "sq": 1, **{name: int(words.pop(name)) for name in ("splits", "chunk") if name in words}}
    sizes |= {"pages": b * keys // PAGE, "mb": keys // PAGE}
    own = " ".join(f"{name}={value}" for name, value in words.items())
    given = ["mla=true", f"d={D}", f"dv={DV}", f"group={heads}", "rows=64", "bn=64", "stages=2", f"page={PAGE}", f"dtype={dtype}"]
    return {"operator": "attention_decode", "words": given + ([] if "split=false" in own else ["dependent=true"]), "config": own, "sizes": sizes, "label": config}


def peers_of(q, cache, table, length):
    """(name, run) of FlashMLA, and notes on what is not there."""
    import torch

    if not os.environ.get("PEERS_FLASHMLA"):
        return [], ["flashmla: PEERS_FLASHMLA is not set"]
    torch.ops.load_library(os.environ["PEERS_FLASHMLA"])
    state = [None, None]

    def run():
        out, _, *state[:] = torch.ops._flashmla_C.dense_decode_fwd(q, cache, DV, length, table, D**-0.5, True, *state, None)
        return out

    try:
        run()
        torch.cuda.synchronize()
    except RuntimeError as error:
        return [], [f"flashmla: {str(error).splitlines()[0]}"]
    return [("flashmla", run)], []


def measure(args, shape, jobs, launches, modules, clock, file):
    """Checks and times one shape; how many configurations are wrong."""
    import torch

    b, heads, keys = shape
    label, dtype, wrong, ours = "x".join(map(str, shape)), common.torch_type(args.dtype), 0, []
    q = torch.randn(b, 1, heads, D, device="cuda", dtype=dtype)
    order = torch.randperm(b * keys // PAGE, device="cuda")
    cache = torch.randn(b * keys // PAGE, PAGE, 1, D, device="cuda", dtype=dtype)
    table, length = order.to(torch.int32).reshape(b, -1), torch.full((b,), keys, device="cuda", dtype=torch.int32)
    found, missing = peers_of(q, cache, table, length)
    for note in missing:
        print(f"{label:<20} without {note}", flush=True)
    sample = sorted({0, b // 2, b - 1})
    own = torch.stack([cache[table[i].long()].reshape(keys, D) for i in sample]).double()
    weights = torch.softmax(q[sample, 0].double() @ own.mT * D**-0.5, 2)
    want = weights @ own[..., :DV]

    def error_of(o):
        return float((o[sample].double().reshape(want.shape) - want).norm() / want.norm())

    errors = {name: error_of(run()) for name, run in found}
    given = {"q": q, "o": None, "len": length, "kc": cache, "table": table}
    for job, each in zip(jobs, launches):
        clock.watch(f"{label} {job['label']}")
        plan = common.Plan(each, modules, given, {"scale": D**-0.5}, {})
        first, notes = common.repeated(plan, args.repeat)
        error = error_of(first)
        if notes.count("launches differ") or not error < (1e-3 if dtype == torch.float16 else 8e-3):
            notes.append("WRONG")
            wrong += 1
        ours.append((job, plan, error, notes))

    def speed(job, ms):
        flops, size = 2 * b * heads * keys * (D + DV), b * keys * D * q.element_size()
        return f"{ms * 1000:8.1f} µs {size / ms / 1e6:5.0f} GB/s {flops / ms / 1e9:4.0f} TFLOP/s"

    common.raced(
        clock, args, shape, label, found, ours, file, speed=speed,
        head=lambda job, error: f"{label:<20} {job['label']:<34} {error:.1e}",
        shown=lambda name, ms: f"{name} {ms * 1000:.1f} {errors[name]:.1e}",
        more=lambda plan, error: {"error": error},
    )  # fmt: skip
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", type=shape_of, default=SHAPES, metavar="B,HQ,KEYS")
    parser.add_argument("--dtype", default="bf16", choices=["f16", "bf16"])
    parser.add_argument("--config", nargs="+", metavar="WORDS", help="configurations instead of those of each shape")
    args = common.parsed(parser, repeat=3)
    todo = [(shape, [job_of(shape, config, args.dtype) for config in args.config or configs_of(shape)]) for shape in args.shapes]
    ready, failed = common.ready_of(todo, args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)
    common.measured(ready, failed, args, measure)


if __name__ == "__main__":
    main()
