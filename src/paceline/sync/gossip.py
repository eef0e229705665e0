"""A mean with a few others: decentralised training, in which nobody waits for all.

Without overlap a worker mixes what it and its peers have after their update, as in stochastic
gradient push (arXiv 1811.10792): θᵢ(t+1) = Σⱼ Wᵢⱼ (θⱼ(t) − η∇f(θⱼ(t))). With overlap=1 it mixes
what they had before it, while each computes its gradient (arXiv 1705.09056): θᵢ(t+1) = Σⱼ Wᵢⱼ θⱼ(t)
− η∇f(θᵢ(t)). That hides the exchange, at a price: differences die out only where η times the
curvature is below 1 + the least eigenvalue of W (1 for two workers, 2/3 on an even ring), not below
2 as without overlap, so that a smaller learning rate may be needed.

W is doubly stochastic (`graphs.py`), so there is no push-sum weight to divide by, and nothing is on
its way between two steps: the weights are all that a checkpoint needs.
"""

from concurrent.futures import Future

import torch

from paceline.comm.torch_internals import foreach_copy_
from paceline.sync.flat import Row, in_order
from paceline.sync.graphs import peers
from paceline.sync.mode import Bound, Mode


class Gossip(Mode):
    """Replicas of which each mixes its weights with those of its peers of the step."""

    def __init__(self, bound: Bound) -> None:
        super().__init__(bound)
        self._row = Row(tuple(bound.learning))
        self._under_way: tuple[torch.Tensor, Future[torch.Tensor]] | None = None
        """The weights as they were when the exchange began, and what it will give."""

    def before_forward(self, step: int) -> None:
        """With overlap, the exchange begins."""
        if self.bound.sync.overlap and step % self.bound.sync.every == 0:
            self._begin(step)

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Mix; what was learned while the exchange was under way is kept."""
        if step % self.bound.sync.every:
            return
        if not self.bound.sync.overlap:
            self._begin(step)
        assert self._under_way is not None
        launched, mixing = self._under_way
        mixed = self.bound.lane.finish(mixing)
        if self.bound.sync.overlap:
            mixed += self._row.weights().sub_(launched)
        foreach_copy_(self._row.locals, self._row.views(mixed))
        self._under_way = None

    def consensus(self) -> list[torch.Tensor]:
        """The mean over the replicas, which mixing leaves as it is."""
        average = self.bound.transport.average
        weights = self._row.weights()
        mean = self.bound.lane.finish(self.bound.lane.begin(lambda: average(weights)))
        return in_order(self.bound.held, [(self._row, mean)])

    @torch.no_grad()
    def conclude(self) -> None:
        """Take the mean."""
        foreach_copy_([each.local for each in self.bound.held], self.consensus())

    def _begin(self, step: int) -> None:
        own = self._row.weights()
        # Counted in exchanges, so that a graph that changes goes through all of its forms.
        exchange = step // self.bound.sync.every
        self._under_way = own, self.bound.lane.begin(lambda: self._mix(own, exchange))

    def _mix(self, own: torch.Tensor, exchange: int) -> torch.Tensor:
        transport = self.bound.transport
        sending = peers(self.bound.sync.graph, transport.workers, exchange)
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
