"""What the benches share: compiled kernels and where they are kept, kernels that are loaded and bound to tensors by name, timing under three
conditions, and summaries.

Importing this needs neither torch nor a GPU. A *configuration* is what stands behind an operator's `-p`, as words: `bn=192 stages=4`. A word
without `=` names an operator, and `+` begins another kernel that runs after the one before: `split=4 + add_partials parts=4`. The word
`without=PART` is for the compiler: it leaves out a part of synthesis (`compile --without`).
"""

import base64
import concurrent.futures
import ctypes
import gzip
import hashlib
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import threading
import time

CONDITIONS = ["rested", "clean", "sustained"]

# Names of types in Tilewright and in torch.
TYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
    "e3m2": "uint8", "e2m3": "uint8", "ue8m0": "float8_e8m0fnu", "ue4m3": "float8_e4m3fn", "i8": "int8", "u8": "uint8", "i16": "int16", "i32": "int32", "i64": "int64", "u32": "uint32",
}  # fmt: skip

# Bits of the types that torch does not have: their elements are packed, element i of a tensor at bit i · bits, low bits first.
BITS = {"u1": 1, "i1": 1, "i2": 2, "u2": 2, "i4": 4, "u4": 4, "e2m1": 4}
# Bytes of a tensor map (CUDA driver API, `CUtensorMap`).
MAP_BYTES = 128


def torch_type(name):
    """The torch type of a Tilewright type's name."""
    import torch

    return getattr(torch, TYPES[name])


def parsed(parser, repeat):
    """The command line, with what all benches of products take: conditions, timing, and where compiled kernels are kept."""
    parser.add_argument("--bin", default="target/release/tilewright")
    parser.add_argument("--condition", default="rested", help="rested, clean, sustained, several with commas, or all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rep", type=float, default=10, help="milliseconds of each timing")
    parser.add_argument("--rest", type=float, default=0.15, help="idle seconds before each timing")
    parser.add_argument("--heat", type=float, default=0.5, help="seconds of full load before sustained timings")
    parser.add_argument("--repeat", type=int, default=repeat, help="launches that must give the same bits")
    parser.add_argument("--json", help="append a line for each shape, condition and configuration to this file")
    parser.add_argument("--patience", type=float, default=60, help="seconds after which a kernel that does not end ends the program")
    parser.add_argument("--launches", metavar="DIR", help="compiled kernels, as --emit-launches leaves them")
    parser.add_argument("--emit-launches", metavar="DIR", help="compile, write there, and stop; no GPU")
    parser.add_argument("--check", action="store_true", help="compile, and stop; no GPU")
    parser.add_argument("--ptxas", help="assemble with this ptxas instead of the driver")
    args = parser.parse_args()
    args.conditions = CONDITIONS if args.condition == "all" else args.condition.split(",")
    for condition in args.conditions:
        if condition not in CONDITIONS:
            parser.error(f"--condition: `{condition}` is none of {', '.join(CONDITIONS)}, all")
    return args


# Compiling


def kernels_of(config, operator):
    """The kernels of a configuration, in order: each an operator and its words."""
    kernels = []
    for part in re.split(r"\s\+\s", config):
        words = part.split()
        named = [word for word in words if "=" not in word]
        if len(named) > 1:
            raise SystemExit(f"{config}: more than one operator in '{part.strip()}'")
        kernels.append((named[0] if named else operator, [word for word in words if "=" in word]))
    return kernels


def asked(command, given=None):
    """What a command prints, or a RuntimeError with what it says."""
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip())
    return done.stdout


def sequence_of(launch):
    """The kernels of what `--emit launch` prints: one, or several that run in order."""
    for name in ("launches", "kernels", "sequence", "steps"):
        if isinstance(launch, dict) and isinstance(launch.get(name), list):
            return launch[name]
    return launch if isinstance(launch, list) else [launch]


