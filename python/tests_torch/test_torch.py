"""The operators of `tilewright.torch` on torch's CPU half: schemas, shapes without data, gradients, compilation as one graph."""

import pytest
import torch

import tilewright
import tilewright.torch as tt
from tilewright import const, f32, i32, size
from tilewright.torch import _linear


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
def shifted(t, x: f32["n"], y: f32["n"], z: f32["n"], alpha: f32 = 2.0, k: i32 = 1, n: size = 64):
    t.grid(t.ceil_div(n, 64))
    t.threads(32)
    views = [t.global_view(each[t.block.x * 64 :], (64,), name=name) for each, name in ((x, "gx"), (y, "gy"), (z, "gz"))]
    r = t.register_tensor(f32, [64])
    t.copy(views[0], r)
    t.copy(alpha * r, views[1])
    t.copy(r + t.float(k), views[2])


def close(a, b, tolerance=1e-5):
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance)


def test_linear_is_an_operator():
    x, weight, bias = torch.randn(2, 5, 8), torch.randn(3, 8), torch.randn(3)
    assert close(tt.linear(x, weight, bias), torch.nn.functional.linear(x, weight, bias))
    for activation in ("relu", "gelu", "silu"):
        inputs = tuple(v.clone().requires_grad_() for v in (x, weight, bias))
        torch.library.opcheck(torch.ops.tilewright.linear.default, (*inputs, activation))
    with pytest.raises(ValueError, match="`tanh` is no activation"):
        tt.linear(x, weight, bias, "tanh")


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_gradients_of_linear(activation):
    inputs = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 3, 4), (5, 4), (5,))]
    assert torch.autograd.gradcheck(lambda x, w, b: tt.linear(x, w, b, activation), inputs)
    assert torch.autograd.gradcheck(lambda x, w: tt.linear(x, w), inputs[:2])
    assert torch.autograd.gradgradcheck(lambda x, w, b: tt.linear(x, w, b, activation), inputs)


def test_the_operands_of_gradients(monkeypatch):
    """A GPU's form is given shapes and strides that its kernels have: a · bᵀ over the mode that both have last."""
    given = []

    def product(x, weight, bias=None, activation=""):
        given.append([(tuple(v.shape), v.is_contiguous() or v.T.is_contiguous()) for v in (x, weight)])
        return torch.nn.functional.linear(x, weight, bias)

    class Context:
        saved_tensors = torch.randn(2, 3, 4), torch.randn(5, 4), None
        activation, biased, needs_input_grad = "", True, (True, True, True, False)

    monkeypatch.setattr(torch.ops.tilewright, "linear", product)
    gradients = _linear._linear_backward(Context, torch.randn(2, 3, 5))
    assert given == [[((6, 5), True), ((4, 5), True)], [((5, 6), True), ((4, 6), True)]]
    assert [tuple(v.shape) for v in gradients[:3]] == [(2, 3, 4), (5, 4), (5,)]


def test_linear_is_one_graph():
    weight = torch.randn(3, 8, requires_grad=True)

    def model(x):
        return tt.linear(torch.sin(x), weight, None, "silu") * 2.0

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (4, 7):
        x = torch.randn(rows, 8)
        assert close(compiled(x), model(x))
    compiled(torch.randn(4, 8)).sum().backward()
    assert weight.grad.shape == (3, 8)


def test_a_kernel_is_an_operator_by_the_simulator():
    row_softmax = tt.op(softmax, name="row_softmax", simulate=True)
    x = torch.randn(3, 1000)
    assert close(row_softmax(x), torch.softmax(x, 1))
    torch.library.opcheck(torch.ops.tilewright.row_softmax.default, (x,))
    compiled = torch.compile(lambda v: row_softmax(v * 2.0), fullgraph=True, backend="aot_eager")
    assert close(compiled(x), torch.softmax(2.0 * x, 1))


def test_gradients_and_numbers_of_a_kernel():
    def saved(ctx, inputs, output):
        ctx.alpha = inputs[1]

    def backward(ctx, of_y, of_z):
        return ctx.alpha * of_y + of_z, None, None

    op = tt.op(shifted, simulate=True, backward=backward, setup_context=saved)
    x = torch.randn(64, requires_grad=True)
    y, z = op(x, 3.0, k=2)
    assert close(y, 3.0 * x) and close(z, x + 2)
    (y.sum() + 2 * z.sum()).backward()
    assert close(x.grad, torch.full((64,), 5.0))


def test_tensors_of_the_cpu_are_simulated_and_never_launched():
    x = torch.randn(2, 1000, dtype=torch.float32)
    y = torch.empty(2, 1000)
    softmax.simulate(x, y).assert_right()
    assert close(y, torch.softmax(x, 1))
    with pytest.raises(tilewright.LaunchError, match="`y` is of type bf16, and the kernel writes f32"):
        softmax.simulate(x, y.bfloat16())
    with pytest.raises(tilewright.LaunchError, match="`x` is on the CPU"):
        softmax(x, y)


def test_what_is_no_operator_is_refused():
    @tilewright.kernel
    def added(t, x: f32[64], y: f32[64]):
        t.grid(1)
        t.threads(32)
        gx, gy = t.global_view(x, (64,)), t.global_view(y, (64,))
        r, s = t.register_tensor(f32, [64]), t.register_tensor(f32, [64])
        t.copy(gx, r)
        t.copy(gy, s)
        t.copy(r + s, gy)

    with pytest.raises(ValueError, match="reads and writes y"):
        tt.op(added)

    @tilewright.kernel
    def turned(t, x: f32["n", "m"], y: f32["n", "m"].stored(1, "n"), n: size = 64, m: size = 32):
        t.grid(1)
        t.threads(32)
        r = t.register_tensor(f32, [64, 32])
        t.copy(t.global_view(x[0:, 0:], (64, 32)), r)
        t.copy(r, t.global_view(y[0:, 0:], (64, 32)))

    with pytest.raises(ValueError, match="`y` of `turned` is no contiguous tensor"):
        tt.op(turned)
