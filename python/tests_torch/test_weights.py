"""Weights of 4 bits and layers of experts on torch's CPU half."""

import types

import pytest
import torch
from torch.library import opcheck
from torch.nn import functional

import tilewright
import tilewright.torch as tt
from tilewright.torch._experts_backward import check_capability, units_backward

OPS = torch.ops.tilewright


def close(a, b, tolerance=1e-5):
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance)


def codes(*shape):
    """Codes that differ from their neighbours."""
    at = torch.arange(torch.Size(shape).numel(), dtype=torch.int32)
    return ((at * 7 + at // 16 + 3) % 16).view(shape)


def packed(values, dim, order=range(8)):
    """Words of eight neighbours along a mode, lowest bits first, in an order."""
    parts = values.unflatten(dim, (-1, 8)).unbind(dim + 1)
    word = torch.zeros_like(parts[0])
    for place, neighbour in enumerate(order):
        word |= parts[neighbour] << (4 * place)
    return word


def halves(values):
    return (values[..., 0::2] | values[..., 1::2] << 4).to(torch.uint8)


def test_weights_that_are_rounded_here():
    weight, x = torch.randn(6, 64), torch.randn(2, 3, 64)
    layer = tt.LinearW4.quantised(weight, group=32)
    y = layer(x)
    assert ((y - functional.linear(x, weight)).norm() / y.norm()) < 0.2
    rounded = layer(torch.eye(64)).T
    steps = (rounded.unflatten(1, (2, 32)) / layer.scales.T.unsqueeze(2)).flatten(1)
    assert close(steps, steps.round(), 1e-4) and steps.abs().max() <= 8
    residual = torch.randn(2, 3, 6)
    assert close(layer(x, residual), y + residual)
    a = torch.randn(2, 64, dtype=torch.float64, requires_grad=True)
    wide = tt.LinearW4.quantised(weight.double(), group=32)
    assert torch.autograd.gradcheck(wide, (a,))
    opcheck(OPS.linear_w4.default, (x.requires_grad_(), layer.weight, layer.scales, None, 32, None))
    opcheck(OPS.repack_w4.default, (layer.weight, True, 32))
    with pytest.raises(ValueError, match="`scales` has shape"):
        tt.LinearW4(layer.weight, layer.scales[:1], group=32)
    with pytest.raises(ValueError, match="power of two"):
        tt.LinearW4(layer.weight, layer.scales, group=24)
    with pytest.raises(ValueError, match="rows of 5 elements"):
        layer(torch.randn(2, 5))
    # A state says which order its weights have.
    state = layer.state_dict()
    layer.load_state_dict(state)
    with pytest.raises(RuntimeError, match="stored for `cuda`"):
        layer.load_state_dict(state | {"_extra_state": {"order": "cuda"}})
    moved = tt.LinearW4.quantised(weight, group=32)
    moved.order = "cuda"
    with pytest.raises(RuntimeError, match="make the layer anew"):
        moved(x)
    # A GPU has another order of weights.
    with pytest.raises(RuntimeError, match="stored for `cpu` have another order on `cuda`"):
        torch.nn.Sequential(layer)._apply(lambda tensor: types.SimpleNamespace(device=torch.device("cuda")))
    assert layer.to(torch.float64).scales.dtype == torch.float64


@pytest.mark.parametrize("form", ["awq", "gptq"])
def test_checkpoints(form):
    n, k, group = 16, 64, 32
    weights, zeros = codes(n, k), codes(k // group, n) // 2 + 1
    scales = torch.rand(k // group, n) + 0.5
    wanted = (weights - zeros.T.repeat_interleave(group, 1)) * scales.T.repeat_interleave(group, 1)
    if form == "awq":
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        words, points, columns = packed(weights.T, 1, order), packed(zeros, 1, order), None
    else:
        words, points, columns = packed(weights.T, 0), packed((zeros - 1) % 16, 1), torch.arange(k) // group
    layer = tt.LinearW4.from_checkpoint(form, words, points, scales, g_idx=columns, group=group)
    x = torch.randn(3, k)
    assert close(layer(x), x @ wanted.T, 1e-4)
    with pytest.raises(tilewright.LaunchError, match="`qweight` has"):
        tt.LinearW4.from_checkpoint(form, words[:, :-1], points, scales, group=group)
    if form == "gptq":
        with pytest.raises(tilewright.LaunchError):
            tt.LinearW4.from_checkpoint(form, words, points, scales, g_idx=columns.flip(0), group=group)
    with pytest.raises(tilewright.LaunchError, match="`zip` is no form"):
        tt.LinearW4.from_checkpoint("zip", words, points, scales, group=group)


def test_experts():
    x, logits = torch.randn(5, 32), torch.randn(5, 8)
    w13, w2 = torch.randn(8, 2, 16, 32) / 6, torch.randn(8, 32, 16) / 4
    ids, weights = tt.moe_routing(logits, 2)
    top, columns = torch.softmax(logits, 1).topk(2)
    assert (ids == columns).all() and close(weights, top / top.sum(1, keepdim=True))
    wanted = torch.zeros(5, 32)
    for token in range(5):
        for e, share in zip(ids[token].tolist(), weights[token]):
            wanted[token] += share * (w2[e] @ (functional.silu(w13[e, 0] @ x[token]) * (w13[e, 1] @ x[token])))
    assert close(tt.moe(x, ids, weights, w13, w2), wanted)
    opcheck(OPS.moe.default, (x, ids, weights, w13, w2))
    opcheck(OPS.moe_routing.default, (logits, 2, True))
    with pytest.raises(ValueError, match="`weights` has shape"):
        tt.moe(x, ids, weights[:, :1], w13, w2)


def test_gradients_of_experts():
    """An expert that nobody chooses is among them."""
    ids = torch.tensor([[0, 3], [3, 1], [0, 1]], dtype=torch.int32)
    shapes = ((3, 3), (3, 2), (4, 2, 2, 3), (4, 3, 2))
    operands = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(lambda x, weights, w13, w2: tt.moe(x, ids, weights, w13, w2), operands)


def test_gradients_of_experts_are_refused_where_the_forward_step_is():
    check_capability((9, 0))
    for capability in ((8, 0), (10, 0), (12, 0)):
        with pytest.raises(NotImplementedError, match=rf"9\.0, and none for {capability[0]}\.0"):
            check_capability(capability)


@pytest.mark.parametrize(("rows", "columns"), [(5, 1000), (3, 40), (9, 512)])
def test_the_kernel_between_the_gradients_of_experts_products(rows, columns):
    inner, both, shares = torch.randn(rows, columns), torch.randn(rows, 2, columns), torch.rand(rows)
    of_both, units, of_shares = torch.empty_like(both), torch.empty_like(inner), torch.empty_like(shares)
    units_backward("f32").simulate(inner, both, shares, of_both, units, of_shares).assert_right()
    leaf = both.double().requires_grad_()
    unit = functional.silu(leaf[:, 0]) * leaf[:, 1]
    share = shares.double().unsqueeze(1)
    unit.backward(inner.double() * share)
    assert close(of_both, leaf.grad.float()) and close(units, (unit * share).detach().float())
    assert close(of_shares, (unit * inner).sum(1).detach().float())


def test_experts_of_4_bits():
    x, ids, weights = torch.randn(3, 32), torch.tensor([[0, 1], [1, 2], [2, 0]]), torch.rand(3, 2)
    c13, c2 = codes(3, 32, 32), codes(3, 32, 16)
    s13, s2 = torch.rand(3, 2, 32) / 20, torch.rand(3, 1, 32) / 20
    layer = tt.ExpertsW4(halves(c13), s13, halves(c2), s2, group=16)

    def numbers(values, scales):
        signed = torch.where(values >= 8, values - 16, values)
        return signed * scales.transpose(1, 2).repeat_interleave(16, 2)

    wanted = tt.moe(x, ids, weights, numbers(c13, s13).unflatten(1, (2, 16)), numbers(c2, s2))
    assert close(layer(x, ids, weights), wanted)
    opcheck(OPS.moe_w4.default, (x, ids, weights, layer.w13, s13, layer.w2, s2, 16))
