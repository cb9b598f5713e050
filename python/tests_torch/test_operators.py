"""Attention, norms, positions, gates, losses and scans on torch's CPU half: torch's own results, schemas, shapes without data, gradients, one graph."""

import math

import pytest
import torch
from torch.library import opcheck
from torch.nn import functional

import tilewright.torch as tt

OPS = torch.ops.tilewright


def close(a, b, tolerance=1e-5):
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance)


def drawn(*shape, dtype=torch.float32, grad=False):
    generator = torch.Generator().manual_seed(math.prod(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype).requires_grad_(grad)


def doubles(*shapes):
    return [drawn(*shape, dtype=torch.float64, grad=True) for shape in shapes]


def one_graph(function, *inputs):
    """The function compiled as one graph gives the same, forward and backward."""
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    results = []
    for each in (function, compiled):
        leaves = [value.detach().clone().requires_grad_(value.is_floating_point()) for value in inputs]
        result = each(*leaves)
        result.square().sum().backward()
        results.append([result.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)])
    assert all(close(a, b) for a, b in zip(*results))


def test_norms():
    x, r, w, b = drawn(2, 3, 8), drawn(2, 3, 8, dtype=torch.float64).float() + 1, drawn(8), drawn(1, 8)[0]
    assert close(tt.rms_norm(x, w, 1e-3), functional.rms_norm(x, (8,), w, 1e-3))
    assert close(tt.layer_norm(x, w, b), functional.layer_norm(x, (8,), w, b))
    y, h = tt.rms_norm(x, w, 1e-3, residual=r)
    assert close(h, x + r) and close(y, functional.rms_norm(h, (8,), w, 1e-3))
    y, h = tt.layer_norm(x, w, b, residual=r)
    assert close(y, functional.layer_norm(x + r, (8,), w, b))
    with pytest.raises(ValueError, match="`weight` has shape"):
        tt.rms_norm(x, w[:4])
    with pytest.raises(ValueError, match="`residual` has shape"):
        tt.rms_norm(x, w, residual=r[0])


def test_gradients_of_norms():
    x, r, w, b = doubles((2, 5), (2, 5), (5,), (5,))
    assert torch.autograd.gradcheck(lambda x, w: tt.rms_norm(x, w, 1e-3), (x, w))
    assert torch.autograd.gradcheck(lambda x, w, b: tt.layer_norm(x, w, b, 1e-3), (x, w, b))
    assert torch.autograd.gradcheck(lambda x, r, w: tt.rms_norm(x, w, 1e-3, residual=r), (x, r, w))
    assert torch.autograd.gradcheck(lambda x, r, w, b: tt.layer_norm(x, w, b, 1e-3, residual=r), (x, r, w, b))
    assert torch.autograd.gradcheck(tt.softmax, (x,))


def test_products_with_more():
    x, weight, pair, h = drawn(2, 3, 8), drawn(5, 8), drawn(2, 4, 8), drawn(2, 3, 5)
    assert close(tt.add_linear(h, x, weight), h + x @ weight.T)
    assert close(tt.gated_linear(x, pair), functional.silu(x @ pair[0].T) * (x @ pair[1].T))
    with pytest.raises(ValueError, match="`residual` has shape"):
        tt.add_linear(h[0], x, weight)
    with pytest.raises(ValueError, match="`weight` has shape"):
        tt.gated_linear(x, weight)
    a, w, p, r = doubles((3, 4), (2, 4), (2, 3, 4), (3, 2))
    assert torch.autograd.gradcheck(tt.add_linear, (r, a, w))
    for gate in ("silu", "gelu"):
        assert torch.autograd.gradcheck(lambda x, w: tt.gated_linear(x, w, gate), (a, p))


def seen_of(sq, sk, causal, window):
    i, j = torch.arange(sk - sq, sk)[:, None], torch.arange(sk)[None]
    seen = torch.ones(sq, sk, dtype=torch.bool)
    seen &= (j <= i) if causal or window else seen
    return seen & (i - j < window) if window else seen


