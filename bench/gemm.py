#!/usr/bin/env python3
"""Matrix products beside cuBLAS, Triton and what else is installed, in one process, in turns: time, ratio, error.

    python3 bench/gemm.py --set issue --dtype f16 --plan plan.txt --condition all --json rows.jsonl
    python3 bench/gemm.py --shapes 4096,4096,4096 --config "bn=192 stages=4" "overlap_epilogue=true"
    python3 bench/gemm.py --set f32 --chosen --common precision=bf16x9
    python3 bench/gemm.py --set sparse --dtype e4m3 --chosen
    python3 bench/gemm.py --set cluster2d --chosen --rounds 7
    python3 bench/gemm.py --set issue --plan plan.txt --emit-launches launches      # no GPU: compiles only
    python3 bench/gemm.py --set issue --plan plan.txt --launches launches           # compiles nothing

Needs a Hopper GPU, torch, triton and cuda-bindings, but with --check or --emit-launches. The kernels are those of `tilewright kernels`, compiled
by `tilewright compile --emit launch`, loaded by the driver. The ratio is the fastest cuBLAS' time over ours: more is better. Conditions:

  rested     the GPU idles before each timing, which then meets a cool chip; the L2 cache is emptied before each launch by writing
  clean      the same, but emptied by reading, so that no dirty lines have to be written back during the kernel
  sustained  no pause, after a while of full load: the chip is hot and its clock is limited by power

Before anything is timed each result is compared with a product in f64 or f32, and repeated launches must give the same bits.
"""

import argparse
import concurrent.futures
import json
import math
import pathlib
import random
import statistics
import time

import common

