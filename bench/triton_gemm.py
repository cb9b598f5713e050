"""Matrix products in plain Triton, as a peer: what a page of Triton gives. One program for a tile, groups of rows of tiles for the L2 cache, a few
tiles to choose from. `product` is C = A · Bᵀ for f16, bf16, 8-bit floats and i8; `blocks` scales 8-bit floats by 128 columns of a row of A and by
128 × 128 of B, the sums of 128 products at a time (the scheme of DeepSeek-V3, arXiv 2412.19437, section 3.3); `scaled_weights` multiplies by weights in MXFP4,
as `tl.dot_scaled` does.
"""

import triton
import triton.language as tl


@triton.jit
def tile_of(m, n, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """The tile of this program: columns within bands of GROUP rows of tiles."""
    rows, cols = tl.cdiv(m, BM), tl.cdiv(n, BN)
    at = tl.program_id(0)
    band = at // (GROUP * cols)
    height = min(rows - band * GROUP, GROUP)
    within = at % (GROUP * cols)
    return band * GROUP + within % height, within // height


@triton.jit
def product(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, SUMS: tl.constexpr):
    """C = A · Bᵀ, both row-major; what B holds becomes of the type of A."""
    row, col = tile_of(m, n, BM, BN, GROUP)
    i = row * BM + tl.arange(0, BM)
    j = col * BN + tl.arange(0, BN)
    l = tl.arange(0, BK)
    # Rows past the end read others: they are not stored.
    at_a = a + (i % m).to(tl.int64)[:, None] * k + l[None, :]
    at_b = b + (j % n).to(tl.int64)[None, :] * k + l[:, None]
    sums = tl.zeros((BM, BN), dtype=SUMS)
    for step in range(tl.cdiv(k, BK)):
        left = k - step * BK
        x = tl.load(at_a, mask=l[None, :] < left, other=0.0)
        y = tl.load(at_b, mask=l[:, None] < left, other=0.0)
        sums = tl.dot(x, y.to(x.dtype), sums, out_dtype=SUMS)
        at_a += BK
        at_b += BK
    at_c = c + i.to(tl.int64)[:, None] * n + j[None, :]
    tl.store(at_c, sums.to(c.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n))


@triton.jit
def product_by_descriptors(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, SUMS: tl.constexpr):
    """The same; a, b and c are descriptors of tiles, which the tensor memory accelerator moves."""
    row, col = tile_of(m, n, BM, BN, GROUP)
    sums = tl.zeros((BM, BN), dtype=SUMS)
    for step in range(tl.cdiv(k, BK)):
        x = a.load([row * BM, step * BK])
        y = b.load([col * BN, step * BK])
        sums = tl.dot(x, y.T, sums, out_dtype=SUMS)
    c.store([row * BM, col * BN], sums.to(c.dtype))


@triton.jit
def scaled_weights(a, w, s, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, KIND: tl.constexpr):
    """C = A · Wᵀ with w[n, k / 2], two e2m1 a byte, and s[n, k / 32] in ue8m0; k is a multiple of BK."""
    row, col = tile_of(m, n, BM, BN, GROUP)
    i = row * BM + tl.arange(0, BM)
    j = col * BN + tl.arange(0, BN)
    at_a = a + (i % m).to(tl.int64)[:, None] * k + tl.arange(0, BK)[None, :]
    at_w = w + (j % n).to(tl.int64)[None, :] * (k // 2) + tl.arange(0, BK // 2)[:, None]
    at_s = s + (j % n).to(tl.int64)[:, None] * (k // 32) + tl.arange(0, BK // 32)[None, :]
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(k // BK):
        sums = tl.dot_scaled(tl.load(at_a), None, KIND, tl.load(at_w), tl.load(at_s), "e2m1", sums)
        at_a += BK
        at_w += BK // 2
        at_s += BK // 32
    at_c = c + i.to(tl.int64)[:, None] * n + j[None, :]
    tl.store(at_c, sums.to(c.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n))


@triton.jit
def blocks(a, b, c, scale_a, scale_b, m, n, k, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """C = A · Bᵀ with scale_a[m, k / 128] and scale_b[n / 128, k / 128]; k is a multiple of 128, and BN divides 128."""
    BK: tl.constexpr = 128
    row, col = tile_of(m, n, BM, BN, GROUP)
    i = row * BM + tl.arange(0, BM)
    j = col * BN + tl.arange(0, BN)
    l = tl.arange(0, BK)
    steps = k // BK
    at_a = a + (i % m).to(tl.int64)[:, None] * k + l[None, :]
    at_b = b + (j % n).to(tl.int64)[None, :] * k + l[:, None]
    at_sa = scale_a + (i % m) * steps
    at_sb = scale_b + (col * BN // 128) * steps
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(steps):
        part = tl.dot(tl.load(at_a), tl.load(at_b))
        sums += part * (tl.load(at_sa + step) * tl.load(at_sb + step))[:, None]
        at_a += BK
        at_b += BK
    at_c = c + i.to(tl.int64)[:, None] * n + j[None, :]
    tl.store(at_c, sums.to(c.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n))


# Rows, columns and depth of a tile (the depth in bytes), warps, stages.
TILES = [
    (128, 256, 128, 8, 3), (256, 128, 128, 8, 3), (128, 128, 128, 8, 4), (128, 128, 128, 4, 4),
    (64, 256, 128, 4, 4), (64, 128, 128, 4, 5), (64, 64, 256, 4, 4), (16, 128, 256, 4, 5), (16, 64, 512, 4, 4),
]  # fmt: skip


def tiles_for(m):
    """The tiles worth trying for so many rows."""
    return [tile for tile in TILES if (tile[0] < 2 * m if m < 128 else tile[0] >= 64)]


def products(a, b, c, descriptors):
    """(name, function) for each tile: c = a · bᵀ."""
    import torch
    from triton.tools.tensor_descriptor import TensorDescriptor

    (m, k), n = a.shape, b.shape[0]
    sums = tl.int32 if a.dtype == torch.int8 else tl.float32
    for bm, bn, depth, warps, stages in tiles_for(m):
        bk = depth // a.element_size()
        options = {"BM": bm, "BN": bn, "BK": bk, "GROUP": 8, "SUMS": sums, "num_warps": warps, "num_stages": stages}
        grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
        how = "descriptors" if descriptors else "pointers"
        if descriptors:
            given = [TensorDescriptor.from_tensor(t, box) for t, box in ((a, [bm, bk]), (b, [bn, bk]), (c, [bm, bn]))]
            kernel = product_by_descriptors
        else:
            given, kernel = [a, b, c], product

        def run(kernel=kernel, grid=grid, given=given, options=options):
            kernel[grid](*given, m, n, k, **options)

        yield f"{bm}x{bn}x{bk} {warps} warps {stages} stages, {how}", run


def blocks_products(a, b, c, scale_a, scale_b):
    """(name, function) for each tile: c = a · bᵀ with scales of blocks."""
    (m, k), n = a.shape, b.shape[0]
    for bm, bn, warps, stages in [(128, 128, 8, 3), (128, 128, 4, 4), (64, 128, 4, 4), (64, 64, 4, 5), (32, 64, 4, 5)]:
        options = {"BM": bm, "BN": bn, "GROUP": 8, "num_warps": warps, "num_stages": stages}
        grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)

        def run(grid=grid, options=options):
            blocks[grid](a, b, c, scale_a, scale_b, m, n, k, **options)

        yield f"{bm}x{bn}x128 {warps} warps {stages} stages", run
