#!/usr/bin/env python3
"""Times Tilewright beside Triton in TritonBench: operators of Fig. 9 and Table 6 of *Linear Layouts*, at the suite's own inputs.

    git clone https://github.com/meta-pytorch/tritonbench && git -C tritonbench checkout db2155c807755c19f5d98c64917ec897f24061f3
    python3 bench/triton_suite.py tritonbench --operators softmax,gemm --most 40

Our implementations are registered with the suite as the backend `tilewright`; the suite's operators make the inputs and Triton's callables. Each case is compared with Triton's result, and timed in turns
with it (`triton.testing.do_bench`, the cache emptied before each call). A line a case, with both times and Triton's over ours; then for each operator the geometric mean and the least.
`addmm` needs `generative_recommenders` (facebookresearch/generative-recommenders) on the path, whose kernel is the suite's.
"""

import argparse
import concurrent.futures
import importlib
import inspect
import math
import os
import sys
import time
import traceback

import torch

import tilewright
import tilewright.torch as tt
from tilewright import bf16, const, f32, i16, i32, ops, size

def launch(operator, **given):
    ops.library(0).call(operator, **given)


def unscaled(weight):
    """Integers [k, n] from −8 to 7 as a layer whose scales are 1."""
    codes = weight.T.contiguous() & 15
    k, n = weight.shape
    return tt.LinearW4((codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8), torch.ones(k // 128, n, dtype=torch.bfloat16, device=weight.device))


@tilewright.kernel
def add(t, x: f32["n"], y: f32["n"], z: f32["n"], n: size = 4096, BN: const = 2048):
    t.grid(t.ceil_div(n, BN))
    t.threads(128)
    gx, gy, gz = (t.global_view(each[t.block.x * BN :], (BN,), name=name) for each, name in ((x, "gx"), (y, "gy"), (z, "gz")))
    a, b = t.register_tensor(f32, [BN]), t.register_tensor(f32, [BN])
    t.copy(gx, a)
    t.copy(gy, b)
    t.copy(a + b, gz)


@tilewright.kernel
def rounded(t, x: i16["n"], y: bf16["n"], n: size = 4096, BN: const = 2048):
    """Integers as numbers of 8 bits."""
    t.grid(t.ceil_div(n, BN))
    t.threads(128)
    gx, gy = (t.global_view(each[t.block.x * BN :], (BN,), name=name) for each, name in ((x, "gx"), (y, "gy")))
    a = t.register_tensor(i16, [BN])
    t.copy(gx, a)
    t.copy(t.cast(t.cast(a, f32), bf16), gy)


def of_sequence(t, tensor, first, last, across, rows, BM, BN, name):
    """The columns of a block of one sequence, in groups of rows."""
    return t.global_view(tensor[first:last, t.block.x * BN :], (BM, BN, t.ceil_div(rows, BM)), ("e0", "e1", "BM * e0"), name=name)


@tilewright.kernel
def softmax_of_sequences(t, x: f32["rows", "n"], begins: i32["ends"], y: f32["rows", "n"], rows: size = 64, n: size = 100, ends: size = 4, BM: const = 16, BN: const = 64):
    """Softmax over the rows of each sequence, column by column: one pass for maxima and sums, one for the results."""
    t.grid(t.ceil_div(n, BN), ends - 1)
    t.threads(128)
    first = t.let(t.min(t.max(begins[t.block.y], 0), rows), name="first")
    last = t.let(t.min(t.max(begins[t.block.y + 1], first), rows), name="last")
    gx, gy = (of_sequence(t, each, first, last, n, rows, BM, BN, name) for each, name in ((x, "gx"), (y, "gy")))
    most, sums = t.register_tensor(f32, [BM, BN]), t.register_tensor(f32, [BM, BN])
    t.fill(most, -1e30)
    t.fill(sums, 0.0)
    for i in t.range(t.ceil_div(last - first, BM)):
        r = t.register_tensor(f32, [BM, BN])
        t.copy(gx[:, :, i], r, outside=float("-inf"))
        grown = t.max(most, r)
        sums[:] = sums * t.exp(most - grown) + t.exp(r - grown)
        most[:] = 1.0 * grown
    top = t.reduce(most, "max", 0)
    factor = 1.0 / t.reduce(sums * t.exp(most - t.expand(top, 0)), "sum", 0)
    for j in t.range(t.ceil_div(last - first, BM)):
        again = t.register_tensor(f32, [BM, BN])
        t.copy(gx[:, :, j], again)
        t.copy(t.exp(again - t.expand(top, 0)) * t.expand(factor, 0), gy[:, :, j])


@tilewright.kernel
def norm_of_sequences(t, x: f32["rows", "n"], begins: i32["ends"], y: f32["rows", "n"], rows: size = 64, n: size = 100, ends: size = 4, BM: const = 64, BN: const = 128):
    """Elements of each sequence less their mean over their deviation, by a block with all columns; sums in one pass, of distances from the sequence's first element."""
    t.grid(ends - 1)
    t.threads(512)
    first = t.let(t.min(t.max(begins[t.block.x], 0), rows), name="first")
    last = t.let(t.min(t.max(begins[t.block.x + 1], first), rows), name="last")
    gx, gy = (t.global_view(each[first:last, :], (BM, BN, t.ceil_div(rows, BM)), ("e0", "e1", "BM * e0"), name=name) for each, name in ((x, "gx"), (y, "gy")))
    gc = t.global_view(x[first:last, :], (1,))
    near = t.register_tensor(f32, [1])
    t.copy(gc, near)
    sums, squares = t.register_tensor(f32, [BM, BN]), t.register_tensor(f32, [BM, BN])
    t.fill(sums, 0.0)
    t.fill(squares, 0.0)
    for i in t.range(t.ceil_div(last - first, BM)):
        r = t.register_tensor(f32, [BM, BN])
        t.copy(gx[:, :, i], r)
        far = t.where(t.and_(i * BM + t.index(0) < last - first, t.index(1) < n), r - t.expand(t.broadcast(near, [BM]), 1), 0.0)
        sums += far
        squares += far * far
    share = 1.0 / t.float(t.max((last - first) * n, 1))
    mean = t.reduce(t.reduce(sums, "sum", 1), "sum", 0) * share
    scale = t.rsqrt(t.reduce(t.reduce(squares, "sum", 1), "sum", 0) * share - mean * mean + 1e-6)
    centre = mean + near
    for j in t.range(t.ceil_div(last - first, BM)):
        again = t.register_tensor(f32, [BM, BN])
        t.copy(gx[:, :, j], again)
        t.copy((again - t.expand(t.broadcast(centre, [BM]), 1)) * t.expand(t.broadcast(scale, [BM]), 1), gy[:, :, j])


# Each takes the suite's operator and its inputs, and returns a call without arguments.


def softmax(op, x):
    y = torch.empty_like(x)
    return lambda: (launch("softmax", x=x, y=y), y)[1]


def layer_norm(op, x, shape, weight, bias, eps):
    return lambda: tt.layer_norm(x, weight, bias, eps)


def rms_norm(op, h, x):
    weight = torch.ones(h, dtype=x.dtype, device=x.device)
    return lambda: tt.rms_norm(x, weight, op.eps)


def welford(op, weight, bias, x):
    return lambda: tt.layer_norm(x, weight, bias, 1e-5)


def rope(op, hidden, places):
    q, k, cos, sin, _ = op.prepare_input(hidden, places)
    half = cos.shape[-1] // 2
    angles = [each[..., :half].to(q.dtype).contiguous() for each in (cos, sin)]
    # Words before heads, as projections give them: the suite's tensors have heads first.
    given = [each.detach().transpose(1, 2).contiguous() for each in (q, k)]
    return lambda: tuple(tt.rope(each, *angles).transpose(1, 2) for each in given)


class Angles:
    """The rotary embedding of `transformers` as the suite asks for it; later versions take a configuration."""

    def __init__(self, d, device):
        self.steps = 1.0 / 10000.0 ** (torch.arange(0, d, 2, dtype=torch.float32, device=device) / d)

    def __call__(self, x, places):
        both = (places[..., None] * self.steps).repeat(1, 1, 2)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)


def embedding(op, v, d, ids, weight):
    flat, y = ids.flatten().int(), torch.empty((*ids.shape, d), dtype=weight.dtype, device=weight.device)
    return lambda: (launch("embedding", w=weight, ids=flat, y=y.view(-1, d)), y)[1]


def cross_entropy(op, x, target):
    x, target = x.detach(), target.int()
    return lambda: tt.cross_entropy(x, target)


def unit(gate):
    def made(op, x):
        layer = getattr(op, "liger_op", None) or op.liger_model
        both = torch.stack([layer.gate_proj.weight, layer.up_proj.weight]).detach()
        down, x = layer.down_proj.weight.detach(), x.detach()
        return lambda: tt.linear(tt.gated_linear(x, both, gate), down)

    return made


def gemm(op, a, b, bias):
    return lambda: tt.linear(a, b.T, bias)


def addmm(op, a, x, y):
    # An addend with a row for all is a residual.
    return lambda: tt.add_linear(a, x, y.T) if y.T.is_contiguous() else _added(a, x, y)


def _added(a, x, y):
    c = torch.empty_like(a)
    launch("gemm", a=x, b=y.T, c=c, residual=a, options={"epilogue": "residual", "b": "n"})
    return c


def int4_gemm(op, x, w):
    layer, flat = unscaled(w), x.reshape(-1, x.shape[-1])
    return lambda: layer(flat)


def fp8_gemm(op, a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=torch.float16, device=a.device)
    return lambda: (launch("gemm", a=a, b=b.T, c=c), c)[1]


def grouped_gemm(op, group_a, group_b):
    # Matrices of one shape, side by side in memory as one tensor: a batch.
    a, b = torch.stack(group_a), torch.stack(group_b)
    c = torch.empty((a.shape[0], a.shape[1], b.shape[2]), dtype=a.dtype, device=a.device)
    return lambda: (launch("gemm", a=a, b=b.transpose(1, 2), c=c, options={"b": "n"}), list(c))[1]


def low_mem_dropout(op, p, x):
    y, rows = torch.empty_like(x), (-1, min(x.numel(), 512))
    return lambda: (launch("dropout", x=x.view(rows), y=y.view(rows), p=p, seed=7), y)[1]


def flash_attention(op, q, k, v):
    return lambda: tt.scaled_dot_product_attention(q, k, v, is_causal=op.causal, scale=op.sm_scale)


def attended(q, k, v, options, **given):
    """Attention with heads before places, by options of the operator."""
    o = torch.empty_like(q)
    return lambda: (launch("attention", q=q, k=k, v=v, o=o, options={"modes": "bhsd", **options}, **given), o)[1]


def template_attention(op, q, k, v):
    return attended(q, k, v, {"attends": "i <= 1024 and j <= 1024 or i >= j"}, scale=1.0)


def documents(q, k, v, begins):
    """Attention within documents that lie one behind the other: sequences of their own lengths, with heads before places, which are strides."""
    begins, given, o = begins.int(), {name: each[0].transpose(0, 1) for name, each in (("q", q), ("k", k), ("v", v))}, torch.empty_like(q)
    given |= {"o": o[0].transpose(0, 1), "cu_q": begins, "cu_k": begins}
    options, longest = {"varlen": True, "strides": True, "mask": "causal"}, begins.diff().max().item()
    return lambda: (launch("attention", **given, options=options, sizes={"sq": longest, "sk": longest}), o)[1]


def flex_attention(op, q, k, v, score_mod, block_mask, mod, kernel_options):
    q, k, v = (each.detach() for each in (q, k, v))
    options = {
        "noop": {},
        "causal": {"mask": "causal"},
        "rel": {"score": "x + float(i - j)"},
        "head_bias": {"score": "x + 2.0 * float(h)"},
        "alibi": {"mask": "causal", "alibi": True},
        "sliding_window": {"mask": f"window({op.sliding_window_size + 1})"},
        "prefix_lm": {"attends": f"j < {op.prefix_length} or i >= j"},
        "softcap": {"mask": "causal", "softcap": True},
    }
    if mod == "document_mask":
        return documents(q, k, v, inspect.getclosurevars(block_mask.mask_mod).nonlocals["offsets"])
    numbers = {"cap": 20.0} if mod == "softcap" else {}
    if mod == "alibi":
        numbers["slopes"] = torch.exp2(-8.0 / q.shape[1] * torch.arange(1, q.shape[1] + 1, dtype=torch.float32, device=q.device))
    return attended(q, k, v, options[mod], **numbers)


def fused_linear_cross_entropy(op, x, weight, target):
    x, weight, target = x.detach(), weight.detach(), target.int()
    return lambda: tt.linear_cross_entropy(x, weight, target)


def vector_add(op, x, y):
    z = torch.empty_like(x)
    return lambda: (add(x, y, z), z)[1]


def total(op, x):
    y = torch.empty(1, dtype=torch.float32, device=x.device)
    return lambda: (launch("sum_all", x=x, y=y), y)[1]


def bf16xint16_gemm(op, x, w):
    # Triton's kernel rounds the integers as it multiplies; here a kernel does it ahead of the product, within the time.
    numbers = torch.empty(w.shape, dtype=torch.bfloat16, device=w.device)
    c = torch.empty((x.shape[0], w.shape[1]), dtype=torch.bfloat16, device=x.device)

    def call():
        rounded(w.view(-1), numbers.view(-1))
        launch("gemm", a=x, b=numbers.T, c=c, options={"b": "n"})
        return c

    return call


def gather_gemv(op, w, ids, x):
    # Triton's indices may count from the end.
    ids = ids.remainder(w.shape[0]).int()
    y = torch.empty((ids.shape[0], w.shape[1]), dtype=x.dtype, device=x.device)
    return lambda: ((launch("gather_gemv", w=w, ids=ids, x=x, y=y), y)[1],)


def of_rows(operator):
    """Sums over the rows of sequences, one behind the other."""

    def made(op, x, b, m, longest, sparsity):
        values, begins = x.values(), x.offsets().int()
        y = torch.empty((b, m), dtype=torch.float32, device=values.device)
        return lambda: (launch(operator, x=values, begins=begins, y=y), y)[1]

    return made


def jagged_softmax(op, x, b, m, longest, sparsity):
    values, begins = x.values(), x.offsets().int()
    across = min(128, max(8, 1 << (m - 1).bit_length()))
    y, made = torch.empty_like(values), softmax_of_sequences.launches(BN=across, BM=1024 // across)
    return lambda: (made(values, begins, y), y)[1]


def jagged_layer_norm(op, x, b, m, longest, sparsity):
    values, begins = x.values(), x.offsets().int()
    across = max(8, 1 << (m - 1).bit_length())
    y, made = torch.empty_like(values), norm_of_sequences.launches(BN=across, BM=max(1, 8192 // across))
    return lambda: (made(values, begins, y), y)[1]


def divergence(function):
    def made(op, x, target):
        x, target = x.detach(), target.detach()
        return lambda: function(x, target)

    return made


def fused_linear_jsd(op, x, taught):
    x, taught = x.detach(), taught.detach()
    weights = [layer.weight.detach() for layer in (op.liger_op.student_lin, op.liger_op.teacher_lin)]

    def logarithms(rows, weight):
        logits = tt.linear(rows, weight)
        launch("log_softmax", x=logits, y=logits)
        return logits

    return lambda: tt.jsd(logarithms(x, weights[0]), logarithms(taught, weights[1]))


#: The suite's 31 cases of ragged tensors of so many sequences and columns; all of its cases are thousands.
SEQUENCES = ["--B", "1024", "--M", "64"]

#: The suite's operator, Triton's backend of it, ours, the bound on the distance of results over their length (None: they are not to be alike), and arguments of the operator.
OPERATORS = {
    "softmax": ("triton_softmax", softmax, 2e-3, []),
    "gemm": ("triton_tutorial_matmul", gemm, 2e-3, []),
    "int4_gemm": ("triton", int4_gemm, 1e-2, []),
    "fp8_gemm": ("triton_fp8_gemm", fp8_gemm, 2e-2, []),
    "layer_norm": ("triton_layer_norm", layer_norm, 5e-3, []),
    "welford": ("test_welford", welford, 1e-2, []),
    "rope": ("liger_rotary_pos_emb", rope, 5e-3, []),
    "embedding": ("liger_embedding", embedding, 1e-6, []),
    "grouped_gemm": ("triton", grouped_gemm, 2e-3, []),
    "rms_norm": ("liger_rms", rms_norm, 5e-3, []),
    "cross_entropy": ("liger_cross_entropy_loss", cross_entropy, 1e-4, []),
    "flash_attention": ("triton_tutorial_flash_v2", flash_attention, 2e-2, []),
    "template_attention": ("test_with_exp2", template_attention, 1e-2, []),
    "flex_attention": ("compiled", flex_attention, 1e-2, ["--mod-type", "all", "--seq-len", "4096"]),
    "addmm": ("triton_addmm", addmm, 2e-3, []),
    "swiglu": ("liger_swiglu", unit("silu"), 2e-2, []),
    "geglu": ("liger_geglu", unit("gelu"), 2e-2, ["--precision", "bf16"]),
    "low_mem_dropout": ("seeded_dropout", low_mem_dropout, None, []),
    "vector_add": ("triton_add", vector_add, 1e-6, []),
    "sum": ("triton_sum", total, 1e-2, []),
    "bf16xint16_gemm": ("bf16xint16", bf16xint16_gemm, 5e-3, []),
    "gather_gemv": ("test_0", gather_gemv, 1e-2, []),
    "jagged_sum": ("triton_jagged_sum_no_pad_variable_length_loop", of_rows("sum_ragged"), 1e-4, SEQUENCES),
    "jagged_mean": ("triton_jagged_mean_variable_length_loop", of_rows("mean_ragged"), 1e-4, SEQUENCES),
    "jagged_softmax": ("triton_jagged_softmax_variable_length_loop", jagged_softmax, 1e-4, SEQUENCES),
    "jagged_layer_norm": ("torch_compile_nested_tensor_integration", jagged_layer_norm, 1e-3, SEQUENCES),
    "kl_div": ("liger_kl_div", divergence(tt.kl_div), 1e-4, []),
    "jsd": ("liger_jsd", divergence(tt.jsd), 1e-4, []),
    "fused_linear_jsd": ("liger_lm_head_jsd", fused_linear_jsd, 5e-2, ["--precision", "bf16"]),
    "fused_linear_cross_entropy": ("liger_lm_head_ce", fused_linear_cross_entropy, 1e-3, ["--precision", "bf16"]),
}


def registered(name, ours):
    """The suite's operator with our backend."""
    from tritonbench.operators import load_opbench_by_name
    from tritonbench.utils.triton_op import register_benchmark

    if name == "addmm":
        # A form that the suite's operator imports, which this version of Triton lacks.
        stream_k = importlib.import_module("tritonbench.operators.gemm.stream_k")
        stream_k.streamk_matmul = getattr(stream_k, "streamk_matmul", None)
    operator = load_opbench_by_name(name)
    module = sys.modules[operator.__module__]
    if hasattr(module, "LlamaRotaryEmbedding"):
        module.LlamaRotaryEmbedding = Angles

    def tilewright(self, *inputs):
        return ours(self, *inputs)

    operator.tilewright = register_benchmark(operator_name=name, func_name="tilewright")(tilewright)
    return operator


def apart(a, b):
    """The distance of results over their length."""
    # What Triton's callable returns besides stands behind the result, or beside it by name.
    b = b["output"] if isinstance(b, dict) else b
    pairs = list(zip(a, b)) if isinstance(a, (tuple, list)) else [(a, b[0] if isinstance(b, tuple) else b)]
    return max(((x.detach().double().flatten() - y.detach().double().flatten()).norm() / (y.detach().double().norm() + 1e-30)).item() for x, y in pairs)


def compile_together():
    """Lets Triton compile the configurations among which a kernel chooses all at once; what it chooses among, and how, is the same."""
    import triton
    from triton.runtime.autotuner import Autotuner

    inner, executor, ready = Autotuner.run, concurrent.futures.ThreadPoolExecutor(os.cpu_count()), set()

    def run(self, *given, **named):
        if len(self.configs) > 1 and id(self) not in ready:
            ready.add(id(self))
            with triton.AsyncCompileMode(executor, ignore_errors=True):
                self.warmup(*given, **{name: value for name, value in named.items() if name != "warmup"})
        return inner(self, *given, **named)

    Autotuner.run = run


def measured(call, milliseconds):
    import triton

    return triton.testing.do_bench(call, warmup=5, rep=milliseconds, return_mode="median") * 1e3


def run(name, args):
    """The ratios of an operator's cases."""
    from tritonbench.utils.parser import get_parser

    backend, ours, bound, given = OPERATORS[name]
    operator = registered(name, ours)
    tb_args, extra = get_parser().parse_known_args(["--op", name, "--mode", "fwd_no_grad", "--benchmark-name", name, *given])
    op = operator(tb_args, extra)
    if op.dtype is None:
        op.dtype = torch.float32
    ratios, count, began = [], 0, time.time()
    inputs = op.get_input_iter()
    with torch.no_grad():
        for number, example in enumerate(inputs):
            if args.every > 1 and number % args.every:
                continue
            if count >= args.most or time.time() - began > args.seconds:
                break
            count += 1
            try:
                calls = []
                for maker in (getattr(op, backend), op.tilewright):
                    # Some inputs are drawn by the makers.
                    torch.manual_seed(number)
                    calls.append(maker(*example))
                triton_call, our_call = calls
                far = None if bound is None else apart(our_call(), triton_call())
                if bound is None:
                    our_call(), triton_call()
                times = [[measured(call, args.milliseconds) for call in (our_call, triton_call)] for _ in range(2)]
                ours_us, triton_us = (min(pair) for pair in zip(*times))
                right = far is None or far <= bound
                ratios.append(triton_us / ours_us if right else None)
                error = "" if far is None else f", {far:.1e} apart{'' if right else ' WRONG'}"
                print(f"{name} {number} {op.get_x_val(example)}: {ours_us:.2f} us, Triton {triton_us:.2f}, ratio {triton_us / ours_us:.3f}{error}", flush=True)
            except Exception as error:  # a case that fails says so, and the others still run
                ratios.append(None)
                print(f"{name} {number}: {type(error).__name__}: {str(error).strip()[:300]}", flush=True)
                if args.verbose:
                    traceback.print_exc()
                if len(ratios) >= 3 and not any(ratios):
                    break
    return ratios


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main():
    """Prints each case, and each operator's mean."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", help="a clone of TritonBench")
    parser.add_argument("--operators", default=",".join(OPERATORS))
    parser.add_argument("--most", type=int, default=1000, help="cases of an operator, at most")
    parser.add_argument("--every", type=int, default=1, help="every so manieth of the suite's inputs")
    parser.add_argument("--seconds", type=float, default=1e9, help="for an operator's cases, at most")
    parser.add_argument("--milliseconds", type=int, default=20, help="of a measurement")
    parser.add_argument("--together", action="store_true", help="Triton compiles the configurations of a kernel at once, on all cores")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    if args.together:
        compile_together()
    sys.path.insert(0, args.checkout)
    import triton

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}", flush=True)
    everything = {}
    for name in args.operators.split(","):
        try:
            everything[name] = run(name, args)
        except Exception as error:  # an operator that the suite cannot make says so
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            if args.verbose:
                traceback.print_exc()
        torch.cuda.empty_cache()
    for name, ratios in everything.items():
        known = [ratio for ratio in ratios if ratio]
        text = f"geometric mean {mean(known):.3f}, least {min(known):.3f}" if known else "none"
        print(f"{name}: {len(known)} of {len(ratios)} cases right, {text}")
    means = [mean([ratio for ratio in ratios if ratio]) for ratios in everything.values() if any(ratios)]
    cases = [ratio for ratios in everything.values() for ratio in ratios if ratio]
    if cases:
        print(f"{len(means)} operators {mean(means):.3f}, {len(cases)} cases {mean(cases):.3f}, least {min(cases):.3f}, {sum(ratio < 0.95 for ratio in cases)} under 0.95")


if __name__ == "__main__":
    main()
