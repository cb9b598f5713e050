#!/usr/bin/env python3
"""The conventions of triton.md as a small program, and its check.

Reads the lines of triton_facts.py, works every answer out again without
Triton, and says how many agree, kind by kind:

    python triton_facts.py --cases 1000 | python triton_model.py
    python triton_model.py facts.jsonl families.jsonl

Ends with status 1 when a line disagrees. Needs nothing but Python.
"""

import json
import sys
from collections import Counter


class Refused(Exception):
    pass


def log2(n):
    assert n > 0 and n & (n - 1) == 0, n
    return n.bit_length() - 1


# A layout in JSON's shape: {"in": [[name, bases]], "out": [[name, size]]}.
# Bases here are lists over the out-dims, in their order.

def flat_columns(layout, out_order=None):
    """One integer per in-bit; the first out-dim has the low bits."""
    outs = [n for n, _ in layout["out"]]
    sizes = dict(layout["out"])
    place, at = {}, 0
    for name in out_order or outs:
        place[name] = at
        at += log2(sizes[name])
    return [sum(x << place[n] for n, x in zip(outs, basis))
            for _, bases in layout["in"] for basis in bases]


def unflatten(columns, ins, outs):
    """Back: `ins` [(name, bits)], `outs` [(name, size)]."""
    result, at = [], 0
    for name, bits in ins:
        bases = []
        for column in columns[at:at + bits]:
            basis = []
            for _, size in outs:
                basis.append(column & (size - 1))
                column >>= log2(size)
            bases.append(basis)
        at += bits
        result.append([name, bases])
    return {"in": result, "out": [[n, s] for n, s in outs]}


def in_bits(layout):
    return [(n, len(bases)) for n, bases in layout["in"]]


def rank_of(columns):
    rows = []
    for column in columns:
        for row in rows:
            column = min(column, column ^ row)
        if column:
            rows.append(column)
    return len(rows)


def transposed_outs(layout, order):
    at = {n: i for i, (n, _) in enumerate(layout["out"])}
    pick = [at[n] for n in order]
    return {"in": [[n, [[b[i] for i in pick] for b in bs]] for n, bs in layout["in"]],
            "out": [layout["out"][i] for i in pick]}


# -------------------------------------------------------------- operations

def apply(layout, point):
    total = [0] * len(layout["out"])
    for name, bases in layout["in"]:
        for bit, basis in enumerate(bases):
            if point[name] >> bit & 1:
                total = [a ^ b for a, b in zip(total, basis)]
    return total


def compose(a, b):
    """First a, then b."""
    if sorted(n for n, _ in a["out"]) != sorted(n for n, _ in b["in"]):
        raise Refused("names")
    bits = dict(in_bits(b))
    if any(log2(s) > bits[n] for n, s in a["out"]):
        raise Refused("sizes")
    names = [n for n, _ in a["out"]]
    ins = [[n, [apply(b, dict(zip(names, basis))) for basis in bases]]
           for n, bases in a["in"]]
    return {"in": ins, "out": b["out"]}


def merge_names(x, y):
    """The order of dims in a product."""
    result, i, j = [], 0, 0
    while i < len(x) or j < len(y):
        if i < len(x) and x[i] in result:
            i += 1
        elif j < len(y) and y[j] in result:
            j += 1
        elif i == len(x):
            result.append(y[j])
        elif j == len(y):
            result.append(x[i])
        elif x[i] not in y:
            result.append(x[i])
        elif y[j] not in x:
            result.append(y[j])
        elif y.index(x[i]) <= x.index(y[j]):
            result.append(x[i])
        else:
            result.append(y[j])
    return result


def product(a, b):
    ins = merge_names([n for n, _ in a["in"]], [n for n, _ in b["in"]])
    outs = merge_names([n for n, _ in a["out"]], [n for n, _ in b["out"]])
    a_size, b_size = dict(a["out"]), dict(b["out"])
    result = []
    for name in ins:
        bases = []
        for side, shift in ((a, {}), (b, a_size)):
            own = [n for n, _ in side["out"]]
            for basis in dict(side["in"]).get(name, []):
                value = dict(zip(own, basis))
                bases.append([value.get(n, 0) * shift.get(n, 1) for n in outs])
        result.append([name, bases])
    return {"in": result, "out": [[n, a_size.get(n, 1) * b_size.get(n, 1)] for n in outs]}


