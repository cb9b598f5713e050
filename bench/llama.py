#!/usr/bin/env python3
"""Times decoding by `transformers` on random weights of the shape of Llama 3 with 8 billion, in f16: torch eager and torch.compile.

    python3 bench/llama.py --batch 1,8,64 --context 1024 --steps 64

The peers of `tilewright-llama bench` (examples/llama). Caches are static, attention is torch's; the next word is the most probable one. Several processes
with one folder for `--turns` and their number in `--of` compile at the same time, wait for each other, and time their steps one after another.
"""

import argparse
import fcntl
import inspect
import pathlib
import time

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache


def model_of(layers):
    """A model with random weights on the GPU."""
    config = LlamaConfig(
        hidden_size=4096,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=14336,
        vocab_size=128256,
        rms_norm_eps=1e-5,
        max_position_embeddings=8192,
        attn_implementation="sdpa",
    )
    torch.set_default_dtype(torch.float16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.02)
    return model.eval(), config


def cache_of(config, batch, places):
    """A static cache, by the arguments that this version takes."""
    known = inspect.signature(StaticCache.__init__).parameters
    given = {"config": config, "max_cache_len": places}
    for name, value in [("max_batch_size", batch), ("device", "cuda"), ("dtype", torch.float16)]:
        if name in known:
            given[name] = value
    return StaticCache(**given)


class Turns:
    """Turns of processes: all are ready before the first takes its own."""

    def __init__(self, folder, count):
        self.folder, self.count = folder and pathlib.Path(folder), count

    def take(self, name):
        """Waits until as many processes are ready as there are, and then for those ahead; the turn ends with the file that is returned."""
        if self.folder is None:
            return None
        (self.folder / f"{name}.ready").touch()
        while len(list(self.folder.glob("*.ready"))) < self.count:
            time.sleep(0.1)
        turn = open(self.folder / "turn", "w")
        fcntl.flock(turn, fcntl.LOCK_EX)
        return turn


def timed(model, config, forward, batch, context, steps, turns):
    """Milliseconds of a step."""
    cache = cache_of(config, batch, context + 2 * steps + 8)
    takes_place = "cache_position" in inspect.signature(model.forward).parameters
    ids = torch.randint(0, config.vocab_size, (batch, context), device="cuda")

    def arguments(at, count):
        given = {"past_key_values": cache, "use_cache": True}
        if takes_place:
            given["cache_position"] = torch.arange(at, at + count, device="cuda")
        return given

    with torch.inference_mode():
        out = model(input_ids=ids, logits_to_keep=1, **arguments(0, context))
        word = out.logits[:, -1].argmax(-1, keepdim=True)
        del out
        if turns.folder is not None:  # what the prompt took is for other processes
            torch.cuda.empty_cache()

        def step(at):
            nonlocal word
            torch.compiler.cudagraph_mark_step_begin()
            logits = forward(input_ids=word, **arguments(at, 1)).logits
            word = logits[:, -1].argmax(-1, keepdim=True).clone()

        began = time.time()
        for i in range(steps // 2):
            step(context + i)
        torch.cuda.synchronize()
        ready = time.time() - began
        turn = turns.take(f"batch-{batch}")
        began = time.time()
        for i in range(steps):
            step(context + steps // 2 + i)
        torch.cuda.synchronize()
        ms = (time.time() - began) * 1e3 / steps
        if turn is not None:
            turn.close()
        return ms, ready


def copy_speed():
    """Gigabytes a second that a copy moves, read and written."""
    x = torch.empty(1 << 29, dtype=torch.float16, device="cuda")
    y = torch.empty_like(x)
    best = 1e9
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        y.copy_(x)
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end))
    return 4 * x.numel() / best / 1e6


def main():
    """Prints a line for each batch and form."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", default="1,8,64")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--forms", default="eager,compile")
    parser.add_argument("--turns", help="a folder that processes with one batch and form each share")
    parser.add_argument("--of", type=int, default=1, help="the number of these processes")
    args = parser.parse_args()
    turns = Turns(args.turns, args.of)
    began = time.time()
    model, config = model_of(args.layers)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {transformers.__version__}; "
          f"a copy moves {copy_speed():.0f} GB/s; ready in {time.time() - began:.1f} s", flush=True)
    for form in args.forms.split(","):
        for batch in map(int, args.batch.split(",")):
            torch._dynamo.reset()
            forward = model.forward
            if form != "eager":
                forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True, dynamic=False)
            try:
                ms, ready = timed(model, config, forward, batch, args.context, args.steps, turns)
            except Exception as error:  # a version that takes other arguments says so, and the others still run
                print(f"{form}, batch {batch}: {type(error).__name__}: {str(error)[:400]}", flush=True)
                continue
            print(f"{form}, batch {batch}: {ms:.3f} ms a step, {batch / ms * 1e3:.1f} tokens/s (first steps in {ready:.1f} s)", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
