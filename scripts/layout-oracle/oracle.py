#!/usr/bin/env python3
"""Compares the layout calculator with NVIDIA's CuTe DSL on random layouts, as functions, point by point.

    scripts/layout-oracle/oracle.py [--cases 10000] [--seed 1] [--operations a,b] [--bin target/release/tilewright]

For each operation, random arguments go to `tilewright layout - --json` and to the DSL (`pip install nvidia-cutlass-dsl`;
no GPU is needed). Both answers are checked against the operation's law by brute force, whether or not they agree, so that
each disagreement is known to be of a class (DISAGREEMENTS.md); the classes that may occur are listed in ALLOWED. The exit
code is 0 where nothing of ours is wrong and no other class occurred.
"""

import argparse
import collections
import json
import pathlib
import queue
import random
import subprocess
import sys
import threading
import time

import numpy as np

import layouts as ly
from layouts import Layout

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT = 60
HUGE = 1 << 20


class Case:
    """What is asked of both: our expression, and the peer's arguments; `args` are the arguments for the law."""

    def __init__(self, expression, args, peer=None):
        self.expression, self.args = expression, args
        self.peer = [ly.json_of(a) for a in (args if peer is None else peer)]


def tiler_text(t):
    if isinstance(t, tuple) and not isinstance(t, Layout):
        return "<" + ",".join(tiler_text(e) for e in t) + ">"
    return str(t)


def call(name, *args):
    return f"{name}(" + ", ".join(ly.text(a) if not isinstance(a, Layout) else str(a) for a in args) + ")"


# The generators: one case from a random source.


def g_unary(name, **how):
    def generate(rng):
        a = ly.random_layout(rng, **how)
        return Case(f"{name}({a})", [a])

    return generate


def coordinate(rng, shape):
    if not isinstance(shape, tuple) or rng.random() < 0.25:
        return rng.randrange(ly.product(shape))
    return tuple(coordinate(rng, s) for s in shape)


def g_crd2idx(rng):
    a = ly.random_layout(rng)
    c = coordinate(rng, a.shape)
    return Case(f"eval({a}, {ly.text(c)})", [a, c], [a, [c]])


def g_idx2crd(rng):
    a = ly.random_layout(rng)
    n = rng.randrange(ly.size(a))
    return Case(f"idx2crd({n}, {ly.text(a.shape)})", [n, a.shape])


def g_size(rng):
    a = ly.random_layout(rng)
    return Case(f"size({a})", [a])


def profile(rng, shape):
    if not isinstance(shape, tuple) or rng.random() < 0.4:
        return 1
    return tuple(profile(rng, s) for s in shape)


def g_coalesce_by(rng):
    a = ly.random_layout(rng)
    p = tuple(profile(rng, s) for s in a.shape) if isinstance(a.shape, tuple) else 1
    return Case(f"coalesce({a}, {ly.text(p)})", [a, p])


def g_composition(rng):
    a = ly.random_layout(rng)
    kind = rng.random()
    if kind < 0.75:
        b = ly.into(rng, a)
    elif kind < 0.9:
        b = ly.random_layout(rng, most=max(1, min(64, ly.size(a))), kinds=["compact", "permuted", "gaps", "zeros"])
    else:
        b = ly.random_layout(rng, most=32, kinds=["any", "padded", "gaps"], count=rng.choice([1, 2, 3]))
    return Case(f"compose({a}, {b})", [a, b])


def modewise(rng, a, distinct=False):
    """A tiler: a number or a layout for each mode, or only for the first ones."""
    ms = ly.modes(a)
    if len(ms) > 1 and rng.random() < 0.15:
        ms = ms[: rng.randrange(1, len(ms)) + 1]
    tiles = []
    for m in ms:
        kind = rng.random()
        if kind < 0.6:
            tiles.append(ly.divisor(rng, ly.size(m)))
        elif kind < 0.9:
            tiles.append(ly.into(rng, m, distinct))
        else:
            tiles.append(rng.choice([2, 3, 4, Layout(2, 2), Layout(4, 1), Layout(3, 2)]))
    return tuple(tiles)


def with_modes(rng, **how):
    while True:
        a = ly.random_layout(rng, **how)
        if isinstance(a.shape, tuple):
            return a


