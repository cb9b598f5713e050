#!/usr/bin/env python3
"""Fences and waits of the compiler's own kernels, on a GPU: what goes wrong without them, and what they cost.

    bench/litmus.py --emit-launches DIR            # compile; no GPU
    bench/litmus.py [--launches DIR] [--launches-each 20] [--json FILE]

Each program of `bench/litmus/` is compiled, and run as it was emitted and in variants of its PTX in which fences are left out or waits
weakened. Its inputs are small integers, so that its sums are exact: an element that differs from the exact result is wrong. Zero wrong
elements prove nothing; a count above zero proves that what was left out is needed. The programs of `bench/litmus/cost/` and matrix products
are timed in the same variants, in turns.
"""

import argparse
import json
import pathlib
import re

import common

FOLDER = pathlib.Path(__file__).resolve().parent / "litmus"
ARCH = "sm_90a"

# Variants of a PTX text: what is replaced by what, line by line.
VARIANTS = {
    "no shared fence": [(r"fence\.proxy\.async\.shared::cta;", "")],
    "no global fence": [(r"fence\.proxy\.async\.global;", "")],
    "no fence": [(r"fence\.proxy\.async(\.\w+(::\w+)?)?;", "")],
    "shared for global": [(r"fence\.proxy\.async\.global;", "fence.proxy.async.shared::cta;")],
    "waits for reads": [(r"cp\.async\.bulk\.wait_group (\d+);", r"cp.async.bulk.wait_group.read \1;")],
}  # fmt: skip

# The exact result of each program, of its inputs by name (as tensors of f64), and the tensor that it is.
RESULTS = {
    "stage_ldmatrix": ("y", lambda x: x.sum(0).T),
    "bulk_then_store": ("t", lambda x: x[:, None]),
    # A round reads what the one before has stored: the last is not seen.
    "load_then_store": ("y", lambda x: x[:-1].sum(0)),
}  # fmt: skip
SUM = ("y", lambda x: x.sum(0))

# Kernels whose time with and without fences is measured: a name, an operator or a file, parameters, and sizes.
COSTS = [
    ("attention, d = 64, 64 × 4096", "cost/attention.tile", "", "bh=64 sq=4096 sk=4096"),
    ("attention, d = 128, 32 × 4096", "cost/attention.tile", "D=128 BM=64 BN=32 STAGES=2", "bh=32 sq=4096 sk=4096"),
    ("decode, 256 heads of 8192 keys", "cost/attention.tile", "BM=16", "bh=256 sq=16 sk=8192"),
    ("decode, 8 heads of 8192 keys", "cost/attention.tile", "BM=16", "bh=8 sq=16 sk=8192"),
    ("product 4096³", "gemm_hopper", "cluster=m2 bm=128 bn=256", "m=4096 n=4096 k=4096"),
    ("product 4096³, k = 512", "gemm_hopper", "cluster=m2 bm=128 bn=256", "m=4096 n=4096 k=512"),
    ("product 4096³, bias + gelu + residual", "gemm_hopper", "epilogue=bias+gelu+residual bn=128", "m=4096 n=4096 k=512"),
]  # fmt: skip


def variants_of(ptx):
    """The texts by variant, those alone that differ from one another."""
    texts = {"as emitted": ptx}
    for name, edits in VARIANTS.items():
        text = ptx
        for pattern, to in edits:
            text = re.sub(pattern, to, text)
        if text not in texts.values():
            texts[name] = text
    return texts


def launch_of(binary, file, constants="", sizes=""):
    """What `--emit launch` says of a program, or of an operator."""
    flags = [w for word in sizes.split() for w in ("-p", word)]
    if file.endswith(".tile"):
        flags += [w for word in constants.split() for w in ("-p", word)]
        command = [binary, "compile", str(FOLDER / file), "--arch", ARCH, "--emit", "launch", *flags]
        launches = common.sequence_of(json.loads(common.asked(command)))
    else:
        program = common.asked([binary, "kernels", file, *(w for word in constants.split() for w in ("-p", word))])
        command = [binary, "compile", "-", "--arch", ARCH, "--emit", "launch", *flags]
        launches = common.sequence_of(json.loads(common.asked(command, program)))
    if len(launches) != 1:
        raise SystemExit(f"{file}: {len(launches)} kernels instead of one")
    return launches[0]


def compiled(args):
    """(litmus launches by name, cost launches by name), compiled or read."""
    kept = pathlib.Path(args.launches, "litmus.json") if args.launches else None
    if kept and kept.exists():
        return json.loads(kept.read_text())
    programs = {file.stem: launch_of(args.bin, file.name) for file in sorted(FOLDER.glob("*.tile"))}
    costs = {name: launch_of(args.bin, *how) for name, *how in COSTS}
    return programs, costs


def fences_of(ptx):
    """How many fences and waits of each kind a text has."""
    found = re.findall(r"(fence\.proxy\.async[\w.:]*|cp\.async\.bulk\.wait_group(?:\.read)?)", ptx)
    return {kind: found.count(kind) for kind in sorted(set(found))}


