"""Layouts in Python, as simply as they can be told: values by brute force, and random ones.

A layout is a pair (shape, stride) of congruent nested tuples of integers. Coordinates count colexicographically, the
leftmost mode fastest. Values are numpy arrays over the integral coordinates.
"""

from typing import Any, NamedTuple

import numpy as np


class Layout(NamedTuple):
    shape: Any
    stride: Any

    def __str__(self):
        return f"{text(self.shape)}:{text(self.stride)}"


def text(x):
    return "(" + ",".join(text(e) for e in x) + ")" if isinstance(x, tuple) else "_" if x is None else str(x)


def json_of(x):
    """A layout, a tiler or a tuple as the peer reads it."""
    if isinstance(x, Layout):
        return {"shape": x.shape, "stride": x.stride}
    return [json_of(e) for e in x] if isinstance(x, (tuple, list)) else x


def flat(x):
    return [leaf for e in x for leaf in flat(e)] if isinstance(x, tuple) else [x]


def leaves(a):
    return list(zip(flat(a.shape), flat(a.stride)))


def product(x):
    n = 1
    for e in flat(x):
        n *= e
    return n


def size(a):
    return product(a.shape)


def modes(a):
    if isinstance(a.shape, tuple):
        return [Layout(s, d) for s, d in zip(a.shape, a.stride)]
    return [a]


def concat(parts):
    return Layout(tuple(p.shape for p in parts), tuple(p.stride for p in parts))


def outer(arrays):
    """The sums of one element of each array, the first array fastest."""
    total = np.zeros(1, dtype=np.int64)
    for a in arrays:
        total = (np.asarray(a)[:, None] + total[None, :]).ravel()
    return total


def values(a):
    return outer([np.arange(s, dtype=np.int64) * d for s, d in leaves(a)])


def evaluate(a, x):
    """The values at an array of integral coordinates; beyond the bounds the last mode extends."""
    x, total = np.asarray(x, dtype=np.int64), 0
    pairs = leaves(a)
    for s, d in pairs[:-1]:
        total = total + x % s * d
        x = x // s
    return total + x * pairs[-1][1]


def at(a, coord):
    """The value at a coordinate that is compatible with the shape."""
    if isinstance(coord, tuple):
        return sum(at(mode, c) for mode, c in zip(modes(a), coord))
    return int(evaluate(a, coord))


def natural(n, shape):
    """The natural coordinate of an integral one."""
    if not isinstance(shape, tuple):
        return n
    coord = []
    for k, s in enumerate(shape):
        last = k + 1 == len(shape)
        coord.append(natural(n if last else n % product(s), s))
        n //= product(s)
    return tuple(coord)


def swizzle(b, m, s, x):
    return x ^ ((x >> s) & (((1 << b) - 1) << m))


def greedy(u, limit=None, count=None):
    """The shifts, smallest first, by which copies of the values `u` fill the integers from 0 on without meeting each
    other: until all below `limit` are covered, or `count` of them. None where copies meet."""
    u = np.unique(u)
    if u[0] != 0:
        return None
    shifts, next_free = [], 0
    top = int(u[-1]) + 1
    covered = np.zeros((limit or 0) + top + 64, dtype=bool)
    while (limit is not None and next_free < limit) or (count is not None and len(shifts) < count):
        if next_free + top > len(covered):
            if len(covered) > 1 << 22:
                return None
            covered = np.concatenate([covered, np.zeros(len(covered) + top, dtype=bool)])
        if covered[u + next_free].any():
            return None
        covered[u + next_free] = True
        shifts.append(next_free)
        free = np.flatnonzero(~covered[next_free:])
        next_free = next_free + int(free[0]) if len(free) else len(covered)
    return np.array(shifts, dtype=np.int64)


# Random layouts.

EXTENTS = [1, 2, 2, 2, 2, 3, 3, 4, 4, 4, 5, 6, 7, 8, 8, 16]


def nest(rng, items, depth=3, rank=4):
    """Random nesting of parallel lists: a list of tuples of leaves becomes a tuple of nested tuples."""
    if len(items) == 1:
        return items[0]
    groups = rng.randint(2, min(rank, len(items))) if depth > 1 else len(items)
    cuts = sorted(rng.sample(range(1, len(items)), groups - 1))
    parts = [nest(rng, items[a:b], depth - 1, rank) for a, b in zip([0] + cuts, cuts + [len(items)])]
    return tuple(tuple(p[k] for p in parts) for k in range(len(items[0])))


def extents(rng, most, count=None):
    out, n = [], 1
    for _ in range(count or rng.choice([1, 2, 2, 3, 3, 4, 4, 5, 6])):
        choices = [e for e in EXTENTS if n * e <= most]
        out.append(rng.choice(choices))
        n *= out[-1]
    return out


def strides(rng, shape, kind):
    order = list(range(len(shape)))
    if kind != "compact":
        rng.shuffle(order)
    out, step = [0] * len(shape), 1
    for k in order:
        if kind == "gaps" and rng.random() < 0.5:
            step *= rng.choice([1, 2, 2, 3, 4, 5])
        if kind == "padded" and rng.random() < 0.5:
            step += rng.randint(0, 3)
        out[k] = step
        step *= shape[k]
    if kind == "zeros":
        out = [0 if rng.random() < 0.4 else d for d in out]
    if kind == "negative":
        out = [-d if rng.random() < 0.4 else d for d in out]
    if kind == "any":
        out = [rng.randint(0, 40) for _ in shape]
    return out


KINDS = ["compact"] * 3 + ["permuted"] * 6 + ["gaps"] * 5 + ["padded"] * 2 + ["zeros"] * 3 + ["any", "negative"]
INJECTIVE = ["compact"] * 2 + ["permuted"] * 4 + ["gaps"] * 4


def make(rng, shape, stride):
    if len(shape) == 1:
        return Layout(shape[0], stride[0])
    return Layout(*nest(rng, list(zip(shape, stride))))


def random_layout(rng, most=None, kinds=KINDS, count=None):
    most = most or rng.choice([8, 64, 64, 256, 1024, 4096])
    shape = extents(rng, most, count)
    return make(rng, shape, strides(rng, shape, rng.choice(kinds)))


def factors(n):
    out, p = [], 2
    while n > 1:
        while n % p == 0:
            out.append(p)
            n //= p
        p += 1
    return out


def into(rng, a, distinct=False, leave=0.5):
    """A layout into the coordinates of `a`: some of its modes' factors in some order."""
    parts, step = [], 1
    for s, _ in leaves(a):
        for p in factors(s):
            parts.append((p, step))
            step *= p
    picked = [x for x in parts if rng.random() > leave]
    if rng.random() < 0.6:
        rng.shuffle(picked)
    if not distinct and rng.random() < 0.15:
        picked.append((rng.choice([2, 3]), 0))
    merged = []
    for s, d in picked:
        if merged and merged[-1][0] * merged[-1][1] == d and d and rng.random() < 0.8:
            merged[-1] = (merged[-1][0] * s, merged[-1][1])
        else:
            merged.append((s, d))
    merged = merged or [(1, rng.choice([0, 1]))]
    return make(rng, [s for s, _ in merged], [d for _, d in merged])


def divisor(rng, n):
    return rng.choice([d for d in range(1, n + 1) if n % d == 0])
