"""Launches with the stand-in for the CUDA driver, which runs nothing and writes every call down: `TILEWRIGHT_LIBCUDA` names it."""

import ctypes
import os
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy
import pytest

import tilewright
from tilewright import _core, const, f32, size
from tilewright.arrays import _DLTensor

LIBRARY = os.environ.get("TILEWRIGHT_LIBCUDA", "")
pytestmark = pytest.mark.skipif("stand_in" not in LIBRARY, reason="TILEWRIGHT_LIBCUDA names no stand-in")


class StandIn:
    """The stand-in, as a test sees it."""

    def __init__(self):
        self.library = ctypes.CDLL(LIBRARY)
        self.library.stand_in_calls.restype = ctypes.c_size_t

    def calls(self, *functions):
        """The calls of these functions since this was last asked."""
        text = ctypes.create_string_buffer(1 << 22)
        written = self.library.stand_in_calls(text, ctypes.c_size_t(len(text)))
        lines = text.raw[:written].decode().splitlines()
        return [line for line in lines if line.startswith(functions)]

    def set(self, what, value):
        self.library.stand_in_set(what.encode(), ctypes.c_int64(value))

    def tensor(self, *shape, typestr="<f4"):
        pointer = ctypes.c_uint64()
        self.library.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4 * int(numpy.prod(shape))))
        return OnGpu(pointer.value, shape, typestr)


class OnGpu:
    """A tensor of nobody's."""

    def __init__(self, pointer, shape, typestr, strides=None):
        self.__cuda_array_interface__ = {
            "version": 3, "data": (pointer, False), "shape": shape, "typestr": typestr, "strides": strides,
        }  # fmt: skip


class Torch:
    """A tensor with the methods of torch's."""

    def __init__(self, tensor, dtype, device=0, strides=None):
        interface = tensor.__cuda_array_interface__
        self._tensor, self.shape, self.dtype, self._device = tensor, interface["shape"], dtype, device
        self._dense = tuple(int(numpy.prod(self.shape[mode + 1 :])) for mode in range(len(self.shape)))
        self._strides, self.ndim = strides or self._dense, len(self.shape)

    def data_ptr(self):
        return self._tensor.__cuda_array_interface__["data"][0]

    def stride(self):
        return self._strides

    def get_device(self):
        return self._device

    def numel(self):
        return int(numpy.prod(self.shape))

    def element_size(self):
        return 2 if self.dtype == "torch.float16" else 4

    def is_floating_point(self):
        return True

    def is_contiguous(self):
        return self._strides == self._dense

    def contiguous(self):
        return self if self.is_contiguous() else self.new_empty(self.shape)

    def new_empty(self, shape):
        return Torch(StandIn().tensor(*shape), self.dtype, self._device)

    def view(self, *shape):
        return self

    @property
    def T(self):
        turned = OnGpu(self.data_ptr(), self.shape[::-1], "<f2")
        return Torch(turned, self.dtype, self._device, self._strides[::-1])


class Named(str):
    """A type of torch."""


