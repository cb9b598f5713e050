"""Attention over ``[batch, places, heads, elements]``, with gradients, and over caches."""

from __future__ import annotations

import math
from typing import Any

import torch

from ._registry import call, define, differentiate
from ._rows import put, wide


def _seen(sq: int, sk: int, causal: bool, window: int, device: Any) -> Any:
    """True where a query attends to a key, or None for all: queries stand at the end of the keys."""
    if not causal and not window:
        return None
    distance = torch.arange(sk - sq, sk, device=device)[:, None] - torch.arange(sk, device=device)[None, :]
    seen = distance >= 0
    return seen & (distance < window) if window else seen


def _scores(q: Any, k: Any, scale: float, softcap: float) -> tuple[Any, Any]:
    """Scores ``[b, hq, sq, sk]`` in the type of sums, and the slope of the cap."""
    x = torch.einsum("bihd,bjhd->bhij", q, k) * scale
    if not softcap:
        return x, None
    capped = torch.tanh(x / softcap)
    return capped * softcap, 1 - capped.square()


def _operands(q: Any, *of_keys: Any) -> tuple[Any, ...]:
    """Operands in the type of sums, heads of keys repeated for the heads of queries that share them."""
    of, group = wide(q.dtype), q.shape[2] // max(of_keys[0].shape[2], 1)
    return (q.to(of), *(each.to(of).repeat_interleave(group, 2) for each in of_keys))


def _attended(q: Any, k: Any, v: Any, scale: float, seen: Any, softcap: float) -> tuple[Any, Any]:
    """The result ``[b, sq, hq, dv]`` and the logarithms of sums ``[b, hq, sq]``, by torch."""
    wide_q, wide_k, wide_v = _operands(q, k, v)
    x, _ = _scores(wide_q, wide_k, scale, softcap)
    if seen is not None:
        x = x.masked_fill(~seen, -math.inf)
    lse = torch.logsumexp(x, -1)
    weights = torch.exp(x - lse.masked_fill(lse == -math.inf, 0).unsqueeze(-1))
    return torch.einsum("bhij,bjhd->bihd", weights, wide_v).to(q.dtype).contiguous(), lse


def _options(causal: bool, window: int, softcap: float, heads_first: bool) -> dict[str, str]:
    """The options of kernels for a mask, a cap and an order of modes."""
    mask = {"mask": f"window({window})"} if window else {"mask": "causal"} if causal else {}
    return {**mask, **({"softcap": "true"} if softcap else {}), **({"modes": "bhsd"} if heads_first else {})}


def _numbers(scale: float, softcap: float) -> dict[str, float]:
    return {"scale": float(scale), **({"cap": float(softcap)} if softcap else {})}


def _result(q: Any, v: Any) -> Any:
    """The result without data."""
    return q.new_empty((*q.shape[:3], v.shape[3]))


def _sums(q: Any, heads_first: bool) -> Any:
    """The logarithms of sums without data."""
    return q.new_empty(q.shape[:3] if heads_first else (q.shape[0], q.shape[2], q.shape[1]), dtype=wide(q.dtype))


def _launched(
    sums: dict[str, Any], q: Any, k: Any, v: Any, scale: float, causal: bool, window: int, softcap: float, deterministic: bool, heads_first: bool
) -> Any:
    """The result by kernels, which write the logarithms of sums too, where `sums` has a tensor for them."""
    o = _result(q, v)
    if k.numel() == 0:
        for each in sums.values():
            each.fill_(-math.inf)
        return o.zero_()
    options, numbers = _options(causal, window, softcap, heads_first), _numbers(scale, softcap)
    put("attention", o, q=q.contiguous(), k=k.contiguous(), v=v.contiguous(), o=o, **sums, options=options, **numbers)
    return o


def _attention_cuda(q: Any, k: Any, v: Any, *masks: Any) -> Any:
    lse = _sums(q, masks[-1])
    return _launched({"lse": lse}, q, k, v, *masks), lse


def _turned(heads_first: bool, *tensors: Any) -> list[Any]:
    """Tensors with places before heads, or from there to heads before places."""
    return [each.transpose(1, 2) for each in tensors] if heads_first else list(tensors)


def _attention_cpu(
    q: Any, k: Any, v: Any, scale: float, causal: bool, window: int, softcap: float, deterministic: bool, heads_first: bool
) -> Any:
    q, k, v = _turned(heads_first, q, k, v)
    o, lse = _attended(q, k, v, scale, _seen(q.shape[1], k.shape[1], causal, window, q.device), softcap)
    return _turned(heads_first, o)[0].contiguous(), lse


def _attention_fake(q: Any, k: Any, v: Any, *masks: Any) -> Any:
    return _result(q, v), _sums(q, masks[-1])


_MASKS = "float scale, bool causal, int window, float softcap, bool deterministic, bool heads_first"
define(f"attention(Tensor q, Tensor k, Tensor v, {_MASKS}) -> (Tensor, Tensor)", _attention_cuda, _attention_cpu, _attention_fake)


