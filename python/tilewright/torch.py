"""Operators of torch: ``torch.ops.tilewright.linear``, and kernels as operators by `op`. Importing this imports torch.

They are registered by `torch.library`: shapes without data for ``torch.compile(fullgraph=True)``, gradients, and on the CPU torch's own
arithmetic as a reference (a kernel's is what its author gives, or the simulator where that is asked for by name).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import ops
from .functions import KernelFunction

_library = torch.library.Library("tilewright", "DEF")

_TYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "bool": torch.bool,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
}  # fmt: skip


def _define(schema: str, cuda: Callable[..., Any], cpu: Callable[..., Any] | None, fake: Callable[..., Any]) -> None:
    """Registers an operator: its forms for a GPU and the CPU, and its shapes without data."""
    name = schema.split("(")[0]
    _library.define(schema)
    _library.impl(name, cuda, "CUDA")
    if cpu is not None:
        _library.impl(name, cpu, "CPU")
    torch.library.register_fake(f"tilewright::{name}", fake, lib=_library)


def _activated(sums: Any, activation: str) -> Any:
    """The activation, by torch."""
    if activation == "gelu":
        return torch.nn.functional.gelu(sums, approximate="tanh")
    return {"": lambda x: x, "relu": torch.relu, "silu": torch.nn.functional.silu}[activation](sums)


def _linear_cuda(x: Any, weight: Any, bias: Any = None, activation: str = "") -> Any:
    if weight.shape[1] == 0:
        # Sums of nothing.
        return _linear_cpu(x, weight, bias, activation)
    return ops.linear(x, weight, bias, activation=activation or None)


def _linear_cpu(x: Any, weight: Any, bias: Any = None, activation: str = "") -> Any:
    return _activated(torch.nn.functional.linear(x, weight, bias), activation)


def _linear_fake(x: Any, weight: Any, bias: Any = None, activation: str = "") -> Any:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


_define("linear(Tensor x, Tensor weight, Tensor? bias=None, str activation=\"\") -> Tensor", _linear_cuda, _linear_cpu, _linear_fake)


def _linear_saved(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, activation = inputs
    ctx.activation, ctx.biased = activation, bias is not None
    ctx.save_for_backward(x, weight, bias if activation else None)


def _slope(gradient: Any, sums: Any, activation: str) -> Any:
    """The gradient of an activation's argument, by torch."""
    of = torch.ops.aten
    if activation == "gelu":
        return of.gelu_backward(gradient, sums, approximate="tanh")
    if activation == "relu":
        return of.threshold_backward(gradient, sums, 0)
    if not torch.is_grad_enabled():
        return of.silu_backward(gradient, sums)
    # torch's has no derivative of its own.
    sigmoid = torch.sigmoid(sums)
    return gradient * (sigmoid * (1 + sums * (1 - sigmoid)))


def _linear_backward(ctx: Any, gradient: Any) -> Any:
    x, weight, bias = ctx.saved_tensors
    product = torch.ops.tilewright.linear
    if ctx.activation:
        gradient = _slope(gradient, product(x, weight, bias), ctx.activation)
    flat, rows = gradient.reshape(-1, gradient.shape[-1]), x.reshape(-1, x.shape[-1])
    # Sums over n and over the rows: factors that lie transposed in memory.
    of_x = product(flat, weight.T).reshape(x.shape) if ctx.needs_input_grad[0] else None
    of_weight = product(flat.T, rows.T) if ctx.needs_input_grad[1] else None
    of_bias = flat.sum(0) if ctx.biased and ctx.needs_input_grad[2] else None
    return of_x, of_weight, of_bias, None


torch.library.register_autograd("tilewright::linear", _linear_backward, setup_context=_linear_saved, lib=_library)


def linear(x: Any, weight: Any, bias: Any = None, activation: str | None = None) -> Any:
    """``activation(x · weightᵀ + bias)``: ``torch.nn.functional.linear`` with an activation (relu, gelu by tanh, silu), differentiable."""
    if activation is not None and activation not in ops.ACTIVATIONS:
        raise ValueError(f"`{activation}` is no activation of `linear`; {', '.join(ops.ACTIVATIONS)} are")
    return torch.ops.tilewright.linear(x, weight, bias, activation or "")