def compiled(binary, job):
    """What `--emit launch` says of each kernel of a job: operator, common words, configuration, sizes."""
    if job["operator"].endswith((".task", ".tile")):
        return compiled_file(binary, job)
    launches = []
    for operator, words in kernels_of(job["config"], job["operator"]):
        left_out = [word.split("=")[1] for word in words if word.startswith("without=")]
        words = [word for word in words if not word.startswith("without=")]
        given = {word.split("=")[0] for word in words}
        common = [word for word in job["words"] if word.split("=")[0] not in given] if operator == job["operator"] else []
        command = [binary, "kernels", operator, *(w for word in [*common, *words] for w in ("-p", word))]
        programs, count, step = [], 1, 0
        while step < count:
            step += 1
            done = subprocess.run([*command, "--step", str(step)], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stderr.strip())
            programs.append(done.stdout)
            several = re.search(r"program \d+ of (\d+)", done.stderr)
            count = int(several[1]) if several else 1
        for program in programs:
            launches += compiled_program(binary, job, operator, program, left_out)
    return launches


def compiled_file(binary, job):
    """What `--emit launch` says of a file's kernel at a job's sizes: of a file of tasks that of a mapping, the job's configuration."""
    values = (w for word in [*job["words"], *(f"{name}={value}" for name, value in job["sizes"].items())] for w in ("-p", word))
    mapping = ["--mapping", job["config"]] if job["operator"].endswith(".task") else []
    command = [binary, "compile", job["operator"], *mapping, "--arch", DEVICE, "--emit", "launch", *values]
    return sequence_of(json.loads(asked(command)))


def compiled_program(binary, job, operator, program, left_out=()):
    """What `--emit launch` says of one program of an operator at a job's sizes, without some parts of synthesis."""
    sizes = set(re.findall(r"(\w+) *=", " ".join(re.findall(r"^size (.*)$", program, re.M))))
    named = {alias: job["sizes"][name] for name in job["sizes"] for alias in (name, *SIZE_NAMES.get(name, [])) if alias in sizes}
    if operator == job["operator"] and "batch" in job["sizes"] and len(named) < len(job["sizes"]):
        raise RuntimeError(f"`{operator}` has the sizes {', '.join(sorted(sizes))}, and none for batches")
    values = (w for name, value in named.items() for w in ("-p", f"{name}={value}"))
    parts = (w for part in left_out for w in ("--without", part))
    command = [binary, "compile", "-", "--arch", job.get("arch", DEVICE), "--emit", "launch", *parts, *values]
    return sequence_of(json.loads(asked(command, program)))


# The architecture of the GPU that is measured.
DEVICE = "sm_90a"

# What operators call a size, besides our own name for it.
SIZE_NAMES = {"batch": ["batches", "l"]}


def assembled(ptx, arch, ptxas):
    """Machine code of a PTX text, and what ptxas says: registers, spills, advisories."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = pathlib.Path(folder, "k.ptx"), pathlib.Path(folder, "k.cubin")
        source.write_text(ptx)
        done = subprocess.run([ptxas, "-v", f"-arch={arch}", "-o", cubin, source], capture_output=True, text=True)
        said = done.stdout + done.stderr
        if done.returncode:
            raise RuntimeError(f"ptxas: {said}")
        return {
            "cubin": base64.b64encode(cubin.read_bytes()).decode(),
            "registers": int(re.search(r"Used (\d+) registers", said)[1]),
            "spills": sum(map(int, re.findall(r"(\d+) bytes spill stores", said))),
            "advice": sorted(set(re.findall(r"\(C7\d+\)|warning[^\n]*", said))),
        }


def key_of(job):
    """A file name for a job's launches: what it is in words, and a hash of all of it."""
    what = json.dumps(job, sort_keys=True)
    sizes = "x".join(str(value) for value in job["sizes"].values())
    return f"{pathlib.Path(job['operator']).name}-{sizes}-{hashlib.sha256(what.encode()).hexdigest()[:12]}.json.gz"


