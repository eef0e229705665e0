"""Write when a protection of a run goes off, and when it works again."""

import time

from paceline.observe.event_writer import EventWriter
from paceline.specs import Degraded, Protection


class ProtectionState:
    """Whether one protection works, for a worker or a node: writes one event per change.

    In a new generation, ranks change, and readers count an earlier worker's protection as over: a
    protection that is still off is written again.
    """

    def __init__(self, writer: EventWriter, protection: Protection) -> None:
        self._writer, self._protection = writer, protection
        self._off: Degraded | None = None

    def failed(
        self,
        why: str,
        *,
        node: str,
        generation: int,
        rank: int | None = None,
        step: int | None = None,
    ) -> None:
        """Record a failure."""
        if self._off is not None and self._off.generation == generation:
            return
        self._off = Degraded(
            time=time.time(),
            node=node,
            generation=generation,
            protection=self._protection,
            rank=rank,
            step=step,
            why=why,
        )
        self._writer.write(self._off)

    def worked(self, *, step: int | None = None) -> None:
        """Record that it works."""
        off, self._off = self._off, None
        if off is not None:
            self._writer.write(off.restored(time.time(), step=step))
