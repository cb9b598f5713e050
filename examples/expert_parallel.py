#!/usr/bin/env python3
"""A layer of experts over several GPUs by Tilewright's operators and torch.distributed: each GPU has a part of the experts, and tokens travel to those that they choose.

    torchrun --nproc-per-node 2 examples/expert_parallel.py                      # NCCL, on GPUs: compared with the whole layer, and timed beside torch's own products
    torchrun --nproc-per-node 2 examples/expert_parallel.py --device cpu         # gloo, on any machine: compared with the whole layer

The router sees the tokens of its GPU alone (`moe_routing`). A token goes to a GPU once for each expert there that it chose; the GPUs first tell each other how many come. There the layer is one call of
`tt.moe` with one expert a row, and what comes back is weighted and added where the token lives. Gradients travel the same ways backwards.
"""

import argparse
import os
import statistics

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import tilewright.torch as tt


class Exchanged(torch.autograd.Function):
    """Rows sent to all GPUs, so many to each, and those received. Gradients go back."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.counts = received, sent
        whole = rows.new_empty((sum(received), *rows.shape[1:]))
        dist.all_to_all_single(whole, rows.contiguous(), received, sent)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        return Exchanged.apply(gradient, *ctx.counts), None, None


class ExpertParallel(nn.Module):
    """This GPU's part of a layer of experts: the router, which all have, and its share of the experts' weights."""

    def __init__(self, router, w13, w2, k):
        super().__init__()
        self.world, self.k = dist.get_world_size(), k
        self.router = nn.Parameter(router.detach().clone())
        self.w13, self.w2 = (nn.Parameter(each.detach().chunk(self.world)[dist.get_rank()].clone()) for each in (w13, w2))

    def products(self, x, ids):
        """The result of one expert for each row."""
        return tt.moe(x, ids.unsqueeze(1), torch.ones(x.shape[0], 1, dtype=torch.float32, device=x.device), self.w13, self.w2)

    def forward(self, x):
        logits = tt.linear(x, self.router)
        ids, _ = tt.moe_routing(logits.detach().float(), self.k)
        weights = functional.softmax(logits.float(), -1).gather(1, ids.long())
        weights = weights / weights.sum(1, keepdim=True)
        # Rows by the experts' GPUs, those of a GPU one behind the other.
        share = self.w13.shape[0]
        owner = ids.flatten() // share
        order = torch.argsort(owner, stable=True)
        counts = torch.bincount(owner, minlength=self.world)
        coming = torch.empty_like(counts)
        dist.all_to_all_single(coming, counts)
        sent, received = counts.tolist(), coming.tolist()
        token = order // self.k
        rows = Exchanged.apply(x[token], sent, received)
        chosen = ids.flatten()[order] % share
        of_rows = chosen.new_empty(sum(received))
        dist.all_to_all_single(of_rows, chosen, received, sent)
        back = Exchanged.apply(self.products(rows, of_rows), received, sent)
        made = back * weights.flatten()[order].unsqueeze(1)
        return torch.zeros_like(x, dtype=made.dtype).index_add(0, token, made).to(x.dtype)


class OfTorch(ExpertParallel):
    """The same with torch's products, an expert after the other."""

    def products(self, x, ids):
        order = torch.argsort(ids, stable=True)
        parts = x[order].split(torch.bincount(ids, minlength=self.w13.shape[0]).tolist())
        made = []
        for rows, units, down in zip(parts, self.w13, self.w2):
            gate, up = functional.linear(rows, units.flatten(0, 1)).chunk(2, -1)
            made.append(functional.linear(functional.silu(gate) * up, down))
        return torch.cat(made)[torch.argsort(order)]


def whole(x, router, w13, w2, k):
    """The layer by torch on one GPU, an expert after the other: the reference."""
    weights = functional.softmax(functional.linear(x, router).float(), -1)
    shares, ids = weights.topk(k, -1)
    shares = shares / shares.sum(1, keepdim=True)
    y = torch.zeros_like(x, dtype=torch.promote_types(shares.dtype, x.dtype))
    for expert in range(w13.shape[0]):
        token, place = (ids == expert).nonzero(as_tuple=True)
        gate, up = (functional.linear(x[token], each) for each in w13[expert])
        made = functional.linear(functional.silu(gate) * up, w2[expert])
        y = y.index_add(0, token, (made * shares[token, place].unsqueeze(1)).to(y.dtype))
    return y.to(x.dtype)


def far(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def compared(given, k, tokens, bound):
    """Compares results and gradients with those of the whole layer."""
    rank, world = dist.get_rank(), dist.get_world_size()
    leaves = [each.detach().clone().requires_grad_() for each in given]
    torch.manual_seed(1)
    x = torch.randn(tokens, given[0].shape[1], dtype=given[0].dtype, device=given[0].device).requires_grad_()
    slope = torch.randn_like(x)
    wanted = whole(x, *leaves, k)
    wanted.backward(slope)
    part, local = ExpertParallel(*given, k), x.detach().chunk(world)[rank].clone().requires_grad_()
    y = part(local)
    y.backward(slope.chunk(world)[rank])
    # The router sees the tokens of each.
    dist.all_reduce(part.router.grad)
    pairs = {
        "results": (y.detach(), wanted.detach().chunk(world)[rank]),
        "gradients of tokens": (local.grad, x.grad.chunk(world)[rank]),
        "of the router": (part.router.grad, leaves[0].grad),
        "of the first products' weights": (part.w13.grad, leaves[1].grad.chunk(world)[rank]),
        "of the second's": (part.w2.grad, leaves[2].grad.chunk(world)[rank]),
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


def drawn(experts, hidden, intermediate, dtype, device):
    """A router's weights and those of experts, alike on all GPUs."""
    torch.manual_seed(0)
    shapes = ((experts, hidden), (experts, 2, intermediate, hidden), (experts, hidden, intermediate))
    return [torch.randn(*shape, dtype=torch.float32, device=device).mul_(shape[-1] ** -0.5).to(dtype) for shape in shapes]


def measure(tokens, k, **sizes):
    """Prints milliseconds of a layer, forward and with gradients, ours and by torch's products."""
    given = drawn(**sizes, dtype=torch.bfloat16, device="cuda")
    for name, form in (("ours", ExpertParallel), ("torch's products", OfTorch)):
        layer = form(*given, k)
        x = torch.randn(tokens // dist.get_world_size(), sizes["hidden"], dtype=torch.bfloat16, device="cuda", requires_grad=True)
        slope = torch.randn_like(x)

        def forward():
            with torch.no_grad():
                layer(x)

        times = timed(forward), timed(lambda: layer(x).backward(slope))
        if dist.get_rank() == 0:
            print(f"{tokens} tokens, {k} of {sizes['experts']} experts, {name}: forward {times[0]:.3f} ms, with gradients {times[1]:.3f}", flush=True)


def main():
    """One of the processes that torchrun starts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tokens", default="512,8192", help="numbers of tokens that are timed")
    args = parser.parse_args()
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    if args.device == "cpu":
        right = compared(drawn(8, 16, 12, torch.float64, "cpu"), 2, 24, 1e-6)
    else:
        right = compared(drawn(8, 512, 256, torch.bfloat16, "cuda"), 2, 512, 2e-2)
        for tokens in map(int, args.tokens.split(",")):
            measure(tokens, 8, experts=64, hidden=2048, intermediate=1408)
    dist.destroy_process_group()
    if not right:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