def launches_of(jobs, args):
    """The launches of each job, or the error's text: read from --launches where they are there, else compiled, all at once."""

    def one(job):
        file = pathlib.Path(args.launches, key_of(job)) if args.launches else None
        try:
            if file and file.exists():
                return json.loads(gzip.decompress(file.read_bytes()))
            return compiled(args.bin, job)
        except (RuntimeError, OSError, json.JSONDecodeError) as error:
            return str(error)

    def code(launch):
        try:
            # Code of another architecture does not run here; its PTX does.
            return assembled(launch["ptx"], DEVICE, args.ptxas)
        except (RuntimeError, OSError) as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(one, jobs))
        if args.ptxas:
            all_of = (launch for launches in found if not isinstance(launches, str) for launch in launches)
            texts = {launch["ptx"]: launch for launch in all_of if "cubin" not in launch}
            codes = dict(zip(texts, pool.map(code, texts.values())))
    if args.ptxas:
        for at, launches in enumerate(found):
            for launch in launches if not isinstance(launches, str) else []:
                text = codes.get(launch["ptx"], {})
                if isinstance(text, str):
                    found[at] = text
                else:
                    launch.update(text)
    if args.emit_launches:
        folder = pathlib.Path(args.emit_launches)
        folder.mkdir(parents=True, exist_ok=True)
        for job, launches in zip(jobs, found):
            if not isinstance(launches, str):
                (folder / key_of(job)).write_bytes(gzip.compress(json.dumps(launches).encode(), mtime=0))
    return found


def ready_of(todo, args):
    """[(shape, [(job, launches)])] of [(shape, jobs)], without the jobs that do not compile, and how many those are; says which, and what spills."""
    answers, failed, ready = iter(launches_of([job for _, jobs in todo for job in jobs], args)), 0, []
    for shape, jobs in todo:
        both = [(job, next(answers)) for job in jobs]
        for job, said in both:
            label = f"{'x'.join(map(str, shape))} {job['config']}"
            if isinstance(said, str):
                print(f"{label}: {said}", flush=True)
                failed += 1
            elif any(launch.get("spills") or launch.get("advice") for launch in said):
                print(f"{label}: spills {said[0]['spills']}, {said[0]['advice']}", flush=True)
        ready.append((shape, [(job, said) for job, said in both if not isinstance(said, str)]))
    print(f"{sum(len(both) for _, both in ready)} configurations of {len(ready)} shapes compiled", flush=True)
    return ready, failed


def measured(ready, failed, args, measure, after=lambda: None):
    """Measures each shape that is ready, and ends the program: with an error if a configuration failed, does not compile or is wrong."""
    clock = Clock(args.patience)
    modules = modules_of([launch for _, both in ready for _, launches in both for launch in launches])
    file = open(args.json, "a") if args.json else None
    for shape, both in ready:
        failed += measure(args, shape, [job for job, _ in both], [launches for _, launches in both], modules, clock, file)
        after()
    raise SystemExit(1 if failed else 0)


def raced(clock, args, shape, label, found, ours, file, head, speed, shown, more, counts=lambda name, job: True):
    """Times peers, (name, run), and plans, (job, plan, error, notes), in turns under each condition; prints a line for each plan, and its row of --json.

    `head(job, error)` begins the line, `speed(job, ms)` and `shown(name, ms)` are what it says of a time and of a peer's, `more(plan, error)` is what its row has
    besides. The ratio is against the fastest peer that `counts(name, job)`. Plans whose notes say WRONG are not timed.
    """
    turns = [(name, lambda: None, run, clock.once(run)) for name, run in found]
    turns += [(i, lambda: None, plan, clock.once(plan)) for i, (_, plan, _, notes) in enumerate(ours) if not any("WRONG" in n for n in notes)]
    for condition in args.conditions:
        clock.watch(f"{label}, {condition}")
        times = {name: statistics.median(rounds) for name, rounds in race(clock, turns, condition, args).items()}
        peers = {name: times[name] for name, _ in found}
        for i, (job, plan, error, notes) in enumerate(ours):
            line = head(job, error)
            if i in times:
                line += f" {speed(job, times[i])} {condition}"
                against = [ms for name, ms in peers.items() if counts(name, job)]
                if against:
                    line += f" {min(against) / times[i]:.3f}  (" + " ".join(shown(name, ms) for name, ms in peers.items()) + ")"
                row = {"shape": shape, "dtype": args.dtype, "condition": condition, "config": job.get("label", job["config"]), "ms": times[i], "peers": peers}
                if file:
                    print(json.dumps({**row, **more(plan, error)}), file=file, flush=True)
            print(f"{line}  {'; '.join(notes)}".rstrip(), flush=True)


