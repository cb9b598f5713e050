"""CUTLASS's kernels of sm_80 as a peer: C = A · Bᵀ by the tiles of 16-bit types that its profiler builds for them, each with several parts of k, of which the
fastest counts.

    python3 bench/cutlass_sm80.py --cutlass CUTLASS/include --out libraries --jobs 16      # about a minute a tile and core
    TILEWRIGHT_CUTLASS=libraries python3 bench/gemm.py --set sm_80 --peers torch,cutlass

Needs nvcc and CUTLASS's headers (https://github.com/NVIDIA/cutlass, BSD-3-Clause; commit 7107b05535f8977f5ecb9d01ee203205b1fd9bc4 was used), which are no part of
this project. Kernels are compiled by way of PTX of sm_80 for the GPU that is there.
"""

import argparse
import concurrent.futures
import ctypes
import os
import pathlib
import subprocess

# Tile, warp's tile and stages: those of `GenerateSM80_TensorOp_16816` (python/cutlass_library/generator.py).
TILES = [
    *(((m, n, 32), warp, stages) for m, n, warp, stages in [
        (256, 128, (64, 64), 3), (128, 256, (64, 64), 3), (256, 64, (64, 64), 4), (64, 256, (64, 64), 4), (128, 128, (64, 64), 3), (128, 128, (64, 64), 4),
        (128, 128, (64, 64), 5), (128, 64, (64, 32), 6), (64, 128, (32, 64), 6), (64, 64, (32, 32), 10)]),
    *(((m, n, 64), warp, stages) for m, n, warp, stages in [
        (256, 128, (64, 64), 3), (128, 256, (64, 64), 3), (256, 64, (64, 64), 4), (64, 256, (64, 64), 4), (128, 128, (64, 64), 4), (128, 128, (64, 64), 3),
        (128, 64, (64, 32), 3), (64, 128, (32, 64), 3), (64, 64, (32, 32), 5)]),
]  # fmt: skip
ELEMENTS = {"f16": "half_t", "bf16": "bfloat16_t"}
# Parts of k, of which more than one are for few tiles.
PARTS = (1, 2, 4, 8)
SOURCE = pathlib.Path(__file__).with_name("cutlass_sm80.cu")


def name_of(dtype, tile, stages):
    return f"{dtype}_{'x'.join(map(str, tile))}_{stages}"


def build(out, include, dtype, each, architecture):
    """Compiles the library of a tile; what nvcc says if it does not."""
    tile, warp, stages = each
    numbers = zip(("TILE_M", "TILE_N", "TILE_K", "WARP_M", "WARP_N", "STAGES"), (*tile, *warp, stages))
    given = [f"-D{name}={value}" for name, value in numbers]
    command = [
        "nvcc", "-std=c++17", "-O3", "-gencode", f"arch=compute_80,code={architecture}", f"-I{include}", f"-DELEMENT={ELEMENTS[dtype]}", *given,
        "-shared", "-Xcompiler", "-fPIC", "-o", out / f"{name_of(dtype, tile, stages)}.so", SOURCE,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr if done.returncode else None


def loaded(path):
    """A library with the types of its functions."""
    library = ctypes.CDLL(str(path))
    sizes, pointer = [ctypes.c_int64] * 3, ctypes.c_void_p
    library.workspace_bytes.argtypes, library.workspace_bytes.restype = [*sizes, ctypes.c_int], ctypes.c_size_t
    library.prepare.argtypes, library.prepare.restype = [pointer] * 3 + [*sizes, ctypes.c_int, pointer], pointer
    library.run.argtypes, library.run.restype = [pointer, pointer], ctypes.c_int
    return library


# The libraries, and the workspace, made when they are first asked for.
KEPT = {}


def products(a, b, c):
    """(name, function, result) of the ways to compute C = A · Bᵀ, whose types are alike."""
    import torch

    folder = os.environ.get("TILEWRIGHT_CUTLASS")
    if not folder:
        raise RuntimeError("TILEWRIGHT_CUTLASS names no folder of libraries (bench/cutlass_sm80.py builds them)")
    dtype = {torch.float16: "f16", torch.bfloat16: "bf16"}[a.dtype]
    (m, k), n = a.shape, b.shape[0]
    found = []
    for path in sorted(pathlib.Path(folder).glob(f"{dtype}_*.so")):
        library = KEPT.get(path) or KEPT.setdefault(path, loaded(path))
        rows, cols, _ = map(int, path.stem.split("_")[1].split("x"))
        few = -(-m // rows) * -(-n // cols) < 264
        for parts in PARTS if few else PARTS[:1]:
            bytes_ = library.workspace_bytes(m, n, k, parts)
            workspace = torch.zeros(max(bytes_, 1), device="cuda", dtype=torch.uint8)
            product = library.prepare(a.data_ptr(), b.data_ptr(), c.data_ptr(), m, n, k, parts, workspace.data_ptr())
            if not product:
                continue

            # The workspace lives as long as the function.
            def run(library=library, product=product, workspace=workspace):
                if status := library.run(product, torch.cuda.current_stream().cuda_stream):
                    raise RuntimeError(f"CUTLASS: status {status}")

            found.append((f"{path.stem} in {parts}", run, c))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cutlass", required=True, type=pathlib.Path, metavar="FOLDER", help="CUTLASS's include folder")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="FOLDER", help="where libraries go")
    parser.add_argument("--dtype", nargs="+", choices=list(ELEMENTS), default=["f16"])
    parser.add_argument("--architecture", default="sm_90", help="that of the GPU")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    work = [(dtype, each) for dtype in args.dtype for each in TILES]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        answers = list(pool.map(lambda one: build(args.out, args.cutlass, *one, args.architecture), work))
    failed = [f"{name_of(dtype, each[0], each[2])}: {answer}" for (dtype, each), answer in zip(work, answers) if answer]
    print(*failed, f"{len(work) - len(failed)} of {len(work)} libraries", sep="\n")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
