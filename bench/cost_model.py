#!/usr/bin/env python3
"""How good the cost model's choice is: for each GEMM shape every candidate of synthesis is run on the GPU, in turns, and the
chosen one is compared with the fastest (Hexcute, CGO 2026, Fig. 12).

    python3 bench/cost_model.py --bin target/release/tilewright [--program examples/gemm_multistage.tile] [--shapes 4]
"""

import argparse
import json
import math
import subprocess

SHAPES = [
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096),
    (128, 4096, 4096), (256, 8192, 1024), (512, 4096, 2048), (1024, 8192, 1024),
    (2048, 1024, 4096), (4096, 512, 4096), (1000, 3000, 1000), (4096, 4096, 512),
    (192, 2304, 768), (3072, 768, 3072), (6144, 1536, 1024), (2560, 2560, 1280),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="target/release/tilewright")
    parser.add_argument("--program", default="examples/gemm_multistage.tile")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="only the first so many")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("-p", action="append", default=[], help="a tile constant, as of tilewright run")
    args = parser.parse_args()
    ratios = []
    print(f"{'m':>6}{'n':>6}{'k':>6}{'candidates':>12}{'chosen':>9}{'best':>9}{'ratio':>8}{'worst':>8}{'rank':>7}  chosen; fastest where another")
    for m, n, k in SHAPES[: args.shapes]:
        command = [args.bin, "candidates", args.program, "--device", args.device, "--json", "--rounds", str(args.rounds)]
        for given in [f"m={m}", f"n={n}", f"k={k}"] + args.p:
            command += ["-p", given]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            print(f"{m:>6}{n:>6}{k:>6}  failed: {run.stderr.strip()[:200]} {run.stdout[:200]}")
            continue
        found = json.loads(run.stdout)
        times = sorted(found["candidates"], key=lambda c: c["time"])
        chosen = next(c for c in times if c["candidate"]["chosen"])
        best = times[0]
        ratio = chosen["time"] / best["time"]
        ratios.append(ratio)

        def name(c):
            return "; ".join(c["candidate"]["arrangements"]).replace("mma.m16n8k16.f32.f16 over ", "")

        other = "" if best is chosen else f"; {name(best)} ({', '.join(sorted(set(best['candidate']['instructions'])))})"
        print(
            f"{m:>6}{n:>6}{k:>6}{len(times):>12}{chosen['time']:>9.4f}{best['time']:>9.4f}{ratio:>8.3f}"
            f"{times[-1]['time'] / best['time']:>8.2f}{found['rank_correlation']:>7.2f}  {name(chosen)}{other}",
            flush=True,
        )
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"chosen against the fastest: geometric mean {mean:.3f}, worst {max(ratios):.3f}, of {len(ratios)} shapes")


if __name__ == "__main__":
    main()
