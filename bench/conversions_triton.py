"""Triton's side of conversions.py: each function gives the data and a launch, or several, of one kernel."""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

TORCH = {"u8": torch.int8, "f16": torch.float16, "f32": torch.float32}
PACK = {"u8": 4, "f16": 2, "f32": 1}


@gluon.jit
def keep(x, PACK: gl.constexpr):
    # Opaque to the compiler, so that conversions there and back are not folded; no instruction is left of it.
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], x.dtype, True, PACK)


@gluon.jit
def convert_kernel(
    x, y, M: gl.constexpr, N: gl.constexpr, A: gl.constexpr, B: gl.constexpr, ROUNDS: gl.constexpr, PACK: gl.constexpr
):
    rows = gl.arange(0, M, layout=gl.SliceLayout(1, A))
    columns = gl.arange(0, N, layout=gl.SliceLayout(0, A))
    places = gl.program_id(0) * M * N + rows[:, None] * N + columns[None, :]
    r = gl.load(x + places)
    for _ in range(ROUNDS):
        q = keep(gl.convert_layout(r, B), PACK)
        r = keep(gl.convert_layout(q, A), PACK)
    gl.store(y + places, r)


def layout(name, parameters):
    if name == "mma":
        return gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[4, 1], instr_shape=[16, 8])
    registers, lanes, warps, order = parameters
    return gl.BlockedLayout(list(registers), list(lanes), list(warps), list(order))


def same(y, expected, launch):
    """Launches, and compares what it wrote."""
    y.zero_()
    launch()
    torch.cuda.synchronize()
    if not torch.equal(y, expected):
        raise SystemExit("a kernel's result is wrong")


def data(dtype, shape):
    if dtype == "u8":
        return torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")
    return torch.rand(shape, device="cuda").to(TORCH[dtype])


def conversion(dtype, shape, a, a_parameters, b, b_parameters, blocks, rounds):
    m, n = shape
    x = data(dtype, (blocks * m, n))
    y = torch.empty_like(x)
    a, b = layout(a, a_parameters), layout(b, b_parameters)

    def launch():
        convert_kernel[(blocks,)](x, y, m, n, a, b, rounds, PACK[dtype], num_warps=4)

    same(y, x, launch)
    return x, y, launch


@triton.jit
def gather_kernel(x, k, y, M: tl.constexpr, N: tl.constexpr, ROUNDS: tl.constexpr):
    places = tl.program_id(0) * M * N + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    r = tl.load(x + places)
    index = tl.load(k + places)
    for _ in range(ROUNDS):
        r = tl.gather(r, index, 1)
    tl.store(y + places, r)


def gather(dtype, shape, blocks, rounds):
    m, n = shape
    x = data(dtype, (blocks * m, n))
    k = torch.randint(0, n, (blocks * m, n), dtype=torch.int32, device="cuda")
    y = torch.empty_like(x)

    def launch():
        gather_kernel[(blocks,)](x, k, y, m, n, rounds, num_warps=4)

    expected = x
    for _ in range(rounds):
        expected = torch.gather(expected, 1, k.long())
    same(y, expected, launch)
    return x, k, y, expected, launch


@triton.jit
def transpose_kernel(x, y, m, n, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    t = tl.trans(tl.load(x + rows[:, None] * n + columns[None, :], mask=mask))
    mask = (columns[:, None] < n) & (rows[None, :] < m)
    tl.store(y + columns[:, None] * m + rows[None, :], t, mask=mask)


def transposes(m, n):
    x = data("u8", (m, n))
    y = torch.empty((n, m), dtype=torch.int8, device="cuda")
    launches = []
    for bm, bn in [(64, 64), (128, 64), (64, 128), (128, 128), (128, 256)]:
        for warps in (4, 8):

            def launch(bm=bm, bn=bn, warps=warps):
                grid = (triton.cdiv(m, bm), triton.cdiv(n, bn))
                transpose_kernel[grid](x, y, m, n, bm, bn, num_warps=warps)

            same(y, x.T, launch)
            launches.append(launch)
    return x, y, launches
