#!/usr/bin/env python3
"""Layers of experts, and their two products alone, beside torch (`torch._grouped_mm`), vLLM's Triton kernels and Humming's, in one interleaved run.

    cargo build --release && cargo build --release -p tilewright-kernels --example moe_plan
    python3 bench/moe.py --condition rested
    python3 bench/moe.py --emit-launches launches      # no GPU: compiles only
    python3 bench/moe.py --launches launches           # compiles nothing
    python3 bench/moe.py --plans 8 --peers             # the plans that the estimate takes for the fastest, alone
    python3 bench/moe.py --set mixtral --tokens 1 64 --up "swap=true bm=64 bn=8 stages=10 warpgroups=1" --part up

Needs what bench/gemm.py needs. The launches are those of `MoeLayer::plan`; --up and --down replace the parameters of a product that say how it is done, whose
tiles of rows must be as the plan's. --kernels says what each launch takes alone. Experts are drawn at random, once. A row is a part of a layer: `up`, the product with both matrices
ahead and silu · mul; `down`, the product behind; and `layer`, all from the experts of tokens to the sums. With --weights fp8 weights are e4m3 with scales of 128 × 128, with int4 of 4 bits with a scale for 128 neighbours, with rows-e4m3 and rows-i8 of 8 bits with a scale for each row, as activations; `up` ends with the gated units, in 8 bits with their rounding, and that of tokens counts in `layer`
alone. vLLM's kernels are there where PEERS_VLLM_SRC names
vllm/model_executor/layers/fused_moe and PEERS_VLLM and PEERS_VLLM_MOE its two libraries; its `up` has silu · mul in launches of their own, which are counted. Humming's products of int4 are there where it can be imported,
beside vLLM's silu · mul; its `layer` has vLLM's tables of tokens ahead, and torch's sum of experts by weights behind.
The GPU spins
ahead of each timing, so that launches are queued. Gigabytes are those of the weights of experts that tokens have. The ratio is the fastest peer's time over ours.
"""

import argparse
import copy
import importlib.util
import json
import os
import pathlib
import statistics
import tempfile

import common

# Experts, experts of a token, hidden, intermediate: of DeepSeek-V3 an eighth of each expert, as eight GPUs share them.
SETS = {"deepseek": (256, 8, 7168, 256), "mixtral": (8, 2, 4096, 14336)}
# A layer that tools that run kernels slowly go through.
SMALL = (8, 2, 512, 256)
TOKENS = [1, 4, 16, 64, 256, 1024, 4096]
PARTS = ("up", "down", "layer")
# Parameters of a product that say what is computed.
MEANING = ("dtype", "weights", "group", "out", "batch", "gather", "dual", "fused", "dependent")
PRODUCTS = ("gemm_hopper", "gemm_fp8_blocks", "gemm_weights")
# Neighbours that share a scale.
BLOCK = 128
# What a weight and its part of a scale take in memory, and words for the plan.
ROWS = {"rows-e4m3": "e4m3", "rows-i8": "i8"}
WEIGHTS = {"same": (2, []), "fp8": (1, ["--fp8"]), "int4": (0.5 + 2 / BLOCK, ["--int4", BLOCK]), **{name: (1, ["--rows", kind]) for name, kind in ROWS.items()}}
# Milliseconds in which the host queues the launches of a layer, of peers written in Python too.
QUEUED = 2.5


def plans_of(args, shape, tokens):
    """The plans of a layer, each its launches: from beside the compiled kernels where they are there."""
    name = f"plans-{'-'.join(['x'.join(map(str, shape)), *map(str, (tokens, args.dtype, args.weights, args.plans)), *args.added])}.json"
    kept = args.launches and pathlib.Path(args.launches, name)
    if kept and kept.exists():
        plans = json.loads(kept.read_text())
    else:
        experts, k, hidden, intermediate = shape
        command = [args.planner, "--dtype", args.dtype, "--experts", experts, "-k", k, "--hidden", hidden, "--intermediate", intermediate, "--tokens", tokens]
        command += ["--plans", args.plans, *WEIGHTS[args.weights][1]]
        ways = [[], *(["--added", dtype] for dtype in args.added)]
        plans = [json.loads(line) for way in ways for line in common.asked(list(map(str, [*command, *way]))).splitlines()]
    if args.emit_launches:
        folder = pathlib.Path(args.emit_launches)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(plans))
    return plans


