#!/usr/bin/env python3
"""Contractions beside torch.einsum: one interleaved run of 34, each with the configuration that is chosen without a record.

    python3 bench/contraction.py --condition rested
    python3 bench/contraction.py --only tccg             # one family
    python3 bench/contraction.py --only interleaved --words permute=c
    python3 bench/contraction.py --check                 # no GPU: compiles only

Needs what bench/gemm.py needs. torch.einsum permutes and folds its operands into products of cuBLAS; both sides begin with the same row-major tensors and
end with the same row-major result, which is compared: where torch.einsum returns a view of another order, a copy follows it. The time without
that copy (`einsum, any order`) is printed too and counts for no ratio. The contractions of TCCG (Springer and Bientinesi, "Design of a High-Performance GEMM-like
Tensor-Tensor Multiplication") are column-major there: their indices stand here in the opposite order. Sizes are multiples of 8.
Results of the family `interleaved`, as of `cadg,bfge->fedcba`, are no matrix in any order of the factors (`permute=c`).
"""

import argparse
import math
import re
import subprocess

import common

# Family, contraction, sizes.
CASES = [
    ("tccg", "adc,bd->cba", dict(a=320, b=320, c=96, d=320)),
    ("tccg", "dca,bd->cba", dict(a=320, b=320, c=96, d=320)),
    ("tccg", "adb,dc->cba", dict(a=320, b=96, c=320, d=320)),
    ("tccg", "dba,cd->cba", dict(a=320, b=96, c=320, d=320)),
    ("tccg", "dba,edc->ecba", dict(a=96, b=80, c=96, d=96, e=80)),
    ("tccg", "fbea,ecfd->dcba", dict(a=72, b=72, c=72, d=72, e=72, f=72)),
    ("tccg", "feba,dcfe->dcba", dict(a=72, b=72, c=72, d=72, e=72, f=72)),
    ("tccg", "ebfa,fdec->dcba", dict(a=72, b=72, c=72, d=72, e=72, f=72)),
    ("tccg", "befa,cfed->dcba", dict(a=64, b=64, c=64, d=64, e=64, f=64)),
    ("tccg", "eafd,bfce->dcba", dict(a=64, b=64, c=64, d=64, e=64, f=64)),
    ("tccg", "eafb,fdec->dcba", dict(a=72, b=72, c=72, d=72, e=72, f=72)),
    ("tccg", "ecba,fde->fdcba", dict(a=48, b=32, c=32, d=48, e=48, f=32)),
    ("tccg", "badg,cfge->fedcba", dict(a=24, b=16, c=24, d=16, e=24, f=16, g=24)),
    ("tccg", "cadg,bfge->fedcba", dict(a=24, b=16, c=24, d=16, e=24, f=16, g=24)),
    ("interleaved", "cbdg,afge->fedcba", dict(a=24, b=16, c=24, d=16, e=24, f=16, g=24)),
    ("interleaved", "caeg,bfgd->fedcba", dict(a=24, b=16, c=24, d=16, e=24, f=16, g=24)),
    ("interleaved", "ikm,jlm->ijkl", dict(i=512, j=512, k=8, l=8, m=512)),
    ("interleaved", "abk,cdk->cadb", dict(a=256, b=16, c=256, d=16, k=512)),
    ("attention", "bhqd,bhkd->bhqk", dict(b=4, h=16, q=2048, k=2048, d=128)),
    ("attention", "bhqk,bhkd->bhqd", dict(b=4, h=16, q=2048, k=2048, d=128)),
    ("attention", "bqhd,bkhd->bhqk", dict(b=4, h=16, q=2048, k=2048, d=128)),
    ("attention", "bhqk,bkhd->bqhd", dict(b=4, h=16, q=2048, k=2048, d=128)),
    ("attention", "qbhd,kbhd->bhqk", dict(b=4, h=16, q=2048, k=2048, d=64)),
    ("attention", "bhqk,bhqd->bkhd", dict(b=4, h=16, q=2048, k=2048, d=128)),
    ("attention", "bhqd,hdc->bqhc", dict(b=4, h=16, q=2048, d=128, c=512)),
    ("attention", "bqhd,hde->bqe", dict(b=4, q=2048, h=32, d=128, e=4096)),
    ("mlp", "bsd,df->bsf", dict(b=4, s=2048, d=4096, f=14336)),
    ("mlp", "bsf,df->bsd", dict(b=4, s=2048, d=4096, f=14336)),
    ("mlp", "bsd,bsf->df", dict(b=4, s=2048, d=4096, f=4096)),
    ("mlp", "ecd,edf->ecf", dict(e=8, c=1024, d=4096, f=4096)),
    ("mlp", "ced,edf->cef", dict(e=8, c=1024, d=4096, f=4096)),
    ("mlp", "bsgd,gdf->bsgf", dict(b=4, s=1024, g=8, d=512, f=2048)),
    ("mlp", "bchw,co->bohw", dict(b=16, c=512, h=56, w=56, o=512)),
    ("mlp", "bsd,hdf->bhsf", dict(b=4, s=2048, d=2048, h=16, f=128)),
]


