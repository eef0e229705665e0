"""A batch that changes by position: whole steps, each sample once, and the way back."""

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.data.batch_stages import BatchStages
from paceline.data.batches import Batches
from paceline.data.order import Shuffled
from paceline.specs import PacelineError

EPOCHS = 3


@st.composite
def _stages(draw: st.DrawFn) -> BatchStages:
    samples = draw(st.integers(1, 120))
    later = draw(st.dictionaries(st.integers(1, EPOCHS * 120), st.integers(1, 50), max_size=4))
    plan = {0: draw(st.integers(1, 50)), **later}
    return BatchStages(samples, tuple(sorted(plan.items())))


def _walked(stages: BatchStages, samples: int) -> list[tuple[int, int]]:
    """Begin and size of every step, found one after another."""
    found, position = [], 0
    while position < samples:
        batch = [batch for begin, batch in stages.plan if begin <= position][-1]
        size = min(batch, stages.epoch_samples - position % stages.epoch_samples)
        found.append((position, size))
        position += size
    return found


@given(_stages())
def test_steps_are_whole_and_have_the_batch_of_the_position_at_which_they_begin(
    stages: BatchStages,
) -> None:
    walked = _walked(stages, EPOCHS * stages.epoch_samples)
    for step, (position, size) in enumerate(walked):
        epoch, begin = divmod(position, stages.epoch_samples)
        assert stages.position(step) == position
        assert stages.extent(step) == (epoch, begin, size)
    assert stages.step_from(EPOCHS * stages.epoch_samples) == len(walked)


@given(_stages(), st.integers(0, EPOCHS * 120))
def test_steps_and_positions_lead_to_each_other(stages: BatchStages, position: int) -> None:
    step = stages.step_from(position)
    assert stages.position(step) >= position
    assert step == 0 or stages.position(step - 1) < position
    assert stages.step_from(stages.position(step)) == step
    assert stages.steps_done(position) == step - (stages.position(step) > position)


@settings(max_examples=40)
@given(_stages(), st.integers(1, 9), st.integers(0, 20))
def test_each_sample_once_an_epoch_on_any_number_of_workers(
    stages: BatchStages, workers: int, first: int
) -> None:
    workers = min(workers, stages.smallest)
    order, steps = Shuffled(stages.epoch_samples, seed=0), stages.step_from(stages.epoch_samples)
    everyone = [Batches(order, stages, steps, workers, rank) for rank in range(workers)]
    seen = [
        one.indices(step)[: one.counts(step).samples] for step in range(steps) for one in everyone
    ]
    assert sorted(chain(*seen)) == list(range(stages.epoch_samples))
    later = Batches(order, stages, first + 30, workers, rank=0, first_step=first)
    assert list(later) == [later.indices(step) for step in range(first, first + 30)]


@given(_stages(), st.integers(0, 100), st.integers(1, 50))
def test_a_change_from_a_step_on_keeps_the_steps_before_it(
    stages: BatchStages, step: int, batch: int
) -> None:
    position = stages.position(step)
    changed = stages.changed(position, ((position, batch),))
    assert [changed.extent(each) for each in range(step)] == [
        stages.extent(each) for each in range(step)
    ]
    assert (changed.batch(step), changed.position(step)) == (batch, position)
    assert changed.begun(position) == stages.begun(position)


def test_a_stage_begins_with_the_first_whole_step_at_its_sample() -> None:
    stages = BatchStages(1000, ((0, 100), (250, 200), (1000, 300)))
    sizes = [stages.extent(step)[2] for step in range(9)]
    assert sizes == [100, 100, 100, 200, 200, 200, 100, 300, 300]
    assert list(stages.spans()) == [(0, 300, 100), (300, 1000, 200), (1000, None, 300)]


def test_the_smallest_batch_must_have_a_sample_for_each_worker() -> None:
    stages = BatchStages(100, ((0, 2), (50, 8)))
    with pytest.raises(PacelineError, match="global batch is 2, but there are 3 workers"):
        Batches(Shuffled(100, seed=0), stages, 10, workers=3, rank=0)
