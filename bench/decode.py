#!/usr/bin/env python3
"""Attention of one query token over many keys (`attention_decode`) beside cuDNN and FlashAttention, as torch's `scaled_dot_product_attention` calls them, in one
interleaved run.

    python3 bench/decode.py --emit-launches launches      # no GPU: compiles only
    python3 bench/decode.py --launches launches           # compiles nothing
    python3 bench/decode.py --shapes 32,32,8,8192 --config "splits=4 chunk=2048" "page=64 splits=4 chunk=2048"

Needs torch. A shape is sequences, heads of q, heads of k, keys; heads have 128 elements. `splits` and `chunk` of a configuration are sizes of the program, the other words parameters.
Gigabytes are those of keys and values. The ratio is the faster peer's time over ours.
"""

import argparse

import attention
import common

D = 128
SHAPES = [(b, 32, 8, s) for b in (1, 8, 32) for s in (1024, 8192, 32768)] + [(128, 32, 8, 1024), (128, 32, 8, 8192)]
SHAPES += [(1, 32, 32, 8192), (8, 32, 32, 8192), (32, 32, 32, 1024), (1, 64, 8, 32768), (8, 64, 8, 8192), (32, 64, 8, 8192)]
# What the operator's schedule says, and parts half and twice as long.
PARTS = {
    (1, 32, 8, 1024): 32, (1, 32, 8, 8192): 32, (1, 32, 8, 32768): 32, (8, 32, 8, 1024): 4, (8, 32, 8, 8192): 4, (8, 32, 8, 32768): 4,
    (32, 32, 8, 1024): 1, (32, 32, 8, 8192): 1, (32, 32, 8, 32768): 1, (128, 32, 8, 1024): 1, (128, 32, 8, 8192): 1, (1, 32, 32, 8192): 8,
    (8, 32, 32, 8192): 1, (32, 32, 32, 1024): 1, (1, 64, 8, 32768): 32, (8, 64, 8, 8192): 4, (32, 64, 8, 8192): 1,
}  # fmt: skip


def shape_of(text):
    """A shape of the command line."""
    numbers = tuple(map(int, text.split(",")))
    if len(numbers) != 4:
        raise argparse.ArgumentTypeError(f"`{text}` is not B,HQ,HK,KEYS")
    return numbers


