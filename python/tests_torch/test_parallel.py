"""The examples over several GPUs, by two processes on the CPU."""

import os
import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def lines_of(example, *words):
    """What an example prints that begins with one of the words."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(EXAMPLES / example), "--device", "cpu"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stdout + run.stderr
    return [line for line in run.stdout.splitlines() if line.startswith(words)]


def test_a_block_over_two_processes():
    lines = lines_of("tensor_parallel.py", "right", "WRONG", "torch's own")
    assert len(lines) == 4 and all(line.startswith("right") for line in lines[:3]), lines


def test_experts_over_two_processes():
    lines = lines_of("expert_parallel.py", "right", "WRONG")
    assert len(lines) == 1 and lines[0].startswith("right"), lines
