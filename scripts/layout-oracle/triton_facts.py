#!/usr/bin/env python3
"""Facts about linear layouts, asked of Triton on a machine without a GPU.

Prints one JSON object per line. Two sorts of line:

  {"op": "compose" | "product" | "invert" | "invert_and_compose"
         | "pseudoinvert" | "apply", ...}
  {"op": "family", "family": NAME, "params": {...}, "shape": [...], ...}

A layout is {"in": [[dim, [basis, ...]], ...], "out": [[dim, size], ...]}; a
basis has one number per out-dim. Where Triton refuses (it aborts the process
on a broken precondition) the result is {"error": TEXT}.

The same --seed and the same --cases print the same bytes (for one Triton
version). Case number i depends only on the seed, the kind and i, so --start
resumes in the middle.

    python triton_facts.py --kinds algebra  --cases 10000 > facts.jsonl
    python triton_facts.py --kinds families --cases 250   > families.jsonl

--cases is per kind. Needs `pip install triton` (checked with 3.9.0) and a
system with fork(). See triton.md for the conventions.
"""

import argparse
import json
import os
import random
import re
import resource
import sys
import tempfile

try:
    import triton
    from triton.tools import LinearLayout
    from triton._C.libtriton import gluon_ir, ir
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.language.amd import AMDMFMALayout, AMDWMMALayout
except ImportError as why:
    sys.exit(f"triton_facts: Triton is needed ({why})")


# ---------------------------------------------------------------- layouts

def to_triton(layout):
    return LinearLayout.from_bases(
        [(name, bases) for name, bases in layout["in"]],
        [name for name, _ in layout["out"]],
        [size for _, size in layout["out"]],
        False,
    )


def from_triton(layout):
    return {
        "in": [[name, [list(b) for b in bases]] for name, bases in layout.bases],
        "out": [[name, size] for name, size in layout.out_dims],
    }


def split_bits(rng, total, names):
    """Share `total` bits between the names, at random; some get none."""
    bits = [0] * len(names)
    for _ in range(total):
        bits[rng.randrange(len(names))] += 1
    return bits


def pack(columns, ins, outs):
    """A layout from columns that are plain integers over all out bits.

    `ins` and `outs` are [(name, bits)]; the first out-dim has the low bits.
    """
    result_ins, at = [], 0
    for name, bits in ins:
        bases = []
        for column in columns[at:at + bits]:
            basis, rest = [], column
            for _, width in outs:
                basis.append(rest & ((1 << width) - 1))
                rest >>= width
            bases.append(basis)
        at += bits
        result_ins.append([name, bases])
    return {"in": result_ins, "out": [[name, 1 << width] for name, width in outs]}


def random_columns(rng, count, height):
    style = rng.choice(["dense", "dense", "units", "mixed", "sparse"])
    columns = []
    for _ in range(count):
        pick = style if style != "mixed" else rng.choice(["dense", "units", "sparse"])
        if height == 0 or rng.random() < 0.12:
            columns.append(0)
        elif pick == "units":
            columns.append(1 << rng.randrange(height))
        elif pick == "sparse":
            columns.append((1 << rng.randrange(height)) | (1 << rng.randrange(height)))
        else:
            columns.append(rng.getrandbits(height))
    return columns


def invertible_columns(rng, size):
    columns = [1 << i for i in range(size)]
    rng.shuffle(columns)
    if size >= 2:
        for _ in range(rng.choice([0, 1, 3, 3 * size])):
            i, j = rng.sample(range(size), 2)
            columns[i] ^= columns[j]
    return columns


def surjective_columns(rng, count, height):
    """`count` >= `height` columns that span everything."""
    columns = invertible_columns(rng, height)
    columns += random_columns(rng, count - height, height)
    if rng.random() < 0.7:
        rng.shuffle(columns)
    return columns


def names(rng, prefix, low, high):
    picked = [f"{prefix}{i}" for i in range(rng.randint(low, high))]
    rng.shuffle(picked)
    return picked


