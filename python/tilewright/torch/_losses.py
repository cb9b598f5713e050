"""Cross-entropy, of logits and of products that never are in memory."""

from __future__ import annotations

from typing import Any

import torch

from ._registry import call, define, differentiate
from ._rows import put, wide


def _cross_entropy_cuda(x: Any, target: Any) -> Any:
    loss, lse = (x.new_empty(x.shape[:1], dtype=torch.float32) for _ in range(2))
    put("cross_entropy", x, x=x.contiguous(), target=target.to(torch.int32).contiguous(), lse=lse, loss=loss)
    return loss, lse


def _of_target(logits: Any, target: Any) -> Any:
    return logits.gather(1, target.long().unsqueeze(1)).squeeze(1)


def _cross_entropy_cpu(x: Any, target: Any) -> Any:
    x = x.to(wide(x.dtype))
    lse = torch.logsumexp(x, 1)
    return lse - _of_target(x, target), lse


def _cross_entropy_fake(x: Any, target: Any) -> Any:
    return tuple(x.new_empty(x.shape[:1], dtype=wide(x.dtype)) for _ in range(2))


define("cross_entropy(Tensor x, Tensor target) -> (Tensor, Tensor)", _cross_entropy_cuda, _cross_entropy_cpu, _cross_entropy_fake)


def _backward_cuda(gradient: Any, x: Any, target: Any, lse: Any) -> Any:
    dx = x.new_empty(x.shape)
    given = {"x": x.contiguous(), "target": target.to(torch.int32).contiguous(), "lse": lse, "dloss": gradient.float().contiguous()}
    put("cross_entropy_backward", x, **given, dx=dx)
    return dx


def _backward_cpu(gradient: Any, x: Any, target: Any, lse: Any) -> Any:
    weights = torch.exp(x.to(lse.dtype) - lse.unsqueeze(1))
    weights = weights - torch.nn.functional.one_hot(target.long(), x.shape[1])
    return (weights * gradient.to(lse.dtype).unsqueeze(1)).to(x.dtype)


define(
    "cross_entropy_backward(Tensor gradient, Tensor x, Tensor target, Tensor lse) -> Tensor",
    _backward_cuda,
    _backward_cpu,
    lambda gradient, x, target, lse: x.new_empty(x.shape),
)


def _saved(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs, output[1])


def _backward(ctx: Any, gradient: Any, _of_lse: Any) -> Any:
    return torch.ops.tilewright.cross_entropy_backward(gradient, *ctx.saved_tensors), None


differentiate("cross_entropy", _backward, _saved)


def _fused_cuda(x: Any, weight: Any, target: Any) -> Any:
    loss, lse = (x.new_empty(x.shape[:1], dtype=torch.float32) for _ in range(2))
    given = {"x": x.contiguous(), "w": weight.contiguous(), "target": target.to(torch.int32).contiguous()}
    put("linear_cross_entropy", x, **given, lse=lse, loss=loss)
    return loss, lse


def _logits(x: Any, weight: Any) -> Any:
    of = wide(x.dtype)
    return x.to(of) @ weight.to(of).T


define(
    "linear_cross_entropy(Tensor x, Tensor weight, Tensor target) -> (Tensor, Tensor)",
    _fused_cuda,
    lambda x, weight, target: _cross_entropy_cpu(_logits(x, weight), target),
    lambda x, weight, target: _cross_entropy_fake(x, target),
)


def _fused_backward_cuda(gradient: Any, x: Any, weight: Any, target: Any, lse: Any) -> Any:
    dx, dw = x.new_empty(x.shape), weight.new_zeros(weight.shape, dtype=torch.float32)
    given = {"x": x.contiguous(), "w": weight.contiguous(), "target": target.to(torch.int32).contiguous(), "lse": lse}
    put("linear_cross_entropy_backward", x, **given, dloss=gradient.float().contiguous(), dx=dx, dw=dw)
    return dx, dw.to(weight.dtype)


def _fused_backward_cpu(gradient: Any, x: Any, weight: Any, target: Any, lse: Any) -> Any:
    of_logits = _backward_cpu(gradient, _logits(x, weight), target, lse)
    return (of_logits @ weight.to(lse.dtype)).to(x.dtype), (of_logits.T @ x.to(lse.dtype)).to(weight.dtype)


define(
    "linear_cross_entropy_backward(Tensor gradient, Tensor x, Tensor weight, Tensor target, Tensor lse) -> (Tensor, Tensor)",
    _fused_backward_cuda,
    _fused_backward_cpu,
    lambda gradient, x, weight, target, lse: (x.new_empty(x.shape), weight.new_empty(weight.shape)),
)


def _fused_backward(ctx: Any, gradient: Any, _of_lse: Any) -> Any:
    return (*torch.ops.tilewright.linear_cross_entropy_backward(gradient, *ctx.saved_tensors), None)


differentiate("linear_cross_entropy", _fused_backward, _saved)


def _reduced(losses: Any, counted: Any, reduction: str) -> Any:
    # A row that does not count has no part in the sum, whatever its loss is.
    losses = torch.where(counted, losses, 0)
    if reduction == "none":
        return losses
    return losses.sum() / counted.sum() if reduction == "mean" else losses.sum()


def _targets(rows: int, target: Any, ignore_index: int, reduction: str) -> tuple[Any, Any]:
    """Targets that all are columns, and the rows that count."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"`{reduction}` is no reduction; none, mean and sum are")
    if target.dim() != 1 or target.shape[0] != rows:
        raise ValueError(f"`target` has shape {tuple(target.shape)}, and there are {rows} rows: it has a column of each")
    counted = target != ignore_index
    return torch.where(counted, target, 0), counted


def cross_entropy(x: Any, target: Any, *, ignore_index: int = -100, reduction: str = "mean") -> Any:
    """``torch.nn.functional.cross_entropy`` of logits ``x[m, n]`` and columns ``target[m]``, in f32, differentiable. A target that is no column of `x` is not refused: its loss is the logarithm of the sum alone."""
    target, counted = _targets(x.shape[0], target, ignore_index, reduction)
    return _reduced(call("cross_entropy", x, target)[0], counted, reduction)


def linear_cross_entropy(x: Any, weight: Any, target: Any, *, ignore_index: int = -100, reduction: str = "mean") -> Any:
    """`cross_entropy` of the logits ``x[m, k] · weight[n, k]ᵀ``, which are never in memory as a whole, differentiable in both."""
    target, counted = _targets(x.shape[0], target, ignore_index, reduction)
    return _reduced(call("linear_cross_entropy", x, weight, target)[0], counted, reduction)
