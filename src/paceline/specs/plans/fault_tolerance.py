"""How a run handles failures of workers, nodes and links."""

from pydantic import Field, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.key_value_settings import with_settings


class Faults(Spec):
    """Failure detection, and the means of recovery."""

    regroup: bool = True
    """Whether the survivors regroup inside their living processes; if not, one failure ends all
    workers."""
    lease_seconds: float = Field(default=1.5, ge=0.2)
    """Time without a heartbeat after which a worker counts as lost."""
    stuck_seconds: float = Field(default=600.0, gt=0)
    """Time without a step and without compute after which a worker is interrupted; if it stays
    stuck, it is ended."""
    fewest_workers: PositiveInt = 1
    """With fewer workers, the run ends and its scheduler may start it again."""
    copy_every: int | None = Field(default=None, ge=0)
    """Steps between peer copies; 0: never. None: every 10 steps if a lost worker's state exists
    nowhere else."""
    parity_group: int = Field(default=0, ge=0)
    """Workers of different nodes that keep parity for each other instead of whole peer copies;
    0: whole copies."""
    parity: PositiveInt = 1
    """Workers of a parity group that may be lost at once."""
    check_every: int = Field(default=0, ge=0)
    """Steps between comparisons of the replicas' state; 0: never."""
    replace_slow: bool = False
    """Whether a spare replaces a straggler whose device or data is slow."""
    attempts: PositiveInt = 2
    """Starts allowed for one worker, and for all workers together."""

    def changed(self, words: str) -> "Faults":
        """Return these settings, changed by `key=value,…` from the command line."""
        return with_settings(self, words, option=f"--faults {words!r}", what="faults")
