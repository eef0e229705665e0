"""`gossip`: a mean of the weights with a few peers, in which no worker waits for all."""

import math
from typing import ClassVar, Literal

from pydantic import Field

from paceline.specs import Layout, PacelineError
from paceline.specs.plans.traffic import NUMBER_BYTES, ReplicatedPart, Traffic, copied, transfer
from paceline.sync.mode import SyncMode
from paceline.sync.modes._local_steps import drift

EXTRA_SAMPLES = 0.03
"""Additional samples per doubling of the steps between two rounds: assumed, as for local steps."""


class Gossip(SyncMode):
    """Each replica averages its weights with those of its peers."""

    hook_path: ClassVar[str] = "paceline.sync.modes.gossip.hook:GossipHook"

    mode: Literal["gossip"] = "gossip"
    every: int = Field(default=1, ge=1)
    """Steps between two rounds of communication."""
    overlap: int = Field(default=0, ge=0)
    """1 to communicate during forward and backward, 0 to communicate after the update."""
    graph: Literal["ring", "exponential", "random"] = "exponential"
    """The peers of each replica."""

    @property
    def words(self) -> str:
        """A phrase that describes the mode."""
        return f"averaging their weights with a few peers every {self.every} steps"

    @property
    def _peers(self) -> int:
        return 2 if self.graph == "ring" else 1

    def check(self, layout: Layout) -> None:
        """Reject settings that conflict with each other or with a layout."""
        if self.overlap > 1:
            raise PacelineError(
                f"overlap={self.overlap} was given together with --sync gossip, in which a round"
                " ends with its step",
                fix="use overlap=1 to communicate during forward and backward, or 0 to do so after",
            )
        super().check(layout)

    def traffic(self, part: ReplicatedPart) -> Traffic:
        """Return the communication of a round: the weights to each peer."""
        workers, parameters = part.workers, part.parameters
        peers = min(self._peers, workers - 1)
        sent = transfer("send", 2, NUMBER_BYTES * parameters, peers)
        return Traffic((sent,), workers, 1 / self.every, self.overlap, copied(parameters, 5.0))

    def state_bytes(self, workers: int) -> float:
        """Return the bytes of peers' weights; without overlap, gradients are freed before."""
        if workers == 1:
            return 0
        return NUMBER_BYTES * (2 + min(self._peers, workers - 1)) * self.overlap

    def extra_samples(self, workers: int) -> float:
        """Return the samples to the same loss, relative to a plain all-reduce: assumed."""
        if workers == 1:
            return 1.0
        return 1.0 + EXTRA_SAMPLES * math.log2(1 + self.every + self.overlap) * drift(workers)


MODE = Gossip()
