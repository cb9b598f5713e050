"""Arrays of others as bytes, and bytes as arrays: by the buffer protocol, `__array_interface__` and DLPack, without numpy."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from .errors import LaunchError

# Element types by the letters of the `struct` module, which PEP 3118 takes, with the bytes that they have in its standard form.
_FORMATS = {
    "e": "f16", "f": "f32", "d": "f64", "?": "bool",
    "b": "i8", "h": "i16", "i": "i32", "q": "i64", "B": "u8", "H": "u16", "I": "u32", "Q": "u64",
}  # fmt: skip
_LETTERS = {name: letter for letter, name in _FORMATS.items()}
# Letters whose sizes depend on the machine, by signedness.
_NATIVE = {"l": "i", "L": "u", "n": "i", "N": "u"}
# Kinds of `__array_interface__`: the type string without its byte order.
_KINDS = {
    "f2": "f16", "f4": "f32", "f8": "f64", "b1": "bool",
    "i1": "i8", "i2": "i16", "i4": "i32", "i8": "i64", "u1": "u8", "u2": "u16", "u4": "u32", "u8": "u64",
}  # fmt: skip
_TYPESTRS = {name: ("|" if kind[1] == "1" else "<") + kind for kind, name in _KINDS.items()}
# Codes of element types in DLPack (dlpack.h), with their bits.
_DLPACK = {
    (0, 8): "i8", (0, 16): "i16", (0, 32): "i32", (0, 64): "i64",
    (1, 8): "u8", (1, 16): "u16", (1, 32): "u32", (1, 64): "u64",
    (2, 16): "f16", (2, 32): "f32", (2, 64): "f64", (4, 16): "bf16", (6, 8): "bool",
    (10, 8): "e4m3", (12, 8): "e5m2", (14, 8): "ue8m0",
}  # fmt: skip
_BYTES = {
    "f64": 8, "f32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "e3m2": 1, "e2m3": 1, "ue8m0": 1, "bool": 1,
    "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u8": 1, "u16": 2, "u32": 4, "u64": 8,
}  # fmt: skip
# Types without a letter, by the names that ml_dtypes gives them.
_NAMED = {
    "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float8_e8m0fnu": "ue8m0",
    "float6_e3m2fn": "e3m2", "float6_e2m3fn": "e2m3",
}  # fmt: skip
# Floats without infinities and NaN: bits, those of the mantissa, and the bias.
_FINITE = {"e3m2": (6, 2, 3), "e2m3": (6, 3, 1)}

Encoded = tuple[str, list[int], bytes]


class Array:
    """Elements of one type, row-major, as a kernel left them. `numpy.asarray` and `memoryview` read it without a copy where they
    have the type; `tolist` gives numbers."""

    def __init__(self, dtype: str, shape: Sequence[int], data: bytes | bytearray) -> None:
        self.dtype = dtype
        self.shape: tuple[int, ...] = tuple(shape)
        self._data = bytearray(data)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.dtype not in _TYPESTRS:
            raise AttributeError(f"numpy has no {self.dtype}: `tobytes` has the bytes, `tolist` the numbers")
        return {"version": 3, "shape": self.shape, "typestr": _TYPESTRS[self.dtype], "data": memoryview(self._data)}

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without extents has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<Array {self.dtype}{list(self.shape)}>"

    def tobytes(self) -> bytes:
        """The elements as little-endian bytes."""
        return bytes(self._data)

    def flat(self) -> list[float]:
        """The elements as numbers, in one list."""
        count = len(self._data) // _BYTES[self.dtype]
        letter = _LETTERS.get(self.dtype)
        if letter is not None:
            return list(struct.unpack(f"<{count}{letter}", self._data))
        if self.dtype == "bf16":
            halves = struct.unpack(f"<{count}H", self._data)
            return list(struct.unpack(f"<{count}f", struct.pack(f"<{count}I", *(half << 16 for half in halves))))
        return [_small(self.dtype, byte) for byte in self._data]

    def tolist(self) -> Any:
        """The elements as nested lists of numbers."""
        values: Any = self.flat()
        for extent in reversed(self.shape[1:]):
            values = [values[i : i + extent] for i in range(0, len(values), extent)]
        return values if self.shape else values[0]


def _small(dtype: str, byte: int) -> float:
    """The value of a float in a byte."""
    if dtype in _FINITE:
        bits, mantissas, bias = _FINITE[dtype]
        size = byte & ((1 << (bits - 1)) - 1)
        exponent, mantissa = size >> mantissas, size & ((1 << mantissas) - 1)
        number = (mantissa + ((1 << mantissas) if exponent else 0)) * 2.0 ** (max(exponent, 1) - bias - mantissas)
        return -number if byte >> (bits - 1) & 1 else number
    if dtype == "ue8m0":
        return float("nan") if byte == 0xFF else 2.0 ** (byte - 127)
    if dtype == "e5m2":
        return float(struct.unpack("<e", bytes([0, byte]))[0])
    sign = -1.0 if byte & 0x80 else 1.0
    exponent, mantissa = byte >> 3 & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    return sign * (mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10))


def _format(letter: str, itemsize: int) -> str | None:
    """The element type of a letter of PEP 3118 with so many bytes."""
    letter = letter.lstrip("@=<")
    if letter in _NATIVE:
        return f"{_NATIVE[letter]}{8 * itemsize}"
    return _FORMATS.get(letter)


def encode(name: str, value: Any) -> Encoded:
    """The element type, the extents and the row-major bytes of an array of anybody's.

    The first of these that the object has: the types' names of ml_dtypes, the buffer protocol, `__array_interface__`, DLPack (on the
    CPU), nested lists of numbers.
    """
    if isinstance(value, Array):
        return value.dtype, list(value.shape), value.tobytes()
    named = _NAMED.get(str(getattr(value, "dtype", "")))
    if named is not None and hasattr(value, "tobytes"):
        return named, [int(n) for n in value.shape], value.tobytes()
    try:
        view = memoryview(value)
    except (TypeError, ValueError, BufferError):
        view = None
    if view is not None:
        found = _format(view.format, view.itemsize)
        if found is None:
            raise LaunchError(f"`{name}`: elements of the form `{view.format}` have no type of a kernel")
        return found, list(view.shape or ()), view.tobytes()
    if hasattr(value, "__dlpack__"):
        return _dlpack(name, value)
    if hasattr(value, "__array_interface__"):
        return _interface(name, value.__array_interface__)
    if isinstance(value, (list, tuple)):
        return _nested(name, value)
    raise LaunchError(
        f"`{name}`: a {type(value).__name__} is no array: give an object with the buffer protocol, `__array_interface__` or "
        "`__dlpack__`, or nested lists of numbers"
    )


def _interface(name: str, interface: dict[str, Any]) -> Encoded:
    typestr, shape = interface["typestr"], [int(n) for n in interface["shape"]]
    found = _KINDS.get(typestr[1:])
    if found is None or typestr[0] == ">":
        raise LaunchError(f"`{name}`: elements of the form `{typestr}` have no type of a kernel")
    size = _BYTES[found]
    strides = interface.get("strides") or _row_major(shape, size)
    pointer, _ = interface["data"]
    return found, shape, _gather(pointer, shape, list(strides), size)


def _row_major(shape: list[int], size: int) -> list[int]:
    strides = []
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    return strides[::-1]


def _gather(pointer: int, shape: list[int], strides: list[int], size: int) -> bytes:
    """The elements at strides in bytes, row-major."""
    if 0 in shape:
        return b""
    if strides == _row_major(shape, size):
        count = size
        for extent in shape:
            count *= extent
        return ctypes.string_at(pointer, count)
    if len(shape) == 1:
        return b"".join(ctypes.string_at(pointer + i * strides[0], size) for i in range(shape[0]))
    return b"".join(_gather(pointer + i * strides[0], shape[1:], strides[1:], size) for i in range(shape[0]))


class _DLTensor(ctypes.Structure):
    """`DLTensor` of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Lent:
    """A tensor on the CPU that another library lends by DLPack."""

    def __init__(self, name: str, value: Any) -> None:
        device, _ = value.__dlpack_device__()
        if int(device) != 1:
            raise LaunchError(f"`{name}` is not in the memory of the CPU: the simulator takes what is there, e.g. `{name}.cpu()`")
        # The capsule keeps the memory until it is collected.
        self.capsule = value.detach().__dlpack__() if getattr(value, "requires_grad", False) else value.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        # `DLManagedTensor` begins with its `DLTensor`.
        tensor = _DLTensor.from_address(pointer(self.capsule, b"dltensor"))
        found = _DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
        if found is None:
            raise LaunchError(f"`{name}`: elements of DLPack's type {tensor.code} with {tensor.bits} bits have no type of a kernel")
        self.dtype, self.size = found, _BYTES[found]
        self.shape = [int(tensor.shape[i]) for i in range(tensor.ndim)]
        compact = _row_major(self.shape, self.size)
        self.strides = [self.size * int(tensor.strides[i]) for i in range(tensor.ndim)] if tensor.strides else compact
        self.pointer: int = (tensor.data or 0) + tensor.byte_offset


