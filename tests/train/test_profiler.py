"""Steps that real workers record, and the clocks of their nodes."""

import gzip
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import paceline
from paceline.observe.traces.chrome_trace import join_traces, worker_traces
from paceline.report import RunReader, render
from paceline.report.run.sections.trace import trace_figures
from paceline.schedulers.task_placement import placement, run_folder
from paceline.specs import Layout, PacelineError, Run, Traced
from paceline.testbed.paced import PacedCost, paced_model
from paceline.train.elastic.joined_groups import joined
from paceline.train.monitor.clock_offset import clock_offset
from paceline.train.monitor.profiler import recording_ranks
from ranks import new_run, run_ranks
from train.trainings import CLASSES, FEATURES, classification

pytestmark = pytest.mark.alone

DELAY_SECONDS = 0.03
SHIFTS_SECONDS = (0.0, 3.25, -7.0)
"""By which the clocks of three nodes are ahead."""


def fit(changes: dict[str, Any]) -> None:
    original = dist.Work.wait
    paceline.fit(classification(**changes))
    assert dist.Work.wait is original


def recorded(
    folder: Path, layout: Layout, trace_steps: int = 3, function: Any = fit, **changes: Any
) -> tuple[Run, list[Traced], list[dict[str, Any]]]:
    """Train on two workers; what they recorded, and all events on one clock."""
    run = new_run(folder, 2, layout)
    run.job.model_copy(update={"trace_steps": trace_steps}).write(run.job_file)
    run_ranks(function, 2, folder, {"steps": 12} | changes, run=run)
    traces = worker_traces(run)
    join_traces(traces, folder / "trace.json.gz")
    events = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))["traceEvents"]
    return run, [each.traced for each in traces.values()], events


def spans(events: list[dict[str, Any]], rank: int, begin: str) -> list[tuple[float, float]]:
    """Begin and end in seconds of a worker's spans with such a name, in their order."""
    return sorted(
        (each["ts"] / 1e6, (each["ts"] + each["dur"]) / 1e6)
        for each in events
        if each["ph"] == "X" and each["pid"] == rank and each["name"].startswith(begin)
    )


def assert_spans_nest(events: list[dict[str, Any]]) -> None:
    """On every track, as viewers need it; to the nanosecond that times are rounded to."""
    open_ends: dict[tuple[int, int], list[float]] = {}
    drawn = [each for each in events if each["ph"] == "X"]
    for each in sorted(drawn, key=lambda each: (each["ts"], -each["dur"])):
        ends = open_ends.setdefault((each["pid"], each["tid"]), [])
        while ends and ends[-1] <= each["ts"] + 2e-3:
            ends.pop()
        end = each["ts"] + each["dur"]
        assert not ends or end <= ends[-1] + 2e-3, each
        ends.append(end)


def in_blocks() -> nn.Module:
    """A model that can be cut into stages."""
    blocks = [nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Tanh()) for _ in range(4)]
    return nn.Sequential(nn.Sequential(*blocks), nn.Linear(FEATURES, CLASSES))


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(Layout(replicas=2), id="copied"),
        pytest.param(Layout(shards=2), id="sharded"),
        pytest.param(Layout(pipeline=2), id="piped"),
        pytest.param(Layout(tensor=2), id="sliced", marks=pytest.mark.nightly),
    ],
)
def test_both_workers_record_the_same_steps(tmp_path: Path, layout: Layout) -> None:
    run, traced, events = recorded(tmp_path, layout, model=in_blocks)
    assert [each.rank for each in traced] == [0, 1]
    for each in traced:
        assert (each.first, each.steps) == (6, 3)
        assert 0 < each.communication_seconds < each.step_seconds
        assert 0 <= each.overlapped_seconds <= each.communication_seconds
        assert abs(each.clock_offset_seconds) < 5e-3
        steps = spans(events, each.rank, "step ")
        assert len(steps) == 3
        carried = spans(events, each.rank, "gloo:")
        assert carried
        # Nobody waits for the sums of how fast workers are: one may reach over the edge of a step.
        assert all(begin <= steps[-1][1] and end >= steps[0][0] for begin, end in carried)
        if layout.shards > 1:
            # On CPUs, sharded layers exchange nothing while they compute; they wait inside of
            # operations, which torch must not do where no mark is left.
            assert each.overlapped_seconds < 0.1 * each.communication_seconds
            assert len(spans(events, each.rank, "wait for others")) >= len(carried)
    assert_spans_nest(events)
    assert RunReader(run).refresh().traced == traced


