"""The supervisor never uses a device again that failed in its run.

There was no such test: the run on a simulated device ends before its workers start again.
"""

import io
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from paceline.jobs.run_lease import lease_held
from paceline.launch import supervisor
from paceline.specs import DEVICE_FAILED_EXIT_CODE, TOO_FEW_EXIT_CODE
from ranks import new_run


class _Worker:
    """A process that ends when a test says so."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.output = io.BytesIO()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            self.returncode = -number


class _Workers:
    """A fork server without processes."""

    def __init__(self, *_: Any) -> None:
        self.started: list[_Worker] = []

    def start(self, environment: Mapping[str, str]) -> _Worker:
        self.started.append(_Worker(int(environment["PACELINE_DEVICE"])))
        return self.started[-1]

    def end(self) -> None:
        """Nothing runs."""


@pytest.mark.parametrize("again", [-signal.SIGKILL, TOO_FEW_EXIT_CODE])
def test_a_sick_device_is_never_used_again(
    again: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker is killed and restarted afterwards, or all are."""
    workers = _Workers()
    monkeypatch.setattr(supervisor, "ForkServer", lambda *_: workers)
    run = new_run(tmp_path, 2)
    run.write_job(run.job.model_copy(update={"spares": 1}))
    with lease_held(run) as lease:
        launch = supervisor.LocalLaunch(run, lease)
        (run.rendezvous / "leader-0.json").touch()
        assert [each.device for each in workers.started] == [0, 1, 2]
        workers.started[1].returncode = DEVICE_FAILED_EXIT_CODE
        assert launch.poll() is None
        assert len(workers.started) == 3
        workers.started[0].returncode = again
        assert launch.poll() is None
        restarted = [each.device for each in workers.started[3:]]
        assert restarted
        assert 1 not in restarted
        for each in workers.started:
            each.returncode = each.returncode or 0
        assert launch.poll() == 0
