"""The stopwatch in every job. Each worker writes one line of JSON when it ends."""

import json
import os
import time
from pathlib import Path

WARM_UP_STEPS = 10
LAST_STEPS = 10


class Meter:
    """Notes when each step ended, and its loss."""

    def __init__(self) -> None:
        self._ends: list[float] = []
        self._losses: list[float] = []

    def step(self, loss: float) -> None:
        """A step of this worker has ended, with this mean loss over its share."""
        self._losses.append(loss)
        self._ends.append(time.time())

    def end(self) -> None:
        """Write the line: into the folder that `run.py` names, else to the standard output."""
        last = self._losses[-LAST_STEPS:]
        line = json.dumps(
            {
                "first_step_ended": self._ends[0],
                "steps": len(self._ends) - WARM_UP_STEPS,
                "seconds": self._ends[-1] - self._ends[WARM_UP_STEPS - 1],
                "final_loss": sum(last) / len(last),
                "peak_bytes": _peak_bytes(),
            }
        )
        # Launchers mix and mark what workers print.
        if folder := os.environ.get("FRAMEWORKS_OUTPUT"):
            Path(folder, f"{os.getpid()}.json").write_text(line)
        else:
            print(line)


def _peak_bytes() -> int:
    """The most resident memory of this process; what `getrusage` says may be its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return 1024 * int(peak)
