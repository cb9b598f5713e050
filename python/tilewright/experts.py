"""Layers of experts on a GPU, whose launches are one call."""

from __future__ import annotations

from typing import Any

from . import _core
from .ops import library


class Experts:
    """A layer of experts on a GPU: ``y[t] = Σ weights · w2 · (silu(w1 · x[t]) ∘ (w3 · x[t]))`` over the experts of each token, which are given. Its weights are of the type of activations (``"same"``),
    e4m3 with scales of blocks (``"fp8_blocks"``), or of a few bits (``"i4"``, …) with scales of `group` neighbours."""

    def __init__(
        self,
        dtype: str,
        *,
        hidden: int,
        intermediate: int,
        experts: int,
        k: int,
        weights: str = "same",
        group: int | None = None,
        added: bool = False,
        device: int = 0,
    ) -> None:
        self._library = library(device)
        self._native = _core.Experts(self._library._native, dtype, weights, group, hidden, intermediate, experts, k, added)

    def call(self, tokens: int, *, stream: int | None = None, **arguments: Any) -> None:
        """Puts the launches for so many tokens on the stream, with tensors by the layer's names: `x`, `ids[tokens · k]`, `weights[tokens, k]`, `w13`, `w2`, `y`, and `s13` and `s2` where there are scales."""
        held = self._library._lent(stream, 0)
        while True:
            memory = None if held is None else (held.data_ptr(), held.numel())
            needed = self._native.call(tokens, arguments, stream, self._library.strict, memory)
            if not needed:
                return
            held = self._library._lent(stream, needed)

    def warm_up(self, first: int, last: int) -> tuple[int, int, int]:
        """Compiles and loads the kernels for every number of tokens of a range, in parallel: the numbers of classes, configurations and kernels."""
        return self._native.warm_up(first, last)
