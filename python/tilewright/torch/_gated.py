"""Gated units."""

# Annotations of a kernel's parameters are values.
# mypy: disable-error-code="name-defined,valid-type"

from __future__ import annotations

from typing import Any

import torch

from .. import types
from ..functions import KernelFunction, kernel
from ..types import const, size
from ._registry import NAMES, call, define, differentiate
from ._rows import put, rows, wide

_GATES = {"silu": "silu_mul", "gelu": "gelu_mul"}


def _gate(a: Any, gate: str) -> Any:
    return torch.nn.functional.silu(a) if gate == "silu" else torch.nn.functional.gelu(a, approximate="tanh")


def _gated_cuda(a: Any, b: Any, gate: str) -> Any:
    first, second = rows(a), rows(b)
    y = torch.empty_like(first)
    put(_GATES[gate], first, a=first, b=second, y=y)
    return y.view(a.shape)


def _gated_cpu(a: Any, b: Any, gate: str) -> Any:
    of = wide(a.dtype)
    return (_gate(a.to(of), gate) * b.to(of)).to(a.dtype).contiguous()


define("gated(Tensor a, Tensor b, str gate) -> Tensor", _gated_cuda, _gated_cpu, lambda a, b, gate: a.new_empty(a.shape))


def _derived(dtype: types.DType, gate: str) -> KernelFunction:
    """The kernel of both gradients for a type."""
    f32 = types.DTYPES["f32"]

    def gated_backward(
        t: Any,
        dy: dtype["m", "n"],
        a: dtype["m", "n"],
        b: dtype["m", "n"],
        da: dtype["m", "n"],
        db: dtype["m", "n"],
        m: size = 64,
        n: size = 1000,
        BM: const = 4,
        BN: const = 512,
    ) -> None:
        t.grid(t.ceil_div(m, BM), t.ceil_div(n, BN))
        t.threads(128)
        views = [t.global_view(each[t.block.x * BM :, t.block.y * BN :], (BM, BN), name=f"g{at}") for at, each in enumerate((dy, a, b, da, db))]
        held = [t.register_tensor(dtype, [BM, BN], name=name) for name in ("ry", "ra", "rb")]
        for view, tile in zip(views, held):
            t.copy(view, tile)
        of_y, x, y = (t.cast(tile, f32) for tile in held)
        if gate == "silu":
            share = 1.0 / (1.0 + t.exp(-x))
            value, slope = x * share, share * (1.0 + x * (1.0 - share))
        else:
            # As torch's gelu by tanh: x · share, where share is the logistic function of 2 √(2/π) (x + 0.044715 x³).
            share = 1.0 / (1.0 + t.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
            inner = 1.5957691216057308 * (1.0 + 0.134145 * x * x)
            value, slope = x * share, share * (1.0 + x * inner * (1.0 - share))
        t.copy(t.cast(of_y * y * slope, dtype), views[3])
        t.copy(t.cast(of_y * value, dtype), views[4])

    return kernel(gated_backward)


_derivatives: dict[tuple[str, str], KernelFunction] = {}


def derivative(dtype: str, gate: str) -> KernelFunction:
    """The kernel of the gradients of ``gate(a) · b`` for a type, made once."""
    if (dtype, gate) not in _derivatives:
        _derivatives[dtype, gate] = _derived(types.DTYPES[dtype], gate)
    return _derivatives[dtype, gate]


def _backward_cuda(gradient: Any, a: Any, b: Any, gate: str) -> Any:
    flat = [rows(each) for each in (gradient, a, b)]
    da, db = torch.empty_like(flat[1]), torch.empty_like(flat[1])
    if flat[0].numel():
        derivative(NAMES[a.dtype], gate)(*flat, da, db)
    return da.view(a.shape), db.view(a.shape)


def _backward_cpu(gradient: Any, a: Any, b: Any, gate: str) -> Any:
    of = wide(a.dtype)
    gradient, x, y = (each.to(of) for each in (gradient, a, b))
    if gate == "silu":
        slope = torch.ops.aten.silu_backward(gradient * y, x)
    else:
        slope = torch.ops.aten.gelu_backward(gradient * y, x, approximate="tanh")
    return slope.to(a.dtype).contiguous(), (gradient * _gate(x, gate)).to(a.dtype).contiguous()


define(
    "gated_backward(Tensor gradient, Tensor a, Tensor b, str gate) -> (Tensor, Tensor)",
    _backward_cuda,
    _backward_cpu,
    lambda gradient, a, b, gate: (a.new_empty(a.shape), a.new_empty(a.shape)),
)


def _gated_saved(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.gate = inputs[2]
    ctx.save_for_backward(inputs[0], inputs[1])


def _gated_backward(ctx: Any, gradient: Any) -> Any:
    return (*torch.ops.tilewright.gated_backward(gradient, *ctx.saved_tensors, ctx.gate), None)


differentiate("gated", _gated_backward, _gated_saved)


def gated(a: Any, b: Any, gate: str = "silu") -> Any:
    """``gate(a) · b``, differentiable: SwiGLU by silu, GEGLU by gelu (by tanh)."""
    if gate not in _GATES:
        raise ValueError(f"`{gate}` is no gate; {' and '.join(_GATES)} are")
    if a.shape != b.shape:
        raise ValueError(f"`a` has shape {tuple(a.shape)}, and `b` {tuple(b.shape)}: both are one shape")
    return call("gated", a, b, gate)


def swiglu(a: Any, b: Any) -> Any:
    """``silu(a) · b``, differentiable."""
    return gated(a, b, "silu")
