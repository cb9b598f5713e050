"""Gradients of scans, by torch's arithmetic in pieces of a sequence: states ahead of each piece are kept, and those within it computed again."""

from __future__ import annotations

from typing import Any

import torch

from ._registry import define, differentiate
from ._rows import wide

#: Steps of a piece.
_PIECE = 64


def _slope(z: Any) -> Any:
    """The derivative of silu."""
    part = torch.sigmoid(z)
    return part * (1 + z * (1 - part))


def _conv_backward(ctx: Any, gradient: Any) -> Any:
    x, weight, bias = ctx.saved_tensors
    of, steps, taps = wide(x.dtype), x.shape[2], weight.shape[1]
    wide_x, w = x.to(of), weight.to(of)
    padded = torch.nn.functional.pad(wide_x, (taps - 1, 0))
    shifted = [padded[:, :, i : i + steps] for i in range(taps)]
    sums = sum((w[:, i, None] * each for i, each in enumerate(shifted)), bias.to(of).unsqueeze(1))
    of_sums = gradient.to(of) * _slope(sums)
    ahead = torch.nn.functional.pad(of_sums, (0, taps - 1))
    of_x = sum((w[:, i, None] * ahead[:, :, taps - 1 - i : taps - 1 - i + steps] for i in range(taps)), torch.zeros_like(wide_x))
    of_weight = torch.stack([(of_sums * each).sum((0, 2)) for each in shifted], 1)
    return of_x.to(x.dtype), of_weight.to(weight.dtype), of_sums.sum((0, 2)).to(bias.dtype)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


differentiate("causal_conv1d", _conv_backward, _keep)


