"""Values of a kernel that is being built: integers, tensors, and expressions over them.

An expression is a tree until it is used. One that is used once, where it was made, stands in the statement that uses it, so that the
rules of arithmetic for one statement hold (a sum of a product is one `fma`). One that is used twice, in another block, or after a
tensor in it was changed, is a statement at the place where it was made, under the name of the variable that it was given to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .errors import CompileError, Diagnostic
from .layout import Layout
from .places import Place
from .types import DType

if TYPE_CHECKING:
    from .builder import Builder


class Value:
    """An integer, a tensor, or an expression of a kernel. Python's operators make expressions; comparisons give truth values of elements,
    ``&``, ``|``, ``^``, ``<<`` and ``>>`` are bitwise."""

    __slots__ = ("_builder", "_parts", "_tile", "_atom", "_name", "_wanted", "_place", "_made", "_named", "_changed", "__weakref__")
    _place: Place

    def __init__(self, builder: Builder, parts: list[Any], *, atom: bool = False, name: str | None = None) -> None:
        self._builder = builder
        self._parts = parts
        self._atom = atom
        self._name = name
        # Of an expression with elements: it may become a statement.
        self._tile = name is None and any(isinstance(part, Value) and part._is_tile() for part in parts)
        self._wanted: tuple[str, ...] = ()
        self._named = False
        # The places in the sequence of all that is recorded at which it was made and changed.
        self._changed: list[int] = []
        self._made = builder._record(self)

    def __hash__(self) -> int:
        # A value is the same as itself alone: `==` makes an expression.
        return id(self)

    def _is_tile(self) -> bool:
        return self._tile

    def _children(self) -> Iterator[Value]:
        return (part for part in self._parts if isinstance(part, Value))

    def _text(self, top: bool = False) -> str:
        """The text, in parentheses where it is an operand."""
        if self._name is not None:
            return self._name
        # Between the brackets of a call or an index no operand needs parentheses.
        text = "".join(part if isinstance(part, str) else part._text(self._atom) for part in self._parts)
        return text if top or self._atom else f"({text})"

    def _binary(self, sign: str, left: Any, right: Any) -> Value:
        builder = self._builder
        return Value(builder, [builder._part(left), f" {sign} ", builder._part(right)])

    def __bool__(self) -> bool:
        raise self._builder._wrong(
            "a condition of the kernel is known when it runs, and Python asks for it now",
            "`with t.if_(condition):` is a branch of the kernel; `t.and_(a, b)`, `t.or_(a, b)` and `t.not_(a)` join conditions",
        )

    def __iter__(self) -> Iterator[Any]:
        raise self._builder._wrong(
            "a value of the kernel has no elements that Python could go through",
            "`for i in t.range(n):` is a loop of the kernel",
        )

    def __index__(self) -> int:
        raise self._builder._wrong(
            f"`{self._text(True)}` has a value when the kernel is compiled or runs, and Python asks for a number now",
            "`t.range` and `t.unroll` are loops of the kernel; a number that Python needs is an argument of a function around the kernel",
        )

    def __getitem__(self, index: Any) -> Value:
        """A part of a tensor: integers and register tensors fix or index a mode, ``:`` keeps it."""
        builder = self._builder
        # A part is that of a tensor with a name.
        self._named = True
        entries = index if isinstance(index, tuple) else (index,)
        parts: list[Any] = [self, "["]
        for number, entry in enumerate(entries):
            parts += [", "] if number else []
            parts += builder._index(entry)
        part = Value(builder, [*parts, "]"], atom=True)
        return part

    def __setitem__(self, index: Any, value: Any) -> None:
        """``r[:] = value`` gives a register tensor new elements; ``r[:, :, i] = value`` a part of it. What ``r[i] += x`` leaves is that."""
        builder = self._builder
        if value is builder._updated:
            # `r[i] += x` has changed the part already.
            builder._updated = None
            return
        entries = index if isinstance(index, tuple) else (index,)
        whole = not any(isinstance(entry, Value) for entry in entries)
        whole = whole and all(entry is Ellipsis or entry == slice(None) for entry in entries)
        target = self if whole else self[index]
        builder._assign(target, value)

    def _update(self, sign: str, other: Any) -> Value:
        if not self._is_tile():
            return self._binary(sign, self, other)
        self._builder._assign(self, self._binary(sign, self, other))
        self._builder._updated = self
        return self


def _operator(sign: str) -> tuple[Callable[[Value, Any], Value], Callable[[Value, Any], Value], Callable[[Value, Any], Value]]:
    def forward(self: Value, other: Any) -> Value:
        return self._binary(sign, self, other)

    def backward(self: Value, other: Any) -> Value:
        return self._binary(sign, other, self)

    def update(self: Value, other: Any) -> Value:
        return self._update(sign, other)

    return forward, backward, update


for _name, _sign in {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "/", "mod": "%",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}.items():  # fmt: skip
    _forward, _backward, _change = _operator(_sign)
    setattr(Value, f"__{_name}__", _forward)
    setattr(Value, f"__r{_name}__", _backward)
    setattr(Value, f"__i{_name}__", _change)
for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    setattr(Value, f"__{_name}__", _operator(_sign)[0])
setattr(Value, "__neg__", lambda self: Value(self._builder, ["-", self]))
setattr(Value, "__pos__", lambda self: self)
setattr(Value, "__abs__", lambda self: self._builder.abs(self))


class Tensor(Value):
    """A named tensor: of registers, of shared memory, a view, or a parameter of a passed function."""

    __slots__ = ("dtype", "register")

    def __init__(self, builder: Builder, name: str, dtype: DType | None = None, register: bool = True) -> None:
        super().__init__(builder, [], atom=True, name=name)
        self.dtype: DType | None = dtype
        self.register: bool = register

    def _is_tile(self) -> bool:
        return True


class Buffer:
    """A tensor parameter: ``x[row:, :]`` is a part of it for `global_view`, ``table[i, j]`` an element as an integer."""

    def __init__(self, builder: Builder, name: str, rank: int, dtype: DType) -> None:
        self._builder, self._name, self._rank = builder, name, rank
        self.dtype: DType = dtype

    def __getitem__(self, index: Any) -> Value:
        builder = self._builder
        entries = index if isinstance(index, tuple) else (index,)
        if Ellipsis in [entry for entry in entries if not isinstance(entry, Value)]:
            at = [isinstance(entry, type(Ellipsis)) for entry in entries].index(True)
            rest = (slice(None),) * (self._rank - len(entries) + 1)
            entries = (*entries[:at], *rest, *entries[at + 1 :])
        parts: list[Any] = [f"{self._name}["]
        for number, entry in enumerate(entries):
            parts += [", "] if number else []
            parts += builder._index(entry)
        return Value(builder, [*parts, "]"], atom=True)


def literal(value: Any) -> str | None:
    """The text of what Python has: numbers, types, layouts, words, lists and tuples without values of the kernel."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (DType, Layout)):
        return str(value)
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return "nan" if math.isnan(value) else repr(value)
    if hasattr(value, "__index__") and not isinstance(value, Value):
        return str(value.__index__())
    if hasattr(value, "__float__") and not isinstance(value, Value):
        return literal(float(value))
    return None


def wrong_at(file: str, line: int, column: int, text: str, message: str, help: str) -> CompileError:
    """An error about a line of the author's, with the line."""
    shown = f"error[python]: {message}\n  --> {file}:{line}:{column}\n   |\n{line} | {text.rstrip()}\n   |\n   = help: {help}"
    diagnostic = Diagnostic("python", message, file=file, line=line, column=column, help=help, text=shown)
    return CompileError(f"\n{shown}", (diagnostic,))
