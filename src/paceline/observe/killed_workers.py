"""Record workers that a signal killed, which cannot report it themselves."""

import signal
import time

from paceline.observe.event_writer import EventWriter
from paceline.specs import Failed, Run


def tell_killed(run: Run, node: str, generation: int, rank: int, code: int) -> None:
    """Write into the run's events which signal killed a worker."""
    EventWriter(run.events, node).write(
        Failed(
            time=time.time(),
            node=node,
            generation=generation,
            rank=rank,
            message=f"killed by {signal.Signals(-code).name}",
        )
    )


def shell_code(code: int) -> int:
    """Convert Python's exit code of a process to a shell's."""
    return 128 - code if code < 0 else code