def repeated(plan, times, part=lambda out: out):
    """The result of a plan, and its notes with those of launches that give other bits, in the part of the result that is compared."""
    import torch

    poison(plan.out)
    plan()
    torch.cuda.synchronize()
    first, notes = plan.out.clone(), list(plan.notes)
    for _ in range(times):
        poison(plan.out)
        plan()
        if not torch.equal(part(plan.out), part(first)):
            notes.append("launches differ")
    return first, notes


# Running


def ok(result):
    """A driver call's value, or its error."""
    error, *values = result
    if int(error):
        raise RuntimeError(f"driver: {error!r}")
    return values[0] if len(values) == 1 else values


def module_of(launch):
    """The driver's module of a launch, and the assembler's words."""
    from cuda.bindings import driver as cu

    if "cubin" in launch:
        return ok(cu.cuModuleLoadData(base64.b64decode(launch["cubin"]))), " ".join(launch["advice"])
    log = bytes(8192)
    option = cu.CUjit_option
    module = ok(cu.cuModuleLoadDataEx(
        launch["ptx"].encode() + b"\0", 2,
        [option.CU_JIT_INFO_LOG_BUFFER, option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES], [log, len(log)]))  # fmt: skip
    return module, log.split(b"\0")[0].decode(errors="replace").strip()


def modules_of(launches):
    """Modules of many launches, by the launch's identity, loaded by several threads: the driver assembles PTX. Equal texts are one module."""
    from cuda.bindings import driver as cu

    context = ok(cu.cuCtxGetCurrent())

    def load(launch):
        ok(cu.cuCtxSetCurrent(context))
        try:
            return module_of(launch)
        except RuntimeError as error:
            return None, str(error)

    texts = {launch["ptx"]: launch for launch in launches}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        loaded = dict(zip(texts, pool.map(load, texts.values())))
    return {id(launch): loaded[launch["ptx"]] for launch in launches}


class Kernel:
    """A kernel that is loaded and bound to tensors, in the order of its parameters."""

    def __init__(self, launch, module, tensors, scalars):
        from cuda.bindings import driver as cu

        self.function = ok(cu.cuModuleGetFunction(module, launch["kernel"].encode()))
        shared = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        ok(cu.cuFuncSetAttribute(self.function, shared, launch["shared_bytes"]))
        local = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
        self.local_bytes = int(ok(cu.cuFuncGetAttribute(local, self.function)))
        self.registers = int(ok(cu.cuFuncGetAttribute(cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, self.function)))
        self.keep, self.keep_tensors = [], list(tensors.values())
        for param in launch["params"]:
            if param["kind"] == "tensor":
                self.keep.append(ctypes.c_uint64(tensors[param["name"]].data_ptr()))
            elif param["kind"] == "tensors":
                self.keep.append(self.table(addresses(tensor.data_ptr() for tensor in tensors[param["name"]])))
            elif param["kind"] == "size":
                self.keep.append(ctypes.c_uint32(param["value"]))
            elif param["kind"] == "integer":
                wide = param["dtype"] in ("i64", "u64")
                word, mask = (ctypes.c_uint64, 2**64 - 1) if wide else (ctypes.c_uint32, 2**32 - 1)
                self.keep.append(word(scalars.get(param["name"], param["value"]) & mask))
            elif param["kind"] == "scalar":
                number = ctypes.c_double if param.get("dtype") == "f64" else ctypes.c_float
                self.keep.append(number(scalars[param["name"]]))
            else:
                of = tensors[launch["params"][param["of"]]["name"]]
                if param["kind"] == "maps":
                    maps = [self.tensor_map(param, tensor) for tensor in of]
                    self.keep.append(self.table(b"".join(ctypes.string_at(int(each.getPtr()), MAP_BYTES) for each in maps)))
                else:
                    self.keep.append(self.tensor_map(param, of))
        pointers = [ctypes.addressof(k) if isinstance(k, ctypes._SimpleCData) else int(k.getPtr()) for k in self.keep]
        self.arguments = (ctypes.c_void_p * len(pointers))(*pointers)
        self.address = ctypes.addressof(self.arguments)
        self.config = cu.CUlaunchConfig()
        self.config.gridDimX, self.config.gridDimY, self.config.gridDimZ = launch["grid"]
        self.config.blockDimX, self.config.blockDimY, self.config.blockDimZ = launch["threads"], 1, 1
        self.config.sharedMemBytes = launch["shared_bytes"]
        attributes = []
        if launch["cluster"] > 1:
            attribute = cu.CUlaunchAttribute()
            attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dim = attribute.value.clusterDim
            dim.x, dim.y, dim.z = launch["cluster"], 1, 1
            attributes.append(attribute)
        if launch.get("dependent"):
            attribute = cu.CUlaunchAttribute()
            attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            attributes.append(attribute)
        if attributes:
            self.config.attrs, self.config.numAttrs = attributes, len(attributes)
        self.launch = cu.cuLaunchKernelEx

    def table(self, data):
        """The address of bytes in the GPU's memory, which the kernel keeps: a multiple of 64, as torch allocates."""
        import torch

        self.keep_tensors.append(torch.frombuffer(bytearray(data), dtype=torch.uint8).to("cuda"))
        return ctypes.c_uint64(self.keep_tensors[-1].data_ptr())

    @staticmethod
    def tensor_map(param, tensor):
        from cuda.bindings import driver as cu

        rank = len(param["extents"])
        if corners := param.get("corners"):
            encode, box = cu.cuTensorMapEncodeIm2col, [corners["lower"], corners["upper"], *param["box"]]
        else:
            encode, box = cu.cuTensorMapEncodeTiled, [[cu.cuuint32_t(n) for n in param["box"]]]
        return ok(encode(
            cu.CUtensorMapDataType(param["type"]), rank, tensor.data_ptr(),
            [cu.cuuint64_t(n) for n in param["extents"]], [cu.cuuint64_t(n) for n in param["strides"] or [16]],
            *box, [cu.cuuint32_t(n) for n in param["steps"]],
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, cu.CUtensorMapSwizzle(param["swizzle"]),
            cu.CUtensorMapL2promotion(param["promotion"]),
            cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))  # fmt: skip

    def __call__(self, stream):
        self.config.hStream = stream
        ok(self.launch(self.config, self.function, self.address, 0))


