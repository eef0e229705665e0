"""What a study changes in a training."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from paceline.data.batches import Batches
from paceline.specs import Job
from paceline.train.study_overrides import as_studied
from paceline.user.parameters import Parameters
from paceline.user.training import Training
from train.trainings import classification


def job(**changes: Any) -> Job:
    return Job(name="point", folder=Path("/"), python=Path("/bin/python"), **changes)


def seen(training: Training) -> int:
    """Samples in all its steps."""
    batches = Batches(
        order=training.sample_order(),
        batch=training.first_batch,
        steps=training.total_steps,
        workers=1,
        rank=0,
    )
    return sum(batches.counts(step).global_samples for step in range(len(batches)))


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(1))]


@given(st.integers(1, 70), st.integers(1, 40), st.integers(1, 9), st.booleans())
def test_a_larger_batch_sees_as_many_samples(
    batch: int, length: int, times: int, epochs: bool
) -> None:
    lasting = {"epochs": length, "steps": None} if epochs else {"steps": length}
    own = classification(batch=batch, **lasting)
    large = as_studied(own, job(batch_times=times, equal_samples=True))
    assert large.batch == times * batch
    # Those that are left over of the last batch are seen, too.
    assert 0 <= seen(large) - seen(own) < large.batch
    if epochs:
        assert seen(large) == seen(own)


def test_the_jobs_steps_are_those_of_the_trainings_own_batch() -> None:
    own = classification(batch=16, steps=100)
    assert as_studied(own, job(steps=8, batch_times=4, equal_samples=True)).total_steps == 2
    assert as_studied(own, job(steps=8, batch_times=4)).total_steps == 8
    assert as_studied(own, job()) == own


def test_a_seed_of_its_own() -> None:
    own = classification(seed=3)
    assert as_studied(own, job(seed_plus=4)).seed == 7


def rates_of(training: Training, steps: int) -> list[float]:
    """With which the weights were changed, step by step."""
    optimizer = training.optimizer(Parameters(("weight", each) for each in parameters()))
    schedule = training.schedule(optimizer) if training.schedule else None
    found = []
    optimizer.register_step_pre_hook(
        lambda optimizer, args, kwargs: found.append(optimizer.param_groups[0]["lr"])
    )
    for _ in range(steps):
        optimizer.step()
        if schedule:
            schedule.step()
    return found


def test_a_scaled_rate_goes_by_the_rules_of_a_tuned_batch() -> None:
    """Studies had a rule of their own, without betas, weight decay and the schedule's warm-up."""
    own = classification(36 * 32, batch=8, steps=144)
    scaled = as_studied(own, job(batch_times=4, equal_samples=True, scale_rate=True))
    assert (scaled.batch, scaled.tuned_at, scaled.total_steps) == (32, 8, 36)
    as_many_steps = as_studied(own, job(batch_times=4, scale_rate=True))
    assert (as_many_steps.batch, as_many_steps.tuned_at, as_many_steps.total_steps) == (32, 8, 144)
    naive = as_studied(own, job(batch_times=4, equal_samples=True))
    assert naive.tuned_at is None
    assert rates_of(naive, 3) == pytest.approx([0.2] * 3)


def test_a_schedule_is_led_through_by_fewer_steps() -> None:
    def schedule(optimizer: torch.optim.Optimizer) -> Any:
        # It refuses to go on after its last step.
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=40)

    own = classification(
        320,
        optimizer=lambda given: torch.optim.SGD(given, lr=0.1),
        batch=8,
        steps=40,
        schedule=schedule,
    )
    every = rates_of(own, 40)
    large = as_studied(own, job(batch_times=4, equal_samples=True))
    assert rates_of(large, large.total_steps) == pytest.approx(every[::4])
