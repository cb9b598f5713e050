"""Attention by the names and arguments that torch and FlashAttention have for it."""

from __future__ import annotations

from typing import Any

import torch

from ._attention import attention, attention_decode
from ._ragged import attention_ragged
from ._rope import rope


def _refuse(name: str, given: Any, remedy: str) -> None:
    """Refuses an argument that kernels have nothing for."""
    if given:
        raise ValueError(f"`{name}` is not taken: {remedy}")


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """``torch.nn.functional.scaled_dot_product_attention`` of ``[b, heads, places, elements]``, differentiable. Operands that are transposed from ``[b, places, heads, elements]``, as
    projections give them, are read where they lie."""
    _refuse("attn_mask", attn_mask is not None, "`is_causal=True` and `window` of `attention` are masks that kernels have")
    _refuse("dropout_p", dropout_p, "weights are never in memory, and there is no dropout of them")
    if not enable_gqa and query.dim() == 4 and query.shape[1] != key.shape[1]:
        raise ValueError(f"`query` has {query.shape[1]} heads, and `key` {key.shape[1]}: `enable_gqa=True` lets neighbouring heads share keys")
    if query.dim() != 4:
        raise ValueError(f"`query` has shape {tuple(query.shape)}: attention takes [b, heads, places, elements]")
    sq, sk = query.shape[2], key.shape[2]
    if is_causal and sq < sk:
        # torch's queries stand at the beginning of the keys: the others are attended to by none.
        key, value = key[:, :, :sq], value[:, :, :sq]
    elif is_causal and sq > sk:
        raise ValueError(f"`is_causal` with {sq} queries and {sk} keys: queries behind the last key see all, which kernels have no mask for")
    turned = [each.transpose(1, 2) for each in (query, key, value)]
    if all(each.is_contiguous() for each in turned):
        return attention(*turned, causal=is_causal, scale=scale).transpose(1, 2)
    return attention(query, key, value, causal=is_causal, scale=scale, heads_first=True)


def _window(causal: bool, window_size: tuple[int, int]) -> tuple[bool, int]:
    """The mask of FlashAttention's arguments: causal, and the keys of a window up to the query's own place."""
    left, right = window_size
    if left < 0 and right < 0:
        return causal, 0
    if not causal and right != 0:
        raise ValueError(f"`window_size` is {tuple(window_size)}: windows end at the query's own place, `causal=True` or (left, 0)")
    return True, 0 if left < 0 else left + 1


def _masks(dropout_p: float, alibi_slopes: Any, causal: bool, window_size: tuple[int, int], **others: Any) -> dict[str, Any]:
    """The named arguments of `attention` for FlashAttention's."""
    _refuse("dropout_p", dropout_p, "weights are never in memory, and there is no dropout of them")
    _refuse("alibi_slopes", alibi_slopes is not None, "`tilewright.ops` has them as the operator's `slopes`")
    causal, window = _window(causal, window_size)
    return {"causal": causal, "window": window, **others}


def _attended(function: Any, operands: tuple[Any, ...], masks: dict[str, Any], sums: bool) -> Any:
    """The result as FlashAttention's functions have it: with sums their logarithms too, and no weights."""
    if not sums:
        return function(*operands, **masks)
    o, lse = function(*operands, sums=True, **masks)
    return o, lse, None


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """FlashAttention's function of ``q[b, sq, hq, d]``, ``k[b, sk, hk, d]`` and `v`, differentiable. With `return_attn_probs` the logarithms of the sums, and no weights."""
    masks = _masks(dropout_p, alibi_slopes, causal, window_size, scale=softmax_scale, softcap=softcap, deterministic=deterministic)
    return _attended(attention, (q, k, v), masks, return_attn_probs)


def flash_attn_kvpacked_func(q: Any, kv: Any, *arguments: Any, **named: Any) -> Any:
    """`flash_attn_func` of keys and values in one tensor, ``kv[b, sk, 2, hk, d]``."""
    return flash_attn_func(q, *kv.unbind(2), *arguments, **named)


def flash_attn_qkvpacked_func(qkv: Any, *arguments: Any, **named: Any) -> Any:
    """`flash_attn_func` of one tensor, ``qkv[b, s, 3, h, d]``."""
    return flash_attn_func(*qkv.unbind(2), *arguments, **named)


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Any = None,
) -> Any:
    """FlashAttention's function of sequences one behind the other, ``q[tq, hq, d]``, ``k[tk, hk, d]`` and `v`, differentiable."""
    _refuse("block_table", block_table is not None, "`flash_attn_with_kvcache` reads pages")
    masks = _masks(dropout_p, alibi_slopes, causal, window_size, scale=softmax_scale, softcap=softcap, deterministic=deterministic)
    operands = (q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return _attended(attention_ragged, operands, masks, return_attn_probs)


def flash_attn_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any = None,
    v: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    cache_seqlens: Any = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    block_table: Any = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Any = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """FlashAttention's function of few queries ``q[b, sq, hq, d]`` over a cache ``k_cache[b, room, hk, d]``, or in pages, ``[pages, page, hk, d]``, with a ``block_table[b, most]``. `k` and `v` are
    written to the cache behind the `cache_seqlens` keys of each sequence, turned by ``rotary_cos[places, d / 2]`` at their places, as the queries are. Queries attend to keys up to their own
    place (of one query all are). The number of parts is chosen."""
    _refuse("cache_batch_idx", cache_batch_idx is not None, "index the cache, or give a `block_table`")
    _refuse("cache_leftpad", cache_leftpad is not None, "sequences begin at the first place of the cache")
    _refuse("alibi_slopes", alibi_slopes is not None, "kernels of few queries have no slopes")
    _refuse("return_softmax_lse", return_softmax_lse, "`tilewright.ops` has them as the operator's `lse`")
    if not causal and q.shape[1] > 1:
        raise ValueError("`causal=False` with several queries: kernels have queries attend to keys up to their own place, `causal=True`")
    _, window = _window(True, window_size)
    b, sq = q.shape[:2]
    room = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
    if cache_seqlens is None:
        cache_seqlens = room
    if isinstance(cache_seqlens, int):
        cache_seqlens = torch.full((b,), cache_seqlens, dtype=torch.int32, device=q.device)
    lengths = cache_seqlens
    if k is not None:
        places = cache_seqlens.long()[:, None] + torch.arange(k.shape[1], device=q.device)
        if rotary_cos is not None:
            turned = [angles[places].to(q.dtype) for angles in (rotary_cos, rotary_sin)]
            k = rope(k, *turned, interleaved=rotary_interleaved)
            q = rope(q, *(angles[:, :sq] for angles in turned), interleaved=rotary_interleaved)
        of = torch.arange(b, device=q.device)[:, None].expand_as(places)
        if block_table is not None:
            page = k_cache.shape[1]
            of, places = block_table.long().gather(1, places // page), places % page
        k_cache.index_put_((of, places), k)
        v_cache.index_put_((of, places), v)
        lengths = cache_seqlens + k.shape[1]
    return attention_decode(q, k_cache, v_cache, lengths, table=block_table, window=window, scale=softmax_scale, softcap=softcap)