class Plan:
    """Kernels that run one after another, bound by name to a problem's tensors; what the problem does not know is a workspace.

    `tensors` are values by name (or functions that make them); the plan keeps those that a kernel wants in another order or type in
    `made`, which plans of one problem share. A workspace of floats begins as NaN, one of integers as zeros. An array of tensors is bound to a
    sequence of tensors, which may lie apart, and a result or a workspace that is an array to the parts of one tensor. The result is the last tensor that is named in
    `results`.
    """

    def __init__(self, launches, modules, tensors, scalars, made, results=None):
        import torch

        results = results or RESULTS
        self.stream, self.kernels, self.notes = torch.cuda.current_stream().cuda_stream, [], []
        self.workspace, workspaces = 0, {}
        for launch in launches:
            module, said = modules[id(launch)]
            if module is None:
                raise RuntimeError(said)
            bound = {}
            for param in launch["params"]:
                if param["kind"] not in ("tensor", "tensors"):
                    continue
                name = param["name"]
                known = next((alias for alias in aliases(name) if alias in tensors), None)
                store = workspaces if known is None else made
                key = name if known is None else (known, json.dumps([param[of] for of in ("kind", "shape", "strides", "dtype")]))
                if key not in store:
                    store[key] = workspace_of(param) if known is None else given_to(param, tensors[known], known)
                    if known is None:
                        self.workspace += store[key].numel() * store[key].element_size()
                bound[name] = store[key]
                if known in results:
                    self.out = store[key]
            values = {param["name"]: scalar_of(param["name"], scalars) for param in launch["params"] if param["kind"] == "scalar"}
            kernel = Kernel(launch, module, bound, values)
            self.kernels.append(kernel)
            self.notes += [said] if said else []
            self.notes += [f"{kernel.local_bytes} bytes of local memory"] if kernel.local_bytes else []
        if not hasattr(self, "out"):
            raise RuntimeError(f"no kernel has a tensor {', '.join(results)}")

    def __call__(self):
        for kernel in self.kernels:
            kernel(self.stream)


# Names of results.
RESULTS = ("c", "o", "y", "dx", "df")

