"""Tests of `tilewright.testing` and of the plugin for pytest."""

import os
import shutil
import subprocess
import sys

import numpy
import pytest

import tilewright
from tilewright import const, f32, size
from tilewright.testing import assert_right


@tilewright.kernel
def doubled(t, x: f32["n"], y: f32["n"], n: size = 100, T: const = 64):
    t.grid(t.ceil_div(n, T))
    t.threads(32)
    r = t.register_tensor(f32, [T])
    t.copy(t.global_view(x[t.block.x * T :], (T,)), r)
    t.copy(2.0 * r, t.global_view(y[t.block.x * T :], (T,)))


@tilewright.kernel
def doubled_in_place(t, x: f32["n"], n: size = 64):
    t.grid(1)
    t.threads(32)
    r, g = t.register_tensor(f32, [64]), t.global_view(x, (64,))
    t.copy(g, r)
    t.copy(2.0 * r, g)


@tilewright.kernel
def turned(t, x: f32[64, 64], y: f32[64, 64]):
    t.grid(1)
    t.threads(64)
    s, r = t.shared_tensor(f32, [64, 64]), t.register_tensor(f32, [64, 64])
    t.copy(t.global_view(x, (64, 64)), s)
    t.copy(s, r)
    t.copy(r, t.global_view(y, (64, 64), ("e1", "e0")))


def test_right_kernels_pass():
    run = assert_right(doubled, seeds=4, sizes=[{"n": 100}, {"n": 64}])
    assert run.right and run.sizes == {"n": 64}
    assert_right(doubled.compile(n=64), seeds=[7])
    x = numpy.arange(100, dtype="f4")
    assert_right(doubled, x, numpy.empty_like(x), seeds=2, reference=lambda x: x * 2)
    # Each of the sizes, though there are fewer seeds; and what is overwritten is as it was given in each run.
    assert assert_right(doubled, seeds=1, sizes=[{"n": 100}, {"n": 64}]).sizes == {"n": 64}
    held = numpy.arange(64, dtype="f4")
    assert_right(doubled_in_place, held, seeds=2, reference=lambda x: x * 2)
    assert (held == numpy.arange(64)).all()


def test_what_is_wrong_is_said():
    x = numpy.arange(100, dtype="f4")
    with pytest.raises(AssertionError, match=r"99 of 100 elements of `y` are not what the reference says: the worst, \[99\], is 198 and should be 297"):
        assert_right(doubled, x, numpy.empty_like(x), seeds=1, reference=lambda x: x * 3)
    with pytest.raises(AssertionError, match="`y` has 100 elements, and the reference 3"):
        assert_right(doubled, x, numpy.empty_like(x), seeds=1, reference=lambda x: x[:3])
    with pytest.raises(AssertionError, match=r"(?s)seed 5\n.*error\[race\]: race on `s`.*WRONG"):
        assert_right(turned, seeds=[5])
    with pytest.raises(TypeError, match="give some"):
        assert_right(doubled, reference=lambda x: x)
    with pytest.raises(TypeError, match="one of both"):
        assert_right(doubled, x, sizes=[{"n": 3}])
    with pytest.raises(ValueError, match="at least one run"):
        assert_right(doubled, seeds=0)
    with pytest.raises(ValueError, match="`sizes` has none"):
        assert_right(doubled, sizes=[])
    # An infinity is near nothing else.
    for wanted in (numpy.inf, -numpy.inf):
        with pytest.raises(AssertionError, match=r"1 of 100 elements of `y` .* the worst, \[3\]"):
            assert_right(doubled, x, numpy.empty_like(x), seeds=1, reference=lambda x: numpy.where(x == 3, numpy.float32(wanted), x * 2))


def test_the_plugin(pytester):
    pytester.makepyfile(
        """
        import tilewright
        from tilewright import f32

        @tilewright.kernel
        def copied(t, x: f32[64], y: f32[64]):
            t.grid(1)
            t.threads(32)
            r = t.register_tensor(f32, [64])
            t.copy(t.global_view(x, (64,)), r)
            t.copy(r, t.global_view(y, (64,)))

        def test_device(tw_device):
            assert tw_device in ("sim", "cuda")

        def test_right(tw_right):
            assert tw_right.keywords == {"seeds": 2}
            tw_right(copied)
        """
    )
    run = pytester.runpytest("--tw-seeds=2", "-p", "no:cacheprovider")
    run.assert_outcomes(passed=2)
    run.stdout.fnmatch_lines([f"tilewright: {tilewright.__version__}, device sim"])
    assert "--tw-device={sim,cuda}" in pytester.runpytest("--help").stdout.str()


def test_the_command():
    """The command of the wheel: a program of its own, and a module."""
    for command in ([sys.executable, "-m", "tilewright"], [shutil.which("tilewright", path=os.path.dirname(sys.executable)) or "tilewright"]):
        done = subprocess.run([*command, "layout", "8:1"], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.strip() == "8:1"
        done = subprocess.run([*command, "rum"], capture_output=True, text=True)
        assert done.returncode == 2 and "rum" in done.stderr
