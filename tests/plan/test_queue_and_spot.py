"""The time until the end of a training: in the queue, and on nodes that are taken back."""

from dataclasses import dataclass, replace

import pytest

from paceline.plan.inputs import PlanRequest
from paceline.plan.outlook.queue_wait import queue_wait
from paceline.plan.planner import make_plan
from paceline.plan.site_comparison import offers
from paceline.schedulers.kinds.slurm.controller import Controller
from paceline.schedulers.kinds.slurm.past_waits import past_waits
from paceline.schedulers.scheduler import PastWait
from paceline.specs import Prices

REQUEST = PlanRequest(
    model="gpt: layers=12 width=768 heads=12 seq=1k vocab=50304",
    device="a100-80gb",
    nodes=(4,),
    batch=(512,),
    steps=100_000,
)
SACCT = """\
2026-01-05T10:00:00|2026-01-05T10:30:00|4
2026-01-05T11:00:00|2026-01-05T11:00:00|1
2026-01-05T12:00:00|Unknown|4
Unknown|Unknown|4
2026-01-05T12:00:00|None|0
"""


@dataclass(frozen=True)
class Recorded(Controller):
    """Answers as sacct does."""

    def call(self, *command: str, seconds: float = 0.0) -> str:
        del seconds
        assert command[0] == "sacct"
        assert "--partition=gpu" in command
        assert not any(word.startswith("--accounts") for word in command)
        return SACCT


def test_waits_are_of_jobs_that_have_started() -> None:
    assert past_waits(Recorded(), "gpu", None) == [PastWait(4, 1800.0), PastWait(1, 0.0)]


def test_a_wait_is_that_of_jobs_of_about_this_size() -> None:
    small = [PastWait(1, 60.0)] * 50
    large = [PastWait(8, 3600.0 * hours) for hours in range(11)]
    found = queue_wait([*small, *large], 4, jobs=3)
    assert found is not None
    assert (found.from_jobs, found.fewest_nodes, found.most_nodes) == (11, 8, 8)
    assert found.median_seconds == pytest.approx(5 * 3600)
    assert found.high_seconds == pytest.approx(9 * 3600)
    assert found.all_seconds == pytest.approx(15 * 3600)
    assert queue_wait(small, 64, jobs=1) is None
    wider = queue_wait([PastWait(16, 10.0)] * 10, 4, jobs=1)
    assert wider is not None  # four times as many nodes, where there is nothing nearer
    assert wider.fewest_nodes == 16


def test_every_job_of_a_training_waits() -> None:
    """Before, a plan had no time in the queue at all."""
    past = tuple(PastWait(4, 7200.0) for _ in range(20))
    cost = make_plan(replace(REQUEST, queue=past, slot_seconds=3600.0)).answer.training
    assert cost is not None
    assert cost.slots is not None
    assert cost.slots > 1
    assert cost.queue is not None
    assert cost.queue.all_seconds == pytest.approx(cost.slots * 7200)
    said = make_plan(replace(REQUEST, queue=())).answer
    assert said.training is not None
    assert said.training.queue is None
    assert any("the time in the queue is not known" in each for each in said.remarks)


SPOT = Prices(
    currency="EUR",
    per_node_hour=40.0,
    spot_per_node_hour=15.0,
    interruptions_per_node_hour=0.02,
    replacement_seconds=600,
)


def test_spot_nodes_are_beside_the_cost_of_others() -> None:
    """Before, only --compare counted interruptions."""
    planned = make_plan(replace(REQUEST, prices=SPOT))
    spot, cost = planned.answer.spot, planned.answer.training
    assert cost is not None
    assert spot is not None
    assert spot.money is not None
    assert cost.money is not None
    assert spot.seconds.value > cost.seconds.value
    assert spot.money / cost.money == pytest.approx(
        15 / 40 * spot.seconds.value / cost.seconds.value
    )
    assert offers("here", SPOT, planned)[1].cost == spot
    often = SPOT.model_copy(update={"interruptions_per_node_hour": 1e6})
    assert make_plan(replace(REQUEST, prices=often)).answer.spot is None
    assert make_plan(REQUEST).answer.spot is None


def test_what_needs_the_length_of_the_training_says_so() -> None:
    asked = replace(REQUEST, steps=None, queue=(PastWait(4, 60.0),) * 10, slot_seconds=3600.0)
    remarks = make_plan(asked).answer.remarks
    assert any(each.startswith("--queue and --time had no effect") for each in remarks)
    assert not any("had no effect" in each for each in make_plan(REQUEST).answer.remarks)