# What kernels call a tensor or a scalar, by our own name for it.
ALIASES = {
    "scale_a": ["sa", "row_scale", "a_scale", "as", "scales_a", "a_scales"], "scale_b": ["sb", "col_scale", "b_scale", "bs", "scales_b", "b_scales"],
    "scale": ["s", "scales"], "alpha": [], "beta": [], "bias": [], "residual": ["r", "d"],
}  # fmt: skip


def aliases(name):
    """Our names for what a kernel calls `name`."""
    return [name, *(ours for ours, theirs in ALIASES.items() if name in theirs)]


def scalar_of(name, scalars):
    """The value of a kernel's scalar."""
    for ours in aliases(name):
        if ours in scalars:
            return float(scalars[ours])
    raise RuntimeError(f"the kernel's scalar `{name}` has no value here (there are: {', '.join(scalars) or 'none'})")


class Shaped:
    """A tensor that a function makes for the shape that a kernel asks for."""

    def __init__(self, make):
        self.make = make


def empty_for(param):
    """Memory for a parameter: bytes for types that are packed, and one tensor of which an array's tensors are parts, at multiples of 128 bytes."""
    import torch

    shape, strides = param["shape"], param["strides"]
    if param["dtype"] in BITS:
        row_major = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
        if param["kind"] != "tensor" or any(extent > 1 and stride != dense for extent, stride, dense in zip(shape, strides, row_major)):
            raise RuntimeError(f"`{param['name']}` is no row-major tensor, which those of {param['dtype']} are here")
        return torch.zeros(-(-math.prod(shape) * BITS[param["dtype"]] // 8), device="cuda", dtype=torch.uint8)
    dtype = torch_type(param["dtype"])
    if param["kind"] == "tensors":
        whole = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides))
        shape, strides = [param["tensors"], *shape], [whole + -whole % (128 // dtype.itemsize), *strides]
    return torch.empty_strided(shape, strides, device="cuda", dtype=dtype)


def workspace_of(param):
    """Memory that the kernels of a configuration share."""
    empty = empty_for(param)
    return poison(empty) if empty.is_floating_point() else empty.zero_()


def given_to(param, given, name):
    """What a parameter is bound to, of what the problem has: a tensor, or the tensors of an array."""
    if given is None:
        return empty_for(param)
    if param["kind"] == "tensors":
        each = list(given)
        if len(each) != param["tensors"]:
            raise RuntimeError(f"`{name}` has {len(each)} tensors here and {param['tensors']} for the kernel")
        return [given_to(param | {"kind": "tensor"}, tensor, name) for tensor in each]
    if isinstance(given, Shaped):
        given = given.make(param["shape"])
    if param["dtype"] not in BITS:
        return as_asked(empty_for(param), given, name)
    if list(given.shape) != param["shape"]:
        raise RuntimeError(f"`{name}` is {list(given.shape)} here and {param['shape']} for the kernel")
    return empty_for(param).copy_(packed(given, BITS[param["dtype"]]))


def packed(values, bits):
    """The low bits of integers of a byte each, side by side: element i at bit i · bits, low bits first."""
    import torch

    each = 8 // bits
    flat = values.to(torch.int8).flatten().view(torch.uint8) & (1 << bits) - 1
    columns = torch.nn.functional.pad(flat, (0, -flat.numel() % each)).reshape(-1, each).unbind(1)
    whole = columns[0].clone()
    for at, column in enumerate(columns[1:], 1):
        whole |= column << at * bits
    return whole


def addresses(pointers):
    """The table that an array of tensors is passed as: 64-bit words, low bytes first."""
    return b"".join(pointer.to_bytes(8, "little") for pointer in pointers)


def as_asked(empty, given, name):
    """`given`, or a function's result, as a kernel wants it: itself, or `empty` filled with its values, transposed if need be."""
    import torch

    value = given() if callable(given) else given
    if value is None:
        return empty
    if value.dtype != empty.dtype and torch.float32 not in (value.dtype, empty.dtype):
        raise RuntimeError(f"`{name}` is {value.dtype} here and {empty.dtype} for the kernel")
    shape, asked_for = list(value.shape), list(empty.shape)
    if shape == asked_for and value.stride() == empty.stride() and value.dtype == empty.dtype:
        return value
    if shape == asked_for:
        return empty.copy_(value)
    if shape[::-1] == asked_for:
        return empty.copy_(value.T)
    if [n for n in shape if n > 1] == [n for n in asked_for if n > 1]:
        return empty.copy_(value.reshape(asked_for))
    raise RuntimeError(f"`{name}` is {shape} here and {asked_for} for the kernel")


def poison(tensor):
    """Fills a result with what no product gives."""
    if tensor.is_floating_point():
        return tensor.fill_(math.nan)
    return tensor.fill_(-(2**31) + 1 if tensor.element_size() == 4 else 0x55)


# Timing


# Clock cycles of a GPU in a millisecond, about.
CYCLES = 1.98e6


class Clock:
    """Times launches with events; the L2 cache is emptied before each.

    A kernel that never ends would use up the GPU's time: where nothing new is begun (`watch`) for `patience` seconds, the process ends.
    """

    def __init__(self, patience=60, most=100):
        import torch

        self.torch, self.most = torch, most
        # Milliseconds that the GPU spins ahead of each, so that the host has queued all of its launches.
        self.spin = 0.0
        self.junk = torch.zeros(64 << 20, device="cuda", dtype=torch.int32)
        self.starts = [torch.cuda.Event(enable_timing=True) for _ in range(most)]
        self.ends = [torch.cuda.Event(enable_timing=True) for _ in range(most)]

        self.doing, self.begun = "the beginning", time.monotonic()
        threading.Thread(target=self.wait, args=(patience,), daemon=True).start()

    def watch(self, doing):
        """Says what begins now."""
        self.doing, self.begun = doing, time.monotonic()

    def wait(self, patience):
        while True:
            time.sleep(1)
            if time.monotonic() - self.begun > patience:
                print(f"{self.doing}: no end after {patience:.0f} s", flush=True)
                os._exit(3)

    def empty(self, clean):
        """Empties the L2 by reading, so that nothing has to be written back afterwards, or by writing."""
        self.junk.sum() if clean else self.junk.zero_()

    def times(self, run, count, clean=False):
        """Milliseconds of `count` launches."""
        for start, end in zip(self.starts[:count], self.ends):
            if self.spin:
                self.torch.cuda._sleep(round(self.spin * CYCLES))
            self.empty(clean)
            start.record()
            run()
            end.record()
        self.torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in zip(self.starts[:count], self.ends)]

    def once(self, run):
        """About how long one launch takes."""
        self.times(run, 2)
        return statistics.median(self.times(run, 3))

    def heat(self, run, seconds):
        """Keeps the chip busy."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(20):
                run()
            self.torch.cuda.synchronize()


def race(clock, entries, condition, args):
    """Median milliseconds of each round for each entry, in turns that change direction.

    An entry is (name, prepare, run, about how many milliseconds). rested: the GPU idles before each timing, and the L2 is emptied by writing.
    clean: the same, by reading. sustained: no pause, after a while of full load.
    """
    rounds = {name: [] for name, *_ in entries}
    hot = condition == "sustained"
    rep = 2 * args.rep if hot else args.rep
    if hot:
        entries[0][1]()
        clock.heat(entries[0][2], args.heat)
    for turn in range(args.rounds):
        for name, prepare, run, about in entries if turn % 2 == 0 else entries[::-1]:
            prepare()
            if not hot:
                time.sleep(args.rest)
            clock.times(run, max(2, min(20, int(2 / about))), condition == "clean")
            count = max(3 if about > 4 else 5, min(clock.most, round(rep / about)))
            rounds[name].append(statistics.median(clock.times(run, count, condition == "clean")))
    return rounds


# Summaries


def geomean(values):
    """Geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def summary(ratios):
    """One line for ratios by shape (m first, after the batches if there are any)."""
    worst = min(ratios, key=ratios.get)
    large = [ratio for shape, ratio in ratios.items() if shape[-3] >= 1024]
    text = f"geometric mean {geomean(list(ratios.values())):.3f} over {len(ratios)}"
    if large and len(large) < len(ratios):
        text += f", {geomean(large):.3f} over the {len(large)} with m >= 1024"
    return f"{text}; least {ratios[worst]:.3f} at {'x'.join(map(str, worst))}"