def _backward_cuda(
    gradient: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, scale: float, causal: bool, window: int, softcap: float, deterministic: bool, heads_first: bool
) -> Any:
    dq, dk, dv = (each.new_empty(each.shape) for each in (q, k, v))
    if k.numel() == 0 or q.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    options = {**_options(causal, window, softcap, heads_first), **({"deterministic": "true"} if deterministic else {})}
    given = {name: each.contiguous() for name, each in (("q", q), ("k", k), ("v", v), ("o", o), ("dout", gradient), ("lse", lse))}
    put("attention_backward", q, **given, dq=dq, dk=dk, dv=dv, options=options, **_numbers(scale, softcap))
    return dq, dk, dv


def _backward_cpu(
    gradient: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, scale: float, causal: bool, window: int, softcap: float, deterministic: bool, heads_first: bool
) -> Any:
    gradient, q, k, v, o = _turned(heads_first, gradient, q, k, v, o)
    wide_q, wide_k, wide_v = _operands(q, k, v)
    x, slope = _scores(wide_q, wide_k, scale, softcap)
    # A query without a key has no gradient and gives none.
    weights = torch.exp(x - lse.to(x.dtype).masked_fill(lse == -math.inf, math.inf).unsqueeze(-1))
    seen = _seen(q.shape[1], k.shape[1], causal, window, q.device)
    if seen is not None:
        weights = weights.masked_fill(~seen, 0)
    of_o = gradient.to(x.dtype)
    of_weights = torch.einsum("bihd,bjhd->bhij", of_o, wide_v)
    delta = (of_o * o.to(x.dtype)).sum(-1).transpose(1, 2).unsqueeze(-1)
    of_x = weights * (of_weights - delta)
    of_x = (of_x if slope is None else of_x * slope) * scale

    def shared(of: Any, like: Any) -> Any:
        return of.unflatten(2, (like.shape[2], -1)).sum(3).to(like.dtype)

    dq = torch.einsum("bhij,bjhd->bihd", of_x, wide_k).to(q.dtype)
    dk = shared(torch.einsum("bhij,bihd->bjhd", of_x, wide_q), k)
    dv = shared(torch.einsum("bhij,bihd->bjhd", weights, of_o), v)
    return tuple(each.contiguous() for each in _turned(heads_first, dq, dk, dv))


def _backward_fake(
    gradient: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, scale: float, causal: bool, window: int, softcap: float, deterministic: bool, heads_first: bool
) -> Any:
    return tuple(each.new_empty(each.shape) for each in (q, k, v))


define(
    f"attention_backward(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, {_MASKS}) -> (Tensor, Tensor, Tensor)",
    _backward_cuda,
    _backward_cpu,
    _backward_fake,
)


