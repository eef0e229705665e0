"""Memory that runs out says so, with an exit code of its own."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from paceline.specs import OUT_OF_MEMORY_EXIT_CODE, Failed, Job, Layout, Plan, Run, event_adapter
from paceline.train.worker.out_of_memory import advice, ran_out_of_memory

TRAIN = """
import resource
import torch
import paceline

def training():
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), used + (1 << 28)))
    return paceline.Training(
        model=lambda: torch.nn.Linear(16384, 16384),
        loss=torch.nn.functional.mse_loss,
        data=torch.utils.data.TensorDataset(torch.zeros(4, 1), torch.zeros(4, 1)),
        optimizer=torch.optim.SGD,
        batch=2,
        steps=1,
    )
"""


def test_a_worker_whose_memory_runs_out_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    job = Job(
        name="big",
        train=tmp_path / "train.py",
        devices_per_node=1,
        folder=tmp_path,
        python=Path(sys.executable),
    )
    run = Run.create(tmp_path / "run", job, Plan(layout=Layout()))
    done = subprocess.run(
        [sys.executable, "-m", "paceline.train", str(run.path)],
        env={"PACELINE_RANK": "0", "PACELINE_WORKERS": "1", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == OUT_OF_MEMORY_EXIT_CODE, done.stderr
    lines = [line for file in run.events.iterdir() for line in file.read_text().splitlines()]
    (failed,) = (event_adapter.validate_json(line) for line in lines if "failed" in line)
    assert isinstance(failed, Failed)
    assert "out of memory" in failed.message
    assert "1073741824 bytes" in failed.message
    for word in ("--micro-batch", "--recompute", "--shards"):
        assert word in failed.message


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (OSError(12, "Cannot allocate memory"), True),
        (OSError(28, "No space left on device"), False),
        (RuntimeError("size mismatch"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_counts_as_out_of_memory(error: Exception, expected: bool) -> None:
    assert ran_out_of_memory(error) is expected
    outer = ValueError("while building the model")
    outer.__cause__ = error
    assert ran_out_of_memory(outer) is expected
    assert not expected or advice(outer).startswith("out of memory")
