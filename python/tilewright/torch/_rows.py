"""Operands as rows, and launches of operators with them."""

from __future__ import annotations

from typing import Any

import torch

from .. import ops


def rows(x: Any) -> Any:
    """A tensor as rows of its last mode, contiguous."""
    return x.reshape(-1, x.shape[-1]).contiguous()


def put(operator: str, like: Any, **arguments: Any) -> None:
    """A call of an operator on the GPU that has a tensor; nothing is launched for no elements."""
    if like.numel():
        ops.library(like.get_device()).call(operator, **arguments)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type of sums."""
    return torch.float64 if dtype == torch.float64 else torch.float32
