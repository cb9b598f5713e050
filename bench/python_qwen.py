#!/usr/bin/env python3
"""Decodes by the layers of Qwen-3-32B with weights of e4m3 and scales of blocks (random weights): products by Tilewright beside the same stack with vLLM's Triton kernels, and with cuBLAS's products by torch.

    python3 bench/python_qwen.py --vllm vllm/model_executor/layers/quantization/utils/fp8_utils.py --batch 1,8,64 --layers 64
    python3 bench/python_qwen.py --check                         # small shapes on the CPU

The model is the one of *Hexcute* (Fig. 13, Qwen-3-32B), whose peer there is vLLM's CUTLASS kernel. Only the products and what rounds activations for them differ: `moe_quantise` and `gemm_fp8_blocks`; vLLM's
`_per_token_group_quant_fp8` and `_w8a8_triton_block_scaled_mm` in the tiles of its default configuration; with `--cutlass`, its library of operators, `per_token_group_fp8_quant` and `cutlass_scaled_mm`; or `torch._scaled_mm` behind our rounding. Norms, attention over the cache and the head are the same kernels
of ours. A step of all layers is one graph; a token's time is that of a replay.
"""

import argparse
import time

import torch
from python_cache import Append, attended
from python_experts import codes, far, loaded, replayed

import tilewright.torch as tt
from tilewright import bf16, ops

BIG = {"hidden": 5120, "heads": 64, "shared": 8, "d": 128, "intermediate": 25600, "words": 151936}
SMALL = {"hidden": 256, "heads": 4, "shared": 2, "d": 64, "intermediate": 384, "words": 64}
BLOCK, EPS = 128, 1e-6


