"""The inputs of a product, what it should give, and who else computes it: cuBLAS and cuBLASLt through torch, cuBLASLt's best of eight ways,
cuSPARSELt, plain Triton, DeepGEMM.

A *problem* is a dict: `tensors` and `scalars` that kernels bind by name, the `exact` result, `tolerance`, `missing` (who is left out, and why) and `peers`, a
list of (name, prepare, run, result): `prepare` is called once before a timing, `run` is what is timed, `result` gives the tensor. The ratio is
to the fastest of those that `base` names: LIBRARY, which is cuBLAS, if it is not there.
"""

import ctypes
import statistics

import common
import torch

LIBRARY = ["torch", "cublaslt", "cublaslt8", "cublaslt fast"]
TOLERANCE = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-5, torch.float64: 1e-13, torch.int32: 1e-12}


def product(a, b):
    """a · bᵀ in f64, or in f32 where that would take long."""
    wide = torch.float32 if 2 * a.numel() * b.shape[-2] > 4e12 else torch.float64
    return a.to(wide) @ b.to(wide).mT


def error_of(result, exact):
    """Relative error in the Frobenius norm; NaN if a NaN is left."""
    # By rows, so that no second copy of a large result is needed.
    rows = zip(result.flatten(0, -2).split(4096), exact.flatten(0, -2).split(4096))
    return float(sum((r.to(e.dtype) - e).norm() ** 2 for r, e in rows).sqrt() / exact.norm())


def scaled(values, scale, rows, cols):
    """Values in f32, each block of rows × cols times its scale."""
    grown = scale.repeat_interleave(rows, 0)[: values.shape[0]].repeat_interleave(cols, 1)[:, : values.shape[1]]
    return values.float() * grown


def by_library(name, tf32=False):
    """Makes torch use cuBLAS or cuBLASLt for its products, and for those of f32 tensor cores or not."""

    def prepare():
        torch.backends.cuda.preferred_blas_library(name)
        torch.backends.cuda.matmul.allow_tf32 = tf32

    return prepare


def nothing():
    """Needs no preparation."""


def attempt(missing, name, make):
    """The peers that `make` gives, or none and a line in `missing` that says why."""
    try:
        return make()
    except Exception as error:  # A peer is somebody else's program: whatever it throws, ours is measured without it.
        missing.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:160]}")
        return []


def plain(shape, dtype, out, wanted, missing):
    """C = A · Bᵀ in f16, bf16 or f32, with batches where the shape has four sizes."""
    *batch, m, n, k = shape
    a = torch.randn(*batch, m, k, device="cuda", dtype=dtype)
    b = torch.randn(*batch, n, k, device="cuda", dtype=dtype)
    theirs = torch.empty(*batch, m, n, device="cuda", dtype=dtype)
    multiply = torch.bmm if batch else torch.matmul

    def run():
        multiply(a, b.mT, out=theirs)

    both = [(name, library) for name, library in (("torch", "cublas"), ("cublaslt", "cublaslt")) if name in wanted]
    if dtype == torch.float32:
        # Which of both a kernel competes with is a matter of its error, so that neither is the base of ratios.
        ways = [(f"{name} {'tf32' if tf32 else 'f32'}", library, tf32) for name, library in both for tf32 in (True, False)]
        peers = [(name, by_library(library, tf32), run, lambda: theirs) for name, library, tf32 in ways]
        return {"tensors": {"a": a, "b": b}, "exact": product(a, b), "peers": peers, "tolerance": 2e-3}
    peers = [(name, by_library(library), run, lambda: theirs) for name, library in both]
    if "cublaslt8" in wanted and not batch:
        peers += attempt(missing, "cublaslt8", lambda: best_of_cublaslt(a, b, theirs))
    if "cutlass" in wanted and not batch:
        peers += attempt(missing, "cutlass", lambda: best_of_cutlass(a, b, theirs))
    if "triton" in wanted and not batch:
        peers += attempt(missing, "triton", lambda: fastest_of("triton", triton_products(a, b, out or dtype)))
    return {"tensors": {"a": a, "b": b}, "exact": product(a, b), "peers": peers}