def replaced(launch, words):
    """The launch of a product with other parameters that say how it is done."""
    if not words:
        return launch
    means = {name: value for name, value in launch["parameters"].items() if name in MEANING}
    return launch | {"parameters": means | dict(word.split("=") for word in words.split())}


def jobs_of(args, shape, tokens):
    """What to compile: of each plan a job for each operator, whose programs follow each other."""
    return [job for at, plan in enumerate(plans_of(args, shape, tokens)) for job in jobs_of_plan(args, at, plan["launches"])]


def jobs_of_plan(args, at, launches):
    """The jobs of the plan `at`."""
    products = [launch for launch in launches if launch["operator"] in PRODUCTS]
    jobs = []
    for launch in launches:
        if jobs and launch["operator"] == "moe_sort" == jobs[-1]["operator"]:
            jobs[-1]["sizes"] = launch["sizes"]
            continue
        if launch["operator"] in PRODUCTS:
            launch = replaced(launch, args.up if launch is products[0] else args.down)
        config = " ".join(f"{name}={value}" for name, value in launch["parameters"].items())
        tensors = launch["tensors"] | ({"weights": "weights_of_places"} if launch["operator"] == "moe_sort" else {})
        jobs.append({"operator": launch["operator"], "words": [], "config": config, "sizes": launch["sizes"], "tensors": tensors, "plan": at})
    return [job | {"of": len(jobs)} for job in jobs]


def named(launches, tensors):
    """Launches whose parameters have the layer's names."""
    launches = copy.deepcopy(launches)
    for launch in launches:
        for param in launch["params"]:
            if param["kind"] in ("tensor", "tensors"):
                param["name"] = tensors.get(param["name"], param["name"])
    return launches


def parts_of(launches):
    """The launches of each part: those of `up` end ahead of the second product, and begin with the copy of rows where there is one."""
    first, second = (at for at, launch in enumerate(launches) if launch["kernel"] in PRODUCTS)
    first -= launches[first - 1]["kernel"] == "moe_gather"
    return {"up": launches[first:second], "down": [launches[second]], "layer": launches}


def torch_layer(x, matrices, ids, weights):
    """torch's way: gathered rows, products by groups. The runs of all parts, and the result."""
    import torch
    import torch.nn.functional as F

    if matrices.scaled:
        raise RuntimeError("no products by groups of weights with scales")
    w13, w2 = matrices.w13, matrices.w2
    experts, k, kept = len(w13), ids.shape[1], {}

    def order():
        flat = ids.flatten()
        at = torch.argsort(flat, stable=True)
        kept["at"], kept["rows"] = at, at // k
        kept["ends"] = torch.bincount(flat, minlength=experts).cumsum(0).to(torch.int32)

    def up():
        both = torch._grouped_mm(x[kept["rows"]], w13.mT, offs=kept["ends"])
        gate, other = both.chunk(2, -1)
        kept["h"] = F.silu(gate) * other

    def down():
        kept["z"] = torch._grouped_mm(kept["h"], w2.mT, offs=kept["ends"])

    def layer():
        order()
        up()
        down()
        scaled = torch.empty_like(kept["z"])
        scaled[kept["at"]] = kept["z"]
        kept["y"] = (scaled.view(*ids.shape, -1) * weights[..., None].to(x.dtype)).sum(1)

    layer()
    torch.cuda.synchronize()
    return {"up": up, "down": down, "layer": layer}, lambda: kept["y"]


def load_vllm():
    """vLLM's two libraries of operators."""
    import torch

    for library in ("PEERS_VLLM", "PEERS_VLLM_MOE"):
        torch.ops.load_library(os.environ[library])


