#!/usr/bin/env python3
"""Compares the operators of `tilewright.torch` on a GPU with their own references on the CPU in f64, forward and backward, and inside captured and compiled graphs.

    PYTHONPATH=… python3 python/tests_gpu/operators.py [few norms …]

Words name parts of it. Prints a line for each, and ends with the number that are wrong as its exit status.
"""

import sys
import time
import traceback

import torch

import tilewright.torch as tt
from tilewright import ops

# The distance of results from those of f64 over their length that roundings of 16 bits explain.
BOUNDS = {torch.float16: 2e-3, torch.bfloat16: 1.2e-2, torch.float32: 2e-5}
wrong = []


def drawn(*shape, scale=1.0):
    return torch.randn(*shape, dtype=torch.float64) * scale


def leaves(values, dtype, device):
    """Operands of a type on a device; those of f64 that are rounded alike for both."""
    made = []
    for value in values:
        if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
            value = value.to(dtype).to(torch.float64 if device == "cpu" else dtype)
            value = value.to(device).requires_grad_()
        elif isinstance(value, torch.Tensor):
            value = value.to(device)
        made.append(value)
    return made


def results(function, operands, gradients):
    out = function(*operands)
    out = [each for each in (out if isinstance(out, tuple) else (out,))]
    found = [each.detach().double().cpu() for each in out]
    if gradients:
        torch.manual_seed(7)
        total = sum((each.double() * torch.randn(each.shape, dtype=torch.float64).to(each.device)).sum() for each in out if each.requires_grad)
        total.backward()
        found += [each.grad.double().cpu() for each in operands if isinstance(each, torch.Tensor) and each.grad is not None]
    return found


def check(name, function, values, dtypes=(torch.float16, torch.bfloat16), gradients=True, factor=1.0):
    for dtype in dtypes:
        began = time.time()
        try:
            wanted = results(function, leaves(values, dtype, "cpu"), gradients)
            got = results(function, leaves(values, dtype, "cuda"), gradients)
            errors = [((a - b).norm() / (b.norm() + 1e-30)).item() for a, b in zip(got, wanted)]
            right = len(got) == len(wanted) and all(error < factor * BOUNDS[dtype] for error in errors)
        except Exception as error:
            traceback.print_exc(limit=3)
            errors, right = [str(error).strip().splitlines()[0][:200] if str(error).strip() else repr(error)], False
        text = ", ".join(f"{error:.1e}" if isinstance(error, float) else error for error in errors)
        print(f"{'right' if right else 'WRONG'} {name} {str(dtype)[6:]}: {text} ({time.time() - began:.1f} s)", flush=True)
        if not right:
            wrong.append(name)


def linears():
    for m, n, k in ((3, 64, 64), (512, 768, 1024)):
        for activation in (None, "gelu", "silu"):
            check(f"linear {m}x{n}x{k} {activation}", lambda x, w, b: tt.linear(x, w, b, activation), (drawn(m, k), drawn(n, k, scale=k**-0.5), drawn(n)))
        check(f"add_linear {m}x{n}x{k}", tt.add_linear, (drawn(m, n), drawn(m, k), drawn(n, k, scale=k**-0.5)))
        check(f"gated_linear {m}x{n}x{k}", lambda x, w: tt.gated_linear(x, w), (drawn(m, k), drawn(2, n, k, scale=k**-0.5)))
    check("linear of f32", tt.linear, (drawn(64, 128), drawn(96, 128)), (torch.float32,))


def norms():
    for m, n in ((5, 1000), (300, 4096)):
        rows, other, w, b = drawn(m, n), drawn(m, n), drawn(n), drawn(n)
        check(f"rms_norm {m}x{n}", lambda x, w: tt.rms_norm(x, w), (rows, w))
        check(f"layer_norm {m}x{n}", lambda x, w, b: tt.layer_norm(x, w, b), (rows, w, b))
        check(f"rms_norm with residual {m}x{n}", lambda x, r, w: tt.rms_norm(x, w, residual=r), (rows, other, w))
        check(f"layer_norm with residual {m}x{n}", lambda x, r, w, b: tt.layer_norm(x, w, b, residual=r), (rows, other, w, b))
        check(f"softmax {m}x{n}", tt.softmax, (rows,))


