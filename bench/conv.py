#!/usr/bin/env python3
"""Convolutions (`conv_hopper`) beside cuDNN, as torch calls it on channels-last tensors with `cudnn.benchmark`, in one interleaved run.

    python3 bench/conv.py --emit-launches launches      # no GPU: compiles only
    python3 bench/conv.py --launches launches           # compiles nothing
    python3 bench/conv.py --pass dgrad wgrad --set resnet50
    python3 bench/conv.py --plan candidates.plan        # several configurations of some layers
    python3 bench/conv.py --layers 32,56x56,64,64,3,1,1 --config "bn=64 pixels=2x8x8"

Needs torch. A layer is images, the extents of an image, channels, output channels, taps, stride and padding (as the operator's parameters write these: `3x1`, `2:0x1x1`).
Without --config a layer has what `tilewright kernels conv_hopper --for` chooses for it. FLOPs are 2 for each tap, input and output channel of an output, those of the padding too.
The ratio is cuDNN's time over ours. Where padding is not alike in front and behind, cuDNN's images are padded ahead of the timing.
"""

import argparse
import math
import re

import common

# Layers of ResNet-50, of the UNet of Stable Diffusion 1.5, and of a video autoencoder whose convolutions see no later frame.
SETS = {
    "resnet50": [
        (32, "224x224", 3, 64, "7", "2", "3"), (32, "56x56", 64, 64, "1", "1", "0"), (32, "56x56", 64, 64, "3", "1", "1"),
        (32, "56x56", 64, 256, "1", "1", "0"), (32, "56x56", 128, 128, "3", "2", "1"), (32, "28x28", 128, 128, "3", "1", "1"),
        (32, "56x56", 256, 512, "1", "2", "0"), (32, "28x28", 256, 256, "3", "2", "1"), (32, "14x14", 256, 256, "3", "1", "1"),
        (32, "14x14", 1024, 256, "1", "1", "0"), (32, "14x14", 512, 512, "3", "2", "1"), (32, "7x7", 512, 512, "3", "1", "1"),
        (32, "7x7", 512, 2048, "1", "1", "0"),
    ],
    "sd15": [
        (2, "64x64", 320, 320, "3", "1", "1"), (2, "64x64", 640, 320, "3", "1", "1"), (2, "64x64", 960, 320, "3", "1", "1"),
        (2, "64x64", 320, 320, "3", "2", "1"), (2, "32x32", 640, 640, "3", "1", "1"), (2, "32x32", 1280, 640, "3", "1", "1"),
        (2, "16x16", 1280, 1280, "3", "1", "1"), (2, "16x16", 2560, 1280, "3", "1", "1"), (2, "8x8", 1280, 1280, "3", "1", "1"),
    ],
    "vae3d": [
        (1, "17x128x128", 128, 128, "3", "1", "2:0x1x1"), (1, "17x64x64", 256, 256, "3", "1", "2:0x1x1"),
        (1, "17x64x64", 256, 256, "3", "2", "2:0x1x1"), (1, "9x32x32", 512, 512, "3", "1", "2:0x1x1"),
    ],
}  # fmt: skip
RESULT = {"fprop": "y", "dgrad": "dx", "wgrad": "df"}


def layer_of(text):
    """A layer of the command line."""
    parts = text.split(",")
    one = r"\d+(x\d+){0,2}"
    if len(parts) != 7 or not all(part.isdigit() for part in (parts[0], *parts[2:4])) or not all(re.fullmatch(one, part) for part in (parts[1], *parts[4:6])):
        raise argparse.ArgumentTypeError(f"`{text}` is not NB,IMAGE,C,KOUT,FILTER,STRIDE,PADDING such as 32,56x56,64,64,3,1,1")
    if not re.fullmatch(r"\d+(:\d+)?(x\d+(:\d+)?){0,2}", parts[6]):
        raise argparse.ArgumentTypeError(f"`{parts[6]}` is no padding such as 1 or 2:0x1x1")
    return (int(parts[0]), parts[1], int(parts[2]), int(parts[3]), *parts[4:])


def image_of(layer):
    """The extents of an image."""
    return [int(n) for n in layer[1].split("x")]


