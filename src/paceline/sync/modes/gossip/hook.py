"""A mean of the weights with a few peers: decentralized training.

Without overlap, a worker mixes its weights with its peers' after their update, as in stochastic
gradient push (arXiv 1811.10792): θᵢ(t+1) = Σⱼ Wᵢⱼ (θⱼ(t) − η∇f(θⱼ(t))). With overlap=1, it mixes
the weights from before the update, while each worker computes its gradient (arXiv 1705.09056):
θᵢ(t+1) = Σⱼ Wᵢⱼ θⱼ(t) − η∇f(θᵢ(t)). That overlaps the communication, at a price: differences die
out only if η times the curvature is below 1 + the least eigenvalue of W (1 for two workers, 2/3 on
an even ring), not below 2 as without overlap, so a smaller learning rate may be needed.

W is doubly stochastic (`graphs.py`), so there is no push-sum weight to divide by, and nothing is in
flight between two steps: a checkpoint needs only the weights.
"""

from concurrent.futures import Future

import torch

from paceline.sync.hook import Hook, HookContext
from paceline.sync.modes.gossip import Gossip
from paceline.sync.modes.gossip.graphs import peers


class GossipHook(Hook):
    """Mixes a replica's weights with those of its peers in the step."""

    settings: Gossip

    def __init__(self, settings: Gossip, context: HookContext) -> None:
        super().__init__(settings, context)
        self._bucket = context.bucket()
        self._in_flight: tuple[torch.Tensor, Future[torch.Tensor]] | None = None
        """The weights when the round began, and its result."""

    def before_forward(self, step: int) -> None:
        """Start a round, if it overlaps."""
        if self.settings.overlap and step % self.settings.every == 0:
            self._begin(step)

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Mix; with overlap, the replica keeps its updates made during the round."""
        if step % self.settings.every:
            return
        if not self.settings.overlap:
            self._begin(step)
        assert self._in_flight is not None
        launched, mixing = self._in_flight
        mixed = self.context.lane.finish(mixing)
        if self.settings.overlap:
            mixed += self._bucket.weights().sub_(launched)
        self._bucket.load(mixed)
        self._in_flight = None

    def consensus(self) -> list[torch.Tensor]:
        """Return the mean over the replicas, which mixing does not change."""
        average = self.context.transport.average
        weights = self._bucket.weights()
        mean = self.context.lane.finish(self.context.lane.begin(lambda: average(weights)))
        return self.context.in_order([(self._bucket, mean)])

    def conclude(self) -> None:
        """Load the mean."""
        self.context.load(self.consensus())

    def _begin(self, step: int) -> None:
        own = self._bucket.weights()
        # Counted in rounds, so that a changing graph goes through all of its forms.
        round_ = step // self.settings.every
        self._in_flight = own, self.context.lane.begin(lambda: self._mix(own, round_))

    def _mix(self, own: torch.Tensor, round_: int) -> torch.Tensor:
        transport = self.context.transport
        sending = peers(self.settings.graph, transport.workers, round_)
        received = {
            source: torch.empty_like(own)
            for source, receivers in enumerate(sending)
            if transport.rank in receivers
        }
        transport.swap(dict.fromkeys(sending[transport.rank], own), received)
        total = own.clone()
        for theirs in received.values():
            total += theirs
        return total.div_(1 + len(received))
