"""Fixtures that tests share."""

import pytest

pytest_plugins = ["pytester"]

AXPY = """\
size n = 1000
const T = 256
kernel axpy(x: f32[n], y: f32[n], alpha: f32 = 2.0) grid(ceil_div(n, T)) threads(64) {
    gx = global_view(x[block.x * T :], (T) : (e0))
    gy = global_view(y[block.x * T :], (T) : (e0))
    rx = register_tensor(f32, [T])
    ry = register_tensor(f32, [T])
    copy(gx, rx)
    copy(gy, ry)
    sum = alpha * rx + ry
    copy(sum, gy)
}
"""


@pytest.fixture
def axpy():
    """The text of a small kernel."""
    return AXPY