def attentions():
    for b, sq, sk, hq, hk, d in ((2, 200, 300, 4, 2, 128), (1, 512, 512, 8, 8, 64)):
        for masks in ({}, {"causal": True}, {"causal": True, "window": 64}, {"causal": True, "softcap": 5.0}, {"causal": True, "deterministic": True}):
            operands = (drawn(b, sq, hq, d), drawn(b, sk, hk, d), drawn(b, sk, hk, d))
            check(f"attention {b}x{sq}x{sk}, {hq} and {hk} heads of {d} {masks}", lambda q, k, v: tt.attention(q, k, v, **masks), operands)
    for masks in ({}, {"causal": True}, {"causal": True, "window": 64}, {"causal": True, "softcap": 5.0}):
        operands = (drawn(2, 4, 200, 128), drawn(2, 2, 300, 128), drawn(2, 2, 300, 128))
        check(f"attention of heads before places {masks}", lambda q, k, v: tt.attention(q, k, v, heads_first=True, **masks), operands)
    operands = (drawn(2, 8, 128, 64), drawn(2, 2, 128, 64), drawn(2, 2, 128, 64))
    check("scaled_dot_product_attention", lambda q, k, v: tt.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), operands)
    apart = lambda q, k, v: tt.scaled_dot_product_attention(q, k.contiguous(), v, is_causal=True, enable_gqa=True)
    turned = tuple(each.transpose(1, 2).contiguous().transpose(1, 2) for each in operands)
    check("scaled_dot_product_attention of tensors that lie otherwise", apart, turned)
    begins = [torch.tensor(each, dtype=torch.int32) for each in ([0, 100, 100, 377], [0, 130, 200, 500])]
    for masks in ({}, {"causal": True}, {"causal": True, "window": 64}):
        operands = (drawn(377, 8, 128), drawn(500, 2, 128), drawn(500, 2, 128))
        check(f"attention_ragged {masks}", lambda q, k, v: tt.attention_ragged(q, k, v, *(each.to(q.device) for each in begins), 277, 300, **masks), operands)
    lengths = torch.tensor([77, 300, 5], dtype=torch.int32)
    for sq in (1, 3):
        operands = (drawn(3, sq, 8, 128), drawn(3, 300, 2, 128), drawn(3, 300, 2, 128), lengths)
        check(f"attention_decode of {sq}", tt.attention_decode, operands, gradients=False)
        table = torch.randperm(12, dtype=torch.int32).view(3, 4)
        pages = (drawn(12, 64, 2, 128), drawn(12, 64, 2, 128))
        paged = lambda q, k, v, n, t: tt.attention_decode(q, k, v, n, table=t)
        check(f"attention_decode of {sq} in pages", paged, (drawn(3, sq, 8, 128), *pages, lengths.clamp(max=256), table), gradients=False)
    new = (drawn(3, 1, 8, 128), drawn(3, 300, 2, 128), drawn(3, 300, 2, 128), drawn(3, 1, 2, 128), drawn(3, 1, 2, 128), lengths - 1)
    cached = lambda q, kc, vc, k, v, n: tt.flash_attn_with_kvcache(q, kc.detach().clone(), vc.detach().clone(), k.detach(), v.detach(), cache_seqlens=n, causal=True)
    check("flash_attn_with_kvcache", cached, new, gradients=False)


def others():
    angles = drawn(2, 33, 64)
    for interleaved in (False, True):
        turn = lambda x, c, s: tt.rope(x, c.detach(), s.detach(), interleaved=interleaved)
        check(f"rope {interleaved}", turn, (drawn(2, 33, 6, 128), angles.cos(), angles.sin()))
    for gate in ("silu", "gelu"):
        check(f"gated {gate}", lambda a, b: tt.gated(a, b, gate), (drawn(77, 1000), drawn(77, 1000)))
    target = torch.randint(0, 1000, (77,))
    target[3] = -100
    check("cross_entropy", tt.cross_entropy, (drawn(77, 1000), target))
    # Few columns: gradients of thousands of probabilities are subnormal numbers of f16.
    logs = (drawn(77, 33).log_softmax(1), drawn(77, 33).log_softmax(1))
    check("kl_div", lambda x, t: tt.kl_div(x, t.exp()), logs, factor=2)
    check("jsd", lambda x, t: tt.jsd(x, t, 0.3), logs, factor=2)
    check("linear_cross_entropy", tt.linear_cross_entropy, (drawn(77, 256), drawn(1000, 256, scale=0.06), target))
    check("causal_conv1d", tt.causal_conv1d, (drawn(2, 64, 100), drawn(64, 4), drawn(64)))
    # Vectors of the scan are f32.
    single = lambda *shape: torch.randn(*shape)
    operands = (drawn(2, 64, 128), drawn(2, 64, 128), -single(64, 16).abs(), drawn(2, 16, 128), drawn(2, 16, 128), single(64), drawn(2, 64, 128), single(64))
    check("selective_scan", tt.selective_scan, operands, factor=2)
    operands = (drawn(2, 130, 4, 64), drawn(2, 130, 4) - 2, -single(4).abs(), drawn(2, 130, 128, scale=0.1), drawn(2, 130, 128, scale=0.1), single(4), single(4))
    check("mamba2", tt.mamba2, operands, factor=3)


