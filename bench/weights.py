#!/usr/bin/env python3
"""Products with weights of a few bits (`gemm_weights`) beside cuBLAS with weights of 16 bits, and beside those of `weights_peers.py` that are installed, in one
process, in turns.

    python3 bench/weights.py                                    # int4 in groups of 128, four shapes, eight numbers of rows
    python3 bench/weights.py --set mxfp4 --rows 1 16            # beside Triton's dot_scaled; --set mxfp4-e4m3 with activations of 8 bits
    python3 bench/weights.py --set int16 --dtype bf16           # beside Triton's product that casts
    python3 bench/weights.py --peers marlin humming             # these alone
    python3 bench/weights.py --shapes 28672,4096 --rows 16 --config "bn=16 stages=18"
    python3 bench/weights.py --emit-launches launches           # no GPU: compiles only
    python3 bench/weights.py --launches launches                # compiles nothing

Needs a Hopper GPU, torch and cuda-bindings, but with --check and --emit-launches. A shape is n and k of the weights. Results are compared first with
the product of dequantised weights in f32. The ratio is the fastest peer's time over ours; GB/s are those of weights and scales alone.
"""

import argparse
import itertools

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
    "int1": ["weights=u1", "zeros=true"],
    "int2": ["weights=i2"],
    "int3": ["weights=u2", "upper=i1"],
    "int4-e4m3": ["weights=i4", "activations=e4m3"],
    "int4-int8": ["weights=i4", "activations=i8"],
    "mxfp4-e4m3": ["weights=e2m1", "scale=ue8m0", "group=32", "activations=e4m3"],
    "int16": ["weights=i16", "group=k"],
    "w4a16": [],
}
# Sets of another operator, which reads rows as they are, and its architecture.
OTHERS = {"w4a16": {"operator": "w4a16", "arch": "sm_80"}}
BITS = {"u1": 1, "i1": 1, "i2": 2, "u2": 2, "i4": 4, "u4": 4, "e2m1": 4, "i8": 8, "e4m3": 8, "i16": 16}
PEERS = ["marlin", "marlin-ist", "machete", "humming", "gemlite", "int4pack", "dot_scaled", "triton"]
# The values of e2m1, by their bits.
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]

