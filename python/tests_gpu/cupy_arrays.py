#!/usr/bin/env python3
"""Launches a kernel and an operator of the library with arrays of CuPy, on CuPy's current stream, and compares the results with numpy's.

    PYTHONPATH=… python3 python/tests_gpu/cupy_arrays.py
"""

import sys

import cupy
import numpy

import tilewright
from tilewright import const, f32, ops, size


@tilewright.kernel
def softmax(t, x: f32["m", "n"], y: f32["m", "n"], m: size = 64, n: size = 1000, BN: const = 1024):
    t.grid(m)
    t.threads(128)
    gx = t.global_view(x[t.block.x :, :], (1, BN))
    gy = t.global_view(y[t.block.x :, :], (1, BN))
    r = t.register_tensor(f32, [1, BN])
    t.copy(gx, r, outside=float("-inf"))
    e = t.exp(r - t.reduce(r, "max", 1, keep=True))
    t.copy(e / t.reduce(e, "sum", 1, keep=True), gy)


def kernel(x):
    """The kernel, called with arrays."""
    y = cupy.empty(x.shape, x.dtype)
    softmax(cupy.asarray(x), y)
    e = numpy.exp(x - x.max(1, keepdims=True))
    return y, e / e.sum(1, keepdims=True)


def product(x):
    """A product of halves by the library."""
    a, b = x[:, :512].astype("f2"), (x[::2, :512] / 8).astype("f2")
    c = cupy.empty((a.shape[0], b.shape[0]), "f2")
    ops.library(0).call("gemm", a=cupy.asarray(a), b=cupy.asarray(b), c=c)
    return c, a.astype("f8") @ b.astype("f8").T


def main():
    """Prints a line for each, on the default stream and on one of CuPy's own; the exit status is the number that are wrong."""
    print(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), "CuPy", cupy.__version__)
    x, wrong = numpy.random.default_rng(0).normal(size=(96, 1000)).astype("f4"), 0
    for name, stream in (("the default stream", cupy.cuda.Stream.null), ("a stream of its own", cupy.cuda.Stream(non_blocking=True))):
        for function in (kernel, product):
            with stream:
                got, wanted = function(x)
                # What is put on the stream behind the launch sees its results.
                got = cupy.asnumpy(got)
            far = float(numpy.linalg.norm(got - wanted) / numpy.linalg.norm(wanted))
            right = far < (2e-3 if got.dtype == numpy.float16 else 2e-6)
            wrong += not right
            print(f"{'right' if right else 'WRONG'} {function.__name__} on {name}: {far:.1e}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
