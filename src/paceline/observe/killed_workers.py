"""Workers that died of a signal, and could not say so themselves."""

import signal
import time

from paceline.observe.event_writer import EventWriter
from paceline.specs import Failed, Run


def tell_killed(run: Run, node: str, generation: int, rank: int, code: int) -> None:
    """Write into the run's events by which signal a worker was killed."""
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
    """The exit code that a shell gives for what Python tells of a process."""
    return 128 - code if code < 0 else code
