"""Products with weights in rows."""

from __future__ import annotations

from typing import Any

import torch

from .. import ops
from ._registry import call, define, differentiate


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