def aligned_by(ids, experts, rows):
    """vLLM's tables of the places of tokens in tiles of so many rows, and what fills them."""
    import torch

    most = ids.numel() + experts * (rows - 1)
    most = min(most, ids.numel() * rows) if ids.numel() < experts else most
    table = [torch.empty(size, dtype=torch.int32, device="cuda") for size in (most, -(-most // rows), 1)]
    return table, most, lambda: torch.ops._moe_C.moe_align_block_size(ids, experts, rows, *table, None, None)


def vllm_layer(x, matrices, ids, weights):
    """vLLM's Triton kernels, in the tiles that it chooses for an H200: its tuned file where there is one."""
    import torch
    import triton
    import triton.language as tl

    if matrices.how in ROWS:
        raise RuntimeError("no products of rows with scales here")
    source = pathlib.Path(os.environ["PEERS_VLLM_SRC"])
    load_vllm()
    text = (source / "fused_moe.py").read_text()
    begin, end = text.index("@triton.jit\ndef write_zeros_to_output"), text.index("def invoke_fused_moe_wna16_cuda_kernel")
    file = pathlib.Path(tempfile.mkdtemp(), "vllm_moe_kernels.py")
    file.write_text("import triton, triton.language as tl\n" + text[begin:end])
    spec = importlib.util.spec_from_file_location("vllm_moe_kernels", file)
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    (experts, hidden, between), how = matrices.extents, matrices.how
    fp8 = how == "fp8"
    (tokens, k), kind = ids.shape, tl.float16 if x.dtype == torch.float16 else tl.bfloat16
    both, w2, s13, s2 = matrices.of_vllm()
    of_fp8 = ",dtype=fp8_w8a8,block_shape=[128,128]" if fp8 else ""
    tuned = source / "configs" / f"E={experts},N={between},device_name=NVIDIA_H200{of_fp8}.json"
    if how == "int4":
        tiles = {"BLOCK_SIZE_M": 16 if tokens <= 20 else 32 if tokens <= 40 else 64, "GROUP_SIZE_M": 1}
        tiles |= {"BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64} if tokens == 1 else {"BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}
    elif tuned.exists():
        known = {int(size): tiles for size, tiles in json.loads(tuned.read_text()).items() if size.isdigit()}
        tiles = {name: value for name, value in known[min(known, key=lambda size: abs(size - tokens))].items() if name != "SPLIT_K"}
    elif fp8:
        tiles = {"BLOCK_SIZE_M": 16 if tokens <= 64 else 64, "BLOCK_SIZE_N": 64 if tokens <= 8 else 128, "BLOCK_SIZE_K": BLOCK,
                 "GROUP_SIZE_M": 1 if tokens <= 16 else 32, "num_warps": 4, "num_stages": 4 if tokens <= 4 else 3}  # fmt: skip
    else:
        rows = next((rows for most, rows in ((32, 16), (96, 32), (512, 64)) if tokens <= most), 128)
        tiles = {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": 64 if tokens <= 64 else 128, "BLOCK_SIZE_K": 128 if tokens <= 64 else 64,
                 "GROUP_SIZE_M": 16 if tokens // experts > 128 else 1, "num_warps": 4 if tokens <= 128 else 8, "num_stages": 4 if tokens <= 32 else 3}  # fmt: skip
    rows, kept = tiles["BLOCK_SIZE_M"], {}
    table, most, align = aligned_by(ids, experts, rows)
    gated, h, y = (torch.empty(ids.numel(), size, device="cuda", dtype=x.dtype) for size in (2 * between, between, hidden))
    out = torch.empty_like(x)

    def rounded(x):
        if not fp8:
            return x, None
        y, s = torch.empty_like(x, dtype=torch.float8_e4m3fn), torch.empty(x.shape[0], x.shape[1] // BLOCK, device="cuda")
        torch.ops._C.per_token_group_fp8_quant(x, y, s, BLOCK, 1e-10, -448.0, 448.0, False, False, False)
        return y, s

    swap = fp8 and rows < 64 and tiles["BLOCK_SIZE_N"] >= 64

    def product(a, sa, b, sb, c, scaled, each):
        padded = min(most, a.shape[0] * each * rows) if a.shape[0] < rows else most
        grid = (triton.cdiv(padded, rows) * triton.cdiv(b.shape[1], tiles["BLOCK_SIZE_N"]),)
        if how == "int4":
            depth = a.shape[1]
            kernels.fused_moe_kernel_gptq_awq[grid](
                a, b, c, sb, None, weights, *table, b.shape[1], depth, padded, a.shape[0] * each, a.stride(0), 1, b.stride(0), b.stride(2), b.stride(1),
                c.stride(0), 1, sb.stride(0), sb.stride(2), sb.stride(1), 0, 0, 0, block_k_diviable=depth % tiles["BLOCK_SIZE_K"] == 0, group_size=BLOCK,
                MUL_ROUTED_WEIGHT=scaled, top_k=each, compute_type=kind, has_zp=False, use_int4_w4a16=True, use_int8_w8a16=False, SPLIT_K=1, **tiles)  # fmt: skip
            return
        kernels.fused_moe_kernel[grid](
            a, b, c, None, sa, sb, weights, *table, b.shape[1], b.shape[2], padded, a.shape[0] * each, a.stride(0), 1, b.stride(0), b.stride(2), b.stride(1),
            c.stride(0), 1, *(sa.stride() if fp8 else (0, 0)), *((sb.stride(0), sb.stride(2), sb.stride(1)) if fp8 else (0, 0, 0)), 0, 0, *((BLOCK, BLOCK) if fp8 else (0, 0)),
            naive_block_assignment=False, MUL_ROUTED_WEIGHT=scaled, top_k=each, compute_type=kind, use_fp8_w8a8=fp8, use_int8_w8a8=False, use_int8_w8a16=False,
            per_channel_quant=False, HAS_BIAS=False, SWAP_AB=swap, USE_TD=False, SPLIT_K=1, **tiles)  # fmt: skip

    kept["x"] = rounded(x)

    def up():
        product(*kept["x"], both, s13, gated, False, k)
        torch.ops._C.silu_and_mul(h, gated)
        kept["h"] = rounded(h)

    def down():
        product(*kept["h"], w2, s2, y, True, 1)

    def layer():
        align()
        kept["x"] = rounded(x)
        up()
        down()
        torch.ops._moe_C.moe_sum(y.view(tokens, k, hidden), out, None, None)
        kept["y"] = out

    layer()
    torch.cuda.synchronize()
    return {"up": up, "down": down, "layer": layer}, lambda: kept["y"]


def humming_layer(x, matrices, ids, weights):
    """Humming's products by tables of tokens, in the tiles that it chooses, between vLLM's tables and silu · mul; torch adds the experts of a token by their weights."""
    import torch
    from humming.layer import HummingLayer, HummingLayerMethod
    from humming.tune import get_heuristics_config

    if matrices.how != "int4":
        raise RuntimeError("products of int4 alone")
    load_vllm()
    (experts, hidden, between), (tokens, k) = matrices.extents, ids.shape
    w13, w2, s13, s2 = matrices.of_vllm()

    def product(w, s, shape):
        layer = HummingLayer(shape_n=shape[0], shape_k=shape[1], weight_config={"dtype": "uint4", "group_size": BLOCK}, num_experts=experts, torch_dtype=x.dtype).cuda()
        layer.load_from_tensors({"weight": w.view(torch.int32), "weight_scale": s})
        layer.transform()
        tuned = get_heuristics_config(layer_config=layer.humming_metas[""], gemm_type="indexed")
        rows = next((config["block_shape"][0] for low, high, config in tuned if low < ids.numel() <= high), 64)
        table, _, align = aligned_by(ids, experts, rows)
        align()
        aligns[rows] = align
        out = torch.empty(ids.numel(), shape[0], device="cuda", dtype=x.dtype)

        def run(a, each):
            HummingLayerMethod.forward_layer(
                layer, a, outputs=out, sorted_ids=table[0], expert_ids=table[1], num_tokens_padded=table[2], top_k=each, valid_shape_m=ids.numel(),
                compute_config={"gemm_type": "indexed"}, tuning_config=tuned)  # fmt: skip
            return out

        return run

    # Products whose tiles have as many rows have one table.
    aligns, factors = {}, weights[:, None].to(x.dtype)
    ahead, behind = product(w13, s13, (2 * between, hidden)), product(w2, s2, (hidden, between))
    h, kept = torch.empty(ids.numel(), between, device="cuda", dtype=x.dtype), {}

    def up():
        torch.ops._C.silu_and_mul(h, ahead(x, k))

    def layer():
        for align in aligns.values():
            align()
        up()
        kept["y"] = torch.bmm(factors, behind(h, 1).view(tokens, k, hidden))[:, 0]

    layer()
    torch.cuda.synchronize()
    return {"up": up, "down": lambda: behind(h, 1), "layer": layer}, lambda: kept["y"]


class Matrices:
    """The weights of all experts at random: of the type of activations, in e4m3 with scales of blocks, codes of 4 bits with scales of groups, or of 8 bits with scales of rows."""

    def __init__(self, shape, how, dtype):
        import torch

        experts, _, hidden, between = shape
        self.extents, self.how, self.scaled = (experts, hidden, between), how, how != "same"

        def drawn(rows, depth):
            if how == "int4":
                s = (torch.rand(experts, depth // BLOCK, rows, device="cuda") + 0.5) * depth**-0.5 / 4
                return torch.randint(0, 16, (experts, rows, depth), device="cuda", dtype=torch.uint8), s.to(dtype)
            if how in ROWS:
                kind = common.torch_type(ROWS[how])
                most = 127 if kind == torch.int8 else 448
                w = torch.empty(experts, rows, depth, device="cuda", dtype=kind)
                for each in w:
                    each.copy_((torch.randn(rows, depth, device="cuda") * most / 5).clamp(-most, most))
                return w, (torch.rand(experts, rows, device="cuda") + 0.5) * depth**-0.5 * 5 / most
            w = torch.empty(experts, rows, depth, device="cuda", dtype=torch.float8_e4m3fn if how == "fp8" else dtype)
            for each in w:
                each.copy_(torch.randn(rows, depth, device="cuda") * (1 if how == "fp8" else depth**-0.5))
            blocks = (experts, rows // BLOCK, depth // BLOCK)
            return w, (torch.rand(*blocks, device="cuda") + 0.5) * depth**-0.5 if how == "fp8" else None

        (self.w13, self.s13), (self.w2, self.s2) = drawn(2 * between, hidden), drawn(hidden, between)

    def plain(self, w, s, expert):
        """An expert's matrix in f32."""
        if self.how == "int4":
            codes = w[expert].float()
            return (codes - 16 * (codes >= 8)) * s[expert].float().T.repeat_interleave(BLOCK, 1)
        if self.how in ROWS:
            return w[expert].float() * s[expert][:, None]
        wide = s[expert].repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1) if self.how == "fp8" else 1
        return w[expert].float() * wide

    def given(self):
        """What our kernels read, by name."""
        if self.how == "int4":
            import weights

            experts = len(self.w13)
            held = [weights.stored(w.flatten(0, 1), 4, BLOCK) for w in (self.w13, self.w2)]
            w13, w2 = (w.view(experts, -1, *w.shape[1:]) for w in held)
        else:
            w13, w2 = self.w13, self.w2
            w13 = w13.view(len(w13), 2, -1, w13.shape[-1]) if self.how == "same" else w13
        return {"w13": w13, "w2": w2, "s13": self.s13, "s2": self.s2}

    def of_vllm(self):
        """What vLLM's kernels read: codes count from -8, the first of two in the low half of a byte, and scales are by rows."""
        if self.how != "int4":
            return self.w13, self.w2, self.s13, self.s2
        pairs = [(w ^ 8).view(*w.shape[:-1], -1, 2) for w in (self.w13, self.w2)]
        w13, w2 = (pair[..., 0] | pair[..., 1] << 4 for pair in pairs)
        return w13, w2, *(s.mT.contiguous() for s in (self.s13, self.s2))


def exact_of(x, matrices, ids, weights, sample):
    """The results of some tokens, in f32."""
    import torch
    import torch.nn.functional as F

    def expert(t, e):
        gate, up = (matrices.plain(matrices.w13, matrices.s13, e) @ x[t].float()).chunk(2)
        return matrices.plain(matrices.w2, matrices.s2, e) @ (F.silu(gate) * up)

    def token(t):
        return torch.stack([weights[t, j] * expert(t, e) for j, e in enumerate(ids[t].tolist())]).sum(0)

    return torch.stack([token(t) for t in sample])


def measure(args, case, jobs, launches, modules, clock, file):
    """Checks and times one number of tokens; how many plans are wrong."""
    import peers
    import torch

    (experts, k, hidden, intermediate), tokens = case[:4], case[4]
    label, dtype, missing = "x".join(map(str, case)), common.torch_type(args.dtype), []
    x = torch.randn(tokens, hidden, device="cuda", dtype=dtype)
    matrices = Matrices(case[:4], args.weights, dtype)
    weights, ids = torch.rand(tokens, experts, device="cuda").topk(k)
    weights, ids = weights.softmax(-1).contiguous(), ids.to(torch.int32).contiguous()
    sample = sorted({0, tokens // 2, tokens - 1})
    exact = exact_of(x, matrices, ids, weights, sample)
    found = []
    for name, make in PEERS.items():
        if name in args.peers:
            found += peers.attempt(missing, name, lambda name=name, make=make: [(name, *make(x, matrices, ids, weights))])
    for note in missing:
        print(f"{label:<28} without {note}", flush=True)
    for name, runs, result in found:
        for run in runs.values():
            run()
        torch.cuda.synchronize()
        off = float((result()[sample].float() - exact).norm() / exact.norm())
        if not off < 6e-2:
            print(f"{label:<28} {name} is off by {off:.1e}", flush=True)
    between = ["rows", "factor", "places", "groups", "first", "ends", "counted", "h", "z", "y", "units", "xr", "xq", "xs", "hq", "hs"]
    given = {"x": x, "ids": ids.flatten(), "weights": weights, "weights_of_places": weights.flatten(), **dict.fromkeys(between), **matrices.given()}
    bound, wrong, stored = 6e-2 if args.weights in ("fp8", *ROWS) else 3e-3 if dtype == torch.float16 else 2e-2, 0, {}
    layers = []
    for both in whole_plans(jobs, launches):
        whole, configs, plans, made = launches_of_plan(both), configs_of([job for job, _ in both]), {}, dict(stored)
        # Modules are known by the launch.
        known = modules | {id(copied): modules[id(launch)] for launch, copied in zip((launch for _, each in both for launch in each), whole)}
        for part, launches_of_part in parts_of(whole).items():
            plans[part] = common.Plan(launches_of_part, known, given, {}, made, results=("y", "h", "z", "hq"))
        # Plans share the weights as their kernels want them.
        stored |= {key: tensor for key, tensor in made.items() if key[0] in ("w13", "w2")}
        clock.watch(f"{label} {configs['layer']}")
        first, notes = common.repeated(plans["layer"], args.repeat)
        error = float((first[sample].float() - exact).norm() / exact.norm())
        # Results that are added as they leave are so in an open order.
        if any(job["operator"] == "moe_clear" for job, _ in both):
            notes = [note for note in notes if note != "launches differ"]
        if "launches differ" in notes or not error < bound:
            notes.append("WRONG")
            wrong += 1
        layers.append((configs, plans, error, notes, [launch["kernel"] for launch in whole]))
    hit = ids.unique().numel()
    clock.spin = QUEUED
    for part in args.part:
        count = {"up": 2, "down": 1, "layer": 3}[part]

        def speed(_, ms, count=count):
            flops, size = 2 * count * tokens * k * hidden * intermediate, count * hit * hidden * intermediate * WEIGHTS[args.weights][0]
            return f"{ms * 1000:8.1f} µs {size / ms / 1e6:5.0f} GB/s {flops / ms / 1e9:6.1f} TFLOP/s"

        def head(job, error, part=part):
            return f"{label:<28} {part:<6} {error:.1e}" + (f" {job['config']}" if len(layers) > 1 else "")

        common.raced(
            clock, args, [*case, part], f"{label} {part}", [(name, runs[part]) for name, runs, _ in found if part in runs],
            [({"config": configs[part]}, plans[part], error, notes) for configs, plans, error, notes, _ in layers], file, speed=speed, head=head,
            shown=lambda name, ms: f"{name} {ms * 1000:.1f}",
            more=lambda plan, error: {"error": error, "experts_hit": hit},
        )  # fmt: skip
    for _, plans, _, notes, names in layers if args.kernels else []:
        if not any("WRONG" in note for note in notes):
            print(f"{label:<28} {alone(clock, plans['layer'], names)}", flush=True)
    clock.spin = 0.0
    return wrong


PEERS = {"torch": torch_layer, "vllm": vllm_layer, "humming": humming_layer}


def whole_plans(jobs, launches):
    """[(job, launches)] of each plan whose jobs all compile."""
    plans = {}
    for both in zip(jobs, launches):
        plans.setdefault(both[0]["plan"], []).append(both)
    return [both for both in plans.values() if len(both) == both[0][0]["of"]]


def launches_of_plan(both):
    """The launches of a plan's jobs, whose parameters have the layer's names."""
    return [launch for job, each in both for launch in named(each, job["tensors"])]


def configs_of(jobs):
    """The configurations of each part of a plan."""
    products = [job["config"] for job in jobs if job["operator"] in PRODUCTS]
    return {"up": products[0], "down": products[1], "layer": " + ".join(f"{job['operator']} {job['config']}" for job in jobs)}


def alone(clock, plan, names):
    """The time of each launch of a plan alone, in microseconds."""
    times = [statistics.median(clock.times(lambda kernel=kernel: kernel(plan.stream), 10)) for kernel in plan.kernels]
    return ", ".join(f"{name} {ms * 1000:.1f}" for name, ms in zip(names, times))


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="all", choices=["all", *SETS, "small"])
    parser.add_argument("--tokens", nargs="+", type=int, default=TOKENS)
    parser.add_argument("--dtype", default="bf16", choices=["f16", "bf16"])
    parser.add_argument("--weights", default="same", choices=list(WEIGHTS))
    parser.add_argument("--part", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS, help="what stands beside it")
    parser.add_argument("--plans", type=int, default=1, help="plans of each layer, by their estimated time")
    parser.add_argument("--added", nargs="*", default=[], metavar="TYPE", help="plans too that add the results of experts in this type as they leave, in an open order")
    parser.add_argument("--kernels", action="store_true", help="time each launch alone, too")
    parser.add_argument("--up", default="", metavar="WORDS", help="other parameters of the product ahead")
    parser.add_argument("--down", default="", metavar="WORDS", help="other parameters of the product behind")
    parser.add_argument("--planner", default="target/release/examples/moe_plan")
    return common.parsed(parser, repeat=3)


def main():
    args = arguments()
    sets = SETS.values() if args.set == "all" else [SETS.get(args.set, SMALL)]
    todo = [((*shape, tokens), jobs_of(args, shape, tokens)) for shape in sets for tokens in args.tokens]
    ready, failed = common.ready_of(todo, args)
    if args.check or args.emit_launches:
        raise SystemExit(1 if failed else 0)

    import torch

    # A case none of whose plans compiles has no layer.
    ready = [(case, both) for case, both in ready if whole_plans(*zip(*both) if both else ((), ()))]
    common.measured(ready, failed, args, measure, torch.cuda.empty_cache)


if __name__ == "__main__":
    main()