def kernel_of(launch, ptx, tensors):
    """A variant's kernel, loaded and bound."""
    module, _ = common.module_of({**launch, "ptx": ptx})
    # The attention's scale; nothing else here has a scalar.
    scalars = {param["name"]: 0.125 for param in launch["params"] if param["kind"] == "scalar"}
    return common.Kernel(launch, module, tensors, scalars)


def tensors_of(launch, integers):
    """Tensors for a launch: small integers or random numbers."""
    import torch

    made = {}
    for param in launch["params"]:
        if param["kind"] == "tensor":
            dtype = common.torch_type(param["dtype"])
            empty = torch.empty_strided(param["shape"], param["strides"], device="cuda", dtype=dtype)
            made[param["name"]] = empty.copy_(torch.randint(-4, 5, param["shape"], device="cuda")) if integers else empty.normal_()
    return made


def litmus(name, launch, args):
    """Wrong elements of each variant, with how many were looked at."""
    import torch

    torch.manual_seed(0)
    tensors = tensors_of(launch, True)
    if "w" in tensors:
        tensors["w"].copy_(torch.eye(tensors["w"].shape[0], device="cuda"))
    result, exact = RESULTS.get(name, SUM)
    out = tensors[result]
    want = exact(tensors["x"].double()).expand(out.shape).to(out.dtype)
    stream, rows = torch.cuda.current_stream().cuda_stream, []
    for variant, ptx in variants_of(launch["ptx"]).items():
        kernel, wrong = kernel_of(launch, ptx, tensors), 0
        for _ in range(args.launches_each):
            out.fill_(-77)
            if name == "load_then_store":
                # Its first round adds what is there at the start.
                tensors["t"].zero_()
            kernel(stream)
            torch.cuda.synchronize()
            wrong += int((out != want).sum())
        trials = args.launches_each * launch["grid"][0] * tensors["x"].shape[0]
        rows.append({"program": name, "variant": variant, "rounds": trials, "elements": out.numel() * args.launches_each, "wrong": wrong})
    return rows


def cost(name, launch, args):
    """Milliseconds of each variant, in turns."""
    import torch

    tensors, clock = tensors_of(launch, False), common.Clock()
    stream = torch.cuda.current_stream().cuda_stream
    entries = []
    for variant, ptx in variants_of(launch["ptx"]).items():
        if variant in ("as emitted", "no shared fence", "no global fence", "no fence"):
            kernel = kernel_of(launch, ptx, tensors)
            run = lambda kernel=kernel: kernel(stream)
            entries.append((variant, lambda: None, run, clock.once(run)))
    rounds = common.race(clock, entries, "rested", args)
    best = {variant: sorted(times)[len(times) // 2] for variant, times in rounds.items()}
    return [{"kernel": name, "variant": variant, "ms": ms, "ratio": best["as emitted"] / ms} for variant, ms in best.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="target/release/tilewright")
    parser.add_argument("--launches", metavar="DIR", help="compiled kernels, as --emit-launches leaves them")
    parser.add_argument("--emit-launches", metavar="DIR", help="compile, write there, and stop; no GPU")
    parser.add_argument("--launches-each", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rep", type=float, default=10)
    parser.add_argument("--rest", type=float, default=0.05)
    parser.add_argument("--heat", type=float, default=0.5)
    parser.add_argument("--json", help="append a line for each row to this file")
    args = parser.parse_args()
    programs, costs = compiled(args)
    if args.emit_launches:
        folder = pathlib.Path(args.emit_launches)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "litmus.json").write_text(json.dumps([programs, costs]))
    print("| kernel | fences and waits in its PTX |\n|---|---|")
    for name, launch in [*programs.items(), *costs.items()]:
        print(f"| {name} | {', '.join(f'{n} × `{kind}`' for kind, n in fences_of(launch['ptx']).items())} |")
    if args.emit_launches:
        return
    import torch

    torch.zeros(1, device="cuda")
    rows = []
    print("\n| program | variant | rounds | elements | wrong |\n|---|---|--:|--:|--:|")
    for name, launch in programs.items():
        for row in litmus(name, launch, args):
            rows.append(row)
            print(f"| {name} | {row['variant']} | {row['rounds']} | {row['elements']} | {row['wrong']} |", flush=True)
    print("\n| kernel | variant | ms | as emitted, over it |\n|---|---|--:|--:|")
    for name, launch in costs.items():
        for row in cost(name, launch, args):
            rows.append(row)
            print(f"| {name} | {row['variant']} | {row['ms']:.4f} | {row['ratio']:.3f} |", flush=True)
    if args.json:
        with open(args.json, "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    bad = [row for row in rows if row.get("variant") == "as emitted" and row.get("wrong")]
    raise SystemExit(f"{len(bad)} programs are wrong as emitted" if bad else 0)


if __name__ == "__main__":
    main()