def g_composition_tiler(rng):
    a = with_modes(rng)
    t = modewise(rng, a)
    return Case(f"compose({a}, {tiler_text(t)})", [a, t])


def g_complement(rng):
    a = ly.random_layout(rng, most=256, kinds=ly.INJECTIVE * 2 + ["padded", "zeros", "zeros", "any", "negative"])
    top = max(1, int(ly.values(a).max()) + 1)
    n = rng.choice([top, top * rng.randint(1, 4), rng.randint(1, 2 * top), ly.size(a)])
    return Case(f"complement({a}, {n})", [a, n])


def g_inverse(name):
    return g_unary(name, kinds=["compact"] * 2 + ["permuted"] * 7 + ["gaps"] * 6 + ["zeros"] * 3 + ["padded", "any", "negative"])


def g_divide(name):
    def generate(rng):
        if rng.random() < 0.5:
            a = ly.random_layout(rng)
            kind = rng.random()
            if kind < 0.3:
                t = Layout(ly.divisor(rng, ly.size(a)), 1)
            elif kind < 0.9:
                t = ly.into(rng, a, distinct=True)
            else:
                t = ly.random_layout(rng, most=16, kinds=["gaps", "padded", "any"], count=rng.choice([1, 2]))
        else:
            a = with_modes(rng)
            t = modewise(rng, a, distinct=True)
        return Case(f"{name}({a}, {tiler_text(t)})", [a, t])

    return generate


def g_product(name):
    by_mode = name in ("blocked_product", "raked_product")

    def generate(rng):
        kinds = ["compact"] * 5 + ["permuted"] * 12 + ["gaps"] * 8 + ["padded", "zeros", "zeros", "any"]
        a = ly.random_layout(rng, most=64, kinds=kinds)
        b = ly.random_layout(rng, most=32, kinds=["compact", "permuted", "permuted", "permuted", "gaps", "zeros"])
        if by_mode and rng.random() < 0.9:
            while len(ly.modes(b)) != len(ly.modes(a)):
                b = ly.random_layout(rng, most=32, kinds=["compact", "permuted", "permuted", "permuted", "gaps", "zeros"])
        return Case(f"{name}({a}, {b})", [a, b])

    return generate


def g_recast(rng):
    a = ly.random_layout(rng, kinds=["compact"] * 2 + ["permuted"] * 4 + ["gaps"] * 2 + ["zeros", "padded"])
    widths = [(8, 4), (8, 16), (16, 8), (16, 32), (32, 16), (16, 16), (32, 8), (8, 32), (4, 16), (16, 64), (64, 8), (16, 48), (24, 8)]
    # Between the last neither divides the other.
    old, new = rng.choice(widths * 3 + [(8, 24), (8, 48), (6, 8), (8, 6), (12, 8), (16, 24), (24, 16)])
    return Case(f"recast({a}, {old}, {new})", [a, old, new])


def g_common(name):
    def generate(rng):
        kinds = ["compact"] * 3 + ["permuted"] * 4 + ["gaps"] * 3 + ["zeros", "padded"]
        a = ly.random_layout(rng, kinds=kinds)
        if rng.random() < 0.8:
            shape = ly.flat(a.shape)
            stride = ly.flat(a.stride) if rng.random() < 0.4 else ly.strides(rng, shape, rng.choice(kinds))
            if rng.random() < 0.4 and len(shape) > 1:
                stride = ly.flat(a.stride)
                k = rng.randrange(len(stride))
                stride[k] = rng.choice([0, stride[k] * 2, stride[k] + 1])
            b = ly.make(rng, shape, stride)
        else:
            b = ly.random_layout(rng, kinds=kinds)
        return Case(f"{name}({a}, {b})", [a, b])

    return generate


def swizzle_of(rng):
    b = rng.randint(0, 3)
    return b, rng.randint(0, 5), rng.randint(b, 5)


def points(rng, n):
    return sorted(rng.sample(range(n), min(n, 6)))


def g_swizzle(rng):
    b, m, s = swizzle_of(rng)
    a = ly.random_layout(rng, most=1024, kinds=["compact", "permuted", "gaps", "zeros"])
    p = points(rng, ly.size(a))
    return Case(f"image(Sw<{b},{m},{s}> o {a})", [b, m, s, a, p])