def flops(einsum, sizes):
    return 2 * math.prod(sizes.values())


def job_of(case, args):
    """What to compile: the configuration that is chosen for these sizes, and the program's sizes."""
    _, einsum, sizes = case
    given = ",".join(f"{letter}={size}" for letter, size in sizes.items())
    words = [f"einsum={einsum}", f"dtype={args.dtype}", *args.words.split()]
    command = [args.bin, "kernels", "contraction", *(w for word in words for w in ("-p", word)), "--for", given]
    done = subprocess.run([*command, "--device-name", "NVIDIA H200", "--config-only"], capture_output=True, text=True)
    said = re.search(r"^sizes of `(\w+)`: (.*)$", done.stderr, re.M)
    if done.returncode or not said:
        raise SystemExit(f"{einsum}: {done.stderr.strip()}")
    named = {name: int(size) for name, size in (word.split("=") for word in said[2].split())}
    return {"operator": said[1], "words": [], "config": done.stdout.strip(), "sizes": named, "einsum": einsum}


def exchanged(einsum):
    """Whether the last index of the result is one of the first operand alone: the kernel's `a` is then the second operand."""
    a, b, c = re.split(",|->", einsum)
    return bool(c) and c[-1] in a and c[-1] not in b


def measure(args, case, jobs, launches, modules, clock, file):
    """Checks and times one contraction; how many configurations are wrong."""
    import peers
    import torch

    (_, einsum, sizes), [job], [each] = case, jobs, launches
    clock.watch(einsum)
    dtype = common.torch_type(args.dtype)
    a, b = (torch.randn([sizes[letter] for letter in indices], device="cuda", dtype=dtype) for indices in einsum.split("->")[0].split(","))
    exact = torch.einsum(einsum, a.float(), b.float()).reshape(1, -1)
    first, second = (b, a) if exchanged(einsum) else (a, b)
    tensors = {"c": None}
    for param in [param for launch in each for param in launch["params"] if param["kind"] == "tensor"]:
        if param["name"] in ("a", "b"):
            of = first if param["name"] == "a" else second
            tensors[param["name"]] = of.flatten().as_strided(param["shape"], param["strides"])
    plan = common.Plan(each, modules, tensors, {}, {})
    once, notes = common.repeated(plan, args.repeat)
    result = torch.empty_strided(plan.out.shape, plan.out.stride(), device="cuda", dtype=plan.out.dtype).copy_(once)
    error = peers.error_of(result.as_strided(exact.shape, [exact.numel(), 1]), exact)
    if "launches differ" in notes or not error < peers.TOLERANCE[dtype]:
        notes.append("WRONG")
    kept = {}

    def of_torch(row_major):
        result = torch.einsum(einsum, a, b)
        kept["c"] = result.contiguous() if row_major else result

    found = [("einsum", lambda: of_torch(True))]
    if not torch.einsum(einsum, a, b).is_contiguous():
        found.append(("einsum, any order", lambda: of_torch(False)))

    del exact, once, result
    count = flops(einsum, sizes)
    common.raced(
        clock, args, [einsum, sizes], einsum, found, [(job, plan, error, notes)], file,
        head=lambda job, error: f"{einsum:<20} {job['operator']} {job['config']:<60} {error:.1e}",
        speed=lambda job, ms: f"{ms:8.4f} ms {count / ms / 1e9:6.1f} TFLOP/s",
        shown=lambda name, ms: f"{name} {ms:.4f} ms {count / ms / 1e9:.1f}",
        more=lambda plan, error: {"error": error, "registers": [kernel.registers for kernel in plan.kernels]},
        counts=lambda name, _: name == "einsum",
    )  # fmt: skip
    return int("WRONG" in notes)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted({family for family, *_ in CASES}), help="one family of contractions")
    parser.add_argument("--dtype", default="f16", choices=["f16", "bf16"])
    parser.add_argument("--words", default="", help="parameters that the choice keeps, e.g. 'permute=c'")
    return common.parsed(parser, repeat=3)


def main():
    args = arguments()
    cases = [case for case in CASES if args.only in (None, case[0])]
    ready, failed = common.ready_of([(case, [job_of(case, args)]) for case in cases], args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)

    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    common.measured(ready, failed, args, measure, torch.cuda.empty_cache)


if __name__ == "__main__":
    main()
