"""The stages of a training's batch, as the workers have agreed on them; checkpoints hold them."""

from collections.abc import Callable, Mapping
from typing import Any

from paceline.comm.groups import Groups
from paceline.data.batch_stages import BatchStages
from paceline.data.batches import Batches
from paceline.parallel.data_speeds import speeds_of_data_workers
from paceline.specs import Grew, Layout, PacelineError, Placement, SyncSettings
from paceline.train.gradients.noise_growth import NoiseGrowth
from paceline.user.growing_batch import Growth, plan_of
from paceline.user.training import Training


class BatchPlan:
    """The batch of every step, as far as it is known, and the steps that are done."""

    def __init__(self, training: Training, groups: Groups, write_once: Callable[..., None]) -> None:
        self.training = training
        self.write_once = write_once
        growth = training.batch
        self.growth = (
            NoiseGrowth(growth, decides=lambda: groups.placement.rank == 0)
            if isinstance(growth, Growth)
            else None
        )
        """Decides on further stages by the gradient noise, if that is asked for."""
        self.stages: BatchStages = training.stages
        self.done = 0
        """Number of steps that are done."""

    @property
    def steps(self) -> int:
        """Number of steps of the training; it changes with a stage that the noise decides on."""
        training = self.training
        return training.steps_in(self.stages) if training.grows else training.total_steps

    def advanced(self, step: int) -> bool:
        """Note that a step is done; return whether the batch grows after it."""
        self.done = step
        growth = self.growth
        if growth is None or not growth.agreed:
            return False
        position, batch = self.stages.position(step), growth.agreed
        self.stages = self.stages.changed(position, ((position, batch),))
        growth.begin()
        self.write_once(Grew, step=step, samples=position, batch=batch, steps=self.steps)
        return True

    def divided(
        self, layout: Layout, placement: Placement, sync: SyncSettings, *, done: int
    ) -> Batches:
        """Return one worker's local batches of the steps after `done`."""
        self.done = done
        if self.growth is not None:  # a step that is repeated may have decided on more
            position = self.stages.position(done)
            self.stages = self.stages.changed(position, ((position, self.batch),))
        return Batches(
            order=self.training.sample_order(),
            batch=self.stages,
            steps=self.steps,
            workers=layout.data_workers,
            rank=layout.data_rank(placement.rank),
            speeds=speeds_of_data_workers(placement, layout),
            seed=self.training.seed,
            first_step=done,
            parts=sync.batch_parts,
        )

    @property
    def largest(self) -> int:
        """The most samples that a step may have."""
        return min(self.training.largest_batch, self.stages.epoch_samples)

    @property
    def batch(self) -> int:
        """The batch of the step after those that are done."""
        return self.stages.batch(self.done)

    def own_steps(self, done: int) -> int:
        """Return how many steps of the tuned or first batch the samples of `done` steps are."""
        training, stages = self.training, self.stages
        own = BatchStages.constant(training.own_batch, stages.epoch_samples)
        return own.steps_done(training.tuned_samples.at(stages, stages.position(done)))

    def state_dict(self) -> dict[str, Any]:
        """Return the stages so far as JSON values."""
        state = {"done": self.done, "stages": [list(each) for each in self.stages.plan]}
        return state | ({"growth": self.growth.state_dict()} if self.growth else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the stages of a state; what was trained with another batch is refused."""
        self.done = state["done"]
        known = tuple((position, batch) for position, batch in state["stages"])
        before = BatchStages(self.stages.epoch_samples, known)
        position = before.position(self.done)
        begun, planned = before.begun(position), self.training.stages
        if self.growth is not None:
            self.stages = before
            if "growth" in state:
                self.growth.load_state_dict(state["growth"])
            return
        if planned.begun(position) != begun:
            said = dict(begun)
            raise PacelineError(
                f"the run was trained with batch={said} up to sample {position:,}, but"
                f" Training(batch={self.training.batch}) is another one there, so the samples that"
                " it has seen are unknown",
                fix=f"keep the batch up to sample {position:,}; from there on it may change",
            )
        later = tuple(each for each in plan_of(self.training.batch) if each[0] >= position)
        self.stages = planned.changed(position, later)
