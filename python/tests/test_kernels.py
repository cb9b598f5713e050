"""Programs as text: compiled, explained, simulated; mistakes as exceptions."""

import array
import subprocess
import sys

import numpy
import pytest

import tilewright


def test_a_kernel_is_compiled_and_explained(axpy):
    kernel = tilewright.compile(axpy, n=1000)
    assert (kernel.name, kernel.arch) == ("axpy", "sm_80") and ".entry axpy" in kernel.ptx
    assert kernel.program.startswith("size n = 1000")
    assert "ld.global" in kernel.explain() and "<pre>" in kernel.explain()._repr_html_()
    report = kernel.report()
    assert report["threads"] == 64 and report["assumptions"] == [{"size": "n", "multiple": 8}]
    assert "T0V0" in kernel.draw("rx") and kernel.picture("rx")._repr_svg_().startswith("<svg")
    assert tilewright.compile(axpy, arch="sm_90a", T=512).report()["constants"] == {"T": 512}
    assert tilewright.compile(axpy, assume={"n": 1}).report()["assumptions"] == []


def test_a_kernel_is_simulated(axpy):
    kernel = tilewright.compile(axpy, n=1000)
    x, y = numpy.arange(1000, dtype=numpy.float32), numpy.ones(1000, dtype=numpy.float32)
    wanted = 0.5 * x + y
    run = kernel.simulate(x, y, alpha=0.5)
    assert run.right and run.verdict == "right" and (run.races, run.bank_conflicts) == (0, 0) and run.cycles > 0
    assert run.sizes == {"n": 1000} and run.simulation["blocks"] == 4
    assert numpy.array_equal(numpy.asarray(run["y"]), wanted)
    # As at a launch, the tensor that is written has the result.
    assert numpy.array_equal(y, wanted)
    assert "output y" in str(run) and str(run).endswith("right") and "#2a7" in run._repr_html_()
    assert kernel.check(n=8).assert_right().sizes == {"n": 8}
    with pytest.raises(tilewright.LaunchError, match="n % 8|multiple of 8"):
        kernel.check(n=12)


def test_arrays_of_anybody(axpy):
    kernel = tilewright.compile(axpy, n=8)
    ones = numpy.ones(8, dtype=numpy.float32)

    # The interface is an address, which does not keep what lies there.
    every_other = numpy.arange(16, dtype=numpy.float32)[::2]

    class Interface:
        __array_interface__ = every_other.__array_interface__

    class DLPack:
        __dlpack__ = ones.__dlpack__
        __dlpack_device__ = ones.__dlpack_device__

    interface = kernel.simulate(Interface(), ones.copy())["y"].tolist()
    assert interface == [2.0 * 2 * i + 1 for i in range(8)]
    assert kernel.simulate(DLPack(), [0.5] * 8)["y"].tolist() == [2.5] * 8
    values = array.array("f", range(8))
    assert kernel.interpret(values, values, alpha=0)["y"].tolist() == list(range(8))
    strided = numpy.arange(16, dtype=numpy.float64)[::2]
    assert kernel.simulate(strided, kernel.interpret(values, values)["y"])["y"].tolist()[1] == 2 * 2 + 3
    for wrong, reason in ((ones.astype("f8"), "of type f64, and the kernel writes f32"), (numpy.ones(16, dtype="f4")[::2], "not contiguous")):
        with pytest.raises(tilewright.LaunchError, match=reason):
            kernel.simulate(ones, wrong)
    fixed = numpy.ones(8, dtype="f4")
    fixed.flags.writeable = False
    with pytest.raises(tilewright.LaunchError, match='not writable: give another array, or none and take `run."y".`'):
        kernel.simulate(ones, fixed)
    with pytest.raises(tilewright.LaunchError, match="`x`: a object is no array"):
        kernel.simulate(object(), ones)
    with pytest.raises(tilewright.LaunchError, match="elements of type i64, and the tensor has f32|i64.*f32"):
        kernel.simulate([1] * 8, ones)