@pytest.mark.parametrize(("causal", "window"), [(False, 0), (True, 0), (True, 3)])
def test_attention(causal, window):
    q, k, v = drawn(2, 4, 4, 8), drawn(2, 6, 2, 8), drawn(2, 6, 2, 6)
    o, lse = tt.attention(q, k, v, causal=causal, window=window, sums=True)
    of_torch = [each.transpose(1, 2) for each in (q, k, v)]
    wanted = functional.scaled_dot_product_attention(*of_torch, attn_mask=seen_of(4, 6, causal, window), enable_gqa=True)
    assert close(o, wanted.transpose(1, 2))
    assert o.is_contiguous() and lse.shape == (2, 4, 4)
    assert close(tt.attention(*of_torch, causal=causal, window=window, heads_first=True), wanted)
    a, b, c = doubles((1, 3, 2, 3), (1, 4, 1, 3), (1, 4, 1, 2))
    masks = {"causal": causal, "window": window}
    assert torch.autograd.gradcheck(lambda q, k, v: tt.attention(q, k, v, **masks), (a, b, c))
    assert torch.autograd.gradcheck(lambda q, k, v: tt.attention(q, k, v, softcap=2.0, **masks), (a, b, c))
    turned = [each.detach().transpose(1, 2).contiguous().requires_grad_() for each in (a, b, c)]
    assert torch.autograd.gradcheck(lambda q, k, v: tt.attention(q, k, v, heads_first=True, **masks), turned)


def test_queries_without_a_key():
    q, k, v = doubles((1, 3, 1, 2), (1, 1, 1, 2), (1, 1, 1, 2))
    o = tt.attention(q, k, v, causal=True)
    assert (o[0, :2] == 0).all() and close(o[0, 2], v[0, 0])
    assert torch.autograd.gradcheck(lambda q, k, v: tt.attention(q, k, v, causal=True), (q, k, v))


def test_attention_by_the_names_of_others():
    q, k, v = drawn(2, 4, 5, 8), drawn(2, 2, 5, 8), drawn(2, 2, 5, 8) + 1
    for causal in (False, True):
        wanted = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.5, enable_gqa=True)
        assert close(tt.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.5, enable_gqa=True), wanted)
    # torch's queries stand at the beginning of the keys.
    wanted = functional.scaled_dot_product_attention(q[:, :, :3], k, v, is_causal=True, enable_gqa=True)
    assert close(tt.scaled_dot_product_attention(q[:, :, :3], k, v, is_causal=True, enable_gqa=True), wanted)
    of_flash = [each.transpose(1, 2) for each in (q, k, v)]
    wanted = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen_of(5, 5, True, 3), enable_gqa=True).transpose(1, 2)
    assert close(tt.flash_attn_func(*of_flash, causal=True, window_size=(2, 0)), wanted)
    o, lse, weights = tt.flash_attn_func(*of_flash, causal=True, window_size=(2, -1), return_attn_probs=True)
    assert close(o, wanted) and weights is None
    qkv = drawn(2, 5, 3, 2, 8)
    assert close(tt.flash_attn_qkvpacked_func(qkv), tt.flash_attn_func(*qkv.unbind(2)))
    assert close(tt.flash_attn_kvpacked_func(qkv[:, :, 0], qkv[:, :, 1:]), tt.flash_attn_func(*qkv.unbind(2)))
    for arguments, message in [
        ({"attn_mask": q}, "`attn_mask` is not taken"),
        ({"dropout_p": 0.1}, "`dropout_p` is not taken"),
        ({}, "`enable_gqa=True` lets"),
    ]:
        with pytest.raises(ValueError, match=message):
            tt.scaled_dot_product_attention(q, k, v, **arguments)
    with pytest.raises(ValueError, match="queries behind the last key"):
        tt.scaled_dot_product_attention(q, k[:, :, :2], v[:, :, :2], is_causal=True, enable_gqa=True)
    with pytest.raises(ValueError, match="windows end at the query's own place"):
        tt.flash_attn_func(*of_flash, window_size=(2, 2))
    with pytest.raises(ValueError, match="multiple of those of `k`"):
        tt.flash_attn_func(of_flash[0][:, :, :3], *of_flash[1:])