@pytest.fixture
def driver(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    driver = StandIn()
    driver.set("capability", 90)
    driver.calls("")
    return driver


def scaled():
    @tilewright.kernel
    def scaled(t, x: f32["n"], y: f32["n"], alpha: f32 = 2.0, n: size = 1000, T: const = 256):
        t.grid(t.ceil_div(n, T))
        t.threads(64)
        gx, gy = t.global_view(x[t.block.x * T :], (T,)), t.global_view(y[t.block.x * T :], (T,))
        r = t.register_tensor(f32, [T])
        t.copy(gx, r)
        t.copy(alpha * r, gy)

    return scaled


def test_a_launch_is_one_call_of_the_driver(driver):
    kernel = scaled()
    x, y = driver.tensor(1000), driver.tensor(1000)
    kernel(x, y, 0.5, stream=0x7000)
    driver.calls("")
    kernel(x, y, 0.5, stream=0x7000)
    [call] = driver.calls("cuLaunch")
    assert "7000" in call and kernel.specialisations() == [(0, {"n": 4})]
    # Another size of the class has the same kernel, one that is no whole vector another.
    kernel(driver.tensor(2000), driver.tensor(2000), stream=0x7000)
    assert len(kernel.specialisations()) == 1 and not driver.calls("cuModuleLoad", "cuLibraryLoad")
    kernel(driver.tensor(999), driver.tensor(999), alpha=3, stream=0)
    assert len(kernel.specialisations()) == 2
    kernel.launches(T=512)(x, y, stream=0)
    assert kernel.launches(T=512).specialisations() == [(0, {"n": 4})]


def test_what_is_not_ready_is_refused_where_it_must_not_be_made(driver):
    kernel = scaled()
    kernel.strict = True
    x, y = driver.tensor(1000), driver.tensor(1000)
    with pytest.raises(tilewright.NotReady, match="scaled"):
        kernel(x, y, stream=0)
    assert kernel.warm_up(n=range(1, 3000)) == 2 and kernel.warm_up(n=1000) == 0
    kernel(x, y, stream=0)
    assert len(driver.calls("cuLaunch")) == 1
    with pytest.raises(tilewright.LaunchError, match="`k` is no size"):
        kernel.warm_up(k=3)


def test_tensors_of_torch(driver):
    kernel, float32 = scaled(), Named("torch.float32")
    x, y = (Torch(driver.tensor(64), float32) for _ in "xy")
    kernel(x, y, 1, stream=0)
    assert len(driver.calls("cuLaunch")) == 1
    with pytest.raises(tilewright.LaunchError, match="`x` is on the CPU"):
        kernel(Torch(driver.tensor(64), float32, -1), y, stream=0)
    with pytest.raises(tilewright.LaunchError, match="`x` has elements of type torch.complex64"):
        kernel(Torch(driver.tensor(64), Named("torch.complex64")), y, stream=0)
    with pytest.raises(tilewright.LaunchError, match="`y` is on GPU 1, and a tensor before it on GPU 0"):
        kernel(x, Torch(driver.tensor(64), float32, 1), stream=0)


class Table(ctypes.Structure):
    """`DLPackExchangeAPI` of dlpack.h."""

    LEND = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_DLTensor))
    CURRENT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("before", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p), ("give", ctypes.c_void_p), ("take", ctypes.c_void_p), ("lend", LEND), ("current", CURRENT),
    ]  # fmt: skip


class Exchanged:
    """A tensor of a library that has the table: f32 on GPU 0, whose current stream is 0x7700."""

    def __init__(self, tensor, device_type=2):
        interface = tensor.__cuda_array_interface__
        self.kept, self.pointer, self.device_type = tensor, interface["data"][0], device_type
        self.shape = (ctypes.c_int64 * len(interface["shape"]))(*interface["shape"])

    @Table.LEND
    def _lend(self, lent):
        lent[0] = _DLTensor(self.pointer, self.device_type, 0, len(self.shape), 2, 32, 1, self.shape, None, 0)
        return 0

    @Table.CURRENT
    def _current(_kind, _device, stream):
        stream[0] = 0x7700
        return 0

    # A newer version, which is passed over, and ours.
    _name = ctypes.create_string_buffer(b"dlpack_exchange_api")
    _tables = [Table(1, 3, None, None, None, None, _lend, _current)]
    _tables.append(Table(2, 0, ctypes.addressof(_tables[0])))
    _capsule = ctypes.pythonapi.PyCapsule_New
    _capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    __dlpack_c_exchange_api__ = _capsule(ctypes.addressof(_tables[1]), ctypes.cast(_name, ctypes.c_char_p), None)


class Wrapped(Exchanged):
    """A class that stands between others and a tensor."""

    __torch_dispatch__ = None


def test_tensors_by_the_exchange_table(driver):
    kernel = scaled()
    x, y = Exchanged(driver.tensor(1000)), Exchanged(driver.tensor(1000))
    kernel(x, y)
    driver.calls("")
    kernel(x, y)
    [call] = driver.calls("cu")[-1:]
    assert call.startswith("cuLaunchKernel") and "7700" in call
    kernel(x, y, stream=0x500)
    assert "500" in driver.calls("cuLaunch")[0]
    with pytest.raises(tilewright.LaunchError, match="shape"):
        kernel(x, Exchanged(driver.tensor(999)))
    for other in (Exchanged(driver.tensor(1000), 1), Wrapped(driver.tensor(1000))):
        with pytest.raises(tilewright.LaunchError, match="`x` is no tensor on a GPU"):
            kernel(other, y)