def test_small_floats_and_halves():
    text = """size n = 8
kernel narrow(x: f32[n], h: bf16[n], q: e4m3[n]) grid(1) threads(32) {
    gx = global_view(x, (8) : (e0))
    gh = global_view(h, (8) : (e0))
    gq = global_view(q, (8) : (e0))
    r = register_tensor(f32, [8])
    copy(gx, r)
    copy(cast(r, bf16), gh)
    copy(cast(r, e4m3), gq)
}"""
    run = tilewright.compile(text).simulate(x=[0.0, 1.0, -1.5, 448.0, 0.001953125, 240.0, -0.25, 2.0]).assert_right()
    assert run["q"].tolist() == run["h"].tolist() == [0.0, 1.0, -1.5, 448.0, 0.001953125, 240.0, -0.25, 2.0]
    assert run["h"].dtype == "bf16" and len(run["h"].tobytes()) == 16
    again = tilewright.compile(text.replace("x: f32", "x: bf16").replace("register_tensor(f32", "register_tensor(bf16").replace("copy(cast(r, bf16), gh)", "copy(r, gh)"))
    # What is `None` is not given.
    assert again.simulate(run["h"], None, None)["h"].tolist() == run["h"].tolist()


def test_floats_of_six_bits_lie_in_bytes():
    text = """size n = 64
kernel six(x: e3m2[n], y: f32[n], z: e2m3[n]) grid(1) threads(64) {
    gx = global_view(x, (64) : (e0))
    gy = global_view(y, (64) : (e0))
    gz = global_view(z, (64) : (e0))
    r = register_tensor(e3m2, [64])
    copy(gx, r)
    v = cast(r, f32)
    copy(v, gy)
    copy(cast(v, e2m3), gz)
}"""
    codes = tilewright.Array("e3m2", [64], bytes(range(64)))
    run = tilewright.compile(text).simulate(x=codes).assert_right()
    assert run["y"].tolist() == codes.tolist() and codes.tolist()[28:34] == [16.0, 20.0, 24.0, 28.0, 0.0, -0.0625]
    assert max(run["z"].tolist()) == 7.5 and run["z"].tolist()[12:16] == [1.0, 1.25, 1.5, 1.75]


def test_a_race_is_found():
    text = """kernel turn(x: f32[64], y: f32[64]) grid(1) threads(64) {
    gx = global_view(x, (64) : (e0))
    gy = global_view(y, ((8, 8)) : ((8 * e0, e0)))
    s = shared_tensor(f32, [64], layout = 64:1)
    copy(gx, s)
    copy(s, gy)
}"""
    run = tilewright.compile(text).check()
    assert not run.right and run.verdict == "WRONG" and run.races > 0
    assert run.findings[0].code == "race" and run.findings[0].line in (5, 6)
    assert "syncthreads" in (run.findings[0].help or "")
    with pytest.raises(AssertionError, match="race"):
        run.assert_right()


def test_mistakes_are_exceptions_with_the_place(axpy):
    with pytest.raises(tilewright.CompileError) as caught:
        tilewright.compile(axpy.replace("copy(gx, rx)", "copy(gx, ry2)"), path="axpy.tile")
    error = caught.value
    assert (error.code, error.line, error.column, error.file) == ("unknown-name", 8, 14, "axpy.tile")
    assert "copy(gx, ry2)" in str(error) and "^^^" in str(error) and "axpy.tile:8:14" in str(error)
    assert "ry" in (error.help or "") and isinstance(error, tilewright.TilewrightError)
    with pytest.raises(tilewright.CompileError, match="test_kernels.py"):
        tilewright.compile("kernel")
    with pytest.raises(tilewright.CompileError, match="neither a size nor a constant.*its sizes are n.*did you mean `n`"):
        tilewright.compile(axpy, N=5)
    with pytest.raises(tilewright.CompileError) as caught:
        tilewright.compile(axpy, arch="sm_1")
    assert caught.value.code == "unsupported-architecture"
    with pytest.raises(tilewright.LaunchError, match="`axpy` has no parameter `z`; its parameters are x, y, alpha"):
        tilewright.compile(axpy).simulate(z=1)
    with pytest.raises(tilewright.LaunchError, match="the kernel reads `x`, `y`"):
        tilewright.compile(axpy).simulate()
    assert tilewright.explain("race").startswith("# ") and "sm_90a" in tilewright.architectures()


def test_files_and_several_kernels(tmp_path, axpy):
    file = tmp_path / "two.tile"
    file.write_text(axpy + axpy.split("\n", 2)[2].replace("axpy", "again"))
    assert tilewright.compile_file(file, kernel="again").name == "again"
    with pytest.raises(tilewright.CompileError, match='name one, `kernel="axpy"`'):
        tilewright.compile_file(file)


def test_importing_imports_nothing_of_others():
    script = "import sys, tilewright; print([m for m in ('numpy', 'torch', 'cuda', 'jax') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
