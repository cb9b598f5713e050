#!/usr/bin/env python3
"""A transformer's block over several GPUs by Tilewright's operators and torch.distributed: columns and rows of weights in parallel, words in parallel between them.

    torchrun --nproc-per-node 2 examples/tensor_parallel.py                      # NCCL, on GPUs: compared with the whole block, and timed beside torch's own
    torchrun --nproc-per-node 2 examples/tensor_parallel.py --device cpu         # gloo, on any machine: compared with the whole block

Each GPU has a part of the heads and of the units between both products of the MLP, and of the words between them (sequence parallel: Korthikanti et al., *Reducing Activation Recomputation in Large
Transformer Models*). What a product reads is gathered, and what it makes is scattered as sums, in chunks: while one chunk is on its way another is multiplied.

Words lie by chunks: of each chunk of the sequence every GPU has its share, so that the chunks that are gathered one after another are the sequence in its order, and nothing is copied.
"""

import argparse
import os
import statistics

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import tilewright.torch as tt
from tilewright import ops

EPS = 1e-5


def product(x, weight, out, options, more=False):
    """``out = x · weightᵀ``, or with `more` added to what is there."""
    if not x.is_cuda:
        return out.add_(x @ weight.T) if more else torch.matmul(x, weight.T, out=out)
    lying = {} if weight.is_contiguous() else {"b": "n"}
    added = {"epilogue": "beta"} if more else {}
    numbers = {"beta": 1.0} if more else {}
    ops.library(x.get_device()).call("gemm", a=x, b=weight, c=out, options={**options, **lying, **added}, **numbers)
    return out