def _selective_scan_backward(gradient: Any, u: Any, delta: Any, a: Any, b: Any, c: Any, skip: Any, z: Any, bias: Any) -> Any:
    given = u, delta, a, b, c, skip, z, bias
    of, steps = wide(u.dtype), u.shape[2]
    gradient, u, delta, a, b, c, skip, z, bias = (each.to(of) for each in (gradient, *given))
    # Steps first, so that those of a piece lie side by side.
    step = torch.nn.functional.softplus(delta + bias.unsqueeze(1)).permute(2, 0, 1)
    moved, of_sums, b, c = u.permute(2, 0, 1), (gradient * torch.nn.functional.silu(z)).permute(2, 0, 1), b.permute(2, 0, 1), c.permute(2, 0, 1)

    def piece(at: int) -> tuple[Any, Any, slice]:
        """Factors of the states, and what the steps add to them."""
        here = slice(at, min(at + _PIECE, steps))
        return torch.exp(step[here].unsqueeze(3) * a), (step[here] * moved[here]).unsqueeze(3) * b[here].unsqueeze(2), here

    begins, state = [], u.new_zeros((*u.shape[:2], a.shape[1]))
    for at in range(0, steps, _PIECE):
        begins.append(state)
        for factor, more in zip(*piece(at)[:2]):
            state = torch.addcmul(more, factor, state)
    sums, of_step, of_u, of_b, of_c = (torch.zeros_like(each) for each in (moved, moved, moved, b, c))
    of_a, behind = torch.zeros_like(a), torch.zeros_like(state)
    for at in reversed(range(0, steps, _PIECE)):
        factors, more, here = piece(at)
        states = [begins[at // _PIECE]]
        for number in range(len(factors)):
            states.append(torch.addcmul(more[number], factors[number], states[-1]))
        direct, of_states = of_sums[here].unsqueeze(3) * c[here].unsqueeze(2), []
        for number in reversed(range(len(factors))):
            of_states.append(direct[number] + behind)
            behind = factors[number] * of_states[-1]
        before, after, of_state = torch.stack(states[:-1]), torch.stack(states[1:]), torch.stack(of_states[::-1])
        decayed = of_state * factors * before
        sums[here] = (after * c[here].unsqueeze(2)).sum(3)
        of_c[here] = (of_sums[here].unsqueeze(3) * after).sum(2)
        of_b[here] = (of_state * (step[here] * moved[here]).unsqueeze(3)).sum(2)
        inner = (of_state * b[here].unsqueeze(2)).sum(3)
        of_u[here] = inner * step[here]
        of_step[here] = inner * moved[here] + (decayed * a).sum(3)
        of_a += (decayed * step[here].unsqueeze(3)).sum((0, 1))
    sums, of_sums, of_step, of_u = (each.permute(1, 2, 0) for each in (sums, of_sums, of_step, of_u))
    of_delta = of_step * torch.sigmoid(delta + bias.unsqueeze(1))
    found = (
        of_u + skip.unsqueeze(1) * of_sums,
        of_delta,
        of_a,
        of_b.permute(1, 2, 0),
        of_c.permute(1, 2, 0),
        (of_sums * u).sum((0, 2)),
        gradient * (sums + skip.unsqueeze(1) * u) * _slope(z),
        of_delta.sum((0, 2)),
    )
    return tuple(each.to(like.dtype).contiguous() for each, like in zip(found, given))


def _mamba2_backward(gradient: Any, x: Any, delta: Any, a: Any, b: Any, c: Any, skip: Any, bias: Any) -> Any:
    given = x, delta, a, b, c, skip, bias
    of, steps = wide(x.dtype), x.shape[1]
    gradient, x, delta, a, b, c, skip, bias = (each.to(of) for each in (gradient, *given))
    step = torch.nn.functional.softplus(delta + bias)
    scaled = step.unsqueeze(3) * x

    def piece(at: int) -> tuple[slice, Any, Any, Any]:
        """The steps of a piece, the sums of their logarithms of factors, and the factors from each to the end, and of them all."""
        here = slice(at, min(at + _PIECE, steps))
        logs = torch.cumsum(step[:, here] * a, 1)
        return here, logs, torch.exp(logs[:, -1:] - logs), torch.exp(logs[:, -1])

    begins, state = [], x.new_zeros((x.shape[0], *x.shape[2:], b.shape[2]))
    for at in range(0, steps, _PIECE):
        begins.append(state)
        here, _, to_end, whole = piece(at)
        state = whole[..., None, None] * state + torch.einsum("bth,bthp,btn->bhpn", to_end, scaled[:, here], b[:, here])
    of_scaled, of_logs, of_b, of_c = (torch.zeros_like(each) for each in (scaled, step, b, c))
    of_state = torch.zeros_like(state)
    for at in reversed(range(0, steps, _PIECE)):
        here, logs, to_end, whole = piece(at)
        state, rows, xs, bs, cs = begins[at // _PIECE], gradient[:, here], scaled[:, here], b[:, here], c[:, here]
        count = logs.shape[1]
        later = torch.ones(count, count, dtype=torch.bool, device=x.device).tril()[None, :, :, None]
        factors = torch.exp((logs[:, :, None] - logs[:, None]).masked_fill(~later, float("-inf")))
        near = torch.einsum("bin,bjn->bij", cs, bs)
        pairs = torch.einsum("bihp,bjhp->bijh", rows, xs) * factors
        from_begin = torch.exp(logs)
        # What the state behind the piece asks of each step, and each step of the state ahead of it.
        asked = torch.einsum("bhpn,btn->bthp", of_state, bs) * to_end.unsqueeze(3)
        told = torch.einsum("bthp,bhpn->bthn", rows, state) * from_begin.unsqueeze(3)
        of_scaled[:, here] = torch.einsum("bijh,bij,bihp->bjhp", factors, near, rows) + asked
        of_near = pairs.sum(3)
        of_c[:, here] = torch.einsum("bij,bjn->bin", of_near, bs) + told.sum(2)
        of_b[:, here] = torch.einsum("bij,bin->bjn", of_near, cs) + torch.einsum("bth,bthp,bhpn->btn", to_end, xs, of_state)
        both, ends = pairs * near.unsqueeze(3), (asked * xs).sum(3)
        of_sum = both.sum(2) - both.sum(1) + (told * cs.unsqueeze(2)).sum(3) - ends
        of_sum[:, -1] += ends.sum(1) + whole * (state * of_state).sum((2, 3))
        of_logs[:, here] = of_sum.flip(1).cumsum(1).flip(1)
        of_state = whole[..., None, None] * of_state + torch.einsum("bth,bthp,btn->bhpn", from_begin, rows, cs)
    of_delta = (of_logs * a + (of_scaled * x).sum(3)) * torch.sigmoid(delta + bias)
    found = (
        step.unsqueeze(3) * of_scaled + skip[:, None] * gradient,
        of_delta,
        (of_logs * step).sum((0, 1)),
        of_b,
        of_c,
        (gradient * x).sum((0, 1, 3)),
        of_delta.sum((0, 1)),
    )
    return tuple(each.to(like.dtype).contiguous() for each, like in zip(found, given))


def _register(name: str, operands: str, function: Any) -> None:
    """Registers gradients as an operator of their own: its loops over steps are none of the graph of `torch.compile`."""
    tensors = operands.split()
    results = ", ".join("Tensor" for _ in tensors)
    schema = f"{name}_backward(Tensor gradient, {', '.join(f'Tensor {each}' for each in tensors)}) -> ({results})"
    define(schema, function, function, lambda gradient, *given: tuple(each.new_empty(each.shape) for each in given))
    differentiate(name, lambda ctx, gradient: getattr(torch.ops.tilewright, f"{name}_backward")(gradient, *ctx.saved_tensors), _keep)


_register("selective_scan", "u delta a b c skip z bias", _selective_scan_backward)
_register("mamba2", "x delta a b c skip bias", _mamba2_backward)
