"""Divergences of distributions by rows, of logarithms of probabilities."""

from __future__ import annotations

from typing import Any

import torch

from ._registry import call, define, differentiate
from ._rows import put, rows, wide


def _given(x: Any, target: Any) -> dict[str, Any]:
    return {"x": rows(x), "target": rows(target.to(x.dtype))}


def _losses(x: Any) -> Any:
    """The result, without data."""
    return x.new_empty(x.shape[:-1], dtype=wide(x.dtype))


def _kl_div_cuda(x: Any, target: Any) -> Any:
    loss = _losses(x)
    put("kl_div", x, **_given(x, target), loss=loss.view(-1))
    return loss


def _kl_div_cpu(x: Any, target: Any) -> Any:
    x, target = x.to(wide(x.dtype)), target.to(wide(x.dtype))
    # Targets below 0, which have no meaning, add nothing: torch's would be NaN.
    return (torch.xlogy(target.clamp(min=0), target.clamp(min=0)) - target.clamp(min=0) * x).sum(-1)


define("kl_div(Tensor x, Tensor target) -> Tensor", _kl_div_cuda, _kl_div_cpu, lambda x, target: _losses(x))


def _kl_div_backward(ctx: Any, gradient: Any) -> Any:
    x, target = ctx.saved_tensors
    of, gradient = gradient.dtype, gradient.unsqueeze(-1)
    # NaN among them: its gradient is NaN.
    there = ~(target <= 0)
    p = torch.where(there, target, 1).to(of)
    of_x = torch.where(there, -p * gradient, 0).to(x.dtype) if ctx.needs_input_grad[0] else None
    of_target = torch.where(there, (p.log() + 1 - x.to(of)) * gradient, 0).to(target.dtype) if ctx.needs_input_grad[1] else None
    return of_x, of_target


differentiate("kl_div", _kl_div_backward, lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


def _mixture(x: Any, target: Any, beta: float) -> Any:
    """The logarithm of ``beta · exp(target) + (1 - beta) · exp(x)``, finite where one of both is."""
    top = torch.maximum(x, target).clamp(min=-1e30)
    return torch.log(beta * torch.exp(target - top) + (1 - beta) * torch.exp(x - top)) + top


def _part(weight: float, logarithm: Any, mixture: Any) -> Any:
    """An element of ``weight · KL``; probabilities of 0 have none, and those that are NaN are NaN."""
    return torch.where(logarithm == -float("inf"), 0, weight * torch.exp(logarithm) * (logarithm - mixture))


def _jsd_cuda(x: Any, target: Any, beta: float) -> Any:
    loss = _losses(x)
    put("jsd", x, **_given(x, target), loss=loss.view(-1), beta=beta)
    return loss


def _jsd_cpu(x: Any, target: Any, beta: float) -> Any:
    x, target = x.to(wide(x.dtype)), target.to(wide(x.dtype))
    mixture = _mixture(x, target, beta)
    return (_part(beta, target, mixture) + _part(1 - beta, x, mixture)).sum(-1)


define("jsd(Tensor x, Tensor target, float beta) -> Tensor", _jsd_cuda, _jsd_cpu, lambda x, target, beta: _losses(x))


def _jsd_saved(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.beta = inputs[2]


def _jsd_backward(ctx: Any, gradient: Any) -> Any:
    x, target = ctx.saved_tensors
    x, target, gradient = x.to(gradient.dtype), target.to(gradient.dtype), gradient.unsqueeze(-1)
    mixture = _mixture(x, target, ctx.beta)
    # What a logarithm adds to its own divergence beyond this is what it takes from both by the mixture.
    of_x = (_part(1 - ctx.beta, x, mixture) * gradient).to(ctx.saved_tensors[0].dtype) if ctx.needs_input_grad[0] else None
    of_target = (_part(ctx.beta, target, mixture) * gradient).to(ctx.saved_tensors[1].dtype) if ctx.needs_input_grad[1] else None
    return of_x, of_target, None


differentiate("jsd", _jsd_backward, _jsd_saved)


def _reduced(x: Any, losses: Any, reduction: str) -> Any:
    if reduction == "none":
        return losses
    if reduction not in ("batchmean", "sum"):
        raise ValueError(f"`{reduction}` is no reduction of divergences; none, batchmean and sum are")
    return losses.sum() / x.shape[0] if reduction == "batchmean" else losses.sum()


def _like(x: Any, target: Any) -> None:
    if x.shape != target.shape:
        raise ValueError(f"`target` has shape {tuple(target.shape)}, and `x` {tuple(x.shape)}: both have a probability for each element")


def kl_div(x: Any, target: Any, *, reduction: str = "batchmean") -> Any:
    """``torch.nn.functional.kl_div`` by rows of the last mode, with sums in f32: ``Σ target · (log(target) - x)`` of logarithms `x` and probabilities `target`, differentiable in both. `batchmean` divides by the extent of the first mode, as torch's does; `none` gives the divergence of each row."""
    _like(x, target)
    return _reduced(x, call("kl_div", x, target), reduction)


def jsd(x: Any, target: Any, beta: float = 0.5, *, reduction: str = "batchmean") -> Any:
    """The Jensen-Shannon divergence by rows of the last mode, generalised by `beta`: ``beta · KL(p, mix) + (1 - beta) · KL(q, mix)`` with ``p = exp(target)``, ``q = exp(x)`` and ``mix = beta · p + (1 - beta) · q``, differentiable in both. `batchmean` divides by the extent of the first mode; `none` gives the divergence of each row."""
    _like(x, target)
    return _reduced(x, call("jsd", x, target, float(beta)), reduction)
