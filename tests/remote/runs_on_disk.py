"""The state of runs in a bucket, read from the disk of the S3 server."""

import time
from dataclasses import dataclass
from pathlib import Path

from paceline.remote.places import run_to_read
from paceline.report import RunReader
from paceline.report.reading.run_state import RunState


@dataclass
class RunsOnDisk:
    """Runs whose S3 server keeps its buckets in `folder`/s3."""

    folder: Path

    def state(self, url: str) -> RunState:
        """Return the run's state."""
        with run_to_read(url.replace("s3://", f"file://{self.folder}/s3/")) as run:
            return RunReader(run).refresh()

    def until(self, url: str, *, regroups: int, step: int, seconds: float) -> RunState:
        """Wait until the run has regrouped so often and has taken that step."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            state = self.state(url)
            if len(state.regroups) >= regroups and state.step and state.step[-1] >= step:
                return state
            time.sleep(0.5)
        raise AssertionError(f"{state.status} at {state.step[-1:]} after {state.regroups}")
