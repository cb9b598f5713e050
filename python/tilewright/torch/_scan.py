"""Scans of state spaces, and what stands ahead of them; `_scan_backward` has their gradients."""

from __future__ import annotations

from typing import Any

import torch

from ._registry import call, define
from ._rows import put, wide

_STATES, _TAPS = 16, 4


def _conv_cuda(x: Any, weight: Any, bias: Any) -> Any:
    y = x.new_empty(x.shape)
    put("causal_conv1d", x, x=x.contiguous(), w=weight.contiguous(), bias=bias.contiguous(), y=y)
    return y


def _conv_cpu(x: Any, weight: Any, bias: Any) -> Any:
    of = wide(x.dtype)
    padded = torch.nn.functional.pad(x.to(of), (weight.shape[1] - 1, 0))
    sums = torch.nn.functional.conv1d(padded, weight.to(of).unsqueeze(1), bias.to(of), groups=x.shape[1])
    return torch.nn.functional.silu(sums).to(x.dtype)


define("causal_conv1d(Tensor x, Tensor weight, Tensor bias) -> Tensor", _conv_cuda, _conv_cpu, lambda x, weight, bias: x.new_empty(x.shape))


def causal_conv1d(x: Any, weight: Any, bias: Any) -> Any:
    """``silu(bias[d] + Σ weight[d, i] · x[b, d, l − 3 + i])`` over four steps of ``x[b, d, l]``, differentiable in all."""
    if tuple(weight.shape) != (x.shape[1], _TAPS):
        raise ValueError(f"`weight` has shape {tuple(weight.shape)}, and `x` {x.shape[1]} channels: it is [{x.shape[1]}, {_TAPS}]")
    return call("causal_conv1d", x, weight, bias)


def _scan_cuda(u: Any, delta: Any, a: Any, b: Any, c: Any, skip: Any, z: Any, bias: Any) -> Any:
    y = u.new_empty(u.shape)
    given = {"u": u, "delta": delta, "a": a, "bs": b, "cs": c, "skip": skip, "z": z, "bias": bias}
    put("selective_scan", u, **{name: each.contiguous() for name, each in given.items()}, y=y)
    return y


def _scan_cpu(u: Any, delta: Any, a: Any, b: Any, c: Any, skip: Any, z: Any, bias: Any) -> Any:
    of = wide(u.dtype)
    wide_u, delta, b, c, z = (each.to(of) for each in (u, delta, b, c, z))
    step = torch.nn.functional.softplus(delta + bias.unsqueeze(1))
    state, sums = wide_u.new_zeros((*u.shape[:2], a.shape[1])), []
    for at in range(u.shape[2]):
        now = step[:, :, at, None]
        state = torch.exp(now * a) * state + now * wide_u[:, :, at, None] * b[:, None, :, at]
        sums.append((state * c[:, None, :, at]).sum(2))
    y = torch.stack(sums, 2) if sums else torch.zeros_like(wide_u)
    return ((y + skip.unsqueeze(1) * wide_u) * torch.nn.functional.silu(z)).to(u.dtype).contiguous()


define(
    "selective_scan(Tensor u, Tensor delta, Tensor a, Tensor b, Tensor c, Tensor skip, Tensor z, Tensor bias) -> Tensor",
    _scan_cuda,
    _scan_cpu,
    lambda u, delta, a, b, c, skip, z, bias: u.new_empty(u.shape),
)


def selective_scan(u: Any, delta: Any, a: Any, b: Any, c: Any, skip: Any, z: Any, bias: Any) -> Any:
    """Mamba's scan of ``u[batch, d, l]``: steps are ``dt = softplus(delta + bias)``, states ``h = exp(dt · a) · h + dt · u · b``, the result ``(Σ h · c + skip · u) · silu(z)``; ``a[d, 16]``, `skip`
    and `bias` are f32, ``b[batch, 16, l]`` and `c` of the type of `u`. Differentiable in all, by torch's arithmetic."""
    if a.shape[1] != _STATES:
        raise ValueError(f"`a` has {a.shape[1]} states of a channel: kernels have {_STATES}")
    return call("selective_scan", u, delta, a, b, c, skip, z, bias)


_CHANNELS, _STATE_ELEMENTS = 64, 128


def _mamba2_cuda(x: Any, delta: Any, a: Any, b: Any, c: Any, skip: Any, bias: Any) -> Any:
    y = x.new_empty(x.shape)
    given = {"x": x, "delta": delta, "a": a, "bs": b, "cs": c, "skip": skip, "bias": bias}
    put("mamba2", x, **{name: each.contiguous() for name, each in given.items()}, y=y)
    return y


def _mamba2_cpu(x: Any, delta: Any, a: Any, b: Any, c: Any, skip: Any, bias: Any) -> Any:
    of = wide(x.dtype)
    wide_x, delta, b, c = (each.to(of) for each in (x, delta, b, c))
    step = torch.nn.functional.softplus(delta + bias)
    state, sums = wide_x.new_zeros((x.shape[0], *x.shape[2:], b.shape[2])), []
    for at in range(x.shape[1]):
        now = step[:, at, :, None, None]
        state = torch.exp(now * a[:, None, None]) * state + now * wide_x[:, at, :, :, None] * b[:, at, None, None, :]
        sums.append((state * c[:, at, None, None, :]).sum(3))
    y = torch.stack(sums, 1) if sums else torch.zeros_like(wide_x)
    return (y + skip[:, None] * wide_x).to(x.dtype).contiguous()


define(
    "mamba2(Tensor x, Tensor delta, Tensor a, Tensor b, Tensor c, Tensor skip, Tensor bias) -> Tensor",
    _mamba2_cuda,
    _mamba2_cpu,
    lambda x, delta, a, b, c, skip, bias: x.new_empty(x.shape),
)


def mamba2(x: Any, delta: Any, a: Any, b: Any, c: Any, skip: Any, bias: Any) -> Any:
    """Mamba-2's scan of ``x[batch, l, heads, 64]`` with ``delta[batch, l, heads]``, one group of ``b[batch, l, 128]`` and `c`, and ``a``, `skip` and `bias` of f32 a head: a state is
    ``h = exp(dt · a) · h + dt · x bᵀ`` with ``dt = softplus(delta + bias)``, the result ``h c + skip · x``. Differentiable in all, by torch's arithmetic."""
    if x.shape[3] != _CHANNELS or b.shape[2] != _STATE_ELEMENTS:
        raise ValueError(f"heads of {x.shape[3]} channels and {b.shape[2]} states: kernels have {_CHANNELS} and {_STATE_ELEMENTS}")
    return call("mamba2", x, delta, a, b, c, skip, bias)
