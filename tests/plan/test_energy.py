"""Joules by what devices do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.catalog import device, link
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.energy import HGX_H100, Activity, joules, node_power
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.step_time import StepModel
from paceline.specs import Cluster, Layout
from paceline.specs.measurements.cluster import NodePower
from plan.shapes import cluster, steps

H100 = Cluster(
    nodes=1,
    devices_per_node=8,
    device=device("h100-80gb"),
    inside=link("nvlink4"),
    between=link("infiniband-ndr"),
)
HALF = NodePower(other_watts=1000, computing=0.8, communicating=0.4, idle=0.1, source="a test")


def hour(computing: float = 0.0, communicating: float = 0.0, idle: float = 0.0) -> Activity:
    parts = (np.array([3600.0 * each]) for each in (computing, communicating, idle))
    return Activity(*parts)


def kilowatt_hours(where: Cluster, activity: Activity) -> float:
    found = joules(where, activity)
    assert found is not None
    return float(found[0]) / 3.6e6


def test_by_hand() -> None:
    """A node of eight devices of 400 W, and a thousand watts beside them."""
    where = cluster(nodes=2).model_copy(update={"power": HALF})
    assert kilowatt_hours(where, hour(computing=1)) == pytest.approx(2 * (1 + 3.2 * 0.8))
    assert kilowatt_hours(where, hour(communicating=1)) == pytest.approx(2 * (1 + 3.2 * 0.4))
    assert kilowatt_hours(where, hour(idle=1)) == pytest.approx(2 * (1 + 3.2 * 0.1))
    lossy = HALF.model_copy(update={"supply_efficiency": 0.5})
    assert kilowatt_hours(
        where.model_copy(update={"power": lossy}), hour(computing=1)
    ) == pytest.approx(4 * (1 + 3.2 * 0.8))


def test_a_node_of_eight_h100_that_computes() -> None:
    """8.4 kW at most (Latif et al. 2024); 6.9 kW and 2.7 kW at its start in MLPerf's logs."""
    assert 6.4 < kilowatt_hours(H100, hour(computing=1)) < 8.4
    assert 2.0 < kilowatt_hours(H100, hour(idle=1)) < 2.8


@settings(max_examples=30, deadline=None)
@given(share=st.floats(0, 1), longer=st.floats(1, 100))
def test_more_time_and_more_computing_take_more(share: float, longer: float) -> None:
    some = kilowatt_hours(H100, hour(share, 1 - share))
    assert kilowatt_hours(H100, hour(1)) >= some >= kilowatt_hours(H100, hour(0, 1)) * (1 - 1e-12)
    assert kilowatt_hours(H100, hour(longer * share, longer * (1 - share))) == pytest.approx(
        longer * some
    )


def test_a_step_of_a_layout() -> None:
    what = steps(Layout(replicas=8, pipeline=4, tensor=2, micro_batch=4))
    model = StepModel(what.profile, what.cluster, "bf16", Engine(), Coefficients.prior())
    times = model.times(what.layouts, what.batch)
    activity = Activity.of(times)
    together = activity.computing + activity.communicating + activity.idle
    np.testing.assert_allclose(together, times.total)
    assert activity.communicating[0] > 0
    assert kilowatt_hours(what.cluster, activity) > 0


def test_where_the_figures_come_from() -> None:
    assert node_power(H100) == (HGX_H100, "published")
    half = H100.model_copy(update={"devices_per_node": 4})
    found, origin = node_power(half)
    assert (found.other_watts, origin) == (HGX_H100.other_watts / 2, "assumed")
    assert node_power(cluster())[1] == "assumed"
    own = H100.model_copy(update={"power": HALF})
    assert node_power(own) == (HALF, "measured")


def test_what_is_unknown_is_not_invented() -> None:
    nameless = H100.device.model_copy(update={"watts": None})
    assert joules(H100.model_copy(update={"device": nameless}), hour(1)) is None