class Chunked:
    """Products whose operands or results are on their way in chunks. `spared` multiprocessors are left to what moves them."""

    def __init__(self, chunks=4, spared=0):
        self.world, self.chunks = dist.get_world_size(), chunks
        count = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count if torch.cuda.is_available() and spared else 0
        self.options = {"sm_count": count - spared} if count else {}

    def shared(self, whole):
        """The words of this GPU of all, by chunks."""
        parts = whole.unflatten(0, (self.chunks, self.world, -1))
        return parts[:, dist.get_rank()].flatten(0, 1).contiguous()

    def gathered(self, x, weights):
        """The products of all GPUs' words with weights, and the words."""
        parts = x.unflatten(0, (self.chunks, -1))
        step = parts.shape[1]
        whole = x.new_empty((self.chunks, self.world * step, x.shape[1]))
        works = [dist.all_gather_into_tensor(each, part, async_op=True) for each, part in zip(whole, parts)]
        results = [x.new_empty((self.chunks, self.world * step, weight.shape[0])) for weight in weights]
        for at, work in enumerate(works):
            work.wait()
            for weight, result in zip(weights, results):
                product(whole[at], weight, result[at], self.options)
        return [result.flatten(0, 1) for result in results], whole.flatten(0, 1)

    def scattered(self, pairs):
        """The sums over all GPUs of their products ``Σ x · weightᵀ``, of this GPU's words."""
        parts = [(x.unflatten(0, (self.chunks, -1)), weight) for x, weight in pairs]
        first, weight = parts[0]
        out = first.new_empty((self.chunks, first.shape[1] // self.world, weight.shape[0]))
        # Each chunk of sums stays until it has been sent.
        shares = first.new_empty((self.chunks, first.shape[1], weight.shape[0]))
        works = []
        for at in range(self.chunks):
            for number, (x, weight) in enumerate(parts):
                product(x[at], weight, shares[at], self.options, number > 0)
            works.append(dist.reduce_scatter_tensor(out[at], shares[at], async_op=True))
        for work in works:
            work.wait()
        return out.flatten(0, 1)


class ColumnParallel(torch.autograd.Function):
    """``all words · weightᵀ`` for each weight, of words of each GPU and its rows of the weights (which are columns of weightᵀ)."""

    @staticmethod
    def forward(ctx, x, chunked, *weights):
        results, whole = chunked.gathered(x, weights)
        ctx.chunked = chunked
        ctx.save_for_backward(whole, *weights)
        return tuple(results)

    @staticmethod
    def backward(ctx, *gradients):
        whole, *weights = ctx.saved_tensors
        gradients = [gradient.contiguous() for gradient in gradients]
        of_x = ctx.chunked.scattered([(gradient, weight.T) for gradient, weight in zip(gradients, weights)])
        return of_x, None, *(tt.linear(gradient.T, whole.T) for gradient in gradients)


class RowParallel(torch.autograd.Function):
    """The sums of ``x · weightᵀ`` over all GPUs, of the words of each, of its columns of x and of the weight."""

    @staticmethod
    def forward(ctx, x, chunked, weight):
        ctx.chunked = chunked
        ctx.save_for_backward(x, weight)
        return chunked.scattered([(x.contiguous(), weight)])

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        (of_x,), whole = ctx.chunked.gathered(gradient.contiguous(), [weight.T])
        return of_x, None, tt.linear(whole.T, x.T)


class Block(nn.Module):
    """A block as torch has it, whole: the reference, and what torch's own parallel form is made of."""

    def __init__(self, h, heads, shared, units, dtype, device):
        super().__init__()
        self.d = h // heads
        given = {"bias": False, "dtype": dtype, "device": device}
        self.norm1, self.norm2 = (nn.RMSNorm(h, EPS, dtype=dtype, device=device) for _ in range(2))
        self.q, self.k, self.v = nn.Linear(h, h, **given), nn.Linear(h, shared * self.d, **given), nn.Linear(h, shared * self.d, **given)
        self.out = nn.Linear(h, h, **given)
        self.gate, self.up, self.down = nn.Linear(h, units, **given), nn.Linear(h, units, **given), nn.Linear(units, h, **given)

    def attend(self, y):
        """Attention over one sequence, of the heads that the weights have."""
        q, k, v = (layer(y).unflatten(-1, (-1, self.d)).transpose(-3, -2) for layer in (self.q, self.k, self.v))
        o = functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]
        return self.out(o.transpose(-3, -2).flatten(-2))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class ParallelBlock(nn.Module):
    """This GPU's part of a block, by Tilewright's operators."""

    def __init__(self, whole, chunked):
        super().__init__()
        self.d, self.chunked = whole.d, chunked

        def rows(*layers):
            parts = [layer.weight.detach().chunk(chunked.world, 0)[dist.get_rank()] for layer in layers]
            return nn.Parameter(torch.cat(parts).contiguous())

        def columns(layer):
            return nn.Parameter(layer.weight.detach().chunk(chunked.world, 1)[dist.get_rank()].contiguous())

        self.norm1, self.norm2 = (nn.Parameter(norm.weight.detach().clone()) for norm in (whole.norm1, whole.norm2))
        self.qkv, self.out = rows(whole.q, whole.k, whole.v), columns(whole.out)
        self.heads = [layer.weight.shape[0] // self.d // chunked.world for layer in (whole.q, whole.k, whole.v)]
        self.gate, self.up, self.down = rows(whole.gate), rows(whole.up), columns(whole.down)

    def forward(self, x):
        y = tt.rms_norm(x, self.norm1, EPS)
        (qkv,) = ColumnParallel.apply(y, self.chunked, self.qkv)
        q, k, v = qkv.unflatten(-1, (-1, self.d)).split(self.heads, 1)
        o = tt.attention(q[None], k[None], v[None], causal=True)[0]
        y, x = tt.rms_norm(RowParallel.apply(o.flatten(1), self.chunked, self.out), self.norm2, EPS, residual=x)
        units = ColumnParallel.apply(y, self.chunked, self.gate, self.up)
        return x + RowParallel.apply(tt.swiglu(*units), self.chunked, self.down)


def of_torch(whole, device):
    """The block by torch's own tensor parallelism, with words in parallel."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module

    mesh = init_device_mesh(device, (dist.get_world_size(),))
    gathered = {"input_layouts": (Shard(0),), "desired_input_layouts": (Replicate(),)}

    class Attention(nn.Module):
        def __init__(self, block):
            super().__init__()
            self.q, self.k, self.v, self.out, self.d = block.q, block.k, block.v, block.out, block.d

        forward = Block.attend

    class Mlp(nn.Module):
        def __init__(self, block):
            super().__init__()
            self.gate, self.up, self.down = block.gate, block.up, block.down

        def forward(self, y):
            return self.down(functional.silu(self.gate(y)) * self.up(y))

    class Own(nn.Module):
        def __init__(self, block):
            super().__init__()
            self.norm1, self.norm2, self.attention, self.mlp = block.norm1, block.norm2, Attention(block), Mlp(block)

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    scattered = RowwiseParallel(output_layouts=Shard(0))
    plan = {"norm1": SequenceParallel(sequence_dim=0), "norm2": SequenceParallel(sequence_dim=0)}
    plan |= {"attention": PrepareModuleInput(**gathered), "mlp": PrepareModuleInput(**gathered), "attention.out": scattered, "mlp.down": scattered}
    plan |= {name: ColwiseParallel() for name in ("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up")}
    return parallelize_module(Own(whole), mesh, plan)


def far(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def compared(whole, part, chunked, words, bound):
    """Compares results and gradients with those of the whole block."""
    torch.manual_seed(1)
    x = torch.randn(words, whole.norm1.weight.shape[0], dtype=whole.norm1.weight.dtype, device=whole.norm1.weight.device)
    slope = torch.randn_like(x)
    x.requires_grad_()
    wanted = whole(x)
    wanted.backward(slope)
    local = chunked.shared(x.detach()).requires_grad_()
    y = part(local)
    y.backward(chunked.shared(slope))
    rank = dist.get_rank()
    # Weights that all have see the words of each.
    dist.all_reduce(part.norm1.grad)
    pairs = {
        "results": (y.detach(), chunked.shared(wanted.detach())),
        "gradients of words": (local.grad, chunked.shared(x.grad)),
        "of a norm": (part.norm1.grad, whole.norm1.weight.grad),
        "of rows": (part.gate.grad, whole.gate.weight.grad.chunk(chunked.world, 0)[rank]),
        "of columns": (part.down.grad, whole.down.weight.grad.chunk(chunked.world, 1)[rank]),
        "of heads": (part.qkv.grad[: part.heads[0] * part.d], whole.q.weight.grad.chunk(chunked.world, 0)[rank]),
    }
    errors = {name: far(a, b) for name, (a, b) in pairs.items()}
    right = torch.tensor([float(all(error < bound for error in errors.values()))], device=x.device)
    dist.all_reduce(right, dist.ReduceOp.MIN)
    if rank == 0:
        print(("right: " if right.item() else "WRONG: ") + ", ".join(f"{name} {error:.1e}" for name, error in errors.items()), flush=True)
    return bool(right.item())


def timed(step, rounds=15):
    """Milliseconds of a step, the median of some rounds."""
    for _ in range(4):
        step()
    times = []
    for _ in range(rounds):
        dist.barrier()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def measure(whole, h, words, spared):
    """Prints milliseconds of a block, forward and with gradients: ours by numbers of chunks, torch's own."""
    dtype = whole.norm1.weight.dtype

    def both(block, rows):
        x = torch.randn(rows, h, dtype=dtype, device="cuda", requires_grad=True)
        slope = torch.randn_like(x)

        def forward():
            with torch.no_grad():
                block(x)

        def step():
            block(x).backward(slope)

        return timed(forward), timed(step)

    rank, world = dist.get_rank(), dist.get_world_size()
    for chunks, left in [(1, 0)] + [(chunks, left) for chunks in (2, 4, 8) for left in sorted({0, spared})]:
        chunked = Chunked(chunks, left)
        forward, step = both(ParallelBlock(whole, chunked), words // world)
        if rank == 0:
            print(f"{words} words, ours, {chunks} chunks, {left} multiprocessors spared: forward {forward:.3f} ms, with gradients {step:.3f}", flush=True)
    plain = of_torch(whole, "cuda")
    for name, form in (("torch's", plain), ("torch's compiled", torch.compile(plain))):
        try:
            forward, step = both(form, words // world)
            if rank == 0:
                print(f"{words} words, {name}: forward {forward:.3f} ms, with gradients {step:.3f}", flush=True)
        except Exception as error:  # a form that this version of torch lacks says so
            if rank == 0:
                print(f"{name}: {type(error).__name__}: {str(error)[:400]}", flush=True)


def main():
    """One of the processes that torchrun starts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--words", default="4096,16384", help="numbers of words that are timed")
    parser.add_argument("--spared", type=int, default=8, help="multiprocessors that are left to what moves words")
    args = parser.parse_args()
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    small = {"h": 64, "heads": 4, "shared": 2, "units": 96} if args.device == "cpu" else {"h": 512, "heads": 8, "shared": 4, "units": 1024}
    torch.manual_seed(0)
    whole = Block(**small, dtype=torch.float64 if args.device == "cpu" else torch.bfloat16, device=args.device)
    right = True
    for chunks in (1, 2, 4):
        whole.zero_grad()
        chunked = Chunked(chunks)
        right &= compared(whole, ParallelBlock(whole, chunked), chunked, 32 if args.device == "cpu" else 512, 1e-10 if args.device == "cpu" else 2e-2)
    chunked = Chunked(1)
    x = torch.randn(32, small["h"], dtype=whole.norm1.weight.dtype, device=args.device)
    with torch.no_grad():
        wanted = chunked.shared(whole(x))
        error = far(of_torch(whole, args.device)(chunked.shared(x)), wanted)
    if dist.get_rank() == 0:
        print(f"torch's own: results {error:.1e}", flush=True)
    if args.device == "cuda":
        big = {"h": 4096, "heads": 32, "shared": 8, "units": 14336}
        for words in map(int, args.words.split(",")):
            measure(Block(**big, dtype=torch.bfloat16, device="cuda"), big["h"], words, args.spared)
    dist.destroy_process_group()
    if not right:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
