"""Kernels as operators."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..functions import KernelFunction
from ._registry import TYPES, define, differentiate


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

        return [like.new_empty([extent(text) for text in result["shape"]], dtype=TYPES[result["dtype"]]) for result in results]

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
    define(schema, cuda, reference or (simulated if simulate else None), fake)
    if backward is not None:
        differentiate(named, backward, setup_context)
    return getattr(torch.ops.tilewright, named)