# Configurations of so many rows, at most: the fastest of sweeps on an H200, for some shape each. Stages are those of 4 and of 8 bits; 0: not with these.
CONFIGS = [
    (8, ["bn=8 bm=256 warpgroups=4 math_registers=112 stages={4,3} schedule=data_parallel", "bn=8 bm=256 warpgroups=4 math_registers=112 stages={4,3}",
         "bn=8 bm=64 warpgroups=1 bk=512 part=128 stages={4,3} schedule=data_parallel cluster=k2",
         "instruction=mma bn=8 bm=256 warpgroups=4 math_registers=112 stages={4,3} schedule=data_parallel",
         "instruction=mma bn=8 bm=256 warpgroups=4 math_registers=112 stages={4,3}", "instruction=mma bn=8 bk=256 part=128 stages={4,3}",
         "instruction=mma bn=8 bm=256 warpgroups=4 math_registers=112 bk=256 part=128 stages={3,2} schedule=data_parallel",
         "instruction=mma bn=8 bm=256 bk=256 part=128 stages={4,3} schedule=data_parallel", "instruction=mma bn=8 stages={6,4}",
         "instruction=mma bn=8 bm=64 warpgroups=1 bk=512 part=128 stages={4,3} schedule=data_parallel cluster=k2",
         "instruction=mma bn=8 bm=64 warpgroups=1 bk=256 part=128 stages={4,3} schedule=data_parallel blocks=3",
         "instruction=mma bn=8 bm=128 warpgroups=1 stages={4,2} schedule=data_parallel blocks=3",
         "instruction=mma bn=8 bm=64 warpgroups=1 bk=512 part=128 stages={3,2} schedule=data_parallel blocks=2"]),
    (16, ["bn=16 bm=256 warpgroups=4 math_registers=112 stages={10,5} schedule=data_parallel", "bn=16 bk=256 part=128 stages={3,3}",
          "bn=16 bm=64 warpgroups=1 bk=256 part=128 stages={8,5} schedule=data_parallel cluster=k2",
          "bn=16 bm=64 warpgroups=1 bk=512 part=128 stages={6,3} schedule=data_parallel",
          "instruction=mma bn=16 bm=256 stages={6,4} schedule=data_parallel", "instruction=mma bn=16 bk=256 part=128 stages={3,3}",
          "instruction=mma bn=16 bm=256 warpgroups=4 math_registers=112 stages={6,4} schedule=data_parallel",
          "instruction=mma bn=16 bm=256 scaled=weights stages={6,4}",
          "instruction=mma bn=16 bm=64 warpgroups=1 bk=256 part=128 stages={8,5} schedule=data_parallel cluster=k2",
          "instruction=mma bn=16 bm=64 warpgroups=1 bk=256 part=128 stages={5,3} schedule=data_parallel blocks=2"]),
    (64, ["bn=64 bm=256 scaled=weights stages={5,3} schedule=data_parallel", "bn=64 bm=256 scaled=weights stages={5,3}", "bn=64 scaled=weights stages={4,4}",
          "bn=64 bk=256 part=128 scaled=weights stages={3,2}", "bn=64 bk=256 part=128 scaled=weights stages={3,2} schedule=data_parallel cluster=k2",
          "bn=64 bm=64 warpgroups=1 bk=256 part=128 scaled=weights stages={4,3} schedule=data_parallel cluster=k2"]),
    (128, ["bn=128 bm=256 scaled=weights stages={4,0} chunk=32 schedule=data_parallel", "bn=128 scaled=weights stages={3,3} chunk=32", "bn=64 scaled=weights stages={8,6}",
           "bn=128 scaled=weights stages={4,3} chunk=32 schedule=data_parallel cluster=k2"]),
    (256, ["bn=128 bm=256 scaled=weights stages={4,0} chunk=32", "bn=128 scaled=weights stages={4,3} chunk=32 schedule=data_parallel cluster=k2",
           "bn=256 bk=64 scaled=weights stages={6,4} chunk=32", "bn=256 bk=64 scaled=weights stages={5,4} chunk=32 schedule=data_parallel cluster=k2"]),
    (1 << 30, ["bn=256 scaled=weights stages={3,2} chunk=32 schedule=data_parallel", "bn=256 scaled=weights stages={3,2} chunk=32 schedule=data_parallel cluster=n2", "bn=256 scaled=weights stages={3,2} chunk=32",
               "bn=128 bm=256 scaled=weights stages={4,0} chunk=32 schedule=data_parallel"]),
]  # fmt: skip


# Those of integers of 16 bits.
OF_16_BITS = [
    (16, ["bn=16 bm=64 warpgroups=1 bk=256 part=128 stages=5", "bn=16 bk=128 stages=5", "bn=16 bm=64 warpgroups=1 bk=128 stages=8", "bn=16 bk=64 part=32 stages=8",
          "instruction=mma bn=16 bk=128 stages=4", "bn=16 bk=128 stages=5 schedule=data_parallel"]),
    (64, ["bn=64 bk=128 stages=4", "bn=64 bk=64 part=32 stages=6", "bn=64 bm=256 bk=64 part=32 stages=4 schedule=data_parallel", "bn=64 bk=128 stages=4 schedule=data_parallel"]),
    (1 << 30, ["bn=256 bk=64 part=32 stages=4 chunk=32 schedule=data_parallel", "bn=256 bk=64 part=32 stages=4 chunk=32", "bn=256 bk=128 stages=2 chunk=32 schedule=data_parallel",
               "bn=128 bm=256 bk=64 part=32 stages=4 chunk=32 schedule=data_parallel", "bn=128 bk=128 stages=3 chunk=32", "bn=256 bk=64 part=32 stages=4 chunk=32 schedule=data_parallel cluster=n2"]),
]  # fmt: skip

