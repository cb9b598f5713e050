"""The stub of `tilewright.layout`, whose functions are those of a table, is that of the table. `TILEWRIGHT_BLESS=1` writes it."""

import os
import pathlib

import tilewright
from tilewright import _core

STUB = pathlib.Path(__file__).resolve().parent.parent / "tilewright" / "layout.pyi"
HEAD = '''\
# Made of the table of the calculator's functions by tests/test_stubs.py.
from typing import Any

from .errors import LayoutError

__all__: list[str]

class Layout:
    def __init__(self, shape: Any, stride: Any = None) -> None: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
    def __call__(self, *coordinate: Any) -> Any: ...
    def __matmul__(self, other: Any) -> Any: ...
    def __getitem__(self, mode: int) -> Any: ...
    def __len__(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def shape(self) -> Any: ...
    @property
    def stride(self) -> Any: ...
    def draw(self, form: str = "text", *, bits: int | None = None, tile: tuple[int, int] | None = None) -> str: ...
    def _repr_svg_(self) -> str | None: ...

def evaluate(expression: str) -> Any: ...
'''


def test_the_stub_of_layout_has_every_function():
    text = HEAD + "".join(f"def {name}(*arguments: Any) -> Any: ...\n" for name, _ in _core.functions())
    if os.environ.get("TILEWRIGHT_BLESS"):
        STUB.write_text(text)
    assert STUB.read_text() == text


def test_the_element_types_are_those_of_the_compiler():
    names = [name for name, _ in _core.types()]
    assert [name for name, annotation in tilewright.__annotations__.items() if annotation in ("DType", tilewright.DType)] == names
    assert set(names) <= set(tilewright.__all__) and all(getattr(tilewright, name).bits == bits for name, bits in _core.types())
