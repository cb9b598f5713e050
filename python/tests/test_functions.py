"""Kernels as Python functions: what they record, what they compute, and messages about the author's lines."""

import inspect
import sys

import numpy
import pytest

import tilewright
from tilewright import bf16, const, f16, f32, i32, size


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


@tilewright.kernel
def gemm(
    t,
    a: f16["m", "k"],
    b: f16["n", "k"],
    c: f16["m", "n"],
    m: size = 64,
    n: size = 64,
    k: size = 64,
    BM: const = 32,
    BN: const = 32,
    BK: const = 16,
):
    t.grid(t.ceil_div(m, BM), t.ceil_div(n, BN))
    t.threads(64)
    steps = t.ceil_div(k, BK)
    ga = t.global_view(a[t.block.x * BM :, :], (BM, BK, steps), ("e0", "e1", "BK * e1"))
    gb = t.global_view(b[t.block.y * BN :, :], (BN, BK, steps), ("e0", "e1", "BK * e1"))
    gc = t.global_view(c[t.block.x * BM :, t.block.y * BN :], (BM, BN))
    ra, rb = t.register_tensor(f16, [BM, BK]), t.register_tensor(f16, [BN, BK])
    rc = t.register_tensor(f32, [BM, BN])
    t.fill(rc, 0.0)
    for ki in t.range(steps):
        t.copy(ga[:, :, ki], ra)
        t.copy(gb[:, :, ki], rb)
        t.gemm(rc, ra, rb)
    t.copy(t.cast(rc, f16), gc)


def vector(body, dtype=f32, length=64, **annotations):
    """A kernel of one block that reads a vector, does something with it, and writes one."""

    def function(t, x: dtype[length], y: dtype[length]):
        t.grid(1)
        t.threads(32)
        gx = t.global_view(x, (length,))
        gy = t.global_view(y, (length,))
        r = t.register_tensor(dtype, [length])
        t.copy(gx, r)
        t.copy(body(t, r), gy)

    return tilewright.kernel(function)


def computed(kernel, x, dtype=numpy.float32):
    """Results of a kernel of one vector, on the simulator."""
    run = kernel.simulate(numpy.asarray(x, dtype=dtype)).assert_right()
    return numpy.asarray(run["y"])


def test_softmax_is_right():
    x = numpy.random.default_rng(0).normal(size=(5, 1000)).astype(numpy.float32)
    y = numpy.empty_like(x)
    run = softmax.simulate(x, y)
    wanted = numpy.exp(x - x.max(1, keepdims=True))
    assert run.assert_right().sizes == {"m": 5, "n": 1000}
    assert numpy.allclose(y, wanted / wanted.sum(1, keepdims=True), rtol=1e-5)
    assert "e = exp(r - reduce(r, max, 1, keep))" in softmax.text
    assert softmax.check(m=2, n=300, BN=512).right
    assert ".entry softmax" in softmax.ptx(arch="sm_90a") and "reduce" in softmax.explain()


def test_a_product_of_matrices_is_right():
    rng = numpy.random.default_rng(1)
    a, b = (rng.uniform(-1, 1, (48, 40)).astype(numpy.float16) for _ in "ab")
    c = numpy.empty((48, 48), dtype=numpy.float16)
    assert gemm.simulate(a, b, c, BK=32).right
    assert numpy.allclose(c, a.astype(numpy.float32) @ b.astype(numpy.float32).T, atol=0.02)
    assert gemm.compile(arch="sm_90a").report()["constants"]["BM"] == 32


def test_a_text_reads_back():
    for kernel in (softmax, gemm):
        again = tilewright.compile(kernel.text)
        assert again.program == kernel.compile().program


def test_helpers_closures_and_loops_of_python():
    def horner(t, r, coefficients):
        total = 0.0 * r
        for coefficient in coefficients:
            total = total * r + coefficient
        return total

    x = numpy.linspace(-1, 1, 64)
    assert numpy.allclose(computed(vector(lambda t, r: horner(t, r, [1, 2, 3])), x), x**2 + 2 * x + 3, atol=1e-6)


def test_an_expression_keeps_the_values_it_was_made_of():
    def body(t, r):
        before = r + 1.0
        doubled = r * 2.0
        r[:] = doubled
        # `before` is of the elements before the change.
        return before + r

    assert numpy.array_equal(computed(vector(body), numpy.arange(64)), 3 * numpy.arange(64) + 1)

    def loop(t, r):
        total = r * 0.0
        scale = t.exp(r * 0.0)
        for i in t.range(4):
            total += scale * t.float(i)
            r *= 1.0
        return total

    assert numpy.array_equal(computed(vector(loop), numpy.arange(64)), numpy.full(64, 6))


def test_a_sum_of_a_product_is_rounded_once():
    kernel = vector(lambda t, r: r * r - 1.0)
    assert "r * r - 1.0" in kernel.text.replace("(", "").replace(")", "")
    x = numpy.full(64, 1 + 2.0**-12, dtype=numpy.float32)
    assert computed(kernel, x)[0] == numpy.float32(2.0**-11 + 2.0**-24)


def test_branches_conditions_and_parts():
    def body(t, r):
        parts = t.register_tensor(f32, [64, 2])
        for k in t.unroll(2):
            parts[:, k] = r + t.float(k)
        parts[:, 1] += 1.0
        with t.if_(t.and_(t.block.x == 0, t.block.y < 1)):
            r[:] = parts[:, 0] + parts[:, 1]
        with t.elif_(t.block.x > 5):
            r[:] = parts[:, 0]
        with t.else_():
            r[:] = 0.0 * r
        return t.where(t.or_(r > 10.0, t.not_(r < 50.0)), r, -r)

    x = numpy.arange(64)
    wanted = 2 * x + 2
    assert numpy.array_equal(computed(vector(body), x), numpy.where((wanted > 10) | (wanted >= 50), wanted, -wanted))


