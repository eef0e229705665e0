"""Tiers of switches above the nodes, some oversubscribed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.catalog import read_cluster
from paceline.cluster.collectives import COLLECTIVES
from paceline.plan.calibration.calibrate import from_priors
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.device_groups import group_of
from paceline.plan.engines.paceline import ENGINE
from paceline.plan.reasons import helps
from paceline.plan.search.best_layout import Profiles, best_on
from paceline.profile.families import decoder
from paceline.specs import Cluster, CollectiveCost, Layout, PacelineError
from paceline.specs.measurements.cluster import Tier
from paceline.specs.plans.sync import default_sync
from plan.shapes import SMALL, cluster, layouts, on, steps

PROFILES: Profiles = {"bf16": decoder(SMALL)}
LEAF = Tier(name="leaf", nodes=4, oversubscription=3.0)
SPINE = Tier(name="spine", nodes=16, oversubscription=2.0)


def with_tiers(where: Cluster, *tiers: Tier) -> Cluster:
    return where.model_copy(update={"tiers": tiers})


def shares(where: Cluster, members: list[float], stride: list[float]) -> list[float]:
    """Rates between nodes, relative to those without tiers."""
    numbers = Coefficients.prior()
    sizes = np.array(members), np.array(stride)
    rates = [
        np.broadcast_to(group_of(each, numbers, *sizes).between_rate, len(members))
        for each in (where, with_tiers(where))
    ]
    return list(rates[0] / rates[1])


def test_a_group_below_a_switch_has_the_full_rate() -> None:
    where = with_tiers(cluster(nodes=64), LEAF, SPINE)
    assert shares(
        where,
        # in a node; 2 and 4 nodes; 3 nodes, of which some cross both tiers; 8, 16 and 64 nodes
        members=[8, 16, 32, 24, 64, 128, 512],
        stride=[1, 1, 1, 1, 1, 1, 1],
    ) == pytest.approx([1, 1, 1, 1 / 6, 1 / 3, 1 / 3, 1 / 6])
    # a member per node, or per leaf
    assert shares(where, members=[4, 4], stride=[8, 32]) == pytest.approx([1, 1 / 3])


def test_nodes_of_one_leaf_cross_nothing() -> None:
    assert shares(with_tiers(cluster(nodes=3), LEAF), [24], [1]) == [1]


one_layout = st.lists(layouts, min_size=1, max_size=1)
tiers = st.builds(
    Tier,
    name=st.just("leaf"),
    nodes=st.integers(1, 64),
    oversubscription=st.floats(1, 16),
)


@settings(max_examples=max(10, settings().max_examples // 3))
@given(one_layout, tiers)
def test_oversubscription_never_makes_a_step_faster(chosen: list[Layout], tier: Tier) -> None:
    what, found = steps(*chosen), from_priors()
    nodes = max(1, -(-chosen[0].workers // 8))
    plain = cluster(nodes=nodes, between=0.1)

    def seconds(where: Cluster) -> float:
        return float(found.predict(on(where, what))[0][0])

    equal = tier.model_copy(update={"oversubscription": 1.0})
    assert seconds(with_tiers(plain, equal)) == seconds(plain)
    assert seconds(with_tiers(plain, tier)) >= seconds(plain) * (1 - 1e-12)
    if nodes <= tier.nodes:
        assert seconds(with_tiers(plain, tier)) == seconds(plain)


def test_the_search_avoids_links_that_many_share() -> None:
    plain = cluster(nodes=16, between=0.2)
    where = with_tiers(plain, Tier(name="leaf", nodes=4, oversubscription=8.0))
    found, sync = from_priors(), default_sync()
    free, shared = (best_on(PROFILES, each, 1024, found, sync) for each in (plain, where))
    assert shared.estimate.step_seconds.value > free.estimate.step_seconds.value
    said = helps(shared, PROFILES, where, found, sync, ENGINE)
    assert "switches without oversubscription" in {each.change for each in said}


def test_measured_groups_have_their_links_in_them() -> None:
    """A probe over two leaves has measured the oversubscription: it must not count twice."""
    measured = CollectiveCost(
        operation="all-reduce",
        members=64,
        members_per_node=8,
        latency_seconds=1e-4,
        bytes_per_second=1e9,
    )
    where = with_tiers(cluster(nodes=8), LEAF).model_copy(update={"collectives": (measured,)})
    numbers = Coefficients.prior()
    group = group_of(where, numbers, np.array([64.0]), 1.0)
    seconds = COLLECTIVES["all-reduce"](np.array([1e9]), group)
    assert seconds == pytest.approx(1e-4 + 1.0, rel=1e-3)


FILE = """
nodes = 64
devices_per_node = 8
device = "h100-80gb"
inside = "nvlink4"
between = "infiniband-ndr"

[[tiers]]
name = "leaf"
nodes = {leaf}
oversubscription = 1.0

[[tiers]]
name = "spine"
nodes = 32
oversubscription = 2.0
"""


def test_tiers_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(FILE.format(leaf=8))
    assert [each.nodes for each in read_cluster(file).tiers] == [8, 32]
    file.write_text(FILE.format(leaf=33))
    with pytest.raises(PacelineError, match="spine has 32 nodes below a switch, leaf before it 33"):
        read_cluster(file)
