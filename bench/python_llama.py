#!/usr/bin/env python3
"""Times a Llama of `transformers` with Tilewright's operators patched in beside itself: eager, torch.compile with max-autotune and graphs, and Liger.

    python3 bench/python_llama.py decode --batch 1,8,64 --context 1024 --steps 64 --forms ours,ours4,ours-apart,eager,reduced,compiled
    python3 bench/python_llama.py train --layers 20 --sequence 4096 --steps 50 --forms ours,eager,compiled,liger
    python3 bench/python_llama.py check                      # a small model on any device: patched and not patched are alike

Weights are random, of the shape of Llama 3 with 8 billion. Forms that end in `-apart` have launches that wait for the ends of those ahead. Decoding is greedy, with a static cache, in f16; a step of training has an optimiser's (AdamW, fused, of torch) and is in bf16.
Several processes with one folder for `--turns` and their number in `--of` prepare a form at the same time, wait for each other, and time it one after another; kernels among which torch.compile chooses are timed one at a time, too.
The patch (`patch`, `Decoder`) is all that an application has to write: norms, products, attention and losses of the model become operators of `tilewright.torch`.
"""

import argparse
import contextlib
import fcntl
import gc
import pathlib
import statistics
import time

import torch
import transformers
from llama import Turns, copy_speed
from python_cache import Append, attended
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

import tilewright.torch as tt
from tilewright import f16, ops

BIG = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}
SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128}


def model_of(shape, layers, dtype, device):
    """A model with random weights."""
    config = LlamaConfig(**shape, num_hidden_layers=layers, rms_norm_eps=1e-5, max_position_embeddings=8192, attn_implementation="sdpa")
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    torch.manual_seed(0)
    with torch.device(device):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(before)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.02)
    return model


# Training: the model's own parameters, its layers by Tilewright's operators.


def angles(model, places):
    """Cosines and sines of places, half as many as elements of a head."""
    cos, sin = model.model.rotary_emb(model.lm_head.weight, places)
    half = cos.shape[-1] // 2
    return cos[..., :half].contiguous(), sin[..., :half].contiguous()


def block(layer, x, residual, cos, sin):
    """A layer: what it adds to the residual, and the residual. What the layer before added joins in the first norm."""
    attention, mlp, (b, s, _) = layer.self_attn, layer.mlp, x.shape
    eps = layer.input_layernorm.variance_epsilon
    if residual is None:
        y, residual = tt.rms_norm(x, layer.input_layernorm.weight, eps), x
    else:
        y, residual = tt.rms_norm(x, layer.input_layernorm.weight, eps, residual=residual)
    q, k, v = (tt.linear(y, each.weight).view(b, s, -1, attention.head_dim) for each in (attention.q_proj, attention.k_proj, attention.v_proj))
    o = tt.attention(tt.rope(q, cos, sin), tt.rope(k, cos, sin), v, causal=True)
    x = tt.linear(o.view(b, s, -1), attention.o_proj.weight)
    y, residual = tt.rms_norm(x, layer.post_attention_layernorm.weight, eps, residual=residual)
    return tt.linear(tt.swiglu(tt.linear(y, mlp.gate_proj.weight), tt.linear(y, mlp.up_proj.weight)), mlp.down_proj.weight), residual


def loss_of_ours(model, ids, labels):
    """The loss of next words by Tilewright's operators."""
    inner = model.model
    x, residual = inner.embed_tokens(ids), None
    cos, sin = angles(model, torch.arange(ids.shape[1], device=ids.device)[None].expand(ids.shape))
    for layer in inner.layers:
        x, residual = block(layer, x, residual, cos, sin)
    y, _ = tt.rms_norm(x, inner.norm.weight, inner.norm.variance_epsilon, residual=residual)
    logits = tt.linear(y.flatten(0, 1), model.lm_head.weight)
    return tt.cross_entropy(logits, labels.flatten())


def loss_of_model(model, ids, labels):
    """The same by the model itself, whose labels are shifted already."""
    return model(input_ids=ids, labels=ids, shift_labels=labels, use_cache=False).loss


