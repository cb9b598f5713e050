"""The example of a block over several GPUs, by two processes on the CPU."""

import os
import pathlib
import subprocess
import sys

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "tensor_parallel.py"


def test_a_block_over_two_processes():
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(EXAMPLE), "--device", "cpu"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [line for line in run.stdout.splitlines() if line.startswith(("right", "WRONG", "torch's own"))]
    assert len(lines) == 4 and all(line.startswith("right") for line in lines[:3]), run.stdout
