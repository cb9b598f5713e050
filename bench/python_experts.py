#!/usr/bin/env python3
"""Decodes by some layers of DeepSeek-R1 with weights of 4 bits (AWQ's shapes, random weights): experts by Tilewright beside the same stack with vLLM's Triton kernel for their products.

    python3 bench/python_experts.py --vllm vllm/model_executor/layers/fused_moe/fused_moe.py --batch 1,8,32,64 --layers 3
    python3 bench/python_experts.py --check                       # small shapes on the CPU: both stacks' reference

The model is the one of *Hexcute* (Fig. 13, DeepSeek-R1-AWQ). A layer has multi-head latent attention over a cache (torch's batched products), projections and a shared expert by `LinearW4`, and 256 experts of which a token
has 8. Only the experts differ: `ExpertsW4`, or vLLM's `fused_moe_kernel_gptq_awq` in the tiles of its default configuration, with tables and silu · mul by kernels of ours and sums by torch. A step of all layers is
one graph; a token's time is that of a replay.
"""

import argparse
import importlib.util
import pathlib
import statistics
import tempfile
import time

import torch

import tilewright.torch as tt
from tilewright import ops

BIG = {"hidden": 7168, "intermediate": 2048, "experts": 256, "k": 8, "heads": 128, "queries": 1536, "latent": 512, "turned": 64, "plain": 128}
SMALL = {"hidden": 256, "intermediate": 128, "experts": 8, "k": 2, "heads": 2, "queries": 128, "latent": 128, "turned": 32, "plain": 64}
GROUP, EPS = 128, 1e-6


def codes(*shape, device):
    return torch.randint(0, 256, shape, dtype=torch.uint8, device=device)


def scales(depth, *shape, dtype, device):
    """Scales with which sums over so many products are about as large as what is multiplied."""
    return ((torch.rand(*shape, device=device) + 0.5) * depth**-0.5 / 4.6).to(dtype)


