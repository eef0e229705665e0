"""A cluster from what workers measured, and who is slower than the others."""

import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.catalog import read_cluster
from paceline.cluster.probe.assemble import cluster_of
from paceline.cluster.probe.cases import groupings, partners
from paceline.cluster.probe.outliers import remarks
from paceline.specs.measurements.cluster import MatmulRate
from paceline.specs.measurements.probe import CollectiveTime, PairRate, Probed, ProbedWorker

DAY = datetime.date(2026, 1, 2)
LINK = 1e8


def worker(node: int, flops: float = 1e11) -> ProbedWorker:
    return ProbedWorker(
        node=f"n{node + 1}",
        device="Some CPU, 1 core",
        kind="cpu",
        units=1,
        launch_seconds=2e-6,
        memory_bytes=1 << 34,
        memory_bytes_per_second=1e10,
        matmuls=(
            MatmulRate(size=128, precision="fp32", flops_per_second=0.5 * flops),
            MatmulRate(size=256, precision="fp32", flops_per_second=flops),
            MatmulRate(size=256, precision="bf16", flops_per_second=4 * flops),
        ),
        best_flops=flops,
    )


def probed(
    nodes: int,
    devices: int = 1,
    slow_links: dict[int, float] | None = None,
    slow_nodes: dict[int, float] | None = None,
    interfaces: int = 1,
) -> Probed:
    """Sends over links of LINK, of which some nodes have a slower one."""
    links = {node: LINK * (slow_links or {}).get(node, 1.0) for node in range(nodes)}
    rate = {True: 10 * LINK, False: LINK * interfaces / devices}
    return Probed(
        nodes=nodes,
        devices_per_node=devices,
        backend="gloo",
        interface="eth0",
        workers=tuple(
            worker(node, 1e11 * (slow_nodes or {}).get(node, 1.0))
            for node in range(nodes)
            for _ in range(devices)
        ),
        collectives=tuple(
            CollectiveTime(
                operation="send",
                members=2,
                members_per_node=each.per_node,
                nbytes=size,
                seconds=1e-4 + size / rate[each.per_node == 2],
            )
            for each in groupings(nodes, devices)
            if each.members == 2
            for size in (1 << 12, 1 << 16, 1 << 20, 1 << 24)
        ),
        pairs=tuple(
            PairRate(nodes=(one, other), bytes_per_second=min(links[one], links[other]))
            for partner in partners(nodes)
            for one, other in partner.items()
            if one < other
        ),
    )


@given(nodes=st.integers(3, 40), data=st.data(), by=st.floats(0.05, 0.75))
def test_a_slow_link_is_named_and_its_partners_are_not(
    nodes: int, data: st.DataObject, by: float
) -> None:
    slow = data.draw(st.integers(0, nodes - 1))
    found = remarks(probed(nodes, slow_links={slow: by}))
    assert found == (f"n{slow + 1}: link at {by:.2f} of the median",)


def test_a_slow_device_is_named() -> None:
    found = remarks(probed(4, devices=2, slow_nodes={1: 0.5}))
    assert found == ("n2: matrix products at 0.50 of the median",)


def test_a_slow_way_between_two_good_nodes_is_named() -> None:
    whole = probed(6)
    worse = whole.pairs[4].model_copy(update={"bytes_per_second": 0.3 * LINK})
    pairs = (*whole.pairs[:4], worse, *whole.pairs[5:])
    one, other = worse.nodes
    found = remarks(whole.model_copy(update={"pairs": pairs}))
    assert found == (f"n{one + 1} to n{other + 1}: link at 0.30 of the median",)


def test_nobody_is_slow_among_equals_and_nobody_can_say_of_two() -> None:
    assert remarks(probed(5, slow_links={2: 0.85})) == ()
    assert remarks(probed(2, slow_links={1: 0.1}, slow_nodes={0: 0.1})) == ()


@pytest.mark.parametrize("interfaces", [1, 2, 4])
def test_interfaces_are_counted_by_what_devices_reach_together(interfaces: int) -> None:
    cluster = cluster_of(probed(2, devices=4, interfaces=interfaces), DAY)
    assert cluster.interfaces_per_node == interfaces
    assert cluster.between.bytes_per_second == pytest.approx(LINK)
    assert cluster.network_bytes_per_second == pytest.approx(LINK * interfaces / 4)
    assert cluster.inside.bytes_per_second == pytest.approx(10 * LINK)
    assert cluster.inside.latency_seconds == pytest.approx(1e-4)


def test_the_device_is_what_was_measured(tmp_path: Path) -> None:
    cluster = cluster_of(probed(3, slow_nodes={0: 0.5}), DAY)
    device = cluster.device
    assert device.peak_flops == {"fp32": 1e11, "bf16": 4e11}
    assert (device.matmul_efficiency, device.sustained) == (1.0, 1.0)
    assert (device.kind, device.units) == ("cpu", 1)
    assert device.source == "measured by paceline probe on 2026-01-02"
    cluster.write(tmp_path / "cluster.toml")
    assert read_cluster(tmp_path / "cluster.toml") == cluster


def test_links_that_are_not_there_are_assumed() -> None:
    flat = cluster_of(probed(3), DAY)
    assert flat.inside.bytes_per_second == flat.between.bytes_per_second
    assert flat.inside.source == "assumed: as between nodes"
    node = cluster_of(probed(1, devices=2), DAY)
    assert node.between.source == "assumed: as inside the node"
    alone = cluster_of(probed(1), DAY)
    assert alone.inside.source.startswith("assumed: memory")
