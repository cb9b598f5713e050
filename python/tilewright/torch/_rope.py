"""Rotary positions."""

from __future__ import annotations

from typing import Any

import torch

from ._registry import call, define, differentiate
from ._rows import put, rows, wide


def _pairs(x: Any, interleaved: bool) -> tuple[Any, Any]:
    """The two elements of each pair."""
    half = x.shape[-1] // 2
    return (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])


def _rope_cuda(x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    h, d = x.shape[-2:]
    flat = x.reshape(-1, h, d).contiguous()
    y = torch.empty_like(flat)
    put("rope_interleaved" if interleaved else "rope", flat, x=flat, cos=rows(cos), sin=rows(sin), y=y)
    return y.view(x.shape)


def _rope_cpu(x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    of = wide(x.dtype)
    a, b = _pairs(x.to(of), interleaved)
    cos, sin = cos.to(of).unsqueeze(-2), sin.to(of).unsqueeze(-2)
    turned = (a * cos - b * sin, b * cos + a * sin)
    y = torch.stack(turned, -1).reshape(x.shape) if interleaved else torch.cat(turned, -1)
    return y.to(x.dtype)


define("rope(Tensor x, Tensor cos, Tensor sin, bool interleaved) -> Tensor", _rope_cuda, _rope_cpu, lambda x, cos, sin, interleaved: x.new_empty(x.shape))


def _rope_saved(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.interleaved = inputs[3]
    ctx.save_for_backward(inputs[1], inputs[2])


def _rope_backward(ctx: Any, gradient: Any) -> Any:
    cos, sin = ctx.saved_tensors
    return torch.ops.tilewright.rope(gradient, cos, -sin, ctx.interleaved), None, None, None


differentiate("rope", _rope_backward, _rope_saved)


def rope(x: Any, cos: Any, sin: Any, *, interleaved: bool = False) -> Any:
    """Pairs of ``x[…, heads, d]`` turned by the angles of their place, whose cosines and sines are ``[…, d / 2]``: pairs are (i, i + d / 2), or with
    `interleaved` (2i, 2i + 1). Differentiable in `x`."""
    expected = (*x.shape[:-2], x.shape[-1] // 2)
    for name, angles in (("cos", cos), ("sin", sin)):
        if tuple(angles.shape) != expected:
            raise ValueError(f"`{name}` has shape {tuple(angles.shape)}, and `x` {tuple(x.shape)}: angles are {expected}, `{name}.expand(…)` repeats them")
    return call("rope", x, cos, sin, interleaved)