def g_swizzle_composition(rng):
    b, m, s = swizzle_of(rng)
    a = ly.random_layout(rng, most=1024, kinds=["compact", "permuted", "gaps"])
    t = ly.into(rng, a)
    p = points(rng, ly.size(t))
    return Case(f"image((Sw<{b},{m},{s}> o {a}) o {t})", [b, m, s, a, t, p])


def g_tile_to_shape(rng):
    while True:
        a = ly.random_layout(rng, most=64, kinds=["compact"] + ["permuted"] * 3 + ["gaps"])
        n = len(ly.modes(a))
        if n > 1:
            break
    shape = tuple(ly.size(m) * rng.choice([1, 1, 2, 2, 3, 4]) for m in ly.modes(a))
    if rng.random() < 0.05:
        shape = (shape[0] + 1, *shape[1:])
    order = list(range(n))
    rng.shuffle(order)
    return Case(call("tile_to_shape", a, shape, tuple(order)), [a, shape, tuple(order)])


def g_ordered(rng):
    shape = ly.extents(rng, 4096)
    order = list(range(len(shape)))
    rng.shuffle(order)
    if rng.random() < 0.1:
        order[0] = order[-1]
    s, o = ly.make(rng, shape, order)
    return Case(f"ordered({ly.text(s)}, {ly.text(o)})", [s, o])


def g_shapes(name):
    def generate(rng):
        shape = ly.extents(rng, 4096)
        a = ly.make(rng, shape, shape).shape
        b = ly.random_layout(rng).shape
        kind = rng.random()
        if kind < 0.4:
            b = relabel(rng, a)
        elif kind < 0.7:
            b = grow(rng, a)
        if rng.random() < 0.2:
            a, b = b, a
        return Case(f"{name}({ly.text(a)}, {ly.text(b)})", [a, b])

    return generate


def relabel(rng, x):
    return tuple(relabel(rng, e) for e in x) if isinstance(x, tuple) else rng.randint(1, 9)


def grow(rng, x):
    if isinstance(x, tuple):
        return tuple(grow(rng, e) for e in x)
    return x if rng.random() < 0.5 else (2, x)


def slice_coordinate(rng, shape):
    if rng.random() < 0.35:
        return None
    if not isinstance(shape, tuple) or rng.random() < 0.25:
        return rng.randrange(ly.product(shape))
    return tuple(slice_coordinate(rng, s) for s in shape)


def g_slice(rng):
    a = with_modes(rng)
    while True:
        c = tuple(slice_coordinate(rng, s) for s in a.shape)
        if None in ly.flat(c):
            return Case(f"eval({a}, {ly.text(c)})", [a, c])


# The laws: whether an answer is right, by brute force. INEXACT where a tile does not divide what it is to divide, so that
# copies of it reach beyond and only what lies within is checked; None where the law says nothing.

INEXACT = "inexact"


def equals(a, b):
    return a.shape == b.shape and bool((a == b).all())


def shape_sizes(a):
    return [ly.size(m) for m in ly.modes(a)]


def l_same_function(args, r):
    return equals(ly.values(args[0]), ly.values(r))


def l_coalesce_by(args, r):
    a, p = args
    if not equals(ly.values(a), ly.values(r)):
        return False
    return not isinstance(p, tuple) or shape_sizes(a) == shape_sizes(r)


def composed(a, b):
    return ly.evaluate(a, ly.values(b))


def l_composition(args, r):
    return equals(composed(*args), ly.values(r))


def as_layout(t):
    return t if isinstance(t, Layout) else Layout(t, 1)


def l_composition_tiler(args, r):
    a, t = args
    ms = ly.modes(a)
    expected = [composed(m, as_layout(x)) for m, x in zip(ms, t)]
    rest = [ly.values(m) for m in ms[len(t):]]
    if len(ly.modes(r)) == len(t):  # without the modes that the tiler does not reach
        rest = []
    return equals(ly.outer(expected + rest), ly.values(r))


def l_complement(args, r):
    a, n = args
    u, v = np.unique(ly.values(a)), ly.values(r)
    ascending = bool((np.diff(v) > 0).all()) and v[0] == 0
    if not ascending or np.isin(v[1:], u).any():
        return False
    # It must reach as many values as the bound wherever copies of the layout can fill every hole, and the copies must not meet there.
    u = u - u[0]
    if ly.greedy(u, limit=n) is None:
        return True
    copies = (u[:, None] + v[None, :]).ravel()
    return int(u[-1] + v[-1]) + 1 >= n and len(np.unique(copies)) == len(copies)


