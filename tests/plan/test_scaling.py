"""How many nodes, by which goal, and why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.plan.answer import answer, plan_of
from paceline.plan.calibration.calibrate import from_priors
from paceline.plan.limits import Limits
from paceline.plan.reasons import bound, words
from paceline.plan.search.best_layout import Profiles
from paceline.plan.search.node_counts import Goal, bests_on, choose, node_counts, wasted_beyond
from paceline.plan.training_cost import training_cost
from paceline.plan.training_length import TrainingLength
from paceline.profile.families import Decoder, decoder
from paceline.specs import Cluster, Layout, PacelineError, Plan
from paceline.specs.units import duration
from plan.shapes import GPT3, SMALL, cluster

LLAMA_7B = decoder(Decoder(layers=32, hidden=4096, heads=32, seq=4096, vocab=32000))
SLOW = cluster(nodes=16, between=0.001)
"""A network of 25 MB/s, on which a second node is not worth it."""


def _nodes(goal: Goal, where: Cluster, batch: int = 256) -> int:
    counts = node_counts(where.nodes)
    profiles: Profiles = {"bf16": decoder(SMALL)}
    return answer(profiles, where, [batch], counts, from_priors(), goal, Limits(where))[0].nodes


@given(st.integers(1, 5000))
def test_node_counts_go_from_one_to_all(most: int) -> None:
    counts = node_counts(most)
    assert counts[0] == 1
    assert counts[-1] == most
    assert counts == sorted(set(counts))


def test_goals_choose_different_numbers_of_nodes() -> None:
    fast = cluster(nodes=16)
    assert _nodes("fastest", fast, batch=4096) == 16
    assert _nodes("cheapest", fast, batch=4096) == 1
    assert 1 <= _nodes("knee", fast) <= _nodes("fastest", fast)


def test_the_greenest_needs_the_power_of_the_devices() -> None:
    fast = cluster(nodes=16)
    assert _nodes("greenest", fast, batch=4096) == 1
    dark = fast.model_copy(update={"device": fast.device.model_copy(update={"watts": None})})
    with pytest.raises(PacelineError, match="what power a100-80gb draws") as caught:
        _nodes("greenest", dark)
    assert "watts" in caught.value.fix


def test_one_node_is_enough_where_the_network_is_slow() -> None:
    assert _nodes("knee", SLOW) == 1


def test_a_deadline_takes_the_cheapest_nodes_that_keep_it() -> None:
    where = cluster(nodes=8)
    bests, _ = bests_on({"bf16": LLAMA_7B}, where, 512, from_priors(), node_counts(8))
    seconds = {
        best.nodes: training_cost(
            best, where.model_copy(update={"nodes": best.nodes}), 1000
        ).seconds.value
        for best in bests
    }
    allowed = Limits(where, TrainingLength(512, 1000), deadline_seconds=seconds[4]).allowed(bests)
    assert [best.nodes for best in allowed] == [4, 8]
    cheapest = min((4, 8), key=lambda nodes: nodes * seconds[nodes])
    assert choose(bests, allowed, "cheapest", where).nodes == cheapest
    with pytest.raises(PacelineError, match="no number of nodes keeps within the limits") as caught:
        Limits(where, TrainingLength(512, 1000), deadline_seconds=1.0).allowed(bests)
    assert f"the fastest, 8 nodes, takes {duration(seconds[8])}" in caught.value.problem
    assert "--deadline" in caught.value.fix


def test_nodes_are_wasted_where_the_curve_bends() -> None:
    bests, _ = bests_on({"bf16": decoder(SMALL)}, SLOW, 256, from_priors(), node_counts(16))
    assert wasted_beyond(bests) == 1
    assert wasted_beyond(bests[:1]) is None


def test_a_model_that_fits_nowhere() -> None:
    with pytest.raises(PacelineError, match="does not fit on 8 devices") as caught:
        bests_on({"bf16": decoder(GPT3)}, cluster(nodes=1), 8, from_priors(), [1])
    assert "use 6 nodes (48 devices)" in caught.value.fix


def test_others_lose_for_a_reason_and_the_plan_can_be_written() -> None:
    said, best = answer(
        {"bf16": LLAMA_7B},
        cluster(nodes=8),
        [512],
        [1, 8],
        from_priors(),
        "fastest",
        Limits(cluster()),
    )
    reasons = {each.what: each for each in said.alternatives}
    assert "GB on a device" in reasons["replicas only"].why
    assert reasons["replicas only"].step_seconds is None
    for other in said.alternatives:
        assert other.why
        if other.step_seconds is not None:
            # The closed form and the simulation may order near equals differently.
            assert other.step_seconds >= 0.98 * said.estimate.step_seconds.value
    assert "computation" in bound(said.estimate)
    assert all(each.faster > 1 for each in said.helps)
    plan = plan_of(said)
    assert Plan.model_validate(plan.model_dump()) == plan
    assert plan.estimate == best.estimate


def test_words_of_a_layout() -> None:
    layout = Layout(replicas=2, shards=4, micro_batch=2, precision="bf16", recompute="block")
    assert words(layout) == "2 replicas x 4 shards, micro-batch 2, bf16, recompute block"
    assert words(Layout(micro_batch=8)) == "1 worker, micro-batch 8, fp32"


def test_a_plan_says_what_batch_normalization_does() -> None:
    profile = decoder(SMALL).model_copy(update={"batch_norm": True})
    said, _ = answer(
        {"bf16": profile}, cluster(nodes=1), [64], [1], from_priors(), "fastest", Limits(cluster())
    )
    plan = plan_of(said)
    assert plan.layout.batch_norm == "local"
    assert plan.estimate is not None
    assert plan.estimate.layout == plan.layout
    assert any("batch normalization" in each for each in said.remarks)
