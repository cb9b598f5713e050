#!/usr/bin/env python3
"""Layout conversions, gathers and the transposition of bytes beside Triton on one GPU.

    bench/conversions.py [--bin target/release/tilewright] [--only conversion,gather,transpose] [--check] [--out FILE.json]

The kernels are those of *Linear Layouts* (section 6.1): conversions between two register layouts (figure 7), gathers along
the last mode (figure 8) and a transposition of 8-bit matrices (figure 2). Conversions and gathers are repeated ROUNDS times in
a loop on tiles of BLOCKS blocks of four warps, so that little else is measured; both compilers get the same layouts and the
same work. Both kernels run from one process (ours is loaded from its PTX with CuPy) as CUDA graphs of LAUNCHES launches, so
that nobody's launch path is measured, in turns; times are medians a launch, and the ratio is Triton's time over ours: more
than 1 is ahead of Triton. Results are compared with PyTorch's. With --check nothing is timed, and ours runs on the
simulator: no GPU is needed.
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUNDS, BLOCKS, THREADS, LAUNCHES = 32, 528, 128, 20
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


def check(args, source, values=()):
    """Ours on the simulator, against the interpreter."""
    with tempfile.NamedTemporaryFile("w", suffix=".tile") as file:
        file.write(source)
        file.flush()
        command = [args.bin, "run", file.name, "--arch", "sm_90a", "--json", "--device", "sim"]
        done = subprocess.run([*command, *[f"-p{v}" for v in values]], capture_output=True, text=True)
    if not done.stdout.strip() or not json.loads(done.stdout)["right"]:
        sys.exit(f"wrong:\n{source}\n{done.stderr}")


def ours(args, source, arrays, grid, threads, values=()):
    """A launch of our kernel on PyTorch tensors and, after them, the sizes `values` (NAME=N)."""
    import cupy
    import torch

    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "kernel.tile"
        file.write_text(source)
        command = [args.bin, "compile", str(file), "--arch", "sm_90a", "--emit", "ptx", *[f"-p{v}" for v in values]]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{source}\n{done.stderr}")
        ptx = file.with_suffix(".ptx")
        ptx.write_text(done.stdout)
        module = cupy.RawModule(path=str(ptx))
        kernel = module.get_function(re.search(r"\.entry (\w+)", done.stdout).group(1))
    ends = [int(b) + int(o) for b, o in re.findall(r"// shared \w+: (\d+) bytes at (\d+)", done.stdout)]
    shared = max(ends, default=0)
    if shared > 48 * 1024:
        kernel.max_dynamic_shared_size_bytes = shared
    sizes = [numpy_int(v.partition("=")[2]) for v in values]

    def launch():
        with cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
            kernel(grid, (threads, 1, 1), (*[cupy_pointer(a) for a in arrays], *sizes), shared_mem=shared)

    return launch


def numpy_int(text):
    import numpy

    return numpy.int32(int(text))


def cupy_pointer(tensor):
    import numpy

    return numpy.uint64(tensor.data_ptr())


def race(launches, repeat):
    """Milliseconds of a launch of each, taking turns."""
    import torch

    graphs = []
    for launch in launches:
        launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(LAUNCHES):
                launch()
        graphs.append(graph)
    times = [[] for _ in graphs]
    for turn in range(repeat + 3):
        for graph, mine in zip(graphs, times):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if turn >= 3:
                mine.append(start.elapsed_time(end) / LAUNCHES)
    return [statistics.median(mine) for mine in times]


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
                blocks, rounds = (2, 2) if args.check else (BLOCKS, ROUNDS)
                source = conversion(dtype, shape, build(a), build(b), blocks, rounds)
                if args.check:
                    check(args, source)
                    continue
                x, y, theirs = peer.conversion(dtype, shape, a[0].__name__, a[1], b[0].__name__, b[1], blocks, rounds)
                mine = ours(args, source, (x, y), (blocks, 1, 1), THREADS)
                peer.same(y, x, mine)
                rows.append((f"{name} {shape[0]}x{shape[1]} {dtype}", *race([mine, theirs], args.repeat)))
    return rows


def gathers(args, peer):
    rows = []
    shapes = [(512, 4), (512, 8), (512, 16), (512, 32), (128, 64), (64, 128)]
    for dtype, width in DTYPES.items():
        for shape in shapes:
            if shape == (512, 32) and width == 32:
                shape = (256, 32)  # source and indices of 512×32 take all 255 registers of a thread
            blocks, rounds = (2, 2) if args.check else (BLOCKS, ROUNDS)
            source = gather(dtype, shape, blocks, rounds)
            if args.check:
                check(args, source)
                continue
            x, k, y, expected, theirs = peer.gather(dtype, shape, blocks, rounds)
            mine = ours(args, source, (x, k, y), (blocks, 1, 1), THREADS)
            peer.same(y, expected, mine)
            rows.append((f"gather {shape[0]}x{shape[1]} {dtype}", *race([mine, theirs], args.repeat)))
    return rows


def transposes(args, peer):
    rows = []
    whole = (ROOT / "examples" / "transpose_bytes.tile").read_text()
    # The example, and the same on tiles of a quarter of the size for small matrices.
    small = whole.replace("const B = 128", "const B = 64").replace("threads(256)", "threads(64)")
    small = small.replace("((8, 4, 8), (16, 4)) : ((2048, 4, 16), (128, 1))", "((4, 8, 2), (16, 4)) : ((1024, 4, 32), (64, 1))")
    sizes = [(256, 384)] if args.check else [(1024, 1024), (2048, 2048), (4096, 1024), (4096, 4096), (8192, 4096), (8192, 8192)]
    for m, n in sizes:
        values = (f"m={m}", f"n={n}")
        if args.check:
            check(args, whole, values), check(args, small, values)
            continue
        x, y, candidates = peer.transposes(m, n)
        mine = []
        for source, tile, threads in ((whole, 128, 256), (small, 64, 64)):
            mine.append(ours(args, source, (x, y), (m // tile, n // tile, 1), threads, values))
            peer.same(y, x.T, mine[-1])
        times = race([*mine, *candidates], args.repeat)
        rows.append((f"transpose {m}x{n} u8", min(times[: len(mine)]), min(times[len(mine) :])))
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
