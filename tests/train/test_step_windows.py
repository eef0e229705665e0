"""Workers that are lost while losses are summed over them."""

import itertools
import math

import pytest
import torch
import torch.distributed as dist

from paceline.comm.groups import Groups
from paceline.data.batches import Batches
from paceline.data.order import Sequential
from paceline.specs import Placement
from paceline.train.monitor.telemetry import Telemetry


class _Interrupted(dist.Work):
    def wait(self, timeout: object = None) -> bool:
        raise RuntimeError("Connection reset by peer")


class _Breaking(Groups):
    """A worker alone, whose sum over the others breaks as often as it is told."""

    def __init__(self, breaks: int) -> None:
        super().__init__(Placement(), torch.device("cpu"), None)
        self._breaks = itertools.chain([True] * breaks, itertools.repeat(False))

    def sum_later(self, values: torch.Tensor) -> "dist.Work | None":
        return _Interrupted() if next(self._breaks) else None


@pytest.mark.parametrize("waits", [True, False])
def test_what_was_being_summed_is_reported_by_those_who_are_left(waits: bool) -> None:
    batches = Batches(Sequential(8), batch=4, steps=2, workers=1, rank=0)
    telemetry = Telemetry(_Breaking(1), None, lambda: False, waits=waits)
    done = 1 if waits else 2
    for step in range(1, done):
        telemetry.stepped(torch.tensor(step - 0.5), 1.0, 4, 4)
    with pytest.raises(RuntimeError, match="reset"):
        telemetry.stepped(torch.tensor(done - 0.5), 1.0, 4, 4)
    telemetry.regrouped(telemetry.reported(), batches, done)
    telemetry.report_all()
    assert telemetry.progress.steps == done
    assert telemetry.progress.loss == done - 0.5


@pytest.mark.parametrize("known", [0, 1])
def test_a_step_whose_loss_nobody_left_knows_is_no_failure(known: int) -> None:
    """The one that was ahead gave its state to the others, and was lost before it told the loss."""
    batches = Batches(Sequential(8), batch=4, steps=2, workers=1, rank=0)
    telemetry = Telemetry(_Breaking(0), None, lambda: False, waits=True)
    for step in range(known):
        telemetry.stepped(torch.tensor(step + 0.5), 1.0, 4, 4)
    telemetry.regrouped(telemetry.reported(), batches, done=known + 1)
    telemetry.report_all()
    assert telemetry.progress.steps == known + 1
    assert telemetry.progress.loss == pytest.approx(known - 0.5 if known else math.nan, nan_ok=True)
