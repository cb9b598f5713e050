#!/usr/bin/env python3
"""What the parts of synthesis and the pipeline are worth for the FP16×INT4 product (Hexcute, CGO 2026, Fig. 14; arXiv v1, Fig. 20):
for each shape the best of a few tiles, then the same without the layouts of shared memory, without those of fragments, and
without the pipeline; beside them the product of 16-bit weights by torch, where it is installed.

    python3 bench/w4a16.py --bin target/release/tilewright
"""

import argparse
import json
import math
import subprocess
import tempfile

SHAPES = [(16, 8192, 8192), (64, 8192, 8192), (256, 8192, 8192), (16, 4096, 14336), (64, 14336, 4096)]
TILES = {
    16: ["bm=16 bn=64 bk=128 kk=64", "bm=16 bn=128 bk=128 kk=64"],
    64: ["bm=64 bn=64 bk=64 kk=32", "bm=64 bn=128 bk=64 kk=32", "bm=64 bn=64 bk=128 kk=64", "bm=32 bn=128 bk=128 kk=64"],
    256: ["bm=64 bn=128 bk=64 kk=32", "bm=128 bn=128 bk=64 kk=32 threads=256", "bm=128 bn=64 bk=64 kk=32"],
}


def flags(text):
    return [word for given in text.split() for word in ("-p", given)]


def program(binary, tile):
    run = subprocess.run([binary, "kernels", "w4a16", *flags(tile)], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"{tile}: {run.stderr}")
    file = tempfile.NamedTemporaryFile("w", suffix=".tile", delete=False)
    file.write(run.stdout)
    file.close()
    return file.name


def candidates(binary, tile, shape, rounds, *extra):
    m, n, k = shape
    command = [binary, "candidates", program(binary, tile), "--device", "cuda", "--json", "--rounds", str(rounds), *extra]
    run = subprocess.run(command + flags(f"m={m} n={n} k={k}"), capture_output=True, text=True)
    if run.returncode != 0:
        return None
    found = json.loads(run.stdout)
    chosen = next(c for c in found["candidates"] if c["candidate"]["chosen"])
    return chosen["time"], found["regret"], found["rank_correlation"], len(found["candidates"])


def torch_times(shapes):
    try:
        import torch
    except ImportError:
        return {}
    times = {}
    for m, n, k in shapes:
        a = torch.randn(m, k, device="cuda", dtype=torch.float16)
        w = torch.randn(n, k, device="cuda", dtype=torch.float16)
        out = torch.empty(m, n, device="cuda", dtype=torch.float16)
        graph = torch.cuda.CUDAGraph()
        torch.matmul(a, w.t(), out=out)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(20):
                torch.matmul(a, w.t(), out=out)
        runs = []
        for _ in range(7):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            runs.append(start.elapsed_time(end) / 20)
        times[(m, n, k)] = sorted(runs)[3]
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="target/release/tilewright")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shapes", type=int, default=len(SHAPES))
    args = parser.parse_args()
    shapes = SHAPES[: args.shapes]
    f16 = torch_times(shapes)
    lost = {"shared layouts": [], "fragments": [], "pipeline": []}
    regrets = []
    for shape in shapes:
        best = None
        for tile in TILES[shape[0]]:
            for stages in (3, 4):
                found = candidates(args.bin, f"{tile} stages={stages}", shape, args.rounds, "--budget", "48")
                if found is None:
                    print(f"  {tile} stages={stages}: not possible")
                    continue
                regrets.append(found[1])
                print(
                    f"  {shape} {tile} stages={stages}: {found[0]:.4f} ms, chosen/best {found[1]:.3f}, rank {found[2]:.2f}, {found[3]} candidates",
                    flush=True,
                )
                if best is None or found[0] < best[0]:
                    best = (found[0], f"{tile} stages={stages}")
        time, tile = best
        line = f"{shape}: {time:.4f} ms with {tile}; torch f16 {f16.get(shape, math.nan):.4f} ms ({f16.get(shape, math.nan) / time:.2f}×)"
        for name, config, extra in [
            ("shared layouts", tile, ["--without", "shared-layouts"]),
            ("fragments", tile, ["--without", "thread-values"]),
            ("pipeline", tile.rsplit(" ", 1)[0] + " stages=1", []),
        ]:
            found = candidates(args.bin, config, shape, args.rounds, "--budget", "24", *extra)
            if found is None:
                line += f"; without {name}: not possible"
                continue
            lost[name].append(found[0] / time)
            line += f"; without {name} {found[0] / time:.2f}×"
        print(line, flush=True)
    for name, ratios in lost.items():
        if ratios:
            print(f"without {name}: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f} times as long (geometric mean)")
    if regrets:
        mean = math.exp(sum(map(math.log, regrets)) / len(regrets))
        print(f"chosen against the fastest candidate: geometric mean {mean:.3f}, worst {max(regrets):.3f}, of {len(regrets)}")


if __name__ == "__main__":
    main()
