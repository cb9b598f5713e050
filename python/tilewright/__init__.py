"""Tilewright for Python: layouts, tile programs, kernels, and runs of them on a simulated GPU.

``compile(text, m=1024)`` makes a `Kernel` of a tile program, ``@kernel`` makes a program of a Python function, and `layout` has
the algebra of layouts. Nothing here imports CUDA, torch or numpy.
"""

from . import layout
from ._core import __version__, architectures, explain, gpus
from .arrays import Array
from .builder import Builder
from .errors import CompileError, DeviceError, Diagnostic, LaunchError, LayoutError, NotReady, TilewrightError
from .functions import KernelFunction, kernel
from .kernels import Kernel, Run, compile, compile_file
from .layout import Layout
from .tuning import Tuned, tune
from .types import DTYPES as _DTYPES
from .types import DType, TensorType, const, size

# The element types of the language, by the compiler's table; for those who read types, by name (tests/test_stubs.py compares).
f16: DType
bf16: DType
f32: DType
f64: DType
e4m3: DType
e5m2: DType
e3m2: DType
e2m3: DType
e2m1: DType
ue8m0: DType
ue4m3: DType
i1: DType
i2: DType
i4: DType
i8: DType
i16: DType
i32: DType
i64: DType
u1: DType
u2: DType
u4: DType
u8: DType
u16: DType
u32: DType
u64: DType
bool: DType
globals().update(_DTYPES)

__all__ = [
    "Array",
    "Builder",
    "CompileError",
    "DType",
    "DeviceError",
    "Diagnostic",
    "Kernel",
    "KernelFunction",
    "LaunchError",
    "Layout",
    "LayoutError",
    "NotReady",
    "Run",
    "TensorType",
    "TilewrightError",
    "Tuned",
    "__version__",
    "architectures",
    "bf16",
    "bool",
    "compile",
    "compile_file",
    "const",
    "e2m1",
    "e2m3",
    "e3m2",
    "e4m3",
    "e5m2",
    "explain",
    "f16",
    "f32",
    "f64",
    "gpus",
    "i1",
    "i16",
    "i2",
    "i32",
    "i4",
    "i64",
    "i8",
    "kernel",
    "layout",
    "size",
    "tune",
    "u1",
    "u16",
    "u2",
    "u32",
    "u4",
    "u64",
    "u8",
    "ue4m3",
    "ue8m0",
]
