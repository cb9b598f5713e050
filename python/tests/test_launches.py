"""Launches with the stand-in for the CUDA driver, which runs nothing and writes every call down: `TILEWRIGHT_LIBCUDA` names it."""

import ctypes
import os

import numpy
import pytest

import tilewright
from tilewright import const, f32, size

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

    def __init__(self, tensor, dtype, device=0):
        interface = tensor.__cuda_array_interface__
        self._pointer, self.shape, self.dtype, self._device = interface["data"][0], interface["shape"], dtype, device

    def data_ptr(self):
        return self._pointer

    def stride(self):
        return tuple(int(numpy.prod(self.shape[mode + 1 :])) for mode in range(len(self.shape)))

    def get_device(self):
        return self._device


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