def sides(rng, in_names, out_names, in_total, out_total):
    ins = list(zip(in_names, split_bits(rng, in_total, in_names)))
    outs = list(zip(out_names, split_bits(rng, out_total, out_names)))
    return ins, outs


def random_layout(rng, in_names, out_names, most=10):
    ins, outs = sides(rng, in_names, out_names, rng.randint(0, most), rng.randint(0, most))
    height = sum(b for _, b in outs)
    return pack(random_columns(rng, sum(b for _, b in ins), height), ins, outs)


# ---------------------------------------------------------- algebra cases

def case_compose(rng):
    a = random_layout(rng, names(rng, "i", 1, 3), names(rng, "m", 1, 3))
    fate = rng.random()
    middle = [(name, size.bit_length() - 1) for name, size in a["out"]]
    if rng.random() < 0.5:
        rng.shuffle(middle)
    if fate < 0.15:  # the outer layout may be larger
        middle = [(n, b + rng.randint(0, 1)) for n, b in middle]
    elif fate < 0.18:  # but not smaller
        middle = [(n, max(0, b - 1)) for n, b in middle]
    elif fate < 0.20:  # and the names must agree
        middle[0] = ("elsewhere", middle[0][1])
    outs = names(rng, "o", 1, 3)
    outs = list(zip(outs, split_bits(rng, rng.randint(0, 10), outs)))
    columns = random_columns(rng, sum(b for _, b in middle), sum(b for _, b in outs))
    b = pack(columns, middle, outs)
    return {"op": "compose", "a": a, "b": b}, \
        lambda: from_triton(to_triton(a).compose(to_triton(b)))


def case_product(rng):
    def pool(prefix):
        few = [f"{prefix}{i}" for i in range(4)]
        return rng.sample(few, rng.randint(1, 3))
    a = random_layout(rng, pool("i"), pool("o"), 6)
    b = random_layout(rng, pool("i"), pool("o"), 6)
    return {"op": "product", "a": a, "b": b}, \
        lambda: from_triton(to_triton(a) * to_triton(b))


def case_invert(rng):
    in_names, out_names = names(rng, "i", 1, 3), names(rng, "o", 1, 3)
    if rng.random() < 0.05:
        a = random_layout(rng, in_names, out_names)
    else:
        size = rng.randint(0, 10)
        ins, outs = sides(rng, in_names, out_names, size, size)
        a = pack(invertible_columns(rng, size), ins, outs)
    return {"op": "invert", "a": a}, lambda: from_triton(to_triton(a).invert())


def case_pseudoinvert(rng):
    in_names, out_names = names(rng, "i", 1, 3), names(rng, "o", 1, 3)
    if rng.random() < 0.05:
        a = random_layout(rng, in_names, out_names)
    else:
        height = rng.randint(0, 8)
        width = height + rng.randint(0, 4)
        ins, outs = sides(rng, in_names, out_names, width, height)
        a = pack(surjective_columns(rng, width, height), ins, outs)
    return {"op": "pseudoinvert", "a": a}, \
        lambda: from_triton(to_triton(a).pseudoinvert())


