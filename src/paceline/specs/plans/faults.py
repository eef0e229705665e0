"""What a run does when workers, nodes and links fail."""

from pydantic import Field, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.settings import with_settings


class Faults(Spec):
    """How soon a fault is noticed, and what is kept ready for it."""

    regroup: bool = True
    """Whether those who are left go on inside their living processes; else one that fails ends the
    others."""
    lease_seconds: float = Field(default=1.5, ge=0.2)
    """A worker that nobody has heard for so long counts as lost."""
    stuck_seconds: float = Field(default=600.0, gt=0)
    """A worker that takes no step for so long, and computes nothing, is interrupted; one that even
    then stands still is ended."""
    fewest_workers: PositiveInt = 1
    """With fewer the run ends, and its scheduler may start it again."""
    copy_every: int | None = Field(default=None, ge=0)
    """Steps between copies of the state to the memory of peers; never with 0. Where unset: every 10
    where a lost worker's state is nowhere else."""
    parity_group: int = Field(default=0, ge=0)
    """Workers of different nodes that keep parity for each other in place of whole copies; copies
    with 0."""
    parity: PositiveInt = 1
    """How many of such a group may be lost at a time."""
    check_every: int = Field(default=0, ge=0)
    """Steps between comparisons of what replicas hold; never with 0."""
    replace_slow: bool = False
    """Whether a worker whose device or data is slow makes room for another that stands by."""
    attempts: PositiveInt = 2
    """A worker that was lost so often is not started again; nor are all of them together."""

    def changed(self, words: str) -> "Faults":
        """These, with what `key=value,…` says, as the command line has it."""
        return with_settings(self, words, option=f"--faults {words!r}", what="faults")
