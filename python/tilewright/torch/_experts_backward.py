"""Gradients of layers of experts."""

# Annotations of a kernel's parameters are values.
# mypy: disable-error-code="name-defined,valid-type"

from __future__ import annotations

from typing import Any

import torch

from .. import ops, types
from ..functions import KernelFunction, kernel
from ..types import const, size
from ._registry import NAMES, call, define
from ._rows import put, rows, wide

#: Rows and columns of a tile of a product by groups, and the other parameters of its kernel: one for all numbers of rows, as these change from step to step.
_TILE, _COLUMNS = 128, 256
_BY_GROUPS = {
    "batch": "ragged", "bm": _TILE, "bn": _COLUMNS, "bk": 64, "stages": 4, "warpgroups": 2, "swap": False, "cluster": "none", "split": 1, "rasterization": "grouped(12)",
}  # fmt: skip
#: Experts of a token whose rows a kernel adds.
_ADDED = 8


def _units(dtype: types.DType) -> KernelFunction:
    """The kernel between the products: gated units and their gradients, of rows with a share in their token's result."""
    f32 = types.DTYPES["f32"]

    def moe_units_backward(
        t: Any,
        inner: dtype["m", "n"],
        both: dtype["m", 2, "n"],
        shares: f32["m"],
        of_both: dtype["m", 2, "n"],
        units: dtype["m", "n"],
        of_shares: f32["m"],
        m: size = 64,
        n: size = 1000,
        BM: const = 4,
        BN: const = 512,
    ) -> None:
        t.grid(t.ceil_div(m, BM))
        t.threads(128)
        chunks = t.ceil_div(n, BN)

        def viewed(tensor: Any, modes: int, tile: Any, steps: Any, name: str) -> Any:
            return t.global_view(tensor[(slice(t.block.x * BM, None), *[slice(None)] * (modes - 1))], tile, steps, name=name)

        gi, gu = (viewed(each, 2, (BM, BN, chunks), ("e0", "e1", "BN * e1"), name) for each, name in ((inner, "gi"), (units, "gu")))
        gb, go = (viewed(each, 3, (BM, 2, BN, chunks), ("e0", "e1", "e2", "BN * e2"), name) for each, name in ((both, "gb"), (of_both, "go")))
        gs, gt = (viewed(each, 1, (BM,), ("e0",), name) for each, name in ((shares, "gs"), (of_shares, "gt")))
        of_row, sums = t.register_tensor(f32, [BM]), t.register_tensor(f32, [BM, BN])
        t.copy(gs, of_row)
        t.fill(sums, 0.0)
        for i in t.range(chunks):
            ri, ra, rb = (t.register_tensor(dtype, [BM, BN], name=name) for name in ("ri", "ra", "rb"))
            t.copy(gi[:, :, i], ri)
            t.copy(gb[:, 0, :, i], ra)
            t.copy(gb[:, 1, :, i], rb)
            x, y, asked, share = t.cast(ra, f32), t.cast(rb, f32), t.cast(ri, f32), t.expand(of_row, 1)
            part = 1.0 / (1.0 + t.exp(-x))
            value = x * part
            unit = value * y
            sums += unit * asked
            slope = asked * share
            t.copy(t.cast(unit * share, dtype), gu[:, :, i])
            t.copy(t.cast(slope * y * (part * (1.0 + x * (1.0 - part))), dtype), go[:, 0, :, i])
            t.copy(t.cast(slope * value, dtype), go[:, 1, :, i])
        t.copy(t.reduce(sums, "sum", 1), gt)

    return kernel(moe_units_backward)


_kernels: dict[str, KernelFunction] = {}


def units_backward(dtype: str) -> KernelFunction:
    """The kernel between the products for a type, made once."""
    if dtype not in _kernels:
        _kernels[dtype] = _units(types.DTYPES[dtype])
    return _kernels[dtype]


class _Groups:
    """Rows of experts, those of an expert one behind the other: the host reads how many there are."""

    def __init__(self, ids: Any, experts: int) -> None:
        self.order = torch.argsort(ids.flatten(), stable=True)
        self.ends: list[int] = torch.bincount(ids.flatten(), minlength=experts).cumsum(0).tolist()
        #: The experts that have rows, with these.
        self.parts = [(expert, slice(first, last)) for expert, (first, last) in enumerate(zip([0, *self.ends], self.ends)) if first < last]
        #: For each row of the tokens the place of its row here.
        self.places = torch.empty_like(self.order)
        self.places[self.order] = torch.arange(len(self.order), device=ids.device)
        self._tables: dict[str, Any] | None = None

    def products(self, a: Any, weights: Any) -> Any:
        """The rows of each expert by its matrix, of ``weights[experts, n, k]``, each of which may lie transposed."""
        out = a.new_empty((a.shape[0], weights.shape[1]))
        stored = {} if weights.is_contiguous() else {"b": "n"}
        aligned = all(extent % 8 == 0 for extent in weights.shape[1:])
        # Less than a tile is a loop's.
        if a.element_size() == 2 and aligned and a.shape[0] >= _TILE and weights.shape[1] >= _COLUMNS:
            ops.library(a.get_device()).call("gemm_hopper", a=a, b=weights, c=out, **self._tiles(a.device), options={**_BY_GROUPS, **stored})
        else:
            for expert, part in self.parts:
                ops.linear(a[part], weights[expert], out=out[part])
        return out

    def _tiles(self, device: Any) -> dict[str, Any]:
        """The tables of a product by groups: the expert and the first row of each tile, and the row behind each expert's last."""
        if self._tables is None:
            tiles = [(expert, first) for expert, part in self.parts for first in range(part.start, part.stop, _TILE)]
            table = torch.tensor([*(expert for expert, _ in tiles), *(first for _, first in tiles), *self.ends], dtype=torch.int32).to(device)
            groups, first, ends = table.split([len(tiles), len(tiles), len(self.ends)])
            # Each begins at a multiple of 16 bytes, as tensors of their own do.
            self._tables = {"groups": groups.clone(), "first": first.clone(), "ends": ends.clone()}
        return self._tables

    def of_weights(self, out: Any, gradients: Any, x: Any) -> Any:
        """The gradients of each expert's matrix, the sums over its rows, in `out`."""
        if len(self.parts) < out.shape[0]:
            out.zero_()
        for expert, part in self.parts:
            ops.linear(gradients[part].T, x[part].T, out=out[expert])
        return out