def case_invert_and_compose(rng):
    out_names = names(rng, "o", 1, 3)
    height = rng.randint(0, 8)
    outs = list(zip(out_names, split_bits(rng, height, out_names)))
    fate = rng.random()

    b_ins = names(rng, "b", 1, 3)
    width = height + rng.randint(0, 4)
    b_ins = list(zip(b_ins, split_bits(rng, width, b_ins)))
    if fate < 0.05:
        columns = random_columns(rng, width, height)
    else:
        columns = surjective_columns(rng, width, height)
    b = pack(columns, b_ins, outs)

    a_ins = names(rng, "a", 1, 3)
    a_total = rng.randint(0, 10)
    a_ins = list(zip(a_ins, split_bits(rng, a_total, a_ins)))
    a = pack(random_columns(rng, a_total, height), a_ins, outs)

    for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
        # A dim of `a` with the name of one of `b`: the very same bases
        # (Triton then keeps that dim as it is) or other ones.
        shared, bases = rng.choice(b["in"])
        if shared in dict(a["in"]):
            continue
        if rng.random() < 0.6:
            new = [list(x) for x in bases]
        else:
            new = [list(x) for x in rng.choice(a["in"])[1]]
        a["in"].insert(rng.randint(0, len(a["in"])), [shared, new])

    if rng.random() < 0.4:  # the outer layout lists its out-dims otherwise
        order = list(range(len(out_names)))
        rng.shuffle(order)
        b = {"in": [[n, [[x[i] for i in order] for x in bs]] for n, bs in b["in"]],
             "out": [b["out"][i] for i in order]}
    if 0.05 <= fate < 0.12:  # the outer layout reaches further
        name, size = b["out"][0]
        b["out"][0] = [name, size * 2]
        if fate < 0.10:
            b["in"][-1][1].append([size] + [0] * (len(b["out"]) - 1))
    elif 0.12 <= fate < 0.14:  # the inner one does: refused
        name, size = a["out"][0]
        a["out"][0] = [name, size * 2]
    return {"op": "invert_and_compose", "a": a, "b": b}, \
        lambda: from_triton(to_triton(a).invert_and_compose(to_triton(b)))


def case_apply(rng):
    a = random_layout(rng, names(rng, "i", 1, 3), names(rng, "o", 1, 3))
    points = [{name: rng.randrange(1 << len(bases)) for name, bases in a["in"]}
              for _ in range(6)]

    def ask():
        layout = to_triton(a)
        return {
            "points": [[p, {k: int(v) for k, v in layout.apply(p).items()}] for p in points],
            "matrix": [list(row) for row in layout.get_matrix_view()],
            "surjective": layout.is_surjective(),
            "injective": layout.is_injective(),
            "invertible": layout.is_invertible(),
        }
    return {"op": "apply", "a": a}, ask


ALGEBRA = {
    "compose": case_compose,
    "product": case_product,
    "invert": case_invert,
    "invert_and_compose": case_invert_and_compose,
    "pseudoinvert": case_pseudoinvert,
    "apply": case_apply,
}


# --------------------------------------------------------------- families

def make_layout(p):
    """Gluon's layout object for a parameter dictionary."""
    kind = p["kind"]
    if kind == "blocked":
        return gl.BlockedLayout(p["size_per_thread"], p["threads_per_warp"],
                                p["warps_per_cta"], p["order"], p["cga"])
    if kind == "slice":
        return gl.SliceLayout(p["dim"], make_layout(p["parent"]))
    if kind == "mma":
        return gl.NVMMADistributedLayout(p["version"], p["warps_per_cta"],
                                         p["instr_shape"], p["cga"])
    if kind == "dot":
        return gl.DotOperandLayout(p["operand"], make_layout(p["parent"]), p["k_width"])
    if kind == "mfma":
        return AMDMFMALayout(p["version"], p["instr_shape"], p["transposed"],
                             p["warps_per_cta"], p["element_bits"],
                             p["tiles_per_warp"], p["cga"])
    if kind == "wmma":
        return AMDWMMALayout(p["version"], p["transposed"], p["warp_bases"],
                             p["reg_bases"], p["instr_shape"], p["cga"], p["rank"])
    if kind == "swizzled_shared":
        return gl.SwizzledSharedLayout(p["vec"], p["per_phase"], p["max_phase"],
                                       p["order"], p["cga"])
    if kind == "nvmma_shared":
        return gl.NVMMASharedLayout(p["swizzle_bytes"], p["element_bits"], p["rank"],
                                    p["transposed"], p["fp4_padded"], p["cga"])
    raise ValueError(kind)


_builder = []