# Decoding: weights of a layer side by side, one word of each sequence a step.


class Layer:
    """A layer's weights as products of one word read them: side by side, in f16 or of 4 bits."""

    def __init__(self, layer, bits):
        attention, mlp = layer.self_attn, layer.mlp
        self.norms = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        self.qkv = torch.cat([each.weight for each in (attention.q_proj, attention.k_proj, attention.v_proj)])
        self.units = torch.stack([mlp.gate_proj.weight, mlp.up_proj.weight])
        self.out, self.down = attention.o_proj.weight, mlp.down_proj.weight
        self.few = None
        if bits == 4:
            self.few = [tt.LinearW4.quantised(each) for each in (self.qkv, self.out, self.units.flatten(0, 1), self.down)]
            del self.qkv, self.units, self.out, self.down

    def of_qkv(self, y):
        return tt.linear(y, self.qkv) if self.few is None else self.few[0](y)

    def of_out(self, h, o):
        return tt.add_linear(h, o, self.out) if self.few is None else self.few[1](o, residual=h)

    def of_mlp(self, h, y):
        if self.few is None:
            return tt.add_linear(h, tt.gated_linear(y, self.units), self.down)
        return self.few[3](tt.swiglu(*self.few[2](y).chunk(2, -1)), residual=h)


