"""Tuning of operators: `tune` measures their configurations on a GPU and records the fastest, which later calls take. No call tunes by itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _core
from .errors import LaunchError

#: A function that is told of progress: the problem, the part of the time that is spent, and what is done.
Progress = Callable[[str, float, str], object]


@dataclass(frozen=True)
class Tuned:
    """The result of tuning a problem."""

    #: The operator with its sizes.
    problem: str
    #: `measured`, `record` where it was there already, or `estimate`.
    origin: str
    #: The configuration that calls take.
    configuration: str
    #: Its time; none of an estimate.
    microseconds: float | None
    #: All that the search did: every configuration with its estimate and its times. None of a record that was there.
    report: dict[str, Any] | None = field(repr=False)


def _line(problem: str, spent: float, doing: str) -> None:
    """Writes the progress on one line of a terminal."""
    sys.stderr.write(f"\r\x1b[K{problem}  {spent:4.0%}  {doing}"[:160])
    sys.stderr.flush()


def tune(
    operator: str,
    problems: Mapping[str, int] | Iterable[Mapping[str, int]],
    *,
    options: Mapping[str, Any] | None = None,
    device: int = 0,
    seconds: float = 60.0,
    fresh: bool = False,
    estimate: str | None = None,
    progress: Progress | None = None,
) -> list[Tuned]:
    """Tunes an operator for a problem or several (sizes by name), one after another, each within so many seconds: ``tune("gemm", {"m": 4096, "n": 4096,
    "k": 4096}, options={"dtype": "bf16"})``. What has a record is not measured again, unless it shall be `fresh`. The interpreter's lock is released
    meanwhile; an interrupt is raised when the search under way ends. `progress` is called now and then; without one, a terminal shows it. With
    ``estimate="sm_90a"`` nothing is measured or recorded, and no GPU is needed: configurations are ranked by the estimate for an architecture."""
    from .ops import _options

    shown = progress or (_line if sys.stderr.isatty() else None)
    asked = _options(options)
    found = []
    for sizes in [problems] if isinstance(problems, Mapping) else problems:
        named = f"{operator} {' '.join(f'{name}={value}' for name, value in sizes.items())}"

        def told(spent: float, doing: str, named: str = named) -> None:
            if shown is not None:
                shown(named, spent, doing)

        result = json.loads(_core.tuned(operator, dict(sizes), asked, device, seconds, fresh, estimate, told))
        record, report = result["record"], result["report"]
        if record is not None:
            best, time = record["configuration"], record["microseconds"]
        else:
            best, time = next((entry["configuration"] for entry in report["entries"] if entry["refused"] is None), None), None
        if best is None:
            raise LaunchError(f"no configuration of `{named}` is accepted: give other options")
        found.append(Tuned(result["problem"], result["origin"], best, time, report))
    if shown is _line:
        sys.stderr.write("\r\x1b[K")
    return found