def few():
    """Weights of 4 bits, and experts."""
    for m, n, k, group in ((1, 256, 512, 128), (33, 1000, 1024, 64), (300, 512, 256, 128)):
        codes = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8)
        scales, zeros = drawn(k // group, n, scale=0.05), torch.randint(0, 16, (k // group, n)).double()
        layer = lambda x, w, s, g=group: tt.LinearW4(w, s.detach(), group=g)(x)
        check(f"LinearW4 {m}x{n}x{k} by {group}", layer, (drawn(m, k), codes, scales), factor=2)
        layer = lambda x, w, s, z, g=group: tt.LinearW4(w, s.detach(), z.detach(), group=g)(x)
        check(f"LinearW4 with zeros {m}x{n}x{k} by {group}", layer, (drawn(m, k), codes, scales, zeros), factor=2)
        layer = lambda r, x, w, s, g=group: tt.LinearW4(w, s.detach(), group=g)(x, r)
        check(f"LinearW4 with residual {m}x{n}x{k} by {group}", layer, (drawn(m, n), drawn(m, k), codes, scales), factor=2)
    for tokens, hidden, intermediate, experts, k in ((5, 256, 512, 8, 2), (200, 512, 256, 16, 4)):
        chosen = torch.stack([torch.randperm(experts)[:k] for _ in range(tokens)])
        weights = torch.rand(tokens, k)
        operands = (drawn(tokens, hidden), chosen, weights, drawn(experts, 2, intermediate, hidden, scale=0.05), drawn(experts, hidden, intermediate, scale=0.05))
        check(f"moe {tokens} of {experts}", tt.moe, operands, factor=2)
        c13 = torch.randint(0, 256, (experts, 2 * intermediate, hidden // 2), dtype=torch.uint8)
        c2 = torch.randint(0, 256, (experts, hidden, intermediate // 2), dtype=torch.uint8)
        s13, s2 = (drawn(experts, shape // 128, rows, scale=0.02) for shape, rows in ((hidden, 2 * intermediate), (intermediate, hidden)))
        layer = lambda x, ids, w, c13, s13, c2, s2: tt.ExpertsW4(c13, s13.detach(), c2, s2.detach())(x, ids, w)
        check(f"moe of 4 bits {tokens} of {experts}", layer, (operands[0], chosen, weights, c13, s13, c2, s2), gradients=False, factor=2)
    logits = torch.randn(77, 64)
    check("moe_routing", lambda x: tt.moe_routing(x, 6), (logits,), gradients=False)


def dependents():
    """Launches that begin before those ahead of them have ended, each of which reads what the one ahead of it wrote: bit by bit what the same launches give apart."""
    library = ops.library(0)
    for rows in (1, 16, 256, 2048):
        norm, *weights = (drawn(*shape, scale=0.05).half().cuda() for shape in ((1024,), (2, 2816, 1024), (1024, 2816)))
        x, found = torch.randn(rows, 1024, device="cuda").half(), []
        for dependent in (False, True):
            library.dependent = dependent
            try:
                y = x
                for _ in range(20):
                    y = tt.add_linear(y, tt.gated_linear(tt.rms_norm(y, norm), weights[0]), weights[1])
                    y = tt.softmax(y)
                found.append(y)
            finally:
                library.dependent = False
        right = torch.equal(*found) and bool(found[0].isfinite().all())
        print(f"{'right' if right else 'WRONG'} dependent launches, {rows} rows", flush=True)
        if not right:
            wrong.append(f"dependent {rows}")


def graphs():
    """A block as one compiled graph, and captured."""
    weights = [drawn(*shape, scale=0.05).half().cuda() for shape in ((512,), (768, 512), (512, 512), (1024, 512), (1024, 512), (512, 1024))]
    norm, qkv, out, gate, up, down = weights
    angles = torch.randn(1, 256, 32, device="cuda").half()
    cos, sin = angles.cos(), angles.sin()

    def block(x):
        q, k, v = tt.linear(tt.rms_norm(x, norm), qkv).unflatten(-1, (12, 64)).split((8, 2, 2), 2)
        y, h = tt.rms_norm(tt.linear(tt.attention(tt.rope(q, cos, sin), tt.rope(k, cos, sin), v, causal=True).flatten(2), out), norm, residual=x)
        return h + tt.linear(tt.swiglu(tt.linear(y, gate), tt.linear(y, up)), down)

    x = torch.randn(1, 256, 512, device="cuda").half()
    wanted = block(x)
    for backend in ("aot_eager", "inductor"):
        got = torch.compile(block, fullgraph=True, backend=backend)(x)
        error = ((got - wanted).float().norm() / wanted.float().norm()).item()
        print(f"{'right' if error < 2e-3 else 'WRONG'} compiled by {backend}: {error:.1e}", flush=True)
        if error >= 2e-3:
            wrong.append(backend)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = block(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    right = torch.equal(y, block(x))
    print("right captured" if right else "WRONG captured", flush=True)
    if not right:
        wrong.append("captured")


def main():
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    torch.manual_seed(0)
    parts = (attentions, dependents, few, norms, others, linears, graphs)
    for part in [part for part in parts if part.__name__ in sys.argv[1:] or len(sys.argv) == 1]:
        try:
            part()
        except Exception:
            traceback.print_exc()
            wrong.append(part.__name__)
    print(f"{len(wrong)} wrong: {wrong}")
    sys.exit(min(len(wrong), 100))


if __name__ == "__main__":
    main()
