"""Attention of sequences of their own lengths, one behind the other, with gradients."""

from __future__ import annotations

import math
from typing import Any

import torch

from ._attention import _attention_cpu, _backward_cpu, _heads, _numbers, _options, _scale
from ._registry import call, define, differentiate
from ._rows import put, wide

_MASKS = "int longest_q, int longest_k, float scale, bool causal, int window, float softcap, bool deterministic"


def _given(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any) -> dict[str, Any]:
    begins = {name: each.to(torch.int32).contiguous() for name, each in (("cu_q", cu_q), ("cu_k", cu_k))}
    return {"q": q.contiguous(), "k": k.contiguous(), "v": v.contiguous(), **begins}


def _results(q: Any, v: Any) -> tuple[Any, Any]:
    """The result and the logarithms of sums, without data."""
    return q.new_empty((*q.shape[:2], v.shape[2])), q.new_empty((q.shape[1], q.shape[0]), dtype=wide(q.dtype))


def _forward_cuda(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, longest_q: int, longest_k: int, scale: float, causal: bool, window: int, softcap: float, deterministic: bool
) -> Any:
    o, lse = _results(q, v)
    options = {**_options(causal, window, softcap, False), "varlen": "true"}
    if k.numel() == 0:
        return o.zero_(), lse.fill_(-math.inf)
    put("attention", o, **_given(q, k, v, cu_q, cu_k), o=o, lse=lse, options=options, sizes={"sq": longest_q, "sk": longest_k}, **_numbers(scale, softcap))
    return o, lse


def _pieces(cu_q: Any, cu_k: Any) -> list[tuple[slice, slice]]:
    """The queries and the keys of each sequence."""
    begins = [each.tolist() for each in (cu_q, cu_k)]
    return [(slice(*begins[0][at : at + 2]), slice(*begins[1][at : at + 2])) for at in range(len(begins[0]) - 1)]


def _forward_cpu(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, longest_q: int, longest_k: int, scale: float, causal: bool, window: int, softcap: float, deterministic: bool
) -> Any:
    o, lse = (each.zero_() for each in _results(q, v))
    for of_q, of_k in _pieces(cu_q, cu_k):
        part, sums = _attention_cpu(q[None, of_q], k[None, of_k], v[None, of_k], scale, causal, window, softcap, deterministic, False)
        o[of_q], lse[:, of_q] = part[0], sums[0]
    return o, lse


def _forward_fake(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, longest_q: int, longest_k: int, scale: float, causal: bool, window: int, softcap: float, deterministic: bool
) -> Any:
    return _results(q, v)


_OPERANDS = "Tensor q, Tensor k, Tensor v, Tensor cu_q, Tensor cu_k"
define(f"attention_ragged({_OPERANDS}, {_MASKS}) -> (Tensor, Tensor)", _forward_cuda, _forward_cpu, _forward_fake)


def _backward_of_cuda(gradient: Any, o: Any, lse: Any, q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, longest_q: int, longest_k: int, *masks: Any) -> Any:
    scale, causal, window, softcap, deterministic = masks
    # Rows behind the last sequence have no gradient, and kernels do not write them.
    dq, dk, dv = (each.new_zeros(each.shape) for each in (q, k, v))
    options = {**_options(causal, window, softcap, False), "varlen": "true", **({"deterministic": "true"} if deterministic else {})}
    if k.numel():
        given = {**_given(q, k, v, cu_q, cu_k), "o": o.contiguous(), "dout": gradient.contiguous(), "lse": lse}
        put("attention_backward", q, **given, dq=dq, dk=dk, dv=dv, options=options, sizes={"sq": longest_q, "sk": longest_k}, **_numbers(scale, softcap))
    return dq, dk, dv


def _backward_of_cpu(gradient: Any, o: Any, lse: Any, q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, longest_q: int, longest_k: int, *masks: Any) -> Any:
    results = [each.new_zeros(each.shape) for each in (q, k, v)]
    for of_q, of_k in _pieces(cu_q, cu_k):
        parts = (gradient[None, of_q], q[None, of_q], k[None, of_k], v[None, of_k], o[None, of_q], lse[None, :, of_q])
        operands = [*parts, *masks, False]
        for result, place, part in zip(results, (of_q, of_k, of_k), _backward_cpu(*operands)):
            result[place] = part[0]
    return tuple(results)


define(
    f"attention_ragged_backward(Tensor gradient, Tensor o, Tensor lse, {_OPERANDS}, {_MASKS}) -> (Tensor, Tensor, Tensor)",
    _backward_of_cuda,
    _backward_of_cpu,
    lambda gradient, o, lse, q, k, v, *rest: tuple(each.new_empty(each.shape) for each in (q, k, v)),
)


def _saved(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.masks = inputs[5:]
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*output, *inputs[:5])


def _backward(ctx: Any, gradient: Any, _of_lse: Any) -> Any:
    gradients = torch.ops.tilewright.attention_ragged_backward(gradient, *ctx.saved_tensors, *ctx.masks)
    return (*gradients, *(None,) * 9)


differentiate("attention_ragged", _backward, _saved)


def attention_ragged(
    q: Any,
    k: Any,
    v: Any,
    cu_q: Any,
    cu_k: Any,
    longest_q: int,
    longest_k: int,
    *,
    causal: bool = False,
    window: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    deterministic: bool = False,
    sums: bool = False,
) -> Any:
    """`attention` of sequences one behind the other: ``q[tq, hq, d]``, ``k[tk, hk, d]`` and ``v[tk, hk, dv]``, of which sequence i has the rows from ``cu_q[i]`` to ``cu_q[i + 1]``, and from ``cu_k[i]``;
    the longest have `longest_q` and `longest_k` rows. Rows behind the last sequence have no result. Differentiable. With `sums` also the logarithms of the sums of exponentials, ``[hq, tq]``."""
    for name, each in (("q", q), ("k", k), ("v", v)):
        if each.dim() != 3:
            raise ValueError(f"`{name}` has shape {tuple(each.shape)}: sequences one behind the other are [places, heads, elements]")
    if cu_q.shape != cu_k.shape or cu_q.dim() != 1:
        raise ValueError(f"`cu_q` has shape {tuple(cu_q.shape)}, and `cu_k` {tuple(cu_k.shape)}: both have the begins of all sequences, and the end behind them")
    _heads(q[None], k[None])
    o, lse = call("attention_ragged", q, k, v, cu_q, cu_k, longest_q, longest_k, _scale(q, scale), causal, window, softcap, deterministic)
    return (o, lse) if sums else o
