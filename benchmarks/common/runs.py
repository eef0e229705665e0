"""A training by `paceline run`, timed from its events."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.processes import start, wait_for_all
from paceline.specs import Run, Steps, event_adapter

WARM_UP_STEPS = 10
LIMIT_SECONDS = 300


@dataclass(frozen=True)
class Measured:
    """Start-up and speed of one run."""

    startup_seconds: float
    """From the command to the end of the first step."""
    steps_per_second: float
    """After the warm-up."""

    @classmethod
    def of(cls, begin: float, first_step: float, seconds: Sequence[float]) -> "Measured":
        """Of a run that began and ended its first step at these times, with these steps."""
        steady = seconds[WARM_UP_STEPS:]
        return cls(first_step - begin, len(steady) / sum(steady))


def paceline_run(
    words: Sequence[object], folder: Path, variables: Mapping[str, object] = {}
) -> Measured:
    """Run `paceline run WORDS` with its runs below `folder`."""
    command = [sys.executable, "-m", "paceline", "run", *words, "--quiet"]
    begin, log = time.time(), folder / "stderr"
    process = start([*command, "--runs", folder / "runs"], log, variables)
    wait_for_all([process], log, LIMIT_SECONDS)
    (path,) = (folder / "runs").iterdir()
    events = [
        event_adapter.validate_json(line)
        for file in Run(path).events.iterdir()
        for line in file.read_text().splitlines()
    ]
    steps = [event for event in events if isinstance(event, Steps)]
    return Measured.of(begin, steps[0].time, [each for event in steps for each in event.seconds])
