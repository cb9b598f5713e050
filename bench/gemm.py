#!/usr/bin/env python3
"""Matrix products beside cuBLAS (torch.matmul) in one process, in turns: time, ratio, error against float32.

    python3 bench/gemm.py --bin target/release/tilewright [--shapes 4096,4096,4096 8192,8192,8192] [--config "bn=192 stages=4" …]
                          [--rounds 7] [--rest 0.2] [--clean-l2] [--operator gemm_hopper]

Needs a Hopper GPU, torch, triton and cuda-bindings. The kernels are those of `tilewright kernels`, compiled by `tilewright compile --emit
launch`, loaded by the driver. *rested*: the GPU idles before each timing, which then meets a cool chip; the L2 cache is emptied before
each launch, by writing (as triton's do_bench does) or with --clean-l2 by reading, so that no dirty lines have to be written
back during the kernel. The ratio is cuBLAS' time over ours: more is better.
"""

import argparse
import ctypes
import json
import math
import statistics
import subprocess
import time

import torch
from cuda.bindings import driver as cu
from triton.testing import do_bench


def ok(result):
    """A driver call's value, or its error."""
    error, *values = result
    if int(error):
        raise RuntimeError(f"driver: {error!r}")
    return values[0] if len(values) == 1 else values


def launch_of(binary, operator, config, shape):
    """What `--emit launch` says of an operator's kernel at a shape."""
    flags = [word for given in config.split() for word in ("-p", given)]
    program = subprocess.run([binary, "kernels", operator, *flags], capture_output=True, text=True)
    if program.returncode:
        raise SystemExit(f"{config}: {program.stderr}")
    sizes = [word for name, value in zip("mnk", shape) for word in ("-p", f"{name}={value}")]
    command = [binary, "compile", "-", "--arch", "sm_90a", "--emit", "launch", *sizes]
    done = subprocess.run(command, input=program.stdout, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{config} at {shape}: {done.stderr}")
    return json.loads(done.stdout)


class Kernel:
    """A kernel that is loaded and bound to tensors."""

    def __init__(self, launch, tensors):
        self.launch = launch
        log = bytes(8192)
        option = cu.CUjit_option
        module = ok(cu.cuModuleLoadDataEx(
            launch["ptx"].encode() + b"\0", 2,
            [option.CU_JIT_INFO_LOG_BUFFER, option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES], [log, len(log)]))
        self.log = log.split(b"\0")[0].decode(errors="replace")
        self.function = ok(cu.cuModuleGetFunction(module, launch["kernel"].encode()))
        shared = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        ok(cu.cuFuncSetAttribute(self.function, shared, launch["shared_bytes"]))
        self.keep = []
        for param in launch["params"]:
            if param["kind"] == "tensor":
                self.keep.append(ctypes.c_uint64(tensors[len(self.keep)].data_ptr()))
            elif param["kind"] == "size":
                self.keep.append(ctypes.c_uint32(param["value"]))
            else:
                self.keep.append(self.tensor_map(param, tensors[param["of"]]))
        pointers = [ctypes.addressof(k) if isinstance(k, ctypes._SimpleCData) else int(k.getPtr()) for k in self.keep]
        self.arguments = (ctypes.c_void_p * len(pointers))(*pointers)
        self.config = cu.CUlaunchConfig()
        self.config.gridDimX, self.config.gridDimY, self.config.gridDimZ = launch["grid"]
        self.config.blockDimX, self.config.blockDimY, self.config.blockDimZ = launch["threads"], 1, 1
        self.config.sharedMemBytes = launch["shared_bytes"]
        if launch["cluster"] > 1:
            attribute = cu.CUlaunchAttribute()
            attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dim = attribute.value.clusterDim
            dim.x, dim.y, dim.z = launch["cluster"], 1, 1
            self.config.attrs, self.config.numAttrs = [attribute], 1

    @staticmethod
    def tensor_map(param, tensor):
        rank = len(param["extents"])
        return ok(cu.cuTensorMapEncodeTiled(
            cu.CUtensorMapDataType(param["type"]), rank, tensor.data_ptr(),
            [cu.cuuint64_t(n) for n in param["extents"]], [cu.cuuint64_t(n) for n in param["strides"]],
            [cu.cuuint32_t(n) for n in param["box"]], [cu.cuuint32_t(1)] * rank,
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, cu.CUtensorMapSwizzle(param["swizzle"]),
            cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))

    def __call__(self):
        self.config.hStream = torch.cuda.current_stream().cuda_stream
        ok(cu.cuLaunchKernelEx(self.config, self.function, ctypes.addressof(self.arguments), 0))


def timing(run, rep, clean):
    """Median milliseconds with a cold L2."""
    if not clean:
        return do_bench(run, warmup=2, rep=rep, return_mode="median")
    junk, times = torch.zeros(64 << 20, device="cuda", dtype=torch.int32), []
    while sum(times) < rep or len(times) < 10:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        junk.sum()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="target/release/tilewright")
    parser.add_argument("--operator", default="gemm_hopper")
    parser.add_argument("--shapes", nargs="+", default=["4096,4096,4096", "8192,8192,8192"])
    parser.add_argument("--config", nargs="+", default=[""])
    parser.add_argument("--dtype", default="f16", choices=["f16", "bf16"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rep", type=int, default=15, help="milliseconds of each timing")
    parser.add_argument("--rest", type=float, default=0.2, help="idle seconds before each timing")
    parser.add_argument("--clean-l2", action="store_true")
    parser.add_argument("--repeat", type=int, default=20, help="launches that must give the same bits")
    args = parser.parse_args()
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[args.dtype]
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{'shape':<18} {'config':<40} {'ms':>8} {'TFLOP/s':>8} {'cuBLAS ms':>10} {'ratio':>6} {'error':>8}  notes")
    ratios, wrong = {}, 0
    for text in args.shapes:
        m, n, k = shape = tuple(map(int, text.split(",")))
        torch.manual_seed(0)
        a = torch.randn(m, k, device="cuda", dtype=dtype)
        b = torch.randn(n, k, device="cuda", dtype=dtype)
        c, theirs = torch.empty(m, n, device="cuda", dtype=dtype), torch.empty(m, n, device="cuda", dtype=dtype)
        exact = a.float() @ b.float().T
        kernels = []
        for config in args.config:
            launch = launch_of(args.bin, args.operator, f"dtype={args.dtype} {config}", shape)
            kernel = Kernel(launch, [a, b, c])
            c.fill_(float("nan"))
            kernel()
            error = float((c.float() - exact).norm() / exact.norm())
            first, notes = c.clone(), kernel.log.strip()
            for _ in range(args.repeat):
                c.fill_(float("nan"))
                kernel()
                if not torch.equal(c, first):
                    notes += " results differ between launches"
            bad = not error < (1e-3 if args.dtype == "f16" else 8e-3) or "differ" in notes
            wrong += bad
            kernels.append((config, kernel, error, notes + (" WRONG" if bad else "")))
        times = {config: [] for config in [None, *args.config]}
        for turn in range(args.rounds):
            turns = [(None, lambda: torch.matmul(a, b.T, out=theirs)), *((c_, k_) for c_, k_, _, _ in kernels)]
            for config, run in turns if turn % 2 == 0 else turns[::-1]:
                time.sleep(args.rest)
                times[config].append(timing(run, args.rep, args.clean_l2))
        base = statistics.median(times[None])
        for config, _, error, notes in kernels:
            ms = statistics.median(times[config])
            ratios.setdefault(config, []).append(base / ms)
            print(f"{text:<18} {config:<40} {ms:8.4f} {2 * m * n * k / ms / 1e9:8.1f} {base:10.4f} {base / ms:6.3f} {error:8.1e}  {notes}", flush=True)
    for config, all_of in ratios.items():
        print(f"geometric mean, {config or 'default'}: {math.exp(sum(map(math.log, all_of)) / len(all_of)):.3f}")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
