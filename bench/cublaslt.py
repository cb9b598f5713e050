"""cuBLASLt by its own interface: the ways that its heuristics propose for a product, of which the first is what torch takes.

Names and numbers are those of the cuBLAS documentation, chapter "Using the cublasLt API", as in `crates/lab/src/cublaslt.rs`. The library is the one that
`TILEWRIGHT_CUBLASLT` names, else the one that torch has loaded.
"""

import ctypes
import os
import pathlib

# CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_OP_T; CUDA_R_16F and CUDA_R_16BF by the names of torch's types.
IN_F32, COMPUTE_IN_F32, TRANSPOSED = 0, 68, 1
TYPES = {"torch.float16": 2, "torch.bfloat16": 14}
# CUBLASLT_MATMUL_DESC_TRANSA; CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES.
TRANSPOSE_A, MAX_WORKSPACE = 3, 1
# Bytes of memory that a product may use in addition to its operands.
WORKSPACE = 64 << 20
# Ways that the heuristics are asked for.
WAYS = 8


class Algorithm(ctypes.Structure):
    """`cublasLtMatmulAlgo_t`."""

    _fields_ = [("data", ctypes.c_uint64 * 8)]


class Heuristic(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = [
        ("algorithm", Algorithm), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    ]  # fmt: skip


def loaded():
    """The path of the library: what the environment names, or what this process has loaded."""
    named = os.environ.get("TILEWRIGHT_CUBLASLT")
    if named:
        return named
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    found = [line.split()[-1] for line in maps if "libcublasLt.so" in line]
    if not found:
        raise RuntimeError("libcublasLt is not loaded; set TILEWRIGHT_CUBLASLT to its path")
    return found[0]


class Library:
    """The library's functions, each of which raises for a status that is not 0."""

    def __init__(self):
        self.library = ctypes.CDLL(loaded())
        self.handle = None

    def call(self, name, *given):
        status = getattr(self.library, name)(*given)
        if status:
            raise RuntimeError(f"{name}: status {status}")

    def made(self, name, *given):
        """An object of the library."""
        raw = ctypes.c_void_p()
        self.call(f"cublasLt{name}Create", ctypes.byref(raw), *given)
        return raw

    def set(self, name, of, attribute, value):
        self.call(f"cublasLt{name}SetAttribute", of, attribute, ctypes.byref(value), ctypes.sizeof(value))

    def described(self, m, n, k, dtype):
        """C = A · Bᵀ, all stored row by row: by columns Cᵀ[n, m] = B[n, k] · Aᵀ[k, m]. The description, and the layouts of B, A and C."""
        what = self.made("MatmulDesc", COMPUTE_IN_F32, IN_F32)
        self.set("MatmulDesc", what, TRANSPOSE_A, ctypes.c_int32(TRANSPOSED))

        def matrix(height, width):
            return self.made("MatrixLayout", dtype, ctypes.c_uint64(height), ctypes.c_uint64(width), ctypes.c_int64(height))

        return what, matrix(k, n), matrix(k, m), matrix(n, m)

    def ways(self, described, count=WAYS):
        """The first so many ways, the most promising first."""
        if self.handle is None:
            self.handle = self.made("")
        what, b, a, c = described
        preference = self.made("MatmulPreference")
        self.set("MatmulPreference", preference, MAX_WORKSPACE, ctypes.c_size_t(WORKSPACE))
        found, returned = (Heuristic * count)(), ctypes.c_int()
        self.call("cublasLtMatmulAlgoGetHeuristic", self.handle, what, b, a, c, c, preference, count, found, ctypes.byref(returned))
        return [each for each in found[: returned.value] if each.state == 0]


# The library and its workspace, made when they are first asked for.
KEPT = {}


def products(a, b, c):
    """(name, function, result) of the ways to compute C = A · Bᵀ, whose types are alike."""
    import torch

    library = KEPT.setdefault("library", Library())
    workspace = KEPT.setdefault("workspace", torch.empty(WORKSPACE, device="cuda", dtype=torch.uint8))
    one, none = ctypes.c_float(1), ctypes.c_float(0)
    (m, k), n = a.shape, b.shape[0]
    what, of_b, of_a, of_c = library.described(m, n, k, TYPES[str(a.dtype)])
    at_a, at_b, at_c, at_workspace = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, c, workspace))

    def run_by(way):
        def run():
            library.call(
                "cublasLtMatmul", library.handle, what, ctypes.byref(one), at_b, of_b, at_a, of_a, ctypes.byref(none), at_c, of_c, at_c, of_c,
                ctypes.byref(way.algorithm), at_workspace, ctypes.c_size_t(WORKSPACE), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))  # fmt: skip

        return run

    ways = library.ways((what, of_b, of_a, of_c))
    return [(f"way {i + 1} of {len(ways)}", run_by(way), c) for i, way in enumerate(ways)]
