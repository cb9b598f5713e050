#!/usr/bin/env python3
"""Attention forward (`attention`) beside cuDNN and FlashAttention-2, as torch calls them, and FlashAttention-3, in one interleaved run.

    python3 bench/attention.py --emit-launches launches      # no GPU: compiles only
    python3 bench/attention.py --launches launches           # compiles nothing
    python3 bench/attention.py --operator attention_sm80     # by mma.sync
    python3 bench/attention.py --shapes "4,4096,16,16,128,window(1024)" 16,4096,16,16,128,causal+varlen --config "warpgroups=2 bn=128"
    python3 bench/attention.py --random 20 --seed 7          # shapes that nobody chose, with what `tilewright kernels attention --for` chooses

Needs torch. A shape is batches, places, heads of q, heads of k, elements of a head, and `full`, `causal` or `window(N)`; q, k, v and o are [b, s, h, d]. With `+varlen`
sequences have lengths of their own, from an eighth of the places to all, one behind the other. Without --config each shape has the forms of the list below. FLOPs are
4 · hq · d for each pair of a query and a key that it attends to. The ratio is the fastest peer's time over ours. FlashAttention-3 is there if PEERS_FA3
names `_vllm_fa3_C.abi3.so` of a vllm wheel.
"""

import argparse
import os
import random
import re

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
    if len(numbers) != 5 or not re.fullmatch(r"(full|causal|window\(\d+\))(\+varlen)?", mask):
        raise argparse.ArgumentTypeError(f"`{text}` is not B,S,HQ,HK,D,MASK with MASK full, causal or window(N), and +varlen behind it or not")
    return (*map(int, numbers), mask)


def random_shapes(count, seed):
    """Shapes whose sizes are drawn with logarithms spread evenly."""
    draw, shapes = random.Random(seed), []
    while len(shapes) < count:
        s, heads, batch = (round(2 ** draw.uniform(*range)) for range in ((7, 14), (1, 6), (0, 6)))
        shared = draw.choice([1, 1, 2, 4, 8])
        shape = (batch, s, heads * shared, heads, draw.choice([64, 128, 128, 256]), draw.choice(["full", "causal"]))
        if 1e9 < flops_of(shape) < 1e13 and batch * s * shape[2] * shape[4] < 1 << 29:
            shapes.append(shape)
    return shapes


