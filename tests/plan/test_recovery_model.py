"""The goodput of ways to recover: the closed formula against failures that are drawn."""

import heapq
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.plan.goodput_model import (
    Recovery,
    best_interval,
    nodes_short,
    useful_fraction,
)
from paceline.plan.training_cost import recovery_of
from paceline.specs import Faults, Layout, PacelineError
from plan.shapes import cluster

DISK = Recovery(detection_seconds=30, restart_seconds=300, checkpoint_seconds=30)
PEERS = replace(DISK, uncovered=0.1, regroup_seconds=60, copy_interval_seconds=60, copy_seconds=0.5)
SMALLER = replace(PEERS, return_seconds=7200, nodes_per_replica=2)
"""Goes on with what is left."""
ONE_POINT = 0.01


@pytest.mark.parametrize(
    ("recovery", "nodes", "between"),
    [
        (DISK, 100, 10_000.0),
        (DISK, 100, 2000.0),
        (PEERS, 100, 5000.0),
        (PEERS, 100, 2000.0),
        (replace(PEERS, uncovered=0.5), 100, 3000.0),
        (SMALLER, 100, 3000.0),
        (replace(SMALLER, spares=2), 30, 3000.0),
        (replace(SMALLER, spares=6), 30, 3000.0),
    ],
)
def test_the_formula_is_within_a_point_of_drawn_failures(
    recovery: Recovery, nodes: int, between: float
) -> None:
    drawn = simulate(recovery, nodes, between, failures=3000, seed=5)
    assert recovery.useful_fraction(nodes, between) == pytest.approx(drawn, abs=ONE_POINT)


@settings(max_examples=5, deadline=None, derandomize=True)
@given(
    detection=st.floats(0.1, 60),
    regroup=st.floats(0.1, 60),
    copies=st.floats(60, 200),
    stall=st.floats(0, 1),
    uncovered=st.floats(0, 0.5),
    spares=st.integers(0, 3),
    between=st.floats(1500, 4000),
)
def test_any_recovery_is_within_a_point_of_drawn_failures(
    detection: float,
    regroup: float,
    copies: float,
    stall: float,
    uncovered: float,
    spares: int,
    between: float,
) -> None:
    recovery = Recovery(
        detection_seconds=detection,
        restart_seconds=300,
        checkpoint_seconds=20,
        uncovered=uncovered,
        regroup_seconds=regroup,
        copy_interval_seconds=copies,
        copy_seconds=stall,
        return_seconds=4000,
        spares=spares,
    )
    drawn = simulate(recovery, 50, between, failures=1500, seed=11)
    assert recovery.useful_fraction(50, between) == pytest.approx(drawn, abs=ONE_POINT)


def simulate(recovery: Recovery, nodes: int, between: float, *, failures: int, seed: int) -> float:
    """Event by event: failures at any time, copies, checkpoints, nodes that come back."""
    random = np.random.default_rng(seed)
    interval = recovery.checkpoint_interval(between)
    away: list[float] = []
    now = work = copied = saved = 0.0
    stands_until, from_disk = 0.0, False
    until_copy, until_save = recovery.copy_interval_seconds, interval
    next_failure = random.exponential(between)
    while failures:
        short = max(0, len(away) - recovery.spares)
        rate = max(0.0, 1 - short * recovery.nodes_per_replica / nodes)
        trains_from = max(now, stands_until)
        ends = {
            "failure": next_failure,
            "back": away[0] if away else np.inf,
            "copy": trains_from + until_copy if recovery.uncovered < 1 else np.inf,
            "save": trains_from + until_save,
        }
        event = min(ends, key=lambda name: ends[name])
        trained = max(0.0, ends[event] - trains_from)
        now = ends[event]
        work += trained * rate
        until_copy -= trained
        until_save -= trained
        if event == "back":
            heapq.heappop(away)
        elif event == "copy":
            copied, until_copy = work, recovery.copy_interval_seconds
            stands_until = now + recovery.copy_seconds
        elif event == "save":
            saved, until_save = work, interval
            stands_until = now + recovery.checkpoint_seconds
        else:
            failures -= 1
            next_failure = now + random.exponential(between)
            heapq.heappush(away, now + recovery.return_seconds)
            # Whoever fails while others come back from disk delays that again.
            from_disk = random.random() < recovery.uncovered or (from_disk and now < stands_until)
            again = recovery.restart_seconds if from_disk else recovery.regroup_seconds
            stands_until = now + recovery.detection_seconds + again
            work = saved if from_disk else copied
            copied = work
            until_copy = recovery.copy_interval_seconds
            if from_disk:
                until_save = interval
    return work / now


def test_without_peers_it_is_dalys() -> None:
    interval = best_interval(30, 5000)
    assert DISK.useful_fraction(10, 5000) == useful_fraction(interval, 30, 330, 5000)


def test_every_failure_covered_needs_no_checkpoint() -> None:
    covered = replace(PEERS, uncovered=0.0)
    assert covered.checkpoint_interval(5000) == np.inf
    assert covered.useful_fraction(10, 5000) == useful_fraction(60, 0.5, 90, 5000)


@settings(deadline=None)
@given(away=st.floats(0, 20), spares=st.integers(0, 30))
def test_nodes_short_is_the_mean_beyond_the_spares(away: float, spares: int) -> None:
    chance, mean = math.exp(-away), 0.0
    for count in range(1, 200):
        chance *= away / count
        mean += max(0, count - spares) * chance
    assert nodes_short(away, spares) == pytest.approx(mean, abs=1e-9)


def test_a_plan_recovers_as_its_layout_and_faults_say() -> None:
    def of(layout: Layout, nodes: int, faults: Faults) -> Recovery:
        return recovery_of(layout, 2.0, 30.0, cluster(nodes=nodes), faults)

    replicas, shards = Layout(replicas=16), Layout(shards=16)
    for alone in (
        of(replicas, 1, Faults()),
        of(replicas, 2, Faults(regroup=False)),
        of(shards, 2, Faults(copy_every=0)),
    ):
        assert alone.uncovered == 1
    assert of(replicas, 2, Faults()).copy_interval_seconds == 2
    assert of(shards, 2, Faults()).copy_interval_seconds == 20
    assert of(shards, 2, Faults(copy_every=4)).copy_interval_seconds == 8
    assert of(shards, 2, Faults(lease_seconds=3)).detection_seconds == 3


def test_a_share_that_is_none() -> None:
    with pytest.raises(
        PacelineError, match=r"failures that only a checkpoint covers is 1\.5"
    ) as caught:
        replace(PEERS, uncovered=1.5)
    assert "between 0 and 1" in str(caught.value)
