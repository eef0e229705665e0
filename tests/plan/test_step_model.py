"""What must hold of any estimate: limits, monotonicity, parts that add up."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.plan.calibration.calibrate import from_priors
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.memory import memory
from paceline.plan.cost.step_time import StepModel, Times
from paceline.specs import Layout, PacelineError
from plan.shapes import cluster, layouts, on, steps

quick = settings(max_examples=60, deadline=None)


def times(layout: Layout, batch: int = 1024, inside: float = 1.0, between: float = 1.0) -> Times:
    what = steps(layout, batch=batch)
    where = cluster(inside=inside, between=between)
    model = StepModel(what.profile, where, "bf16", Engine(), Coefficients.prior())
    return model.times(what.layouts, what.batch)


def test_one_device_only_computes() -> None:
    alone = times(Layout(micro_batch=4), batch=4)
    for part in ("tensor", "transfer", "data", "recompute", "jitter"):
        assert getattr(alone, part)[0] == 0, part
    assert alone.bubble[0] == pytest.approx(0, abs=1e-12)
    assert alone.total[0] == pytest.approx(
        alone.compute[0] + alone.optimizer[0] + alone.host[0], rel=1e-12
    )


@quick
@given(layout=layouts, inside=st.floats(1, 100), between=st.floats(1, 100))
def test_more_bandwidth_is_never_slower(layout: Layout, inside: float, between: float) -> None:
    faster = times(layout, inside=inside, between=between)
    assert faster.total[0] <= times(layout).total[0] * (1 + 1e-9)


@quick
@given(layout=layouts)
def test_a_longer_batch_takes_longer(layout: Layout) -> None:
    assert times(layout, batch=2048).total[0] > times(layout, batch=1024).total[0] - 1e-12


@quick
@given(layout=layouts)
def test_recomputing_takes_time_and_saves_memory(layout: Layout) -> None:
    without = layout.model_copy(update={"recompute": "none"})
    again = layout.model_copy(update={"recompute": "block"})
    assert times(again).total[0] > times(without).total[0]
    what = steps(without, again)
    kept = memory(what.profile, what.layouts, what.batch, what.engine).activations
    assert kept[1] < kept[0]


@quick
@given(layout=layouts)
def test_parts_add_up(layout: Layout) -> None:
    what = steps(layout)
    found = times(layout)
    assert found.total[0] == pytest.approx(
        sum(getattr(found, each.name)[0] for each in fields(found))
    )
    held = memory(what.profile, what.layouts, what.batch, what.engine)
    parts = [getattr(held, each.name)[0] for each in fields(held)]
    assert held.total[0] == pytest.approx(sum(parts))
    assert min(parts) >= 0


@quick
@given(layout=layouts)
def test_more_shards_need_less_memory_for_states(layout: Layout) -> None:
    what = steps(layout, layout.model_copy(update={"shards": layout.shards * 2}), batch=1)
    held = memory(what.profile, what.layouts, what.batch, what.engine)
    states = held.weights + held.gradients + held.optimizer
    assert states[1] < states[0]


@given(many=st.lists(layouts, min_size=2, max_size=20))
@settings(max_examples=20, deadline=None)
def test_together_as_one_by_one(many: list[Layout]) -> None:
    what = steps(*many)
    together = what.predicted(Coefficients.prior())
    alone = [steps(each).predicted(Coefficients.prior())[0] for each in many]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_the_interval_holds_the_estimate_and_narrows_with_certainty() -> None:
    what = steps(Layout(replicas=8, micro_batch=4))
    seconds, low, high = from_priors().predict(what)
    assert low[0] < seconds[0] < high[0]
    sure = replace(from_priors(), covariance=from_priors().covariance * 0.01, noise=0.01)
    _, higher, lower = sure.predict(what)
    assert low[0] < higher[0] < lower[0] < high[0]


def test_a_slower_network_hurts_groups_with_few_members_in_a_node() -> None:
    """Sixteen slices over two nodes have eight interfaces, replicas of eight slices have one."""
    what = steps(Layout(tensor=8, replicas=8, micro_batch=4), Layout(replicas=64, micro_batch=4))
    hand = Engine(overlap_data=False)
    fast = replace(what, engine=hand).predicted(Coefficients.prior())
    slow = on(cluster(between=0.1), replace(what, engine=hand)).predicted(Coefficients.prior())
    # An eighth of the weights over an eighth of the interfaces: the same bytes on every interface.
    assert (slow - fast)[0] == pytest.approx((slow - fast)[1], rel=0.25)


def test_a_precision_that_the_device_has_not() -> None:
    what = replace(steps(Layout(micro_batch=1)), precision="fp8")
    with pytest.raises(PacelineError, match="no matrix products in fp8"):
        what.predicted(Coefficients.prior())
