"""The plugin for pytest: the options ``--tw-device`` and ``--tw-seeds``, and the fixtures `tw_device` and `tw_right`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from . import __version__, gpus
from .kernels import Run
from .testing import SEEDS, assert_right


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("tilewright")
    group.addoption("--tw-device", choices=("sim", "cuda"), default="sim", help="where tests with `tw_device` run kernels: the simulator, or a GPU")
    group.addoption("--tw-seeds", type=int, default=SEEDS, metavar="N", help=f"runs of `tw_right` on the simulator (by default {SEEDS})")


def pytest_report_header(config: pytest.Config) -> str:
    """The line about the package at the head of a session."""
    return f"tilewright: {__version__}, device {config.getoption('--tw-device')}"


@pytest.fixture
def tw_device(request: pytest.FixtureRequest) -> str:
    """``sim`` or ``cuda``: the device that the session asks for. A test that asks for a GPU is skipped where there is none."""
    device: str = request.config.getoption("--tw-device")
    if device == "cuda" and not gpus():
        pytest.skip("there is no GPU, or no driver")
    return device


@pytest.fixture
def tw_right(request: pytest.FixtureRequest) -> Callable[..., Run]:
    """`tilewright.testing.assert_right`, with the session's number of runs."""
    right: Callable[..., Any] = functools.partial(assert_right, seeds=request.config.getoption("--tw-seeds"))
    return right
