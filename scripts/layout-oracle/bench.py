"""The operations of crates/layout/benches/algebra.rs with the CuTe DSL and with pycute, beside the results of that file.

    cargo bench -p tilewright-layout --bench algebra | tee algebra.txt
    python scripts/layout-oracle/bench.py [--pycute DIR] [--ours algebra.txt]

Needs the Python package nvidia-cutlass-dsl, and pycute, which is part of the package nvidia-cutlass (its dependencies
are not needed: pip install --no-deps --target DIR nvidia-cutlass). Either may be missing; its column stays empty. Only
the operation is timed: layouts are made before. The DSL's operations run on the host while a function is traced; each is
timed there, and an operation that it folds into the same MLIR operation again costs the same again.
"""

import argparse
import pathlib
import re
import statistics
import sys
import time

REPEATS, LOOPS = 15, 100

ACCUMULATORS = (((4, 8), (2, 2)), ((32, 1), (16, 8)))
ROWS = ((128, 64), (64, 1))
STAGES = ((128, 64, 3), (64, 1, 8192))
MANY = (((2, 4), (1, 8), (4, 2)), ((1, 2), (0, 8), (64, 256)))
TILE = (64, 16)

# name: (operation, layouts and other arguments). ("layout", shape, stride) is made into a layout first.
CASES = [
    ("compose_tv_tile", "composition", [((16, 8), (8, 1)), ACCUMULATORS]),
    ("compose_tv_split", "composition", [(((4, 4), (2, 4)), ((1, 64), (4, 16))), ACCUMULATORS]),
    ("compose_by_mode", "composition", [ROWS, TILE]),
    ("coalesce", "coalesce", [MANY]),
    ("right_inverse", "right_inverse", [ACCUMULATORS]),
    ("left_inverse", "left_inverse", [ACCUMULATORS]),
    ("right_inverse_rows", "right_inverse", [ROWS]),
    ("complement", "complement", [((16, (2, 4)), (64, (1, 8))), 8192]),
    ("logical_divide", "logical_divide", [(8192, 1), ((64, 16), (1, 128))]),
    ("zipped_divide", "zipped_divide", [ROWS, TILE]),
    ("zipped_divide_stages", "zipped_divide", [STAGES, TILE]),
    ("blocked_product", "blocked_product", [((8, 64), (64, 1)), ((16, 2), (1, 16))]),
    ("logical_product", "logical_product", [((8, 64), (64, 1)), ((16, 3), (1, 16))]),
]


def is_layout(argument):
    return isinstance(argument, tuple) and argument is not TILE


def timed(function, loops):
    """The median over REPEATS of the mean time of a call, in nanoseconds."""
    function()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter_ns()
        for _ in range(loops):
            function()
        times.append((time.perf_counter_ns() - start) / loops)
    return statistics.median(times)


def with_pycute(directory):
    if directory:
        sys.path.insert(0, directory)
    try:
        import pycute
    except ImportError:
        return {}
    out = {}
    for name, operation, arguments in CASES:
        function = getattr(pycute, operation, None)
        if function is None:
            continue
        made = [pycute.Layout(*a) if is_layout(a) else a for a in arguments]
        out[name] = (timed(lambda: function(*made), LOOPS), str(function(*made)))
    return out


def with_dsl():
    try:
        import cutlass.cute as cute
    except ImportError:
        return {}
    out = {}

    def measure():
        for name, operation, arguments in CASES:
            function = getattr(cute, operation)
            made = [cute.make_layout(a[0], stride=a[1]) if is_layout(a) else a for a in arguments]
            # Few: every call adds an operation to the function that is traced.
            out[name] = (timed(lambda: function(*made), 10), str(function(*made)))

    cute.jit(measure, preprocess=False)()
    return out


# A line of divan's table: the name, then the fastest, the slowest and the median time.
LINE = re.compile(r"[├╰]─ (\w+) +[\d.]+ [nµm]?s +│ [\d.]+ [nµm]?s +│ ([\d.]+) ([nµm]?s) ")
UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}


def with_divan(path):
    if path is None:
        return {}
    found = LINE.findall(pathlib.Path(path).read_text())
    return {name: float(median) * UNITS[unit] for name, median, unit in found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pycute", help="where pycute is installed, if not in this environment")
    parser.add_argument("--ours", help="what `cargo bench` printed")
    parser.add_argument("--results", action="store_true", help="also print what the others compute")
    options = parser.parse_args()
    ours, pycute, dsl = with_divan(options.ours), with_pycute(options.pycute), with_dsl()
    print("| operation | ours (ns) | pycute (µs) | CuTe DSL (µs) | pycute / ours | DSL / ours |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, _, _ in CASES:
        cells = [f"{ours[name]:.0f}" if name in ours else ""]
        cells += [f"{t[name][0] / 1000:.1f}" if name in t else "" for t in (pycute, dsl)]
        cells += [f"{t[name][0] / ours[name]:.0f}×" if name in t and name in ours else "" for t in (pycute, dsl)]
        print(f"| `{name}` | " + " | ".join(cells) + " |")
    if options.results:
        for name, _, _ in CASES:
            for label, results in (("pycute", pycute), ("DSL", dsl)):
                if name in results:
                    print(f"{name} {label}: {results[name][1]}")


if __name__ == "__main__":
    main()
