#!/usr/bin/env python3
"""How good the cost model's choice is: every candidate of synthesis is run on the GPU, in turns, and the chosen one is compared with the fastest
(Hexcute, CGO 2026, Fig. 12): of a program at 16 shapes of products, or of every program of every operator at real sizes (bench/candidates.txt).

    python3 bench/cost_model.py --bin target/release/tilewright [--program examples/gemm_multistage.tile] [--shapes 4]
    python3 bench/cost_model.py --bin target/release/tilewright --operators [--only TEXT] [--shard 0/4] [--seconds 300]
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
from cases import lines_of, parameters_for, programs, words_of  # noqa: E402

SHAPES = [
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096),
    (128, 4096, 4096), (256, 8192, 1024), (512, 4096, 2048), (1024, 8192, 1024),
    (2048, 1024, 4096), (4096, 512, 4096), (1000, 3000, 1000), (4096, 4096, 512),
    (192, 2304, 768), (3072, 768, 3072), (6144, 1536, 1024), (2560, 2560, 1280),
]
LIST = pathlib.Path(__file__).resolve().parent / "candidates.txt"
HEAD = f"{'candidates':>10} {'chosen':>9} {'best':>9} {'ratio':>6} {'worst':>6} {'rank':>6}"


def shapes(args):
    """(title, file, words) of each shape of a program."""
    for m, n, k in SHAPES[: args.shapes]:
        yield f"{m}x{n}x{k}", args.program, [f"m={m}", f"n={n}", f"k={k}"]


def operators(args, folder):
    """(title, file, words) of each program of each line of the list."""
    part, parts = map(int, args.shard.split("/"))
    for at, (named, words) in enumerate(lines_of(LIST)):
        title = f"{named}: {words}"
        if at % parts != part or args.only not in title:
            continue
        operator, *given = named.split()
        sizes = [word for word in words.split() if not word.startswith("--")]
        # An operator that chooses by other names than its programs have.
        sizes = next((word.removeprefix("for=").split(",") for word in sizes if word.startswith("for=")), sizes)
        chosen = parameters_for(args.bin, operator, given, sizes, args.choose.split())
        for step, text in programs(args.bin, operator, chosen):
            path = pathlib.Path(folder, f"{at}.{step}.tile")
            path.write_text(text)
            yield f"{title} ({' '.join(chosen)}), program {step}", path, words_of(words.split(), text)


def alone(args, path):
    """True if synthesis finds one candidate only, which is the fastest then."""
    run = subprocess.run([args.bin, "compile", str(path), "--emit", "report"], capture_output=True, text=True)
    return re.search(r"^candidates: 1 looked at", run.stdout, re.M) is not None


def measured(args, path, words):
    """The parsed result of `tilewright candidates`, or its error."""
    command = [args.bin, "candidates", str(path), "--device", args.device, "--json", "--rounds", str(args.rounds), "--force"]
    for word in words + args.p:
        command += [word] if word.startswith("--") else ["-p", word]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=args.patience)
    except subprocess.TimeoutExpired:
        return None, f"no end after {args.patience} s"
    if not run.stdout.startswith("{"):
        return None, (run.stderr.strip() or run.stdout)[:300]
    return json.loads(run.stdout), None


def report(title, found):
    """Prints a line, and returns the time of the chosen candidate over the fastest's and whether all agree."""
    times = sorted(found["candidates"], key=lambda c: c["time"])
    chosen = next(c for c in times if c["candidate"]["chosen"])
    best, agree = times[0], all(c["agrees"] for c in times)
    ratio = chosen["time"] / best["time"]
    rank = found["rank_correlation"]
    rank = "" if rank is None or math.isnan(rank) else f"{rank:.2f}"
    worst = times[-1]["time"] / best["time"]
    print(f"{len(times):>10} {chosen['time']:>9.4f} {best['time']:>9.4f} {ratio:>6.3f} {worst:>6.2f} {rank:>6}  {title}{'' if agree else ' DISAGREE'}", flush=True)
    if ratio > 1.01:
        for role, one in (("chosen", chosen), ("fastest", best)):
            cycles = (one["candidate"]["estimate"] or {}).get("cycles")
            what = "; ".join(one["candidate"]["arrangements"]) + " (" + ", ".join(sorted(set(one["candidate"]["instructions"]))) + ")"
            print(f"    {role}: number {one['candidate']['number']}, {cycles} cycles, spills {one['spilled_bytes']}: {what}", flush=True)
    return ratio, agree


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="target/release/tilewright")
    parser.add_argument("--program", default="examples/gemm_multistage.tile")
    parser.add_argument("--operators", action="store_true", help="every operator of bench/candidates.txt instead of a program")
    parser.add_argument("--only", default="", help="of the operators the lines with this text")
    parser.add_argument("--shard", default="0/1", help="I/N: every Nth operator from I on")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no program after so many seconds")
    parser.add_argument("--patience", type=float, default=120, help="seconds that a program may take")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="only the first so many")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--choose", default="--device auto", help="whom operators choose for, as words of `tilewright kernels`")
    parser.add_argument("--json", help="a file for a line a program, with all its candidates")
    parser.add_argument("-p", action="append", default=[], help="a tile constant, as of tilewright run")
    args = parser.parse_args()
    until = time.monotonic() + args.seconds
    ratios, failed, late, single = [], 0, 0, 0
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        for title, path, words in operators(args, folder) if args.operators else shapes(args):
            if time.monotonic() > until:
                late += 1
                continue
            if alone(args, path):
                single += 1
                continue
            found, error = measured(args, path, words)
            if error is not None:
                failed += 1
                print(f"failed: {title}: {error}", flush=True)
                continue
            ratio, agree = report(title, found)
            ratios.append(ratio)
            failed += not agree
            if args.json:
                with open(args.json, "a") as file:
                    file.write(json.dumps({"title": title, **found}) + "\n")
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        over = sum(ratio > 1.01 for ratio in ratios)
        print(f"chosen against the fastest: geometric mean {mean:.3f}, worst {max(ratios):.3f}, {over} over 1.01, of {len(ratios)}")
    if single:
        print(f"{single} programs have one candidate, and are not run")
    if failed or late:
        print(f"{failed} failed, {late} not begun")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
