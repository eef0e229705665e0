"""Overrides of a training in a study or a probe: steps, batch, seed, learning rate, noise."""

from dataclasses import replace
from typing import Any

import torch

from paceline.data.order import Reshuffled
from paceline.specs import Job, PacelineError, SavedStep
from paceline.train.state.tuned_batch import Compressed, evenly
from paceline.user.training import Training


def as_studied(training: Training, job: Job) -> Training:
    """Return the training with the steps, global batch, seed and learning rate of the job.

    With equal samples, a larger batch takes fewer steps, and the schedule, written for the
    training's original steps, advances faster."""
    if job.starts_from is not None:
        return _continued(training, job, job.starts_from)
    if job.seed_plus:
        training = replace(training, seed=training.seed + job.seed_plus)
    if job.noise_every:
        training = replace(training, noise_every=job.noise_every)
    own = replace(training, steps=job.steps, epochs=None) if job.steps else training
    if job.batch_times == 1:
        return own
    _check_batch(own)
    batch = job.batch_times * own.first_batch
    if job.scale_rate:
        # By the rules of `learning/rules.py`, which count steps in the batch that was tuned.
        times = 1 if job.equal_samples else job.batch_times
        large = replace(own, batch=batch, tuned_at=own.first_batch)
        return large if times == 1 else replace(large, steps=times * own.total_steps, epochs=None)
    large = replace(own, batch=batch)
    if job.equal_samples:
        large = replace(large, steps=own.steps_with_equal_samples(batch), epochs=None)
        return _hastened(large, own)
    return large


def _check_batch(own: Training) -> None:
    """Refuse a training whose batch has rules or grows already."""
    if own.tuned_at is not None:
        raise PacelineError(
            f"a study of larger batches was asked for, but Training(tuned_at={own.tuned_at}) has"
            " rules for the batch already",
            fix="leave tuned_at=… out of the training that is studied, and give its own batch",
        )
    if own.grows:
        raise PacelineError(
            "a study of larger batches was asked for, but Training(batch=…) grows",
            fix=f"give the training that is studied one batch, such as batch={own.first_batch}",
        )


def _continued(training: Training, job: Job, before: SavedStep) -> Training:
    """Return the training with the job's batch, seed and learning rate after a checkpoint.

    A larger batch is a stage from there on, so that schedules, samples and rules go by those of a
    batch that grows. What came before is as it was."""
    _check_batch(training)
    if not training.has_index:
        raise PacelineError(
            "a study from a checkpoint was asked for, but the samples have no index: neither seed"
            " nor batch can change what comes after it",
            fix="leave --from out, or give a map-style dataset",
        )
    own, batch = training, training.first_batch
    if job.steps:
        own = replace(training, steps=before.step + job.steps, epochs=None)
    if own.total_steps <= before.step:
        raise PacelineError(
            f"the checkpoint is of step {before.step}, but the training ends with step"
            f" {own.total_steps}",
            fix="give --from RUN@STEP with an earlier step, or --steps: those after the checkpoint",
        )
    position = own.stages.position(before.step)
    if job.seed_plus:
        own = _reseeded(own, position, own.seed + job.seed_plus)
    if job.batch_times == 1:
        return own
    large = replace(own, batch={0: batch, position: job.batch_times * batch})
    return replace(large, tuned_at=batch) if job.scale_rate else large


def _reseeded(own: Training, position: int, seed: int) -> Training:
    """Return the training with another seed after a position: for the samples left, and dropout."""
    if own.order is not None or not own.shuffle:
        said = "shuffle=False" if own.order is None else "order=…"
        raise PacelineError(
            f"a study from a checkpoint was asked for with several seeds, but Training({said})"
            " decides on the order of the samples, so another seed would not change it",
            fix="leave --from out, or compare one seed: --seeds 1",
        )
    model, first_seed = own.model, own.seed

    def built() -> Any:
        torch.manual_seed(first_seed)  # for buffers that a checkpoint does not hold
        return model()

    after = replace(own, seed=seed).sample_order()
    order = Reshuffled(own.sample_order(), after, position, seed)
    return replace(own, seed=seed, model=built, order=lambda _: order)


def _hastened(large: Training, own: Training) -> Training:
    """Return the training with schedules that advance faster, of it or of its phases."""

    def hastened(each: Any, every: int) -> Any:
        schedule, steps = each.schedule, (own.total_steps // every, large.total_steps // every)
        if schedule is None:
            return each
        own_steps = evenly(*steps)
        return replace(each, schedule=lambda optimizer: Compressed(schedule(optimizer), own_steps))

    if large.phases is None:
        changed: Training = hastened(large, 1)
        return changed
    phases = {name: hastened(phase, phase.every) for name, phase in large.phases.items()}
    return replace(large, phases=phases)