def op(
    kernel: KernelFunction,
    *,
    name: str | None = None,
    reference: Callable[..., Any] | None = None,
    simulate: bool = False,
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., Any] | None = None,
    constants: dict[str, int] | None = None,
) -> Any:
    """A kernel as an operator of torch: it takes what the kernel reads, and returns what it writes as new tensors, whose extents are sizes of the
    kernel or numbers. On the CPU it is `reference`, or with ``simulate=True`` a run on the simulator, which must be right; `backward` and
    `setup_context` are those of ``torch.library.register_autograd``."""
    described = json.loads(kernel._program()[1].json())
    params, named = described["params"], name or described["name"]
    results = [param for param in params if not param["scalar"] and param["written"]]
    inputs = [param for param in params if param["scalar"] or not param["written"] or param["read"]]
    both = [param["name"] for param in results if param["read"]]
    if both:
        raise ValueError(f"`{named}` reads and writes {', '.join(both)}: an operator of torch returns new tensors")
    strided = [param["name"] for param in results if param["stored"]]
    if strided:
        raise ValueError(f"`{strided[0]}` of `{named}` is no contiguous tensor: an operator of torch returns such")
    places: dict[str, tuple[int, int]] = {}
    for number, param in enumerate(inputs):
        for mode, extent in enumerate(param.get("shape") or ()):
            places.setdefault(extent, (number, mode))
    sizes = {size for size, _ in described["sizes"]}
    for result in results:
        unknown = [extent for extent in result["shape"] if not extent.isdigit() and (extent not in sizes or extent not in places)]
        if unknown:
            raise ValueError(f"`{result['name']}` of `{named}` has the extent {unknown[0]}, which no extent of an input is")
    launched = kernel.launches(**(constants or {}))

    def empty(given: Sequence[Any]) -> list[Any]:
        like = next(value for value in given if isinstance(value, torch.Tensor))

        def extent(text: str) -> Any:
            return int(text) if text.isdigit() else given[places[text][0]].shape[places[text][1]]

        return [like.new_empty([extent(text) for text in result["shape"]], dtype=_TYPES[result["dtype"]]) for result in results]

    def returned(tensors: list[Any]) -> Any:
        return tensors[0] if len(tensors) == 1 else tuple(tensors)

    def by_name(given: Sequence[Any], made: list[Any]) -> dict[str, Any]:
        # torch leaves out what has its default.
        values = {param["name"]: param["default"] for param in inputs if param["scalar"]}
        values.update((param["name"], value) for param, value in zip(inputs, given))
        return {**values, **{param["name"]: value for param, value in zip(results, made)}}

    def cuda(*given: Any) -> Any:
        made = empty(given)
        values = by_name([value if param["scalar"] or param["stored"] else value.contiguous() for param, value in zip(inputs, given)], made)
        launched(*(values[param["name"]] for param in params))
        return returned(made)

    def simulated(*given: Any) -> Any:
        made = empty(given)
        values: dict[str, Any] = dict(constants or {})
        for key, value in by_name(given, []).items():
            values[key] = value.detach().contiguous() if isinstance(value, torch.Tensor) else value
        run = kernel.simulate(**values).assert_right()
        for param, tensor in zip(results, made):
            data = torch.frombuffer(bytearray(run[param["name"]].tobytes()), dtype=tensor.dtype)
            tensor.copy_(data.reshape(tensor.shape))
        return returned(made)

    def fake(*given: Any) -> Any:
        return returned(empty(given))

    arguments = []
    for param in inputs:
        integer = param["dtype"][0] in "iu"
        kind = "Tensor" if not param["scalar"] else "int" if integer else "float"
        default = f"={param['default']}" if param["scalar"] else ""
        arguments.append(f"{kind} {param['name']}{default}")
    kinds = ", ".join(["Tensor"] * len(results))
    schema = f"{named}({', '.join(arguments)}) -> {kinds if len(results) == 1 else f'({kinds})'}"
    _define(schema, cuda, reference or (simulated if simulate else None), fake)
    if backward is not None:
        torch.library.register_autograd(f"tilewright::{named}", backward, setup_context=setup_context, lib=_library)
    return getattr(torch.ops.tilewright, named)
