"""Telemetry, checkpoints and peer copies never take what an aborted collective left.

The abort ends the kernel that waits for a lost peer and raises nothing. What the host reads after
it is void, and it must not be written, saved or copied.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from checkpoints.saved import Checkpoints
from paceline.checkpoints.manifest import Manifest, Scalar
from paceline.checkpoints.saver import Snapshot
from paceline.checkpoints.tensor_extent import Extent
from paceline.comm.group_errors import GroupAborted
from paceline.comm.groups import Groups
from paceline.observe.event_writer import EventWriter
from paceline.specs import Placement
from paceline.train.monitor.telemetry import Telemetry
from peers.crew import Crew
from simulated_devices import on_sim

_PARTIAL = 1e6


class _Aborted:
    """A loss and a weight behind a collective that is aborted at the end of `aborting`."""

    def __init__(self, folder: Path) -> None:
        from paceline_simulated import core

        device = torch.device("sim", 0)
        self.groups = Groups(Placement(node="n"), device, None)
        self.telemetry = Telemetry(self.groups, EventWriter(folder, "n"))
        self.weight = torch.zeros(4, device=device)
        self._released = threading.Event()
        core.enqueue(0, lambda: self._released.wait(30))
        self.weight += _PARTIAL
        self.telemetry.stepped(self.weight[0], 1.0, 4, 4)

    def snapshot(self) -> Snapshot:
        """The state after the step, as it is saved and copied."""
        progress, check = self.telemetry.counted()

        def on_device() -> dict[str, Scalar]:
            check()
            return {}

        pieces = list(Extent.everything((4,)).pieces("weight", self.weight))
        head = Manifest.head(progress.steps, samples=progress.samples, seconds=1.0)
        return Snapshot(head, {"model": pieces}, on_device=on_device)

    def abort(self) -> None:
        """Abort as the agent does: first nothing may begin, then the kernels end."""
        self.groups.health.begin_abort()
        self._released.set()
        torch.accelerator.synchronize()
        assert self.weight[0].item() == _PARTIAL


@contextmanager
def _aborted() -> Iterator[tuple[_Aborted, Path]]:
    with TemporaryDirectory() as folder:
        (Path(folder) / "events").mkdir()
        yield _Aborted(Path(folder) / "events"), Path(folder)


@on_sim()
def test_telemetry() -> None:
    with _aborted() as (step, folder):
        step.abort()
        with pytest.raises(GroupAborted):
            step.telemetry.report_all()
        written = [file.read_text() for file in (folder / "events").iterdir()]
        kinds = [json.loads(line)["kind"] for text in written for line in text.splitlines()]
        assert "steps" not in kinds


@on_sim()
def test_a_checkpoint() -> None:
    with _aborted() as (step, folder):
        checkpoints = Checkpoints(folder / "checkpoints")
        checkpoints.saver.save(step.snapshot())
        step.abort()
        checkpoints.saver.wait()
        assert checkpoints.storage.steps() == []
        assert list(checkpoints.told.flaws) == [1]


@on_sim()
def test_a_state_whose_losses_were_read_before() -> None:
    """No window of losses is left that would be looked at."""
    with _aborted() as (step, _):
        step.telemetry._summing.clear()
        _, check = step.telemetry.counted()
        step.abort()
        with pytest.raises(GroupAborted):
            check()


@on_sim()
def test_a_peer_copy() -> None:
    with _aborted() as (step, _):
        crew = Crew(["a"])
        (memory,) = crew.members.values()
        memory.copy(step.snapshot())
        step.abort()
        memory.wait()
        assert memory.complete_step is None
        assert not memory.inventory().model_dump().get("own")
        memory.close()