def configs_of(shape):
    """The configurations of a shape where none are given."""
    keys, parts = shape[3], PARTS.get(shape, 1)
    of = [f"splits={splits} chunk={-(-keys // splits)}" for splits in sorted({max(parts // 2, 1), parts, 2 * parts})]
    best = f"splits={parts} chunk={-(-keys // parts)}"
    return [*of, f"{best} bn=16 stages=4", f"{best} page=64", f"{best} page=16", f"{best} kv=e4m3 bn=64", *(["split=false", "split=false page=64"] if parts <= 2 else [])]


def job_of(shape, config, dtype):
    """What to compile."""
    b, hq, hk, keys = shape
    words = dict(word.split("=") for word in config.split())
    sizes = {"b": b, "sq": 1, **({"tq": b} if words.get("varlen") == "true" else {}), **{name: int(words.pop(name)) for name in ("splits", "chunk") if name in words}}
    page = words.get("page", "none")
    sizes |= {"sk": keys} if page == "none" else {"pages": b * keys // int(page), "mb": keys // int(page)}
    own = " ".join(f"{name}={value}" for name, value in words.items())
    words = [f"group={hq // hk}", f"hk={hk}", f"dtype={dtype}", *([] if "split=false" in own else ["dependent=true"])]
    return {"operator": "attention_decode", "words": words, "config": own, "sizes": sizes, "label": config}


def given_of(config, q, k, v):
    """The tensors of a configuration by name; pages lie in a random order."""
    import torch

    b, keys, hk, _ = k.shape
    words = dict(word.split("=") for word in config.split())
    given = {"q": q, "o": None, "len": torch.full((b,), keys, device="cuda", dtype=torch.int32)}
    if words.get("varlen") == "true":
        given |= {"q": q.flatten(0, 1), "cu_q": torch.arange(b + 1, device="cuda", dtype=torch.int32)}
    if words.get("kv") == "e4m3":
        k, v = (t.to(torch.float8_e4m3fn) for t in (k, v))
        given |= {name: torch.ones(hk, device="cuda") for name in ("ks", "vs")}
    if words.get("page", "none") == "none":
        return {**given, "k": k, "v": v}
    page = int(words["page"])
    order = torch.randperm(b * keys // page, device="cuda")
    table = torch.empty_like(order)
    table[order] = torch.arange(len(order), device="cuda")

    def paged(t, shape):
        return t.reshape(-1, page, hk, D).view(torch.uint8)[order].view(t.dtype).reshape(shape)

    # Where a block of keys is longer than a page, the program has the rows of all pages as one mode.
    shape = (-1, page, hk, D) if page >= int(words.get("bn", 32)) else (-1, hk, D)
    return {**given, "kc": paged(k, shape), "vc": paged(v, shape), "table": table.to(torch.int32).reshape(b, -1)}


def measure(args, shape, jobs, launches, modules, clock, file):
    """Checks and times one shape; how many configurations are wrong."""
    import torch

    b, hq, hk, keys = shape
    label, dtype, wrong, ours = "x".join(map(str, shape)), common.torch_type(args.dtype), 0, []
    q = torch.randn(b, 1, hq, D, device="cuda", dtype=dtype)
    k, v = (torch.randn(b, keys, hk, D, device="cuda", dtype=dtype) for _ in range(2))
    found, missing = attention.peers_of(q, k, v)
    for note in missing:
        print(f"{label:<20} without {note}", flush=True)
    sample = sorted({0, b // 2, b - 1})

    def exact_of(k, v):
        x = torch.einsum("bohd,bkhd->bhok", grouped(q[sample]), k[sample].float()) * D**-0.5
        return torch.einsum("bhok,bkhd->bhod", torch.softmax(x, 3), v[sample].float()).reshape(len(sample), 1, hq, D)

    def grouped(q):
        return q.float().reshape(len(sample), hk, hq // hk, D).transpose(1, 2)

    exact = {False: exact_of(k, v), True: exact_of(*(t.to(torch.float8_e4m3fn).float() for t in (k, v)))}
    for job, each in zip(jobs, launches):
        clock.watch(f"{label} {job['label']}")
        plan = common.Plan(each, modules, given_of(job["label"], q, k, v), {"scale": D**-0.5}, {})
        first, notes = common.repeated(plan, args.repeat)
        want = exact["kv=e4m3" in job["label"]]
        error = float((first[sample].float().reshape(want.shape) - want).norm() / want.norm())
        if notes.count("launches differ") or not error < (1e-3 if dtype == torch.float16 else 8e-3):
            notes.append("WRONG")
            wrong += 1
        ours.append((job, plan, error, notes))

    def speed(job, ms):
        size = b * hk * keys * 2 * D * (1 if "kv=e4m3" in job["label"] else q.element_size())
        return f"{ms * 1000:8.1f} µs {size / ms / 1e6:5.0f} GB/s"

    common.raced(
        clock, args, shape, label, found, ours, file, speed=speed,
        head=lambda job, error: f"{label:<20} {job['label']:<34} {error:.1e}",
        shown=lambda name, ms: f"{name} {ms * 1000:.1f}",
        more=lambda plan, error: {"error": error},
    )  # fmt: skip
    return wrong


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", type=shape_of, default=SHAPES, metavar="B,HQ,HK,KEYS")
    parser.add_argument("--dtype", default="f16", choices=["f16", "bf16"])
    parser.add_argument("--config", nargs="+", metavar="WORDS", help="configurations instead of those of each shape")
    return common.parsed(parser, repeat=3)


def main():
    args = arguments()
    todo = [(shape, [job_of(shape, config, args.dtype) for config in args.config or configs_of(shape)]) for shape in args.shapes]
    ready, failed = common.ready_of(todo, args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)

    common.measured(ready, failed, args, measure)


if __name__ == "__main__":
    main()