def solve(columns, targets):
    """For each target the combination of `columns` (a bit set) that makes it,
    using only the columns that are independent of the earlier ones."""
    basis = []  # (value, combination), highest bits distinct
    def reduce(value, combination):
        for v, c in basis:
            if value ^ v < value:
                value, combination = value ^ v, combination ^ c
        return value, combination
    for i, column in enumerate(columns):
        value, combination = reduce(column, 1 << i)
        if value:
            basis.append((value, combination))
            basis.sort(reverse=True)
    answers = []
    for target in targets:
        value, combination = reduce(target, 0)
        if value:
            raise Refused("not covered")
        answers.append(combination)
    return answers


def invert(a):
    columns = flat_columns(a)
    height = sum(log2(s) for _, s in a["out"])
    if len(columns) != height or rank_of(columns) != height:
        raise Refused("not invertible")
    return unflatten(solve(columns, [1 << i for i in range(height)]),
                     [(n, log2(s)) for n, s in a["out"]],
                     [(n, 1 << bits) for n, bits in in_bits(a)])


def invert_and_compose(a, b):
    """x -> some y with b(y) = a(x)."""
    order = [n for n, _ in a["out"]]
    b_size = dict(b["out"])
    if sorted(order) != sorted(b_size):
        raise Refused("names")
    if any(b_size[n] < s for n, s in a["out"]):
        raise Refused("sizes")
    b = transposed_outs(b, order)
    # An in-dim with the same name and the same bases on both sides stays
    # itself, if no other in-dim of either side touches an out bit of it.
    kept = []
    for name, bases in a["in"]:
        if dict(b["in"]).get(name) != bases:
            continue
        own = touched(b, lambda n: n == name)
        others = [touched(x, lambda n: n != name) for x in (a, b)]
        if all(u & (v | w) == 0 for u, v, w in zip(own, *others)):
            kept.append(name)
    return solve_without(a, b, kept)


def touched(layout, want):
    """For every out-dim the bits that the wanted in-dims reach."""
    bits = [0] * len(layout["out"])
    for name, bases in layout["in"]:
        if want(name):
            for basis in bases:
                bits = [x | y for x, y in zip(bits, basis)]
    return bits


def solve_without(a, b, kept):
    a_left = {"in": [d for d in a["in"] if d[0] not in kept], "out": b["out"]}
    b_left = {"in": [d for d in b["in"] if d[0] not in kept], "out": b["out"]}
    part = unflatten(solve(flat_columns(b_left), flat_columns(a_left)), in_bits(a_left),
                     [(n, 1 << bits) for n, bits in in_bits(b_left)])
    left = [n for n, _ in b_left["in"]]
    images = {n: [dict(zip(left, basis)) for basis in bases] for n, bases in part["in"]}
    for name in kept:
        images[name] = [{name: 1 << i} for i in range(dict(in_bits(b))[name])]
    return {"in": [[n, [[v.get(o, 0) for o, _ in b["in"]] for v in images[n]]]
                   for n, _ in a["in"]],
            "out": [[n, 1 << bits] for n, bits in in_bits(b)]}


def pseudoinvert(a):
    height = sum(log2(s) for _, s in a["out"])
    outs = [(n, log2(s)) for n, s in a["out"]]
    answers = solve(flat_columns(a), [1 << i for i in range(height)])
    return unflatten(answers, outs, [(n, 1 << bits) for n, bits in in_bits(a)])


def facts_of(a, points):
    columns = flat_columns(a)
    # The matrix has the first out-dim's bits in its first rows.
    height = sum(log2(s) for _, s in a["out"])
    rank = rank_of(columns)
    outs = [n for n, _ in a["out"]]
    return {
        "points": [[p, dict(zip(outs, apply(a, p)))] for p in points],
        "matrix": [[c >> r & 1 for c in columns] for r in range(height)],
        "surjective": rank == height,
        "injective": rank == len(columns),
        "invertible": rank == height == len(columns),
    }


# ---------------------------------------------------------------- families

