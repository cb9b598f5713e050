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
        #: A call chooses and compiles nothing: what `warm_up` has not made is `NotReady`.
        self.strict = False

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
        get one of the library's for the current stream, where the operator needs one."""
        given, asked, numbers = dict(arguments), _options(options), dict(sizes or {})
        memory = None
        if workspace is not None:
            memory = (workspace.data_ptr(), workspace.numel() * workspace.element_size())
        elif not self.strict or self._workspaces:
            memory = self._workspace(operator, given, asked, numbers, stream)
        self._native.call(operator, given, asked, numbers, stream, self.strict, memory)

    def _workspace(
        self, operator: str, given: dict[str, Any], options: dict[str, str], sizes: dict[str, int], stream: int | None
    ) -> tuple[int, int] | None:
        tensor = next((value for value in given.values() if hasattr(value, "data_ptr")), None)
        if tensor is None:
            return None
        import torch

        if stream is None:
            stream = int(torch.cuda.current_stream(self.device).cuda_stream)
        held = self._workspaces.get(stream)
        if not self.strict:
            bytes_ = self._native.workspace_bytes(operator, given, options, sizes)
            if bytes_ == 0:
                return None
            if held is None or held.numel() < bytes_:
                held = torch.zeros(bytes_, dtype=torch.uint8, device=tensor.device)
                self._workspaces[stream] = held
        return None if held is None else (held.data_ptr(), held.numel())

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
    with _lock:
        if device not in _libraries:
            _libraries[device] = Library(device)
        return _libraries[device]


#: Operations on a product's sums that `linear` takes.
ACTIVATIONS = ("relu", "gelu", "silu")


def linear(x: Any, weight: Any, bias: Any = None, *, activation: str | None = None, out: Any = None) -> Any:
    """``activation(x · weightᵀ + bias)`` of tensors of torch: x of any modes before the last, weight ``[n, k]``."""
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(f"`{activation}` is no activation of `linear`; {', '.join(ACTIVATIONS)} are")
    rows = x.reshape(-1, x.shape[-1])
    result = x.new_empty((*x.shape[:-1], weight.shape[0])) if out is None else out
    parts = (["bias"] if bias is not None else []) + ([activation] if activation else [])
    given = {} if bias is None else {"bias": bias}
    options = {"epilogue": "+".join(parts)} if parts else None
    flat = result.view(-1, weight.shape[0])
    library(x.get_device()).call("gemm", a=rows, b=weight, c=flat, options=options, **given)
    return result


def gemm(a: Any, b: Any, *, out: Any = None) -> Any:
    """``a[m, k] · b[n, k]ᵀ``."""
    return linear(a, b, out=out)
