"""Tests of kernels: `assert_right` runs one on the simulator, with other inputs and another order of its warps each time. The plugin for pytest
(`tilewright.pytest_plugin`) has the fixtures `tw_right` and `tw_device`."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .arrays import Array, encode
from .functions import KernelFunction
from .kernels import Kernel, Run

#: Runs of `assert_right` where the caller does not say how many.
SEEDS = 20


def assert_right(
    kernel: KernelFunction | Kernel,
    *arrays: Any,
    seeds: int | Iterable[int] = SEEDS,
    sizes: Iterable[Mapping[str, int]] | None = None,
    reference: Callable[..., Any] | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    **values: Any,
) -> Run:
    """Runs a kernel on the simulator once for each seed; an `AssertionError` with the report of the first run that is not right, in which the simulator
    saw a race, a stray access or a deadlock, or a result differs from the interpreter's. The last run.

    Without arrays inputs are drawn, at the kernel's default sizes, at those of `values`, or at each of `sizes` in turn. With arrays (in the order of
    the parameters) the seed is the order of warps, and each run reads what they held at first. `reference` takes what the kernel reads, and returns what
    is meant to be written, as one array or several in the order of the parameters; it is compared too, within ``atol + rtol * abs(wanted)``, and takes
    arrays. With more sizes than seeds these are taken again.
    """
    __tracebackhide__ = True
    if reference is not None and not arrays:
        raise TypeError("`reference` is of the arrays that are given: give some")
    if sizes is not None and arrays:
        raise TypeError("the arrays' shapes are the sizes: give one of both")
    numbers = range(seeds) if isinstance(seeds, int) else list(seeds)
    if not numbers:
        raise ValueError("at least one run is needed, and `seeds` has none")
    points = list(sizes) if sizes is not None else [{}]
    if not points:
        raise ValueError("at least one run is needed, and `sizes` has none")
    # What the kernel both reads and writes is another array in each run.
    both = [not param["scalar"] and param["read"] and param["written"] for param in kernel.parameters]
    run: Run | None = None
    for _, seed, point in zip(range(max(len(numbers), len(points))), itertools.cycle(numbers), itertools.cycle(points)):
        if arrays:
            given = [copy.deepcopy(array) if again else array for array, again in itertools.zip_longest(arrays, both[: len(arrays)])]
            run = kernel.simulate(*given, seed=seed, **values)
        else:
            run = kernel.check(seed=seed, **{**point, **values})
        if not run.right:
            raise AssertionError(f"seed {seed}\n{run}")
    assert run is not None
    if reference is not None:
        _compare(kernel, arrays, run, reference, rtol, atol)
    return run


def _compare(kernel: KernelFunction | Kernel, arrays: tuple[Any, ...], run: Run, reference: Callable[..., Any], rtol: float, atol: float) -> None:
    """Compares what a run wrote with what a function returns."""
    __tracebackhide__ = True
    params = kernel.parameters
    read = [value for param, value in zip(params, arrays) if param["scalar"] or param["read"]]
    written = [param["name"] for param in params if not param["scalar"] and param["written"]]
    wanted = reference(*read)
    each = wanted if isinstance(wanted, (tuple, list)) and len(written) > 1 else [wanted]
    if len(each) != len(written):
        raise AssertionError(f"`reference` returns {len(each)} arrays, and the kernel writes {', '.join(written)}")
    for name, expected in zip(written, each):
        got = run[name].flat()
        meant = _flat(name, expected)
        if len(meant) != len(got):
            raise AssertionError(f"`{name}` has {len(got)} elements, and the reference {len(meant)}")
        off = [i for i, (a, b) in enumerate(zip(got, meant)) if not _alike(a, b, atol + rtol * abs(b))]
        if off:
            worst = max(off, key=lambda i: abs(got[i] - meant[i]) if got[i] == got[i] else float("inf"))
            place = _coordinates(worst, run[name].shape)
            raise AssertionError(
                f"{len(off)} of {len(got)} elements of `{name}` are not what the reference says: the worst, {place}, is {got[worst]:.6g} and should be "
                f"{meant[worst]:.6g}. The kernel does what its text says (the simulator and the interpreter agree), which is not what is meant:\n{run}"
            )


def _alike(a: float, b: float, within: float) -> bool:
    """True of numbers that are as close, of infinities that are the same, and of two that are no numbers."""
    if math.isinf(a) or math.isinf(b):
        return a == b
    return abs(a - b) <= within or (a != a and b != b)


def _flat(name: str, value: Any) -> list[float]:
    """The elements of an array of anybody's as numbers."""
    return Array(*encode(name, value)).flat()


def _coordinates(index: int, shape: tuple[int, ...]) -> list[int]:
    """The coordinates of an element by its number, row-major."""
    found = []
    for extent in reversed(shape):
        index, at = divmod(index, extent)
        found.append(at)
    return found[::-1]
