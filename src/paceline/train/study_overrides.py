"""Overrides of a training in a study or a probe: steps, batch, seed, learning rate, noise."""

from dataclasses import replace
from typing import Any

from paceline.specs import Job, PacelineError
from paceline.train.state.tuned_batch import Compressed, evenly
from paceline.user.training import Training


def as_studied(training: Training, job: Job) -> Training:
    """Return the training with the steps, global batch, seed and learning rate of the job.

    With equal samples, a larger batch takes fewer steps, and the schedule, written for the
    training's original steps, advances faster."""
    if job.seed_plus:
        training = replace(training, seed=training.seed + job.seed_plus)
    if job.noise_every:
        training = replace(training, noise_every=job.noise_every)
    own = replace(training, steps=job.steps, epochs=None) if job.steps else training
    if job.batch_times == 1:
        return own
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
