"""Gradients of the mean over a global batch, from one worker's share of it."""

from dataclasses import dataclass

import torch

from paceline.comm.groups import Groups
from paceline.data.batches import Batches
from paceline.data.loader import Batch
from paceline.parallel.arranged import Arranged
from paceline.parallel.step.loss_scaling import LossScaling
from paceline.parallel.step.loss_weights import Weights
from paceline.specs import Layout
from paceline.sync.mode import Mode
from paceline.train.gradients.learned import Learned
from paceline.train.gradients.random_draws import draw_anew
from paceline.user.training import Training


@dataclass(frozen=True)
class Learning:
    """A share that is learned from as a whole, in as many micro-batches as it takes."""

    training: Training
    layout: Layout
    groups: Groups
    mode: Mode
    scaling: LossScaling
    batches: Batches

    def learn(self, arranged: Arranged, batch: Batch, step: int) -> Learned:
        """Leave the gradients of the mean over the global batch in the parameters."""
        # Slices of a layer must draw the same.
        whose = self.groups.placement.rank // self.layout.tensor
        draw_anew(self.groups.device, self.training.seed, step, whose)
        parts = arranged.parts(batch, self.batches.largest_share(batch.global_samples))
        weights = Weights(
            parts,
            self.training.weight,
            self.layout,
            self.groups,
            replicas_differ=self.mode.bound.sync.replicas_differ,
        )

        def minimise(loss: torch.Tensor, number: int) -> torch.Tensor:
            # Gradients are averaged over data workers, so that a loss scaled by its share of the
            # weight x workers gives the mean over the batch, however unequal the shares are. So it
            # does where weights are averaged instead, and a plain step is proportional to these.
            share = weights.each[number] * self.layout.data_workers / weights.total()
            return self.scaling.scaled(loss * share)

        losses = arranged.learn(parts, minimise, self.mode.last_backward)
        mean = weights.mean(losses)
        return Learned(mean, mean, weights.mine if losses else 0.0)