MODEL = [(4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (10240, 8192), (57344, 8192), (8192, 28672)]
DEEPSEEK = [(4096, 7168), (7168, 2048), (24576, 1536), (7168, 16384)]
SQUARES = [(size,) * 3 for size in (4096, 8192, 16384)]


def drawn(count, seed=8):
    """Shapes at random: sizes from 8 to 20000 that are multiples of 8."""
    source = random.Random(seed)
    return [tuple(8 * source.randint(1, 2500) for _ in range(3)) for _ in range(count)]


def log_uniform(count, seed, most=20000):
    """Shapes at random, the logarithms of their sizes uniform: of two thirds n and k are multiples of 8, of the others one of them is odd."""
    source = random.Random(seed)

    def size():
        return round(math.exp(source.uniform(0, math.log(most))))

    shapes = []
    while len(shapes) < count:
        m, n, k = size(), size(), size()
        if len(shapes) % 3 < 2:
            n, k = max(8, n // 8 * 8), max(8, k // 8 * 8)
        elif n % 2 == 0 and k % 2 == 0:
            continue
        if (m, n, k) not in shapes:
            shapes.append((m, n, k))
    return shapes


# Rows that TMA cannot take, few columns or rows, short sums.
UNALIGNED = [
    (8000, 8000, 8001), (1000, 3001, 1001), (333, 50257, 4096), (333, 50257, 4097), (1024, 50257, 768), (4096, 4097, 4096), (4096, 4096, 4098),
    (4000, 4000, 81), (2048, 6001, 2048), (17, 8191, 4095), (64, 64, 65), (4096, 1, 4096), (4096, 1, 4097), (1, 4096, 4097), (8192, 8, 4095),
    (1, 50257, 4096), (4096, 4096, 4), (4096, 4096, 8), (4096, 4096, 24), (4000, 4001, 5),
]  # fmt: skip
SINGLE = [*SQUARES[:2], (128, 4096, 4096), (1024, 4096, 14336), (4096, 1024, 8192), (333, 1001, 777)]
BLOCKS = [(m, n, k) for m in (128, 1024, 4096, 8192) for n, k in DEEPSEEK]
SPARSE = [*SQUARES[:2], *((m, n, k) for m in (1024, 4096) for n, k in MODEL[:5])]
LARGE = [
    *SQUARES, (1024, 57344, 8192), (1024, 8192, 28672), (4096, 28672, 4096), (4096, 4096, 14336), (4096, 8192, 8192), (4096, 10240, 8192),
    (4096, 8192, 28672), (8192, 4096, 4096), (8192, 10240, 8192),
]  # fmt: skip
# Shapes, the kind of product, our operator and the words that it always has.
SETS = {
    "issue": (list(dict.fromkeys([*SQUARES, *((m, n, k) for m in (16, 128, 1024, 4096) for n, k in MODEL)])), "plain", "gemm_hopper", []),
    "random": (drawn(20), "plain", "gemm_hopper", []),
    "log-uniform": (log_uniform(60, 1), "plain", "gemm_hopper", []),
    "unaligned": (UNALIGNED, "plain", "gemm_hopper", []),
    "batched": ([(4, 4096, 4096, 4096), (16, 2048, 2048, 2048)], "plain", "gemm_hopper", ["batch=packed"]),
    "fp8": ([*SQUARES[:2], *BLOCKS], "tensor", "gemm_hopper", ["dtype=e4m3", "epilogue=alpha"]),
    "fp8-rows": ([*SQUARES[:2], *BLOCKS], "rows", "gemm_hopper", ["dtype=e4m3", "epilogue=row_scale+col_scale"]),
    "fp8-blocks": (BLOCKS, "blocks", "gemm_fp8_blocks", []),
    "sm_80": ([*SQUARES[:2], *((m, n, k) for m in (16, 128, 1024, 4096) for n, k in MODEL)], "plain", "gemm", []),
    "tf32": (SINGLE, "tf32", "gemm_hopper", ["dtype=f32"]),
    "f32": (SINGLE, "f32", "gemm_hopper", ["dtype=f32", "precision=tf32x3"]),
    "complex": ([(size,) * 3 for size in (1024, 2048, 4096)], "complex", "gemm_hopper", ["dtype=f32", "precision=tf32x3", "complex=true"]),
    "int8": ([*SQUARES[:2], *((m, n, k) for m in (128, 1024, 4096) for n, k in MODEL[:4])], "int8", "gemm_hopper", ["dtype=i8"]),
    "f64": ([(size,) * 3 for size in (1024, 2048, 4096)], "f64", "gemm", ["dtype=f64"]),
    "sparse": (SPARSE, "sparse", "gemm_hopper", ["sparse=true"]),
    "pointers": ([(16, 2048, 2048, 2048), (64, 512, 512, 1024), (8, 4096, 4096, 1024)], "pointers", "gemm_hopper", ["batch=pointers"]),
    "int4": ([*SQUARES[:2], *((m, n, k) for m in (128, 1024, 4096) for n, k in MODEL[:2])], "int4", "gemm", []),
    "cluster2d": (LARGE, "plain", "gemm_hopper", []),
}  # fmt: skip
# The factors' types of a kind of product, the first where `--dtype` does not say; kinds that are not here have one.
DTYPES = {
    "plain": ["f16", "bf16", "f32"], "sparse": ["f16", "bf16", "e4m3", "i8"], "pointers": ["f16", "bf16"], "int4": ["i4", "u4", "u1"],
}  # fmt: skip
# Words of a type: tiles for the types whose rows the operator's own are too short for.
WORDS = {"i4": ["bk=128", "kk=64"], "u4": ["bk=128", "kk=64"], "u1": ["bk=512", "kk=256"]}
# Sets that the driver compiles from PTX of an older architecture.
ARCHS = {"sm_80": "sm_80", "int4": "sm_80"}
# Words that stand for each other in the configurations of a set: the fastest with one of the first are compared with each of the others.
# Clusters of 4 and 8 do not fill all multiprocessors: a grid of more blocks than run at once would take a second turn.
CONTESTS = {"cluster2d": (["cluster=m2", "cluster=n2"], ["cluster=none", "cluster=m2n2 sm_count=120", "cluster=m2n4 sm_count=112"])}
# Remarks on the figures of a kind of product.
REMARKS = {
    "sparse": "TFLOP/s are those of the dense matrix: half of the operations are done",
    "int4": "the ratio is to a product of the same numbers in 8 bits: the same sums, but other instructions, and factors of twice the bytes (of u1, of eight times)",
}  # fmt: skip


def numbers(text):
    """The sizes of a shape: m,n,k, or batches first."""
    shape = tuple(map(int, text.replace("x", ",").split(",")))
    if len(shape) not in (3, 4):
        raise SystemExit(f"{text}: a shape is m,n,k or batch,m,n,k")
    return shape


def planned(file):
    """Configurations by shape: lines `m,n,k  param=value …`; several lines of a shape, or `;` between them, are several."""
    plan = {}
    for line in pathlib.Path(file).read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            shape, _, configs = line.partition(" ")
            plan.setdefault(numbers(shape.rstrip(":")), []).extend(c.strip(" :") for c in configs.split(";"))
    return plan


def varied(config, words):
    """A configuration with each of the words (or several, with spaces) in place of its own for those parameters, in its first kernel; itself if there are none."""
    first, plus, rest = config.partition(" + ")
    names = {word.partition("=")[0] for each in words for word in each.split()}
    others = [word for word in first.split() if word.partition("=")[0] not in names]
    return [" ".join([*others, word]) + plus + rest for word in words] or [config]


def sizes_of(shape):
    """Sizes by name."""
    return dict(zip(("batch", "m", "n", "k")[-len(shape) :], shape))


def chosen(args, operator, words, shapes):
    """The configurations that the operator's records give, by shape; kept beside the launches. For some there is none: that is said."""
    kept = pathlib.Path(args.launches or args.emit_launches or "", "chosen.json")
    known = json.loads(kept.read_text()) if args.launches and kept.exists() else {}

    def one(shape):
        sizes = ",".join(f"{'l' if name == 'batch' else name}={value}" for name, value in sizes_of(shape).items())
        device = ["--device-name", args.device_name] if args.device_name else []
        key = " ".join([operator, *words, sizes, *device])
        if key not in known:
            flags = [word for given in words for word in ("-p", given)]
            said = common.asked([args.bin, "kernels", operator, *flags, "--for", sizes, "--config-only", *device])
            lines = [line for line in said.splitlines() if not line.startswith("#")]
            known[key] = " ".join(word for line in lines for word in line.split() if "=" in word or word == "+")
        return known[key]

    def tried(shape):
        try:
            return one(shape)
        except (RuntimeError, OSError) as error:
            return error

    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = dict(zip(shapes, pool.map(tried, shapes)))
    for shape, config in found.items():
        if isinstance(config, Exception):
            print(f"{'x'.join(map(str, shape))}: no configuration: {config}", flush=True)
    if args.emit_launches:
        kept.parent.mkdir(parents=True, exist_ok=True)
        before = json.loads(kept.read_text()) if kept.exists() else {}
        kept.write_text(json.dumps(before | known, indent=1, sort_keys=True))
    return {shape: config for shape, config in found.items() if not isinstance(config, Exception)}


def work(args):
    """What to do: for each shape its jobs, one a configuration; and how many shapes have none although there should be one."""
    shapes, _, operator, words = SETS[args.set]
    types = DTYPES.get(SETS[args.set][1], [])
    if args.dtype in types and args.dtype != "f16":
        words = [f"dtype={args.dtype}", *WORDS.get(args.dtype, []), *words]
    # Of two words for a parameter the user's.
    words = list({word.partition("=")[0]: word for word in [*words, *args.common.split()]}.values())
    operator = args.operator or operator
    arch = args.arch or ARCHS.get(args.set, common.DEVICE)
    plan = planned(args.plan) if args.plan else {}
    if args.seed is not None:
        shapes = log_uniform(60, args.seed)
    shapes = [numbers(text) for text in args.shapes] if args.shapes else shapes
    part, parts = map(int, args.part.split("/"))
    shapes = shapes[part - 1 :: parts]
    recorded = chosen(args, operator, words, shapes) if args.chosen else {}
    found = []
    for shape in shapes:
        configs = [*plan.get(shape, []), *([recorded[shape]] if shape in recorded else [])]
        if args.config is not None or not (args.plan or args.chosen):
            configs = [*configs, *(args.config or [""])]
        if not configs:
            if args.plan:
                print(f"{'x'.join(map(str, shape))}: not in the plan", flush=True)
            continue
        configs = list(dict.fromkeys(each for config in configs for each in varied(config, args.vary)))
        jobs = [{"operator": operator, "words": words, "config": c, "sizes": sizes_of(shape)} for c in configs]
        found.append((shape, [job | ({"arch": arch} if arch != common.DEVICE else {}) for job in jobs]))
    return found, len(shapes) - len(recorded) if args.chosen else 0


def checked(plan, problem, repeat):
    """Error of a plan's result, and what is wrong with it."""
    import peers
    import torch

    common.poison(plan.out)
    plan()
    torch.cuda.synchronize()
    out = plan.out.reshape(problem["exact"].shape)
    error, notes = peers.error_of(out, problem["exact"]), list(plan.notes)
    first = plan.out.clone()
    differ = 0
    for _ in range(repeat):
        common.poison(plan.out)
        plan()
        differ += not torch.equal(plan.out, first)
    if differ:
        notes.append(f"{differ} of {repeat} launches differ")
    if differ or not error < (problem["tolerance"] or peers.TOLERANCE[plan.out.dtype]):
        notes.append("WRONG")
    return error, notes


def measure(args, shape, jobs, launches, modules, clock, emit):
    """Checks and times one shape; `emit` takes a row for each condition and configuration."""
    import peers
    import torch

    kind = SETS[args.set][1]
    dtype = args.dtype if args.dtype in common.BITS else common.torch_type(args.dtype)
    results = [p["dtype"] for each in launches for launch in each for p in launch["params"] if p["name"] == "c"]
    out = common.torch_type(results[0]) if results else None
    wanted = args.peers.split(",")
    label, made, ours = "x".join(map(str, shape)), {}, []
    clock.watch(f"{label}, its inputs")
    problem = peers.problem(kind, shape, dtype, out, wanted)
    for job, each in zip(jobs, launches):
        try:
            plan = common.Plan(each, modules, problem["tensors"], problem["scalars"], made)
        except RuntimeError as error:
            print(f"{label:<18} {job['config']}: {error}", flush=True)
            emit(None)
            continue
        clock.watch(f"{label} {job['config'] or 'default'}")
        error, notes = checked(plan, problem, args.repeat)
        # A wrong kernel is reported and not timed.
        ours.append((job, plan, error, notes, each))
    others = []

    def other(name, prepare, run, result):
        prepare()
        run()
        torch.cuda.synchronize()
        return [(name, prepare, run, clock.once(run), peers.error_of(result().reshape(problem["exact"].shape), problem["exact"]))]

    clock.watch(f"{label}, the peers")
    for name, prepare, run, result in problem["peers"]:
        others += peers.attempt(problem["missing"], name, lambda: other(name, prepare, run, result))
    problem["exact"] = None
    for note in problem["missing"]:
        print(f"{label:<18} without {note}", flush=True)
    entries = {i: (i, peers.nothing, plan, clock.once(plan)) for i, (_, plan, _, notes, _) in enumerate(ours) if "WRONG" not in notes}
    if args.best and len(entries) > args.best:
        entries = dict(sorted(screened(clock, entries, args).items(), key=lambda entry: entry[1][3])[: args.best])
    *batch, m, n, k = shape
    # A complex product is four.
    flops = 2 * m * n * k * (batch[0] if batch else 1) * (4 if kind == "complex" else 1)
    rows = []
    for condition in args.conditions:
        clock.watch(f"{label}, {condition}")
        turns = [*((name, prepare, run, about) for name, prepare, run, about, _ in others), *entries.values()]
        rounds = common.race(clock, turns, condition, args) if turns else {}
        theirs = {name: {"ms": statistics.median(rounds[name]), "rounds": rounds[name], "error": error} for name, _, _, _, error in others}
        library = {name: theirs[name]["ms"] for name in theirs if name in problem["base"]}
        base = min(library, key=library.get) if library else None
        for i, (job, plan, error, notes, each) in enumerate(ours):
            row = {
                "set": args.set, "shape": shape, "dtype": args.dtype if kind in DTYPES else kind, "condition": condition,
                "operator": job["operator"], "config": job["config"], "error": error, "notes": notes, "peers": theirs, "base": base,
                "registers": [kernel.registers for kernel in plan.kernels], "workspace_bytes": plan.workspace,
                "shared_bytes": [launch["shared_bytes"] for launch in each], "device": torch.cuda.get_device_name(),
                "torch": torch.__version__, "assembler": "ptxas" if "cubin" in each[0] else "driver",
            }  # fmt: skip
            if i in rounds:
                ms = statistics.median(rounds[i])
                row |= {"ms": ms, "rounds": rounds[i], "tflops": flops / ms / 1e9}
                row |= {"ratio": library[base] / ms} if base else {}
                row |= {"ratios": {name: theirs[name]["ms"] / ms for name in theirs}}
            elif "WRONG" in notes:
                row["wrong"] = True
            else:
                continue
            emit(row)
            rows.append(row)
    show(label, rows)


def screened(clock, entries, args):
    """Entries with times of a quick round each, after a first one that all pay for."""
    times = {i: [] for i in entries}
    for turn in range(2):
        for i, (_, _, run, about) in list(entries.items())[:: 1 if turn else -1]:
            time.sleep(args.rest / 2)
            times[i] += clock.times(run, max(5, min(30, round(3 / about))))
    return {i: (*entry[:3], statistics.median(times[i])) for i, entry in entries.items()}


def show(label, rows):
    """A line for each configuration: time and ratios under the first condition, the ratio and the spread of rounds under each."""
    configs = {}
    for row in rows:
        configs.setdefault(row["config"], []).append(row)
    for config, each in configs.items():
        first, notes = each[0], "; ".join(each[0]["notes"])
        line = f"{label:<18} {config or 'default':<40} {first['error']:.1e}"
        if "ms" in first:
            line += f" {first['ms']:9.4f} ms {first['tflops']:6.1f} TFLOP/s "
            for row in each:
                spread = (max(row["rounds"]) - min(row["rounds"])) / row["ms"]
                ratio = f"{row['ratio']:.3f}" if "ratio" in row else "-"
                line += f" {row['condition']} {ratio} ±{50 * spread:.1f} %"
            line += "  (" + " ".join(f"{name} {ratio:.3f}" for name, ratio in first["ratios"].items()) + ")"
        print(f"{line}  {notes}".rstrip(), flush=True)


def conclude(rows, conditions):
    """Means by condition: of each configuration that all shapes have, and of the best of each shape."""
    shapes = {tuple(row["shape"]) for row in rows}
    for condition in conditions:
        best, configs = {}, {}
        for row in rows:
            if row["condition"] == condition and "ratio" in row:
                shape = tuple(row["shape"])
                configs.setdefault(row["config"], {})[shape] = row["ratio"]
                best[shape] = max(best.get(shape, 0), row["ratio"])
        for config, ratios in configs.items():
            if len(configs) > 1 and len(ratios) == len(shapes) > 1:
                print(f"{condition}, {config or 'default'}: {common.summary(ratios)}")
        if best:
            what = "the best of each shape" if len(best) < sum(map(len, configs.values())) else "all"
            print(f"{condition}, {what}: {common.summary(best)}", flush=True)


def contest(rows, conditions, base, others):
    """Means by condition, for each of the other words: the least time of configurations with one of the base's words, over that with it."""
    for condition in conditions:
        times = {}
        for row in rows:
            if row["condition"] == condition and "ms" in row:
                has = set(row["config"].split())
                for words in (words for words in (*base, *others) if has.issuperset(words.split())):
                    times.setdefault(words, {}).setdefault(tuple(row["shape"]), []).append(row["ms"])
        for word in others:
            ratios = {}
            for shape, own in times.get(word, {}).items():
                least = [ms for of in base for ms in times.get(of, {}).get(shape, [])]
                ratios |= {shape: min(least) / min(own)} if least else {}
            if ratios:
                print(f"{condition}, {word} beside the fastest of {', '.join(base)}: {common.summary(ratios)}", flush=True)


def estimate(args, jobs):
    """About how many seconds a shape takes."""
    entries = len(args.peers.split(",")) + min(len(jobs), args.best or len(jobs))
    each = {"rested": args.rest + 0.06, "clean": args.rest + 0.06, "sustained": 0.08}
    screening = len(jobs) * (args.rest + 0.1) if args.best and len(jobs) > args.best else 0
    checks = 0.5 + 0.1 * len(jobs) + 1.5 * ("triton" in args.peers)
    return checks + screening + sum(args.rounds * entries * each[c] + (args.heat if c == "sustained" else 0) for c in args.conditions)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="issue", choices=list(SETS))
    parser.add_argument("--shapes", nargs="+", metavar="M,N,K", help="other shapes than the set's; batches first where there are any")
    parser.add_argument("--seed", type=int, help="60 shapes as those of the set log-uniform, drawn by another seed")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every N-th shape, from the I-th")
    parser.add_argument("--operator", help="another operator than the set's")
    parser.add_argument("--common", default="", metavar="WORDS", help="parameters that every configuration has")
    parser.add_argument("--dtype", help="of factors: " + "; ".join(f"{kind}: {', '.join(types)}" for kind, types in DTYPES.items()))
    parser.add_argument("--arch", help="the architecture that kernels are compiled for: sm_90a, or for the sets sm_80 and int4 sm_80, as PTX for the driver")
    parser.add_argument("--config", nargs="+", metavar="WORDS", help="configurations for every shape, e.g. 'bn=192 stages=4'")
    parser.add_argument("--plan", help="a file with lines `m,n,k  param=value …`: configurations by shape")
    parser.add_argument("--chosen", action="store_true", help="the configurations of the operator's records")
    parser.add_argument("--device-name", metavar="NAME", help="the GPU that --chosen chooses for, where it is not this machine's: 'NVIDIA H200'")
    parser.add_argument("--vary", nargs="+", metavar="WORD", help="each configuration with each of these words in place of its own; cluster2d has its own")
    parser.add_argument("--best", type=int, default=0, metavar="N", help="time only the best N of each shape, after a quick round")
    parser.add_argument("--peers", default="torch,cublaslt", help="with commas: torch, cublaslt, cublaslt8 (the best of eight ways), triton, deepgemm, cutlass (its kernels of sm_80: bench/cutlass_sm80.py); or none")
    parser.add_argument("--limit-seconds", type=float, help="stop in good order before so many seconds")
    args = common.parsed(parser, repeat=10)
    types = DTYPES.get(SETS[args.set][1], ["f16"])
    args.dtype = args.dtype or types[0]
    if args.dtype not in types:
        parser.error(f"--dtype: `{args.dtype}` is none of the set's, {', '.join(types)}")
    args.vary = args.vary or [word for words in CONTESTS.get(args.set, []) for word in words]
    return args


def main():
    args = arguments()
    start = time.monotonic()
    todo, failed = work(args)
    jobs = [job for _, each in todo for job in each]
    answers = iter(common.launches_of(jobs, args))
    ready, errors, said = [], 0, {}
    for shape, each in todo:
        good = []
        for job in each:
            launches = next(answers)
            if isinstance(launches, str):
                said.setdefault((job["config"] or "default", launches), []).append("x".join(map(str, shape)))
                errors += 1
                continue
            for launch in launches:
                if launch.get("spills") or launch.get("advice"):
                    print(f"{'x'.join(map(str, shape))} {job['config']}: {launch['spills']} bytes spilled {launch['advice']}", flush=True)
            good.append((job, launches))
        if good:
            ready.append((shape, [job for job, _ in good], [launches for _, launches in good]))
    for (config, error), shapes in said.items():
        others = f" and {len(shapes) - 1} others" if len(shapes) > 1 else ""
        print(f"{config}, at {shapes[0]}{others}: {error}", flush=True)
    print(f"{len(jobs) - errors} of {len(jobs)} configurations of {len(todo)} shapes compiled in {time.monotonic() - start:.1f} s", flush=True)
    failed += errors
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)

    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    clock = common.Clock(args.patience)
    begun = time.monotonic()
    modules = common.modules_of([launch for _, _, each in ready for launches in each for launch in launches])
    if SETS[args.set][1] in REMARKS:
        print(REMARKS[SETS[args.set][1]])
    print(f"{len(modules)} kernels loaded in {time.monotonic() - begun:.1f} s; about {sum(estimate(args, j) for _, j, _ in ready):.0f} s to go", flush=True)
    rows, pace = [], 1.0
    file = open(args.json, "a") if args.json else None

    def emit(row):
        nonlocal failed
        failed += row is None or row.get("wrong", False)
        if row is not None:
            rows.append(row)
            if file:
                print(json.dumps(row), file=file, flush=True)

    for at, (shape, jobs, launches) in enumerate(ready):
        expected, now = estimate(args, jobs) * pace, time.monotonic()
        if args.limit_seconds and now - start + 1.3 * expected > args.limit_seconds:
            print(f"stopped after {now - start:.0f} s, before {len(ready) - at} of {len(ready)} shapes: {'x'.join(map(str, shape))} …", flush=True)
            break
        try:
            measure(args, shape, jobs, launches, modules, clock, emit)
        except RuntimeError as error:
            # After an error of a launch the GPU takes no more work from this process.
            print(f"{clock.doing}: {error}; stopped before {len(ready) - at - 1} more shapes", flush=True)
            failed += 1
            break
        torch.cuda.empty_cache()
        pace = 0.7 * pace + 0.3 * (time.monotonic() - now) / estimate(args, jobs)
        print(f"  {at + 1} of {len(ready)}, {time.monotonic() - start:.0f} s", flush=True)
    conclude(rows, args.conditions)
    if args.set in CONTESTS:
        contest(rows, args.conditions, *CONTESTS[args.set])
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
