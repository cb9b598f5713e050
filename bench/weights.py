#!/usr/bin/env python3
"""Products with weights of a few bits (`gemm_weights`) beside cuBLAS with weights of 16 bits, in one process, in turns.

    python3 bench/weights.py                                    # int4 in groups of 128, four shapes, eight numbers of rows
    python3 bench/weights.py --set mxfp4 --rows 1 16
    python3 bench/weights.py --shapes 28672,4096 --rows 16 --config "bn=16 stages=18"
    python3 bench/weights.py --emit-launches launches           # no GPU: compiles only
    python3 bench/weights.py --launches launches                # compiles nothing

Needs a Hopper GPU, torch and cuda-bindings, but with --check and --emit-launches. A shape is n and k of the weights. Results are compared first with
the product of dequantised weights in f32. The ratio is cuBLAS' time over ours; GB/s are those of weights and scales alone.
"""

import argparse

import common

SHAPES = [(4096, 4096), (10240, 8192), (28672, 4096), (8192, 28672)]
ROWS = [1, 4, 16, 64, 128, 256, 1024, 4096]
# Formats: the words that ours always has.
SETS = {
    "int4": ["weights=i4"],
    "uint4": ["weights=u4", "zeros=true"],
    "int8": ["weights=i8"],
    "e4m3": ["weights=e4m3"],
    "mxfp4": ["weights=e2m1", "scale=ue8m0", "group=32"],
    "nvfp4": ["weights=e2m1", "scale=ue4m3", "group=16"],
}
BITS = {"i4": 4, "u4": 4, "e2m1": 4, "i8": 8, "e4m3": 8}
# The values of e2m1, by their bits.
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]

# Configurations of so many rows, at most. Stages are as many as shared memory has room for, of 4 and of 8 bits; 0: not with these.
CONFIGS = [
    (8, ["bn=8 stages={21,12}", "bn=8 bk=256 stages={10,6}", "bn=8 bm=64 warpgroups=1 stages={32,18}", "bn=8 bm=256 warpgroups=4 math_registers=112 stages={11,6}",
         "bn=8 schedule=data_parallel cluster=k2 stages={18,10}", "bn=8 schedule=data_parallel cluster=k4 stages={18,10}", "bn=8 hint_w=evict_first stages={21,12}",
         "bn=8 bm=256 stages={11,6} schedule=data_parallel", "bn=8 bk=256 part=128 stages={10,5} schedule=data_parallel"]),
    (16, ["bn=16 stages={17,10}", "bn=16 bk=256 stages={8,5}", "bn=16 bm=64 warpgroups=1 stages={25,16}", "bn=16 bm=256 warpgroups=4 math_registers=112 stages={10,5}",
          "bn=16 schedule=data_parallel cluster=k2 stages={14,9}", "bn=16 schedule=data_parallel cluster=k4 stages={14,9}",
          "bn=16 bm=256 stages={9,5} schedule=data_parallel", "bn=16 bk=256 part=128 stages={7,4} schedule=data_parallel"]),
    (64, ["bn=64 stages={8,6}", "bn=64 scaled=weights stages={8,6}", "bn=64 bm=256 warpgroups=4 math_registers=112 scaled=weights chunk=32 stages={6,4}", "bn=64 scaled=weights cluster=n2 stages={8,6}",
          "bn=32 scaled=weights stages={12,8}", "bn=64 scaled=weights schedule=data_parallel cluster=k2 stages={6,4}",
          "bn=64 bm=256 scaled=weights stages={5,3} schedule=data_parallel"]),
    (128, ["bn=128 scaled=weights stages={4,3}", "bn=128 scaled=weights cluster=n2 stages={4,3}", "bn=128 bm=256 scaled=weights stages={3,0} chunk=32", "bn=64 scaled=weights stages={8,6}"]),
    (256, ["bn=256 scaled=weights stages={3,2} chunk=32", "bn=128 scaled=weights stages={4,3}", "bn=128 bm=256 scaled=weights stages={3,0} chunk=32", "bn=128 scaled=weights cluster=n2 stages={4,3}"]),
    (1 << 30, ["bn=256 scaled=weights stages={3,2} chunk=32 schedule=data_parallel", "bn=256 scaled=weights stages={3,2} chunk=32 schedule=data_parallel cluster=n2", "bn=256 scaled=weights stages={3,2} chunk=32",
               "bn=128 bm=256 scaled=weights stages={3,0} chunk=32 schedule=data_parallel", "bn=192 scaled=weights stages={3,2} schedule=data_parallel overlap_epilogue=true", "bn=128 scaled=weights stages={4,3} schedule=data_parallel overlap_epilogue=true",
               "bn=64 bm=256 scaled=weights stages={5,3} schedule=data_parallel overlap_epilogue=true", "bn=128 scaled=weights stages={4,3} schedule=data_parallel overlap_epilogue=true cluster=n2"]),
]  # fmt: skip


