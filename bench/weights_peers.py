"""Who else multiplies by weights of 4 bits, each as a function of the weights that gives one of the activations: of int4 in groups of 128 vLLM's Marlin and
Machete (PEERS_VLLM is the path of its `_C_stable_libtorch.abi3.so`), IST's Marlin (PEERS_MARLIN, a checkout of it, for nvcc), Humming, GemLite and torch; of MXFP4
Triton's `dot_scaled`; of integers of 16 bits Triton's product, which casts them as it multiplies, as TritonBench's does. What is not installed is left out, and said.

Humming has weights of every format here. Weights of int4 are codes [n, k], a byte each, whose values are those of i4 plus 8, and scales [k / 128, n]; or of
MXFP4 the codes of e2m1 and those of ue8m0.
"""

import collections
import ctypes
import os
import subprocess

import torch

GROUP = 128
# The number by which vLLM knows a type: integers of 4 bits that begin at -8.
UINT4B8 = 1125899907892224
# The order of scales in Marlin's tiles of 64 columns.
SCALES = [i + 8 * j for i in range(8) for j in range(8)]


def eights(codes, along):
    """Eight codes an int32, the first lowest, along a mode."""
    parts = codes.movedim(along, -1).int().unflatten(-1, (-1, 8)).unbind(-1)
    words = sum(part << 4 * at for at, part in enumerate(parts[1:], 1)) | parts[0]
    return words.movedim(-1, along).contiguous()


def vllm():
    """Loads vLLM's operators, once."""
    if not hasattr(torch.ops._C, "marlin_gemm"):
        torch.ops.load_library(os.environ["PEERS_VLLM"])
    return torch.ops._C


def marlin(codes, scales):
    n, k = codes.shape
    weights = vllm().gptq_marlin_repack(eights(codes.T, 0), k, n, 4, False)
    order = scales.reshape(-1, 64)[:, SCALES].reshape(-1, n).contiguous()
    locks = torch.zeros(132 * 64, dtype=torch.int32, device="cuda")
    return lambda a: vllm().marlin_gemm(a, None, weights, None, order, None, None, None, locks, UINT4B8, a.shape[0], n, k, False, True, False)


# Its one function in C++, by the name that the compiler gives it.
OF_IST = "_Z11marlin_cudaPKvS0_PvS1_iiiS1_iiP11CUstream_stiiii"
# Blocks that share a tile's lock, at most.
SHARED_AT_MOST = 16