def single(kind, shape, wanted):
    """C = A · Bᵀ in f32 beside torch's with `allow_tf32` (kind tf32) or without it (f32), of f64, or of complex64 beside torch's; complex numbers as pairs of f32.

    Of f64 torch's own product stands for the exact one.
    """
    m, n, k = shape
    dtype = {"complex": torch.complex64, "f64": torch.float64}.get(kind, torch.float32)
    a, b = (torch.randn(rows, k, device="cuda", dtype=dtype) for rows in (m, n))
    theirs = torch.empty(m, n, device="cuda", dtype=dtype)
    wide = torch.complex128 if kind == "complex" else torch.float64
    exact = a.to(wide) @ b.to(wide).mT

    def real(values, whole=True):
        pairs = torch.view_as_real(values) if values.is_complex() else values
        return pairs.flatten(-2) if values.is_complex() and whole else pairs

    def prepared(library):
        def prepare():
            by_library(library)()
            torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"

        return prepare

    def run():
        torch.matmul(a, b.mT, out=theirs)

    peers = [(name, prepared(library), run, lambda: real(theirs)) for name, library in (("torch", "cublas"), ("cublaslt", "cublaslt")) if name in wanted]
    # B is copied by pairs, which have a mode of their own.
    tensors = {"a": real(a), "b": real(b, whole=False)}
    return {"tensors": tensors, "exact": real(exact), "peers": peers, "tolerance": 2e-3 if kind == "tf32" else None}


