"""Places in the author's files: the innermost call outside of this package, as precisely as the interpreter knows it."""

from __future__ import annotations

import ast
import contextlib
import dis
import linecache
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType

# Files whose calls are not the author's: those of this package, and that of `with`.
_OTHERS = (os.path.dirname(os.path.abspath(__file__)) + os.sep, contextlib.__file__)
_stored: dict[CodeType, dict[int, tuple[str, ...]]] = {}
# By file.
_parallel: dict[str, dict[tuple[tuple[int, int], tuple[int, int]], str]] = {}


@dataclass(frozen=True)
class Place:
    """A part of a file: lines from 1, bytes of a line from 0."""

    file: str
    start: tuple[int, int]
    end: tuple[int, int]


def author() -> FrameType:
    """The innermost frame that is not of this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OTHERS):
        frame = frame.f_back
    return frame or sys._getframe(1)


def place_of(frame: FrameType) -> Place:
    """The expression that a frame evaluates; before Python 3.11 its line."""
    code, line = frame.f_code, frame.f_lineno
    positions = getattr(code, "co_positions", None)
    if positions is not None and frame.f_lasti >= 0:
        for number, (first, last, column, behind) in enumerate(positions()):
            if number == frame.f_lasti // 2:
                if None not in (first, last, column, behind):
                    return Place(code.co_filename, (first, column), (last, behind))
                break
    text = linecache.getline(code.co_filename, line)
    return Place(code.co_filename, (line, len(text) - len(text.lstrip())), (line, len(text.rstrip().encode())))


def names_at(frame: FrameType) -> tuple[str, ...]:
    """The variables that the value of the expression goes to, if it goes to variables at once: names for messages and pictures."""
    code = frame.f_code
    if code not in _stored:
        _stored[code] = _stores(code)
    stored = _stored[code]
    # The place in the code may be one of the caches behind the instruction.
    found = next((stored[at] for at in range(frame.f_lasti, -1, -2) if at in stored), ())
    return found or _beside(place_of(frame))


def _beside(place: Place) -> tuple[str, ...]:
    """The variable of an expression that is one of several with a variable each: ``sa, sb = first(), second()``."""
    if place.file not in _parallel:
        _parallel[place.file] = dict(_pairs("".join(linecache.getlines(place.file))))
    name = _parallel[place.file].get((place.start, place.end))
    return () if name is None else (name,)


def _pairs(text: str) -> Iterator[tuple[tuple[tuple[int, int], tuple[int, int]], str]]:
    """The expressions of a file's assignments of several to several, by their places, with the variables."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        # Not the file that runs.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _named(target, node.value)


def _named(target: ast.expr, value: ast.expr, inside: bool = False) -> Iterator[tuple[tuple[tuple[int, int], tuple[int, int]], str]]:
    """The expressions within a value, each with the variable at its place in the target."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for variable, each in zip(target.elts, value.elts):
            yield from _named(variable, each, True)
    elif inside and isinstance(target, ast.Name) and value.end_lineno is not None and value.end_col_offset is not None:
        yield ((value.lineno, value.col_offset), (value.end_lineno, value.end_col_offset)), target.id


def _stores(code: CodeType) -> dict[int, tuple[str, ...]]:
    """The variables that the instruction behind each instruction stores to."""
    instructions = list(dis.get_instructions(code))

    def names(at: int) -> tuple[str, ...]:
        if at >= len(instructions) or not instructions[at].opname.startswith("STORE_"):
            return ()
        name = instructions[at].argval
        if isinstance(name, tuple):
            # Two instructions in one: of two stores both names, of a store and a load the first.
            return tuple(name) if instructions[at].opname.count("STORE") == 2 else name[:1]
        return (name,) if isinstance(name, str) and instructions[at].opname != "STORE_ATTR" else ()

    found = {}
    for at, instruction in enumerate(instructions[:-1]):
        behind = instructions[at + 1]
        if behind.opname == "UNPACK_SEQUENCE":
            stored: tuple[str, ...] = ()
            while len(stored) < behind.arg and (more := names(at + 2 + len(stored))):  # type: ignore[operator]
                stored += more
            found[instruction.offset] = stored
        else:
            found[instruction.offset] = names(at + 1)
    return found
