"""Programs as text, compiled kernels, and runs of them on the simulated GPU."""

from __future__ import annotations

import html
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _core
from .arrays import Array, decode_into, encode
from .errors import Diagnostic, LaunchError
from .launches import Launches, launches


@dataclass(frozen=True)
class Run:
    """A run of a kernel on the simulator, compared with the reference interpreter, which defines what a program means."""

    #: True if every output is right where it is written, and the simulator found nothing.
    right: bool
    #: `right`, `right, with warnings`, `right where written`, `right where bounded` or `WRONG`.
    verdict: str
    #: What the kernel wrote, by parameter.
    outputs: dict[str, Array]
    #: What is wrong: races, accesses out of bounds, wrong elements, …
    findings: tuple[Diagnostic, ...]
    #: What may be a mistake.
    warnings: tuple[Diagnostic, ...]
    #: Lines that the kernel printed.
    printed: tuple[str, ...]
    #: Pairs of accesses that race.
    races: int
    #: Wavefronts of shared memory beyond what its accesses need.
    bank_conflicts: int
    #: An estimate of the kernel's duration in cycles.
    cycles: int
    #: The sizes of the launch.
    sizes: dict[str, int]
    #: All that the simulator counted.
    simulation: dict[str, Any] = field(repr=False)
    #: How each output compares with the interpreter's, a sentence each.
    compared: dict[str, str] = field(repr=False)
    _head: str = field(repr=False, default="")

    def __getitem__(self, name: str) -> Array:
        return self.outputs[name]

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in self.sizes.items()) or "none"
        rows = [("kernel", self._head), ("sizes", sizes), ("races", str(self.races))]
        wavefronts = self.simulation.get("shared_wavefronts", 0)
        rows.append(("bank conflicts", f"{self.bank_conflicts} in {wavefronts} shared wavefronts"))
        rows.append(("estimate", f"{self.cycles} cycles"))
        rows += [(f"output {name}", text) for name, text in self.compared.items()]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name.ljust(width)}  {value}" for name, value in rows]
        lines += self.printed
        lines += [f"{message}\n" for message in (*self.findings, *self.warnings)]
        return "\n".join([*lines, self.verdict])

    def _repr_html_(self) -> str:
        colour = "#2a7" if self.right else "#c33"
        return f'<pre style="border-left: 4px solid {colour}; padding-left: 8px">{html.escape(str(self))}</pre>'

    def assert_right(self) -> Run:
        """This run; an `AssertionError` with the report if it is not right."""
        if not self.right:
            raise AssertionError(f"\n{self}")
        return self


