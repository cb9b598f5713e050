"""The algebra of layouts: CuTe's layouts, swizzles, coordinate layouts and linear layouts over F2 as Python objects.

``Layout("(4,8):(8,1)")`` reads the notation of the papers; every function of ``tilewright layout`` is a function here, e.g.
``compose``, ``complement``, ``logical_divide``, ``right_inverse``. Arguments are layouts, integers, tuples of them (a shape, a
coordinate, a profile; ``None`` in a coordinate leaves a mode out), lists (tilers ``[4, 8]``, and names of dimensions
``["x", "y"]``) and texts. Results that are numbers, truth values and tuples of numbers are Python's own.
"""

from __future__ import annotations

import json
from typing import Any

from . import _core
from .errors import LayoutError


def _text(value: Any) -> str:
    """A value as the calculator reads it."""
    if isinstance(value, Layout):
        return f"({value})" if " o " in str(value) else str(value)
    if isinstance(value, bool):
        raise LayoutError(f"{value} is no layout, number or tuple")
    if isinstance(value, int):
        return str(value)
    if value is None:
        return "_"
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, list):
        if value and all(isinstance(name, str) and name.isidentifier() for name in value):
            return f"[{', '.join(value)}]"
        return f"<{', '.join(map(_text, value))}>"
    if isinstance(value, dict):
        return f"[{', '.join(f'{name}:{number}' for name, number in value.items())}]"
    raise LayoutError(f"a {type(value).__name__} is no layout, number or tuple")


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value


def _result(value: _core.Value) -> Any:
    """A value of the calculator as Python has it."""

    def plain(data: dict[str, Any]) -> Any:
        if "fields" in data:
            return {name: plain(field) for name, field in data["fields"]}
        if "value" in data:
            return _tuple(data["value"])
        return Layout._of(_core.evaluate(data["text"]))

    data = json.loads(value.json())
    return plain(data) if "fields" in data or "value" in data else Layout._of(value)


class Layout:
    """A layout of any kind: ``Layout("(4,8):(8,1)")``, ``Layout((4, 8), (8, 1))``, ``Layout("Sw<3,3,3> o (64,64):(64,1)")``,
    ``Layout("[lane: 1 2; register: 4] -> [x:8]")``; also tilers, swizzles and coordinates."""

    __slots__ = ("_value",)
    _value: _core.Value

    def __init__(self, shape: Any, stride: Any = None) -> None:
        text = _text(shape) if stride is None else f"{_text(shape)}:{_text(stride)}"
        if stride is None and isinstance(shape, (int, tuple)):
            # A shape alone is compact, the first mode contiguous, as in CuTe.
            text = f"column_major({text})"
        self._value = _core.evaluate(text)

    @classmethod
    def _of(cls, value: _core.Value) -> Layout:
        layout = object.__new__(cls)
        layout._value = value
        return layout

    def __str__(self) -> str:
        return str(self._value)

    def __repr__(self) -> str:
        return f"Layout({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __call__(self, *coordinate: Any) -> Any:
        """The value at a coordinate: an integer that counts all of them, one number a mode, or nested tuples. ``None`` leaves a mode
        out, which slices; of a linear layout names: ``layout(lane=9, register=1)`` is ``layout({"lane": 9, "register": 1})``."""
        return _result(_core.evaluate(f"let L = {self}; L({', '.join(map(_text, coordinate))})"))

    def __matmul__(self, other: Any) -> Any:
        """``A @ B`` is A∘B: B first."""
        return _result(_core.evaluate(f"let A = {self}; A o {_text(other)}"))

    def __getitem__(self, mode: int) -> Any:
        """A mode, counted from 0."""
        return _call("mode", self, mode)

    def __len__(self) -> int:
        return int(_call("rank", self))

    @property
    def kind(self) -> str:
        """The kind in a word: ``layout``, ``swizzled_layout``, ``linear_layout``, ``swizzle``, ``tiler``, …"""
        return self._value.kind

    @property
    def shape(self) -> Any:
        """The shape, as nested tuples."""
        return _call("shape", self)

    @property
    def stride(self) -> Any:
        """The stride, as nested tuples."""
        return _call("stride", self)

    def draw(self, form: str = "text", *, bits: int | None = None, tile: tuple[int, int] | None = None) -> str:
        """A picture, as ``text``, ``svg`` or ``latex``: the value at each coordinate. With ``bits``, the bank of shared memory of each
        element of so many bits; with ``tile``, a layout (thread, value) → coordinate of a tile, who holds each element."""
        return self._value.draw(form, bits, tile)

    def _repr_svg_(self) -> str | None:
        """The picture in a notebook; none of what has no picture."""
        try:
            return self.draw("svg")
        except LayoutError:
            return None


def evaluate(expression: str) -> Any:
    """The value of an expression of ``tilewright layout``: ``evaluate("let A = (8,8):(8,1); A o 4:2")``."""
    return _result(_core.evaluate(expression))


def _call(name: str, *arguments: Any) -> Any:
    return _result(_core.evaluate(f"{name}({', '.join(map(_text, arguments))})"))


def _defined(name: str, signature: str) -> Any:
    def function(*arguments: Any) -> Any:
        return _call(name, *arguments)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = signature
    return function


_functions = dict(_core.functions())
# What Python has a word for is an attribute or a method of layouts alone.
globals().update({name: _defined(name, signature) for name, signature in _functions.items()})

__all__ = ["Layout", "LayoutError", "evaluate", *_functions]