def test_the_stream_of_an_array(driver):
    """CuPy says its current stream, which the array interface has from version 3 on."""
    kernel, tensors = scaled(), [driver.tensor(64), driver.tensor(64)]
    for tensor in tensors:
        tensor.__cuda_array_interface__["stream"] = 0x6600
    kernel(*tensors)
    assert "6600" in driver.calls("cuLaunch")[0]


def test_an_operator_of_torch_that_nothing_stands_before(driver):
    """Calls that torch's dispatcher need not see, with classes and functions of ours in the places of torch's."""

    class Tensor(Exchanged):
        is_cuda, requires_grad, negative = True, False, False

        def is_neg(self):
            return self.negative

    class Other(Tensor):
        pass

    kernel, modes, recording = scaled(), [0], [False]
    plain = _core.Plain(Tensor, [Tensor], [lambda: modes[0]], lambda: recording[0])
    # y = scaled(x, alpha): the parameters are x, y, alpha, and y is like x.
    operation = _core.Operation(plain, kernel.launches()._native, lambda x: Tensor(driver.tensor(64)), [0], [0, 2, 1], [0], 2)
    x = Tensor(driver.tensor(64))
    made = operation((x, 0.5))
    assert type(made) is Tensor and len(driver.calls("cuLaunch")) == 1
    wanted, elsewhere = Tensor(driver.tensor(64)), Tensor(driver.tensor(64))
    wanted.requires_grad, elsewhere.is_cuda = True, False
    turned = Tensor(driver.tensor(64))
    turned.negative = True
    assert operation((wanted, 0.5)) is not None
    recording[0] = True
    driver.calls("")
    for given in ((wanted, 0.5), (elsewhere, 0.5), (Other(driver.tensor(64)), 0.5), (turned, 0.5), (x, [x]), (x,)):
        assert operation(given) is None
    modes[0] = 1
    assert operation((x, 0.5)) is None and not driver.calls("cuLaunch")


class Jax:
    """An array of nothing but DLPack's methods, which orders its work before the stream that it is told: f32 on GPU 0."""

    def __init__(self, tensor):
        interface = tensor.__cuda_array_interface__
        self.kept, self.ordered = tensor, []
        self.shape = (ctypes.c_int64 * len(interface["shape"]))(*interface["shape"])
        self.lent = _DLTensor(interface["data"][0], 2, 0, len(self.shape), 2, 32, 1, self.shape, None, 0)

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream=None):
        self.ordered.append(stream)
        return Exchanged._capsule(ctypes.addressof(self.lent), ctypes.cast(NAME, ctypes.c_char_p), None)


NAME = ctypes.create_string_buffer(b"dltensor")


def test_arrays_of_nothing_but_dlpack(driver):
    kernel, x, y = scaled(), Jax(driver.tensor(64)), Jax(driver.tensor(64))
    kernel(x, y)
    kernel(x, y, stream=0x5500)
    kernel(Exchanged(driver.tensor(64)), y)
    assert x.ordered == [1, 0x5500] and y.ordered == [1, 0x5500, 0x7700]
    streams = [line for line in driver.calls("cuLaunch")]
    assert len(streams) == 3 and "5500" in streams[1] and "7700" in streams[2]


def test_a_warm_kernel_is_ready_while_a_stream_is_captured(driver):
    kernel = scaled()
    kernel.warm_up(n=1000)
    driver.library.cuStreamBeginCapture_v2(ctypes.c_void_p(0x900), 0)
    try:
        kernel(driver.tensor(1000), driver.tensor(1000), stream=0x900)
        with pytest.raises(tilewright.NotReady, match="captured"):
            kernel(driver.tensor(999), driver.tensor(999), stream=0x900)
    finally:
        driver.library.cuStreamEndCapture(ctypes.c_void_p(0x900), ctypes.byref(ctypes.c_void_p()))