def test_sequences_of_their_own_lengths():
    begins_q, begins_k = torch.tensor([0, 3, 3, 5]), torch.tensor([0, 4, 6, 8])
    q, k, v = doubles((6, 2, 3), (8, 1, 3), (8, 1, 2))
    for masks in ({}, {"causal": True}, {"causal": True, "window": 2}):
        function = lambda q, k, v: tt.attention_ragged(q, k, v, begins_q, begins_k, 3, 4, **masks)
        o = function(q, k, v)
        for i in range(3):
            of_q, of_k = slice(*begins_q[i : i + 2]), slice(*begins_k[i : i + 2])
            assert close(o[of_q], tt.attention(q[None, of_q], k[None, of_k], v[None, of_k], **masks)[0])
        assert torch.autograd.gradcheck(function, (q, k, v))
    opcheck(OPS.attention_ragged.default, (q, k, v, begins_q, begins_k, 3, 4, 0.5, True, 0, 0.0, False))
    given = (begins_q, begins_k, 3, 4)
    assert close(tt.flash_attn_varlen_func(q, k, v, *given, causal=True, window_size=(1, 0)), o)
    with pytest.raises(ValueError, match="`block_table` is not taken"):
        tt.flash_attn_varlen_func(q, k, v, *given, block_table=begins_q)
    with pytest.raises(ValueError, match="`cu_q` has shape"):
        tt.attention_ragged(q, k, v, begins_q[:2], begins_k, 3, 4)


def test_caches():
    b, room, page = 2, 8, 4
    q, k, v = drawn(b, 2, 4, 8), drawn(b, room, 2, 8), drawn(b, room, 2, 8) + 1
    lengths = torch.tensor([5, 8], dtype=torch.int32)
    wanted = torch.cat([tt.attention(q[i : i + 1], k[i : i + 1, :n], v[i : i + 1, :n], causal=True) for i, n in enumerate(lengths.tolist())])
    assert close(tt.attention_decode(q, k, v, lengths), wanted)
    table = torch.tensor([[2, 0], [3, 1]], dtype=torch.int32)
    pages = [torch.zeros(4, page, 2, 8), torch.zeros(4, page, 2, 8)]
    for of_pages, whole in zip(pages, (k, v)):
        of_pages[table.long()] = whole.unflatten(1, (2, page))
    assert close(tt.attention_decode(q, *pages, lengths, table=table), wanted)
    # New keys are turned, and written behind those that are there, in the cache or its pages.
    cos, sin = torch.cos(drawn(9, 4)), torch.sin(drawn(9, 4))
    new_k, new_v, before = drawn(b, 2, 2, 8) + 2, drawn(b, 2, 2, 8) - 1, lengths - 2
    places = before.long()[:, None] + torch.arange(2)
    turned_q, turned_k = (tt.rope(x, cos[places], sin[places], interleaved=True) for x in (q, new_k))
    for i, n in enumerate(before.tolist()):
        k[i, n : n + 2], v[i, n : n + 2] = turned_k[i], new_v[i]
    wanted = tt.attention_decode(turned_q, k, v, lengths)
    given = {"k": new_k, "v": new_v, "rotary_cos": cos, "rotary_sin": sin, "cache_seqlens": before, "causal": True}
    assert close(tt.flash_attn_with_kvcache(q, k.clone(), v.clone(), **given), wanted)
    assert close(tt.flash_attn_with_kvcache(q, *pages, block_table=table, **given), wanted)
    assert close(pages[0][table.long()].flatten(1, 2)[0, :5], k[0, :5])
    # As FlashAttention has it, queries attend to all keys unless something else is said.
    with pytest.raises(ValueError, match="`causal=False` with several queries"):
        tt.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths)
    with pytest.raises(ValueError, match="`cache_batch_idx` is not taken"):
        tt.flash_attn_with_kvcache(q, k, v, cache_batch_idx=lengths)


