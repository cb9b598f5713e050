"""Layers of experts. Those of weights of 4 bits have no gradients."""

from __future__ import annotations

from typing import Any

import torch

from .. import _core
from ..experts import Experts
from ._experts_backward import moe_gradients
from ._registry import NAMES, call, define, differentiate
from ._rows import put, rows, wide
from ._weights import Stored, dequantised, refuse_move

_layers: dict[tuple[Any, ...], Experts] = {}


def _layer(device: int, dtype: str, shape: tuple[int, ...], weights: str, group: int | None) -> Experts:
    """The layer of a device for types and sizes, made once."""
    key = (device, dtype, shape, weights, group)
    if key not in _layers:
        hidden, intermediate, experts, k = shape
        layer = Experts(dtype, hidden=hidden, intermediate=intermediate, experts=experts, k=k, weights=weights, group=group, device=device)
        _layers[key] = layer
    return _layers[key]


def _routing_cuda(logits: Any, k: int, renormalise: bool) -> Any:
    ids, weights = logits.new_empty((logits.shape[0], k), dtype=torch.int32), logits.new_empty((logits.shape[0], k), dtype=torch.float32)
    put("moe_routing", ids, x=logits.contiguous(), ids=ids, weights=weights, options={"renormalise": renormalise})
    return ids, weights


def _routing_cpu(logits: Any, k: int, renormalise: bool) -> Any:
    # Of equal ones that with the lowest number: a stable sort.
    scores, ids = torch.sort(torch.softmax(logits.float(), -1), dim=-1, descending=True, stable=True)
    scores = scores[:, :k]
    return ids[:, :k].to(torch.int32).contiguous(), (scores / scores.sum(1, keepdim=True) if renormalise else scores).contiguous()


def _routing_fake(logits: Any, k: int, renormalise: bool) -> Any:
    return logits.new_empty((logits.shape[0], k), dtype=torch.int32), logits.new_empty((logits.shape[0], k), dtype=torch.float32)


define("moe_routing(Tensor logits, int k, bool renormalise) -> (Tensor, Tensor)", _routing_cuda, _routing_cpu, _routing_fake)


def moe_routing(logits: Any, k: int, *, renormalise: bool = True) -> tuple[Any, Any]:
    """The `k` experts with the largest softmax of ``logits[tokens, experts]``, the largest first, and their weights (f32), which `renormalise` divides by their sum."""
    ids, weights = call("moe_routing", logits, k, renormalise)
    return ids, weights


def _moe_cuda(x: Any, ids: Any, weights: Any, w13: Any, w2: Any) -> Any:
    y = torch.empty_like(rows(x))
    if y.numel():
        experts, _, intermediate, hidden = w13.shape
        layer = _layer(x.get_device(), NAMES[x.dtype], (hidden, intermediate, experts, ids.shape[1]), "same", None)
        given = {"x": rows(x), "ids": ids.to(torch.int32).flatten(), "weights": weights.float().contiguous()}
        layer.call(y.shape[0], **given, w13=w13.contiguous(), w2=w2.contiguous(), y=y)
    return y.view(x.shape)


def _summed(x: Any, ids: Any, weights: Any, w13: Any, w2: Any) -> Any:
    """The sum over the experts of each token, by torch."""
    of, flat = wide(x.dtype), x.reshape(-1, x.shape[-1])
    y = flat.new_zeros(flat.shape, dtype=of)
    for expert in range(w13.shape[0]):
        token, place = (ids == expert).nonzero(as_tuple=True)
        gate, up = (torch.nn.functional.linear(flat[token].to(of), each.to(of)) for each in w13[expert])
        result = torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, w2[expert].to(of))
        y.index_add_(0, token, result * weights[token, place].to(of).unsqueeze(1))
    return y.to(x.dtype).view(x.shape)


define(
    "moe(Tensor x, Tensor ids, Tensor weights, Tensor w13, Tensor w2) -> Tensor",
    _moe_cuda,
    _summed,
    lambda x, ids, weights, w13, w2: x.new_empty(x.shape),
)


