"""Kernels as operators."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _core
from ..functions import KernelFunction
from ._registry import TYPES, define, differentiate, plain


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
    `setup_context` are those of ``torch.library.register_autograd``. What is returned calls ``torch.ops.tilewright.NAME``, or, where nothing stands
    between, the form for a GPU at once."""
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

    # A result of the shape and type of an input is made like it.
    likes = [
        next((number for number, param in enumerate(inputs) if (param.get("shape"), param["dtype"]) == (result["shape"], result["dtype"])), None)
        for result in results
    ]
    first = next(number for number, param in enumerate(inputs) if not param["scalar"])
    # Of each parameter its place among the inputs with the results behind them.
    order = [param["name"] for param in inputs + results]
    indices = [order.index(param["name"]) for param in params]
    given_first = indices == list(range(len(params)))
    dense = [number for number, param in enumerate(inputs) if not param["scalar"] and not param["stored"]]
    defaults = [param["default"] if param["scalar"] else None for param in inputs]
    put = launched._native.launch

    def empty(given: Sequence[Any]) -> list[Any]:
        def extent(text: str) -> Any:
            return int(text) if text.isdigit() else given[places[text][0]].shape[places[text][1]]

        return [
            torch.empty_like(given[like], memory_format=torch.contiguous_format)
            if like is not None
            else given[first].new_empty([extent(text) for text in result["shape"]], dtype=TYPES[result["dtype"]])
            for result, like in zip(results, likes)
        ]

    def returned(tensors: list[Any]) -> Any:
        return tensors[0] if len(tensors) == 1 else tuple(tensors)

    def cuda(*given: Any) -> Any:
        made = empty(given)
        values = [*given, *defaults[len(given) :]]
        for number in dense:
            if not values[number].is_contiguous():
                values[number] = values[number].contiguous()
        values += made
        put(tuple(values) if given_first else tuple(values[index] for index in indices))
        return returned(made)

    def simulated(*given: Any) -> Any:
        made = empty(given)
        values: dict[str, Any] = dict(constants or {})
        # torch leaves out what has its default.
        for param, value in zip(inputs, [*given, *defaults[len(given) :]]):
            values[param["name"]] = value.detach().contiguous() if isinstance(value, torch.Tensor) else value
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
    operator = getattr(torch.ops.tilewright, named)
    direct = None
    # What is made like an input lies as it does, and results are contiguous.
    if all(like in dense for like in likes):
        direct = _core.Operation(plain, launched._native, torch.empty_like, [like for like in likes if like is not None], indices, dense, len(inputs))

    @functools.wraps(kernel.__wrapped__, assigned=("__module__", "__doc__"), updated=())
    def called(*given: Any, **by_name: Any) -> Any:
        if not torch.compiler.is_compiling() and direct is not None and not by_name:
            made = direct(given)
            if made is not None:
                return made
        return operator(*given, **by_name)

    called.__name__ = called.__qualname__ = named
    return called
