"""Gated units."""

from __future__ import annotations

from typing import Any

import torch

from ._norms import call, rows, wide
from ._registry import define, differentiate

_GATES = {"silu": "silu_mul", "gelu": "gelu_mul"}


def _gate(a: Any, gate: str) -> Any:
    return torch.nn.functional.silu(a) if gate == "silu" else torch.nn.functional.gelu(a, approximate="tanh")


def _gated_cuda(a: Any, b: Any, gate: str) -> Any:
    first, second = rows(a), rows(b)
    y = torch.empty_like(first)
    call(_GATES[gate], first, a=first, b=second, y=y)
    return y.view(a.shape)


def _gated_cpu(a: Any, b: Any, gate: str) -> Any:
    of = wide(a.dtype)
    return (_gate(a.to(of), gate) * b.to(of)).to(a.dtype).contiguous()


define("gated(Tensor a, Tensor b, str gate) -> Tensor", _gated_cuda, _gated_cpu, lambda a, b, gate: a.new_empty(a.shape))


def _gated_saved(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.gate = inputs[2]
    ctx.save_for_backward(inputs[0], inputs[1])


def _gated_backward(ctx: Any, gradient: Any) -> Any:
    a, b = ctx.saved_tensors
    of = torch.ops.aten
    slope = of.silu_backward(gradient * b, a) if ctx.gate == "silu" else of.gelu_backward(gradient * b, a, approximate="tanh")
    return slope, gradient * _gate(a, ctx.gate), None


differentiate("gated", _gated_backward, _gated_saved)


def gated(a: Any, b: Any, gate: str = "silu") -> Any:
    """``gate(a) · b``, differentiable: SwiGLU by silu, GEGLU by gelu (by tanh)."""
    if gate not in _GATES:
        raise ValueError(f"`{gate}` is no gate; {' and '.join(_GATES)} are")
    if a.shape != b.shape:
        raise ValueError(f"`a` has shape {tuple(a.shape)}, and `b` {tuple(b.shape)}: both are one shape")
    return torch.ops.tilewright.gated(a, b, gate)


def swiglu(a: Any, b: Any) -> Any:
    """``silu(a) · b``, differentiable."""
    return gated(a, b, "silu")
