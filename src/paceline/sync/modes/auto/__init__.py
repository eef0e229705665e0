"""`auto`: measure steps and links, and choose the mode that reaches a loss soonest."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from paceline.specs import default_sync
from paceline.specs.plans.traffic import BUCKET_BYTES, Traffic
from paceline.sync.mode import SyncMode

if TYPE_CHECKING:
    from paceline.sync.hook import Bound, Hook


class Auto(SyncMode):
    """The mode is chosen during the run, among the candidates of all modes."""

    mode: Literal["auto"] = "auto"

    @property
    def words(self) -> str:
        """What replicas do."""
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
        """Return the communication of a plain all-reduce: the choice is not known."""
        return default_sync().traffic(workers, parameters, bucket_bytes=bucket_bytes, shapes=shapes)

    def hook(self, bound: "Bound") -> "Hook":
        """Return what measures, chooses and trains; one replica has nothing to choose."""
        from paceline.sync.hook import EngineHook
        from paceline.sync.modes.auto.hook import AutoHook

        return EngineHook(self, bound) if bound.transport.workers == 1 else AutoHook(self, bound)


MODE = Auto()
