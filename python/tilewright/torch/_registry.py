"""The library of operators that torch has under ``torch.ops.tilewright``, and how one is registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

library = torch.library.Library("tilewright", "DEF")

TYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "bool": torch.bool,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
}  # fmt: skip


def define(schema: str, cuda: Callable[..., Any], cpu: Callable[..., Any] | None, fake: Callable[..., Any]) -> None:
    """Registers an operator: its forms for a GPU and the CPU, and its shapes without data."""
    name = schema.split("(")[0]
    library.define(schema)
    library.impl(name, cuda, "CUDA")
    if cpu is not None:
        library.impl(name, cpu, "CPU")
    torch.library.register_fake(f"tilewright::{name}", fake, lib=library)


def differentiate(name: str, backward: Callable[..., Any], saved: Callable[..., Any] | None) -> None:
    """Registers the gradients of an operator, and what it keeps for them."""
    torch.library.register_autograd(f"tilewright::{name}", backward, setup_context=saved, lib=library)
