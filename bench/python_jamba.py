#!/usr/bin/env python3
"""Reads a prompt and decodes by periods of Jamba-mini's layers (seven of Mamba and one of attention, every second one with 16 experts; random weights): convolutions, scans and experts by Tilewright beside the same stack with vLLM's kernels.

    python3 bench/python_jamba.py --vllm FOLDER --scan scan.so --batch 1,8 --prompt 2048 --periods 2
    python3 bench/python_jamba.py --check                        # small shapes on the CPU

The model is the one of *Hexcute* (Fig. 13, Jamba-mini-1.7). FOLDER has vLLM's `mamba_ssm.py`, `triton_helpers.py`, `causal_conv1d.py` and `fused_moe.py`: convolutions and steps of decoding are its Triton kernels, the scan of a
prompt is mamba-ssm's kernel (of which vLLM's is a form), by an entry of C that `bench/README.md` names, and experts are `fused_moe_kernel` in the tiles of its default configuration. vLLM's convolution takes channels side by side
and its scan steps, which is what its own layer copies between. All other products, norms and attention are ours in both. Ours scans by the operator's own text, with the states behind the last step written as well.
A prompt and a step of decoding are a graph each; times are those of replays.
"""

import argparse
import ctypes
import functools
import subprocess
import sys
import time

import torch
from python_experts import OfVllm, far, loaded, replayed

import tilewright
import tilewright.torch as tt
from tilewright import bf16, const, f32, ops, size

BIG = {"hidden": 4096, "intermediate": 14336, "experts": 16, "k": 2, "heads": 32, "shared": 8, "d": 128, "channels": 8192, "rank": 256}
SMALL = {"hidden": 128, "intermediate": 64, "experts": 4, "k": 2, "heads": 2, "shared": 1, "d": 64, "channels": 256, "rank": 32}
PERIOD, ATTENTION, STATES, TAPS, EPS = 8, 4, 16, 4, 1e-6


@tilewright.kernel
def convolved(t, x: bf16["b", "2 * d"], state: bf16["b", 3, "d"], w: bf16[4, "d"], bias: bf16["d"], y: bf16["b", "d"], b: size = 2, d: size = 512, BD: const = 512):
    """A step of the convolution: the first half of the columns of `x` joins the three steps before, which move on."""
    t.grid(t.ceil_div(d, BD), b)
    t.threads(64)

    def row(tensor, name, *at):
        return t.global_view(tensor[(*at, slice(t.block.x * BD, None))], (BD,), (f"e{len(at)}",), name=name)

    taps = [t.register_tensor(bf16, [BD]) for _ in range(TAPS)]
    for at in range(TAPS - 1):
        t.copy(row(state, f"before{at}", slice(t.block.y, None), slice(at, None)), taps[at])
    t.copy(t.global_view(x[t.block.y :, t.block.x * BD : d], (BD,), ("e1",), name="now"), taps[3])
    shift = t.register_tensor(bf16, [BD])
    t.copy(row(bias, "shifts"), shift)
    total = t.cast(shift, f32)
    for at in range(TAPS):
        weight = t.register_tensor(bf16, [BD])
        t.copy(row(w, f"weights{at}", slice(at, None)), weight)
        total = total + t.cast(weight, f32) * t.cast(taps[at], f32)
    t.copy(t.cast(t.fdividef(total, 1.0 + t.exp(-total)), bf16), row(y, "result", slice(t.block.y, None)))
    for at in range(TAPS - 1):
        t.copy(taps[at + 1], row(state, f"behind{at}", slice(t.block.y, None), slice(at, None)))