class Decoder:
    """Steps of a patched model over a static cache of `transformers`: one word of each sequence, each a replay of one graph on a GPU."""

    def __init__(self, model, cache, ids, place, bits=16, layers=None):
        config = model.config
        self.model, self.heads, self.shared = model, config.num_attention_heads, config.num_key_value_heads
        self.d, self.batch = config.hidden_size // self.heads, ids.shape[0]
        self.cache = [(layer.keys, layer.values) for layer in cache.layers]
        self.room = self.cache[0][0].shape[2]
        self.ids = ids.clone()
        self.at = torch.full((self.batch,), place, dtype=torch.int32, device=ids.device)
        # A head of keys is a sequence of its own: the cache has heads before places.
        self.lengths = torch.full((self.batch * self.shared,), place + 1, dtype=torch.int32, device=ids.device)
        cos, sin = model.model.rotary_emb(model.lm_head.weight.float(), torch.arange(self.room, device=ids.device)[None])
        self.cos, self.sin = (each[0, :, : self.d // 2].contiguous() for each in (cos, sin))
        self.layers = layers or [Layer(layer, bits) for layer in model.model.layers]
        self.append = Append(f16, self.heads, self.shared, self.d)
        self.logits = None

    def forward(self):
        """Logits of the next words."""
        eps = self.model.config.rms_norm_eps
        h = self.model.model.embed_tokens(self.ids)[:, 0]
        for layer, (keys, values) in zip(self.layers, self.cache):
            q = h.new_empty((self.batch, self.heads, self.d))
            qkv = layer.of_qkv(tt.rms_norm(h, layer.norms[0], eps))
            self.append(qkv.view(self.batch, -1, self.d), self.cos, self.sin, self.at, q, keys, values)
            h = layer.of_out(h, attended(q, keys, values, self.lengths))
            h = layer.of_mlp(h, tt.rms_norm(h, layer.norms[1], eps))
        return tt.linear(tt.rms_norm(h, self.model.model.norm.weight, eps), self.model.lm_head.weight)

    def advance(self):
        self.logits = self.forward()
        self.ids.copy_(self.logits.argmax(-1, keepdim=True))
        self.at += 1
        self.lengths += 1

    def captured(self, dependent):
        """A replay of the step; a step is made before. Launches that are `dependent` begin before those ahead of them have ended."""
        library = ops.library(self.at.get_device())
        library.dependent = dependent
        try:
            self.advance()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.advance()
        finally:
            library.dependent = False
        return graph.replay


def filled(model, ids, room):
    """A static cache with the keys of a context, and the next word."""
    cache = StaticCache(config=model.config, max_cache_len=room)
    with torch.inference_mode():
        logits = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
    return cache, logits[:, -1].argmax(-1, keepdim=True)


#: Arguments of torch.compile by forms: with graphs and products that are tuned as well, the same without further search among other kernels, and with graphs alone.
MODES = {"compiled": {"mode": "max-autotune"}, "tuned": {"options": {"max_autotune": True, "triton.cudagraphs": True}}, "reduced": {"mode": "reduce-overhead"}}


def peer_step(model, cache, word, form):
    """A step of the model itself."""
    forward = model.forward
    if form in MODES:
        torch._dynamo.reset()
        forward = torch.compile(model.forward, fullgraph=True, dynamic=False, **MODES[form])
    words = [word]

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        logits = forward(input_ids=words[0], past_key_values=cache, use_cache=True).logits
        words[0] = logits[:, -1].argmax(-1, keepdim=True).clone()

    return step


def one_at_a_time(folder):
    """Lets torch.compile time kernels while no other process of this folder times anything."""
    from torch._inductor.runtime import benchmarking

    kind = type(benchmarking.benchmarker)
    inner = kind.benchmark_gpu

    def alone(self, *given, **named):
        with open(pathlib.Path(folder, "turn"), "w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            return inner(self, *given, **named)

    kind.benchmark_gpu = alone


def turns_of(args, form):
    """The turns of a form, whose lock is that of all forms."""
    if args.turns is None:
        return Turns(None, 1)
    folder, turn = pathlib.Path(args.turns, form), pathlib.Path(args.turns, "turn")
    folder.mkdir(parents=True, exist_ok=True)
    turn.touch()
    # Another process may have been first.
    with contextlib.suppress(FileExistsError):
        (folder / "turn").symlink_to(turn.resolve())
    return Turns(folder, args.of)


def decode(args):
    """Prints milliseconds of a step for each batch and form."""
    if args.turns is not None:
        one_at_a_time(args.turns)
    model = model_of(BIG, args.layers or 32, torch.float16, "cuda").eval()
    bytes_of_weights = 2 * (sum(p.numel() for p in model.parameters()) - model.model.embed_tokens.weight.numel())
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {transformers.__version__}, "
          f"{bytes_of_weights / 1e9:.2f} GB of weights; a copy moves {copy_speed():.0f} GB/s", flush=True)
    kept = {}
    for batch in map(int, args.batch.split(",")):
        ids = torch.randint(0, BIG["vocab_size"], (batch, args.context), device="cuda")
        for form in args.forms.split(","):
            began = time.time()
            try:
                # Caches of peers are filled anew: steps write into them.
                cache, word = filled(model, ids, args.context + 2 * args.steps + 16)
                with torch.inference_mode():
                    if form.startswith("ours"):
                        bits = 4 if "4" in form else 16
                        made = Decoder(model, cache, word, args.context, bits, kept.get(bits))
                        kept[bits] = made.layers
                        step = made.captured(not form.endswith("-apart"))
                    else:
                        step = peer_step(model, cache, word, form)
                        for _ in range(max(4, args.steps // 8)):
                            step()
                    torch.cuda.synchronize()
                    ready = time.time() - began
                    turn, times = turns_of(args, form).take(f"batch-{batch}"), []
                    for _ in range(3):
                        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                        start.record()
                        for _ in range(args.steps // 3):
                            step()
                        end.record()
                        end.synchronize()
                        times.append(start.elapsed_time(end) / (args.steps // 3))
                    if turn is not None:
                        turn.close()
                ms = statistics.median(times)
                print(f"{form}, batch {batch}: {ms:.3f} ms a step, {batch / ms * 1e3:.1f} tokens/s (ready in {ready:.1f} s)", flush=True)
            except Exception as error:  # a form that fails says so, and the others still run
                print(f"{form}, batch {batch}: {type(error).__name__}: {str(error)[:600]}", flush=True)
            cache = step = made = None
            gc.collect()
            torch.cuda.empty_cache()


def loss_function(form):
    """The loss of a form."""
    if form == "ours":
        return loss_of_ours
    if form == "ours-compiled":
        return torch.compile(loss_of_ours, fullgraph=True, dynamic=False)
    if form in ("compiled", "reduced"):
        return torch.compile(loss_of_model, mode="max-autotune-no-cudagraphs" if form == "compiled" else None, dynamic=False)
    return loss_of_model


def train(args):
    """Prints milliseconds of a step of training for each form, and its losses."""
    data = torch.Generator().manual_seed(1)
    # Words that follow from those before, so that there is something to learn.
    ids = torch.randint(0, 512, (8, args.sequence + 1), generator=data).cumsum(1).remainder(997).cuda()
    # Liger changes the classes of `transformers`, and comes last.
    for form in sorted(args.forms.split(","), key=lambda form: form == "liger"):
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
        try:
            if form == "liger":
                from liger_kernel.transformers import apply_liger_kernel_to_llama

                apply_liger_kernel_to_llama()
            model = model_of(BIG, args.layers or 16, torch.bfloat16, "cuda").train()
            optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
            loss_by = loss_function(form)
            losses, times, began = [], [], time.time()
            for number in range(args.steps):
                rows = ids[number % 8][None]
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                optimiser.zero_grad(set_to_none=True)
                loss = loss_by(model, rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
                loss.backward()
                optimiser.step()
                end.record()
                losses.append(loss.detach())
                times.append((start, end))
                if number == 2:
                    torch.cuda.synchronize()
                    ready = time.time() - began
            torch.cuda.synchronize()
            taken = [start.elapsed_time(end) for start, end in times[3:]]
            values = [each.item() for each in losses]
            print(f"{form}: {statistics.median(taken):.2f} ms a step (least {min(taken):.2f}), {torch.cuda.max_memory_allocated() / 1e9:.1f} GB, ready in {ready:.1f} s; "
                  f"losses {', '.join(f'{values[at]:.4f}' for at in range(0, len(values), max(1, len(values) // 8)))}, {values[-1]:.4f}", flush=True)
        except Exception as error:  # a form that fails says so, and the others still run
            print(f"{form}: {type(error).__name__}: {str(error)[:600]}", flush=True)
        model = optimiser = loss = None


def check(_args):
    """Compares the patched small model with the model itself: losses, gradients, and words of decoding."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = {**SMALL, **({"hidden_size": 256} if device == "cuda" else {})}
    model = model_of(shape, 2, torch.bfloat16 if device == "cuda" else torch.float32, device)
    ids = torch.randint(0, 128, (2, 17), device=device)
    found = []
    for loss_by in (loss_of_model, loss_of_ours):
        model.zero_grad()
        loss = loss_by(model, ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        found.append((loss.item(), [p.grad.float().clone() for p in model.parameters()]))
    far = max(((a - b).norm() / (b.norm() + 1e-12)).item() for a, b in zip(found[1][1], found[0][1]))
    print(f"losses {found[0][0]:.5f} and {found[1][0]:.5f}; gradients {far:.1e} apart")
    model = model_of(shape, 2, torch.float16, device).eval()
    ids = torch.randint(0, 128, (3, 9), device=device)
    cache, word = filled(model, ids, 16)
    with torch.inference_mode():
        decoder = Decoder(model, cache, word, 9)
        decoder.advance()
        wanted = model(input_ids=torch.cat([ids, word], 1)).logits[:, -1]
        far = ((decoder.logits - wanted).float().norm() / wanted.float().norm()).item()
        print(f"logits behind a step {far:.1e} apart, of the same words {torch.equal(decoder.ids[:, 0], wanted.argmax(-1))}")


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("decode", "train", "check"))
    parser.add_argument("--batch", default="1,8,64")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--forms", default="ours,eager,compiled")
    parser.add_argument("--turns", help="a folder that processes share")
    parser.add_argument("--of", type=int, default=1, help="how many they are")
    args = parser.parse_args()
    {"decode": decode, "train": train, "check": check}[args.what](args)


if __name__ == "__main__":
    main()