def fit_paced(changes: dict[str, Any]) -> None:
    """Worker 1 takes longer; gradients of the last layers travel while the first one computes."""
    late = DELAY_SECONDS * int(os.environ["PACELINE_RANK"])
    first, last = PacedCost(0.0, DELAY_SECONDS, 4), PacedCost(late, 0.0, 1_500_000)
    paceline.fit(
        classification(
            model=lambda: nn.Sequential(paced_model([first, last]), nn.Linear(FEATURES, CLASSES)),
            **changes,
        )
    )


def test_waiting_for_a_late_worker_is_seen(tmp_path: Path) -> None:
    run, (early, late), events = recorded(tmp_path, Layout(replicas=2), function=fit_paced)
    # The first worker's gradients are begun to be exchanged so much earlier, while its first layer
    # computes for as long.
    assert early.overlapped_seconds > 0.5 * DELAY_SECONDS
    assert late.communication_seconds < early.communication_seconds
    sent = [spans(events, rank, "gloo:all_reduce") for rank in (0, 1)]
    assert len(sent[0]) == len(sent[1])
    for one, other in zip(*sent, strict=True):
        # Nobody is done before everybody has begun.
        assert min(one[1], other[1]) > max(one[0], other[0]) - 5e-3
    found = trace_figures(RunReader(run).refresh())
    assert found is not None
    assert found.workers == [early, late]
    assert found.overlapped_seconds + found.exposed_seconds == pytest.approx(
        found.communication_seconds
    )
    assert "In steps 6 to 8, traced on 2 workers, communication took" in render(run)


@pytest.mark.parametrize(("steps", "first", "count"), [(2, 1, 2), (6, 4, 3)])
def test_a_short_run_warms_up_less(tmp_path: Path, steps: int, first: int, count: int) -> None:
    _, traced, events = recorded(tmp_path, Layout(replicas=2), steps=steps)
    assert {(each.first, each.steps) for each in traced} == {(first, count)}
    assert spans(events, 0, f"step {first + count - 1}")


def _offset() -> tuple[float, float] | None:
    """Of the clock of this worker's node, where each node has two; worker 4 records nothing."""
    folder = run_folder()
    assert folder is not None
    here, found = placement(), None
    ahead = SHIFTS_SECONDS[here.rank // 2]
    with joined(Run.open(folder), here, torch.device("cpu"), None) as groups:
        groups.placement = replace(here, local_rank=here.rank % 2, local_workers=2)
        if here.rank != 4:
            offset = clock_offset(groups, (0, 1, 2, 3, 5), lambda: time.time() + ahead)
            found = offset.seconds, offset.uncertainty_seconds
        groups.sum(torch.zeros(1))  # worker 0 keeps the store
    return found


def test_clocks_of_other_nodes_are_found(tmp_path: Path) -> None:
    found = run_ranks(_offset, 6, tmp_path)
    assert found[:2] == [(0.0, 0.0)] * 2
    assert found[2] == found[3]
    assert found[4] is None
    for rank in (3, 5):
        seconds, uncertainty = found[rank]
        assert 0 < uncertainty < 5e-3
        assert abs(seconds - SHIFTS_SECONDS[rank // 2]) <= uncertainty


def _fit_profiled() -> None:
    with torch.profiler.profile(), pytest.raises(PacelineError) as caught:
        paceline.fit(classification())
    assert "the training runs its own profiler" in caught.value.problem
    assert caught.value.fix == "leave out --trace, or the profiler"


def test_a_profiler_of_the_users_own_is_in_the_way(tmp_path: Path) -> None:
    run = new_run(tmp_path, 1)
    run.job.model_copy(update={"trace_steps": 3}).write(run.job_file)
    run_ranks(_fit_profiled, 1, tmp_path, run=run)


@pytest.mark.parametrize("workers", [1, 2, 16, 17, 24, 100_000])
def test_of_many_workers_some_record(workers: int) -> None:
    ranks = recording_ranks(workers)
    assert len(set(ranks)) == min(workers, 16)
    assert ranks[0] == 0
    gaps = {later - earlier for earlier, later in zip(ranks, [*ranks[1:], workers], strict=True)}
    assert max(gaps) - min(gaps) <= 1
