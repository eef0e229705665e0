"""`auto`: measure steps and links, and choose the mode that reaches a loss soonest."""

from typing import ClassVar, Literal

from paceline.specs import default_sync
from paceline.specs.plans.traffic import ReplicatedPart, Traffic
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

    def traffic(self, part: ReplicatedPart) -> Traffic:
        """Return the communication of a plain all-reduce, because the choice is not known."""
        return default_sync().traffic(part)


MODE = Auto()
