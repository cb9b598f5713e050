"""The library of operators that torch has under ``torch.ops.tilewright``, and how one is registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import _core

library = torch.library.Library("tilewright", "DEF")

TYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "bool": torch.bool,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
}  # fmt: skip

#: The names of types in kernels.
NAMES = {dtype: name for name, dtype in TYPES.items()}


# The operators' forms for a GPU, by name.
_forms: dict[str, Callable[..., Any]] = {}


def define(schema: str, cuda: Callable[..., Any], cpu: Callable[..., Any] | None, fake: Callable[..., Any]) -> None:
    """Registers an operator: its forms for a GPU and the CPU, and its shapes without data."""
    name = schema.split("(")[0]
    library.define(schema)
    library.impl(name, cuda, "CUDA")
    _forms[name] = cuda
    if cpu is not None:
        library.impl(name, cpu, "CPU")
    torch.library.register_fake(f"tilewright::{name}", fake, lib=library)


def differentiate(name: str, backward: Callable[..., Any], saved: Callable[..., Any] | None) -> None:
    """Registers the gradients of an operator, and what it keeps for them."""
    torch.library.register_autograd(f"tilewright::{name}", backward, setup_context=saved, lib=library)


def _in_dual_level() -> bool:
    """True within a level of forward-mode derivatives, whose tensors do not say that they have tangents."""
    return getattr(torch.autograd.forward_ad, "_current_level", 0) >= 0


# Interceptors between a call and its tensors, by functions of torch that have no public form; without them every call goes by the dispatcher.
_INTERCEPTORS: list[Any] = [
    getattr(module, name, lambda: True)
    for module, name in (
        (torch._C, "_len_torch_dispatch_stack"),
        (torch._C, "_is_torch_function_mode_enabled"),
        (torch._C, "_get_tracing_state"),
        (getattr(torch._C, "_functorch", None), "peek_interpreter_stack"),
    )
] + [_in_dual_level]

#: True of the arguments of a call with tensors of a GPU that nobody differentiates, traces or intercepts: torch's dispatcher would call the form for a
#: GPU and do nothing else. Whoever compiles asks `torch.compiler.is_compiling` first.
plain: _core.Plain = _core.Plain(torch.Tensor, [torch.Tensor, torch.nn.Parameter], _INTERCEPTORS, torch.is_grad_enabled)


def call(name: str, *given: Any) -> Any:
    """Calls an operator: its form for a GPU at once where nothing stands between, by torch's dispatcher elsewhere."""
    if not torch.compiler.is_compiling() and plain(given):
        return _forms[name](*given)
    return getattr(torch.ops.tilewright, name)(*given)
