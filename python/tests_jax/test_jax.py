"""Arrays of JAX, whose half for CPUs lends them by the buffer protocol and by DLPack: `.ci/check-python --nightly`."""

import jax
import jax.numpy as jnp
import numpy
import pytest

import tilewright
from tilewright import bf16, f32, i32, size


def twice(kind):
    @tilewright.kernel
    def doubled(t, x: kind["m", "n"], y: kind["m", "n"], m: size = 3, n: size = 40):
        t.grid(m)
        t.threads(32)
        r = t.register_tensor(kind, [1, 64])
        t.copy(t.global_view(x[t.block.x :, :], (1, 64)), r)
        t.copy(r + r, t.global_view(y[t.block.x :, :], (1, 64)))

    return doubled


@pytest.mark.parametrize("kind, of", [(f32, jnp.float32), (bf16, jnp.bfloat16), (i32, jnp.int32)])
def test_arrays_of_jax(kind, of):
    x = (jnp.arange(120) % 50 - 20).reshape(40, 3).T.astype(of)
    y = twice(kind).simulate(x, None).assert_right()["y"]
    assert y.tolist() == (2 * x).tolist()
    if kind is not bf16:
        assert jnp.array_equal(jnp.asarray(numpy.asarray(y)), 2 * x)


def test_what_only_dlpack_lends():
    x = jnp.arange(120.0).reshape(3, 40)

    class Lent:
        __dlpack__, __dlpack_device__ = x.__dlpack__, x.__dlpack_device__

    assert twice(f32).simulate(Lent(), None)["y"].tolist() == (2 * x).tolist()


def test_refusals():
    x, kernel = jnp.ones((3, 40)), twice(f32)
    # Arrays of JAX do not change.
    with pytest.raises(tilewright.LaunchError, match="`y` is not writable: give another array, or none"):
        kernel.simulate(x, jnp.zeros((3, 40)))
    with pytest.raises(tilewright.LaunchError, match="no tensor on a GPU.*`simulate` takes arrays of the CPU"):
        kernel(x, x)
    assert jax.default_backend() == "cpu"
