#!/usr/bin/env python3
"""Attention backward (`attention_backward`) beside cuDNN and FlashAttention, as torch's autograd calls them, in one interleaved run.

    python3 bench/attention_backward.py --emit-launches launches      # no GPU: compiles only
    python3 bench/attention_backward.py --launches launches           # compiles nothing
    python3 bench/attention_backward.py --shapes 4,4096,16,16,128,causal --config "bm=64" "bm=64 overlap=true"

Needs torch. A shape is batches, places, heads of q, heads of k, elements of a head, and `full` or `causal`; tensors are [b, s, h, d]. Without --config each shape has the
forms of the list below. The time is that of all three launches. FLOPs are 10 · b · h · s² · d, half of it where causal, also of the form that computes seven products.
The ratio is the faster peer's time over ours.
"""

import argparse

import attention
import common

SHAPES = [(16384 // s, s, 2048 // d, 2048 // d, d, mask) for d in (128, 64) for s in (16384, 4096, 1024) for mask in ("full", "causal")]
SHAPES += [(4, 4096, 32, 8, 128, "causal"), (3, 5000, 16, 16, 128, "causal"), (2, 4096, 16, 16, 96, "full")]
CONFIGS = {
    (64, "full"): ["bm=96 keys_in_registers=true", "deterministic=true"],
    (64, "causal"): ["bm=96 keys_in_registers=true", "deterministic=true"],
    (128, "full"): ["bm=64 bulk=true", "deterministic=true"],
    (128, "causal"): ["bm=64 overlap=true", "", "deterministic=true"],
}


def job_of(shape, config, dtype):
    """What to compile."""
    return {**attention.job_of(shape, config, dtype), "operator": "attention_backward"}


def flops_of(shape):
    """Operations of the five products."""
    return attention.flops_of(shape) * 5 // 2


def given_of(shape, dtype):
    """q, k, v, o, dout [b, s, h, d] and lse [b, h, s]."""
    import torch

    b, s, hq, hk, d, mask = shape
    q, dout = (torch.randn(b, s, hq, d, device="cuda", dtype=dtype) for _ in range(2))
    k, v = (torch.randn(b, s, hk, d, device="cuda", dtype=dtype) for _ in range(2))
    heads = [t.repeat_interleave(hq // t.shape[2], 2).transpose(1, 2) for t in (q, k, v)]
    o, lse = torch.ops.aten._scaled_dot_product_flash_attention(*heads, 0.0, mask == "causal")[:2]
    return {"q": q, "k": k, "v": v, "o": o.transpose(1, 2).contiguous(), "dout": dout, "lse": lse[:, :, :s].float().contiguous()}


def peers_of(shape, given):
    """(name, run) of torch's ways; a run gives dq, dk and dv."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    found, missing = [], []
    for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
        try:
            leaves = [given[t].detach().clone().requires_grad_() for t in ("q", "k", "v")]
            with sdpa_kernel(backend):
                options = {"is_causal": shape[5] == "causal", "enable_gqa": shape[2] != shape[3]}
                heads_first = [t.transpose(1, 2) for t in leaves]
                o = torch.nn.functional.scaled_dot_product_attention(*heads_first, **options).transpose(1, 2)

            def run(o=o, leaves=leaves):
                return torch.autograd.grad(o, leaves, given["dout"], retain_graph=True)

            run()
            found.append((name, run))
        except RuntimeError as error:
            missing.append(f"{name}: {str(error).splitlines()[0]}")
    return found, missing


def exact_of(shape, given, batch, of_key):
    """dq of the heads that share a head of k, dk and dv of that, in f64."""
    import torch

    _, s, hq, hk, d, mask = shape
    group = range(of_key * (hq // hk), (of_key + 1) * (hq // hk))
    k, v = (given[name][batch, :, of_key].double() for name in ("k", "v"))
    dq, dk, dv = [], torch.zeros_like(k), torch.zeros_like(v)
    for head in group:
        rows = []
        for first in range(0, s, 1024):
            q, dout = (given[name][batch, first : first + 1024, head].double() for name in ("q", "dout"))
            scores = q @ k.T / d**0.5
            if mask == "causal":
                places = torch.arange(first, first + scores.shape[0], device="cuda")[:, None]
                scores.masked_fill_(torch.arange(s, device="cuda")[None, :] > places, float("-inf"))
            p = torch.softmax(scores, 1)
            dp = dout @ v.T
            ds = p * (dp - (p * dp).sum(1, keepdim=True)) / d**0.5
            rows.append(ds @ k)
            dk += ds.T @ q
            dv += p.T @ dout
        dq.append(torch.cat(rows))
    return torch.stack(dq, 1), dk, dv


def measure(args, shape, jobs, launches, modules, clock, file):
    """Checks and times one shape; how many configurations are wrong."""
    import torch

    b, s, hq, hk, d, mask = shape
    label, dtype, wrong, ours = "x".join(map(str, shape)), common.torch_type(args.dtype), 0, []
    given = given_of(shape, dtype)
    found, missing = peers_of(shape, given)
    for note in missing:
        print(f"{label:<28} without {note}", flush=True)
    places = [(0, 0), (b - 1, hk - 1)]
    exact = [exact_of(shape, given, *place) for place in places]

    def errors_of(gradients):
        worst = [0.0, 0.0, 0.0]
        for (batch, of_key), wanted in zip(places, exact):
            group = slice(of_key * (hq // hk), (of_key + 1) * (hq // hk))
            parts = (gradients[0][batch, :, group], gradients[1][batch, :, of_key], gradients[2][batch, :, of_key])
            worst = [max(w, float((part.double() - want).norm() / want.norm())) for w, part, want in zip(worst, parts, wanted)]
        return worst

    errors = {name: errors_of(run()) for name, run in found}
    theirs = found[0][1]() if found else None
    limit = 2e-3 if dtype == torch.float16 else 1.5e-2
    for job, each in zip(jobs, launches):
        clock.watch(f"{label} {job['config'] or 'default'}")
        out = [torch.empty_like(given[name]) for name in ("q", "k", "v")]
        plan = common.Plan(each, modules, {**given, "dq": out[0], "dk": out[1], "dv": out[2]}, {"scale": d**-0.5}, {})

        def fresh():
            for tensor in out:
                common.poison(tensor)
            plan()
            torch.cuda.synchronize()
            return [tensor.clone() for tensor in out]

        first, notes = fresh(), list(plan.notes)
        error = errors_of(first)
        apart = max(float((mine.double() - other.double()).norm() / other.double().norm()) for mine, other in zip(first, theirs)) if theirs else 0.0
        exactly = [0, 1, 2] if "deterministic=true" in job["config"] else [1, 2]
        for _ in range(args.repeat):
            again = fresh()
            if not all(torch.equal(again[i], first[i]) for i in exactly) or not max(errors_of(again)) < limit:
                notes.append("launches differ")
        if "launches differ" in notes or not max(error) < limit or not apart < 2 * limit:
            notes.append(f"WRONG: {apart:.1e} from {found[0][0] if found else 'nothing'}")
            wrong += 1
        ours.append((job, plan, error, notes))
    common.raced(
        clock, args, shape, label, found, ours, file,
        head=lambda job, error: f"{label:<28} {job['config'] or 'default':<30} " + " ".join(f"{e:.1e}" for e in error),
        speed=lambda job, ms: f"{ms:8.4f} ms {flops_of(shape) / ms / 1e9:5.0f} TFLOP/s",
        shown=lambda name, ms: f"{name} {ms:.4f}",
        more=lambda plan, error: {"errors": error, "peer_errors": errors, "registers": [kernel.registers for kernel in plan.kernels]},
    )  # fmt: skip
    return wrong


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", type=attention.shape_of, default=SHAPES, metavar="B,S,HQ,HK,D,MASK")
    parser.add_argument("--dtype", default="f16", choices=["f16", "bf16"])
    parser.add_argument("--config", nargs="+", metavar="WORDS", help="configurations instead of those of the list")
    return common.parsed(parser, repeat=3)


def main():
    args = arguments()
    todo = []
    for shape in args.shapes:
        configs = args.config or CONFIGS.get((shape[4], shape[5]), [""])
        todo.append((shape, [job_of(shape, config, args.dtype) for config in configs]))
    ready, failed = common.ready_of(todo, args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)

    common.measured(ready, failed, args, measure)


if __name__ == "__main__":
    main()
