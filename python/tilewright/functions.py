"""Kernels as Python functions: the decorator `kernel`."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import _core
from .arrays import Array, encode
from .builder import record
from .kernels import Explanation, Kernel, Run, bound, compiled
from .launches import Launches, launches


class KernelFunction(_core.Callable):
    """A kernel that a Python function describes. The function runs once, when the kernel is first needed; each set of sizes, constants and
    architecture is compiled once. A call is a launch on a GPU, with tensors in the order of the parameters, on their library's current stream or
    the one with the handle `stream=`; it is never a simulation."""

    __name__: str
    __wrapped__: Callable[..., Any]

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._lock = threading.Lock()
        self._recorded: tuple[str, _core.Program] | None = None
        self._compiled: dict[Any, Kernel] = {}
        self._launches: dict[Any, Launches] = {}

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}>"

    def _program(self) -> tuple[str, _core.Program]:
        with self._lock:
            if self._recorded is None:
                text, files, lines = record(self._function)
                path = f"<kernel {self._function.__name__}>"
                self._recorded = text, _core.Program(text, path, None, files, lines)
            return self._recorded

    @property
    def text(self) -> str:
        """The kernel as a text of the tile language."""
        return self._program()[0]

    @property
    def parameters(self) -> list[dict[str, Any]]:
        """The parameters, in the order of a launch: the name, the type, of tensors the extents, and whether the kernel reads and writes them."""
        parameters: list[dict[str, Any]] = json.loads(self._program()[1].json())["params"]
        return parameters

    def compile(
        self,
        *,
        arch: str | None = None,
        assume: Mapping[str, int] | None = None,
        sizes: Mapping[str, int] | None = None,
        **values: int,
    ) -> Kernel:
        """The kernel for sizes and constants; those that are not given have their defaults."""
        values = {**(sizes or {}), **values}
        key = (arch, tuple(sorted((assume or {}).items())) if assume is not None else None, tuple(sorted(values.items())))
        found = self._compiled.get(key)
        if found is None:
            found = compiled(self._program()[1], arch, values, assume)
            self._compiled[key] = found
        return found

    def ptx(self, **options: Any) -> str:
        """The PTX text; the keywords are those of `compile`."""
        return self.compile(**options).ptx

    def explain(self, **options: Any) -> Explanation:
        """Layouts, instructions, and why; the keywords are those of `compile`."""
        return self.compile(**options).explain()

    def check(self, *, seed: int = 0, arch: str | None = None, **values: int) -> Run:
        """A run on the simulator with random inputs, at sizes and constants."""
        own = dict(json.loads(self._program()[1].json())["sizes"])
        kernel = self.compile(arch=arch, sizes=values)
        return kernel.simulate(seed=seed, sizes={name: value for name, value in values.items() if name in own}, random=True)

    def simulate(self, *positional: Any, arch: str | None = None, seed: int = 0, sizes: Mapping[str, int] | None = None, **arguments: Any) -> Run:
        """A run on the simulator: arrays and numbers in order or by name, sizes by the arrays' shapes, constants by name."""
        kernel, given = self._for(positional, arguments, arch, sizes)
        return kernel.simulate(seed=seed, sizes=sizes, **given)

    def interpret(self, *positional: Any, sizes: Mapping[str, int] | None = None, **arguments: Any) -> dict[str, Array]:
        """Results of the kernel for these arguments by the reference interpreter, which says what it means."""
        kernel, given = self._for(positional, arguments, None, sizes)
        return kernel.interpret(sizes=sizes, **given)

    def _for(self, positional: tuple[Any, ...], arguments: dict[str, Any], arch: str | None, sizes: Mapping[str, int] | None) -> tuple[Kernel, dict[str, Any]]:
        """The kernel for arguments, and the arguments by name."""
        program = self._program()[1]
        described = json.loads(program.json())
        constants = {name: arguments.pop(name) for name, _ in described["constants"] if name in arguments}
        given = bound(described["name"], described["params"], positional, arguments)
        tensors = [param["name"] for param in described["params"] if not param["scalar"]]
        shapes = {name: _shape(name, given[name]) for name in tensors if given.get(name) is not None}
        found = {**program.sizes_of(shapes), **(sizes or {})}
        return self.compile(arch=arch, sizes={**found, **constants}), given

    def launches(self, **constants: int) -> Launches:
        """The launches with these values of constants: what is called, with `warm_up`, `strict` and `specialisations`."""
        key = tuple(sorted(constants.items()))
        found = self._launches.get(key)
        if found is None:
            program = self._program()[1]
            found = self._launches.setdefault(key, launches(program, json.loads(program.json()), constants))
        return found

    def _launcher(self) -> _core.Launcher:
        return self.launches()._native

    def _bound(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, int] | None]:
        return self.launches()._bound(arguments, named)

    def warm_up(self, *, device: int = 0, **sizes: int | Iterable[int]) -> int:
        """Compiles and loads all that launches at these sizes need: `Launches.warm_up`."""
        return self.launches().warm_up(device=device, **sizes)

    @property
    def strict(self) -> bool:
        """True if a call compiles nothing: what `warm_up` has not made is `NotReady`."""
        return self.launches().strict

    @strict.setter
    def strict(self, strict: bool) -> None:
        self.launches().strict = strict

    def specialisations(self) -> list[tuple[int, dict[str, int]]]:
        """Kernels that have been loaded for launches: the GPU's number, and of each size the multiple that the kernel relies on."""
        return self.launches().specialisations()


def _shape(name: str, value: Any) -> list[int]:
    shape = getattr(value, "shape", None)
    return [int(extent) for extent in shape] if shape is not None else encode(name, value)[1]


def kernel(function: Callable[..., Any]) -> KernelFunction:
    """Makes a kernel of a function: ``def softmax(t, x: f32["m", "n"], y: f32["m", "n"], m: size = 64, n: size = 1000, BN: const = 1024)``. The
    first parameter is the builder; tensors are annotated by their element types and extents, numbers by types alone."""
    return KernelFunction(function)
