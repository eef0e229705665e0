"""Updates queued behind a collective that an abort cuts off do not happen, and the host goes back.

Before, the host waited for the collectives of every step, unless the run had peer copies: the only
copy of the weights would have been updated with partial sums.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from ranks import run_ranks

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_state_is_that_before_the_first_skipped_update(
    tmp_path: Path, optimizer: str, precision: str
) -> None:
    run_ranks(_compare, 1, tmp_path, optimizer, precision)


def test_an_update_that_communicates_itself_spoils_the_state(tmp_path: Path) -> None:
    run_ranks(_communicate_inside, 1, tmp_path)


class _Steps:
    """The updates of a small training on a simulated device, as `Stepper` takes them."""

    def __init__(self, optimizer: str, precision: Any) -> None:
        import paceline_simulated.device  # noqa: F401
        from paceline.comm.connections import Connections
        from paceline.comm.health import GroupHealth
        from paceline.comm.torch_internals import fuse
        from paceline.data.streams import Cursor
        from paceline.parallel.step.loss_scaling import LossScaling
        from paceline.specs import Layout
        from paceline.train.state.kept_objects import KeptObjects
        from paceline.train.state.queued_updates import QueuedUpdates
        from paceline.train.state.updates import Update
        from paceline.train.state.weight_average import WeightAverage

        self.device, self.health = torch.device("sim", 0), GroupHealth(Connections())
        groups: Any = SimpleNamespace(
            device=self.device,
            health=self.health,
            placement=SimpleNamespace(workers=2),
            sum=None,
        )
        torch.manual_seed(1)
        self.model = nn.Linear(3, 2).to(self.device)
        made = OPTIMIZERS[optimizer](self.model.parameters())
        fuse(made)
        schedule = torch.optim.lr_scheduler.ExponentialLR(made, 0.5)
        scaling = LossScaling(Layout(precision=precision), groups)
        self.update = Update("", made, schedule, scaling, None)
        self.average = WeightAverage(0.9, self.model)  # type: ignore[arg-type]
        self.cursor = Cursor()
        self.queued = QueuedUpdates(
            *([self.update], groups, self.cursor, self.average, KeptObjects()),
            regroups=True,
            has_other_copy=False,
            can_repeat=True,
        )
        self.done = 0

    def step(self, *, inside: Any = None) -> None:
        """Take a step; `inside`: what its update does after it has passed the gate."""
        loss = self.model(torch.full((4, 3), 0.1 * self.done + 0.1, device=self.device)).sum()
        self.update.scaling.scaled(loss).backward()  # type: ignore[no-untyped-call]
        self.update.scaling.unscale(self.update.optimizer)
        self.queued.begin(self.update, self.done)
        if inside is not None:
            inside()
        self.update.scaling.step(self.update.optimizer, self.queued.skip(None))
        self.update.optimizer.zero_grad()
        assert self.update.schedule is not None
        self.update.schedule.step()
        self.queued.end()
        self.done += 1
        self.cursor.place = {"step": self.done}
        self.average.update(unless=self.queued.gate)

    def state(self) -> dict[str, Any]:
        """Return all that a training continues with."""
        optimizer, schedule = self.update.optimizer, self.update.schedule
        assert schedule is not None
        averages = [self.average.of(each) for each in self.model.parameters()]
        return {
            "weights": [each.tolist() for each in self.model.parameters()],
            "averages": [each.tolist() for each in averages if each is not None],
            "averaged": self.average.updates,
            "optimizer": repr(torch.utils._pytree.tree_map(_plain, optimizer.state_dict())),
            "schedule": schedule.state_dict(),
            "scaling": self.update.scaling.state(),
            "place": self.cursor.place,
        }


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _held(device: torch.device) -> threading.Event:
    """Hold the device's stream, as a collective does that waits for a lost peer."""
    from paceline_simulated import core

    release = threading.Event()
    core.enqueue(device.index, lambda: release.wait(30))
    return release


def _compare(optimizer: str, precision: str) -> None:
    for before in (0, 2):
        undisturbed, aborted = _Steps(optimizer, precision), _Steps(optimizer, precision)
        for steps in (undisturbed, aborted):
            for _ in range(before):
                steps.step()
        release = _held(aborted.device)
        aborted.step()
        aborted.step()
        aborted.health.begin_abort()
        release.set()
        assert aborted.queued.settled() == (before, True)
        if before:  # the first step only copies the weights
            assert aborted.state() == undisturbed.state()
        aborted.health.begin_generation()
        aborted.health.connections.shut_down = False
        aborted.done = before
        for steps in (undisturbed, aborted):
            for _ in range(3):
                steps.step()
        assert aborted.state() == undisturbed.state()


def _communicate_inside() -> None:
    steps = _Steps("adamw", "fp32")
    steps.step()
    torch.accelerator.synchronize(steps.device)
    release: list[threading.Event] = []
    steps.step(inside=lambda: release.append(_held(steps.device)))
    steps.health.begin_abort()
    release[0].set()
    assert steps.queued.settled() == (1, False)
