"""Pulled towards a common centre: elastic averaging SGD (arXiv 1412.6651). A reference.

Every `every` steps, from what a worker and the centre were before the step, and α = `pull`:
θᵢ(t+1) = θᵢ(t) − η∇L(θᵢ(t)) − α(θᵢ(t) − θ̃(t)) and θ̃(t+1) = θ̃(t) + α Σᵢ (θᵢ(t) − θ̃(t)). Right
against closed forms; no claim of speed. There is no server: every worker has the centre, and they
come to the same one, since all add the same sum.
"""

from concurrent.futures import Future

import torch

from paceline.comm.torch_internals import foreach_copy_, foreach_sub_
from paceline.sync.flat import Row, in_order
from paceline.sync.mode import Bound, Mode


class ElasticAveraging(Mode):
    """Replicas that are tied to a centre, and it to them. The centre is what is trained."""

    def __init__(self, bound: Bound) -> None:
        super().__init__(bound)
        self._row = Row(tuple(bound.learning))
        self._centre = self._row.weights()
        self._under_way: tuple[torch.Tensor, Future[torch.Tensor]] | None = None
        """How far this worker is pulled, and how far all are on average."""

    def before_forward(self, step: int) -> None:
        """The sum of all pulls is on its way while the worker computes its gradient."""
        if step % self.bound.sync.every == 0:
            pull = self._row.weights().sub_(self._centre).mul_(self.bound.sync.pull)
            mean = pull.clone()
            self._under_way = (
                pull,
                self.bound.lane.begin(lambda: self.bound.transport.average(mean)),
            )

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Worker and centre move towards each other."""
        del step
        if self._under_way is None:
            return
        pull, arriving = self._under_way
        mean = self.bound.lane.finish(arriving)
        foreach_sub_(self._row.locals, self._row.views(pull))
        self._centre.add_(mean, alpha=self.bound.transport.workers)
        self._under_way = None

    def consensus(self) -> list[torch.Tensor]:
        """The centre; what does not learn is the same on all."""
        return in_order(self.bound.held, [(self._row, self._centre)])

    @torch.no_grad()
    def conclude(self) -> None:
        """Take the centre."""
        foreach_copy_([each.local for each in self.bound.held], self.consensus())
