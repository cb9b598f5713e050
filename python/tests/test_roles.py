"""A kernel with roles, pipelines, tiles and asynchronous products: `examples/gemm_hopper.tile` in Python is the same program."""

import pathlib

import tilewright
from tilewright import const, f16, f32, i32, size

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


@tilewright.kernel
def gemm_hopper(
    t,
    a: f16["m", "k"],
    b: f16["n", "k"],
    c: f16["m", "n"],
    m: size = 4096,
    n: size = 4096,
    k: size = 4096,
    BM: const = 128,
    BN: const = 256,
    BK: const = 64,
    STAGES: const = 4,
    SMS: const = 132,
):
    rows, columns, steps = t.ceil_div(m, BM), t.ceil_div(n, BN), t.ceil_div(k, BK)
    t.grid(t.min(SMS, rows * columns))
    t.threads(384)
    ga = t.global_view(a, (BM, rows, BK, steps), ("e0", "BM * e0", "e1", "BK * e1"))
    gb = t.global_view(b, (BN, columns, BK, steps), ("e0", "BN * e0", "e1", "BK * e1"))
    gc = t.global_view(c, (BM, rows, 64, t.ceil_div(n, 64)), ("e0", "BM * e0", "e1", "64 * e1"))
    sa = t.shared_tensor(f16, [BM, BK])
    sb = t.shared_tensor(f16, [BN, BK])
    sc = t.shared_tensor(f16, [BM, 64, 2])
    ab = t.pipeline(STAGES, sa, sb)
    with t.warpgroup("load", 1, registers=24):
        for tm, tn in t.tiles(rows, columns, "grouped(12)"):
            for kk in t.range(steps):
                with t.produce(ab):
                    t.copy_async(ga[:, tm, :, kk], sa)
                    t.copy_async(gb[:, tn, :, kk], sb)
    with t.warpgroup("math", 2, registers=240):
        for ti, tj in t.tiles(rows, columns, "grouped(12)"):
            rc = t.register_tensor(f32, [BM, BN])
            t.fill(rc, 0.0)
            for k2 in t.range(steps):
                with t.consume(ab):
                    t.gemm_async(rc, sa, sb)
                    t.commit_gemm()
                    t.wait_gemm(1)
            t.wait_gemm(0)
            for j in t.unroll(BN / 64):
                part = t.define(t.slice(rc, 1, j * 64, 64))
                half = t.define(t.cast(part, f16))
                t.wait_group(1)
                t.syncthreads()
                t.copy(half, sc[:, :, j % 2])
                t.syncthreads()
                t.copy_async(sc[:, :, j % 2], gc[:, ti, :, tj * (BN / 64) + j])
                t.commit_group()
        t.wait_group(0)


def test_the_example_for_hopper_in_python_is_the_same_program():
    sizes = {"m": 256, "n": 256, "k": 128}
    example = tilewright.compile_file(EXAMPLES / "gemm_hopper.tile", **sizes)
    kernel = gemm_hopper.compile(**sizes)
    assert kernel.program == example.program
    # But for the places of its statements the kernel is the example's.
    assert kernel.arch == "sm_90a" and len(kernel.ptx.splitlines()) == len(example.ptx.splitlines())


def test_flags_tables_and_atomic_operations():
    @tilewright.kernel
    def counted(t, x: i32[64], table: i32[4, 2], y: i32[8], old: i32[64], done: i32[1], last: i32[1]):
        t.grid(4)
        t.threads(32)
        gx = t.global_view(x[t.block.x * 16 :], (16,))
        gy = t.global_view(y, (8,))
        go = t.global_view(old[t.block.x * 16 :], (16,))
        bins, ones = t.register_tensor(i32, [16]), t.register_tensor(i32, [16])
        t.copy(gx, bins)
        t.fill(ones, 1)
        place = t.where(table[t.block.x, 0] > table[t.block.x, 1], bins & 7, 7 - (bins & 7))
        t.copy(t.atomic_add(gy[place], ones), go)
        turn = t.ticket(done[0], 4)
        with t.if_(turn == 3):
            gl = t.global_view(last, (1,))
            total = t.register_tensor(i32, [8])
            t.copy(gy, total)
            t.copy(t.reduce(total, "sum", 0, keep=True), gl)

    assert "let turn = ticket(done[0], 4)" in counted.text and "atomic_add(gy[" in counted.text
    run = counted.simulate(x=list(range(64)), table=[[0, 1]] * 4, y=[0] * 8, done=[0])
    assert run.right and run["last"].tolist() == [64] and run["y"].tolist() == [8] * 8, run


def test_a_view_folds_modes_of_its_buffer():
    @tilewright.kernel
    def pixels(t, x: f16["nb", "h", "w", 64], y: f16["rows", 3, 64], nb: size = 3, h: size = 5, w: size = 7, rows: size = 105):
        t.grid(t.ceil_div(rows, 64))
        t.threads(256)
        shape, strides = (64, t.ceil_div(nb * h * w, 64), 3, 64), ("e4", "64 * e4", "e2", "e3")
        gx = t.global_view(x[:, :, -1:, :], shape, strides, fold=((w, h, nb), ("e2", "e1", "e0")))
        gy = t.global_view(y[t.block.x * 64 :, :, :], (64, 3, 64))
        sx = t.shared_tensor(f16, [64, 64])
        ring = t.pipeline(2, sx)
        with t.warpgroup("load", 1):
            for i in t.range(3):
                with t.produce(ring):
                    t.copy_async(gx[:, t.block.x, i, :], sx)
        with t.warpgroup("store", 1):
            for j in t.range(3):
                tap = t.register_tensor(f16, [64, 64])
                with t.consume(ring):
                    t.copy(sx, tap)
                t.copy(tap, gy[:, j, :])

    assert "fold = (w, h, nb) : (e2, e1, e0))" in pixels.text
    assert ".im2col." in pixels.compile(arch="sm_90a").ptx