def test_arguments_that_do_not_fit(driver):
    kernel, x = scaled(), driver.tensor(64)
    with pytest.raises(tilewright.LaunchError, match="`x` is no tensor on a GPU, but a ndarray"):
        kernel(numpy.ones(64, dtype=numpy.float32), x, stream=0)
    with pytest.raises(tilewright.LaunchError, match="takes `y` too"):
        kernel(x, stream=0)
    with pytest.raises(tilewright.LaunchError, match="no parameter `z`"):
        kernel(x, x, z=1)
    with pytest.raises(tilewright.LaunchError, match="f16"):
        kernel(driver.tensor(64, typestr="<f2"), x, stream=0)
    with pytest.raises(tilewright.LaunchError, match="shape|extent|64"):
        kernel(x, driver.tensor(32), stream=0)
    with pytest.raises(tilewright.LaunchError, match="`alpha` is a number of type f32"):
        kernel(x, driver.tensor(64), "two", stream=0)


def test_kernels_of_texts_are_launched_too(driver, axpy):
    kernel = tilewright.compile(axpy, T=128)
    kernel(driver.tensor(64), driver.tensor(64), stream=0)
    assert len(driver.calls("cuLaunch")) == 1 and len(kernel.launches.specialisations()) == 1


def test_operators_by_names(driver):
    from tilewright import ops

    library = ops.library(0)
    assert ops.library(0) is library
    x, y = (driver.tensor(8, 512, typestr="<f2") for _ in "xy")
    w = driver.tensor(512, typestr="<f2")
    library.call("rmsnorm", x=x, w=w, y=y, eps=1e-5, stream=0)
    driver.calls("")
    library.call("rmsnorm", x=x, w=w, y=y, eps=1e-5, stream=0x500)
    [call] = driver.calls("cuLaunch")
    assert "500" in call and "rmsnorm" in library.why("rmsnorm", x=x, w=w, y=y, eps=1e-5)
    with pytest.raises(tilewright.LaunchError, match="takes no `bias`"):
        library.call("rmsnorm", x=x, w=w, y=y, bias=w, stream=0)
    with pytest.raises(tilewright.LaunchError, match="rmsnorms"):
        library.call("rmsnorms", x=x, stream=0)
    library.strict = True
    wide = driver.tensor(8, 8192, typestr="<f2")
    with pytest.raises(tilewright.NotReady):
        library.call("rmsnorm", x=wide, w=driver.tensor(8192, typestr="<f2"), y=wide, stream=0)
    classes, _, kernels = library.warm_up("rmsnorm", options={"dtype": "f16"}, m=(1, 64), n=8192)
    assert classes >= 1 and kernels >= 1
    library.strict = False
    with pytest.raises(ValueError, match="no activation"):
        ops.linear(x, w, activation="tanh")


@pytest.fixture
def memory(driver, monkeypatch):
    """Records of what workspaces take of torch: the sizes and devices that are asked for, and whether streams are captured."""
    memory = SimpleNamespace(made=[], captured=False)

    def empty(size, dtype, device):
        memory.made.append((size, device))
        return Torch(driver.tensor(size), dtype)

    cuda = SimpleNamespace(
        current_stream=lambda device: SimpleNamespace(cuda_stream=0),
        default_stream=lambda device: SimpleNamespace(cuda_stream=0),
        ExternalStream=lambda handle, device: SimpleNamespace(cuda_stream=handle),
        stream=nullcontext,
        is_current_stream_capturing=lambda: memory.captured,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, empty=empty, uint8=Named("torch.uint8")))
    return memory


def test_factors_of_products_lie_as_they_do(driver, memory):
    """The three products of a linear layer and its gradients, of sizes of which no two are alike."""
    from tilewright import ops

    f16 = Named("torch.float16")
    x, w, g = (Torch(driver.tensor(*shape), f16) for shape in ((48, 64), (80, 64), (48, 80)))
    library, asked = ops.library(0), []
    call = library._native.call

    class Native:
        def call(self, name, arguments, options, sizes, stream, *rest):
            needed = call(name, arguments, options, sizes, 0, *rest)
            if not needed:
                asked.append(options)
            return needed

    library._native, native = Native(), library._native
    try:
        results = [ops.gemm(x, w), ops.gemm(g, w.T), ops.gemm(g.T, x.T)]
        # No rows: nothing is launched.
        assert ops.gemm(Torch(OnGpu(0, (0, 64), "<f2"), f16), w).shape == (0, 80)
        # Factors of f32 have more bits than tf32 has.
        wide = Named("torch.float32")
        ops.linear(Torch(driver.tensor(48, 64), wide), Torch(driver.tensor(64, 80), wide).T)
    finally:
        library._native = native
    assert [result.shape for result in results] == [(48, 80), (48, 64), (80, 64)]
    assert asked == [{}, {"b": "n"}, {"a": "m", "b": "n"}, {"b": "n", "dtype": "f32", "precision": "tf32x3"}]
    assert len(driver.calls("cuLaunch")) >= 4