class Weight:
    """A matrix [n, k] of e4m3 with a scale for 128 × 128 elements. Codes have no second bit, so that no number is above 2."""

    def __init__(self, n, k, device):
        self.codes = codes(n, k, device=device).bitwise_and_(0xBF).view(torch.float8_e4m3fn)
        self.scales = (torch.rand(n // BLOCK, k // BLOCK, device=device) + 0.5) * (1.4 * k**-0.5)

    def whole(self):
        """The matrix in f32."""
        return self.codes.float() * self.scales.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)


def launch(operator, **given):
    ops.library(0).call(operator, **given)


def gated(x):
    """``silu(g) · u`` of the columns [g, u]."""
    h = x.new_empty((x.shape[0], x.shape[1] // 2))
    if x.is_cuda:
        launch("moe_gate", x=x, y=h)
        return h
    gate, up = x.chunk(2, -1)
    return h.copy_(torch.nn.functional.silu(gate.float()) * up.float())


def rounded(x, unit):
    """Rows, or with `unit` their gated units, as e4m3 with a scale for 128 columns."""
    m, n = x.shape[0], x.shape[1] // (2 if unit else 1)
    q, s = x.new_empty((m, n), dtype=torch.float8_e4m3fn), x.new_empty((n // BLOCK, m), dtype=torch.float32)
    launch("moe_quantise", x=x, y=q, s=s, options={"gated": unit})
    return q, s


def ours(x, weight, unit):
    q, s = rounded(x, unit)
    c = x.new_empty((x.shape[0], weight.codes.shape[0]))
    launch("gemm_fp8_blocks", a=q, b=weight.codes, sa=s, sb=weight.scales, c=c)
    return c


def of_cublas(x, weight, unit):
    q, s = rounded(x, unit)
    return torch._scaled_mm(q, weight.codes.T, scale_a=s.T, scale_b=weight.scales.T, out_dtype=x.dtype)


class OfVllm:
    """Products by vLLM's Triton kernels, in the tiles that it takes where it has no file for a shape."""

    def __init__(self, path):
        ends = (("@triton.jit\ndef _per_token_group_quant_fp8(", "@triton.jit\ndef _silu_mul_quant_fp8_packed_kernel("), ("@triton.jit\ndef _w8a8_triton_block_scaled_mm(", "@functools.lru_cache\ndef get_w8a8"))
        self.kernels = loaded("vllm_fp8_kernels", [(path, *each) for each in ends])

    def __call__(self, x, weight, unit):
        import triton

        x = gated(x) if unit else x
        (m, k), n = x.shape, weight.codes.shape[0]
        q, s, c = x.new_empty((m, k), dtype=torch.float8_e4m3fn), x.new_empty((m, k // BLOCK), dtype=torch.float32), x.new_empty((m, n))
        limit = 448.0
        self.kernels._per_token_group_quant_fp8[(m * k // BLOCK,)](x, q, s, BLOCK, k, x.stride(0), 1e-10, fp8_min=-limit, fp8_max=limit, use_ue8m0=False, BLOCK=BLOCK, num_warps=1, num_stages=1)
        grid = (triton.cdiv(m, 64) * triton.cdiv(n, BLOCK),)
        w, ws = weight.codes, weight.scales
        self.kernels._w8a8_triton_block_scaled_mm[grid](
            q, w, c, s, ws, m, n, k, BLOCK, BLOCK, k, 1, 1, k, n, 1, s.stride(0), 1, 1, ws.stride(0),
            BLOCK_SIZE_M=64, BLOCK_SIZE_N=BLOCK, BLOCK_SIZE_K=BLOCK, GROUP_SIZE_M=32, num_warps=4, num_stages=2)  # fmt: skip
        return c


class OfCutlass:
    """Products by vLLM's CUTLASS kernel behind its rounding, operators of its library."""

    def __init__(self, path):
        torch.ops.load_library(path)

    def __call__(self, x, weight, unit):
        of, limit = torch.ops._C, 448.0
        if unit:
            of.silu_and_mul(h := x.new_empty((x.shape[0], x.shape[1] // 2)), x)
            x = h
        (m, k), n = x.shape, weight.codes.shape[0]
        # Scales of a column of blocks are neighbours.
        q, s, c = x.new_empty((m, k), dtype=torch.float8_e4m3fn), x.new_empty((k // BLOCK, m), dtype=torch.float32).T, x.new_empty((m, n))
        of.per_token_group_fp8_quant(x, q, s, BLOCK, 1e-10, -limit, limit, False, True, False)
        of.cutlass_scaled_mm(c, q, weight.codes.T, s, weight.scales.T, None)
        return c


def reference(x, weight, unit):
    """The product in f32, of activations that are not rounded."""
    return ((gated(x) if unit else x).float() @ weight.whole().T).to(x.dtype)


class Layer:
    """A layer's weights and its cache."""

    def __init__(self, shape, batch, room, device):
        h, heads, shared, d, i = (shape[name] for name in ("hidden", "heads", "shared", "d", "intermediate"))
        self.norms = [torch.ones(n, dtype=torch.bfloat16, device=device) for n in (h, h, d, d)]
        self.qkv, self.out = Weight((heads + 2 * shared) * d, h, device), Weight(h, heads * d, device)
        self.units, self.down = Weight(2 * i, h, device), Weight(h, i, device)
        self.room_for(shape, batch, room, device)

    def room_for(self, shape, batch, room, device):
        """Makes a cache anew."""
        self.keys, self.values = (torch.randn(batch, shape["shared"], room, shape["d"], device=device).to(torch.bfloat16) for _ in range(2))


class Decoder:
    """Steps over a cache, one word of each sequence; rows are a multiple of four, as scales of activations lie."""

    def __init__(self, shape, layers, ends, batch, context, device):
        self.shape, self.layers, (self.table, self.head) = shape, layers, ends
        self.batch, self.rows, self.context = batch, -(-batch // 4) * 4, context
        self.room = layers[0].keys.shape[2]
        self.ids = torch.randint(0, shape["words"], (self.rows,), device=device)
        self.at = torch.empty(self.batch, dtype=torch.int32, device=device)
        self.lengths = torch.empty(self.batch * shape["shared"], dtype=torch.int32, device=device)
        angles = torch.arange(self.room, device=device)[:, None] / 1e6 ** (torch.arange(0, shape["d"], 2, device=device) / shape["d"])
        self.cos, self.sin = angles.cos(), angles.sin()
        self.norm = torch.ones(shape["hidden"], dtype=torch.bfloat16, device=device)
        self.append = Append(bf16, shape["heads"], shape["shared"], shape["d"], EPS)
        self.rewind()

    def rewind(self):
        self.at.fill_(self.context)
        self.lengths.fill_(self.context + 1)

    def attended(self, qkv, layer):
        heads, d = self.shape["heads"], self.shape["d"]
        q = qkv.new_zeros((self.rows, heads, d))
        self.append(qkv[: self.batch].view(self.batch, -1, d), *layer.norms[2:], self.cos, self.sin, self.at, q[: self.batch], layer.keys, layer.values)
        o = attended(q[: self.batch], layer.keys, layer.values, self.lengths)
        if self.batch < self.rows:
            q[: self.batch] = o.view(self.batch, heads, d)
            return q.view(self.rows, -1)
        return o.view(self.rows, -1)

    def logits(self, product):
        """Logits of the next words."""
        x, residual = self.table[self.ids], None
        for layer in self.layers:
            if residual is None:
                y, residual = tt.rms_norm(x, layer.norms[0], EPS), x
            else:
                y, residual = tt.rms_norm(x, layer.norms[0], EPS, residual=residual)
            x = product(self.attended(product(y, layer.qkv, False), layer), layer.out, False)
            y, residual = tt.rms_norm(x, layer.norms[1], EPS, residual=residual)
            x = product(product(y, layer.units, False), layer.down, True)
        return tt.linear(tt.rms_norm(x, self.norm, EPS, residual=residual)[0], self.head)

    def advance(self, product):
        self.ids.copy_(self.logits(product).argmax(-1))
        self.at += 1
        self.lengths += 1


def ends_of(shape, device):
    """The table of words and the head."""
    return [torch.randn(shape["words"], shape["hidden"], device=device, dtype=torch.bfloat16).mul_(scale) for scale in (1.0, shape["hidden"] ** -0.5)]


def products(weight, rows, forms):
    """Prints how far products are from those in f32, and from each other."""
    x = torch.randn(rows, weight.codes.shape[1], device="cuda").to(torch.bfloat16)
    wanted, text = reference(x, weight, False), []
    for name, form in list(forms.items()):
        try:
            text.append(f"{name} {far(form(x, weight, False), wanted):.1e}")
        except Exception as error:  # a form that this version of torch lacks says so
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            del forms[name]
    print(f"products of {rows} rows beside f32: {', '.join(text)}", flush=True)


def measure(args):
    """Prints milliseconds of a token for each batch and stack."""
    shape, began = BIG, time.time()
    forms = {"ours": ours, "vLLM's Triton": OfVllm(args.vllm), "cuBLAS": of_cublas}
    if args.cutlass:
        forms["vLLM's CUTLASS"] = OfCutlass(args.cutlass)
    layers, ends = [Layer(shape, 1, 1, "cuda") for _ in range(args.layers)], ends_of(shape, "cuda")
    torch.cuda.synchronize()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {args.layers} layers, {torch.cuda.memory_allocated() / 1e9:.1f} GB, made in {time.time() - began:.1f} s", flush=True)
    products(layers[0].out, 8, forms)
    for batch in map(int, args.batch.split(",")):
        for layer in layers:
            layer.keys = layer.values = None
            layer.room_for(shape, batch, args.context + args.steps + 28, "cuda")
        decoder, found, first = Decoder(shape, layers, ends, batch, args.context, "cuda"), {}, None
        for name, form in forms.items():
            try:
                with torch.inference_mode():
                    decoder.rewind()
                    decoder.ids.fill_(7)
                    logits = decoder.logits(form)
                    first = logits if first is None else first
                    found[name] = replayed(lambda form=form: decoder.advance(form), args.steps)
                print(f"batch {batch}, {name}: {found[name]:.3f} ms a token, {100 * found[name] / 1e3:.3f} s for 100; logits {far(logits, first):.1e} from ours", flush=True)
            except Exception as error:  # a form that fails says so, and the others still run
                print(f"batch {batch}, {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        print(f"batch {batch}: " + ", ".join(f"{name} {found[name] / found['ours']:.3f}" for name in found if name != "ours") + " of our time", flush=True)
        del decoder, first, logits


def check():
    """Two steps of small layers on the CPU."""
    torch.manual_seed(0)
    layers = [Layer(SMALL, 3, 9, "cpu") for _ in range(2)]
    decoder = Decoder(SMALL, layers, ends_of(SMALL, "cpu"), 3, 5, "cpu")
    before = layers[0].keys.clone()
    for _ in range(2):
        decoder.advance(reference)
    changed = (layers[0].keys != before).any(-1).any(1).nonzero().tolist()
    # What the first head of keys is, by torch.
    print(f"two steps: places written {sorted({place for _, place in changed})}, finite {bool(decoder.logits(reference).isfinite().all())}")
    x = torch.randn(3, 8, 64).to(torch.bfloat16)
    q, k, v = torch.zeros(3, 4, 64, dtype=torch.bfloat16), torch.zeros(3, 2, 9, 64, dtype=torch.bfloat16), torch.zeros(3, 2, 9, 64, dtype=torch.bfloat16)
    wq, wk = (torch.rand(64).to(torch.bfloat16) for _ in range(2))
    at = torch.tensor([5, 0, 8], dtype=torch.int32)
    decoder.append(x, wq, wk, decoder.cos, decoder.sin, at, q, k, v)
    wide = x[:, :6].float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS) * torch.cat([wq.expand(4, 64), wk.expand(2, 64)]).float()
    cos, sin = (each[at.long()][:, None] for each in (decoder.cos, decoder.sin))
    turned = torch.cat([wide[..., :32] * cos - wide[..., 32:] * sin, wide[..., 32:] * cos + wide[..., :32] * sin], -1)
    kept = torch.stack([k[row, :, place] for row, place in enumerate(at.tolist())]), torch.stack([v[row, :, place] for row, place in enumerate(at.tolist())])
    print(f"queries {far(q, turned[:, :4]):.1e}, keys {far(kept[0], turned[:, 4:]):.1e} from torch's, values equal {torch.equal(kept[1], x[:, 6:])}")


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm", help="vLLM's fp8_utils.py")
    parser.add_argument("--cutlass", help="vLLM's _C_stable_libtorch.abi3.so, whose CUTLASS kernel is timed as well")
    parser.add_argument("--batch", default="1,8,64")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100, help="tokens")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    check() if args.check else measure(args)


if __name__ == "__main__":
    main()