def test_functions_that_combine_elements():
    def body(t, r):
        def pair(m1, s1, m2, s2):
            top = t.max(m1, m2)
            return top, s1 * t.exp(m1 - top) + s2 * t.exp(m2 - top)

        top, total = t.reduce((r, 0.0 * r + 1.0), pair, 0)
        return r * 0.0 + t.broadcast(top + t.log(total), [64])

    kernel = vector(body)
    assert "fn pair(" in kernel.text
    x = numpy.linspace(-2, 2, 64)
    assert numpy.allclose(computed(kernel, x), numpy.log(numpy.exp(x).sum()), atol=1e-5)


def test_shared_memory_and_integers():
    @tilewright.kernel
    def turned(t, x: bf16["m", 32], rows: i32["m"], y: bf16["m", 32], m: size = 16, shift: i32 = 3):
        t.grid(m)
        t.threads(32)
        row = t.let(rows[t.block.x])
        gx = t.global_view(x[row:, :], (1, 32))
        gy = t.global_view(y[(t.block.x + shift) % m :, :], (1, 32))
        s, r = t.shared_tensor(bf16, [1, 32]), t.register_tensor(bf16, [1, 32])
        t.copy_async(gx, s)
        t.commit_group()
        t.wait_group(0)
        t.syncthreads()
        t.copy(s, r)
        t.copy(r, gy)

    assert turned.check(m=8).right and "let row = rows[block.x]" in turned.text


def test_a_mistake_in_the_kernel_is_shown_in_the_file():
    @tilewright.kernel
    def wrong(t, x: f32[64], y: f32[64]):
        t.grid(1)
        t.threads(32)
        gx = t.global_view(x, (64,))
        gy = t.global_view(y, (32,))
        t.copy(gx, gy)
        t.copy(gx, t.register_tensor(f32, [32]))

    line = inspect.getsourcelines(wrong.__wrapped__)[1] + 7
    with pytest.raises(tilewright.CompileError) as caught:
        wrong.compile()
    error = caught.value
    assert error.file == __file__ and error.line in (line - 1, line)
    assert "t.copy(gx" in str(error) and f"test_functions.py:{error.line}" in str(error)
    if sys.version_info >= (3, 11):
        assert error.column == 9


def test_a_race_is_shown_in_the_file():
    @tilewright.kernel
    def race(t, x: f32[64], y: f32[64]):
        t.grid(1)
        t.threads(64)
        gx = t.global_view(x, (64,))
        gy = t.global_view(y, ((8, 8),), ("(8 * e0, e0)",))
        s = t.shared_tensor(f32, [64], layout="64:1")
        t.copy(gx, s)
        t.copy(s, gy)

    run = race.check()
    assert not run.right and run.findings[0].code == "race" and run.findings[0].file == __file__
    assert "t.copy(s, gy)" in str(run) and "syncthreads" in str(run)


def test_mistakes_of_the_builder_have_a_place_and_a_remedy():
    def refused(body, message, help):
        with pytest.raises(tilewright.CompileError) as caught:
            vector(body).compile()
        assert message in caught.value.message and help in caught.value.help, caught.value
        assert caught.value.file == __file__ and caught.value.line > 0 and "-->" in str(caught.value)

    refused(lambda t, r: r if r > 0 else -r, "Python asks for it now", "t.if_(condition)")
    refused(lambda t, r: [e for e in r][0], "has no elements", "t.range")
    refused(lambda t, r: range(t.block.x), "Python asks for a number", "t.unroll")
    refused(lambda t, r: r + object(), "nothing that a kernel computes with", "numbers, element types")
    refused(lambda t, r: t.copy(r[::2], r), "has no step", "strides")

    def left(t, r):
        for i in t.range(4):
            break
        return r

    refused(left, "leaves a loop of the kernel", "t.break_")

    def orphan(t, r):
        with t.else_():
            r[:] = -r
        return r

    refused(orphan, "no block here", "if")
    with pytest.raises(AttributeError, match="no statement or function `sigmoid`"):
        vector(lambda t, r: t.sigmoid(r)).compile()


def test_a_kernel_says_its_parameters_grid_and_threads():
    def refused(function, message):
        with pytest.raises(tilewright.CompileError, match=message):
            tilewright.kernel(function).compile()

    def no_grid(t, x: f32[64]):
        t.threads(32)

    def no_annotation(t, x):
        pass

    def no_default(t, x: f32["n"], n: size):
        pass

    refused(no_grid, "does not say its grid")
    refused(no_annotation, "`x` has no annotation of a kernel")
    refused(no_default, "the size `n` has no default")
    with pytest.raises(tilewright.LaunchError, match="no parameter `z`"):
        softmax.simulate(z=1)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the interpreter does not say where in a line a call is")
def test_variables_that_are_assigned_side_by_side_name_values():
    @tilewright.kernel
    def two(t, x: f32[64], y: f32[64]):
        t.grid(1)
        t.threads(32)
        from_x, to_y = t.global_view(x, (64,)), t.global_view(y, (64,))
        (first, second), third = (t.register_tensor(f32, [64]), t.register_tensor(f32, [64])), t.register_tensor(f32, [64])
        t.copy(from_x, first)
        t.copy(first, to_y)
        t.fill(second, 0.0)
        t.fill(third, 0.0)

    assert "from_x = global_view" in two.text and "copy(first, to_y)" in two.text and "third = register" in two.text, two.text
