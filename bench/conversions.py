#!/usr/bin/env python3
"""Layout conversions, gathers and the transposition of bytes beside Triton on one GPU.

    bench/conversions.py [--bin target/release/tilewright] [--only conversion,gather,transpose] [--check] [--out FILE.json]

The kernels are those of *Linear Layouts* (section 6.1): conversions between two register layouts (figure 7), gathers along
the last mode (figure 8) and a transposition of 8-bit matrices (figure 2). Conversions and gathers are repeated ROUNDS times in
a loop on tiles of BLOCKS blocks of four warps, so that little else is measured; both compilers get the same layouts and the
same work. Times are medians of single launches by CUDA events, ours before and after Triton's in the same process order;
the ratio is Triton's time over ours: more than 1 is ahead of Triton. With --check nothing is timed, and ours runs on the
simulator: no GPU is needed.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUNDS, BLOCKS, THREADS = 32, 528, 128
DTYPES = {"u8": 8, "f16": 16, "f32": 32}


def bits(n):
    return n.bit_length() - 1


def blocked(shape, registers, lanes, warps, order):
    """Bases (row, column) of registers, lanes and warps of a blocked layout, as Triton builds it."""
    bases, reach = {"register": [], "lane": [], "warp": []}, [1, 1]

    def run(name, sizes):
        for d in order:
            for _ in range(bits(sizes[d])):
                step = [0, 0]
                step[d] = reach[d] if reach[d] < shape[d] else 0
                bases[name].append(tuple(step))
                reach[d] *= 2

    run("register", registers), run("lane", lanes), run("warp", warps)
    for d in order:
        while reach[d] < shape[d]:
            step = [0, 0]
            step[d] = reach[d]
            bases["register"].append(tuple(step))
            reach[d] *= 2
    return bases


def mma(shape):
    """The accumulator of m16n8 over four warps along rows."""
    bases = {"register": [(0, 1), (8, 0)], "lane": [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)], "warp": []}
    rows = 16
    for _ in range(2):
        bases["warp"].append((rows, 0) if rows < shape[0] else (0, 0))
        rows *= 2
    columns = 8
    while columns < shape[1]:
        bases["register"].append((0, columns))
        columns *= 2
    while rows < shape[0]:
        bases["register"].append((rows, 0))
        rows *= 2
    return bases


def text(bases, shape):
    """The same as a pinned layout: (thread, value) to the coordinate that counts rows fastest."""
    at = lambda step: step[0] + step[1] * shape[0]
    mode = lambda steps: (
        f"({','.join('2' for _ in steps)})" if steps else "1",
        f"({','.join(str(at(s)) for s in steps)})" if steps else "0",
    )
    threads, values = mode(bases["lane"] + bases["warp"]), mode([s for s in bases["register"] if s != (0, 0)])
    return f"({threads[0]}, {values[0]}) : ({threads[1]}, {values[1]})"


def conversion(dtype, shape, a, b, blocks, rounds):
    m, n = shape
    return f"""kernel conversion(x: {dtype}[{blocks * m}, {n}], y: {dtype}[{blocks * m}, {n}]) grid({blocks}) threads({THREADS})
{{
    gx = global_view(x[block.x * {m} :, :], ({m}, {n}) : (e0, e1))
    gy = global_view(y[block.x * {m} :, :], ({m}, {n}) : (e0, e1))
    r = register_tensor({dtype}, [{m}, {n}], layout = {text(a, shape)})
    q = register_tensor({dtype}, [{m}, {n}], layout = {text(b, shape)})
    copy(gx, r)
    for i in 0..{rounds} {{
        q = rearrange(r)
        r = rearrange(q)
    }}
    copy(r, gy)
}}
"""


def gather(dtype, shape, blocks, rounds):
    m, n = shape
    return f"""kernel gathering(x: {dtype}[{blocks * m}, {n}], k: i32[{blocks * m}, {n}], y: {dtype}[{blocks * m}, {n}])
    grid({blocks}) threads({THREADS})
{{
    gx = global_view(x[block.x * {m} :, :], ({m}, {n}) : (e0, e1))
    gk = global_view(k[block.x * {m} :, :], ({m}, {n}) : (e0, e1))
    gy = global_view(y[block.x * {m} :, :], ({m}, {n}) : (e0, e1))
    r = register_tensor({dtype}, [{m}, {n}])
    k0 = register_tensor(i32, [{m}, {n}])
    copy(gx, r)
    copy(gk, k0)
    for i in 0..{rounds} {{
        r = gather(r, k0, 1)
    }}
    copy(r, gy)
}}
"""


def ours(args, source, values=()):
    """Milliseconds of a program, or whether it is right on the simulator."""
    with tempfile.NamedTemporaryFile("w", suffix=".tile") as file:
        file.write(source)
        file.flush()
        device = ["--device", "sim"] if args.check else ["--device", "cuda", "--repeat", str(args.repeat)]
        command = [args.bin, "run", file.name, "--arch", "sm_90a", "--json", *device]
        done = subprocess.run([*command, *[f"-p{v}" for v in values]], capture_output=True, text=True)
    if not done.stdout.strip():
        sys.exit(f"{source}\n{done.stderr}")
    result = json.loads(done.stdout)
    if not result["right"]:
        sys.exit(f"wrong:\n{source}\n{done.stderr}")
    return result.get("milliseconds")


def median_ms(launch, repeat):
    import torch

    for _ in range(3):
        launch()
    times = []
    for _ in range(repeat):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        launch()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def triton_side():
    """Triton's kernels, or None where there is no Triton or no GPU."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    import conversions_triton

    return conversions_triton


