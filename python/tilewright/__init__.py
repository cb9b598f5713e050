"""Tilewright for Python: layouts, tile programs, kernels, and runs of them on a simulated GPU.

``compile(text, m=1024)`` makes a `Kernel` of a tile program, ``@kernel`` makes a program of a Python function, and `layout` has
the algebra of layouts. Nothing here imports CUDA, torch or numpy.
"""

from . import layout
from ._core import __version__, architectures, explain
from .arrays import Array
from .builder import Builder
from .errors import CompileError, DeviceError, Diagnostic, LaunchError, LayoutError, NotReady, TilewrightError
from .functions import KernelFunction, kernel
from .kernels import Kernel, Run, compile, compile_file
from .layout import Layout
from .types import DTYPES as _DTYPES
from .types import DType, TensorType, const, size

# The element types of the language, by the compiler's table.
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
    "__version__",
    "architectures",
    "compile",
    "compile_file",
    "const",
    "explain",
    "kernel",
    "layout",
    "size",
    *_DTYPES,
]