@tilewright.kernel
def stepped(
    t,
    u: bf16["b", "d"],
    delta: bf16["b", "d"],
    a: f32["d", 16],
    bs: bf16["b", 16],
    cs: bf16["b", 16],
    skip: f32["d"],
    z: bf16["b", "2 * d"],
    bias: f32["d"],
    state: bf16["b", "d", 16],
    y: bf16["b", "d"],
    b: size = 2,
    d: size = 128,
    BD: const = 64,
):
    """A step of the scan, whose gate is the second half of the columns of `z`."""
    t.grid(t.ceil_div(d, BD), b)
    t.threads(128)

    def column(tensor, kind, name, *at):
        r = t.register_tensor(kind, [BD, 1])
        t.copy(t.global_view(tensor[(*at, slice(t.block.x * BD, None))], (BD, 1), (f"e{len(at)}", 0), name=name), r)
        return r

    def row(tensor, name):
        r = t.register_tensor(bf16, [1, STATES])
        t.copy(t.global_view(tensor[t.block.y :, :], (1, STATES), name=name), r)
        return t.cast(r, f32)

    word = slice(t.block.y, None)
    given = t.cast(column(u, bf16, "gu", word), f32)
    asked = t.cast(column(delta, bf16, "gd", word), f32) + column(bias, f32, "gbias")
    dt = t.max(asked, 0.0) + t.log(1.0 + t.exp(-t.abs(asked)))
    gate = t.register_tensor(bf16, [BD, 1])
    t.copy(t.global_view(z[t.block.y :, d + t.block.x * BD :], (BD, 1), ("e1", 0), name="gz"), gate)
    rates, before = t.register_tensor(f32, [BD, STATES]), t.register_tensor(bf16, [BD, STATES])
    gh = t.global_view(state[t.block.y :, t.block.x * BD :, :], (BD, STATES), ("e1", "e2"))
    t.copy(t.global_view(a[t.block.x * BD :, :], (BD, STATES), name="ga"), rates)
    t.copy(gh, before)
    h = t.exp(dt * rates) * t.cast(before, f32) + (dt * given) * row(bs, "gb")
    g = t.cast(gate, f32)
    result = (t.reduce(h * row(cs, "gc"), "sum", 1, keep=True) + column(skip, f32, "gs") * given) * t.fdividef(g, 1.0 + t.exp(-g))
    t.copy(t.cast(h, bf16), gh)
    t.copy(t.cast(result, bf16), t.global_view(y[t.block.y :, t.block.x * BD :], (BD, 1), ("e1", 0), name="gy"))


def with_state(text):
    """The text of the operator `selective_scan` with what is left of a channel's states: steps beyond the end are none, as softplus of −∞ is."""
    changes = (
        ("y: bf16[b, d, l])", "y: bf16[b, d, l], state: bf16[b, d, N])"),
        ("    sd = shared_tensor", "    gstate = global_view(state[block.y :, block.x * BD :, :], (BD, NL, NS) : (e1, NS * e2, e2))\n    sd = shared_tensor"),
        ("copy(gd[:, :, :, :, 0], next_delta)", "copy(gd[:, :, :, :, 0], next_delta, outside = -inf)"),
        ("copy(gd[:, :, :, :, i + 1], next_delta)", "copy(gd[:, :, :, :, i + 1], next_delta, outside = -inf)"),
    )
    for old, new in changes:
        if text.count(old) != 1:
            raise SystemExit(f"the text of `selective_scan` has {text.count(old)} times `{old}`")
        text = text.replace(old, new)
    end = text.rindex("}")
    return text[:end] + "    unroll for n1 in 0..NS {\n        copy(cast(h[:, :, n1], bf16), gstate[:, :, n1])\n    }\n}\n"


@functools.cache
def scan_of(b, d, length):
    """The scan that is chosen for these sizes."""
    words = [sys.executable, "-m", "tilewright", "kernels", "selective_scan", "-p", "dtype=bf16", "--for", f"b={b},d={d},l={length}"]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return tilewright.compile(with_state(text), b=b, d=d, l=length)


class Mamba:
    """The weights of a layer, and what decoding keeps of each sequence."""

    def __init__(self, shape, batch, device):
        h, c, r = (shape[name] for name in ("hidden", "channels", "rank"))
        drawn = functools.partial(matrix, device=device)
        self.first, self.params, self.steps, self.last = drawn(2 * c, h), drawn(r + 2 * STATES, c), drawn(c, r), drawn(h, c)
        self.taps, self.shift = drawn(c, TAPS), drawn(c, 1).flatten()
        self.by_steps = self.taps.T.contiguous()
        self.rates, self.skip = -torch.rand(c, STATES, device=device) - 0.1, torch.ones(c, device=device)
        self.bias = torch.rand(c, device=device) - 4
        self.norms = [torch.ones(n, dtype=torch.bfloat16, device=device) for n in (r, STATES, STATES)]
        self.rank, self.channels = r, c
        self.room_for(batch, device)

    def room_for(self, batch, device):
        """Makes what is kept anew: three steps of the convolution, and states."""
        self.before = torch.zeros(batch, TAPS - 1, self.channels, dtype=torch.bfloat16, device=device)
        self.state = torch.zeros(batch, self.channels, STATES, dtype=torch.bfloat16, device=device)

    def parts(self, params):
        """Steps before their product, and the vectors of both sides of states, of rows of parameters."""
        ends = (0, self.rank, self.rank + STATES, self.rank + 2 * STATES)
        return [tt.rms_norm(params[..., first:last].contiguous(), norm, EPS) for first, last, norm in zip(ends, ends[1:], self.norms)]