def value_of(words, name, default):
    """The value of a word."""
    return next((word.split("=")[1] for word in words if word.startswith(f"{name}=")), default)


def configs_of(words, rows):
    """The configurations for so many rows, with the stages and the parts of a format."""
    bits, group = BITS[value_of(words, "weights", "i4")], int(value_of(words, "group", 128))
    few = next(configs for most, configs in CONFIGS if rows <= most)
    found = []
    for config in few:
        head, _, tail = config.partition("stages={")
        stages, _, rest = tail.partition("}")
        each = stages.split(",")[0 if bits == 4 else 1]
        if each == "0" or ("part=" in config and group < 128):
            continue
        # Vectors of scales take room too.
        each = int(each) if group >= 128 else max(2, int(each) - max(1, int(each) // 6))
        part = min(group, 64)
        found.append(f"{head}stages={each}{rest}" + (f" part={part}" if part < 64 else ""))
    return found


def work(args):
    """The shapes, each with its jobs."""
    found = []
    words = [f"dtype={args.dtype}", *SETS[args.set]]
    for n, k in [tuple(map(int, text.split(","))) for text in args.shapes] if args.shapes else SHAPES:
        for m in args.rows:
            configs = args.config or configs_of(words, m)
            jobs = [{"operator": "gemm_weights", "words": words, "config": config, "sizes": {"m": m, "n": n, "k": k}, "set": args.set} for config in configs]
            found.append(((m, n, k), jobs))
    return found


def stored(codes, bits, group):
    """Codes, a byte each, [n, k], in the order in which `StoredWeights` has them; n and k are multiples of a unit."""
    n, k = codes.shape
    steps = max(min(128 // bits, group // 16 * 8), 32 // bits) // 8
    # Rows: units, warps' halves, warps, rows 8 apart, rows. Columns: units, steps, columns 8 apart, columns, pairs.
    modes = codes.reshape(n // 64, 2, 2, 2, 8, k // (16 * steps), steps, 2, 4, 2)
    row, high, low, eight, each, column, step, half, four, pair = range(10)
    values = [step, half, eight, pair] if bits == 8 else [step, pair, half, eight]
    piece = min(1024 * steps, 256 * 32 // bits if bits < 8 else 256)
    return modes.permute(row, column, high, low, each, four, *values).reshape(n // 64, -1, piece).contiguous()


def problem(args, m, n, k):
    """Tensors by name, and dequantised weights in f32."""
    import torch

    words, dtype = SETS[args.set], common.torch_type(args.dtype)
    kind, group = value_of(words, "weights", "i4"), int(value_of(words, "group", 128))
    bits, scale = BITS[kind], value_of(words, "scale", args.dtype)
    codes = torch.randint(0, 1 << bits, (n, k), device="cuda", dtype=torch.uint8)
    if kind == "e4m3":
        codes = torch.where(codes & 0x7F == 0x7F, 0, codes).to(torch.uint8)
        plain = codes.view(torch.float8_e4m3fn).float()
    elif kind == "e2m1":
        plain = torch.tensor(E2M1, device="cuda")[codes.int()]
    else:
        plain = codes.float()
        if kind.startswith("i"):
            plain = torch.where(plain >= 1 << bits - 1, plain - (1 << bits), plain)
    if scale == "ue8m0":
        raw = torch.randint(118, 124, (k // group, n), device="cuda", dtype=torch.uint8)
        scales, wide = raw.view(common.torch_type(scale)), torch.exp2(raw.float() - 127)
    elif scale == "ue4m3":
        scales = (torch.rand(k // group, n, device="cuda") * 0.1 + 0.01).to(torch.float8_e4m3fn)
        wide = scales.float()
    else:
        scales = (torch.rand(k // group, n, device="cuda") * 0.02 + 0.001).to(dtype)
        wide = scales.float()
    tensors = {"a": torch.randn(m, k, device="cuda", dtype=dtype) * k**-0.25, "c": None, "s": scales}
    if "zeros=true" in words:
        tensors["z"] = torch.randint(0, 1 << bits, (k // group, n), device="cuda").to(dtype)
        plain -= tensors["z"].float().T.repeat_interleave(group, 1)
    held = stored(codes, bits, group)
    tensors["w"] = held.view(torch.float8_e4m3fn) if kind == "e4m3" else held.view(torch.int8) if bits == 8 else held
    return tensors, plain * wide.T.repeat_interleave(group, 1)


def measure(args, shape, jobs, launches, modules, clock, file):
    """Checks and times one shape; how many configurations are wrong."""
    import peers
    import torch

    (m, n, k), wrong, ours = shape, 0, []
    if not jobs:
        return 0
    label = f"{args.set} {m}x{n}x{k}"
    clock.watch(f"{label}: weights")
    tensors, weights = problem(args, m, n, k)
    dtype = common.torch_type(args.dtype)
    exact = tensors["a"].float() @ weights.T
    dense, out = weights.to(dtype), torch.empty(m, n, device="cuda", dtype=dtype)
    del weights
    for job, each in zip(jobs, launches):
        clock.watch(f"{label} {job['config']}")
        plan = common.Plan(each, modules, tensors, {}, {})
        first, notes = common.repeated(plan, args.repeat)
        error = peers.error_of(first, exact)
        if notes.count("launches differ") or not error < peers.TOLERANCE[dtype]:
            notes.append("WRONG")
        wrong += any("WRONG" in note for note in notes)
        ours.append((job, plan, error, notes))
    del exact
    read = tensors["w"].numel() * BITS[value_of(SETS[args.set], "weights", "i4")] / 8 + tensors["s"].numel() * tensors["s"].element_size()
    common.raced(
        clock, args, shape, label, [("cuBLAS", lambda: torch.mm(tensors["a"], dense.T, out=out))], ours, file,
        lambda job, error: f"{label:<24} {job['config']:<72} {error:.1e}",
        lambda job, ms: f"{ms * 1e3:8.1f} us {read / ms / 1e6:6.0f} GB/s {2 * m * n * k / ms / 1e9:6.1f} TFLOP/s",
        lambda peer, ms: f"{peer} {ms * 1e3:.1f} us",
        lambda plan, error: {"set": args.set, "error": error, "registers": [kernel.registers for kernel in plan.kernels]},
    )  # fmt: skip
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=list(SETS), default="int4", help="the format of the weights")
    parser.add_argument("--shapes", nargs="+", metavar="N,K", help="other shapes than the list's")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, help="rows of activations")
    parser.add_argument("--config", nargs="+", help="other configurations than the list's")
    parser.add_argument("--dtype", default="f16", choices=["f16", "bf16"])
    args = common.parsed(parser, repeat=3)
    ready, failed = common.ready_of(work(args), args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)
    common.measured(ready, failed, args, measure)


if __name__ == "__main__":
    main()
