"""The planner takes a measured collective as it is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.catalog import device, link
from paceline.cluster.collectives import COLLECTIVES
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.device_groups import group_of
from paceline.specs.measurements.cluster import Cluster, CollectiveCost

OPERATIONS = sorted(COLLECTIVES)
GROUPS = [(2, 2), (8, 8), (2, 1), (4, 1), (16, 1), (16, 8), (128, 8)]
sizes = st.floats(1, 1e11)


def plain(nodes: int = 64) -> Cluster:
    return Cluster(
        nodes=nodes,
        devices_per_node=8,
        device=device("h100-80gb"),
        inside=link("nvlink4"),
        between=link("infiniband-ndr"),
    )


def cost(operation: str, members: int, per_node: int, free: float = 3e4) -> CollectiveCost:
    """Other figures for every group, none of them as modelled."""
    return CollectiveCost.model_validate(
        {
            "operation": operation,
            "members": members,
            "members_per_node": per_node,
            "latency_seconds": 1e-4 * members,
            "bytes_per_second": 1e9 * per_node / members,
            "free_bytes": free,
        }
    )


PROBED = plain().model_copy(
    update={"collectives": tuple(cost(each, *group) for each in OPERATIONS for group in GROUPS)}
)


def seconds(
    operation: str, nbytes: float, members: int, per_node: int, cluster: Cluster, **moved: float
) -> float:
    numbers = Coefficients.prior()
    for name, by in moved.items():
        numbers = Coefficients(
            **{each: value * (by if each == name else 1.0) for each, value in vars(numbers).items()}
        )
    stride = 8.0 if per_node == 1 else 1.0
    group = group_of(cluster, numbers, np.array([float(members)]), stride)
    return float(COLLECTIVES[operation](np.array([nbytes]), group)[0])


@given(operation=st.sampled_from(OPERATIONS), group=st.sampled_from(GROUPS), nbytes=sizes)
def test_a_measured_line_is_taken_as_it_is(
    operation: str, group: tuple[int, int], nbytes: float
) -> None:
    """Whatever the priors say of rates and calls."""
    line = cost(operation, *group)
    expected = line.latency_seconds + max(nbytes - line.free_bytes, 0) / line.bytes_per_second
    assert seconds(operation, nbytes, *group, PROBED) == pytest.approx(expected, rel=1e-6)


def test_fitted_numbers_move_it_as_far_as_they_moved() -> None:
    usual = seconds("all-gather", 1e12, 16, 1, PROBED)
    assert seconds("all-gather", 1e12, 16, 1, PROBED, between_rate=0.5) == pytest.approx(
        2 * usual, rel=1e-3
    )
    assert seconds("all-gather", 1e12, 8, 8, PROBED, between_rate=0.5) == pytest.approx(
        seconds("all-gather", 1e12, 8, 8, PROBED)
    )


@given(operation=st.sampled_from(["all-reduce", "all-gather", "reduce-scatter"]), nbytes=sizes)
def test_between_measured_sizes_it_lies_between(operation: str, nbytes: float) -> None:
    found = [seconds(operation, nbytes, members, 1, PROBED) for members in (4, 8, 16)]
    assert found[0] <= found[1] <= found[2]


def test_beyond_measured_sizes_it_grows_as_modelled() -> None:
    for nbytes in (0.0, 1e15):
        grown = [seconds("all-gather", nbytes, each, 1, PROBED) for each in (16, 64)]
        modelled = [seconds("all-gather", nbytes, each, 1, plain()) for each in (16, 64)]
        assert grown[1] / grown[0] == pytest.approx(modelled[1] / modelled[0], rel=1e-4)


@given(nbytes=sizes, members=st.integers(2, 8))
def test_what_was_not_measured_stays_modelled(nbytes: float, members: int) -> None:
    between = tuple(each for each in PROBED.collectives if each.members != each.members_per_node)
    partly = PROBED.model_copy(update={"collectives": between})
    for operation in OPERATIONS:
        modelled = seconds(operation, nbytes, members, members, plain())
        assert seconds(operation, nbytes, members, members, partly) == pytest.approx(modelled)


def test_arrays_of_layouts_and_of_numbers_at_once() -> None:
    members = np.array([1.0, 2.0, 8.0, 16.0, 64.0])
    logs = np.vstack([Coefficients.prior().logs, Coefficients.prior().logs + 0.1])
    for operation in OPERATIONS:
        many = COLLECTIVES[operation](
            np.full(5, 1e6), group_of(PROBED, Coefficients.from_logs(logs), members, 1.0)
        )
        assert many.shape == (2, 5)
        assert (many[:, 0] == 0).all()
        one = group_of(PROBED, Coefficients.prior(), members, 1.0)
        assert many[0] == pytest.approx(COLLECTIVES[operation](np.full(5, 1e6), one))
