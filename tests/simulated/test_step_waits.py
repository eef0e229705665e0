"""How often the host waits for its device in a training step: never, in every layout and mode.

Before: once per step to know whether gradients are finite, once per four steps for stragglers,
three times per window of steps, and for the whole device at every copy of the state.

The devices follow their hosts here: a host that is far ahead must wait, since its queue has an end.
"""

import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import paceline
from paceline.comm import host_copies
from paceline.specs import Faults, Layout, Saving, SyncSettings
from ranks import new_run
from simulated_devices import run_sim_ranks

STEPS, FIRST_STEPS = 24, 4
"""Of a run, and those of its beginning that may wait: workers are met, memory is pinned."""


class Case(NamedTuple):
    """A layout and mode."""

    layout: Layout
    sync: str = "allreduce"
    changes: dict[str, Any] = {}  # noqa: RUF012 -- never changed
    save_every: int = 0
    copy_every: int | None = 10
    waits: tuple[str, ...] = ()
    """The places where the host waits nevertheless."""


CASES = {
    "one device": Case(Layout()),
    "replicas": Case(Layout(replicas=2)),
    "replicas without copies": Case(Layout(replicas=2), copy_every=None),
    "replicas without copies, fp16, averaged": Case(
        Layout(replicas=2, precision="fp16"), changes={"average": 0.9}, copy_every=None
    ),
    "replicas, clipped, accumulated": Case(
        Layout(replicas=2, micro_batch=4), changes={"clip": 1.0}
    ),
    "replicas, bf16": Case(Layout(replicas=2, precision="bf16")),
    "replicas, fp16 with loss scaling": Case(
        Layout(replicas=2, precision="fp16"),
        changes={"clip": 1.0},
        waits=("loss_scaling.py, state",),
    ),
    "replicas, checkpoints": Case(Layout(replicas=2), save_every=5),
    "replicas, averaged weights": Case(Layout(replicas=2), changes={"average": 0.9}),
    "replicas, recompute": Case(Layout(replicas=2, recompute="block")),
    "shards": Case(Layout(shards=2)),
    "shards, clipped, accumulated, checkpoints": Case(
        Layout(shards=2, micro_batch=4), changes={"clip": 1.0}, save_every=5
    ),
    "shards, bf16": Case(Layout(shards=2, precision="bf16"), changes={"clip": 1.0}),
    "replicas x shards": Case(Layout(replicas=2, shards=2), changes={"clip": 1.0}),
    "tensor": Case(Layout(tensor=2), changes={"clip": 1.0}),
    "tensor x shards": Case(Layout(tensor=2, shards=2), changes={"clip": 1.0}),
    "pipeline": Case(Layout(pipeline=2), changes={"clip": 1.0}),
    "pipeline, interleaved": Case(Layout(pipeline=2, schedule="interleaved")),
    "pipeline x replicas, fp16": Case(
        Layout(pipeline=2, replicas=2, precision="fp16"), waits=("loss_scaling.py, state",)
    ),
    "local steps": Case(Layout(replicas=2), "local:every=4"),
    "DiLoCo": Case(Layout(replicas=2), "diloco:every=4"),
    "DiLoCo, overlapped, shards": Case(
        Layout(replicas=2, shards=2), "diloco:every=4,overlap=2", {"clip": 1.0}
    ),
    "gossip": Case(Layout(replicas=2), "gossip"),
    "bf16 gradients": Case(Layout(replicas=2), "allreduce:compress=bf16"),
    "int8 gradients": Case(Layout(replicas=2), "allreduce:compress=int8"),
    "canonical": Case(Layout(replicas=2), "canonical"),
}
QUICK = {"replicas, clipped, accumulated", "shards, clipped, accumulated, checkpoints", "pipeline"}


class Block(nn.Module):
    """A residual block of a small network."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.down(torch.relu(self.up(self.norm(x))))
        return x + added


class Network(nn.Module):
    """Blocks that shards and stages divide."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        found: torch.Tensor = self.head(x)
        return found


def _counted(changes: dict[str, Any]) -> dict[str, int]:
    """Train, and return the places where the host waited in a step after the first steps."""
    from paceline_simulated import core
    from paceline_simulated.waits import host_waits, reset

    inputs = torch.randn(16 * STEPS, 8, generator=torch.Generator().manual_seed(0))
    training = paceline.Training(
        model=Network,
        loss=nn.functional.cross_entropy,
        data=torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long()),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        batch=16,
        steps=STEPS,
        **changes,
    )
    found = Counter[str]()
    with paceline.start(training) as trainer:
        for step, batch in enumerate(trainer):
            reset()
            trainer.step(batch)
            trainer.log(step=step)
            if step >= FIRST_STEPS:
                # A new name of a metric is summed and read once more.
                waits = {w: n for w, n in host_waits().items() if w.function != "means_of"}
                found.update({f"{Path(w.file).name}, {w.function}": n for w, n in waits.items()})
                found.update({what: n for what, n in core.notes().items() if "may_wait" in what})
            _follow(trainer.device)
    return dict(found)


def _follow(device: torch.device) -> None:
    """Let the device do all that is queued, without a wait that counts."""
    streams = [torch.accelerator.current_stream(device), host_copies._reading_stream(device)]
    while not all(stream.query() for stream in streams):
        time.sleep(0.001)


def _waits(folder: Path, case: Case) -> dict[str, int]:
    saving = Saving(every_steps=case.save_every)
    faults = Faults(lease_seconds=30.0, copy_every=case.copy_every)
    run = new_run(folder, case.layout.workers, case.layout, saving=saving, faults=faults)
    run.plan.model_copy(update={"sync": SyncSettings.parse(case.sync)}).write(run.plan_file)
    every = run_sim_ranks(
        _counted, case.layout.workers, folder, case.changes, run=run, seconds=110.0
    )
    return dict(sum((Counter(each) for each in every), Counter()))


@pytest.mark.parametrize(
    "name",
    [each if each in QUICK else pytest.param(each, marks=pytest.mark.nightly) for each in CASES],
)
def test_the_host_never_waits_in_a_step(name: str, tmp_path: Path) -> None:
    found = _waits(tmp_path, CASES[name])
    assert found.keys() == set(CASES[name].waits), found
