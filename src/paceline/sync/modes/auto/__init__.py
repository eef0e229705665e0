"""`auto`: measure steps and links, and choose the mode that reaches a loss soonest."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from paceline.specs import default_sync
from paceline.specs.plans.traffic import BUCKET_BYTES, Traffic
from paceline.sync.mode import SyncMode


class Auto(SyncMode):
    """The mode is chosen during the run from the candidates of all modes."""

    hook_path: ClassVar[str] = "paceline.sync.modes.auto.hook:auto_hook"

    mode: Literal["auto"] = "auto"

    @property
    def words(self) -> str:
        """A phrase that describes the mode."""
        return "the mode that measurements choose"

    @property
    def undecided(self) -> bool:
        """The planner chooses a mode in place of this one."""
        return True

    def traffic(
        self,
        workers: int,
        parameters: int,
        *,
        bucket_bytes: int = BUCKET_BYTES,
        shapes: Sequence[tuple[int, ...]] = (),
    ) -> Traffic:
        """Return the communication of a plain all-reduce, because the choice is not known."""
        return default_sync().traffic(workers, parameters, bucket_bytes=bucket_bytes, shapes=shapes)


MODE = Auto()
