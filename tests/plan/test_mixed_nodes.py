"""Nodes of several kinds, with work by speed."""

from dataclasses import replace
from pathlib import Path

import pytest

from paceline.cluster.catalog import device
from paceline.plan.answer import plan_of
from paceline.plan.cost.node_kinds import first_nodes, node_speeds
from paceline.plan.inputs import PlanRequest
from paceline.plan.planner import make_plan
from paceline.specs import Cluster, PacelineError, Plan
from paceline.specs.measurements.cluster import MixedNodes
from plan.shapes import cluster

FILE = """
nodes = 4
devices_per_node = 8
device = "{main}"
inside = "nvlink3"
between = "infiniband-hdr"
"""
MIXED = """
[[mixed]]
nodes = {nodes}
device = "{other}"
"""
GPT = "gpt: layers=24 width=1024 heads=16 seq=1k vocab=50304"


def request(folder: Path, main: str, other: str | None = None, nodes: int = 2) -> PlanRequest:
    """A model on four nodes, some with another device."""
    file = folder / f"{main}-{other}-{nodes}.toml"
    mixed = MIXED.format(nodes=nodes, other=other) if other else ""
    file.write_text(FILE.format(main=main) + mixed)
    return PlanRequest(model=GPT, cluster=file, batch=(1024,), nodes=(4,), sync="allreduce")


def test_a_mixed_plan_lies_between_those_of_its_kinds(tmp_path: Path) -> None:
    """Before, a cluster had to be planned as if all nodes were the slowest."""
    fast, slow = "h100-80gb", "a100-80gb"
    seconds = [
        make_plan(request(tmp_path, *kinds)).answer.estimate.step_seconds.value
        for kinds in ((fast,), (fast, slow), (slow,))
    ]
    assert seconds == sorted(seconds)
    rates = [device(name).matmul_rate("bf16") for name in (fast, slow)]
    ideal = 2 / (1 / seconds[0] + 1 / seconds[2])
    assert seconds[1] == pytest.approx(ideal, rel=0.1)
    assert rates[0] > rates[1]


def test_a_second_kind_with_the_same_device_changes_nothing(tmp_path: Path) -> None:
    plain, same = (
        make_plan(request(tmp_path, "a100-80gb", other)).answer.estimate
        for other in (None, "a100-80gb")
    )
    assert same.layout.pipeline == 1
    assert same.layout.speeds is None
    if plain.layout == same.layout:
        assert same.step_seconds.value == pytest.approx(plain.step_seconds.value)


def test_the_plans_file_has_the_speeds(tmp_path: Path) -> None:
    said = make_plan(request(tmp_path, "h100-80gb", "a100-80gb", nodes=1)).answer
    speeds = said.estimate.layout.speeds
    assert speeds is not None
    assert speeds[:3] == (1, 1, 1)
    assert 0.2 < speeds[3] < 0.6
    assert said.estimate.layout.pipeline == 1
    assert said.node_short is None
    assert said.device == "h100-80gb and a100-80gb"
    assert any("3 with h100-80gb (speed 1.00) and 1 with a100" in each for each in said.remarks)
    plan_of(said).write(tmp_path / "plan.toml")
    assert Plan.read(tmp_path / "plan.toml").layout.speeds == speeds


def some(nodes: int) -> Cluster:
    """Four nodes with A100, of which the last have H100 with little memory."""
    small = device("h100-80gb").model_copy(update={"memory_bytes": 40 << 30})
    mixed = (MixedNodes(nodes=nodes, device=small),)
    return cluster(nodes=4).model_copy(update={"mixed": mixed})


def test_the_first_nodes_are_of_the_first_kind() -> None:
    where = some(nodes=1)
    assert first_nodes(where, 3).device == where.device
    assert node_speeds(where, 3, "bf16") is None
    four = first_nodes(where, 4)
    assert four.device.memory_bytes == 40 << 30
    fast, slow = device("h100-80gb").matmul_rate("bf16"), where.device.matmul_rate("bf16")
    assert four.device.matmul_rate("bf16") == pytest.approx((3 * slow + fast) / 4)
    assert node_speeds(where, 4, "bf16") == (*3 * [round(slow / fast, 3)], 1)


def test_what_cannot_be_planned_is_said(tmp_path: Path) -> None:
    mixed = request(tmp_path, "h100-80gb", "a100-80gb")
    with pytest.raises(PacelineError, match="only Paceline's engine gives them work"):
        make_plan(replace(mixed, sync=None, engine="megatron"))
    with pytest.raises(PacelineError, match="has 4 of the cluster's 4 nodes"):
        make_plan(request(tmp_path, "h100-80gb", "a100-80gb", nodes=4))
