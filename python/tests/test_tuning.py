"""Tests of `tilewright.tune` on a machine without a GPU: the ranking by estimate, and refusals."""

import pytest

import tilewright


def test_configurations_are_ranked_without_a_gpu():
    told = []
    [found] = tilewright.tune(
        "rmsnorm", {"m": 64, "n": 512}, options={"dtype": "f16"}, estimate="sm_90a", progress=lambda *what: told.append(what)
    )
    assert found.origin == "estimate" and found.microseconds is None and "rmsnorm" in found.problem
    estimates = [entry["estimate_microseconds"] for entry in found.report["entries"] if entry["refused"] is None]
    assert estimates == sorted(estimates) and len(estimates) > 1
    assert told and all(problem == "rmsnorm m=64 n=512" and 0 <= spent <= 1 for problem, spent, _ in told)


def test_what_cannot_be_tuned_is_refused():
    with pytest.raises(tilewright.LaunchError, match="rmsnorms"):
        tilewright.tune("rmsnorms", {"m": 1}, estimate="sm_90a")
    with pytest.raises(tilewright.LaunchError, match="sm_9x"):
        tilewright.tune("rmsnorm", {"m": 64, "n": 512}, estimate="sm_9x")
    with pytest.raises(tilewright.LaunchError, match="no time"):
        tilewright.tune("rmsnorm", {"m": 64, "n": 512}, estimate="sm_90a", seconds=-1)
    with pytest.raises(ZeroDivisionError):
        tilewright.tune("rmsnorm", {"m": 64, "n": 512}, estimate="sm_90a", progress=lambda *what: 1 / 0)