def test_a_launch_says_which_workspace_it_needs(driver, memory):
    from tilewright import ops

    f16, library = Named("torch.float16"), ops.Library(0)
    a, b, c = (Torch(driver.tensor(*shape), f16) for shape in ((64, 256), (64, 256), (64, 64)))

    def called(stream, **more):
        driver.calls("")
        library.call("gemm", a=a, b=b, c=c, options={"split": 2}, stream=stream, **more)
        return len(driver.calls("cuLaunch"))

    assert [called(0x100), called(0x100), called(0)] == [2, 2, 2]
    assert len(memory.made) == 2 and memory.made[0][0] >= 2 * 64 * 64 * 4 and memory.made[0][1] == "cuda:0"
    # A graph has memory of its own at each call; nobody else's is lent to it.
    memory.captured = True
    assert called(0x100) == 2 and len(memory.made) == 3
    memory.captured, library.strict = False, True
    assert called(0x200) == 2 and called(0x100) == 2 and len(memory.made) == 4
    with pytest.raises(tilewright.LaunchError, match="needs a workspace of"):
        called(0x100, workspace=SimpleNamespace(data_ptr=lambda: 0x1000, numel=lambda: 8, element_size=lambda: 1))


def test_elements_of_a_few_bits(driver):
    """A tensor of bytes is given as rows of elements that Python has no type for."""
    from tilewright import ops

    library = ops.Library(0)
    n, k, group = 128, 256, 64
    shape = list(tilewright._core.stored_weights("u4", group, n, k))
    assert numpy.prod(shape) == n * k
    rows, stored = driver.tensor(n, k // 2, typestr="|u1"), driver.tensor(n * k // 2, typestr="|u1")
    options = {"weights": "u4", "group": group}
    library.call("repack_weights", x=(rows, "u4", [n, k]), w=(stored, "u4", shape), options=options, stream=0)
    assert driver.calls("cuLaunch")
    for given, message in [
        ((rows, "u3", [n, k]), "`u3` is no element type"),
        ((rows, "u4", [n, k + 2]), "has 131072 bits, and"),
        ((OnGpu(4096, (8, 8), "|u1", (16, 1)), "u4", [8, 16]), "`x` is not contiguous"),
    ]:
        with pytest.raises(tilewright.LaunchError, match=message):
            library.call("repack_weights", x=given, w=(stored, "u4", shape), options=options, stream=0)
    for asked, message in [(("f32", 64), "no type of stored weights"), (("u4", 24), "a power of two from 16 on")]:
        with pytest.raises(tilewright.LaunchError, match=message):
            tilewright._core.stored_weights(*asked, n, k)


def test_a_layer_of_experts(driver):
    from tilewright.experts import Experts

    sizes = {"hidden": 128, "intermediate": 256, "experts": 8, "k": 2}
    layer = Experts("f16", **sizes)
    f16, f32, i32 = Named("torch.float16"), Named("torch.float32"), Named("torch.int32")
    given = {"x": (f16, 3, 128), "w13": (f16, 8, 2, 256, 128), "w2": (f16, 8, 128, 256), "ids": (i32, 6), "weights": (f32, 3, 2), "y": (f16, 3, 128)}
    tensors = {name: Torch(driver.tensor(*shape), dtype) for name, (dtype, *shape) in given.items()}
    needed = layer._native.call(3, tensors, 0)
    assert needed > 0 and not driver.calls("cuLaunch")
    memory = driver.tensor(needed).__cuda_array_interface__["data"][0]
    assert layer._native.call(3, tensors, 0, False, (memory, needed)) == 0
    assert len(driver.calls("cuLaunch")) >= 4
    assert layer.warm_up(1, 4)[0] == 4
    with pytest.raises(tilewright.LaunchError, match="takes `w2`"):
        layer._native.call(3, {name: each for name, each in tensors.items() if name != "w2"}, 0, False, (memory, needed))
    with pytest.raises(tilewright.LaunchError, match="is not an element type"):
        Experts("f17", **sizes)