differentiate("moe", moe_gradients, lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


def _chosen(x: Any, ids: Any, weights: Any) -> None:
    tokens = x.numel() // x.shape[-1]
    for name, each in (("ids", ids), ("weights", weights)):
        if each.dim() != 2 or each.shape[0] != tokens or each.shape != ids.shape:
            raise ValueError(f"`{name}` has shape {tuple(each.shape)}: both are [{tokens}, experts of a token]")


def moe(x: Any, ids: Any, weights: Any, w13: Any, w2: Any) -> Any:
    """A layer of experts of ``x[…, hidden]``: ``Σ weights · w2[e] · (silu(w13[e, 0] · x) ∘ (w13[e, 1] · x))`` over the experts ``ids[tokens, k]`` of a token, with ``w13[experts, 2, intermediate, hidden]``
    and ``w2[experts, hidden, intermediate]``. Differentiable in `x`, `weights` and both tensors of weights; the backward step waits for the numbers of tokens of the experts, and is not captured in graphs."""
    _chosen(x, ids, weights)
    return call("moe", x, ids, weights, w13, w2)


def _moe_w4_cuda(x: Any, ids: Any, weights: Any, w13: Any, s13: Any, w2: Any, s2: Any, group: int) -> Any:
    y = torch.empty_like(rows(x))
    if y.numel():
        experts, hidden, intermediate = w13.shape[0], x.shape[-1], s13.shape[2] // 2
        layer = _layer(x.get_device(), NAMES[x.dtype], (hidden, intermediate, experts, ids.shape[1]), "i4", group)
        shapes = (_core.stored_weights("i4", group, 2 * intermediate, hidden), _core.stored_weights("i4", group, hidden, intermediate))
        given: dict[str, Any] = {"x": rows(x), "ids": ids.to(torch.int32).flatten(), "weights": weights.float().contiguous()}
        given["w13"], given["w2"] = ((each, "i4", [experts, *shape]) for each, shape in zip((w13, w2), shapes))
        layer.call(y.shape[0], **given, s13=s13.contiguous(), s2=s2.contiguous(), y=y)
    return y.view(x.shape)


def _moe_w4_cpu(x: Any, ids: Any, weights: Any, w13: Any, s13: Any, w2: Any, s2: Any, group: int) -> Any:
    both = [torch.stack([dequantised(w, s, None, group) for w, s in zip(*pair)]) for pair in ((w13, s13), (w2, s2))]
    return _summed(x, ids, weights, both[0].unflatten(1, (2, -1)), both[1])


define(
    "moe_w4(Tensor x, Tensor ids, Tensor weights, Tensor w13, Tensor s13, Tensor w2, Tensor s2, int group) -> Tensor",
    _moe_w4_cuda,
    _moe_w4_cpu,
    lambda x, ids, weights, w13, s13, w2, s2, group: x.new_empty(x.shape),
)


class ExpertsW4(Stored):
    """A layer of experts whose weights have 4 bits, from −8 to 7: ``w13[experts, 2 · intermediate, hidden / 2]`` (the rows of w1, then those of w3) and ``w2[experts, hidden, intermediate / 2]`` as `LinearW4`
    has them, with scales ``s13[experts, hidden / group, 2 · intermediate]`` and ``s2[experts, intermediate / group, hidden]``. It stays on its device, as `LinearW4` does."""

    def __init__(self, w13: Any, s13: Any, w2: Any, s2: Any, *, group: int = 128) -> None:
        super().__init__()
        self.order = w13.device.type
        self.group = group

        def stored(weights: Any) -> Any:
            return torch.stack([call("repack_w4", each, True, group) for each in weights])

        self.w13: Any = torch.nn.Buffer(stored(w13))
        self.w2: Any = torch.nn.Buffer(stored(w2))
        self.s13: Any = torch.nn.Buffer(s13)
        self.s2: Any = torch.nn.Buffer(s2)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        refuse_move(self.w13, fn)
        return super()._apply(fn, recurse)

    def forward(self, x: Any, ids: Any, weights: Any) -> Any:
        """The layer's result for ``x[…, hidden]`` and the experts of each token."""
        self.check_order(self.w13)
        _chosen(x, ids, weights)
        return call("moe_w4", x, ids, weights, self.w13, self.s13, self.w2, self.s2, self.group)
