"""The batch as a variable of the search, to the same loss."""

from dataclasses import replace

import pytest

from paceline.plan.answer import answer
from paceline.plan.batch_search import BatchSearch
from paceline.plan.calibration.calibrate import from_priors
from paceline.plan.inputs import PlanRequest
from paceline.plan.limits import Limits
from paceline.plan.planner import make_plan
from paceline.plan.search.best_layout import Best, Profiles
from paceline.plan.search.node_counts import Goal, bests_on
from paceline.plan.training_length import TrainingLength
from paceline.profile.families import decoder
from paceline.specs import CriticalBatch, PacelineError
from paceline.specs.plans.sync import default_sync
from plan.shapes import SMALL, cluster

OWN = 64
BATCHES = [OWN * 4**power for power in range(4)]
COUNTS = [1, 4, 16]
PROFILES: Profiles = {"bf16": decoder(SMALL)}
WHERE = cluster(nodes=16, between=0.1)


@pytest.fixture(scope="module")
def by_batch() -> list[list[Best]]:
    """The best layouts of each batch on each number of nodes."""
    return [
        bests_on(PROFILES, WHERE, batch, from_priors(), COUNTS, default_sync())[0]
        for batch in BATCHES
    ]


def length(critical: float, spread: float = 1.0) -> TrainingLength:
    """A training of 10,000 steps whose critical batch is known up to a factor."""
    known = CriticalBatch(value=critical, low=critical / spread, high=critical * spread)
    return TrainingLength(OWN, 10_000, known)


def chosen(
    by_batch: list[list[Best]], goal: Goal, long: TrainingLength, seconds: float | None = None
) -> tuple[int, int]:
    """Number of nodes and batch that are chosen."""
    limits = Limits(WHERE, long, deadline_seconds=seconds)
    best = BatchSearch(by_batch, goal, limits).chosen
    return best.nodes, best.estimate.batch


@pytest.mark.parametrize("critical", [100.0, 1_000.0, 10_000.0])
def test_the_batch_and_nodes_are_the_best_of_all(
    by_batch: list[list[Best]], critical: float
) -> None:
    seconds = {
        (best.nodes, best.estimate.batch): best.estimate.step_seconds.value
        * (1 + critical / best.estimate.batch)
        for bests in by_batch
        for best in bests
    }
    assert len(seconds) == len(BATCHES) * len(COUNTS)
    long = length(critical)
    assert chosen(by_batch, "fastest", long) == min(seconds, key=lambda each: seconds[each])
    cheapest = min(seconds, key=lambda each: each[0] * seconds[each])
    assert chosen(by_batch, "cheapest", long) == cheapest


def test_a_larger_critical_batch_takes_a_larger_batch(by_batch: list[list[Best]]) -> None:
    found = [chosen(by_batch, "fastest", length(each)) for each in (20.0, 300.0, 50_000.0)]
    batches = [batch for _, batch in found]
    assert batches == sorted(set(batches))


def test_the_choice_holds_where_it_says_so(by_batch: list[list[Best]]) -> None:
    long = length(300.0, spread=1.5)
    said = BatchSearch(by_batch, "fastest", Limits(WHERE, long)).said()
    assert said.same_from is not None
    assert said.same_to is not None
    assert said.same_from <= 300 <= said.same_to
    choice = chosen(by_batch, "fastest", long)
    for critical in (said.same_from, said.same_to):
        assert chosen(by_batch, "fastest", length(critical, spread=1.5)) == choice
    for critical in (said.same_from / 1.2, said.same_to * 1.2):
        assert chosen(by_batch, "fastest", length(critical, spread=1.5)) != choice


def test_a_deadline_counts_the_samples_that_a_batch_needs(by_batch: list[list[Best]]) -> None:
    long = length(1_000.0)
    said = BatchSearch(by_batch, "fastest", Limits(WHERE, long)).said()
    assert said.options[0].samples_times == 1.0
    limit = 1.5 * min(each.cost.seconds.value for each in said.options)
    searched = BatchSearch(by_batch, "cheapest", Limits(WHERE, long, limit)).said()
    nodes, batch = chosen(by_batch, "cheapest", long, limit)
    (row,) = [each for each in searched.options if each.batch == batch]
    assert row.nodes == nodes
    assert row.cost.seconds.value <= limit
    with pytest.raises(PacelineError, match="no number of nodes keeps within the limits"):
        chosen(by_batch, "cheapest", long, 1.0)


def test_the_answer_has_a_row_per_batch() -> None:
    where = cluster(nodes=2)
    given = Limits(where, length(1_000.0))
    said, _ = answer(PROFILES, where, [64, 128], [1, 2], from_priors(), "knee", given)
    assert said.batches is not None
    assert [each.batch for each in said.batches.options] == [64, 128]
    (row,) = [each for each in said.batches.options if each.batch == said.batch]
    assert row.nodes == said.nodes
    assert next(each for each in said.curve if each.nodes == said.nodes).batch == said.batch


MODEL = PlanRequest(
    model="gpt: layers=8 width=1024 heads=16 seq=512 vocab=32000",
    device="a100-80gb",
    nodes=(1, 4),
    batch=(256, 1024),
    critical_batch=CriticalBatch.exactly(1_000),
    tokens=10**9,
    goal="fastest",
)


def test_a_model_by_its_dimensions_is_searched_to_the_same_loss() -> None:
    """Before, a critical batch was refused for --model."""
    said = make_plan(MODEL).answer
    assert said.batches is not None
    first, second = said.batches.options
    assert (said.batches.own, first.batch, second.batch) == (256, 256, 1024)
    assert first.cost.steps == -(-(10**9) // (256 * 512))
    assert second.samples_times == pytest.approx((1024 + 1000) / (256 + 1000))
    rules = said.batches.rules
    times = said.batch / said.batches.own
    assert rules.adam.rate_times == pytest.approx(times**0.5)
    assert rules.sgd.rate_times == pytest.approx(times / (said.batch + 1000) * (256 + 1000))


def test_the_best_batch_of_a_model_is_looked_for_around_the_critical_one() -> None:
    said = make_plan(replace(MODEL, batch="best")).answer
    assert said.batches is not None
    assert [each.batch for each in said.batches.options] == [128, 256, 512, 1024, 2048]
    assert said.batches.options[0].samples_times == 1


def test_the_price_of_twice_the_batch() -> None:
    said = make_plan(replace(MODEL, batch=(512,), nodes=(2,))).answer
    larger, cost = said.larger_batch, said.training
    assert cost is not None
    assert larger is not None
    assert larger.batch == 1024
    assert larger.samples_times == pytest.approx((1024 + 1000) / (512 + 1000))
    assert larger.cost.steps / cost.steps == pytest.approx(larger.samples_times / 2, rel=1e-3)
    assert larger.cost.seconds.value == pytest.approx(
        larger.cost.steps * larger.step_seconds / larger.cost.goodput
    )


@pytest.mark.parametrize(
    ("request_", "problem", "fix"),
    [
        (replace(MODEL, tokens=None), "not the length of the training", "--tokens N"),
        (replace(MODEL, critical_batch=None), "not known of --model", "--critical-batch N"),
        (replace(MODEL, batch="best", tokens=None, steps=9), "differ in the steps", "--tokens N"),
        (replace(MODEL, batch=None), "does not give the batch size", "--batch N"),
    ],
)
def test_what_a_search_lacks_is_said(request_: PlanRequest, problem: str, fix: str) -> None:
    with pytest.raises(PacelineError, match=problem) as told:
        make_plan(request_)
    assert fix in told.value.fix