def _attention_saved(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, *ctx.masks = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(q, k, v, *output)


def _attention_backward(ctx: Any, gradient: Any, _of_lse: Any) -> Any:
    return (*torch.ops.tilewright.attention_backward(gradient, *ctx.saved_tensors, *ctx.masks), *(None,) * 6)


differentiate("attention", _attention_backward, _attention_saved)


# The result without the logarithms of sums, which only gradients need.
define(
    f"attention_alone(Tensor q, Tensor k, Tensor v, {_MASKS}) -> Tensor",
    lambda *given: _launched({}, *given),
    lambda *given: _attention_cpu(*given)[0],
    lambda q, k, v, *masks: _result(q, v),
)


def _alone_saved(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, *ctx.masks = inputs
    ctx.save_for_backward(q, k, v)


def _alone_backward(ctx: Any, gradient: Any) -> Any:
    results = torch.ops.tilewright.attention(*ctx.saved_tensors, *ctx.masks)
    return (*torch.ops.tilewright.attention_backward(gradient, *ctx.saved_tensors, *results, *ctx.masks), *(None,) * 6)


# A transform of functions may ask for gradients of what says that it needs none.
differentiate("attention_alone", _alone_backward, _alone_saved)


def _of_cache(k: Any, lengths: Any, sq: int, window: int) -> Any:
    """True where a query of a sequence attends to a key of a cache: ``[b, 1, sq, room]``."""
    places = lengths.view(-1, 1, 1, 1) - sq + torch.arange(sq, device=k.device).view(1, 1, -1, 1)
    distance = places - torch.arange(k.shape[1], device=k.device)
    seen = distance >= 0
    return seen & (distance < window) if window else seen


def _decoding(window: int, softcap: float) -> dict[str, str]:
    return {**({"window": str(window)} if window else {}), **({"softcap": "true"} if softcap else {})}


def _decode_cuda(q: Any, k: Any, v: Any, lengths: Any, scale: float, window: int, softcap: float) -> Any:
    o = _result(q, v)
    given = {"q": q.contiguous(), "k": k.contiguous(), "v": v.contiguous(), "len": lengths.to(torch.int32).contiguous()}
    put("attention_decode", o, **given, o=o, options=_decoding(window, softcap), **_numbers(scale, softcap))
    return o


def _decode_cpu(q: Any, k: Any, v: Any, lengths: Any, scale: float, window: int, softcap: float) -> Any:
    return _attended(q, k, v, scale, _of_cache(k, lengths, q.shape[1], window), softcap)[0]


def _decode_fake(q: Any, k: Any, v: Any, *rest: Any) -> Any:
    return _result(q, v)


define(
    "attention_decode(Tensor q, Tensor k, Tensor v, Tensor lengths, float scale, int window, float softcap) -> Tensor", _decode_cuda, _decode_cpu, _decode_fake
)

# Pages of fewer keys than this are read in blocks of at most so many keys, which are no longer than a page.
_LONG_PAGE, _BLOCK = 256, 32


def _paged_cuda(q: Any, k: Any, v: Any, table: Any, lengths: Any, scale: float, window: int, softcap: float) -> Any:
    o = _result(q, v)
    page, heads = k.shape[1:3]
    options = {**_decoding(window, softcap), "page": page, "group": q.shape[2] // heads}
    if page < _LONG_PAGE:
        options["bn"] = min(page, _BLOCK)
    given = {"q": q.contiguous(), "kc": k.contiguous(), "vc": v.contiguous(), "len": lengths.to(torch.int32).contiguous()}
    given["table"] = table.to(torch.int32).contiguous()
    put("attention_decode", o, **given, o=o, options=options, sizes={"heads": heads}, **_numbers(scale, softcap))
    return o


def _paged_cpu(q: Any, k: Any, v: Any, table: Any, lengths: Any, scale: float, window: int, softcap: float) -> Any:
    # Pages behind a sequence may have any number.
    pages = table.long().clamp(0, k.shape[0] - 1)
    k, v = (each[pages].flatten(1, 2) for each in (k, v))
    return _decode_cpu(q, k, v, lengths, scale, window, softcap)


define(
    "attention_paged(Tensor q, Tensor k, Tensor v, Tensor table, Tensor lengths, float scale, int window, float softcap) -> Tensor",
    _paged_cuda,
    _paged_cpu,
    _decode_fake,
)


def _checked(q: Any, k: Any, v: Any) -> None:
    """Refuses operands, with places before heads, whose shapes do not go together."""
    for name, each in (("q", q), ("k", k), ("v", v)):
        if each.dim() != 4:
            raise ValueError(f"`{name}` has shape {tuple(each.shape)}: attention takes [batch, places, heads, elements]")
    if k.shape[:3] != v.shape[:3] or q.shape[3] != k.shape[3] or q.shape[0] != k.shape[0]:
        raise ValueError(
            f"`q` has shape {tuple(q.shape)}, `k` {tuple(k.shape)} and `v` {tuple(v.shape)}: q is [b, sq, hq, d], k [b, sk, hk, d] and v [b, sk, hk, dv]"
        )
    _heads(q, k)


def _heads(q: Any, k: Any) -> None:
    if k.shape[2] == 0 or q.shape[2] % k.shape[2]:
        raise ValueError(f"`q` has {q.shape[2]} heads, and `k` {k.shape[2]}: those of `q` are a multiple of those of `k`")


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    deterministic: bool = False,
    sums: bool = False,
    heads_first: bool = False,
) -> Any:
    """``softmax(scale · q kᵀ) v`` of ``q[b, sq, hq, d]``, ``k[b, sk, hk, d]`` and ``v[b, sk, hk, dv]``, differentiable: all keys, those up to the query's own place, or a
    window of so many of those; queries stand at the end of the keys. With `softcap` scores x become ``softcap · tanh(x / softcap)``; gradients repeat bit by bit where they are
    `deterministic`; with `sums` also the logarithms of the sums of exponentials, ``[b, hq, sq]``, which have no gradient. With
    `heads_first` heads come before places in all, ``q[b, hq, sq, d]``."""
    _checked(*_turned(heads_first and q.dim() == k.dim() == v.dim() == 4, q, k, v))
    given = (q, k, v, _scale(q, scale), causal, window, softcap, deterministic, heads_first)
    if not sums and not (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)):
        return call("attention_alone", *given)
    o, lse = call("attention", *given)
    return (o, lse) if sums else o


def _scale(q: Any, scale: float | None) -> float:
    return 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)


def attention_decode(
    q: Any, k: Any, v: Any, lengths: Any, *, table: Any = None, window: int = 0, scale: float | None = None, softcap: float = 0.0
) -> Any:
    """Attention of few queries ``q[b, sq, hq, d]`` over a cache ``k[b, room, hk, d]`` and `v`, of which sequence i has ``lengths[i]`` keys, its queries' own among them; queries attend
    to keys up to their own place. With a `table` the cache is in pages, ``k[pages, page, hk, d]``: key j of sequence i is key j mod page of page ``table[i, j / page]``."""
    masks = (_scale(q, scale), window, softcap)
    if table is not None:
        _heads(q, k)
        return call("attention_paged", q, k, v, table, lengths, *masks)
    _checked(q, k, v)
    return call("attention_decode", q, k, v, lengths, *masks)