def inner_shape(cga, shape):
    """What one block holds: the shape over the extents the blocks reach."""
    reach = [1] * len(shape)
    for basis in cga:
        reach = [max(r, 2 * x) if x < s else r for r, x, s in zip(reach, basis, shape)]
    return [s // r for s, r in zip(shape, reach)]


class Tile:
    """Bases placed one after the other, each with one out-dim; `size[d]` is
    the extent reached in out-dim d."""

    def __init__(self, rank, ins):
        self.rank, self.size = rank, [1] * rank
        self.ins = {n: [] for n in ins}

    def basis(self, dim, value):
        return [value if d == dim else 0 for d in range(self.rank)]

    def run(self, name, dim, count):
        """The next `count` places of `dim`, bit by bit."""
        for _ in range(log2(count)):
            self.ins[name].append(self.basis(dim, self.size[dim]))
            self.size[dim] *= 2
        return self

    def still(self, name, count):
        """`count` holders of the same element."""
        self.ins[name] += [[0] * self.rank] * log2(count)
        return self

    def put(self, name, dim, values):
        """Bases at given places of `dim`."""
        for value in values:
            self.ins[name].append(self.basis(dim, value))
            self.size[dim] = max(self.size[dim], 2 * value)
        return self

    def fit(self, shape, cga, order, drop=False):
        """Repeat in registers (or offsets) up to the shape, in dim order
        `order`; make zero what reaches over it (with `drop`, registers that
        do so go away); put the blocks on top."""
        blocks = [[x if x < s else 0 for x, s in zip(basis, shape)] for basis in cga]
        inner = inner_shape(cga, shape)
        first = next(iter(self.ins))
        for dim in order:
            while self.size[dim] < inner[dim]:
                self.run(first, dim, 2)
        result = []
        for name, bases in self.ins.items():
            kept = []
            for basis in bases:
                cut = [x if x < s else 0 for x, s in zip(basis, inner)]
                gone = cut != basis and not any(cut)
                if not (drop and gone and name == "register"):
                    kept.append(cut)
            result.append([name, kept])
        top = [[x * i for x, i in zip(b, inner)] for b in blocks]
        result.append(["block", top])
        return {"in": result, "out": [[f"dim{d}", s] for d, s in enumerate(shape)]}


THREADS = ("register", "lane", "warp")


def blocked(p, shape, whole=None):
    """`whole`: a dim that every thread holds whole (an operand's k)."""
    rank, order = len(shape), p["order"]
    tile = Tile(rank, THREADS)
    for name, counts in (("register", p["size_per_thread"]),
                         ("lane", p["threads_per_warp"]), ("warp", p["warps_per_cta"])):
        for d in order:
            if d != whole:
                tile.run(name, d, counts[d])
            elif name == "register":
                tile.run(name, d, shape[d])
            else:
                tile.still(name, counts[d])
    return tile.fit(shape, p["cga"], order, drop=whole is None)


def minor_first(rank):
    return list(range(rank - 1, -1, -1))


def mma_warp_order(p):
    rank = len(p["warps_per_cta"])
    return [0, 1] if p["version"][0] == 3 else minor_first(rank)


def mma(p, shape):
    rank = len(shape)
    m, n = rank - 2, rank - 1
    tile = Tile(rank, THREADS)
    tile.run("register", n, 2).run("lane", n, 4).run("lane", m, 8).run("register", m, 2)
    wide = p["instr_shape"][1] if p["version"][0] == 3 else 8
    tile.run("register", n, wide // 8)
    for d in mma_warp_order(p):
        tile.run("warp", d, p["warps_per_cta"][d])
    return tile.fit(shape, p["cga"], minor_first(rank))


def without(cga, dim):
    return [[0 if d == dim else x for d, x in enumerate(b)] for b in cga]


def dot(p, shape):
    parent, rank = p["parent"], len(shape)
    k = rank - 1 if p["operand"] == 0 else rank - 2
    other = rank - 2 if p["operand"] == 0 else rank - 1
    width = p["k_width"]
    # Every block holds k whole, except with an mfma parent.
    cga = parent["cga"] if parent["kind"] == "mfma" else without(parent["cga"], k)
    if parent["kind"] == "blocked":
        return blocked(dict(parent, cga=cga), shape, whole=k)
    tile = Tile(rank, THREADS)
    if parent["kind"] == "mma":
        tile.run("register", k, width).run("lane", k, 4).run("lane", other, 8)
        if p["operand"] == 0:
            tile.run("register", other, 2)
        tile.run("register", k, 2)
        warps = parent["warps_per_cta"]
        for d in mma_warp_order(parent):
            if d == k:
                tile.still("warp", warps[d])
            else:
                tile.run("warp", d, warps[d])
        repeat = [k, other] + list(range(rank - 3, -1, -1))
        return tile.fit(shape, cga, repeat)
    if parent["kind"] == "mfma":
        return mfma_operand(tile, p, shape, k, other, cga)
    return wmma_operand(tile, p, shape, k, other, cga)


def mfma(p, shape):
    rank = len(shape)
    m, n = rank - 2, rank - 1
    side_m, side_n = p["instr_shape"][:2]
    # A column of the product lies in one lane; transposed, a row does.
    down, across = (n, m) if p["transposed"] else (m, n)
    tile = Tile(rank, THREADS)
    if p["element_bits"] == 64:
        tile.put("register", down, [4, 8]).put("lane", across, [1, 2, 4, 8])
        tile.put("lane", down, [1, 2])
    elif (side_m, side_n) == (32, 32):
        tile.put("register", down, [1, 2, 8, 16])
        tile.put("lane", across, [1, 2, 4, 8, 16]).put("lane", down, [4])
    elif (side_m, side_n) == (16, 16):
        tile.put("register", down, [1, 2])
        tile.put("lane", across, [1, 2, 4, 8]).put("lane", down, [4, 8])
    else:
        tile.put("register", down, [1, 2]).put("lane", across, [1, 2, 4, 8, 16, 32])
    return mfma_rest(tile, p, shape, p["cga"])


def mfma_rest(tile, p, shape, cga, still=None):
    """Dim after dim, the minor first: the tiles of a warp, the warps, and the
    repeats up to the shape."""
    order = minor_first(len(shape))
    for d in order:
        if d == still:
            tile.still("warp", p["warps_per_cta"][d])
        else:
            tile.run("register", d, p["tiles_per_warp"][d])
            tile.run("warp", d, p["warps_per_cta"][d])
        # Up to the shape of all blocks, not of one; `fit` makes the rest 0.
        while still is None and d == order[0] and tile.size[d] < shape[d]:
            tile.run("register", d, 2)
    return tile.fit(shape, cga, order)


def mfma_operand(tile, p, shape, k, other, cga):
    parent = p["parent"]
    side = parent["instr_shape"][0]
    tile.run("register", k, p["k_width"]).run("lane", other, side).run("lane", k, 64 // side)
    while tile.size[k] < shape[k]:
        tile.run("register", k, 2)
    return mfma_rest(tile, parent, shape, cga, still=k)


def wmma(p, shape):
    m, n = 0, 1
    down, across = (n, m) if p["transposed"] else (m, n)
    tile = Tile(2, THREADS)
    if p["version"] == 1:
        tile.put("register", down, [2, 4, 8]).put("lane", across, [1, 2, 4, 8])
        tile.put("lane", down, [1])
    else:
        tile.put("register", down, [1, 2, 4]).put("lane", across, [1, 2, 4, 8])
        tile.put("lane", down, [8])
    return wmma_rest(tile, p, shape, p["cga"])


def wmma_rest(tile, p, shape, cga, still=None):
    unit = list(tile.size)
    for name, bases in (("register", p["reg_bases"]), ("warp", p["warp_bases"])):
        for basis in bases:
            place = [0 if d == still else x * u for d, (x, u) in enumerate(zip(basis, unit))]
            if name == "register" and not any(place):
                continue
            tile.ins[name].append(place)
            tile.size = [max(s, 2 * x) for s, x in zip(tile.size, place)]
    return tile.fit(shape, cga, [1, 0] if still is None else [still, 1 - still])


def wmma_operand(tile, p, shape, k, other, cga):
    parent = p["parent"]
    if parent["version"] == 1:
        tile.run("register", k, p["k_width"]).run("lane", other, 16).still("lane", 2)
    else:
        tile.run("register", k, p["k_width"]).run("lane", other, 16).run("lane", k, 2)
    depth = 2 * p["k_width"]
    while depth < parent["instr_shape"][2]:
        tile.run("register", k, 2)
        depth *= 2
    return wmma_rest(tile, parent, shape, cga, still=k)


def slice_of(p, shape):
    """The parent on a shape with extent 1 in the dim, then that dim away."""
    d = p["dim"]
    parent = family(p["parent"], shape[:d] + [1] + shape[d:])
    names = [f"dim{i}" for i in range(len(shape))]
    ins = [[n, [b[:d] + b[d + 1:] for b in bs]] for n, bs in parent["in"]]
    ins[0][1] = [b for b in ins[0][1] if any(b)]
    return {"in": ins,
            "out": [[n, s] for n, s in zip(names, shape)]}


def swizzled_shared(p, shape):
    rank, order = len(shape), p["order"]
    inner = inner_shape(p["cga"], shape)
    tile = Tile(rank, ["offset"])
    if rank == 1:
        return tile.run("offset", 0, inner[0]).fit(shape, p["cga"], [0])
    col, row = order[:2]
    tile.run("offset", col, inner[col])
    for bit in range(log2(inner[row])):
        r = 1 << bit
        basis = tile.basis(row, r)
        basis[col] = p["vec"] * (r // p["per_phase"] % p["max_phase"]) % inner[col]
        tile.ins["offset"].append(basis)
    tile.size[row] = inner[row]
    for d in order[2:]:
        tile.run("offset", d, inner[d])
    return tile.fit(shape, p["cga"], order)


def nvmma_shared(p, shape):
    rank = len(shape)
    inner = inner_shape(p["cga"], shape)
    tile = Tile(rank, ["offset"])
    if rank == 1:
        return tile.run("offset", 0, inner[0]).fit(shape, p["cga"], [0])
    order = list(range(rank - 1, -1, -1))  # minor dim first
    if p["transposed"]:
        order = [0, 1]
    col = order[0]
    unit = 16 * 8 // p["element_bits"]  # elements of 16 bytes
    packed = 2 if p["fp4_padded"] else 1
    # One copy unit is at most 256 elements along every dim; the units follow
    # one another in the order of the dims, dim0 first (without a swizzle the
    # minor dim comes last, transposed or not).
    natural = list(range(rank))
    part = [min(n, 256) for n in inner]
    if p["swizzle_bytes"] == 0:
        for d in order:
            tile.run("offset", d, part[d])
        return tile.fit(shape, p["cga"], order[::-1])
    width = p["swizzle_bytes"] * 8 // p["element_bits"] // packed
    if inner[col] < width:
        raise Refused("too narrow")
    rows = 1
    for d in order[1:]:
        rows *= part[d]
    if rows < 8:
        raise Refused("too few rows")
    tile.run("offset", col, unit // packed)
    if p["fp4_padded"]:
        tile.still("offset", 2)
    tile.run("offset", col, width // (unit // packed))
    per_phase, max_phase = {32: (4, 2), 64: (2, 4), 128: (1, 8)}[p["swizzle_bytes"]]
    r = 1  # the row among all rows, the minor row dim first
    for d in order[1:]:
        for bit in range(log2(part[d])):
            basis = tile.basis(d, 1 << bit)
            if r < 8:
                basis[col] = unit // packed * (r // per_phase % max_phase)
            tile.ins["offset"].append(basis)
            r *= 2
        tile.size[d] = part[d]
    return tile.fit(shape, p["cga"], natural)


def family(p, shape):
    return {"blocked": blocked, "slice": slice_of, "mma": mma, "dot": dot, "mfma": mfma,
            "wmma": wmma, "swizzled_shared": swizzled_shared,
            "nvmma_shared": nvmma_shared}[p["kind"]](p, shape)


# ----------------------------------------------------------------- checking

def answer(case):
    op = case["op"]
    if op == "family":
        return family(case["params"], case["shape"])
    if op == "apply":
        points = [p for p, _ in case["result"]["points"]]
        return facts_of(case["a"], points)
    two = {"compose": compose, "product": product, "invert_and_compose": invert_and_compose}
    if op in two:
        return two[op](case["a"], case["b"])
    return {"invert": invert, "pseudoinvert": pseudoinvert}[op](case["a"])


def main():
    agree, differ = Counter(), Counter()
    streams = [open(name) for name in sys.argv[1:]] or [sys.stdin]
    for stream in streams:
        for line in stream:
            case = json.loads(line)
            kind = case.get("family", case["op"])
            try:
                mine = answer(case)
            except Refused:
                mine = None
            except Exception as why:  # a case the model cannot do at all
                mine = {"failed": repr(why)}
            theirs = None if "error" in case["result"] else case["result"]
            if mine == theirs:
                agree[kind] += 1
                continue
            differ[kind] += 1
            if differ[kind] <= 3:
                about = {k: v for k, v in case.items() if k != "result"}
                print("DIFFERS", json.dumps(about), "\n  triton", json.dumps(case["result"]),
                      "\n  model ", json.dumps(mine))
    for kind in sorted(set(agree) | set(differ)):
        print(f"{kind}: {agree[kind]} agree, {differ[kind]} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