def conversions(args, peer):
    rows = []
    shapes = [(32, 32), (64, 32), (64, 64), (128, 64), (128, 128)]
    for dtype, width in DTYPES.items():
        for shape in shapes:
            wide = min(16 // (width // 8), shape[1] // 4)
            pairs = {
                "row to pairs of rows": (
                    (blocked, ((1, wide), (8, 4), (4, 1), (1, 0))),
                    (blocked, ((2, 1), (4, 8), (4, 1), (1, 0))),
                ),
                "mma to row": ((mma, ()), (blocked, ((1, 4), (16, 2), (4, 1), (1, 0)))),
                "row to column": (
                    (blocked, ((1, wide), (8, 4), (4, 1), (1, 0))),
                    (blocked, ((4, 1), (8, 4), (1, 4), (0, 1))),
                ),
            }
            for name, (a, b) in pairs.items():
                build = lambda side: side[0](shape, *side[1])
                if shape[0] * shape[1] * width // 32 > 64 * THREADS:
                    continue  # two tiles and their scratch would not fit the registers
                blocks = 2 if args.check else BLOCKS
                source = conversion(dtype, shape, build(a), build(b), blocks, 2 if args.check else ROUNDS)
                before = ours(args, source)
                if args.check:
                    continue
                theirs = peer.conversion(dtype, shape, a[0].__name__, a[1], b[0].__name__, b[1], BLOCKS, ROUNDS)
                time = median_ms(theirs, args.repeat)
                after = ours(args, source)
                rows.append((f"{name} {shape[0]}x{shape[1]} {dtype}", (before + after) / 2, time))
    return rows


def gathers(args, peer):
    rows = []
    shapes = [(512, 4), (512, 8), (512, 16), (512, 32), (128, 64), (64, 128)]
    for dtype, width in DTYPES.items():
        for shape in shapes:
            if shape == (512, 32) and width == 32:
                shape = (256, 32)  # source and indices of 512×32 take all 255 registers of a thread
            blocks = 2 if args.check else BLOCKS
            source = gather(dtype, shape, blocks, 2 if args.check else ROUNDS)
            before = ours(args, source)
            if args.check:
                continue
            time = median_ms(peer.gather(dtype, shape, BLOCKS, ROUNDS), args.repeat)
            after = ours(args, source)
            rows.append((f"gather {shape[0]}x{shape[1]} {dtype}", (before + after) / 2, time))
    return rows


def transposes(args, peer):
    rows = []
    source = (ROOT / "examples" / "transpose_bytes.tile").read_text()
    sizes = [(256, 384)] if args.check else [(1024, 1024), (2048, 2048), (4096, 1024), (4096, 4096), (8192, 4096), (8192, 8192)]
    for m, n in sizes:
        values = (f"m={m}", f"n={n}")
        before = ours(args, source, values)
        if args.check:
            continue
        time = min(median_ms(launch, args.repeat) for launch in peer.transposes(m, n))
        after = ours(args, source, values)
        rows.append((f"transpose {m}x{n} u8", (before + after) / 2, time))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "target/release/tilewright"))
    parser.add_argument("--only", default="conversion,gather,transpose")
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--check", action="store_true", help="ours on the simulator; nothing is timed")
    parser.add_argument("--out", type=pathlib.Path, help="write the rows as JSON")
    args = parser.parse_args()
    peer = None if args.check else triton_side()
    all_rows = {}
    for name, table in [("conversion", conversions), ("gather", gathers), ("transpose", transposes)]:
        if name not in args.only.split(","):
            continue
        rows = table(args, peer)
        all_rows[name] = rows
        if not rows:
            print(f"{name}: right")
            continue
        print(f"{'case':<44}{'ours ms':>10}{'Triton ms':>11}{'ratio':>7}")
        for case, mine, theirs in rows:
            print(f"{case:<44}{mine:>10.4f}{theirs:>11.4f}{theirs / mine:>7.2f}")
        ratio = math.exp(statistics.mean(math.log(theirs / mine) for _, mine, theirs in rows))
        print(f"{name}: geometric mean {ratio:.2f} over {len(rows)} cases\n", flush=True)
    if args.out:
        args.out.write_text(json.dumps(all_rows))


if __name__ == "__main__":
    main()