def marlin_ist(codes, scales):
    """IST's kernel, whose weights lie as a warp's `mma` takes them: of 16 columns by 64 rows 32 bytes a thread."""
    folder = os.environ["PEERS_MARLIN"]
    library = f"{folder}/marlin.so"
    if not os.path.exists(library):
        options = ["-O3", "-std=c++17", "--expt-relaxed-constexpr", "-shared", "-Xcompiler", "-fPIC", "-arch=sm_90"]
        command = ["nvcc", *options, "-o", f"{library}.new", f"{folder}/marlin/marlin_cuda_kernel.cu"]
        subprocess.run(command, check=True, capture_output=True)
        os.replace(f"{library}.new", library)
    multiply = getattr(ctypes.CDLL(library), OF_IST)
    pointer, number = ctypes.c_void_p, ctypes.c_int
    multiply.argtypes = [pointer] * 4 + [number] * 3 + [pointer] + [number] * 2 + [pointer] + [number] * 4
    n, k = codes.shape
    # Rows: 64, then 16 of them, 8 of these, one; columns: 16, 8 of these, pairs, one.
    modes = codes.reshape(n // 64, 4, 2, 8, k // 16, 2, 4, 2)
    weights = eights(modes.permute(4, 0, 3, 6, 1, 7, 2, 5).reshape(k // 16, -1), 1)
    order = scales.reshape(-1, 64)[:, SCALES].reshape(-1, n).contiguous()
    locks = torch.zeros(n // 128 * SHARED_AT_MOST, dtype=torch.int32, device="cuda")

    def run(a):
        out = torch.empty(a.shape[0], n, dtype=torch.float16, device="cuda")
        stream = torch.cuda.current_stream().cuda_stream
        tensors = [tensor.data_ptr() for tensor in (a, weights, out, order)]
        failed = multiply(*tensors, a.shape[0], n, k, locks.data_ptr(), GROUP, 0, stream, -1, -1, -1, SHARED_AT_MOST)
        if failed:
            raise RuntimeError(f"IST's Marlin refuses {tuple(a.shape)} by {n}: {failed}")
        return out

    return run


def machete(codes, scales):
    weights = vllm().machete_prepack_B(eights(codes.T, 0).T.contiguous().T, torch.float16, UINT4B8, torch.float16)
    return lambda a: vllm().machete_mm(a, weights, UINT4B8, None, scales, None, GROUP, None, None, None)


# Weights of a format: the name of their type and their bits, codes [n, k], numbers [n, k], scales [k / group, n], zero points of the same shape or none, the
# neighbours that share a scale, and the types of the activations and of the result.
Given = collections.namedtuple("Given", "kind bits codes numbers scales zeros group activations dtype")

# Humming's names of types of floats.
FLOATS = {"e4m3": "float8e4m3", "e2m1": "float4e2m1", "i8": "int8", "f16": "float16", "bf16": "bfloat16"}


def humming(given):
    """Humming's layer: integers are codes from 0 on, with signs those of half their range more."""
    from humming import ops
    from humming.layer import HummingLayer

    n, k = given.codes.shape
    config = {"dtype": FLOATS.get(given.kind) if given.kind in ("e4m3", "e2m1") else f"uint{given.bits}", "group_size": given.group}
    if given.scales.dtype == torch.float8_e8m0fnu:
        config["scale_dtype"] = "float8e8m0"
    elif given.scales.dtype == torch.float8_e4m3fn:
        config["scale_dtype"] = "float8e4m3"
    if given.kind in ("e4m3", "e2m1"):
        codes = given.codes.int()
    else:
        codes = given.numbers.int() + (0 if given.zeros is not None else 1 << given.bits - 1)
    tensors = {"weight": ops.pack_weight(codes.contiguous(), given.bits), "weight_scale": given.scales.T.contiguous()}
    if given.zeros is not None:
        config["has_zero_point"] = True
        tensors["zero_point"] = ops.pack_weight(given.zeros.int().contiguous(), given.bits).T.contiguous()
    layer = HummingLayer(shape_n=n, shape_k=k, weight_config=config, input_config={"dtype": FLOATS[given.activations]}, torch_dtype=given.dtype).cuda()
    layer.load_from_tensors(tensors)
    layer.transform()
    if given.activations in ("f16", "bf16"):
        return layer
    # Theirs have a scale for each row of activations.
    ones = torch.ones(8192, 1, device="cuda")
    return lambda a: layer(a, input_scale=ones[: a.shape[0]])


def gemlite(codes, scales):
    from gemlite.helper import A16Wn

    rows = scales.T.reshape(-1, 1).contiguous()
    return A16Wn(device="cuda").from_weights(codes, rows, torch.full_like(rows, 8.0), 4, GROUP)


def int4pack(codes, scales):
    """Torch's own, in bf16."""
    weights = torch._convert_weight_to_int4pack((codes[:, ::2] << 4 | codes[:, 1::2]).contiguous(), 8)
    pairs = torch.stack([scales, torch.zeros_like(scales)], -1).bfloat16().contiguous()
    return lambda a: torch._weight_int4pack_mm(a, weights, GROUP, pairs)


# Peers of int4, with the rows of activations up to which they are asked: torch's takes as long for each row.
INT4 = {"marlin": marlin, "marlin-ist": marlin_ist, "machete": machete, "gemlite": gemlite, "int4pack": int4pack}
MOST_ROWS = {"int4pack": 256}


def of(given, wanted):
    """Peers by name, and why others are missing."""
    makes = {"humming": lambda: humming(given)}
    if (given.kind, given.bits, given.group, given.activations) == ("i4", 4, GROUP, "f16"):
        # Their codes are ours plus 8.
        makes |= {name: lambda make=make: make(given.codes ^ 8, given.scales) for name, make in INT4.items()}
    found, missing = {}, []
    for name in (name for name in makes if name in wanted):
        try:
            found[name] = makes[name]()
        except Exception as error:  # A peer is somebody else's program: whatever it throws, ours is measured without it.
            missing.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:160]}")
    return found, missing


def runs_of(found, a):
    """[(name, run)] for activations."""
    wide = a.bfloat16()
    few = {name: make for name, make in found.items() if a.shape[0] <= MOST_ROWS.get(name, a.shape[0])}
    return [(name, (lambda make=make: make(wide)) if name == "int4pack" else (lambda make=make: make(a))) for name, make in few.items()]


# Tiles of Triton's product: rows of activations, rows of weights, columns, warps, stages.
TILES = [(16, 64, 128, 4, 4), (16, 128, 128, 4, 4), (16, 64, 256, 4, 3), (64, 128, 128, 4, 3), (128, 128, 128, 8, 3), (128, 256, 64, 8, 3)]


def cast_in_product(numbers, a, once):
    """Triton's product with integers of 16 bits: the fastest of some tiles, by `once`."""
    from triton_gemm import products

    c = torch.empty(a.shape[0], numbers.shape[0], device="cuda", dtype=a.dtype)
    found = []
    for _, run in products(a, numbers, c, False):
        try:
            found.append((once(run), run))
        except Exception:  # Tiles that do not fit.
            continue
    fastest = min(found, key=lambda timed: timed[0])[1]
    return lambda: (fastest(), c)[1]


def dot_scaled(codes, scales, a, once):
    """Triton's product with MXFP4 weights: the fastest of some tiles, by `once`, which times a function."""
    import triton
    from triton_gemm import scaled_weights

    (n, k), m = codes.shape, a.shape[0]
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).contiguous()
    rows = scales.T.contiguous()
    kind = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float8_e4m3fn: "e4m3"}[a.dtype]
    c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16 if kind == "e4m3" else a.dtype)
    found = []
    for bm, bn, bk, warps, stages in TILES:
        if bm > 16 and bm >= 2 * m:
            continue
        grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)

        def run(bm=bm, bn=bn, bk=bk, warps=warps, stages=stages, grid=grid):
            scaled_weights[grid](a, packed, rows, c, m, n, k, bm, bn, bk, 8, kind, num_warps=warps, num_stages=stages)
            return c

        try:
            found.append((once(run), run))
        except Exception:  # Tiles that do not fit.
            continue
    return min(found, key=lambda timed: timed[0])[1]