def _dlpack(name: str, value: Any) -> Encoded:
    lent = _Lent(name, value)
    return lent.dtype, lent.shape, _gather(lent.pointer, lent.shape, lent.strides, lent.size)


def _nested(name: str, value: Any) -> Encoded:
    shape, inner = [], value
    while isinstance(inner, (list, tuple)):
        shape.append(len(inner))
        inner = inner[0] if inner else 0
    flat: list[float] = []

    def add(part: Any, rest: list[int]) -> None:
        if not rest:
            flat.append(part)
            return
        if not isinstance(part, (list, tuple)) or len(part) != rest[0]:
            raise LaunchError(f"`{name}`: the lists differ in length")
        for each in part:
            add(each, rest[1:])

    add(value, shape)
    whole = all(isinstance(x, int) for x in flat)
    return ("i64" if whole else "f64"), shape, struct.pack(f"<{len(flat)}{'q' if whole else 'd'}", *flat)


def decode_into(name: str, target: Any, array: Array) -> None:
    """Writes an array into the memory of the object that was given for it, as a launch does. Lists stay as they are.

    The object must be of the type, contiguous and writable.
    """
    if isinstance(target, (list, tuple)):
        return
    if isinstance(target, Array):
        found, shape, contiguous, writable = target.dtype, target.shape, True, True
    else:
        try:
            view = memoryview(target)
        except (TypeError, ValueError, BufferError):
            view = None
        if view is not None:
            found, shape = _format(view.format, view.itemsize) or view.format, tuple(view.shape or ())
            contiguous, writable = view.c_contiguous, not view.readonly
        elif hasattr(target, "__dlpack__"):
            lent = _Lent(name, target)
            found, shape, writable = lent.dtype, tuple(lent.shape), True
            contiguous = lent.strides == _row_major(lent.shape, lent.size)
        else:
            found, shape, contiguous, writable = array.dtype, array.shape, True, False
    reason = (
        f"of type {found}, and the kernel writes {array.dtype}" if found != array.dtype
        else "not contiguous" if not contiguous
        else "not writable" if not writable
        else None
    )  # fmt: skip
    if reason is not None:
        raise LaunchError(f"`{name}` is {reason}: give another array, or none and take `run[\"{name}\"]`")
    if isinstance(target, Array):
        target._data[:] = array._data
    elif view is not None:
        view.cast("B")[:] = array._data
    else:
        ctypes.memmove(lent.pointer, bytes(array._data), len(array._data))