# Those of `w4a16`.
ROWS_AS_THEY_ARE = [
    (8, ["bm=8 bn=64 bk=256 kk=64 stages=3", "bm=8 bn=64 bk=256 kk=64 stages=2", "bm=8 bn=32 bk=512 kk=64 stages=3 threads=64", "bm=8 bn=128 bk=256 kk=32 stages=2"]),
    (16, ["bm=16 bn=64 bk=256 kk=64 stages=3", "bm=16 bn=64 bk=256 kk=32 stages=3", "bm=16 bn=32 bk=256 kk=64 stages=4", "bm=16 bn=32 bk=512 kk=64 stages=3",
          "bm=16 bn=64 bk=128 kk=64 stages=4", "bm=16 bn=32 bk=128 kk=64 stages=8"]),
    (1 << 30, ["bm=64 bn=256 bk=128 kk=32 stages=4 threads=256 epilogue=direct", "bm=64 bn=128 bk=256 kk=32 stages=2 threads=256", "bm=64 bn=256 bk=256 kk=32 stages=2 threads=256", "bm=64 bn=64 bk=256 kk=64 stages=2",
               "bm=32 bn=64 bk=256 kk=64 stages=3", "bm=64 bn=32 bk=256 kk=64 stages=3", "bm=64 bn=128 bk=64 kk=32 stages=4"]),
]  # fmt: skip


def value_of(words, name, default):
    """The value of a word."""
    return next((word.split("=")[1] for word in words if word.startswith(f"{name}=")), default)


