"""Norms of rows, with and without a residual, and softmax."""

from __future__ import annotations

from typing import Any

import torch

from ._registry import call, define, differentiate
from ._rows import put, rows, wide


def _normalised(x: Any, eps: float, centred: bool) -> tuple[Any, Any]:
    """Rows of mean square (variance) one, and the factor that made them so."""
    x = x.to(wide(x.dtype))
    if centred:
        x = x - x.mean(-1, keepdim=True)
    factor = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return x * factor, factor


def _gradients(gradient: Any, x: Any, weight: Any, eps: float, centred: bool) -> tuple[Any, Any, Any]:
    """The gradients of rows, weights and shifts, by torch, in the type of sums."""
    normal, factor = _normalised(x, eps, centred)
    gradient = gradient.to(normal.dtype)
    scaled = gradient * weight.to(normal.dtype)
    inner = scaled - normal * (scaled * normal).mean(-1, keepdim=True)
    if centred:
        inner = inner - scaled.mean(-1, keepdim=True)
    flat = (gradient * normal).reshape(-1, x.shape[-1])
    return inner * factor, flat.sum(0), gradient.reshape(-1, x.shape[-1]).sum(0)


def _norm(name: str, operator: str, centred: bool) -> None:
    """Registers a norm, the one behind a residual, and the gradients of both."""
    bias, given = (", Tensor bias", 2) if centred else ("", 1)
    vectors = "(Tensor, Tensor, Tensor)" if centred else "(Tensor, Tensor)"

    def own(tensors: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(("w", "b"), (tensor.contiguous() for tensor in tensors)))

    def cuda(x: Any, *rest: Any) -> Any:
        flat = rows(x)
        y = torch.empty_like(flat)
        put(operator, flat, x=flat, **own(rest[:given]), y=y, eps=rest[given])
        return y.view(x.shape)

    def cpu(x: Any, *rest: Any) -> Any:
        y = _normalised(x, rest[given], centred)[0] * rest[0]
        return (y + rest[1] if centred else y).to(x.dtype)

    def fake(x: Any, *rest: Any) -> Any:
        return x.new_empty(x.shape)

    def added_cuda(x: Any, residual: Any, *rest: Any) -> Any:
        flat, other = rows(x), rows(residual)
        h, y = torch.empty_like(flat), torch.empty_like(flat)
        put(f"add_{operator}", flat, x=flat, r=other, **own(rest[:given]), h=h, y=y, eps=rest[given])
        return y.view(x.shape), h.view(x.shape)

    def added_cpu(x: Any, residual: Any, *rest: Any) -> Any:
        h = x + residual
        return cpu(h, *rest), h

    def added_fake(x: Any, residual: Any, *rest: Any) -> Any:
        return x.new_empty(x.shape), x.new_empty(x.shape)

    def gradients(gradient: Any, x: Any, weight: Any, more: dict[str, Any], eps: float) -> Any:
        flat = rows(x)
        dx, dw, db = torch.empty_like(flat), weight.new_empty(weight.shape, dtype=torch.float32), weight.new_empty(weight.shape, dtype=torch.float32)
        shift = {"db": db} if centred else {}
        if flat.numel() == 0:
            dw.zero_(), db.zero_()
        put(f"{'add_' if more else ''}{operator}_backward", flat, x=flat, w=weight.contiguous(), dy=rows(gradient), **more, dx=dx, dw=dw, **shift, eps=eps)
        vectors = (dw, db) if centred else (dw,)
        return (dx.view(x.shape), *(each.to(weight.dtype) for each in vectors))

    def backward_cuda(gradient: Any, x: Any, weight: Any, eps: float) -> Any:
        return gradients(gradient, x, weight, {}, eps)

    def backward_cpu(gradient: Any, x: Any, weight: Any, eps: float) -> Any:
        of_x, *vectors = _gradients(gradient, x, weight, eps, centred)
        return (of_x.to(x.dtype), *(each.to(weight.dtype) for each in vectors[:given]))

    def backward_fake(gradient: Any, x: Any, weight: Any, eps: float) -> Any:
        return (x.new_empty(x.shape), *(weight.new_empty(weight.shape) for _ in range(given)))

    def added_backward_cuda(gradient: Any, of_h: Any, h: Any, weight: Any, eps: float) -> Any:
        return gradients(gradient, h, weight, {"dh": rows(of_h)}, eps)

    def added_backward_cpu(gradient: Any, of_h: Any, h: Any, weight: Any, eps: float) -> Any:
        of_x, *vectors = _gradients(gradient, h, weight, eps, centred)
        return ((of_x + of_h).to(h.dtype), *(each.to(weight.dtype) for each in vectors[:given]))

    def added_backward_fake(gradient: Any, of_h: Any, h: Any, weight: Any, eps: float) -> Any:
        return backward_fake(gradient, h, weight, eps)

    define(f"{name}(Tensor x, Tensor weight{bias}, float eps) -> Tensor", cuda, cpu, fake)
    define(f"add_{name}(Tensor x, Tensor residual, Tensor weight{bias}, float eps) -> (Tensor, Tensor)", added_cuda, added_cpu, added_fake)
    define(f"{name}_backward(Tensor gradient, Tensor x, Tensor weight, float eps) -> {vectors}", backward_cuda, backward_cpu, backward_fake)
    define(
        f"add_{name}_backward(Tensor gradient, Tensor of_h, Tensor h, Tensor weight, float eps) -> {vectors}",
        added_backward_cuda,
        added_backward_cpu,
        added_backward_fake,
    )

    def saved(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.eps = inputs[-1]
        ctx.save_for_backward(inputs[0], inputs[1])

    def backward(ctx: Any, gradient: Any) -> Any:
        return (*getattr(torch.ops.tilewright, f"{name}_backward")(gradient, *ctx.saved_tensors, ctx.eps), None)

    def added_saved(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.eps = inputs[-1]
        ctx.save_for_backward(output[1], inputs[2])

    def added_backward(ctx: Any, gradient: Any, of_h: Any) -> Any:
        of_x, *vectors = getattr(torch.ops.tilewright, f"add_{name}_backward")(gradient, of_h, *ctx.saved_tensors, ctx.eps)
        return (of_x, of_x, *vectors, None)

    differentiate(name, backward, saved)
    differentiate(f"add_{name}", added_backward, added_saved)


_norm("rms_norm", "rmsnorm", False)
_norm("layer_norm", "layernorm", True)


def _checked(x: Any, residual: Any, vectors: dict[str, Any]) -> None:
    """Refuses operands whose shapes do not go together."""
    for name, vector in vectors.items():
        if tuple(vector.shape) != tuple(x.shape[-1:]):
            raise ValueError(f"`{name}` has shape {tuple(vector.shape)}, and rows of `x` have {x.shape[-1]} elements: it is a vector of as many")
    if residual is not None and residual.shape != x.shape:
        raise ValueError(f"`residual` has shape {tuple(residual.shape)}, and `x` {tuple(x.shape)}: both are one shape")


def rms_norm(x: Any, weight: Any, eps: float = 1e-6, *, residual: Any = None) -> Any:
    """``x · rsqrt(mean(x²) + eps) · weight`` over the last mode, differentiable; with a residual the norm of ``h = x + residual``, and `h`."""
    _checked(x, residual, {"weight": weight})
    if residual is None:
        return call("rms_norm", x, weight, eps)
    return call("add_rms_norm", x, residual, weight, eps)


def layer_norm(x: Any, weight: Any, bias: Any, eps: float = 1e-5, *, residual: Any = None) -> Any:
    """``(x − mean(x)) · rsqrt(var(x) + eps) · weight + bias`` over the last mode, differentiable; with a residual the norm of ``h = x + residual``, and `h`."""
    _checked(x, residual, {"weight": weight, "bias": bias})
    if residual is None:
        return call("layer_norm", x, weight, bias, eps)
    return call("add_layer_norm", x, residual, weight, bias, eps)


def _softmax_cuda(x: Any) -> Any:
    flat = rows(x)
    y = torch.empty_like(flat)
    put("softmax", flat, x=flat, y=y)
    return y.view(x.shape)


def _softmax_cpu(x: Any) -> Any:
    return torch.softmax(x, -1).contiguous()


define("softmax(Tensor x) -> Tensor", _softmax_cuda, _softmax_cpu, lambda x: x.new_empty(x.shape))


def _softmax_saved(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output)


def _softmax_backward(ctx: Any, gradient: Any) -> Any:
    (y,) = ctx.saved_tensors
    return torch.ops.aten._softmax_backward_data(gradient, y, -1, y.dtype)


differentiate("softmax", _softmax_backward, _softmax_saved)


def softmax(x: Any) -> Any:
    """Softmax over the last mode, differentiable (its gradient is torch's)."""
    return call("softmax", x)
