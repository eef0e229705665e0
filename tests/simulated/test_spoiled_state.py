"""A worker whose state an aborted collective has spoiled takes another's, or the checkpoint.

It has queued the update of its weights behind a message from a peer that is killed before it sends.
The abort lets the update run on what has arrived, raises nothing, and cannot call it back.
"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import outside
from command import paceline
from paceline.specs import Run
from train.test_regroup import regroups

pytestmark = pytest.mark.nightly

TRAIN = """
import os, signal
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset
import paceline

STEPS = []

def model():
    print("builds the model", flush=True)
    return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 2))

def exchange(optimizer, *_):
    STEPS.append(1)
    if not dist.is_initialized() or dist.get_world_size() < int(os.environ["WORKERS"]):
        return
    gradient = optimizer.param_groups[0]["params"][0].grad
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    if rank == last:
        if len(STEPS) == 7 and "KILLS" in os.environ:
            torch.accelerator.synchronize()  # the others have its gradient
            os.kill(os.getpid(), signal.SIGKILL)
        dist.send(torch.zeros_like(gradient), 0)
    elif rank == 0:
        message = torch.full_like(gradient, 1e6)
        dist.recv(message, last)  # orders the stream; the host goes on
        gradient += message

def optimizer(parameters):
    made = torch.optim.AdamW(parameters, lr=0.01)
    made.register_step_pre_hook(exchange)
    return made

def training():
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(200, 12, generator=generator)
    return paceline.Training(
        model=model,
        loss=F.cross_entropy,
        data=TensorDataset(inputs, (inputs[:, 0] > 0).long()),
        optimizer=optimizer,
        batch=30,
        steps=12,
    )

def loop():
    with paceline.start(training()) as trainer:
        for batch in trainer:
            trainer.step(batch)
        trainer.export("weights.safetensors")
"""


def _trained(
    folder: Path, workers: int, *words: str, **environment: str
) -> tuple[Run, dict[str, torch.Tensor]]:
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    variables = environment | {
        "PYTHONPATH": outside.environment("simulated")["PYTHONPATH"],
        "PACELINE_DEVICE_KIND": "sim",
        "PACELINE_SIM_DEVICES": "3",
        "WORKERS": str(workers),
    }
    paceline(
        *("run", "train.py:loop", "-n", str(workers), "--quiet", "--no-check", *words),
        folder=folder,
        **variables,  # type: ignore[arg-type]
    )
    (run,) = (folder / "runs").iterdir()
    return Run.open(run), load_file(folder / "weights.safetensors")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    return _trained(tmp_path_factory.mktemp("undisturbed") / "a", 1, "--save-every", "0")[1]


def test_it_takes_the_state_of_another(
    tmp_path: Path, undisturbed: dict[str, torch.Tensor]
) -> None:
    """The other survivor has taken the same step, and waits for nobody."""
    run, survived = _trained(tmp_path / "b", 3, "--save-every", "0", KILLS="1")
    first = regroups(run)[0]
    assert (first.lost, first.source, first.steps_again) == ([2], "members", 0)
    (log,) = run.logs.iterdir()
    assert log.read_text().count("0: builds the model") == 2
    torch.testing.assert_close(survived, undisturbed, rtol=0, atol=1e-6)


def test_it_takes_the_checkpoint_where_nobody_else_is_left(
    tmp_path: Path, undisturbed: dict[str, torch.Tensor]
) -> None:
    run, survived = _trained(tmp_path / "b", 2, "--save-every", "2", KILLS="1")
    first = regroups(run)[0]
    assert (first.lost, first.source) == ([1], "checkpoint")
    assert first.step < 7
    torch.testing.assert_close(survived, undisturbed, rtol=0, atol=1e-6)