def configs_of(words, rows):
    """The configurations for so many rows, with the stages and the parts of a format."""
    bits = BITS[value_of(words, "weights", "i4")]
    if bits == 16:
        return [f"{config} hint_w=evict_first" for config in next(configs for most, configs in OF_16_BITS if rows <= most)]
    group = int(value_of(words, "group", 128))
    narrow = any(word.startswith("activations=") for word in words)
    few = next(configs for most, configs in CONFIGS if rows <= most)
    found = []
    for config in few:
        # Weights of activations of 8 bits are multiplied as they are stored.
        head, _, tail = (config.replace("scaled=weights ", "") if narrow else config).partition("stages={")
        stages, _, rest = tail.partition("}")
        each = stages.split(",")[0 if bits <= 4 else 1]
        if each == "0" or ("part=" in config and group < 128):
            continue
        # Vectors of scales take room too.
        each = int(each) if group >= 128 else max(2, int(each) - max(1, int(each) // 6))
        part = min(group, 128 if bits < 4 else 64)
        found.append(f"{head}hint_w=evict_first stages={each}{rest}" + (f" part={part}" if part != 64 and "part=" not in config else ""))
    return list(dict.fromkeys(found))


def work(args):
    """The shapes, each with its jobs."""
    found = []
    shapes = [tuple(map(int, text.split(","))) for text in args.shapes] if args.shapes else SHAPES
    for name, (n, k), m in itertools.product(args.set, shapes, args.rows):
        if name in OTHERS:
            words, configs = SETS[name], next(configs for most, configs in ROWS_AS_THEY_ARE if m <= most)
        else:
            words = [f"dtype={args.dtype}", *SETS[name]]
            configs = configs_of(words, m)
        of = {"operator": "gemm_weights", **OTHERS.get(name, {}), "words": words, "sizes": {"m": m, "n": n, "k": k}, "set": name}
        jobs = [{**of, "config": config} for config in args.config or configs]
        found.append(((m, n, k), jobs))
    return found


def stored(codes, bits, group, narrow=False):
    """Codes, a byte each or an integer of 16 bits, [n, k], in the order in which `StoredWeights` has them, for activations of 16 bits or of 8; n and k are multiples of a unit."""
    n, k = codes.shape
    # Columns of an instruction, neighbours of a thread, and its values.
    columns, near, values = (32, 4, 16) if narrow else (16, 2, 8)
    steps = max(min(128 // bits, group // columns * values), values, 32 // bits) // values
    # Steps whose elements lie between those of a pair.
    inner = 1 if narrow or bits >= 8 else min(steps, 4 // bits)
    # Rows: units, warps' halves, warps, rows 8 apart, rows. Columns: units, steps, columns half a step apart, columns, neighbours.
    modes = codes.reshape(n // 64, 2, 2, 2, 8, k // (columns * steps), steps // inner, inner, 2, 4, near)
    row, high, low, eight, each, column, step, within, half, four, pair = range(11)
    values = [step, within, half, eight, pair] if narrow or bits >= 8 else [step, pair, within, half, eight]
    piece = min(64 * columns * steps, 256 * 32 // bits if bits < 8 else 256)
    return modes.permute(row, column, high, low, each, four, *values).reshape(n // 64, -1, piece).contiguous()


def numbers_of(kind, codes):
    """The numbers that codes of a type stand for, in f32."""
    import torch

    if kind == "e4m3":
        return codes.view(torch.float8_e4m3fn).float()
    if kind == "i16":
        return codes.float()
    if kind == "e2m1":
        return torch.tensor(E2M1, device="cuda")[codes.int()]
    plain, bits = codes.float(), BITS[kind]
    return torch.where(plain >= 1 << bits - 1, plain - (1 << bits), plain) if kind.startswith("i") else plain


# Milliseconds in which the host has queued a launch, of peers written in Python too.
QUEUED = 0.3

# The weights of the shape that was measured last, whose n and k the next one often has.
KEPT = []


class Weights:
    """Weights of a format, n and k: tensors by name, dequantised in f32, and peers that have them."""

    def __init__(self, args, name, n, k):
        import torch
        import weights_peers

        self.name, words, dtype = name, SETS[name], common.torch_type(args.dtype)
        self.kind, group = value_of(words, "weights", "i4"), value_of(words, "group", 128)
        group = k if group == "k" else int(group)
        self.n, self.k, self.dtype, self.activations = n, k, dtype, value_of(words, "activations", args.dtype)
        bits, scale, upper = BITS[self.kind], value_of(words, "scale", args.dtype), value_of(words, "upper", None)
        narrow = self.activations != args.dtype
        if bits == 16:
            codes = torch.randint(-(1 << 15), 1 << 15, (n, k), device="cuda", dtype=torch.int16)
        else:
            codes = torch.randint(0, 1 << bits, (n, k), device="cuda", dtype=torch.uint8)
        if self.kind == "e4m3":
            codes = torch.where(codes & 0x7F == 0x7F, 0, codes).to(torch.uint8)
        plain = numbers_of(self.kind, codes)
        if scale == "ue8m0":
            raw = torch.randint(118, 124, (k // group, n), device="cuda", dtype=torch.uint8)
            scales, wide = raw.view(common.torch_type(scale)), torch.exp2(raw.float() - 127)
        elif scale == "ue4m3":
            scales = (torch.rand(k // group, n, device="cuda") * 0.1 + 0.01).to(torch.float8_e4m3fn)
            wide = scales.float()
        elif bits == 16:
            # TritonBench's have none; the numbers are rounded as the kernel rounds them.
            scales, plain = torch.ones(1, n, device="cuda", dtype=dtype), plain.to(dtype).float()
            wide = scales.float()
        else:
            scales = (torch.rand(k // group, n, device="cuda") * 0.02 + 0.001).to(dtype)
            wide = scales.float()
        self.tensors = {"s": scales}
        if "zeros=true" in words:
            self.tensors["z"] = torch.randint(0, 1 << bits, (k // group, n), device="cuda").to(dtype)
            plain -= self.tensors["z"].float().T.repeat_interleave(group, 1)
        if upper:
            more = torch.randint(0, 1 << BITS[upper], (n, k), device="cuda", dtype=torch.uint8)
            self.tensors["h"] = stored(more, BITS[upper], group, narrow)
            plain += numbers_of(upper, more) * (1 << bits)
        held = stored(codes, bits, group, narrow)
        self.tensors["w"] = held.view(torch.float8_e4m3fn) if self.kind == "e4m3" else held.view(torch.int8) if bits == 8 else held
        self.plain = plain * wide.T.repeat_interleave(group, 1)
        self.dense = self.plain.to(dtype)
        if name in OTHERS:
            self.tensors = {"w": codes, "s": scales}
        self.bytes = n * k * (bits + (BITS[upper] if upper else 0)) / 8 + scales.numel() * scales.element_size()
        self.numbers = codes if bits == 16 and "triton" in args.peers else None
        self.scaled = (codes, raw) if name.startswith("mxfp4") and "dot_scaled" in args.peers else None
        signed = numbers_of(self.kind, codes) + (numbers_of(upper, more) * (1 << bits) if upper else 0)
        whole = bits + (BITS[upper] if upper else 0)
        given = weights_peers.Given(self.kind, whole, codes, signed, scales, self.tensors.get("z"), group, self.activations, dtype)
        self.found, self.missing = weights_peers.of(given, args.peers)

    def rows(self, m):
        """Activations."""
        import torch

        if self.activations == "i8":
            return torch.randint(-127, 128, (m, self.k), device="cuda", dtype=torch.int8)
        a = torch.randn(m, self.k, device="cuda", dtype=self.dtype) * self.k**-0.25
        return a.to(common.torch_type(self.activations))

    def peers(self, a, exact, clock):
        """[(name, run)] of those whose product is right, and why others are missing."""
        import peers
        import torch
        import weights_peers

        wide, out = a.to(self.dtype), torch.empty(a.shape[0], self.n, device="cuda", dtype=self.dtype)
        found, missing = [("cuBLAS", lambda: torch.mm(wide, self.dense.T, out=out))], list(self.missing)
        others = weights_peers.runs_of(self.found, a)
        if self.scaled:
            others += peers.attempt(missing, "dot_scaled", lambda: [("dot_scaled", weights_peers.dot_scaled(*self.scaled, a, clock.once))])
        if self.numbers is not None:
            others += peers.attempt(missing, "triton", lambda: [("triton", weights_peers.cast_in_product(self.numbers, a, clock.once))])
        for name, run in others:
            error = peers.attempt(missing, name, lambda run=run: [peers.error_of(run(), exact)])
            if error and error[0] < 2e-2:
                found.append((name, run))
            elif error:
                missing.append(f"{name}: {error[0]:.1e} off")
        return found, missing


def measure(args, shape, jobs, launches, modules, clock, file):
    """Checks and times one shape; how many configurations are wrong. Weights are kept for the next one."""
    import peers
    import torch

    (m, n, k), wrong, ours = shape, 0, []
    if not jobs:
        return 0
    name = jobs[0]["set"]
    label = f"{name} {m}x{n}x{k}"
    clock.watch(f"{label}: weights")
    if not KEPT or (KEPT[0].name, KEPT[0].n, KEPT[0].k) != (name, n, k):
        KEPT.clear()
        KEPT.append(Weights(args, name, n, k))
    held = KEPT[0]
    a = held.rows(m)
    tensors = {**held.tensors, "a": a, "c": None}
    exact = a.float() @ held.plain.T
    for job, each in zip(jobs, launches):
        clock.watch(f"{label} {job['config']}")
        plan = common.Plan(each, modules, tensors, {}, {})
        first, notes = common.repeated(plan, args.repeat)
        error = peers.error_of(first, exact)
        if notes.count("launches differ") or not error < peers.TOLERANCE[held.dtype]:
            notes.append("WRONG")
        wrong += any("WRONG" in note for note in notes)
        ours.append((job, plan, error, notes))
    clock.watch(f"{label}: peers")
    found, missing = held.peers(a, exact, clock)
    clock.spin = QUEUED
    del exact
    if missing:
        print(f"{label}: without {'; '.join(missing)}", flush=True)
    common.raced(
        clock, args, shape, label, found, ours, file,
        lambda job, error: f"{label:<24} {job['config']:<72} {error:.1e}",
        lambda job, ms: f"{ms * 1e3:8.1f} us {held.bytes / ms / 1e6:6.0f} GB/s {2 * m * n * k / ms / 1e9:6.1f} TFLOP/s",
        lambda peer, ms: f"{peer} {ms * 1e3:.1f} us",
        lambda plan, error: {"set": name, "error": error, "registers": [kernel.registers for kernel in plan.kernels]},
    )  # fmt: skip
    clock.spin = 0.0
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="+", choices=list(SETS), default=["int4"], help="formats of the weights")
    parser.add_argument("--shapes", nargs="+", metavar="N,K", help="other shapes than the list's")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, help="rows of activations")
    parser.add_argument("--config", nargs="+", help="other configurations than the list's")
    parser.add_argument("--dtype", default="f16", choices=["f16", "bf16"])
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS, help="those to be beside cuBLAS, where they are installed")
    args = common.parsed(parser, repeat=3)
    ready, failed = common.ready_of(work(args), args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)
    common.measured(ready, failed, args, measure)


if __name__ == "__main__":
    main()