def test_positions_and_gates():
    x, angles = drawn(2, 3, 4, 6), drawn(2, 3, 3)
    cos, sin = angles.cos(), angles.sin()
    turned = torch.view_as_complex(x.unflatten(-1, (3, 2)).contiguous()) * torch.polar(torch.ones(()), angles).unsqueeze(2)
    assert close(tt.rope(x, cos, sin, interleaved=True), torch.view_as_real(turned).flatten(-2))
    halves = torch.cat((-x[..., 3:], x[..., :3]), -1)
    wanted = x * torch.cat((cos, cos), -1).unsqueeze(2) + halves * torch.cat((sin, sin), -1).unsqueeze(2)
    assert close(tt.rope(x, cos, sin), wanted)
    with pytest.raises(ValueError, match="`cos` has shape"):
        tt.rope(x, cos[:1], sin)
    a, b, c = doubles((2, 2, 4), (2, 2, 4), (2, 2))
    for interleaved in (False, True):
        assert torch.autograd.gradcheck(lambda x: tt.rope(x, c.detach().cos(), c.detach().sin(), interleaved=interleaved), (a,))
    assert close(tt.swiglu(a, b), functional.silu(a) * b)
    for gate in ("silu", "gelu"):
        assert torch.autograd.gradcheck(lambda a, b: tt.gated(a, b, gate), (a, b))
    with pytest.raises(ValueError, match="`relu` is no gate"):
        tt.gated(a, b, "relu")


def test_losses():
    x, weight = drawn(6, 5), drawn(9, 5)
    target = torch.tensor([0, 8, -100, 3, 3, 1])
    logits = x @ weight.T
    for reduction in ("mean", "sum", "none"):
        wanted = functional.cross_entropy(logits, target, reduction=reduction)
        assert close(tt.cross_entropy(logits, target, reduction=reduction), wanted)
        assert close(tt.linear_cross_entropy(x, weight, target, reduction=reduction), wanted)
    # A row that does not count is as good without a loss.
    empty = torch.where((target == -100).unsqueeze(1), -torch.inf, logits)
    assert close(tt.cross_entropy(empty, target), functional.cross_entropy(logits, target))
    a, w = doubles((6, 5), (9, 5))
    assert torch.autograd.gradcheck(lambda x: tt.cross_entropy(x, target % 5), (a,))
    assert torch.autograd.gradcheck(lambda x, w: tt.linear_cross_entropy(x, w, target), (a, w))
    with pytest.raises(ValueError, match="`most` is no reduction"):
        tt.cross_entropy(logits, target, reduction="most")
    with pytest.raises(ValueError, match="`target` has shape"):
        tt.cross_entropy(logits, target[:2])