def matrix(n, k, device):
    return torch.empty(n, k, dtype=torch.bfloat16, device=device).normal_(std=k**-0.5)


class Ours:
    """Convolutions, scans and experts by Tilewright."""

    name = "ours"

    def prompt(self, layer, y):
        """A layer of Mamba over ``y[b, l, h]``: products make channels before steps at once."""
        b, length, c = *y.shape[:2], layer.channels
        x, z, delta = (y.new_empty((b, c, length)) for _ in range(3))
        result = torch.empty_like(y)
        for at in range(b):
            tt_out(layer.first[:c], y[at], x[at])
            tt_out(layer.first[c:], y[at], z[at])
        layer.before.copy_(x[:, :, 1 - TAPS :].transpose(1, 2))
        u = tt.causal_conv1d(x, layer.taps, layer.shift)
        params = y.new_empty((b, length, layer.params.shape[0]))
        for at in range(b):
            tt_out(u[at].T, layer.params, params[at])
        dt, bs, cs = layer.parts(params)
        for at in range(b):
            tt_out(layer.steps, dt[at], delta[at])
        o = torch.empty_like(u)
        self.scan(u, delta, layer.rates, *(each.transpose(1, 2).contiguous() for each in (bs, cs)), layer.skip, z, layer.bias, o, layer.state)
        for at in range(b):
            tt_out(o[at].T, layer.last, result[at])
        return result

    @staticmethod
    def scan(u, *rest):
        kernel = scan_of(*u.shape)
        if u.is_cuda:
            kernel(u, *rest)
        else:
            kernel.simulate(u, *rest).assert_right()

    def step(self, layer, y):
        """The same of a word of each sequence, ``y[b, h]``."""
        xz = tt.linear(y, layer.first)
        u, o = (y.new_empty((y.shape[0], layer.channels)) for _ in range(2))
        put(convolved, xz, layer.before, layer.by_steps, layer.shift, u)
        dt, bs, cs = layer.parts(tt.linear(u, layer.params))
        put(stepped, u, tt.linear(dt, layer.steps), layer.rates, bs, cs, layer.skip, xz, layer.bias, layer.state, o)
        return tt.linear(o, layer.last)

    def experts(self, x, ids, shares, w13, w2):
        return tt.moe(x, ids, shares, w13, w2)


def tt_out(x, weight, out):
    """``out = x · weightᵀ``."""
    if x.is_cuda:
        ops.linear(x, weight, out=out)
    else:
        torch.matmul(x, weight.T, out=out)


def put(kernel, *given):
    """The launch of a kernel, on the CPU a run of the simulator."""
    if given[0].is_cuda:
        kernel(*given)
    else:
        kernel.simulate(*given).assert_right()


class Platform:
    """What vLLM's files ask about the machine."""

    @staticmethod
    def is_arch_support_pdl():
        return True