def l_right_inverse(args, r):
    v = ly.values(r)
    if v.min() < 0 or v.max() >= ly.size(args[0]):
        return False
    return equals(ly.evaluate(args[0], v), np.arange(len(v)))


def l_left_inverse(args, r):
    v = ly.values(args[0])
    if v.min() < 0:
        return None
    back = ly.evaluate(r, v)
    if back.min() < 0 or back.max() >= len(v):
        return False
    return bool((ly.evaluate(args[0], back) == v).all())


def l_nullspace(args, r):
    v = ly.values(r)
    expected = ly.product(tuple(s for s, d in ly.leaves(args[0]) if d == 0) or 1)
    return len(v) == expected == len(np.unique(v)) and not ly.evaluate(args[0], v).any()


def split(a, t):
    """The tile and the grid of one mode, the grid only where the copies of the tile fill the mode exactly."""
    c = ly.greedy(ly.values(t), limit=ly.size(a))
    tile = composed(a, t)
    if c is None or len(c) * ly.size(t) != ly.size(a):
        return tile, None
    return tile, ly.evaluate(a, c)


def l_divide(logical):
    def law(args, r):
        a, t = args
        v = ly.values(r)
        plain = isinstance(t, Layout)
        ms = [a] if plain else ly.modes(a)
        ts = [t] if plain else [as_layout(x) for x in t]
        parts = [split(m, x) for m, x in zip(ms, ts)]
        others = [ly.values(m) for m in ms[len(ts):]]
        if any(grid is None for _, grid in parts):
            # The tile must be right and nothing of the layout may be missing.
            if not np.isin(ly.values(a), v).all():
                return False
            if not (logical and not plain):
                tile = ly.outer([tile for tile, _ in parts])
                if len(v) < ly.size(a) or not equals(v[: len(tile)], tile):
                    return False
            return INEXACT
        if logical:
            order = [x for pair in parts for x in pair] + others
        else:
            order = [tile for tile, _ in parts] + [grid for _, grid in parts] + others
        return equals(ly.outer(order), v)

    return law


def grid_of(a, b):
    """The shifts of the copies of `a`, by the values of `b`; None where copies cannot fill every hole of `a`, so that the
    complement is not the only one."""
    u, w = ly.values(a), ly.values(b)
    if u.min() < 0 or w.min() < 0 or ly.greedy(u, limit=int(u.max()) + 1) is None:
        return None
    c = ly.greedy(u, count=int(w.max()) + 1)
    return None if c is None else c[w]


def spread(a, b, grid):
    """Whether these can be shifts of copies of `a` where its copies do not fill the integers (paper 3.5, the complement's
    laws): they ascend with the values of `b`, and but for 0 none is a value of `a`."""
    w = ly.values(b)
    order = np.argsort(w, kind="stable")
    steps, shifts = np.diff(w[order]), np.diff(grid[order])
    if (shifts[steps == 0] != 0).any() or (shifts[steps > 0] <= 0).any() or (grid[w == 0] != 0).any():
        return False
    return False if np.isin(grid[w != 0], ly.values(a)).any() else INEXACT


def l_product(args, r):
    a, b = args
    tile, v = ly.values(a), ly.values(r)
    if len(v) != len(tile) * ly.size(b):
        return False
    grid = grid_of(a, b)
    if grid is not None:
        return equals(ly.outer([tile, grid]), v)
    shifts = v[:: len(tile)]
    return equals(ly.outer([tile, shifts]), v) and spread(a, b, shifts)


def interleaved(a, b, grid, raked, sa=None):
    """The values of copies of `a` by the shifts `grid`, mode by mode: `sa` are the sizes of the modes of `a`."""
    sa, sb = sa or shape_sizes(a), shape_sizes(b)
    n = max(len(sa), len(sb))
    sa, sb = sa + [1] * (n - len(sa)), sb + [1] * (n - len(sb))
    both = ly.outer([ly.values(a), grid]).reshape(sa + sb, order="F")
    axes = [x for k in range(n) for x in ((n + k, k) if raked else (k, n + k))]
    return both.transpose(axes).ravel(order="F")


