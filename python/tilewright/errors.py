"""Exceptions: each says what is wrong beside the lines that it is about, and has its parts as attributes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Diagnostic:
    """A message about a program: the kind of mistake, a sentence, its place, and the remedy."""

    code: str | None
    message: str
    severity: str = "error"
    file: str | None = None
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    help: str | None = None
    notes: tuple[str, ...] = ()
    related: tuple[tuple[str, str | None, int | None], ...] = ()
    text: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.text or self.message

    @classmethod
    def _of(cls, value: dict[str, Any]) -> Diagnostic:
        place = value.get("place") or {}
        start, end = place.get("start") or {}, place.get("end") or {}
        related = []
        for other in value.get("related") or ():
            where = other.get("place") or {}
            related.append((other["message"], where.get("file"), (where.get("start") or {}).get("line")))
        return cls(
            code=value.get("code"),
            message=value["message"],
            severity=value.get("severity", "error"),
            file=place.get("file"),
            line=start.get("line"),
            column=start.get("column"),
            end_line=end.get("line"),
            end_column=end.get("column"),
            help=value.get("help"),
            notes=tuple(value.get("notes") or ()),
            related=tuple(related),
            text=value.get("text", ""),
        )


class TilewrightError(Exception):
    """Anything that Tilewright refuses. Its text has the excerpt of the file; the attributes are those of the first message."""

    def __init__(self, text: str, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(text)
        self.diagnostics = diagnostics

    @classmethod
    def _of(cls, text: str, diagnostics: str) -> TilewrightError:
        messages = tuple(Diagnostic._of(value) for value in json.loads(diagnostics))
        # One message is read below the name of the exception: it begins on a line of its own.
        return cls(f"\n{text}" if "\n" in text else text, messages)

    def _first(self) -> Diagnostic:
        return self.diagnostics[0] if self.diagnostics else Diagnostic(None, str(self))

    @property
    def code(self) -> str | None:
        """The code of the first message, for `tilewright.explain`."""
        return self._first().code

    @property
    def message(self) -> str:
        """The first message's sentence."""
        return self._first().message

    @property
    def help(self) -> str | None:
        """The remedy that the first message names."""
        return self._first().help

    @property
    def file(self) -> str | None:
        """The file of the first message."""
        return self._first().file

    @property
    def line(self) -> int | None:
        """The line of the first message, from 1."""
        return self._first().line

    @property
    def column(self) -> int | None:
        """The column of the first message, from 1."""
        return self._first().column


class CompileError(TilewrightError):
    """The compiler refuses a program."""


class LaunchError(TilewrightError, ValueError):
    """A launch is refused, or fails: its sizes or arrays do not fit, or roles wait for ever."""


class LayoutError(TilewrightError, ValueError):
    """An operation on layouts is refused."""


class NotReady(TilewrightError, RuntimeError):
    """A kernel was not compiled before, and must not be now: a launch is strict, or its stream is being captured."""


class DeviceError(TilewrightError, RuntimeError):
    """There is no GPU, or no driver."""