class Experts(OfVllm):
    """The experts by vLLM's Triton kernel for weights that are not rounded."""

    def __init__(self, k):
        self.k = k

    def __call__(self, x, ids, shares, w13, w2):
        import triton
        import triton.language as tl

        (tokens, k), (experts, _, between, _) = ids.shape, w13.shape
        self.w13 = w13.flatten(1, 2)
        rows = next((rows for most, rows in ((32, 16), (96, 32), (512, 64)) if tokens <= most), 128)
        tiles = {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": 64 if tokens <= 64 else 128, "BLOCK_SIZE_K": 128 if tokens <= 64 else 64,
                 "GROUP_SIZE_M": 16 if tokens // experts > 128 else 1, "num_warps": 4 if tokens <= 128 else 8, "num_stages": 4 if tokens <= 32 else 3}  # fmt: skip
        order, groups, padded, _ = self.tables(ids, rows)

        def product(a, b, each, scaled):
            c = a.new_empty((tokens * k, b.shape[1]))
            grid = (triton.cdiv(order.shape[0], rows) * triton.cdiv(b.shape[1], tiles["BLOCK_SIZE_N"]),)
            self.kernels.fused_moe_kernel[grid](
                a, b, c, None, None, None, shares, order, groups, padded, b.shape[1], b.shape[2], order.shape[0], a.shape[0] * each, a.stride(0), 1, b.stride(0), b.stride(2), b.stride(1),
                c.stride(0), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, naive_block_assignment=False, MUL_ROUTED_WEIGHT=scaled, top_k=each, compute_type=tl.bfloat16, use_fp8_w8a8=False,
                use_int8_w8a8=False, use_int8_w8a16=False, per_channel_quant=False, HAS_BIAS=False, SWAP_AB=False, USE_TD=False, SPLIT_K=1, **tiles)  # fmt: skip
            return c

        both = product(x, self.w13, k, False)
        h = both.new_empty((both.shape[0], between))
        ops.library(0).call("moe_gate", x=both, y=h)
        return product(h, w2, 1, True).view(tokens, k, -1).sum(1)


class Theirs:
    """The same by vLLM's kernels and mamba-ssm's scan."""

    name = "vLLM's"

    def __init__(self, folder, scan, k):
        parts = [(f"{folder}/triton_helpers.py", "@triton.jit\ndef fast_exp(", None), (f"{folder}/mamba_ssm.py", "if TRITON3:", "def selective_scan_fn(")]
        self.steps = loaded("vllm_mamba", parts, TRITON3=True, NULL_BLOCK_ID=None, try_get_optimal_ssm_config=lambda *given: (32, 4))
        parts = [(f"{folder}/causal_conv1d.py", "@triton.jit(do_not_specialize_on_alignment", "if current_platform.is_cpu():")]
        self.convolutions = loaded("vllm_conv", parts, current_platform=Platform, PAD_SLOT_ID=-1, NULL_BLOCK_ID=None)
        Experts.read(f"{folder}/fused_moe.py")
        self.experts, self.library, self.tables = Experts(k), ctypes.CDLL(scan), {}

    @functools.cache
    def sequences(self, b):
        """The places of sequences in what is kept."""
        return torch.arange(b, dtype=torch.int32, device="cuda")

    def numbers(self, b, length):
        """The tables of a prompt: where sequences begin, and which parts of eight steps programs take."""
        if (b, length) not in self.tables:
            begins = torch.arange(0, b * length + 1, length, dtype=torch.int32, device="cuda")
            count = -(-length // 8)
            sequences = self.sequences(b)
            of, part = sequences.repeat_interleave(count), torch.arange(count, dtype=torch.int32, device="cuda").repeat(b)
            given = {"tot": b * count, "mlist": of, "mlist_len": b * count, "offsetlist": part, "batch_ptr": of, "token_chunk_offset_ptr": part}
            made = type("Metadata", (), {"nums_dict": {8: given}, "batch_ptr": of, "token_chunk_offset_ptr": part})
            self.tables[b, length] = begins, sequences, torch.zeros(b, dtype=torch.bool, device="cuda"), made
        return self.tables[b, length]

    def prompt(self, layer, y):
        b, length, c = *y.shape[:2], layer.channels
        begins, sequences, none, made = self.numbers(b, length)
        x, z = tt.linear(y.flatten(0, 1), layer.first).T.chunk(2, 0)
        u = self.convolutions.causal_conv1d_fn(x, layer.taps, layer.shift, layer.before.transpose(1, 2), begins, sequences, none, "silu", metadata=made)
        dt, bs, cs = layer.parts(tt.linear(u.T, layer.params))
        delta = tt.linear(dt, layer.steps).T

        def by_sequences(each):
            return each.unflatten(1, (b, length)).transpose(0, 1).contiguous()

        u, delta, z, bs, cs = (by_sequences(each) for each in (u, delta, z, bs.T, cs.T))
        o, gated = torch.empty_like(u), torch.empty_like(u)
        chunks = torch.empty(b, c, (length + 2047) // 2048, 2 * STATES, device="cuda")
        pointers = [ctypes.c_void_p(each.data_ptr()) for each in (u, delta, layer.rates, bs, cs, layer.skip, z, layer.bias, o, gated, chunks)]
        error = self.library.scan_fwd(1, b, c, length, STATES, *pointers, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        if error:
            raise RuntimeError(f"the scan returned {error}")
        layer.state.copy_(chunks[:, :, -1, 1::2])
        result = torch.empty_like(y)
        for at in range(b):
            tt_out(gated[at].T, layer.last, result[at])
        return result

    def step(self, layer, y):
        x, z = tt.linear(y, layer.first).chunk(2, 1)
        u = self.convolutions.causal_conv1d_update(x, layer.before.transpose(1, 2), layer.taps, layer.shift, "silu", self.sequences(y.shape[0]), out=y.new_empty(x.shape))
        dt, bs, cs = layer.parts(tt.linear(u, layer.params))
        o = torch.empty_like(u)
        self.steps.selective_state_update(layer.state, u, tt.linear(dt, layer.steps), layer.rates, bs, cs, layer.skip, layer.bias, z=z, dt_softplus=True, out=o)
        return tt.linear(o, layer.last)


class Attention:
    """A layer of attention without angles, and its cache."""

    def __init__(self, shape, batch, room, device):
        h, heads, self.shared, self.d = (shape[name] for name in ("hidden", "heads", "shared", "d"))
        self.heads = [heads, self.shared, self.shared]
        self.qkv, self.out = matrix((heads + 2 * self.shared) * self.d, h, device), matrix(h, heads * self.d, device)
        self.room_for(batch, room, device)

    def room_for(self, batch, room, device):
        self.keys, self.values = (torch.zeros(batch, room, self.shared, self.d, dtype=torch.bfloat16, device=device) for _ in range(2))

    def prompt(self, y):
        b, length = y.shape[:2]
        q, k, v = tt.linear(y, self.qkv).view(b, length, -1, self.d).split(self.heads, 2)
        self.keys[:, :length], self.values[:, :length] = k, v
        o = tt.attention(*(each.contiguous() for each in (q, k, v)), causal=True)
        return tt.linear(o.view(b, length, -1), self.out)

    def step(self, y, at, lengths):
        q, k, v = tt.linear(y, self.qkv).view(y.shape[0], 1, -1, self.d).split(self.heads, 2)
        self.keys.index_copy_(1, at, k)
        self.values.index_copy_(1, at, v)
        return tt.linear(tt.attention_decode(q.contiguous(), self.keys, self.values, lengths).view(y.shape[0], -1), self.out)


class Dense:
    """An MLP."""

    def __init__(self, shape, device):
        self.units = torch.stack([matrix(shape["intermediate"], shape["hidden"], device) for _ in range(2)])
        self.down = matrix(shape["hidden"], shape["intermediate"], device)

    def __call__(self, stack, y):
        return tt.linear(tt.gated_linear(y, self.units), self.down)


class Chosen:
    """Experts, with their router."""

    def __init__(self, shape, device):
        e, h, i = (shape[name] for name in ("experts", "hidden", "intermediate"))
        self.k, self.router = shape["k"], matrix(e, h, device)
        self.w13, self.w2 = matrix(e * 2 * i, h, device).view(e, 2, i, h), matrix(e * h, i, device).view(e, h, i)

    def __call__(self, stack, y):
        ids, shares = tt.moe_routing(tt.linear(y, self.router).float(), self.k, renormalise=False)
        return stack.experts(y, ids, shares, self.w13, self.w2)


class Model:
    """Periods of layers."""

    def __init__(self, shape, periods, batch, room, device):
        self.shape, self.layers = shape, []
        for number in range(periods * PERIOD):
            mixer = Attention(shape, batch, room, device) if number % PERIOD == ATTENTION else Mamba(shape, batch, device)
            inner = Chosen(shape, device) if number % 2 else Dense(shape, device)
            norms = [torch.ones(shape["hidden"], dtype=torch.bfloat16, device=device) for _ in range(2)]
            self.layers.append((mixer, inner, norms))
        self.at, self.lengths = torch.zeros(1, dtype=torch.int64, device=device), None

    def room_for(self, batch, room, device):
        """Makes what decoding keeps anew."""
        for mixer, _, _ in self.layers:
            mixer.room_for(batch, *([room] if isinstance(mixer, Attention) else []), device)
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=device)

    def rewind(self, place):
        self.at.fill_(place)
        self.lengths.fill_(place + 1)

    def run(self, stack, x, mix):
        residual = None
        for mixer, inner, norms in self.layers:
            y, residual = (tt.rms_norm(x, norms[0], EPS), x) if residual is None else tt.rms_norm(x, norms[0], EPS, residual=residual)
            y, residual = tt.rms_norm(mix(mixer, y), norms[1], EPS, residual=residual)
            x = inner(stack, y.reshape(-1, y.shape[-1])).view(y.shape)
        return x + residual

    def prompt(self, stack, x):
        """What the last word of each sequence of ``x[b, l, h]`` becomes."""
        return self.run(stack, x, lambda mixer, y: mixer.prompt(y) if isinstance(mixer, Attention) else stack.prompt(mixer, y))[:, -1]

    def step(self, stack, x):
        """What a word of each sequence, ``x[b, h]``, becomes."""
        return self.run(stack, x, lambda mixer, y: mixer.step(y, self.at, self.lengths) if isinstance(mixer, Attention) else stack.step(mixer, y))

    def advance(self, stack, x):
        """A step, whose result, divided by its length, is the next word in place of one that is drawn."""
        y = self.step(stack, x)
        x.copy_(tt.rms_norm(y, self.layers[0][2][0], EPS))
        self.at += 1
        self.lengths += 1


def measure(args):
    """Prints milliseconds of a prompt and of a word for each batch and stack."""
    shape, began = BIG, time.time()
    stacks = [Ours(), Theirs(args.vllm, args.scan, shape["k"])]
    model = Model(shape, args.periods, 1, 8, "cuda")
    torch.cuda.synchronize()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {args.periods * PERIOD} layers, {torch.cuda.memory_allocated() / 1e9:.1f} GB, made in {time.time() - began:.1f} s", flush=True)
    for batch in map(int, args.batch.split(",")):
        x, found, results = torch.randn(batch, args.prompt, shape["hidden"], device="cuda").to(torch.bfloat16), {}, {}
        for stack in stacks:
            try:
                with torch.inference_mode():
                    model.room_for(batch, args.prompt + args.steps + 28, "cuda")
                    whole = replayed(lambda: model.prompt(stack, x), 9)
                    word = model.prompt(stack, x).clone()
                    model.rewind(args.prompt)
                    results[stack.name] = word.clone(), model.step(stack, word)
                    step = replayed(lambda: model.advance(stack, word), args.steps)
                found[stack.name] = whole, step, whole + 100 * step
                print(f"batch {batch}, {stack.name}: prompt of {args.prompt} {whole:.2f} ms, {step:.3f} ms a word, with 100 words {whole / 1e3 + step / 10:.3f} s", flush=True)
            except Exception as error:  # a stack that fails says so, and the other still runs
                print(f"batch {batch}, {stack.name}: {type(error).__name__}: {str(error)[:500]}", flush=True)
                if args.verbose:
                    raise
            torch.cuda.empty_cache()
        if len(found) == 2:
            (a, b), (one, other) = found.values(), results.values()
            apart = ", ".join(f"{far(y, z):.1e}" for y, z in zip(one, other))
            print(f"batch {batch}: prompt {b[0] / a[0]:.3f}, words {b[1] / a[1]:.3f}, both {b[2] / a[2]:.3f} times as fast; behind the prompt and a word {apart} apart", flush=True)


def check():
    """A prompt and words of a small period on the CPU: a word behind a prompt is what the prompt with that word has."""
    torch.manual_seed(0)
    model, stack, b, length = Model(SMALL, 1, 2, 24, "cpu"), Ours(), 2, 19
    x = torch.randn(b, length + 2, SMALL["hidden"]).to(torch.bfloat16)
    for words in (length, length + 1):
        model.room_for(b, 24, "cpu")
        model.prompt(stack, x[:, :words].contiguous())
        model.rewind(words)
        y = model.step(stack, x[:, words].contiguous())
        wanted = model.prompt(stack, x[:, : words + 1].contiguous())
        print(f"a word behind {words} is {far(y, wanted):.1e} from that of the whole prompt")


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm", help="a folder with vLLM's files")
    parser.add_argument("--scan", help="the library of mamba-ssm's scan")
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--prompt", type=int, default=2048, help="words of a sequence")
    parser.add_argument("--periods", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100, help="words")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    check() if args.check else measure(args)


if __name__ == "__main__":
    main()
