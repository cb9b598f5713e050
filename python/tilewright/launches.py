"""Launches on a GPU: calls with tensors of torch, or of anything with `__cuda_array_interface__`, on the current stream."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from . import _core
from .errors import LaunchError


class Launches(_core.Callable):
    """The launches of a program with values of its constants. A specialisation is a GPU with the sizes that are whole vectors of 16 bytes along the
    contiguous mode: each is compiled once on a machine, and kept in the user's cache (`TILEWRIGHT_CACHE`)."""

    def __init__(self, native: _core.Launcher, described: dict[str, Any]) -> None:
        self._native = native
        self._names = tuple(param["name"] for param in described["params"])
        self._defaults = {param["name"]: param["default"] for param in described["params"] if param["scalar"]}
        self._kernel = described["name"]
        self._sizes = tuple(name for name, _ in described["sizes"])

    @property
    def strict(self) -> bool:
        """True if a call compiles nothing: what `warm_up` has not made is `NotReady`."""
        return self._native.strict

    @strict.setter
    def strict(self, strict: bool) -> None:
        self._native.strict = strict

    def _launcher(self) -> _core.Launcher:
        return self._native

    def _bound(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, int] | None]:
        if len(arguments) > len(self._names):
            raise LaunchError(f"`{self._kernel}` takes {len(self._names)} arguments ({', '.join(self._names)}), and {len(arguments)} are given")
        given = dict(zip(self._names, arguments))
        sizes: dict[str, int] = {}
        for name, value in named.items():
            if name in self._sizes:
                sizes[name] = value
            elif name not in self._names:
                raise LaunchError(f"`{self._kernel}` has no parameter `{name}`; its parameters are {', '.join(self._names)}")
            elif name in given:
                raise LaunchError(f"`{name}` is given twice")
            else:
                given[name] = value
        missing = [name for name in self._names if name not in given and name not in self._defaults]
        if missing:
            raise LaunchError(f"`{self._kernel}` takes {', '.join(f'`{name}`' for name in missing)} too")
        return tuple(given.get(name, self._defaults.get(name)) for name in self._names), sizes or None

    def warm_up(self, *, device: int = 0, **sizes: int | Iterable[int]) -> int:
        """Compiles and loads all that launches at these sizes need, in parallel, without the interpreter lock; the number of what was not there.
        A size is a number or several, `warm_up(n=4096, m=range(1, 8193))`."""
        choices = [[value] if isinstance(value, int) else _classes(value) for value in sizes.values()]
        return self._native.warm_up(device, [dict(zip(sizes, each)) for each in itertools.product(*choices)])

    def specialisations(self) -> list[tuple[int, dict[str, int]]]:
        """Kernels that have been loaded: the GPU's number, and of each size the multiple that the kernel relies on."""
        return self._native.specialisations()


def _classes(values: Iterable[int]) -> list[int]:
    """Of values one for each power of two up to 128 that they are a multiple of: others have the same kernels."""
    found: dict[int, int] = {}
    for value in values:
        found.setdefault(min(value & -value, 128), value)
    return list(found.values())


def launches(program: _core.Program, described: Mapping[str, Any], constants: dict[str, int]) -> Launches:
    """The launches of a program."""
    return Launches(program.launcher(constants), dict(described))
