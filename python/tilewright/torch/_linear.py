"""Products with weights in rows."""

from __future__ import annotations

from typing import Any

import torch

from .. import ops
from ._registry import call, define, differentiate
from ._rows import put, rows


def _activated(sums: Any, activation: str) -> Any:
    """The activation, by torch."""
    if activation == "gelu":
        return torch.nn.functional.gelu(sums, approximate="tanh")
    return {"": lambda x: x, "relu": torch.relu, "silu": torch.nn.functional.silu}[activation](sums)


def _linear_cuda(x: Any, weight: Any, bias: Any = None, activation: str = "") -> Any:
    if weight.shape[1] == 0:
        # Sums of nothing.
        return _linear_cpu(x, weight, bias, activation)
    return ops.linear(x, weight, bias, activation=activation or None)


def _linear_cpu(x: Any, weight: Any, bias: Any = None, activation: str = "") -> Any:
    return _activated(torch.nn.functional.linear(x, weight, bias), activation)


def _linear_fake(x: Any, weight: Any, bias: Any = None, activation: str = "") -> Any:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


define("linear(Tensor x, Tensor weight, Tensor? bias=None, str activation=\"\") -> Tensor", _linear_cuda, _linear_cpu, _linear_fake)


def _linear_saved(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, activation = inputs
    ctx.activation, ctx.biased = activation, bias is not None
    ctx.save_for_backward(x, weight, bias if activation else None)


def _slope(gradient: Any, sums: Any, activation: str) -> Any:
    """The gradient of an activation's argument, by torch."""
    of = torch.ops.aten
    if activation == "gelu":
        return of.gelu_backward(gradient, sums, approximate="tanh")
    if activation == "relu":
        return of.threshold_backward(gradient, sums, 0)
    if not torch.is_grad_enabled():
        return of.silu_backward(gradient, sums)
    # torch's has no derivative of its own.
    sigmoid = torch.sigmoid(sums)
    return gradient * (sigmoid * (1 + sums * (1 - sigmoid)))


def _linear_backward(ctx: Any, gradient: Any) -> Any:
    x, weight, bias = ctx.saved_tensors
    product = torch.ops.tilewright.linear
    if ctx.activation:
        gradient = _slope(gradient, product(x, weight, bias), ctx.activation)
    flat, rows = gradient.reshape(-1, gradient.shape[-1]), x.reshape(-1, x.shape[-1])
    # Sums over n and over the rows: factors that lie transposed in memory.
    of_x = product(flat, weight.T).reshape(x.shape) if ctx.needs_input_grad[0] else None
    of_weight = product(flat.T, rows.T) if ctx.needs_input_grad[1] else None
    of_bias = flat.sum(0) if ctx.biased and ctx.needs_input_grad[2] else None
    return of_x, of_weight, of_bias, None


differentiate("linear", _linear_backward, _linear_saved)


def linear(x: Any, weight: Any, bias: Any = None, activation: str | None = None) -> Any:
    """``activation(x · weightᵀ + bias)``: ``torch.nn.functional.linear`` with an activation (relu, gelu by tanh, silu), differentiable."""
    if activation is not None and activation not in ops.ACTIVATIONS:
        raise ValueError(f"`{activation}` is no activation of `linear`; {', '.join(ops.ACTIVATIONS)} are")
    return call("linear", x, weight, bias, activation or "")


def _stored(x: Any, weight: Any) -> dict[str, Any]:
    return {"a": rows(x), "b": weight.contiguous()}


def _add_linear_cuda(residual: Any, x: Any, weight: Any) -> Any:
    c = residual.new_empty((x.numel() // x.shape[-1], weight.shape[0]))
    put("gemm", c, **_stored(x, weight), c=c, residual=rows(residual), options={"epilogue": "residual"})
    return c.view(residual.shape)


def _add_linear_cpu(residual: Any, x: Any, weight: Any) -> Any:
    return residual + torch.nn.functional.linear(x, weight)


define(
    "add_linear(Tensor residual, Tensor x, Tensor weight) -> Tensor",
    _add_linear_cuda,
    _add_linear_cpu,
    lambda residual, x, weight: residual.new_empty(residual.shape),
)


def _add_linear_saved(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[1], inputs[2])


def _of_product(gradient: Any, x: Any, weight: Any, needed: Any) -> tuple[Any, Any]:
    """The gradients of a product's factors, those that are needed."""
    product = torch.ops.tilewright.linear
    flat, of_rows = gradient.reshape(-1, gradient.shape[-1]), x.reshape(-1, x.shape[-1])
    of_x = product(flat, weight.T).reshape(x.shape) if needed[0] else None
    return of_x, product(flat.T, of_rows.T) if needed[1] else None


def _add_linear_backward(ctx: Any, gradient: Any) -> Any:
    x, weight = ctx.saved_tensors
    return (gradient, *_of_product(gradient, x, weight, ctx.needs_input_grad[1:]))


differentiate("add_linear", _add_linear_backward, _add_linear_saved)


def add_linear(residual: Any, x: Any, weight: Any) -> Any:
    """``residual + x · weightᵀ`` by one product, differentiable."""
    expected = (*x.shape[:-1], weight.shape[0])
    if tuple(residual.shape) != expected:
        raise ValueError(f"`residual` has shape {tuple(residual.shape)}, and the product {expected}: both are one shape")
    return call("add_linear", residual, x, weight)


def _gated_linear_cuda(x: Any, weight: Any, gate: str) -> Any:
    c = x.new_empty((x.numel() // x.shape[-1], weight.shape[1]))
    put("gemm", c, **_stored(x, weight), c=c, options={"dual": f"{gate}_mul", "fused": "true"})
    return c.view(*x.shape[:-1], weight.shape[1])


def _gated_linear_cpu(x: Any, weight: Any, gate: str) -> Any:
    return torch.ops.tilewright.gated(*(torch.nn.functional.linear(x, each) for each in weight.unbind()), gate)


define(
    "gated_linear(Tensor x, Tensor weight, str gate) -> Tensor",
    _gated_linear_cuda,
    _gated_linear_cpu,
    lambda x, weight, gate: x.new_empty((*x.shape[:-1], weight.shape[1])),
)


def _gated_linear_saved(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.gate = inputs[2]
    ctx.save_for_backward(inputs[0], inputs[1])


def _gated_linear_backward(ctx: Any, gradient: Any) -> Any:
    x, weight = ctx.saved_tensors
    # Both products are computed again.
    units = [torch.ops.tilewright.linear(x, each) for each in weight.unbind()]
    slopes = torch.ops.tilewright.gated_backward(gradient, *units, ctx.gate)
    pairs = [_of_product(slope, x, each, ctx.needs_input_grad) for slope, each in zip(slopes, weight.unbind())]
    of_x = pairs[0][0] + pairs[1][0] if ctx.needs_input_grad[0] else None
    return of_x, torch.stack([pair[1] for pair in pairs]) if ctx.needs_input_grad[1] else None, None


differentiate("gated_linear", _gated_linear_backward, _gated_linear_saved)


def gated_linear(x: Any, weight: Any, gate: str = "silu") -> Any:
    """``gate(x · weight[0]ᵀ) · (x · weight[1]ᵀ)`` of ``weight[2, n, k]`` by one kernel, differentiable: the first two products of SwiGLU (silu) and GEGLU (gelu, by tanh)."""
    if gate not in ("silu", "gelu"):
        raise ValueError(f"`{gate}` is no gate; silu and gelu are")
    if weight.dim() != 3 or weight.shape[0] != 2 or weight.shape[2] != x.shape[-1]:
        raise ValueError(f"`weight` has shape {tuple(weight.shape)}, and rows of `x` have {x.shape[-1]} elements: it is [2, n, {x.shape[-1]}]")
    return call("gated_linear", x, weight, gate)