def projection(n, k, dtype, device):
    return tt.LinearW4(codes(n, k // 2, device=device), scales(k, k // GROUP, n, dtype=dtype, device=device), group=GROUP)


class Weights:
    """A layer's experts, as both kernels take them."""

    def __init__(self, shape, dtype, device):
        e, h, i = shape["experts"], shape["hidden"], shape["intermediate"]
        self.w13, self.w2 = codes(e, 2 * i, h // 2, device=device), codes(e, h, i // 2, device=device)
        self.s13, self.s2 = (scales(d, e, d // GROUP, n, dtype=dtype, device=device) for d, n in ((h, 2 * i), (i, h)))


class Ours:
    """The experts by `ExpertsW4`."""

    def __init__(self, weights, k):
        self.layer = tt.ExpertsW4(weights.w13, weights.s13, weights.w2, weights.s2, group=GROUP)

    def __call__(self, x, ids, shares):
        return self.layer(x, ids, shares)


def loaded(name, parts, **names):
    """The module of parts of files of others, each from its first line to what stands behind it, or to the file's end, with names that they take from elsewhere."""
    text = "import torch, triton, triton.language as tl\n"
    for path, first, behind in parts:
        whole = pathlib.Path(path).read_text()
        begin = whole.index(first)
        text += whole[begin : None if behind is None else whole.index(behind, begin)] + "\n"
    file = pathlib.Path(tempfile.mkdtemp(), f"{name}.py")
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    vars(module).update(names)
    spec.loader.exec_module(module)
    return module


class OfVllm:
    """The experts by vLLM's Triton kernel. Its codes count from −8, the first of two in the low half of a byte, and its scales are by rows."""

    kernels = None

    def __init__(self, weights, k):
        self.k = k
        self.w13, self.w2 = (each.bitwise_xor(0x88) for each in (weights.w13, weights.w2))
        self.s13, self.s2 = (each.mT.contiguous() for each in (weights.s13, weights.s2))

    @classmethod
    def read(cls, path):
        """The kernels of vLLM's file."""
        cls.kernels = loaded("vllm_moe_kernels", [(path, "@triton.jit\ndef write_zeros_to_output", "def invoke_fused_moe_wna16_cuda_kernel")])

    def tables(self, ids, rows):
        """Tokens' experts in the order of the experts, each of which begins at a multiple of `rows`, the experts of tiles, and the number of places."""
        count, experts = ids.numel(), self.w13.shape[0]
        most = count + min(experts, count) * (rows - 1)
        most = -(-most // rows) * rows
        flat = ids.flatten()
        table = [torch.empty(size, dtype=torch.int32, device=ids.device) for size in (most, count, most // rows, experts)]
        of_rows, places, groups, ends = table
        library = ops.library(ids.get_device())
        # One block sorts few.
        options = {"experts": experts, "k": self.k, "tile": rows, "padded": True, **({"split": True} if count > 512 else {"chunk": max(256, count)})}
        library.call("moe_sort", ids=flat, rows=of_rows, places=places, groups=groups, ends=ends, options=options, sizes={"tokens": ids.shape[0]})
        # The kernel wants the number of a token's expert where ours has the token's.
        order = torch.full((most,), count, dtype=torch.int32, device=ids.device)
        order.scatter_(0, places.long(), torch.arange(count, dtype=torch.int32, device=ids.device))
        return order, groups, (ends[-1:] + rows - 1) // rows * rows, places

    def __call__(self, x, ids, shares):
        import triton
        import triton.language as tl

        tokens, k = ids.shape
        tiles = {"BLOCK_SIZE_M": 16 if tokens <= 20 else 32 if tokens <= 40 else 64, "GROUP_SIZE_M": 1}
        tiles |= {"BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64} if tokens == 1 else {"BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}
        rows = tiles["BLOCK_SIZE_M"]
        order, groups, padded, _ = self.tables(ids, rows)
        kind = tl.float16 if x.dtype == torch.float16 else tl.bfloat16

        def product(a, b, s, each, scaled):
            c = a.new_empty((tokens * k, b.shape[1]))
            depth = a.shape[1]
            grid = (triton.cdiv(order.shape[0], rows) * triton.cdiv(b.shape[1], tiles["BLOCK_SIZE_N"]),)
            self.kernels.fused_moe_kernel_gptq_awq[grid](
                a, b, c, s, None, shares, order, groups, padded, b.shape[1], depth, order.shape[0], a.shape[0] * each, a.stride(0), 1, b.stride(0), b.stride(2), b.stride(1),
                c.stride(0), 1, s.stride(0), s.stride(2), s.stride(1), 0, 0, 0, block_k_diviable=depth % tiles["BLOCK_SIZE_K"] == 0, group_size=GROUP,
                MUL_ROUTED_WEIGHT=scaled, top_k=each, compute_type=kind, has_zp=False, use_int4_w4a16=True, use_int8_w8a16=False, SPLIT_K=1, **tiles)  # fmt: skip
            return c

        both = product(x, self.w13, self.s13, k, False)
        h = both.new_empty((both.shape[0], both.shape[1] // 2))
        ops.library(x.get_device()).call("moe_gate", x=both, y=h)
        y = product(h, self.w2, self.s2, 1, True)
        return y.view(tokens, k, -1).sum(1)


class Layer:
    """A layer but for its experts, for one token of each sequence."""

    def __init__(self, shape, batch, room, dtype, device):
        self.shape = shape
        h, heads, q, c, t, p = (shape[name] for name in ("hidden", "heads", "queries", "latent", "turned", "plain"))
        self.norms = [torch.ones(n, dtype=dtype, device=device) for n in (h, h, q, c)]
        self.down_q, self.up_q, self.down_kv, self.out = (projection(*each, dtype, device) for each in ((q, h), (heads * (p + t), q), (c + t, h), (h, heads * p)))
        self.of_keys, self.of_values = (torch.randn(heads, *each, device=device).mul_(each[0] ** -0.5).to(dtype) for each in ((p, c), (c, p)))
        self.router = torch.randn(shape["experts"], h, device=device).mul_(h**-0.5).to(dtype)
        self.first, self.last = projection(2 * shape["intermediate"], h, dtype, device), projection(h, shape["intermediate"], dtype, device)
        self.cache = torch.randn(batch, room, c + t, device=device).to(dtype)
        angles = torch.rand(batch, 1, t // 2, device=device)
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def attended(self, y):
        heads, c, t, p = (self.shape[name] for name in ("heads", "latent", "turned", "plain"))
        q = self.up_q(tt.rms_norm(self.down_q(y), self.norms[2], EPS)).view(-1, heads, p + t)
        kv = self.down_kv(y)
        turned = tt.rope(torch.cat([q[..., p:], kv[:, None, c:]], 1).unsqueeze(1).contiguous(), self.cos, self.sin, interleaved=True)[:, 0]
        self.cache[:, -1, :c] = tt.rms_norm(kv[:, :c].contiguous(), self.norms[3], EPS)
        self.cache[:, -1, c:] = turned[:, heads]
        latent = torch.bmm(q[..., :p].transpose(0, 1), self.of_keys).transpose(0, 1)
        scores = torch.cat([latent, turned[:, :heads]], -1) @ self.cache.mT
        weights = torch.softmax(scores.float() * (p + t) ** -0.5, -1).to(y.dtype)
        values = torch.bmm((weights @ self.cache[..., :c]).transpose(0, 1), self.of_values).transpose(0, 1)
        return self.out(values.reshape(-1, heads * p))

    def __call__(self, x, experts):
        y, x = tt.rms_norm(self.attended(tt.rms_norm(x, self.norms[0], EPS)), self.norms[1], EPS, residual=x)
        ids, shares = tt.moe_routing(tt.linear(y, self.router).float(), self.shape["k"])
        gate, up = self.first(y).chunk(2, -1)
        return x + experts(y, ids, shares) + self.last(tt.swiglu(gate, up))


def far(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def replayed(step, tokens):
    """Milliseconds of a replay of a step as a graph, the median of three rounds of a third of the tokens."""
    for _ in range(2):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    times = []
    for _ in range(3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(max(1, tokens // 3)):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / max(1, tokens // 3))
    return statistics.median(times)


def measure(args):
    """Prints milliseconds of a token for each batch and stack, of all layers and of the experts alone."""
    dtype, shape, began = torch.float16, BIG, time.time()
    OfVllm.read(args.vllm)
    stacks = {"ours": [], "vLLM's Triton": []}
    for _ in range(args.layers):
        weights = Weights(shape, dtype, "cuda")
        stacks["ours"].append(Ours(weights, shape["k"]))
        stacks["vLLM's Triton"].append(OfVllm(weights, shape["k"]))
        del weights
    torch.cuda.synchronize()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {args.layers} layers, {torch.cuda.memory_allocated() / 1e9:.1f} GB, made in {time.time() - began:.1f} s", flush=True)
    for batch in map(int, args.batch.split(",")):
        layers = [Layer(shape, batch, args.context, dtype, "cuda") for _ in range(args.layers)]
        x, found = torch.randn(batch, shape["hidden"], device="cuda").to(dtype), {}
        ids, shares = tt.moe_routing(torch.randn(batch, shape["experts"], device="cuda"), shape["k"])
        apart = far(stacks["vLLM's Triton"][0](x, ids, shares), stacks["ours"][0](x, ids, shares))
        for name, experts in stacks.items():

            def step(experts=experts):
                y = x
                for layer, each in zip(layers, experts):
                    y = layer(y, each)
                return y

            def alone(experts=experts):
                for each in experts:
                    each(x, ids, shares)

            with torch.inference_mode():
                found[name] = replayed(step, args.steps), replayed(alone, args.steps)
            print(f"batch {batch}, {name}: {found[name][0]:.3f} ms a token, its experts alone {found[name][1]:.3f}", flush=True)
        (whole, part), (of_whole, of_part) = found["ours"], found["vLLM's Triton"]
        print(f"batch {batch}: {of_whole / whole:.3f} times as fast, experts {of_part / part:.3f}; experts {apart:.1e} apart", flush=True)


def check():
    """A step of small layers on the CPU, where experts are torch's."""
    torch.manual_seed(0)
    weights, layer = Weights(SMALL, torch.float32, "cpu"), Layer(SMALL, 3, 9, torch.float32, "cpu")
    y = layer(torch.randn(3, SMALL["hidden"]), Ours(weights, SMALL["k"]))
    print(f"a step of {tuple(y.shape)}, finite {bool(y.isfinite().all())}, of length {y.norm().item():.1f}")


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm", help="vLLM's fused_moe.py")
    parser.add_argument("--batch", default="1,8,32,64")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="tokens")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    check() if args.check else measure(args)


if __name__ == "__main__":
    main()