def family_result(params, shape):
    if not _builder:
        context = ir.context()
        ir.load_dialects(context)
        _builder.extend([context, gluon_ir.GluonOpBuilder(context)])
    builder = _builder[1]
    answer = builder.to_linear_layout(make_layout(params)._to_ir(builder), shape)
    if isinstance(answer, gl.DistributedLinearLayout):
        ins = [["register", answer.reg_bases], ["lane", answer.lane_bases],
               ["warp", answer.warp_bases], ["block", answer.block_bases]]
        sizes = answer.shape
    else:
        ins = [["offset", answer.offset_bases], ["block", answer.block_bases]]
        sizes = answer.shape
        # The shape of a shared layout is only implied by its bases.
        if list(sizes) != list(shape):
            raise RuntimeError(f"bases reach {list(sizes)}, asked for {shape}")
    return {"in": [[n, [list(b) for b in bs]] for n, bs in ins],
            "out": [[f"dim{i}", int(s)] for i, s in enumerate(sizes)]}


def pow2(rng, low, high):
    return 1 << rng.randint(low, high)


def spread(rng, bits, rank):
    """Powers of two with a product of 2^bits."""
    sizes = [1] * rank
    for _ in range(bits):
        sizes[rng.randrange(rank)] *= 2
    return sizes


def random_cga(rng, rank, share=0.15):
    if rng.random() >= share:
        return []
    reach, bases = [1] * rank, []
    for _ in range(rng.randint(1, 2)):
        basis = [0] * rank
        dim = rng.randrange(rank + 1)
        if dim < rank:
            basis[dim] = reach[dim]
            reach[dim] *= 2
        bases.append(basis)
    return bases


def cga_reach(cga, rank):
    reach = [1] * rank
    for basis in cga:
        for dim, x in enumerate(basis):
            reach[dim] = max(reach[dim], 2 * x)
    return reach


def shape_near(rng, tile, low=-3, high=2, numel=1 << 14, least=None):
    """A shape around the tile: some dims smaller, some larger."""
    fit = rng.random() < 0.2
    shape = []
    for i, t in enumerate(tile):
        step = 0 if fit else rng.randint(low, high)
        size = t << step if step >= 0 else max(1, t >> -step)
        shape.append(max(size, least[i] if least else 1))
    while True:
        total = 1
        for s in shape:
            total *= s
        if total <= numel:
            return shape
        big = max(range(len(shape)), key=lambda d: shape[d])
        shape[big] //= 2


def times(*lists):
    out = [1] * len(lists[0])
    for one in lists:
        out = [a * b for a, b in zip(out, one)]
    return out


def gen_blocked(rng, rank=None):
    rank = rank or rng.randint(1, 3)
    order = list(range(rank))
    rng.shuffle(order)
    p = {"kind": "blocked",
         "size_per_thread": spread(rng, rng.randint(0, 4), rank),
         "threads_per_warp": spread(rng, rng.choice([5, 5, 5, 6]), rank),
         "warps_per_cta": spread(rng, rng.randint(0, 3), rank),
         "order": order, "cga": random_cga(rng, rank)}
    tile = times(p["size_per_thread"], p["threads_per_warp"], p["warps_per_cta"],
                 cga_reach(p["cga"], rank))
    return p, shape_near(rng, tile, least=cga_reach(p["cga"], rank))


def gen_mma2(rng, rank=None):
    rank = rank or rng.choice([2, 2, 2, 3])
    warps = spread(rng, rng.randint(0, 3), rank)
    instr = [1] * (rank - 2) + [16, 8]
    p = {"kind": "mma", "version": [2, 0], "warps_per_cta": warps,
         "instr_shape": instr, "cga": random_cga(rng, rank, 0.1)}
    reach = cga_reach(p["cga"], rank)
    return p, shape_near(rng, times(warps, instr, reach), least=reach)


def gen_mma3(rng, rank=2):
    warps = [4 * pow2(rng, 0, 1), pow2(rng, 0, 1)]
    n = pow2(rng, 3, 8)
    p = {"kind": "mma", "version": [3, 0], "warps_per_cta": warps,
         "instr_shape": [16, n, rng.choice([8, 16, 32])],
         "cga": random_cga(rng, 2, 0.1)}
    reach = cga_reach(p["cga"], 2)
    tile = times([16 * warps[0], n * warps[1]], reach)
    return p, shape_near(rng, tile, low=-2, high=1, least=reach, numel=1 << 15)