def l_blocked(raked):
    def law(args, r):
        a, b = args
        v = ly.values(r)
        if len(v) != ly.size(a) * ly.size(b):
            return False
        grid = grid_of(a, b)
        if grid is not None:
            return equals(interleaved(a, b, grid, raked), v)
        # Where each copy begins: the first element of the tile at each coordinate of the grid.
        numbers = Layout(ly.size(a), 1), b, np.arange(ly.size(b)) * ly.size(a)
        where = np.empty(len(v), dtype=np.int64)
        where[interleaved(*numbers, raked, shape_sizes(a))] = v
        shifts = where[:: ly.size(a)]
        return equals(ly.outer([ly.values(a), shifts]), where) and spread(a, b, shifts)

    return law


def ordered(shape, order):
    s, o = ly.flat(shape), ly.flat(order)
    out, step = [0] * len(s), 1
    for k in sorted(range(len(s)), key=lambda k: o[k]):
        out[k] = step
        step *= s[k]
    return Layout(tuple(s), tuple(out))


def l_ordered(args, r):
    return equals(ly.values(ordered(*args)), ly.values(r))


def l_tile_to_shape(args, r):
    a, shape, order = args
    blocks = shape_sizes(a)
    exact = not any(s % b for s, b in zip(shape, blocks))
    b = ordered(tuple(-(-s // n) for s, n in zip(shape, blocks)), order)
    right = l_blocked(False)((a, b), r)
    return right if exact else right and INEXACT


def l_recast(args, r):
    a, old, new = args
    v, w = ly.values(a), ly.values(r)
    if old % new == 0:
        n = old // new
        want, have = (v[:, None] * n + np.arange(n)).ravel(), w
    elif new % old == 0:
        n = new // old
        want, have = v, (w[:, None] * n + np.arange(n)).ravel()
    else:  # bits, as both widths divide no further
        want, have = (v[:, None] * old + np.arange(old)).ravel(), (w[:, None] * new + np.arange(new)).ravel()
    return equals(np.sort(want), np.sort(have)) or (equals(np.unique(want), np.unique(have)) and len(want) == len(have))


def l_common(args, r):
    v = ly.values(r)
    if v.min() < 0 or v.max() >= min(ly.size(args[0]), ly.size(args[1])):
        return False
    k = np.arange(len(v))
    return equals(ly.evaluate(args[0], v), k) and equals(ly.evaluate(args[1], v), k)


def common_prefix(a, b):
    """For how many values 0, 1, … there is a coordinate at which both layouts have it."""
    n = min(ly.size(a), ly.size(b))
    va, vb = ly.values(a)[:n], ly.values(b)[:n]
    both = np.unique(va[(va == vb) & (va >= 0)])
    k = 0
    while k < len(both) and both[k] == k:
        k += 1
    return k


def l_common_vector(args, r):
    return 1 <= r <= common_prefix(*args)


def l_flatten(args, r):
    return ly.leaves(args[0]) == ly.leaves(r)


def congruent(a, b):
    if isinstance(a, tuple) != isinstance(b, tuple):
        return False
    return not isinstance(a, tuple) or (len(a) == len(b) and all(congruent(x, y) for x, y in zip(a, b)))


def weakly(a, b):
    if not isinstance(a, tuple):
        return True
    return isinstance(b, tuple) and len(a) == len(b) and all(weakly(x, y) for x, y in zip(a, b))


def sliced(a, c):
    """The offset, and the parts of the layout that are left."""
    if c is None:
        return 0, [a]
    if isinstance(c, tuple):
        parts = [sliced(m, x) for m, x in zip(ly.modes(a), c)]
        return sum(p[0] for p in parts), [x for p in parts for x in p[1]]
    return int(ly.evaluate(a, c)), []


def l_slice(args, r):
    offset, left = sliced(*args)
    return r[0] == offset and equals(ly.outer([ly.values(x) for x in left]), ly.values(r[1]))


def is_value(truth):
    return lambda args, r: truth(*args) == r


def l_swizzle(args, r):
    b, m, s, a, p = args
    return r == [int(ly.swizzle(b, m, s, x)) for x in ly.values(a)[p]]


def l_swizzle_composition(args, r):
    b, m, s, a, t, p = args
    return r == [int(ly.swizzle(b, m, s, x)) for x in composed(a, t)[p]]


# Every operation: how to make a case, the law, and whether the sizes of the result's modes belong to the answer.
O = collections.namedtuple("O", "generate law nested", defaults=(False,))
OPERATIONS = {
    "crd2idx": O(g_crd2idx, is_value(ly.at)),
    "idx2crd": O(g_idx2crd, is_value(ly.natural)),
    "size": O(g_size, is_value(ly.size)),
    "cosize": O(g_unary("cosize"), is_value(lambda a: int(np.ptp(ly.values(a))) + 1)),
    "coalesce": O(g_unary("coalesce"), l_same_function),
    "coalesce_by": O(g_coalesce_by, l_coalesce_by, True),
    "composition": O(g_composition, l_composition, True),
    "composition_tiler": O(g_composition_tiler, l_composition_tiler, True),
    "complement": O(g_complement, l_complement),
    "right_inverse": O(g_inverse("right_inverse"), l_right_inverse),
    "left_inverse": O(g_inverse("left_inverse"), l_left_inverse),
    "nullspace": O(g_unary("nullspace", kinds=["zeros"] * 4 + ["permuted", "gaps", "any"]), l_nullspace),
    "logical_divide": O(g_divide("logical_divide"), l_divide(True), True),
    "zipped_divide": O(g_divide("zipped_divide"), l_divide(False), True),
    "tiled_divide": O(g_divide("tiled_divide"), l_divide(False), True),
    "flat_divide": O(g_divide("flat_divide"), l_divide(False), True),
    "logical_product": O(g_product("logical_product"), l_product, True),
    "zipped_product": O(g_product("zipped_product"), l_product, True),
    "tiled_product": O(g_product("tiled_product"), l_product, True),
    "flat_product": O(g_product("flat_product"), l_product, True),
    "blocked_product": O(g_product("blocked_product"), l_blocked(False), True),
    "raked_product": O(g_product("raked_product"), l_blocked(True), True),
    "recast": O(g_recast, l_recast, True),
    "max_common_layout": O(g_common("max_common_layout"), l_common),
    "max_common_vector": O(g_common("max_common_vector"), l_common_vector),
    "swizzle": O(g_swizzle, l_swizzle),
    "swizzle_composition": O(g_swizzle_composition, l_swizzle_composition),
    "tile_to_shape": O(g_tile_to_shape, l_tile_to_shape, True),
    "ordered": O(g_ordered, l_ordered, True),
    "flatten": O(g_unary("flatten"), l_flatten, True),
    "congruent": O(g_shapes("congruent"), is_value(congruent)),
    "weakly_congruent": O(g_shapes("weakly_congruent"), is_value(weakly)),
    "slice": O(g_slice, l_slice),
}

# The classes that may occur, by operation; DISAGREEMENTS.md explains each.
REFUSED = ["refused-and-theirs-wrong", "theirs-refused", "theirs-aborts"]
DIVIDE = REFUSED + ["refused-and-theirs-inexact", "nesting-differs", "theirs-wrong"]
PRODUCT = DIVIDE + ["refused-but-theirs-right (complement)"]
COMMON = ["theirs-refused", "theirs-wrong", "both-right-differ"]
ALLOWED = {
    "composition": REFUSED + ["theirs-wrong", "beyond-bounds-differ"],
    "composition_tiler": REFUSED + ["theirs-wrong", "rest-dropped"],
    "complement": ["refused-and-theirs-wrong", "theirs-wrong", "both-right-differ"],
    "right_inverse": ["both-right-differ"],
    "left_inverse": ["refused-and-theirs-wrong"],
    "nullspace": ["theirs-refused"],
    "logical_divide": DIVIDE,
    "zipped_divide": DIVIDE,
    "tiled_divide": DIVIDE,
    "flat_divide": DIVIDE,
    "logical_product": PRODUCT,
    "zipped_product": PRODUCT,
    "tiled_product": PRODUCT,
    "flat_product": PRODUCT,
    "blocked_product": PRODUCT,
    "raked_product": PRODUCT,
    "recast": ["refused-and-theirs-wrong", "theirs-wrong"],
    "max_common_layout": COMMON,
    "max_common_vector": COMMON,
    "tile_to_shape": ["refused-and-theirs-wrong", "refused-and-theirs-inexact"],
    "ordered": ["theirs-wrong"],
}


# Both sides.


def tup(x):
    return tuple(tup(e) for e in x) if isinstance(x, list) else x


def ours(binary, cases):
    lines = "".join(c.expression + "\n" for c in cases)
    done = subprocess.run([binary, "layout", "-", "--json"], input=lines, capture_output=True, text=True)
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    if len(replies) != len(cases):
        sys.exit(f"{binary} answered {len(replies)} of {len(cases)} lines: {done.stderr[:400]}")
    return replies


class Peer:
    """The worker that holds the DSL; it is started again where it dies."""

    def __init__(self):
        self.worker = None

    def start(self):
        self.worker = subprocess.Popen(
            [sys.executable, str(HERE / "dsl.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.replies = queue.Queue()
        threading.Thread(target=self.read, args=(self.worker, self.replies), daemon=True).start()

    @staticmethod
    def read(worker, replies):
        for line in worker.stdout:
            replies.put(line)
        replies.put(None)

    @staticmethod
    def write(worker, lines):
        try:
            for line in lines:
                worker.stdin.write(line)
            worker.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # it died; the reader sees that

    def ask(self, requests):
        """The answers, one after the other, while the worker goes on."""
        lines = [json.dumps(r) + "\n" for r in requests]
        answered = 0
        while answered < len(lines):
            if self.worker is None:
                self.start()
            todo = lines[answered:]
            threading.Thread(target=self.write, args=(self.worker, todo), daemon=True).start()
            for _ in todo:
                try:
                    line = self.replies.get(timeout=TIMEOUT)
                except queue.Empty:
                    line = None
                answered += 1
                if line is None:  # it died or hangs
                    self.stop()
                    yield {"aborted": True}
                    break
                yield json.loads(line)

    def stop(self):
        if self.worker is not None:
            self.worker.kill()
            self.worker.wait()
            self.worker = None


class Bad(Exception):
    """An answer that is no layout: an extent below 1."""


def layout_of(shape, stride):
    layout = Layout(tup(shape), tup(stride))
    if min(ly.flat(layout.shape)) < 1:
        raise Bad(f"{layout}")
    return layout


def our_answer(operation, case, reply):
    """The answer as the law takes it, or None for a refusal."""
    if "error" in reply:
        return None
    if operation in ("swizzle", "swizzle_composition"):
        image = reply["value"]
        image = image if isinstance(image, list) else [image]
        return [image[p] for p in case.args[-1]]
    if operation == "slice":
        return reply["offset"] if "offset" in reply else 0, layout_of(reply["shape"], reply["stride"])
    if "value" in reply:
        return tup(reply["value"])
    return layout_of(reply["shape"], reply["stride"])


def their_answer(operation, case, reply):
    if "error" in reply or "aborted" in reply:
        return None
    if operation == "crd2idx":
        return reply["value"][0]
    if operation in ("swizzle", "swizzle_composition"):
        return reply["value"]
    if operation == "slice":
        return reply["offset"], layout_of(*reply["layout"])
    if "value" in reply:
        return tup(reply["value"])
    return layout_of(*reply["layout"])


def long_leaves(a):
    return [leaf for leaf in ly.leaves(a) if leaf[0] > 1]


def same(a, b):
    """Whether the answers are the same function."""
    if isinstance(a, Layout):
        if ly.size(a) != ly.size(b):
            return False
        if ly.size(a) <= HUGE:
            return equals(ly.values(a), ly.values(b))
        # Only left inverses of layouts with great strides are as large: their first coordinates, and their modes.
        first = np.arange(HUGE)
        return equals(ly.evaluate(a, first), ly.evaluate(b, first)) and long_leaves(a) == long_leaves(b)
    if isinstance(a, tuple) and a and isinstance(a[-1], Layout):
        return a[0] == b[0] and same(a[1], b[1])
    return a == b


def beyond(case):
    """Whether a composition asks for coordinates outside of its left side."""
    a, b = case.args
    return int(ly.values(b).max()) >= ly.size(a)


def classify(operation, case, our_reply, their_reply):
    spec = OPERATIONS[operation]
    law = lambda r: None if r is None else spec.law(case.args, r)
    o = our_answer(operation, case, our_reply)
    try:
        t = their_answer(operation, case, their_reply)
    except Bad:
        return "refused-and-theirs-wrong" if o is None else ("theirs-wrong" if law(o) is not False else "ours-wrong")
    if o is None and t is None:
        return "both-refuse" if "error" in their_reply else "theirs-aborts"
    right, theirs = law(o), law(t)
    if right is False and o is not None:
        return "ours-wrong"
    if t is None:
        return "theirs-aborts" if "aborted" in their_reply else "theirs-refused" + UNDECIDED[right]
    if o is None:
        if theirs == INEXACT:
            return "refused-and-theirs-inexact"
        if theirs:
            return f"refused-but-theirs-right ({our_reply['error']['kind']})"
        return "refused-undecided" if theirs is None else "refused-and-theirs-wrong"
    if same(o, t):
        if spec.nested and shape_sizes(o) != shape_sizes(t):
            return "rest-dropped" if operation == "composition_tiler" else "nesting-differs"
        return "agree" if right is not None else "agree-undecided"
    if operation == "composition_tiler" and theirs and len(ly.modes(t)) < len(ly.modes(o)):
        return "rest-dropped"
    if operation == "composition" and beyond(case):
        return "beyond-bounds-differ"
    if right is None or theirs is None:
        return "differ-undecided"
    return "both-right-differ" if theirs else "theirs-wrong"


UNDECIDED = {None: "-undecided", True: "", INEXACT: ""}
AGREE = {"agree", "agree-undecided", "both-refuse"}


def theirs_text(reply):
    if "layout" in reply:
        text = str(Layout(*map(tup, reply["layout"])))
        return f"{{{reply['offset']}}} o {text}" if "offset" in reply else text
    return str(reply.get("value", reply.get("error", "aborted")))


def run(operation, args, peer):
    rng = random.Random(f"{args.seed} {operation}")
    cases = [OPERATIONS[operation].generate(rng) for _ in range(args.cases)]
    replies = ours(args.bin, cases)
    counts, shown = collections.Counter(), collections.defaultdict(list)
    for k, answer in enumerate(peer.ask([[operation, c.peer] for c in cases])):
        name = classify(operation, cases[k], replies[k], answer)
        counts[name] += 1
        if name not in AGREE or (name == "both-refuse" and args.refusals):
            our_text = replies[k].get("text") or "error: " + replies[k]["error"]["message"]
            found = shown[name]
            found.append((cases[k].expression, our_text, theirs_text(answer)))
            found.sort(key=lambda f: len(f[0]))
            del found[args.examples:]
    return counts, shown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10000, help="of each operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", default=",".join(OPERATIONS), help="separated by commas")
    parser.add_argument("--bin", default=str(HERE.parent.parent / "target" / "release" / "tilewright"))
    parser.add_argument("--examples", type=int, default=3, help="the shortest examples to print of each class")
    parser.add_argument("--refusals", action="store_true", help="print examples of what both refuse, too")
    args = parser.parse_args()
    peer, total, bad, begin = Peer(), collections.Counter(), [], time.time()
    rows = []
    for operation in args.operations.split(","):
        if operation not in OPERATIONS:
            sys.exit(f"no such operation: {operation}; there are {', '.join(OPERATIONS)}")
        counts, shown = run(operation, args, peer)
        total += counts
        rows.append((operation, counts))
        for name in sorted(set(counts) - AGREE):
            if name not in ALLOWED.get(operation, ()):
                bad.append((operation, name, counts[name]))
            for expression, our_text, their_text in shown[name]:
                print(f"{operation} {name}: {expression}\n    ours   {our_text}\n    theirs {their_text}")
        if "both-refuse" in shown:
            for expression, our_text, their_text in shown["both-refuse"]:
                print(f"{operation} both-refuse: {expression}\n    ours   {our_text}\n    theirs {their_text}")
        sys.stdout.flush()
    peer.stop()
    print("\n| operation | cases | agree | both refuse | other classes |\n|---|---:|---:|---:|---|")
    for operation, counts in rows:
        agree = counts["agree"] + counts["agree-undecided"]
        rest = ", ".join(f"{name} {n}" for name, n in counts.most_common() if name not in AGREE)
        print(f"| {operation} | {counts.total()} | {agree} | {counts['both-refuse']} | {rest} |")
    print(f"\n{total.total()} cases, seed {args.seed}, {time.time() - begin:.0f} s")
    for operation, name, count in bad:
        print(f"NOT ALLOWED: {operation}: {name} ({count})")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