def lengths_of(shape):
    """Places of each sequence."""
    b, s, *_, mask = shape
    return [max(1, s // 8 + (s - s // 8) * i // max(1, b - 1)) for i in range(b)] if "varlen" in mask else [s] * b


def keys_of(mask):
    """(True if a query attends to no key behind its own, the keys that it attends to at most or None) of a shape's mask."""
    window = re.match(r"window\((\d+)\)", mask)
    return not mask.startswith("full"), int(window[1]) if window else None


def flops_of(shape):
    """Operations of the two products."""
    hq, d, (causal, window) = shape[2], shape[4], keys_of(shape[5])

    def pairs(n):
        least = min(n, window or n)
        return least * n - least * (least - 1) // 2 if causal else n * n

    return 4 * hq * d * sum(map(pairs, lengths_of(shape)))


def words_of(shape, dtype):
    """The parameters that a shape decides."""
    mask = shape[5].removesuffix("+varlen")
    return [f"d={shape[4]}", f"mask={'none' if mask == 'full' else mask}", f"dtype={dtype}", *(["varlen=true"] if "varlen" in shape[5] else [])]


def sizes_of(shape):
    """The sizes of the program."""
    b, s, hq, hk, *_ = shape
    all_of = sum(lengths_of(shape))
    return {"b": b, "hq": hq, "hk": hk, "sq": s, "sk": s, **({"tq": all_of, "tk": all_of} if "varlen" in shape[5] else {})}


def job_of(shape, config, dtype, operator="attention"):
    """What to compile."""
    words = [word for word in words_of(shape, dtype) if "dtype=" not in config or not word.startswith("dtype=")]
    return {"operator": operator, "words": words, "config": config, "sizes": sizes_of(shape)}


def chosen(binary, shape, dtype, operator):
    """The configuration that `tilewright kernels` chooses for a shape on an H200, without what the shape decides."""
    sizes = ",".join(f"{name}={value}" for name, value in sizes_of(shape).items())
    given = words_of(shape, dtype)
    command = [binary, "kernels", operator, *(word for pair in given for word in ("-p", pair)), "--for", sizes, "--config-only", "--device-name", "NVIDIA H200"]
    return " ".join(word for word in common.asked(command).split() if word not in given)


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


def peers_by_length(shape, q, k, v, cu, eight):
    """(name, run) of FlashAttention-2 and -3 by cu_seqlens, which have windows too, the latter also with 8 bits, and notes on those that do not take the shape."""
    import torch

    s, d, (causal, window) = shape[1], shape[4], keys_of(shape[5])

    def flash():
        left, right = (window - 1 if window else None), (0 if causal else None)
        of = torch.ops.aten._flash_attention_forward
        return of(q, k, v, cu, cu, s, s, 0.0, causal and not window, False, scale=d**-0.5, window_size_left=left, window_size_right=right)[0]

    def third(q=q, k=k, v=v, descales=(None, None, None)):
        scale = (d**-0.5, causal, window - 1 if window else -1, 0 if window else -1, 0.0, True)
        given = (q, k, v, *[None] * 4, cu, cu, None, None, None, s, s, *[None] * 6, *descales, *scale, None, 0, None, 0, None, 1, 0, None)
        return torch.ops._vllm_fa3_C.fwd(*given)[0]

    wanted = [("flash", flash)] if window or "varlen" in shape[5] else []
    if os.environ.get("PEERS_FA3"):
        torch.ops.load_library(os.environ["PEERS_FA3"])
        wanted.append(("fa3", third))
        if eight:
            small = [t.to(torch.float8_e4m3fn) for t in (q, k, v)]
            ones = torch.ones(len(cu) - 1, k.shape[1], device="cuda")
            wanted.append(("fa3-e4m3", lambda: third(*small, (ones, ones, ones))))
    found, missing = [], []
    for name, run in wanted:
        try:
            run()
            torch.cuda.synchronize()
            found.append((name, run))
        except RuntimeError as error:
            missing.append(f"{name}: {str(error).splitlines()[0]}")
    return found, missing


def exact_of(shape, q, k, v, sequence, head):
    """One head of one sequence in f64."""
    import torch

    (hq, hk, d), (causal, window), lengths = shape[2:5], keys_of(shape[5]), lengths_of(shape)
    n, start = lengths[sequence], sum(lengths[:sequence])
    one = [t[start : start + n, h].double() for t, h in ((q, head), (k, head // (hq // hk)), (v, head // (hq // hk)))]
    rows, keys = [], torch.arange(n, device="cuda")[None, :]
    for first in range(0, n, 2048):
        scores = one[0][first : first + 2048] @ one[1].T / d**0.5
        places = torch.arange(first, first + scores.shape[0], device="cuda")[:, None]
        if causal:
            scores.masked_fill_(keys > places, float("-inf"))
        if window:
            scores.masked_fill_(keys <= places - window, float("-inf"))
        rows.append(torch.softmax(scores, 1) @ one[2])
    return torch.cat(rows)


def measure(args, shape, jobs, launches, modules, clock, file):
    """Checks and times one shape; how many configurations are wrong."""
    import torch

    b, s, hq, hk, d, mask = shape
    label, dtype, wrong, ours = "x".join(map(str, shape)), common.torch_type(args.dtype), 0, []
    lengths = lengths_of(shape)
    total = sum(lengths)
    cu = torch.tensor([sum(lengths[:i]) for i in range(b + 1)], device="cuda", dtype=torch.int32)
    q = torch.randn(total, hq, d, device="cuda", dtype=dtype)
    k, v = (torch.randn(total, hk, d, device="cuda", dtype=dtype) for _ in range(2))
    found, missing = peers_by_length(shape, q, k, v, cu, any("e4m3" in job["config"] for job in jobs))
    if mask in ("full", "causal"):
        others, without = peers_of(*(t.view(b, s, -1, d) for t in (q, k, v)), mask == "causal")
        found, missing = others + found, missing + without
    for note in missing:
        print(f"{label:<28} without {note}", flush=True)
    places = [(0, 0), (b - 1, hq - 1), (b // 2, hq // 2)]
    exact = [exact_of(shape, q, k, v, *place) for place in places]

    def error_of(o, exact=exact):
        rows = [o.reshape(total, hq, d)[cu[i] : cu[i + 1], h].double() for i, h in places]
        return max(float((row - want).norm() / want.norm()) for row, want in zip(rows, exact))

    # Heads of 8 bits, with scales of 1: what they are right for is what they were rounded to.
    small = [t.to(torch.float8_e4m3fn) for t in (q, k, v)]
    ones = torch.ones(b, hk, device="cuda")
    exact8 = [exact_of(shape, *(t.float() for t in small), *place) for place in places]

    def given(q, k, v):
        shaped = [t if "varlen" in mask else t.view(b, s, -1, d) for t in (q, k, v)]
        return {**dict(zip("qkv", shaped)), "o": None, "cu_q": cu, "cu_k": cu}

    theirs = found[0][1]().reshape(total, hq, d) if found else None
    errors = {name: error_of(run(), exact8 if "e4m3" in name else exact) for name, run in found}
    for job, each in zip(jobs, launches):
        clock.watch(f"{label} {job['config'] or 'default'}")
        is8 = "dtype=e4m3" in job["config"]
        tensors = {**given(*small), "q_descale": ones, "k_descale": ones, "v_descale": ones} if is8 else given(q, k, v)
        plan = common.Plan(each, modules, tensors, {"scale": d**-0.5}, {})
        first, notes = common.repeated(plan, args.repeat)
        error = error_of(first, exact8 if is8 else exact)
        apart = float((first.reshape(total, hq, d).float() - theirs.float()).abs().max()) if theirs is not None else 0.0
        # Weights have 4 bits of precision in 8.
        limit = 5e-2 if is8 else 4e-4 if dtype == torch.float16 else 4e-3
        if notes.count("launches differ") or not error < limit or not apart < 20 * limit:
            notes.append(f"WRONG: {apart:.1e} from {found[0][0] if found else 'nothing'}")
            wrong += 1
        ours.append((job, plan, error, notes))
    common.raced(
        clock, args, shape, label, found, ours, file,
        head=lambda job, error: f"{label:<28} {job['config'] or 'default':<26} {error:.1e}",
        speed=lambda job, ms: f"{ms:8.4f} ms {flops_of(shape) / ms / 1e9:5.0f} TFLOP/s",
        shown=lambda name, ms: f"{name} {ms:.4f}",
        more=lambda plan, error: {"error": error, "peer_errors": errors, "registers": [kernel.registers for kernel in plan.kernels]},
        counts=lambda name, job: "e4m3" not in name or "e4m3" in job["config"],
    )  # fmt: skip
    return wrong


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", type=shape_of, default=SHAPES, metavar="B,S,HQ,HK,D,MASK")
    parser.add_argument("--dtype", default="f16", choices=["f16", "bf16"])
    parser.add_argument("--operator", default="attention", choices=["attention", "attention_sm80"])
    parser.add_argument("--config", nargs="+", metavar="WORDS", help="configurations instead of those of the list")
    parser.add_argument("--random", type=int, metavar="N", help="so many shapes that are drawn, and what is chosen for each besides those of the list")
    parser.add_argument("--seed", type=int, default=1, help="of the shapes that are drawn")
    return common.parsed(parser, repeat=5)


def main():
    args = arguments()
    todo = []
    known = CONFIGS if args.operator == "attention" else SM80_CONFIGS
    for shape in random_shapes(args.random, args.seed) if args.random else args.shapes:
        listed = known.get((shape[4], "full" if shape[5].startswith("full") else "causal"), [""])
        if args.random:
            listed = list(dict.fromkeys([chosen(args.bin, shape, args.dtype, args.operator), *listed]))
        todo.append((shape, [job_of(shape, config, args.dtype, args.operator) for config in args.config or listed]))
    ready, failed = common.ready_of(todo, args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)

    common.measured(ready, failed, args, measure)


if __name__ == "__main__":
    main()