def gen_dot_mma2(rng, rank=None):
    parent, _ = gen_mma2(rng, rank)
    rank = len(parent["warps_per_cta"])
    operand, k_width = rng.randrange(2), rng.choice([1, 2, 4, 8])
    tile = list(parent["warps_per_cta"])
    k = rank - 1 if operand == 0 else rank - 2
    other = rank - 2 if operand == 0 else rank - 1
    tile[k] = 8 * k_width
    tile[other] *= 16 if operand == 0 else 8
    reach = cga_reach(parent["cga"], rank)
    reach[k] = 1
    tile = times(tile, reach)
    return {"kind": "dot", "operand": operand, "k_width": k_width, "parent": parent}, \
        shape_near(rng, tile, least=reach)


def gen_dot_mma3(rng, rank=2):
    parent, _ = gen_mma3(rng)
    k_width = rng.choice([1, 2, 4])
    reach = cga_reach(parent["cga"], 2)
    reach[1] = 1
    tile = times([16 * parent["warps_per_cta"][0], 8 * k_width], reach)
    return {"kind": "dot", "operand": 0, "k_width": k_width, "parent": parent}, \
        shape_near(rng, tile, low=-2, high=2, least=reach)


def gen_dot_blocked(rng, rank=None):
    rank = rank or rng.choice([2, 2, 3])
    parent, shape = gen_blocked(rng, rank)
    return {"kind": "dot", "operand": rng.randrange(2), "k_width": 0, "parent": parent}, shape


def gen_slice(rng):
    kinds = [(gen_blocked, [2, 3]), (gen_blocked, [2, 3]), (gen_mma2, [2, 3]),
             (gen_mma3, [2]), (gen_dot_mma2, [2, 3]), (gen_mfma, [2]),
             (gen_dot_mfma, [2]), (gen_wmma, [2])]
    make, ranks = rng.choice(kinds)
    rank = rng.choice(ranks)
    p, shape = make(rng, rank)
    while True:
        dim = rng.randrange(rank)
        shape = shape[:dim] + shape[dim + 1:]
        p, rank = {"kind": "slice", "dim": dim, "parent": p}, rank - 1
        if rank == 1 or rng.random() < 0.6:
            return p, shape


def gen_mfma(rng, rank=2):
    big = rng.choice([16, 16, 32, 32, 0])
    if big == 0:
        instr = [4, 64, 4] if rng.random() < 0.5 else [64, 4, 4]
    else:
        instr = [big, big, 16 if big == 16 else 8]
    transposed = True if instr[0] == 64 else rng.random() < 0.5
    if instr[0] == 4:
        transposed = False
    bits = 64 if instr == [16, 16, 16] and rng.random() < 0.2 else 32
    warps = spread(rng, rng.randint(0, 3), rank)
    tiles = [1] * rank if rng.random() < 0.7 else spread(rng, rng.randint(1, 2), rank)
    p = {"kind": "mfma", "version": rng.choice([1, 2, 3, 4]) if bits == 32 else rng.choice([2, 3, 4]),
         "instr_shape": instr, "transposed": transposed,
         "warps_per_cta": warps, "element_bits": bits, "tiles_per_warp": tiles,
         "cga": random_cga(rng, rank, 0.08)}
    reach = cga_reach(p["cga"], rank)
    return p, shape_near(rng, times(warps, tiles, instr[:2], reach), least=reach)


def gen_dot_mfma(rng, rank=2):
    parent, _ = gen_mfma(rng)
    while parent["instr_shape"][0] not in (16, 32) or parent["element_bits"] == 64:
        parent, _ = gen_mfma(rng)
    operand, k_width = rng.randrange(2), rng.choice([2, 4, 8, 16])
    side = parent["instr_shape"][0]
    lanes = 64 // side
    reach = cga_reach(parent["cga"], 2)
    tile = times([side, side], parent["warps_per_cta"], parent["tiles_per_warp"], reach)
    k = 1 - operand
    tile[k] = k_width * lanes * reach[k]
    return {"kind": "dot", "operand": operand, "k_width": k_width, "parent": parent}, \
        shape_near(rng, tile, least=reach)