def spread(text, modes):
    """Numbers, one a mode, or what one text stands for."""
    parts = text.split("x")
    return parts * modes if len(parts) == 1 else parts


def along(layer):
    """(taps, stride, zeros in front, zeros behind) of each mode."""
    modes = len(image_of(layer))
    taps, strides, padding = (spread(text, modes) for text in layer[4:7])
    sides = [(p.split(":") * 2)[:2] for p in padding]
    return [(int(r), int(s), int(front), int(back)) for r, s, (front, back) in zip(taps, strides, sides)]


def output_of(layer):
    """The extents of an image of the result."""
    return [(n + front + back - r) // s + 1 for n, (r, s, front, back) in zip(image_of(layer), along(layer))]


def flops_of(layer):
    """Operations of a pass: those of each are alike."""
    return 2 * layer[0] * math.prod(output_of(layer)) * layer[3] * layer[2] * math.prod(r for r, *_ in along(layer))


def words_of(layer, which, dtype):
    """The parameters that a layer decides."""
    dims = len(image_of(layer))
    return [f"pass={which}", f"dims={dims}", f"filter={layer[4]}", f"stride={layer[5]}", f"padding={layer[6]}", f"dtype={dtype}"]


def sizes_of(layer):
    """The sizes of the program."""
    image = image_of(layer)
    return {"nb": layer[0], **dict(zip("dhw"[-len(image) :], image)), "c": layer[2], "kout": layer[3]}


def job_of(layer, which, config, dtype):
    """What to compile."""
    return {"operator": "conv_hopper", "words": words_of(layer, which, dtype), "config": config, "sizes": sizes_of(layer)}


def chosen(args, layer, which):
    """The configuration that `tilewright kernels` chooses for a layer on a device, without what the layer decides."""
    sizes = ",".join(f"{name}={value}" for name, value in sizes_of(layer).items())
    given = words_of(layer, which, args.dtype)
    command = [args.bin, "kernels", "conv_hopper", *(word for pair in given for word in ("-p", pair)), "--for", sizes, "--config-only", "--device-name", args.device_name]
    decided = {word.split("=")[0] for word in given}
    return " ".join(word for word in common.asked(command).split() if word.split("=")[0] not in decided)


def planned(file):
    """Configurations by (pass, layer): a file's lines `PASS LAYER CONFIG; CONFIG …`, of which `chosen` stands for what is chosen without it."""
    plan = {}
    for line in open(file).read().splitlines():
        if line.strip():
            which, layer, configs = line.split(maxsplit=2)
            plan.setdefault((which, layer_of(layer)), []).extend(config.strip() for config in configs.split(";"))
    return plan


def last(tensor):
    """A tensor of torch's order of modes, channels behind the images, as one whose channels come last."""
    return tensor.movedim(1, -1)


def measure(args, shape, jobs, launches, modules, clock, file):
    """Checks and times a pass of a layer; how many configurations are wrong."""
    import torch

    which, layer = shape
    # All algorithms have a try, and not the first ten.
    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 0
    dtype, modes = common.torch_type(args.dtype), along(layer)
    label, wrong, ours = f"{which} {','.join(map(str, layer))}", 0, []
    dims, memory = len(modes), (torch.channels_last_3d if len(modes) == 3 else torch.channels_last)
    scale = 1 / math.sqrt(layer[2] * math.prod(r for r, *_ in modes))

    def drawn(channels, extents, images=layer[0], factor=1.0):
        tensor = torch.randn(images, channels, *extents, device="cuda", dtype=dtype) * factor
        return tensor.contiguous(memory_format=memory) if dims > 1 else tensor

    x, dy = drawn(layer[2], image_of(layer)), drawn(layer[3], output_of(layer))
    f = drawn(layer[2], [r for r, *_ in modes], images=layer[3], factor=scale)
    even = all(front == back for *_, front, back in modes)
    zeros = [] if even else [n for *_, front, back in reversed(modes) for n in (front, back)]
    padded = x if even else torch.nn.functional.pad(x, zeros).contiguous(memory_format=memory)
    stride, padding = [s for _, s, *_ in modes], [front if even else 0 for *_, front, _ in modes]
    wanted = [which == "dgrad", which == "wgrad", False]

    def cudnn(x=padded, f=f, dy=dy):
        if which == "fprop":
            return torch.ops.aten.convolution(x, f, None, stride, padding, [1] * dims, False, [0] * dims, 1)
        found = torch.ops.aten.convolution_backward(dy, x, f, None, stride, padding, [1] * dims, False, [0] * dims, 1, wanted)
        return found[0] if which == "dgrad" else found[1]

    def without_padding(result):
        if which != "dgrad" or even:
            return result
        for mode, (n, (*_, front, _)) in enumerate(zip(image_of(layer), modes)):
            result = result.narrow(mode + 2, front, n)
        return result

    theirs = last(without_padding(cudnn())).contiguous()
    # In f32, of the first image; a weight gradient is a sum over all of them.
    few = slice(None) if which == "wgrad" else slice(0, 1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = False
    exact = last(without_padding(cudnn(padded[few].float(), f.float(), dy[few].float()))).double()
    torch.backends.cudnn.benchmark = True
    norm = float(exact.norm())

    def error_of(result):
        shaped = result.reshape(theirs.shape)
        return float((shaped[: exact.shape[0]].double() - exact).norm()) / norm

    given = {"x": last(x).contiguous(), "f": last(f).contiguous(), "dy": last(dy).contiguous()}
    errors = {"cudnn": error_of(theirs)}
    # A filter of one tap is a product of matrices: images and their modes are one.
    flat = {name: t.reshape(-1, t.shape[-1]) for name, t in given.items()}
    for job, each in zip(jobs, launches):
        clock.watch(f"{label} {job['config'] or 'default'}")

        def shaped(name):
            ranks = {len(p["shape"]) for launch in each for p in launch["params"] if p["kind"] == "tensor" and p["name"] == name}
            return flat[name] if 2 in ranks else given[name]

        plan = common.Plan(each, modules, {**{name: shaped(name) for name in given}, RESULT[which]: None}, {}, {})
        first, notes = common.repeated(plan, args.repeat)
        error = error_of(first)
        limit = 1e-3 if dtype == torch.float16 else 8e-3
        if notes.count("launches differ") or not error < limit:
            notes.append(f"WRONG: {error:.1e}, cuDNN {errors['cudnn']:.1e}")
            wrong += 1
        ours.append((job, plan, error, notes))
    common.raced(
        clock, args, shape, label, [("cudnn", cudnn)], ours, file,
        head=lambda job, error: f"{label:<48} {job['config'] or 'default':<40} {error:.1e}",
        speed=lambda job, ms: f"{ms:8.4f} ms {flops_of(layer) / ms / 1e9:5.0f} TFLOP/s",
        shown=lambda name, ms: f"{name} {ms:.4f}",
        more=lambda plan, error: {"error": error, "peer_errors": errors, "registers": [kernel.registers for kernel in plan.kernels]},
    )  # fmt: skip
    return wrong


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--layers", nargs="+", type=layer_of, metavar="LAYER", help="layers instead of those of sets")
    parser.add_argument("--pass", nargs="+", dest="passes", choices=list(RESULT), default=list(RESULT))
    parser.add_argument("--dtype", default="f16", choices=["f16", "bf16"])
    parser.add_argument("--device-name", default="NVIDIA H200", help="the GPU that configurations are chosen for")
    parser.add_argument("--config", nargs="+", metavar="WORDS", help="configurations instead of the chosen one")
    parser.add_argument("--plan", metavar="FILE", help="passes, layers and their configurations: lines `PASS LAYER CONFIG; CONFIG …`; chosen is one, too")
    return common.parsed(parser, repeat=3)


def main():
    args = arguments()
    layers = args.layers or [layer for name in args.set for layer in SETS[name]]
    plan = planned(args.plan) if args.plan else {(which, layer): args.config or ["chosen"] for which in args.passes for layer in layers}
    todo = []
    for (which, layer), configs in plan.items():
        configs = [chosen(args, layer, which) if config == "chosen" else config for config in configs]
        todo.append(((which, layer), [job_of(layer, which, config, args.dtype) for config in dict.fromkeys(configs)]))
    ready, failed = common.ready_of(todo, args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)
    common.measured(ready, failed, args, measure)


if __name__ == "__main__":
    main()
