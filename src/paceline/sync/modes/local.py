"""`local`: local steps, then the mean of the weights (local SGD, FedAvg)."""

from collections.abc import Iterator
from typing import Literal

from paceline.sync.modes._local_steps import CANDIDATE_STEPS, LocalSteps


class Local(LocalSteps):
    """Replicas take local steps and average their weights."""

    mode: Literal["local"] = "local"

    @property
    def title(self) -> str:
        """The name of this mode in tables."""
        return f"local steps{self._in_compression}"

    @property
    def words(self) -> str:
        """A phrase that describes the mode."""
        return f"averaging their weights{self._rhythm}"

    def candidates(self) -> Iterator["Local"]:
        """Yield rounds that overlap an eighth of the steps, so that results are little older."""
        for every in CANDIDATE_STEPS:
            yield Local(every=every, overlap=every // 8)


MODE = Local()
