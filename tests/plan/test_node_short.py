"""A plan after a node is lost: the layout of the survivors, and their step."""

from dataclasses import replace

from paceline.plan.inputs import PlanRequest
from paceline.plan.planner import make_plan
from paceline.specs.plans.answer import Answer

GPT = "gpt: layers=12 width=768 heads=12 seq=1k vocab=50304"
REQUEST = PlanRequest(model=GPT, device="a100-80gb", nodes=(4,), batch=(768,))


def planned(request: PlanRequest) -> Answer:
    return make_plan(request).answer


def test_survivors_take_the_batch_of_the_lost_node() -> None:
    """Before, a plan did not say how a run goes on after a failure."""
    said = planned(REQUEST)
    short = said.node_short
    assert short is not None
    assert short.nodes == 3
    assert short.layout is not None
    assert short.layout.workers == 24
    assert short.layout.micro_batch is not None
    assert short.layout.micro_batch * 24 >= 768 / 24
    assert short.fits
    assert short.step_seconds is not None
    fewer = planned(replace(REQUEST, nodes=(3,)))
    times = short.step_seconds.value / said.estimate.step_seconds.value
    assert 1.1 < times < 1.6
    assert short.step_seconds.value >= 0.999 * fewer.estimate.step_seconds.value


def test_a_layout_that_needs_all_nodes_has_none_less() -> None:
    said = planned(replace(REQUEST, model="llama3-70b", batch=(512,)))
    assert said.node_short is not None
    assert not said.node_short.fits


def test_one_node_and_other_engines_have_no_survivors() -> None:
    assert planned(replace(REQUEST, nodes=(1,))).node_short is None
    assert planned(replace(REQUEST, engine="megatron")).node_short is None
