"""Annotations of a kernel's parameters: element types, tensors, sizes and constants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from . import _core


@dataclass(frozen=True)
class DType:
    """An element type. ``f16["m", "k"]`` annotates a tensor, ``f32`` alone a number."""

    name: str
    bits: int

    def __getitem__(self, shape: Any) -> TensorType:
        return TensorType(self, shape if isinstance(shape, tuple) else (shape,))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"tilewright.{self.name}"


@dataclass(frozen=True)
class TensorType:
    """A tensor in global memory: ``f16["m", "k"]``. Extents are numbers, names of sizes, and expressions over them as text."""

    dtype: DType
    shape: tuple[Any, ...]
    strides: tuple[Any, ...] = ()
    count: Any = None
    constant: bool = False

    def __getitem__(self, shape: Any) -> TensorType:
        """An array of tensors: ``f16["l"]["m", "k"]`` is l tensors of m times k."""
        return replace(self, count=self.shape[0], shape=shape if isinstance(shape, tuple) else (shape,))

    def stored(self, *strides: Any) -> TensorType:
        """With strides in elements: ``f16["m", "k"].stored(1, "m")`` is column-major."""
        return replace(self, strides=strides)

    def unwritten(self) -> TensorType:
        """Written by no launch of the sequence that the kernel is part of, as a model's weights (`constant` of the language)."""
        return replace(self, constant=True)


@dataclass(frozen=True)
class _Kind:
    """A kind of integers: the annotation of a parameter whose default is the number's."""

    name: str

    def __repr__(self) -> str:
        return f"tilewright.{self.name}"


#: Annotates a size, a number that is known at launch: ``n: size = 1000``.
size: _Kind = _Kind("size")
#: Annotates a constant, a number that is known when the kernel is compiled: ``BM: const = 64``.
const: _Kind = _Kind("const")

DTYPES: dict[str, DType] = {name: DType(name, bits) for name, bits in _core.types()}