def fp8(shape, scales, out, wanted, missing):
    """C = A · Bᵀ of e4m3 with one scale a factor, one a row of A and of B, or one for 128 columns of a row of A and for 128 × 128 of B."""
    m, n, k = shape
    kind, out = torch.float8_e4m3fn, out or torch.bfloat16
    a, b = (torch.randn(rows, k, device="cuda").to(kind) for rows in (m, n))
    rows_a, rows_b, cols = {"tensor": (m, n, k), "rows": (1, 1, k), "blocks": (1, 128, 128)}[scales]
    amount = [(-(-m // rows_a), -(-k // cols)), (-(-n // rows_b), -(-k // cols))]
    scale_a, scale_b = (torch.rand(*size, device="cuda") + 0.5 for size in amount)
    peers = []

    def scaled_mm(name, given_a, given_b, fast):
        result = []

        def run():
            result[:] = [torch._scaled_mm(a, b.T, scale_a=given_a, scale_b=given_b, out_dtype=out, use_fast_accum=fast)]

        return name, nothing, run, lambda: result[0]

    if "cublaslt" in wanted and scales != "blocks":
        given = (scale_a.reshape(()), scale_b.reshape(())) if scales == "tensor" else (scale_a, scale_b.T)
        peers += [scaled_mm("cublaslt", *given, False), scaled_mm("cublaslt fast", *given, True)]
    elif "cublaslt" in wanted:
        peers += attempt(missing, "cublaslt", lambda: blocks_by_torch(a, b, scale_a, scale_b, out))
    if "triton" in wanted and scales == "blocks":
        peers += attempt(missing, "triton", lambda: fastest_of("triton", triton_blocks(a, b, scale_a, scale_b, out)))
    elif "triton" in wanted and scales == "tensor":
        # Without the scales, so that its error is not that of the scaled product: what the product alone takes.
        peers += attempt(missing, "triton", lambda: fastest_of("triton unscaled", triton_products(a, b, out)))
    if "deepgemm" in wanted and scales == "blocks":
        peers += attempt(missing, "deepgemm", lambda: by_deepgemm(a, b, scale_a, scale_b))
    # Ours takes the scales of A by columns. By its own name, for where both extents are the same nothing else says so.
    own = {"sa": scale_a.T, "sb": scale_b} if scales == "blocks" else {}
    one = float(scale_a.flatten()[0] * scale_b.flatten()[0]) if scales == "tensor" else 1.0
    return {
        "tensors": {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "scale": lambda: torch.full((1,), one, device="cuda"), **own},
        "scalars": {
            "scale": one, "alpha": one,
            "scale_a": float(scale_a.flatten()[0]), "scale_b": float(scale_b.flatten()[0]),
        } if scales == "tensor" else {},
        "exact": product(scaled(a, scale_a, rows_a, cols), scaled(b, scale_b, rows_b, cols)),
        "peers": peers,
        "tolerance": 1e-2,
    }  # fmt: skip


def blocks_by_torch(a, b, scale_a, scale_b, out):
    """cuBLASLt's product with scales of 128 columns and of 128 × 128 blocks: A's scales lie by columns, B's rows of scales are filled up to fours."""
    from torch.nn.functional import ScalingType, scaled_mm

    steps = scale_b.shape[1]
    given_a = scale_a.T.contiguous().T
    given_b = torch.nn.functional.pad(scale_b, (0, -steps % 4))[:, :steps].T
    result = []

    def run():
        result[:] = [scaled_mm(
            a, b.T, given_a, ScalingType.BlockWise1x128, given_b, ScalingType.BlockWise128x128, output_dtype=out)]  # fmt: skip

    return [("cublaslt", nothing, run, lambda: result[0])]


def by_deepgemm(a, b, scale_a, scale_b):
    """DeepGEMM's product with scales of blocks, where it is installed."""
    import deep_gemm

    multiply = getattr(deep_gemm, "fp8_gemm_nt", None) or deep_gemm.gemm_fp8_fp8_bf16_nt
    c, given_a = torch.empty(a.shape[0], b.shape[0], device="cuda", dtype=torch.bfloat16), scale_a.T.contiguous().T
    return [("deepgemm", nothing, lambda: multiply((a, given_a), (b, scale_b), c), lambda: c)]


def int8(shape, out, wanted, missing):
    """C = A · Bᵀ of i8, in i32."""
    m, n, k = shape
    a, b = (torch.randint(-128, 128, (rows, k), device="cuda", dtype=torch.int8) for rows in (m, n))
    theirs = torch.empty(m, n, device="cuda", dtype=torch.int32)
    peers = []
    if "cublaslt" in wanted:
        peers.append(("cublaslt", nothing, lambda: torch._int_mm(a, b.T, out=theirs), lambda: theirs))
    if "triton" in wanted:
        peers += attempt(missing, "triton", lambda: fastest_of("triton", triton_products(a, b, torch.int32)))
    ones = {"scale": lambda: torch.ones(1, device="cuda")}
    ones |= {name: lambda n=rows: torch.ones(n, 1, device="cuda") for name, rows in (("scale_a", m), ("scale_b", n))}
    # Whole numbers below 2⁵³: exact in f64.
    return {"tensors": {"a": a, "b": b, **ones}, "exact": a.double() @ b.double().T, "peers": peers}


def pointers(shape, dtype, wanted, missing):
    """C = A · Bᵀ of matrices that were allocated one by one, beside torch.bmm of copies that lie in one tensor, and cuBLAS' product of arrays of pointers."""
    batch, m, n, k = shape
    a, b = ([torch.randn(rows, k, device="cuda", dtype=dtype) for _ in range(batch)] for rows in (m, n))
    whole_a, whole_b = torch.stack(a), torch.stack(b)
    theirs = torch.empty(batch, m, n, device="cuda", dtype=dtype)

    def run():
        torch.bmm(whole_a, whole_b.mT, out=theirs)

    names = [(name, library) for name, library in (("torch", "cublas"), ("cublaslt", "cublaslt")) if name in wanted]
    found = [(name, by_library(library), run, lambda: theirs) for name, library in names]
    if "torch" in wanted:
        found += attempt(missing, POINTERS, lambda: by_pointers(a, b))
    return {"tensors": {"a": a, "b": b}, "exact": product(whole_a, whole_b), "peers": found, "base": [*LIBRARY, POINTERS]}


# cuBLAS' product of arrays of pointers.
POINTERS = "cublas pointers"


def by_pointers(a, b):
    """`cublasGemmBatchedEx` of the library that torch has loaded: matrices are column-major there, so that it computes B · Aᵀ."""
    types = {torch.float16: 2, torch.bfloat16: 14}  # CUDA_R_16F, CUDA_R_16BF
    transposed, plainly, in_f32, default = 1, 0, 68, -1  # CUBLAS_OP_T, CUBLAS_OP_N, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT
    multiply = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}").cublasGemmBatchedEx
    (m, k), n, kind = a[0].shape, b[0].shape[0], types[a[0].dtype]
    c = torch.empty(len(a), m, n, device="cuda", dtype=a[0].dtype)
    tables = [torch.tensor([each.data_ptr() for each in matrices], device="cuda", dtype=torch.int64) for matrices in (b, a, c)]
    one, none = ctypes.c_float(1), ctypes.c_float(0)
    at = [ctypes.c_void_p(table.data_ptr()) for table in tables]

    def run():
        error = multiply(
            ctypes.c_void_p(torch.cuda.current_blas_handle()), transposed, plainly, n, m, k, ctypes.byref(one), at[0], kind, k, at[1], kind, k,
            ctypes.byref(none), at[2], kind, n, len(tables[0]), in_f32, default)  # fmt: skip
        if error:
            raise RuntimeError(f"cublasGemmBatchedEx: status {error}")

    run()
    torch.cuda.synchronize()
    return [(POINTERS, nothing, run, lambda: c)]


def values(rows, cols, dtype):
    """A matrix at random."""
    if dtype == torch.int8:
        return torch.randint(-128, 128, (rows, cols), device="cuda", dtype=dtype)
    return torch.randn(rows, cols, device="cuda").to(dtype)


def two_of_four(rows, cols, dtype):
    """A matrix that has two elements of every four along a row: those elements, their places from 0 to 3, and the dense matrix."""
    pairs = torch.tensor([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], device="cuda", dtype=torch.int8)
    places = pairs[torch.randint(len(pairs), (rows, cols // 4), device="cuda")]
    kept = values(rows, cols // 2, dtype)
    # Elements of 8 bits by their bytes: not everything is there for floats of 8 bits.
    held = kept.view(torch.uint8) if kept.element_size() == 1 else kept
    dense = torch.zeros(rows, cols // 4, 4, device="cuda", dtype=held.dtype).scatter_(2, places.long(), held.view(rows, cols // 4, 2))
    return kept, places.flatten(1), dense.view(rows, cols).view(dtype)


def whole_tiles(places, shape):
    """Places of a matrix's elements, and beyond it up to whole tiles of a kernel those of the first two."""
    grown = torch.tensor([0, 1], device=places.device, dtype=places.dtype).repeat(shape[0], shape[1] // 2)
    grown[: places.shape[0], : places.shape[1]] = places
    return grown


def sparse(shape, dtype, out, wanted, missing):
    """C = A · Bᵀ of an A with two elements of every four along k, beside torch's product of such matrices by cuSPARSELt, by CUTLASS where that is not to be
    had, and cuBLAS' of the dense matrix."""
    m, n, k = shape
    kept, places, a = two_of_four(m, k, dtype)
    b, peers = values(n, k, dtype), []
    out = out or {torch.int8: torch.int32, torch.float8_e4m3fn: torch.bfloat16}.get(dtype, dtype)
    if "torch" in wanted:
        ways = [("cusparselt, searched", lambda: by_cusparselt(a, b, out, True)), ("cusparselt", lambda: by_cusparselt(a, b, out, False))]
        for name, make in [*ways, ("cutlass", lambda: by_cutlass(a, b, out))]:
            # One stands for all: the first that runs.
            peers = peers or attempt(missing, name, make)
    peers += dense_products(a, b, out, wanted)
    tensors = {"a": kept, "b": b, "meta": common.Shaped(lambda shape: whole_tiles(places, shape))}
    tolerance = 1e-2 if dtype == torch.float8_e4m3fn else None
    return {"tensors": tensors, "exact": product(a, b), "peers": peers, "base": SPARSE, "tolerance": tolerance}


# Products of sparse matrices.
SPARSE = ["cusparselt", "cutlass"]


def ran(name, multiply):
    """A peer that has run once, so that what it lacks is known."""
    kept = {}

    def run():
        kept["c"] = multiply()

    run()
    torch.cuda.synchronize()
    return [(name, nothing, run, lambda: kept["c"])]


def recorded(peers):
    """The same as CUDA graphs: torch makes cuSPARSELt's plan in each call, which takes the host longer than the product takes the GPU."""
    found = []
    for name, prepare, run, result in peers:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        found.append((name, prepare, graph.replay, result))
    return found


def by_cusparselt(a, b, out, search):
    """cuSPARSELt's product, as `to_sparse_semi_structured` calls it, by the algorithm that its search takes for the fastest, or by the first."""
    if not torch.backends.cusparselt.is_available():
        raise RuntimeError("torch was built without it, or the library is not there")
    compressed, given = torch._cslt_compress(a), {} if out == a.dtype else {"out_dtype": out}
    chosen = {"alg_id": torch._cslt_sparse_mm_search(compressed, b.T, **given)} if search else {}
    return recorded(ran("cusparselt", lambda: torch._cslt_sparse_mm(compressed, b.T, **given, **chosen)))


def by_cutlass(a, b, out):
    """torch's product by kernels of CUTLASS."""
    from torch.sparse import SparseSemiStructuredTensorCUTLASS

    compressed, given = SparseSemiStructuredTensorCUTLASS.from_dense(a), {} if out == a.dtype else {"out_dtype": out}
    return ran("cutlass", lambda: torch._sparse_semi_structured_mm(compressed.packed, compressed.meta, b.T, **given))


def dense_products(a, b, out, wanted):
    """cuBLAS' products of dense matrices of 16 or 8 bits."""
    kept, libraries = {}, [(name, library) for name, library in (("torch", "cublas"), ("cublaslt", "cublaslt")) if name in wanted]
    one = torch.ones((), device="cuda")

    def run():
        if a.dtype == torch.int8:
            kept["c"] = torch._int_mm(a, b.T)
        elif a.dtype == torch.float8_e4m3fn:
            kept["c"] = torch._scaled_mm(a, b.T, scale_a=one, scale_b=one, out_dtype=out, use_fast_accum=True)
        else:
            kept["c"] = a @ b.T

    # Of 8 bits there is cuBLASLt alone.
    libraries = [both for both in libraries if a.element_size() > 1 or both[0] == "cublaslt"]
    return [(f"dense {name}", by_library(library), run, lambda: kept["c"]) for name, library in libraries]


def few_bits(shape, name, wanted):
    """C = A · Bᵀ of i4, u4 or u1, in i32, beside cuBLAS' product of the same numbers in 8 bits."""
    m, n, k = shape
    least, end = {"i4": (-8, 8), "u4": (0, 16), "u1": (0, 2)}[name]
    a, b = (torch.randint(least, end, (rows, k), device="cuda", dtype=torch.int8) for rows in (m, n))
    theirs = torch.empty(m, n, device="cuda", dtype=torch.int32)
    found = [("int8", nothing, lambda: torch._int_mm(a, b.T, out=theirs), lambda: theirs)] if "cublaslt" in wanted else []
    return {"tensors": {"a": a, "b": b}, "exact": a.double() @ b.double().T, "peers": found, "base": ["int8"]}


def triton_products(a, b, out):
    """(name, function, result) of plain Triton, by pointers and by descriptors."""
    import triton_gemm

    c = torch.empty(a.shape[0], b.shape[0], device="cuda", dtype=out)
    return [(*named, c) for how in (False, True) for named in triton_gemm.products(a, b, c, how)]


def triton_blocks(a, b, scale_a, scale_b, out):
    """(name, function, result) of plain Triton with scales of blocks."""
    import triton_gemm

    c = torch.empty(a.shape[0], b.shape[0], device="cuda", dtype=out)
    return [(*named, c) for named in triton_gemm.blocks_products(a, b, c, scale_a, scale_b)]


def best_of_cublaslt(a, b, c):
    """The fastest of the ways that cuBLASLt's heuristics propose, by launches with an L2 cache that was emptied by writing."""
    import cublaslt

    others = torch.empty(64 << 20, device="cuda", dtype=torch.int32)
    return fastest_of("cublaslt8", cublaslt.products(a, b, c), others, 7)


def best_of_cutlass(a, b, c):
    """The fastest of CUTLASS's kernels of sm_80."""
    import cutlass_sm80

    return fastest_of("cutlass", cutlass_sm80.products(a, b, c))


def fastest_of(name, candidates, written=None, launches=3):
    """The peer that is the fastest of several functions, by a few quick launches each, ahead of which its result or what is named is written; those that do
    not run are left out."""
    found, last = [], None
    for what, run, result in candidates:
        try:
            run()
            torch.cuda.synchronize()
            times = []
            for _ in range(launches):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                # Something to do while the launch is being prepared.
                (result if written is None else written).zero_()
                start.record()
                run()
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end))
            found.append((statistics.median(times), what, run, result))
        except Exception as error:  # Whatever Triton throws, for instance where shared memory does not suffice.
            last = f"{what}: {type(error).__name__}: {error}"
    if not found:
        raise RuntimeError(f"no {name} kernel runs; {last}")
    _, what, run, result = min(found, key=lambda entry: entry[0])
    return [(name, nothing, run, lambda: result)]


def problem(kind, shape, dtype, out, wanted):
    """The problem of a set: its kind, a shape, the factors' type (its name, where torch has no such type), the result's type of our kernel."""
    torch.manual_seed(0)
    missing = []
    if kind == "plain":
        made = plain(shape, dtype, out, wanted, missing)
    elif kind in ("tf32", "f32", "f64", "complex"):
        made = single(kind, shape, wanted)
    elif kind == "sparse":
        made = sparse(shape, dtype, out, wanted, missing)
    elif kind == "pointers":
        made = pointers(shape, dtype, wanted, missing)
    elif kind == "int4":
        made = few_bits(shape, dtype, wanted)
    elif kind == "int8":
        made = int8(shape, out, wanted, missing)
    else:
        made = fp8(shape, kind, out, wanted, missing)
    made["missing"] = missing
    m, n = made["exact"].shape[-2:]
    made["tensors"] |= {
        "c": None,
        "bias": lambda: torch.zeros(n, device="cuda"),
        "residual": lambda: torch.zeros_like(made["exact"], dtype=torch.float32),
    }
    made.setdefault("scalars", {"alpha": 1.0, "scale": 1.0})
    made["scalars"].setdefault("beta", 0.0)
    made.setdefault("tolerance", None)
    made.setdefault("base", LIBRARY)
    return made
