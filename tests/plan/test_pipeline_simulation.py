"""The event simulation: closed forms where they hold, limits where they do not."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.pipelining import ScheduleInterleaved1F1B

from paceline.plan.calibration.calibrate import Steps
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.cost.pipeline_schedules import Schedule, order
from paceline.plan.cost.pipeline_simulation import Pipeline, Simulated, simulate, slowness
from paceline.plan.cost.step_time import StepModel
from paceline.plan.search.finalists import pipelines, simulated
from paceline.profile.families import decoder
from paceline.specs import Layout, PacelineError
from plan.shapes import GPT3, cluster, steps

SHAPES: list[tuple[Schedule, int, int, int]] = [
    ("gpipe", 4, 8, 1),
    ("1f1b", 4, 8, 1),
    ("1f1b", 8, 3, 1),
    ("1f1b", 1, 5, 1),
    ("interleaved", 4, 8, 2),
    ("interleaved", 8, 32, 4),
    ("interleaved", 64, 256, 2),
]


def one(pipeline: Pipeline, spread: float = 0.0, draws: int = 0) -> Simulated:
    (found,) = simulate([pipeline], spread, draws)
    return found


def even(schedule: Schedule, workers: int, micro_batches: int, chunks: int) -> Pipeline:
    """Stages that are alike: one second forward and two backward on every worker."""
    whole = np.ones((workers, chunks)) / chunks
    return Pipeline(schedule, micro_batches, whole, 2 * whole)


@pytest.mark.parametrize(("schedule", "workers", "micro_batches", "chunks"), SHAPES)
def test_equal_stages_have_the_known_bubble(
    schedule: Schedule, workers: int, micro_batches: int, chunks: int
) -> None:
    took = one(even(schedule, workers, micro_batches, chunks)).even_seconds
    bubble = (workers - 1) / (chunks * micro_batches)
    assert took == pytest.approx(3 * micro_batches * (1 + bubble), rel=1e-12)


@pytest.mark.parametrize(
    ("workers", "micro_batches", "chunks"), [(4, 8, 2), (4, 10, 2), (4, 3, 2), (3, 9, 3)]
)
def test_the_order_is_the_engines(workers: int, micro_batches: int, chunks: int) -> None:
    """PyTorch's own list of operations, which it makes without communicating."""
    theirs = ScheduleInterleaved1F1B.__new__(ScheduleInterleaved1F1B)
    theirs.pp_group_size, theirs.n_local_stages = workers, chunks
    theirs._n_microbatches = micro_batches
    theirs.number_of_rounds = max(1, micro_batches // workers)
    theirs.microbatches_per_round = micro_batches // theirs.number_of_rounds
    ours = order("interleaved", workers, micro_batches, chunks)
    for worker in range(workers):
        said = [
            (
                each.stage_index // workers + chunks * (each.computation_type.name != "FORWARD"),
                index,
            )
            for each in theirs._calculate_single_rank_operations(worker)
            if each is not None and (index := each.microbatch_index) is not None
        ]
        rows = zip(ours.part[worker].tolist(), ours.micro_batch[worker].tolist(), strict=True)
        assert list(rows) == said


def test_one_forward_one_backward() -> None:
    """Of PyTorch's 1F1B: as many forwards as stages follow, itself included, then in turn."""
    found = order("1f1b", workers=3, micro_batches=4)
    passes = ["".join("FB"[part] for part in row) for row in found.part.tolist()]
    assert passes == ["FFFBFBBB", "FFBFBFBB", "FBFBFBFB"]


def test_a_slow_stage_dominates() -> None:
    """It waits for the first micro-batch to arrive, and the last one then goes back to the first
    stage; nothing that lies behind it takes time."""
    seconds = np.ones((8, 1))
    seconds[3] = 5.0
    took = one(Pipeline("1f1b", 100, seconds, 2 * seconds)).even_seconds
    assert took == pytest.approx(3 * 1 + 100 * 15 + 3 * 2, rel=1e-12)


def test_transfers_delay_the_first_and_the_last() -> None:
    """A chain of forwards and backwards with one micro-batch crosses every border twice."""
    calm = even("1f1b", 4, 1, 1)
    sending = Pipeline("1f1b", 1, calm.forward_seconds, calm.backward_seconds, send_seconds=0.5)
    assert one(sending).even_seconds == pytest.approx(one(calm).even_seconds + 2 * 3 * 0.5)


@pytest.mark.parametrize(
    ("gradient", "buckets", "overlap", "exposed"),
    [
        (1.0, 1, True, 1.0),  # one bucket is full when all has been computed
        (1.0, 10, True, 0.1),  # the last of ten
        (5.0, 10, True, 3.2),  # the network is the slower one: it begins after a tenth of 2 s
        (5.0, 10, False, 5.0),
    ],
)
def test_gradients_travel_during_the_last_backward(
    gradient: float, buckets: int, overlap: bool, exposed: float
) -> None:
    one_worker = np.ones((1, 1))
    step = Pipeline("1f1b", 3, one_worker, 2 * one_worker, 0.0, gradient, buckets, overlap)
    assert one(step).even_seconds == pytest.approx(9 + exposed)


def test_chunks_share_the_network() -> None:
    """The later chunk's gradients travel while the earlier one is computed."""
    half = np.full((1, 2), 0.5)
    step = Pipeline("interleaved", 1, half, 2 * half, gradient_seconds=1.0)
    assert one(step).even_seconds == pytest.approx(3 + 1)
    slow = Pipeline("interleaved", 1, half, 2 * half, gradient_seconds=4.0)
    assert one(slow).even_seconds == pytest.approx(2 + 2 * 4)


stage_seconds = st.floats(0.01, 10)


@st.composite
def any_pipeline(draw: st.DrawFn) -> Pipeline:
    schedule: Schedule = draw(st.sampled_from(["gpipe", "1f1b", "interleaved"]))
    workers = draw(st.integers(1, 5))
    chunks = draw(st.integers(1, 3)) if schedule == "interleaved" else 1
    rounds = draw(st.integers(1, 3))
    size = workers * chunks
    seconds = draw(st.lists(stage_seconds, min_size=2 * size, max_size=2 * size))
    forward, backward = np.array(seconds).reshape(2, workers, chunks)
    return Pipeline(
        schedule,
        micro_batches=rounds * workers,
        forward_seconds=forward,
        backward_seconds=backward,
        send_seconds=draw(st.floats(0, 2)),
        gradient_seconds=draw(st.floats(0, 5)),
        buckets=draw(st.integers(1, 8)),
        overlap=draw(st.booleans()),
        after_seconds=draw(st.floats(0, 1)),
        members=draw(st.sampled_from([1, 8, 1000])),
    )


@settings(max_examples=150, deadline=None)
@given(pipeline=any_pipeline())
def test_between_the_slowest_worker_and_one_after_the_other(pipeline: Pipeline) -> None:
    took = one(pipeline).even_seconds
    workers, chunks = pipeline.forward_seconds.shape
    micro_batches = pipeline.micro_batches
    busy = micro_batches * (pipeline.forward_seconds + pipeline.backward_seconds).sum(axis=1)
    least = busy.max() + pipeline.after_seconds
    transfers = 2 * micro_batches * workers * chunks * pipeline.send_seconds
    gradients = workers * chunks * pipeline.gradient_seconds
    most = busy.sum() + transfers + gradients + pipeline.after_seconds
    assert least * (1 - 1e-9) <= took <= most * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(many=st.lists(any_pipeline(), min_size=2, max_size=6))
def test_together_as_one_by_one(many: list[Pipeline]) -> None:
    together = simulate(many, spread=0.1, draws=3)
    assert together == [simulate([each], spread=0.1, draws=3)[0] for each in many]


def test_the_slowest_of_many() -> None:
    """Grows as spread x sqrt(2 ln n), a little less, and the interval holds the mean."""
    spread, before = 0.01, 1.0
    for members in (10, 100, 1_000, 100_000):
        worst = slowness(members, 1, spread, draws=4000, seed=1)
        excess = float(np.log(worst).mean()) / spread
        assert 0.7 < excess / math.sqrt(2 * math.log(members)) < 1
        step = Pipeline("1f1b", 4, np.ones((1, 1)), np.ones((1, 1)), members=members)
        found = one(step, spread, draws=200)
        assert found.even_seconds == 8
        assert before < found.seconds / 8 == pytest.approx(float(worst.mean()), rel=1e-3)
        assert found.low < found.seconds < found.high
        before = found.seconds / 8


def test_the_same_seed_the_same_luck() -> None:
    step = even("1f1b", 4, 8, 1)
    assert simulate([step], 0.05) == simulate([step], 0.05)
    assert simulate([step], 0.05) != simulate([step], 0.05, seed=1)


@pytest.mark.parametrize(
    ("schedule", "workers", "micro_batches", "chunks", "said"),
    [
        ("1f1b", 4, 8, 2, "1f1b has one stage on a worker, not 2"),
        ("interleaved", 4, 9, 2, "9 micro-batches cannot be divided into 2 rounds"),
    ],
)
def test_what_the_engine_cannot_run(
    schedule: Schedule, workers: int, micro_batches: int, chunks: int, said: str
) -> None:
    with pytest.raises(PacelineError, match=said):
        order(schedule, workers, micro_batches, chunks)


def test_fifty_large_layouts_take_about_a_second() -> None:
    """By CPU time, with room for a machine that is busy; about 0.5 s measured."""
    many = [even("1f1b", 64, 256 - index, 1) for index in range(50)]
    begin = time.process_time()
    simulate(many, spread=0.01)
    assert time.process_time() - begin < 4


LAYOUTS = (
    Layout(replicas=64, micro_batch=1),
    Layout(shards=64, micro_batch=2),
    Layout(replicas=2, tensor=4, pipeline=8, micro_batch=1, recompute="block"),
    Layout(replicas=2, shards=4, pipeline=8, micro_batch=1),
    Layout(replicas=2, tensor=4, pipeline=8, micro_batch=1, schedule="interleaved"),
)


def test_layouts_as_the_closed_form_has_them() -> None:
    """Without stragglers both describe the same step; the simulation sees uneven stages better."""
    what = Steps(
        profile=decoder(GPT3),
        cluster=cluster(),
        precision="bf16",
        engine=Engine(),
        layouts=Layouts.of(LAYOUTS, 512),
        batch=np.full(len(LAYOUTS), 512.0),
    )
    numbers = Coefficients.prior()
    model = StepModel(what.profile, what.cluster, "bf16", what.engine, numbers)
    times = model.times(what.layouts, what.batch)
    found = simulated(what, numbers)
    calm = [each.even_seconds for each in found]
    np.testing.assert_allclose(calm, times.total - times.jitter, rtol=0.02)
    late = np.array([each.seconds for each in found])
    assert (late > calm).all()
    assert (late < times.total * 1.02).all()


def test_blocks_that_stages_do_not_divide() -> None:
    """Eight blocks on three stages: three, three, and two with the head; nothing is lost."""
    engine, numbers = Engine(accumulated_bytes=0), Coefficients.prior()
    what = replace(steps(Layout(pipeline=3, micro_batch=1)), engine=engine)
    (found,) = pipelines(what, numbers)
    (alone,) = pipelines(replace(steps(Layout(micro_batch=1)), engine=engine), numbers)
    model = StepModel(what.profile, what.cluster, "bf16", what.engine, numbers)
    handover = float(model.times(what.layouts, what.batch).transfer[0]) / (2 * 1024)
    stages = found.forward_seconds + found.backward_seconds - 2 * handover
    whole = alone.forward_seconds + alone.backward_seconds
    assert stages.sum() == pytest.approx(whole.sum())
    first, middle, last = stages[:, 0]
    assert first > middle
    assert 2 * middle / 3 < last < whole.sum() - 2 * middle