def check_capability(capability: tuple[int, int]) -> None:
    """Refuses GPUs other than Hopper's: the products by groups are of its instructions, forward and backward."""
    if capability != (9, 0):
        raise NotImplementedError(
            f"`moe` has kernels for GPUs of compute capability 9.0, and none for {capability[0]}.{capability[1]}: on the CPU it is torch's arithmetic"
        )


def _backward_cuda(gradient: Any, x: Any, ids: Any, weights: Any, w13: Any, w2: Any) -> Any:
    check_capability(torch.cuda.get_device_capability(x.device))
    flat, gradient, k = rows(x), rows(gradient), ids.shape[1]
    of_w13, of_w2 = torch.empty_like(w13), torch.empty_like(w2)
    groups = _Groups(ids, w13.shape[0])
    if not groups.parts:
        return torch.zeros_like(x), torch.zeros_like(weights), of_w13.zero_(), of_w2.zero_()
    token = groups.order // k
    given, asked = flat[token], gradient[token]
    shares = weights.flatten()[groups.order].float()
    first, second = w13.contiguous().flatten(1, 2), w2.contiguous()
    both, inner = groups.products(given, first), groups.products(asked, second.mT)
    of_both, units, of_shares = torch.empty_like(both), torch.empty_like(inner), torch.empty_like(shares)
    units_backward(NAMES[x.dtype])(inner, both.unflatten(1, (2, -1)), shares, of_both.unflatten(1, (2, -1)), units, of_shares)
    of_rows = groups.products(of_both, first.mT)
    if k <= _ADDED:
        of_x = torch.empty_like(flat)
        put("moe_combine", of_x, c=of_rows, places=groups.places.int(), y=of_x, options={"k": k, "weighted": False})
    else:
        of_x = flat.new_zeros(flat.shape, dtype=torch.float32).index_add_(0, token, of_rows.float()).to(x.dtype)
    groups.of_weights(of_w13.view_as(first), of_both, given)
    groups.of_weights(of_w2, asked, units)
    return of_x.view(x.shape), of_shares[groups.places].to(weights.dtype).view(weights.shape), of_w13, of_w2


def _backward_cpu(gradient: Any, x: Any, ids: Any, weights: Any, w13: Any, w2: Any) -> Any:
    of, flat, gradient = wide(x.dtype), rows(x), rows(gradient)
    of_x, of_weights = flat.new_zeros(flat.shape, dtype=of), weights.new_zeros(weights.shape, dtype=of)
    of_w13, of_w2 = torch.zeros_like(w13), torch.zeros_like(w2)
    for expert in range(w13.shape[0]):
        token, place = (ids == expert).nonzero(as_tuple=True)
        (given, asked), share = (each[token].to(of) for each in (flat, gradient)), weights[token, place].to(of).unsqueeze(1)
        gate, up = (given @ each.to(of).T for each in w13[expert])
        unit, inner = call("gated", gate, up, "silu"), asked @ w2[expert].to(of)
        of_weights[token, place] = (unit * inner).sum(1)
        for number, part in enumerate(call("gated_backward", inner * share, gate, up, "silu")):
            of_x.index_add_(0, token, part @ w13[expert, number].to(of))
            of_w13[expert, number] = part.T @ given
        of_w2[expert] = (asked * share).T @ unit
    return of_x.to(x.dtype).view(x.shape), of_weights.to(weights.dtype), of_w13, of_w2


define(
    "moe_backward(Tensor gradient, Tensor x, Tensor ids, Tensor weights, Tensor w13, Tensor w2) -> (Tensor, Tensor, Tensor, Tensor)",
    _backward_cuda,
    _backward_cpu,
    lambda gradient, x, ids, weights, w13, w2: tuple(each.new_empty(each.shape) for each in (x, weights, w13, w2)),
)


def moe_gradients(ctx: Any, gradient: Any) -> Any:
    """The gradients of `moe`, of what it was given."""
    of_x, of_weights, of_w13, of_w2 = torch.ops.tilewright.moe_backward(gradient, *ctx.saved_tensors)
    return of_x, None, of_weights, of_w13, of_w2
