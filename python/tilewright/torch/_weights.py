"""Products with weights of 4 bits."""

from __future__ import annotations

import math
from typing import Any

import torch

from .. import _core
from ._registry import call, define, differentiate
from ._rows import put, rows, wide


def _word(signed: bool) -> str:
    return "i4" if signed else "u4"


def _repack_cuda(weight: Any, signed: bool, group: int) -> Any:
    n, k = weight.shape[0], 2 * weight.shape[1]
    shape = _core.stored_weights(_word(signed), group, n, k)
    stored = weight.new_empty(math.prod(shape) // 2)
    given: dict[str, Any] = {"x": (weight.contiguous(), _word(signed), [n, k]), "w": (stored, _word(signed), list(shape))}
    put("repack_weights", stored, **given, options={"weights": _word(signed), "group": group})
    return stored


def _repack_fake(weight: Any, signed: bool, group: int) -> Any:
    if weight.device.type != "cuda":
        return weight.new_empty(weight.shape)
    return weight.new_empty(math.prod(_core.stored_weights(_word(signed), group, weight.shape[0], 2 * weight.shape[1])) // 2)


define("repack_w4(Tensor weight, bool signed, int group) -> Tensor", _repack_cuda, lambda weight, signed, group: weight.clone(), _repack_fake)


def _linear_cuda(x: Any, weight: Any, scales: Any, zeros: Any, group: int, residual: Any) -> Any:
    n, k, word = scales.shape[1], x.shape[-1], _word(zeros is None)
    c = x.new_empty((x.numel() // k, n))
    given: dict[str, Any] = {"a": rows(x), "w": (weight, word, list(_core.stored_weights(word, group, n, k))), "s": scales.contiguous()}
    options: dict[str, Any] = {"group": group}
    if zeros is not None:
        given["z"] = zeros.contiguous()
    if residual is not None:
        given["residual"], options["epilogue"] = rows(residual), "residual"
    put("gemm_weights", c, **given, c=c, options=options)
    return c.view(*x.shape[:-1], n)


def dequantised(weight: Any, scales: Any, zeros: Any, group: int) -> Any:
    """Weights ``[n, k / 2]`` of two a byte as numbers ``[n, k]`` in the type of sums."""
    codes = torch.stack((weight & 15, weight >> 4), -1).flatten(-2)
    of = wide(scales.dtype)
    each = [value.to(of).T.repeat_interleave(group, 1)[:, : codes.shape[1]] for value in ([scales] if zeros is None else [scales, zeros])]
    values = codes.to(of)
    centred = values - 16 * (values >= 8) if zeros is None else values - each[1]
    return centred * each[0]


def _linear_cpu(x: Any, weight: Any, scales: Any, zeros: Any, group: int, residual: Any) -> Any:
    y = torch.nn.functional.linear(x.to(wide(x.dtype)), dequantised(weight, scales, zeros, group).to(wide(x.dtype)))
    return (y if residual is None else y + residual).to(x.dtype)


def _linear_fake(x: Any, weight: Any, scales: Any, zeros: Any, group: int, residual: Any) -> Any:
    return x.new_empty((*x.shape[:-1], scales.shape[1]))


define(
    "linear_w4(Tensor x, Tensor weight, Tensor scales, Tensor? zeros, int group, Tensor? residual) -> Tensor", _linear_cuda, _linear_cpu, _linear_fake
)


def _saved(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, scales, zeros, ctx.group, residual = inputs
    ctx.k, ctx.shape, ctx.added = x.shape[-1], x.shape, residual is not None
    ctx.save_for_backward(weight, scales, zeros)


def _backward(ctx: Any, gradient: Any) -> Any:
    weight, scales, zeros = ctx.saved_tensors
    # The product with the unit matrix is the matrix, whatever the order of its weights.
    one = torch.eye(ctx.k, dtype=gradient.dtype, device=gradient.device)
    transposed = torch.ops.tilewright.linear_w4(one, weight, scales, zeros, ctx.group, None)
    of_x = torch.ops.tilewright.linear(gradient.reshape(-1, gradient.shape[-1]), transposed).reshape(ctx.shape)
    return of_x, None, None, None, None, gradient if ctx.added else None


differentiate("linear_w4", _backward, _saved)


def refuse_move(weight: Any, moved: Any) -> None:
    """Refuses a move of stored weights to a device of another kind, where they have another order."""
    here, there = weight.device.type, moved(weight.new_empty(0)).device.type
    if here != there and "meta" not in (here, there):
        raise RuntimeError(f"weights that were stored for `{here}` have another order on `{there}`: make the layer anew of weights that are there")


class Stored(torch.nn.Module):  # type: ignore[misc]
    """A module whose weights have the order of one kind of device, of which its state tells: another kind reads other numbers in the same bytes."""

    order: str

    def get_extra_state(self) -> dict[str, str]:
        """The kind of device whose order the weights of the state have."""
        return {"order": self.order}

    def set_extra_state(self, state: dict[str, str]) -> None:
        """Refuses a state whose weights have another order."""
        if state["order"] != self.order:
            raise RuntimeError(f"the state's weights were stored for `{state['order']}`, and the layer is of `{self.order}`: make the layer of weights that are there")

    def check_order(self, weight: Any) -> None:
        """Refuses weights that came to a device whose order they have not, as `torch.load` brings them by `map_location`."""
        if weight.device.type not in (self.order, "meta"):
            raise RuntimeError(f"weights that were stored for `{self.order}` are on `{weight.device.type}`: make the layer anew of weights that are there")


class LinearW4(Stored):
    """A linear layer without bias, ``x · (scale ∘ (w − zero))ᵀ``, of weights ``[n, k / 2]`` (u8: two of 4 bits each, the first in the lower half) and ``scales[⌈k / group⌉, n]`` of f16 or bf16. With
    `zeros`, of the shape and the type of the scales, weights are from 0 to 15, else from −8 to 7. On a GPU, which takes one of Hopper's (sm_90), weights are brought once into the order in which
    kernels read them, so that the layer is made of tensors on its device, and stays there. Gradients flow to `x`."""

    def __init__(self, weight: Any, scales: Any, zeros: Any = None, *, group: int = 128) -> None:
        super().__init__()
        n, k = weight.shape[0], 2 * weight.shape[1]
        if group < 16 or group & (group - 1):
            raise ValueError(f"`group` is a power of two from 16 on, and not {group}")
        for name, each in (("scales", scales), ("zeros", zeros)):
            if each is not None and tuple(each.shape) != (-(-k // group), n):
                raise ValueError(f"`{name}` has shape {tuple(each.shape)}, and {n} rows of {k} weights in groups of {group} have {(-(-k // group), n)}")
        self.order = weight.device.type
        self.group: int = group
        self.in_features: int = k
        self.out_features: int = n
        self.weight: Any = torch.nn.Buffer(call("repack_w4", weight, zeros is None, group))
        self.scales: Any = torch.nn.Buffer(scales)
        self.zeros: Any = None if zeros is None else torch.nn.Buffer(zeros)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        refuse_move(self.weight, fn)
        return super()._apply(fn, recurse)

    @classmethod
    def quantised(cls, weight: Any, *, group: int = 128) -> LinearW4:
        """The layer of weights ``[n, k]`` that are rounded here, each group by its largest."""
        n, k = weight.shape
        if k % group:
            raise ValueError(f"`weight` has {k} columns, which are no multiple of groups of {group}")
        groups = weight.detach().float().unflatten(1, (-1, group))
        scales = (groups.abs().amax(2) / 7).clamp(min=1e-8).to(weight.dtype)
        codes = (groups / scales.unsqueeze(2).float()).round().clamp(-8, 7).to(torch.int32).flatten(1) & 15
        return cls((codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8), scales.T.contiguous(), group=group)

    @classmethod
    def from_checkpoint(cls, form: str, qweight: Any, qzeros: Any, scales: Any, *, g_idx: Any = None, group: int = 128) -> LinearW4:
        """The layer of a checkpoint by ``"awq"`` or ``"gptq"``: its tensors of words, and its scales, which are on the device where the layer is to be. Columns in the order of activations (``act_order``)
        are refused."""
        n = scales.shape[1]
        k = qweight.shape[0] * (1 if form == "awq" else 8)
        bytes_of = [None if each is None else each.cpu().contiguous().to(torch.int32).numpy().tobytes() for each in (qweight, qzeros, g_idx)]
        weight, zeros = _core.read_checkpoint(form, (n, k), group, *bytes_of)  # type: ignore[arg-type]
        codes = torch.frombuffer(bytearray(weight), dtype=torch.uint8).view(n, k // 2)
        points = torch.frombuffer(bytearray(zeros), dtype=torch.uint8).view(-1, n)
        return cls(codes.to(scales.device), scales, points.to(scales.device, scales.dtype), group=group)

    def forward(self, x: Any, residual: Any = None) -> Any:
        """The layer's result, and a residual of its shape added to it by the same kernel."""
        self.check_order(self.weight)
        if x.shape[-1] != self.in_features:
            raise ValueError(f"`x` has rows of {x.shape[-1]} elements, and the layer {self.in_features} columns")
        return call("linear_w4", x, self.weight, self.scales, self.zeros, self.group, residual)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, group={self.group}"