class Kernel(_core.Callable):
    """A compiled kernel: PTX text, the reasons of the compiler's choices, and runs on a simulated GPU. A call is a launch on a GPU, for its
    architecture, with tensors in the order of the parameters: never a simulation."""

    def __init__(self, program: _core.Program, native: _core.Kernel) -> None:
        self._program = program
        self._native = native
        self._described: dict[str, Any] = json.loads(program.json())
        self._launches: Launches | None = None

    def __repr__(self) -> str:
        return f"<Kernel {self.name} for {self.arch}>"

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self._native.name

    @property
    def arch(self) -> str:
        """The architecture that it was compiled for."""
        return self._native.arch

    @property
    def ptx(self) -> str:
        """The PTX text, which any NVIDIA driver loads."""
        return self._native.ptx

    @property
    def program(self) -> str:
        """The program as text, in its canonical form."""
        return str(self._program)

    @property
    def parameters(self) -> list[dict[str, Any]]:
        """The parameters, in the order of a launch: the name, the type, of tensors the extents, and whether the kernel reads and writes them."""
        parameters: list[dict[str, Any]] = self._described["params"]
        return parameters

    def explain(self) -> Explanation:
        """Layouts, instructions, and why the compiler chose them."""
        return Explanation(self._native.explain())

    def report(self) -> dict[str, Any]:
        """The same as data, with threads, shared memory, assumptions about sizes, and the time of each pass."""
        report: dict[str, Any] = json.loads(self._native.json())
        return report

    def draw(self, tensor: str, form: str = "text") -> str:
        """A picture of a tensor's layout, as `text`, `svg` or `latex`: who holds each element of a register tensor, the bank of each of a
        shared one."""
        return self._native.draw(tensor, form)

    def picture(self, tensor: str) -> Picture:
        """The same for a notebook."""
        return Picture(self.draw(tensor, "svg"))

    def simulate(
        self,
        *positional: Any,
        seed: int = 0,
        sizes: Mapping[str, int] | None = None,
        random: bool = False,
        force: bool = False,
        **arguments: Any,
    ) -> Run:
        """Runs the kernel on the simulator. Arrays and scalars are given in order or by name: anything with the buffer protocol, DLPack or
        `__array_interface__`. What the kernel writes is in the result, and in the arrays that were given for it (lists stay as they are).
        `seed` is the simulator's order of warps; with `random=True` inputs that are not given are drawn."""
        report, arrays = self._run(positional, arguments, sizes, seed, False, random, force)
        messages = {key: tuple(Diagnostic._of(each) for each in report[key]) for key in ("findings", "warnings")}
        return Run(
            right=report["right"],
            verdict=report["verdict"],
            outputs=arrays,
            findings=messages["findings"],
            warnings=messages["warnings"],
            printed=tuple(report["printed"]),
            races=report["races"],
            bank_conflicts=report["bank_conflicts"],
            cycles=report["cycles"],
            sizes=report["sizes"],
            simulation=report["simulation"],
            compared={output["name"]: output["text"] for output in report["outputs"]},
            _head=f"{self.name} for {self.arch}, on the simulator",
        )

    def check(self, *, seed: int = 0, force: bool = False, **sizes: int) -> Run:
        """A run with random inputs at these sizes."""
        report = self._described
        unknown = [name for name in sizes if name not in dict(report["sizes"])]
        if unknown:
            raise LaunchError(f"`{unknown[0]}` is no size of `{self.name}`; its sizes are {', '.join(dict(report['sizes']))}")
        return self.simulate(seed=seed, sizes=sizes, random=True, force=force)

    def interpret(self, *positional: Any, sizes: Mapping[str, int] | None = None, **arguments: Any) -> dict[str, Array]:
        """Tensors that the program writes for these arguments, by the reference interpreter, which says what it means."""
        return self._run(positional, arguments, sizes, 0, True, False, False)[1]

    @property
    def launches(self) -> Launches:
        """The launches of the program, with the kernel's constants: `warm_up`, `strict` and `specialisations`."""
        if self._launches is None:
            own = dict(self._described["constants"])
            constants = {name: value for name, value in self.report()["constants"].items() if name in own}
            self._launches = launches(self._program, self._described, constants)
        return self._launches

    def _launcher(self) -> _core.Launcher:
        return self.launches._native

    def _bound(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, int] | None]:
        return self.launches._bound(arguments, named)

    def _run(
        self,
        positional: tuple[Any, ...],
        arguments: dict[str, Any],
        sizes: Mapping[str, int] | None,
        seed: int,
        interpret: bool,
        random: bool,
        force: bool,
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        params = self._described["params"]
        given = bound(self.name, params, positional, arguments)
        arrays, scalars = [], {}
        for param in params:
            name = param["name"]
            if name not in given or given[name] is None:
                continue
            if param["scalar"]:
                scalars[name] = float(given[name])
                continue
            dtype, shape, data = encode(name, given[name])
            arrays.append((name, dtype, shape, data))
        found = self._program.sizes_of({name: shape for name, _, shape, _ in arrays})
        found.update(sizes or {})
        text, outputs = self._native.run(arrays, scalars, found, seed, seed, interpret, random, force)
        results = {name: Array(dtype, shape, data) for name, dtype, shape, data in outputs}
        for name, array in results.items():
            if given.get(name) is not None:
                decode_into(name, given[name], array)
        return json.loads(text), results


class Explanation(str):
    """Text that a notebook shows as it is."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


class Picture:
    """A picture that a notebook shows."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def __repr__(self) -> str:
        return f"<Picture of {len(self.svg)} bytes>"

    def _repr_svg_(self) -> str:
        return self.svg


def bound(kernel: str, params: list[dict[str, Any]], positional: tuple[Any, ...], arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names of parameters."""
    names = [param["name"] for param in params]
    if len(positional) > len(names):
        raise LaunchError(f"`{kernel}` takes {len(names)} arguments ({', '.join(names)}), and {len(positional)} are given")
    given = dict(zip(names, positional))
    for name, value in arguments.items():
        if name not in names:
            raise LaunchError(f"`{kernel}` has no parameter `{name}`; its parameters are {', '.join(names)}")
        if name in given:
            raise LaunchError(f"`{name}` is given twice")
        given[name] = value
    return given


def compile(
    text: str,
    *,
    arch: str | None = None,
    kernel: str | None = None,
    path: str | None = None,
    assume: Mapping[str, int] | None = None,
    sizes: Mapping[str, int] | None = None,
    **values: int,
) -> Kernel:
    """Compiles the text of a tile program. Keywords are values of its sizes and constants: the kernel relies on what the sizes are multiples of
    (or on `assume` alone: `assume={"k": 16}`) and refuses launches that break it. Without `arch`, the least architecture that has all that the
    program uses."""
    if path is None:
        frame = sys._getframe(1)
        path = f"<text in {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}>"
    program = _core.Program(text, path, kernel)
    return compiled(program, arch, {**(sizes or {}), **values}, assume)


def compile_file(file: str | os.PathLike[str], **options: Any) -> Kernel:
    """Compiles a `*.tile` file; the keywords are those of `compile`."""
    path = os.fspath(file)
    with open(path, encoding="utf-8") as stream:
        return compile(stream.read(), path=path, **options)


def compiled(program: _core.Program, arch: str | None, values: dict[str, int], assume: Mapping[str, int] | None) -> Kernel:
    """A kernel of a program."""
    return Kernel(program, program.compile(arch, values, dict(assume) if assume is not None else None))