def gen_wmma(rng, rank=2):
    version = rng.choice([1, 2, 3])
    instr = [16, 16, 16] if version < 3 else [16, 16, 32]
    reach = [1, 1]

    def some(most):
        bases = []
        for _ in range(rng.randint(0, most)):
            dim = rng.randrange(2)
            basis = [0, 0]
            basis[dim] = reach[dim]
            reach[dim] *= 2
            bases.append(basis)
        return bases
    reg_bases = some(1) if rng.random() < 0.3 else []
    warp_bases = some(3)
    p = {"kind": "wmma", "version": version, "transposed": rng.random() < 0.5,
         "warp_bases": warp_bases, "reg_bases": reg_bases, "instr_shape": instr,
         "cga": random_cga(rng, 2, 0.08), "rank": 2}
    blocks = cga_reach(p["cga"], 2)
    return p, shape_near(rng, times(instr[:2], reach, blocks), low=-2, least=blocks)


def gen_dot_wmma(rng, rank=2):
    parent, _ = gen_wmma(rng)
    operand = rng.randrange(2)
    k_width = rng.choice({1: [8, 16], 2: [4, 8, 16], 3: [2, 4, 8, 16]}[parent["version"]])
    reach = [16, 16]
    for basis in parent["warp_bases"] + parent["reg_bases"]:
        for d in range(2):
            reach[d] = max(reach[d], 32 * basis[d])
    reach[1 - operand] = 32
    blocks = cga_reach(parent["cga"], 2)
    return {"kind": "dot", "operand": operand, "k_width": k_width, "parent": parent}, \
        shape_near(rng, times(reach, blocks), low=-2, least=blocks)


def gen_swizzled_shared(rng):
    rank = rng.choice([1, 2, 2, 2, 3])
    order = list(range(rank))
    rng.shuffle(order)
    p = {"kind": "swizzled_shared", "vec": pow2(rng, 0, 4), "per_phase": pow2(rng, 0, 3),
         "max_phase": pow2(rng, 0, 4), "order": order, "cga": random_cga(rng, rank, 0.1)}
    reach = cga_reach(p["cga"], rank)
    shape = [pow2(rng, 0, 7) * r for r in reach]
    shape[order[0]] *= 2  # Gluon has no shared layout of a single element
    return p, shape_near(rng, shape, low=0, high=0)


