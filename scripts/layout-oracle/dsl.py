"""The peer's side: answers layout operations with NVIDIA's CuTe DSL, on the host and without a GPU.

Reads one JSON request a line, `[operation, arguments]`, and writes one JSON answer a line: `{"layout": [shape, stride]}`,
`{"value": …}` or `{"error": text}`. A layout in a request is `{"shape": …, "stride": …}`. The operations run in a bare
MLIR context, where constant layouts fold as they are built; the context is made anew from time to time, for it keeps
every type that it has seen. They run in a child process: where the DSL aborts it, the answer is `{"aborted": true}`.
"""

import json
import os
import resource
import sys

import cutlass.cute as cute
from cutlass._mlir import ir

CONTEXT_LIFE = 2000


def tup(x):
    """JSON lists as tuples; `null` is the wildcard of a slice."""
    return tuple(tup(e) for e in x) if isinstance(x, list) else x


def lay(x):
    """A layout, or a tiler of layouts and integers."""
    if isinstance(x, dict):
        return cute.make_layout(tup(x["shape"]), stride=tup(x["stride"]))
    return tuple(lay(e) for e in x) if isinstance(x, list) else x


def plain(x):
    """An answer without DSL types."""
    return [plain(e) for e in x] if isinstance(x, (tuple, list)) else int(x)


def answer(result):
    return {"layout": [plain(result.shape), plain(result.stride)]}


def swizzled(b, m, s, layout):
    return cute.make_composed_layout(cute.make_swizzle(b, m, s), 0, lay(layout))


def binary(f):
    return lambda a, b: answer(f(lay(a), lay(b)))


def slice_and_offset(a, c):
    layout, coord = lay(a), tup(c)
    rest = cute.slice_(layout, coord)
    at_zero = zeroed(coord)
    return {"layout": [plain(rest.shape), plain(rest.stride)], "offset": int(cute.crd2idx(at_zero, layout))}


def zeroed(coord):
    return tuple(zeroed(c) for c in coord) if isinstance(coord, tuple) else 0 if coord is None else coord


OPERATIONS = {
    "crd2idx": lambda a, coords: {"value": [int(cute.crd2idx(tup(c), lay(a))) for c in coords]},
    "idx2crd": lambda n, shape: {"value": plain(cute.idx2crd(n, tup(shape)))},
    "size": lambda a: {"value": int(cute.size(lay(a)))},
    "cosize": lambda a: {"value": int(cute.cosize(lay(a)))},
    "coalesce": lambda a: answer(cute.coalesce(lay(a))),
    "coalesce_by": lambda a, p: answer(cute.coalesce(lay(a), target_profile=tup(p))),
    "composition": binary(lambda a, b: cute.composition(a, b)),
    "composition_tiler": binary(lambda a, b: cute.composition(a, b)),
    "complement": lambda a, n: answer(cute.complement(lay(a), n)),
    "right_inverse": lambda a: answer(cute.right_inverse(lay(a))),
    "left_inverse": lambda a: answer(cute.left_inverse(lay(a))),
    "nullspace": lambda a: answer(cute.nullspace(lay(a))),
    "logical_divide": binary(lambda a, b: cute.logical_divide(a, b)),
    "zipped_divide": binary(lambda a, b: cute.zipped_divide(a, b)),
    "tiled_divide": binary(lambda a, b: cute.tiled_divide(a, b)),
    "flat_divide": binary(lambda a, b: cute.flat_divide(a, b)),
    "logical_product": binary(lambda a, b: cute.logical_product(a, b)),
    "zipped_product": binary(lambda a, b: cute.zipped_product(a, b)),
    "tiled_product": binary(lambda a, b: cute.tiled_product(a, b)),
    "flat_product": binary(lambda a, b: cute.flat_product(a, b)),
    "blocked_product": binary(lambda a, b: cute.blocked_product(a, b)),
    "raked_product": binary(lambda a, b: cute.raked_product(a, b)),
    "recast": lambda a, old, new: answer(cute.recast_layout(new, old, lay(a))),
    "max_common_layout": binary(lambda a, b: cute.max_common_layout(a, b)),
    "max_common_vector": lambda a, b: {"value": int(cute.max_common_vector(lay(a), lay(b)))},
    "swizzle": lambda b, m, s, a, points: {"value": [int(cute.crd2idx(p, swizzled(b, m, s, a))) for p in points]},
    "swizzle_composition": lambda b, m, s, a, t, points: {
        "value": [int(cute.crd2idx(p, cute.composition(swizzled(b, m, s, a), lay(t)))) for p in points]
    },
    "tile_to_shape": lambda a, shape, order: answer(cute.tile_to_shape(lay(a), tup(shape), tup(order))),
    "ordered": lambda shape, order: answer(cute.make_ordered_layout(tup(shape), tup(order))),
    "flatten": lambda a: answer(cute.flatten(lay(a))),
    "congruent": lambda a, b: {"value": bool(cute.is_congruent(tup(a), tup(b)))},
    "weakly_congruent": lambda a, b: {"value": bool(cute.is_weakly_congruent(tup(a), tup(b)))},
    "slice": slice_and_offset,
}


def serve(requests, replies):
    """Answers until the requests end, in one context after the other."""
    more = True
    while more:
        with ir.Context(), ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                for _ in range(CONTEXT_LIFE):
                    line = requests.readline()
                    if not line:
                        more = False
                        break
                    operation, arguments = json.loads(line)
                    try:
                        reply = OPERATIONS[operation](*arguments)
                    except Exception as error:  # whatever kind it is, it is the DSL's refusal
                        reply = {"error": f"{type(error).__name__}: {error}"[:300]}
                    replies.write(json.dumps(reply) + "\n")
                    replies.flush()


def fork():
    """A child that serves; the DSL takes its process with it where it aborts."""
    to_child, to_parent = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(to_child[1])
        os.close(to_parent[0])
        serve(os.fdopen(to_child[0]), os.fdopen(to_parent[1], "w"))
        os._exit(0)
    os.close(to_child[0])
    os.close(to_parent[1])
    return child, os.fdopen(to_child[1], "w"), os.fdopen(to_parent[0])


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the DSL prints is not an answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    child = None
    for line in sys.stdin:
        if child is None:
            child, requests, replies = fork()
        requests.write(line)
        requests.flush()
        reply = replies.readline()
        if not reply:
            requests.close()
            replies.close()
            os.waitpid(child, 0)
            child = None
            reply = json.dumps({"aborted": True}) + "\n"
        out.write(reply)
        out.flush()


if __name__ == "__main__":
    main()
