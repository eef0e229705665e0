"""Workers on simulated devices are lost, and the survivors continue with complete sums only.

Places 1, 2 and 3 of what would fail on GPUs (docs/devices.md): a regroup ends the run, an aborted
step counts, the watchdog ends survivors.
"""

import json
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import outside
from command import paceline
from paceline.specs import Run
from ranks import run_ranks
from train.test_regroup import regroups

pytestmark = pytest.mark.slow

TRAIN = """
import os, signal
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset
import paceline

CALLS = []

def loss(output, target):
    CALLS.append(1)  # the other worker waits in backward meanwhile, or is about to
    if len(CALLS) == 12 and os.environ["PACELINE_RANK"] == os.environ.get("VICTIM"):
        if os.environ.get("FAULT") == "sick":
            from paceline_simulated import collectives_watchdog, core
            collectives_watchdog.stuck.set()  # or it may end the process before that tells why
            core.sicken(output.device.index)
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return F.cross_entropy(output, target)

def training():
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(200, 12, generator=generator)
    return paceline.Training(
        model=lambda: nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 2)),
        loss=loss,
        data=TensorDataset(inputs, (inputs[:, 0] > 0).long()),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        batch=30,
        steps=20,
    )

def loop():
    with paceline.start(training()) as trainer:
        for batch in trainer:
            trainer.step(batch)
        trainer.export("weights.safetensors")
"""


def _trained(folder: Path, *words: str, **environment: str) -> tuple[Run, dict[str, torch.Tensor]]:
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    paceline(
        *("run", "train.py:loop", "-n", "2", "--quiet", *words),
        folder=folder,
        PYTHONPATH=outside.environment("simulated")["PYTHONPATH"],
        PACELINE_DEVICE_KIND="sim",
        PACELINE_SIM_DEVICES="3",
        **environment,  # type: ignore[arg-type]
    )
    (run,) = (folder / "runs").iterdir()
    return Run.open(run), load_file(folder / "weights.safetensors")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    return _trained(tmp_path_factory.mktemp("undisturbed") / "a", "--save-every", "0")[1]


def test_no_step_counts_whose_sums_an_abort_cut_off(
    tmp_path: Path, undisturbed: dict[str, torch.Tensor]
) -> None:
    """The survivor waits in an all-reduce, which the abort ends without an error."""
    run, survived = _trained(tmp_path / "b", "--save-every", "0", VICTIM="1")
    first = regroups(run)[0]  # on a slow machine the worker's replacement joins, too
    assert (first.lost, first.steps_again, first.source) == ([1], 0, "members")
    torch.testing.assert_close(survived, undisturbed, rtol=0, atol=1e-6)


def test_a_spare_replaces_a_worker_whose_device_is_sick(
    tmp_path: Path, undisturbed: dict[str, torch.Tensor]
) -> None:
    """The worker's error ended the whole run, as the user's own would."""
    faults = {"VICTIM": "1", "FAULT": "sick"}
    run, survived = _trained(tmp_path / "b", "--save-every", "0", "--spares", "1", **faults)
    events = [json.loads(line) for file in run.events.iterdir() for line in file.open()]
    (sick,) = [each for each in events if each["kind"] == "sick_device"]
    assert (sick["rank"], sick["device"]) == (1, "sim:1")
    assert "ECC" in sick["why"]
    assert not [each for each in events if each["kind"] == "failed"]
    assert regroups(run)[-1].workers == 2
    (log,) = run.logs.iterdir()
    assert "sim:1 of" in log.read_text()
    torch.testing.assert_close(survived, undisturbed, rtol=0, atol=1e-6)


@pytest.mark.parametrize("waits", [False, True])
def test_an_update_behind_a_lost_peer_spoils_the_state(tmp_path: Path, waits: bool) -> None:
    run_ranks(_abort_behind_update, 1, tmp_path, waits)


def _abort_behind_update(waits: bool) -> None:
    import paceline_simulated.device  # noqa: F401
    from paceline.comm.connections import Connections
    from paceline.comm.group_errors import GroupAborted
    from paceline.comm.health import GroupHealth
    from paceline_simulated import core

    health, device = GroupHealth(Connections()), torch.device("sim", 0)
    weight = torch.zeros(1, device=device)
    health.begin_update(device)
    weight += 1
    health.end_update(device)
    if waits:
        release = threading.Event()
        core.enqueue(0, lambda: release.wait(30))  # as a collective that waits for a lost peer
        health.begin_update(device)
        weight += 1
        health.end_update(device)
    health.begin_abort()
    if waits:
        release.set()
    assert health.state_is_spoiled == waits
    with pytest.raises(GroupAborted):
        health.begin_update(device)
    health.begin_generation()
    assert not health.state_is_spoiled