def gen_nvmma_shared(rng):
    rank = rng.choice([1, 2, 2, 2, 2, 3])
    bits = rng.choice([8, 16, 16, 32])
    swizzle = rng.choice([0, 32, 64, 128]) if rank > 1 else 0
    transposed = rank == 2 and rng.random() < 0.4
    fp4 = rank == 2 and not transposed and rng.random() < 0.12
    if fp4:
        bits, swizzle = 8, 128
    p = {"kind": "nvmma_shared", "swizzle_bytes": swizzle, "element_bits": bits,
         "rank": rank, "transposed": transposed, "fp4_padded": fp4,
         "cga": random_cga(rng, rank, 0.06)}
    minor = max(swizzle, 16) * 8 // bits
    if fp4:
        minor = 64
    shape = [pow2(rng, 0, 2) for _ in range(rank - 1)] + [minor * pow2(rng, 0, 2)]
    if rank > 1:
        shape[-2] = pow2(rng, 3, 7)
    if rank == 3 and rng.random() < 0.3:
        shape[-2] = pow2(rng, 0, 3)
        shape[0] = pow2(rng, 0, 5)
    if rng.random() < 0.02:
        shape[-1] = max(2, shape[-1] // 8)
    while rng.random() < 0.15:
        shape[rng.randrange(rank)] *= 8
    if transposed:
        shape = shape[-1:] + shape[:-1]
    return p, times(shape, cga_reach(p["cga"], rank))


FAMILIES = {
    "blocked": gen_blocked,
    "slice": gen_slice,
    "mma2": gen_mma2,
    "mma3": gen_mma3,
    "dot_mma2": gen_dot_mma2,
    "dot_mma3": gen_dot_mma3,
    "dot_blocked": gen_dot_blocked,
    "swizzled_shared": gen_swizzled_shared,
    "nvmma_shared": gen_nvmma_shared,
    "mfma": gen_mfma,
    "dot_mfma": gen_dot_mfma,
    "wmma": gen_wmma,
    "dot_wmma": gen_dot_wmma,
}


def family_case(family):
    def case(rng):
        params, shape = FAMILIES[family](rng)
        head = {"op": "family", "family": family, "params": params, "shape": shape}
        return head, lambda: family_result(params, shape)
    return case


# ------------------------------------------------------------------ running

def complaint(text):
    """The line of Triton's dying words that says why."""
    lines = [x.strip() for x in text.splitlines() if x.strip()]
    for line in lines:
        found = re.search(r"Assertion `(.*)' failed", line)
        if found:
            return "assertion: " + found.group(1)
    for line in lines:
        if line.startswith("LLVM ERROR:"):
            return line[len("LLVM ERROR:"):].strip()
    return lines[0] if lines else "aborted"


def run_kind(kind, make, seed, start, count, out):
    """Asks the cases of one kind in a child; when Triton aborts, notes that
    and goes on after the case with a new child."""
    end = start + count
    refused = 0
    while start < end:
        read, write = os.pipe()
        words = tempfile.TemporaryFile()
        out.flush()
        child = os.fork()
        if child == 0:
            os.close(read)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.dup2(words.fileno(), 2)
            with os.fdopen(write, "w") as pipe:
                for i in range(start, end):
                    head, ask = make(random.Random(f"{seed}/{kind}/{i}"))
                    try:
                        head["result"] = ask()
                    except (AssertionError, RuntimeError, ValueError) as why:
                        head["result"] = {"error": str(why).strip()}
                    pipe.write(json.dumps(head) + "\n")
                    pipe.flush()
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            for line in pipe:
                if line.endswith("\n"):
                    out.write(line)
                    refused += '"result": {"error"' in line
                    start += 1
        _, status = os.waitpid(child, 0)
        if start < end:
            if status == 0:
                sys.exit(f"triton_facts: the child for {kind} ended early")
            if not os.WIFSIGNALED(status):
                words.seek(0)
                sys.exit(f"triton_facts: {kind} case {start}:\n" + words.read().decode())
            words.seek(0)
            head, _ = make(random.Random(f"{seed}/{kind}/{start}"))
            head["result"] = {"error": complaint(words.read().decode(errors="replace"))}
            out.write(json.dumps(head) + "\n")
            refused += 1
            start += 1
        words.close()
    return refused


def main():
    kinds = {**ALGEBRA, **{f: family_case(f) for f in FAMILIES}}
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=100, help="cases of each kind")
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    parser.add_argument("--kinds", default="algebra,families",
                        help="algebra, families, or names: " + ", ".join(kinds))
    args = parser.parse_args()
    picked = []
    for word in args.kinds.split(","):
        more = {"algebra": list(ALGEBRA), "families": list(FAMILIES)}.get(word, [word])
        picked += [k for k in more if k not in picked]
    for kind in picked:
        if kind not in kinds:
            parser.error(f"no kind named {kind!r}")
    print(f"triton {triton.__version__}", file=sys.stderr)
    for kind in picked:
        refused = run_kind(kind, kinds[kind], args.seed, args.start, args.cases, sys.stdout)
        print(f"{kind}: {args.cases} cases, {refused} refused", file=sys.stderr)
    sys.stdout.flush()
    os._exit(0)  # past the report of leaked objects that the bindings print


if __name__ == "__main__":
    main()