def test_scans():
    x, weight, bias = drawn(2, 3, 7), drawn(3, 4), drawn(3)
    y = tt.causal_conv1d(x, weight, bias)
    padded = functional.pad(x, (3, 0))
    wanted = functional.silu(bias[:, None] + sum(weight[:, i, None] * padded[:, :, i : i + 7] for i in range(4)))
    assert close(y, wanted)
    u, delta, z = drawn(2, 3, 5), drawn(2, 3, 5) - 1, drawn(2, 3, 5) + 1
    a, b, c = -drawn(3, 16).abs(), drawn(2, 16, 5), drawn(2, 16, 5) + 1
    y = tt.selective_scan(u, delta, a, b, c, bias, z, bias)
    dt = functional.softplus(delta + bias[:, None])
    state, rows = torch.zeros(2, 3, 16), []
    for at in range(5):
        state = torch.exp(dt[:, :, at, None] * a) * state + (dt * u)[:, :, at, None] * b[:, None, :, at]
        rows.append((state * c[:, None, :, at]).sum(-1) + bias * u[:, :, at])
    assert close(y, torch.stack(rows, 2) * functional.silu(z))
    x, delta, a = drawn(1, 4, 2, 64), drawn(1, 4, 2), -drawn(2).abs()
    b, c, skip = drawn(1, 4, 128), drawn(1, 4, 128) + 1, drawn(2)
    dt = functional.softplus(delta + skip)
    decay = torch.cumsum(dt * a, 1)
    weights = torch.exp(decay[:, :, None] - decay[:, None]).masked_fill(~torch.ones(4, 4, dtype=torch.bool).tril()[None, :, :, None], 0)
    wanted = torch.einsum("bijh,bin,bjn,bjh,bjhp->bihp", weights, c, b, dt, x) + skip[:, None] * x
    assert close(tt.mamba2(x, delta, a, b, c, skip, skip), wanted, 1e-4)
    with pytest.raises(ValueError, match="kernels have 16"):
        tt.selective_scan(u, delta, a[:, None], u, u, bias, z, bias)


