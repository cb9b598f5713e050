"""Operators on a GPU: everything that ``tilewright kernels`` lists, chosen by records of what was measured, on torch's current stream.

``library(0).call("rmsnorm", x=x, w=w, y=y, eps=1e-5)`` takes tensors and numbers by the names that the operator has for them; options
are text, ``options={"epilogue": "bias+gelu"}``. `linear` and `gemm` allocate their results.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from . import _core


def _options(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Options as text; truth values as the operators have them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in (options or {}).items()}


class Library:
    """The operators on one GPU. What is chosen, compiled and loaded for sizes is kept, on disk too."""

    def __init__(self, device: int = 0) -> None:
        self.device = device
        self._native = _core.Library(device)
        self._workspaces: dict[int, Any] = {}
        # Operators of which a call has needed a workspace.
        self._needing: set[str] = set()
        #: A call chooses and compiles nothing: what `warm_up` has not made is `NotReady`.
        self.strict = False
        #: Launches may begin before those ahead of them have ended: of operators whose kernels wait by themselves, on Hopper.
        self.dependent = False

    def call(
        self,
        operator: str,
        *,
        options: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
        stream: int | None = None,
        workspace: Any = None,
        **arguments: Any,
    ) -> None:
        """Puts the launches of an operator on the stream; nothing waits. The workspace is a tensor of bytes on the GPU; without one, tensors of torch
        get one of the library's for the stream, where the operator needs one."""
        asked, numbers = _options(options) if options else {}, dict(sizes) if sizes else {}
        if workspace is not None:
            given = (workspace.data_ptr(), workspace.numel() * workspace.element_size())
            self._native.call(operator, arguments, asked, numbers, stream, self.strict, given, False, self.dependent)
            return
        lends = any(hasattr(value, "data_ptr") for value in arguments.values())
        held = self._kept(stream) if lends and operator in self._needing else None
        # The launch itself says whether it needs more.
        while True:
            memory: tuple[int, int] | None = None if held is None else (held.data_ptr(), held.numel())
            needed = self._native.call(operator, arguments, asked, numbers, stream, self.strict, memory, lends, self.dependent)
            if not needed:
                return
            self._needing.add(operator)
            held = self._lent(stream, needed)

    def _kept(self, stream: int | None) -> Any:
        """The workspace that a stream has, if it has one and is not captured."""
        import torch

        # Of torch's current stream, without making an object of it.
        if stream is not None or not hasattr(torch, "_C") or torch.cuda.current_device() != self.device:
            return self._lent(stream, 0)
        if torch._C._cuda_isCurrentStreamCapturing():
            return None
        return self._workspaces.get(torch._C._cuda_getCurrentRawStream(self.device))

    def _lent(self, stream: int | None, needed: int) -> Any:
        """The workspace of a stream, of at least so many bytes; of one that is captured a new one of its graph's memory, which nothing else uses."""
        import torch

        if stream is None:
            used = torch.cuda.current_stream(self.device)
        else:
            used = torch.cuda.ExternalStream(stream, self.device) if stream else torch.cuda.default_stream(self.device)
        # Memory of torch is the stream's on which it was allocated, and what the stream has put ahead may still use it when it is freed.
        with torch.cuda.stream(used):
            captured = torch.cuda.is_current_stream_capturing()
            held = None if captured else self._workspaces.get(used.cuda_stream)
            if needed and (held is None or held.numel() < needed):
                held = torch.empty(needed, dtype=torch.uint8, device=f"cuda:{self.device}")
                if not captured:
                    self._workspaces[used.cuda_stream] = held
            return held

    def why(self, operator: str, *, options: Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None, **arguments: Any) -> str:
        """The reason why such a call runs which kernels."""
        return self._native.why(operator, dict(arguments), _options(options), dict(sizes or {}))

    def warm_up(self, operator: str, *, options: Mapping[str, Any] | None = None, **sizes: int | tuple[int, int] | range) -> tuple[int, int, int]:
        """Chooses, compiles and loads the kernels for all sizes of ranges (a number, or the first and the last), in parallel: the numbers of classes,
        configurations and kernels."""

        def span(value: Any) -> tuple[int, int]:
            if isinstance(value, range):
                return value[0], value[-1]
            return value if isinstance(value, tuple) else (value, value)

        return self._native.warm_up(operator, _options(options), {name: span(value) for name, value in sizes.items()})


_libraries: dict[int, Library] = {}
_lock = threading.Lock()


def library(device: int = 0) -> Library:
    """The operators on a GPU, made once."""
    found = _libraries.get(device)
    if found is None:
        with _lock:
            found = _libraries.get(device) or _libraries.setdefault(device, Library(device))
    return found


#: Operations on a product's sums that `linear` takes.
ACTIVATIONS = ("relu", "gelu", "silu")


def _stored(tensor: Any, other: str) -> tuple[Any, dict[str, str]]:
    """A factor as products read it, and the option for that: contiguous along its last mode, or along the first, which is `other`; what is neither is copied."""
    if tensor.is_contiguous():
        return tensor, {}
    if tensor.T.is_contiguous():
        return tensor, {other[0]: other[1]}
    return tensor.contiguous(), {}


def linear(x: Any, weight: Any, bias: Any = None, *, activation: str | None = None, out: Any = None) -> Any:
    """``activation(x · weightᵀ + bias)`` of tensors of torch of one type: x of any modes before the last, weight ``[n, k]``; either may lie transposed in memory. Factors of f32 have 22
    of their 24 bits."""
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(f"`{activation}` is no activation of `linear`; {', '.join(ACTIVATIONS)} are")
    a, of_a = _stored(x if x.ndim == 2 else x.reshape(-1, x.shape[-1]), "am")
    b, of_b = _stored(weight, "bn")
    result = x.new_empty((*x.shape[:-1], weight.shape[0])) if out is None else out
    if result.numel() == 0:
        return result
    parts = (["bias"] if bias is not None else []) + ([activation] if activation else [])
    given = {} if bias is None else {"bias": bias.contiguous()}
    precision = {"dtype": "f32", "precision": "tf32x3"} if x.element_size() == 4 and x.is_floating_point() else {}
    options = {**of_a, **of_b, **precision, **({"epilogue": "+".join(parts)} if parts else {})}
    library(x.get_device()).call("gemm", a=a, b=b, c=result if result.ndim == 2 else result.view(-1, weight.shape[0]), options=options, **given)
    return result


def gemm(a: Any, b: Any, *, out: Any = None) -> Any:
    """``a[m, k] · b[n, k]ᵀ``."""
    return linear(a, b, out=out)