def test_gradients_of_scans():
    """Pieces of two steps, so that several meet."""
    from tilewright.torch import _scan_backward

    def wide(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(tt.causal_conv1d, (wide(1, 2, 5), wide(2, 4), wide(2)))
    whole, _scan_backward._PIECE = _scan_backward._PIECE, 2
    try:
        operands = (wide(1, 2, 3), wide(1, 2, 3), wide(2, 16), wide(1, 16, 3), wide(1, 16, 3), wide(2), wide(1, 2, 3), wide(2))
        assert torch.autograd.gradcheck(lambda u, delta, a, *others: tt.selective_scan(u, delta, -a.abs(), *others), operands)
        operands = (wide(1, 5, 2, 64), wide(1, 5, 2), wide(2), wide(1, 5, 128), wide(1, 5, 128), wide(2), wide(2))
        y = tt.mamba2(operands[0], operands[1], -operands[2].abs(), *operands[3:])
        weights = torch.randn_like(y)
        found = torch.autograd.grad((y * weights).sum(), operands)
        # The same by torch: each step is a sum over those before.
        x, delta, a, b, c, skip, bias = operands
        dt = functional.softplus(delta + bias)
        decay = torch.cumsum(dt * -a.abs(), 1)
        there = torch.ones(5, 5, dtype=torch.bool).tril()[None, :, :, None]
        factors = torch.exp((decay[:, :, None] - decay[:, None]).masked_fill(~there, float("-inf")))
        wanted = torch.einsum("bijh,bin,bjn,bjh,bjhp->bihp", factors, c, b, dt, x) + skip[:, None] * x
        for ours, by_torch in zip(found, torch.autograd.grad((wanted * weights).sum(), operands)):
            assert close(ours, by_torch)
    finally:
        _scan_backward._PIECE = whole


def test_divergences():
    x, target = drawn(2, 3, 9).log_softmax(-1), drawn(2, 3, 9).softmax(-1)
    rows = tt.kl_div(x, target, reduction="none")
    assert rows.shape == (2, 3) and close(rows, functional.kl_div(x, target, reduction="none").sum(-1))
    # Of any number of modes the first is the batch.
    for a, b in ((x, target), (x.flatten(0, 1), target.flatten(0, 1)), (x[0, 0], target[0, 0])):
        assert close(tt.kl_div(a, b), functional.kl_div(a, b, reduction="batchmean"))
    assert close(tt.kl_div(x, target, reduction="sum"), rows.sum())
    q, beta = x.exp(), 0.3
    mix = beta * target + (1 - beta) * q
    wanted = (beta * target * (target / mix).log() + (1 - beta) * q * (q / mix).log()).sum(-1)
    assert close(tt.jsd(x, target.log(), beta, reduction="none"), wanted)
    assert close(tt.jsd(x, target.log(), beta), wanted.sum() / 2)
    # Probabilities of 0 have no part, and what one has alone is one bit.
    alone = torch.tensor([[0.0, -torch.inf]])
    assert tt.jsd(alone, alone) == 0 and close(tt.jsd(alone, alone.flip(1)), torch.tensor(2.0).log())
    a, b = (each.double().detach()[0].requires_grad_() for each in (x, target))
    assert torch.autograd.gradcheck(tt.kl_div, (a, b))
    assert torch.autograd.gradcheck(lambda x, t: tt.jsd(x, t, 0.3), (a, b.detach().log().requires_grad_()))
    with pytest.raises(ValueError, match="no reduction of divergences"):
        tt.jsd(x, x, reduction="mean")
    with pytest.raises(ValueError, match="a probability for each element"):
        tt.kl_div(x, target[0])


def test_schemas():
    """The checks of `opcheck`: schemas, gradients, shapes without data, dynamic shapes."""
    x, w, target = drawn(3, 8, grad=True), drawn(8, grad=True), torch.tensor([1, 2, 0])
    opcheck(OPS.rms_norm.default, (x, w, 1e-5))
    opcheck(OPS.add_layer_norm.default, (x, drawn(3, 8), w, drawn(8), 1e-5))
    opcheck(OPS.softmax.default, (x,))
    q, k = drawn(1, 3, 2, 8, grad=True), drawn(1, 4, 1, 8, grad=True)
    opcheck(OPS.attention.default, (q, k, k, 0.5, True, 0, 0.0, False, False))
    opcheck(OPS.attention_alone.default, (q, k, k, 0.5, True, 0, 0.0, False, False))
    lengths = torch.tensor([4], dtype=torch.int32)
    opcheck(OPS.attention_decode.default, (q.detach(), k.detach(), k.detach(), lengths, 0.5, 0, 0.0))
    opcheck(OPS.attention_paged.default, (q.detach(), k.detach(), k.detach(), lengths[None] - 4, lengths, 0.5, 0, 0.0))
    opcheck(OPS.rope.default, (q, drawn(1, 3, 4), drawn(1, 3, 4), False))
    opcheck(OPS.gated.default, (x, x, "silu"))
    opcheck(OPS.cross_entropy.default, (x, target))
    opcheck(OPS.linear_cross_entropy.default, (x, drawn(5, 8, grad=True), target))
    opcheck(OPS.jsd.default, (x, drawn(3, 8), 0.3))
    opcheck(OPS.causal_conv1d.default, (drawn(1, 2, 5), drawn(2, 4), drawn(2)))


def test_a_block_is_one_graph():
    """A block of a transformer, with its loss, as one graph."""
    target = torch.tensor([1, 2, 0, 1, 3, 0])

    def block(x, norm, qkv, out, gate, up, cos, sin):
        q, k, v = tt.linear(tt.rms_norm(x, norm), qkv).unflatten(-1, (4, 8)).split((2, 1, 1), 2)
        q, k = tt.rope(q, cos.detach(), sin.detach()), tt.rope(k, cos.detach(), sin.detach())
        y, h = tt.rms_norm(tt.linear(tt.attention(q, k, v, causal=True).flatten(2), out), norm, residual=x)
        h = h + tt.linear(tt.swiglu(tt.linear(y, gate), tt.linear(y, up)), gate.T)
        return tt.linear_cross_entropy(h.flatten(0, 1), out, target)

    angles = drawn(1, 6, 4)
    shapes = ((1, 6, 16), (16,), (32, 16), (16, 16), (24, 16), (24, 16))
    one_graph(block, *(drawn(*shape) for shape in shapes), angles.cos(), angles.sin())
