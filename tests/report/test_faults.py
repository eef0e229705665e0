"""What is said of a run whose workers were lost, slow or wrong while it went on."""

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.report import ReportedRun, RunReader, RunState
from paceline.report.run.fault_history import fault_figures
from paceline.report.run.goodput import goodput_sentence
from paceline.specs import AnyEvent, Event, Run, event_adapter
from report.faulty import faulty_run, lost, often_regrouped_run, on, refused, regrouped, slow
from report.folders import (
    BATCH,
    empty_run,
    ended,
    failed,
    finished,
    interrupted_run,
    realistic_run,
    resumed,
    saved,
    say,
    started,
    steps,
)


def read(run: Run) -> RunState:
    return RunReader(run).refresh()


def state_of(folder: Path, *events: Event) -> RunState:
    run = empty_run(folder)
    for event in events:
        say(run, event)
    return read(run)


def test_a_regroup_is_a_short_interruption_and_no_restart(tmp_path: Path) -> None:
    state = read(faulty_run(tmp_path, began=1000.0))
    assert (state.status, state.restarts, state.generation) == ("finished", 0, 2)
    assert state.step == list(range(1, 101))
    first, second = state.interruptions
    assert first.cause == "worker 2 on n3 lost: its connection ended"
    assert (first.reached, first.resumed, first.lost_steps) == (38, 38, 0)
    assert (first.workers, first.workers_after) == (4, 3)
    assert first.away_seconds == pytest.approx(0.2)
    assert second.cause == "worker 0 on n1 lost: nothing heard for 1.5 s"
    assert (second.reached, second.resumed, second.lost_steps) == (60, 55, 5)
    assert second.away_seconds == pytest.approx(2.0)
    assert second.lost_seconds == pytest.approx(2.5)


def test_figures_for_programs(tmp_path: Path) -> None:
    report = ReportedRun.read(faulty_run(tmp_path, began=1000.0))
    found = report.summary
    assert (found.steps, found.samples, found.restarts) == (100, 100 * BATCH, 0)
    assert (found.workers, found.nodes, found.hosts) == (3, 3, ["n2", "n3", "n4"])
    assert found.startup_seconds == 3.3  # of the start, not of a regroup
    fields = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert [each.get("source") for each in fields["interruptions"]] == ["members", "peers"]
    faults = fields["faults"]
    goodput, events = faults.pop("goodput"), faults.pop("events")
    assert faults == {
        "workers": 3,
        "planned_workers": 4,
        "lost_workers": 2,
        "joined_workers": 1,
        "regroups": 2,
        "slow_workers": 1,
        "refused_steps": 1,
        "steps_again": 5,
    }
    # 12.7 s in all: 0.2 and 2.0 s away, five steps again, one refused within the steps that count.
    assert goodput == pytest.approx(
        {
            "share": 9.9 / 12.7,
            "wall_seconds": 12.7,
            "training_seconds": 9.9,
            "regroup_seconds": 2.2,
            "restart_seconds": 0.0,
            "again_seconds": 0.5,
            "refused_seconds": 0.1,
            "other_seconds": 0.0,
        }
    )
    assert [(each["what"], each["step"], each["who"]) for each in events] == [
        ("lost", 38, "worker 2 on n3"),
        ("regrouped", 38, "3 workers"),
        ("slow", 45, "worker 1 on n2"),
        ("refused", 50, "worker 1"),
        ("lost", 60, "worker 0 on n1"),
        ("regrouped", 55, "3 workers, 1 of them new"),
    ]
    assert [each["lost_seconds"] for each in events if each["lost_seconds"]] == pytest.approx(
        [0.2, 0.1, 2.5]
    )


def test_goodput_in_words(tmp_path: Path) -> None:
    found = fault_figures(read(faulty_run(tmp_path))).goodput
    assert goodput_sentence(found) == (
        "Goodput 78 %: 9.90 s of the 12.7 s since the first step were productive training; 2.80 s"
        " were lost: 2.20 s in regroups, 500 ms in repeated steps, 100 ms in refused steps"
        " (estimated)."
    )


def test_a_run_without_faults_has_a_goodput_of_one(tmp_path: Path) -> None:
    found = fault_figures(read(realistic_run(tmp_path)))
    assert not found.seen
    assert found.events == []
    assert found.goodput.share == pytest.approx(1.0)
    before = fault_figures(read(empty_run(tmp_path / "empty"))).goodput
    assert (before.share, goodput_sentence(before)) == (None, "")


def test_restarts_cost_goodput_too(tmp_path: Path) -> None:
    found = fault_figures(read(interrupted_run(tmp_path)))
    assert not found.seen
    # The failure was noticed long after nothing was trained any more.
    assert [(each.what, each.source) for each in found.events] == [
        ("interrupted", "checkpoint"),
        ("failed", None),
        ("interrupted", "checkpoint"),
    ]
    assert found.goodput.again_seconds == pytest.approx(1.8)
    assert found.goodput.restart_seconds == pytest.approx(100 - 3.8 + 400 - 105)
    assert found.goodput.training_seconds == pytest.approx(10.0)


def test_a_restart_after_regroups_counts_once(tmp_path: Path) -> None:
    state = state_of(
        tmp_path,
        *(started(0, at=0.0), steps(1, [3.0] * 10, at=1.0), saved(5, at=0.5)),
        *(lost(2, at=1.1), regrouped(1, 10, at=1.2), failed(1, "no memory", at=2.0, generation=1)),
        *(resumed(5, generation=2, at=9.0), started(0, generation=2, at=9.0)),
        steps(6, [2.0] * 5, generation=2, at=9.5),
        *(lost(3, at=9.6, generation=2), regrouped(4, 10, at=9.8)),
    )
    # The regroup of number 3 came to nothing, and was no start.
    assert (state.restarts, state.generation, state.status) == (1, 4, "running")
    assert [state.start_number(each) for each in range(5)] == [1, 1, 2, 2, 2]
    assert [each.regrouped is None for each in state.interruptions] == [False, True, False]
    assert state.interruptions[1].cause == "worker 1: no memory"
    assert state.step == list(range(1, 11))


def test_workers_that_start_before_the_regroup_is_told_take_no_steps_away(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    reader = RunReader(run)
    for event in (started(0, at=0.0), steps(1, [3.0] * 10, at=1.0), lost(2, at=1.1)):
        say(run, event)
    say(run, started(0, generation=1, workers=3, at=1.2))
    early = reader.refresh()
    assert (len(early.step), early.interruptions[0].resumed) == (10, None)
    say(run, regrouped(1, 9, at=1.2, steps_again=1))
    state = reader.refresh()
    assert (len(state.step), state.interruptions[0].resumed) == (9, 9)


@pytest.mark.parametrize("generation", [0, 1])
def test_the_last_words_may_name_any_generation_of_the_start(
    tmp_path: Path, generation: int
) -> None:
    state = state_of(
        tmp_path,
        *(started(0, at=0.0), steps(1, [3.0] * 10, at=1.0)),
        *(regrouped(1, 10, at=1.2), steps(11, [2.0] * 5, generation=1, at=1.7)),
        *(finished(15, generation=generation), ended(0, generation=generation)),
    )
    assert (state.status, state.over) == ("finished", True)
    limit = state_of(
        tmp_path / "limit",
        *(started(0, at=0.0), steps(1, [3.0] * 10, at=1.0), regrouped(1, 10, at=1.2)),
        finished(10, generation=generation, outcome="interrupted"),
    )
    assert (limit.status, limit.interruptions[-1].cause) == ("waiting", "time limit")


def test_steps_that_nobody_lived_to_write_count(tmp_path: Path) -> None:
    """Worker 0 was lost with its last half second: what it took is known, its losses are not."""
    state = state_of(
        tmp_path,
        *(started(0, at=0.0), steps(1, [3.0] * 10, at=1.0), lost(0, at=1.6, node="n2")),
        regrouped(1, 14, at=1.7, seconds=0.1, node="n2", lost=[0]),
        on("n2", steps(15, [2.0] * 3, generation=1, at=2.0)),
    )
    (only,) = state.interruptions
    assert (only.reached, only.resumed, only.lost_steps) == (14, 14, 0)
    assert only.away_seconds == pytest.approx(0.3)
    assert fault_figures(state).goodput.share == pytest.approx(1.7 / 2.0)


def test_who_was_lost_is_told_once(tmp_path: Path) -> None:
    both = [lost(1, at=1.2, node="n3"), lost(1, at=1.1, node="n4"), lost(0, at=1.1, node="n3")]
    state = state_of(
        tmp_path,
        *(started(0, at=0.0), steps(1, [3.0] * 10, at=1.0), *both),
        failed(1, "killed by SIGKILL", at=1.3),
        regrouped(1, 10, at=1.2, lost=[0, 1], workers=2),
    )
    found = fault_figures(state)
    assert found.lost_workers == 2
    assert [each.what for each in found.events] == ["lost", "lost", "regrouped"]
    assert state.interruptions[0].cause == ("worker 0 on n1 lost, and 1 more: its connection ended")


def lines_in(run: Run) -> dict[str, list[str]]:
    return {file.name: file.read_text().splitlines() for file in run.events.glob("*.jsonl")}


@pytest.mark.parametrize("seed", range(6))
def test_steps_count_once_in_whatever_order_files_are_read(tmp_path: Path, seed: int) -> None:
    run = faulty_run(tmp_path)
    expected = ReportedRun.read(run).to_dict()
    files = [list(map(event_adapter.validate_json, lines)) for lines in lines_in(run).values()]
    state = RunState(job=run.job, plan=run.plan)
    chance = random.Random(seed)
    while any(files):
        file = chance.choice([file for file in files if file])
        state.take(file.pop(0), 0.0)
        assert state.step == sorted(set(state.step))
        share = fault_figures(state).goodput.share
        assert share is None or 0 <= share <= 1
    assert ReportedRun(run, state).to_dict() == expected


@pytest.fixture(scope="module")
def reused_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return empty_run(tmp_path_factory.mktemp("runs"))


_SECONDS = st.floats(0, 10, allow_nan=False)
_TIMES = st.floats(0, 1e6)


@st.composite
def any_story(draw: st.DrawFn) -> list[AnyEvent]:
    """Generations of steps and faults by clocks that jump, in any order."""
    events: list[Event] = []
    for generation in range(draw(st.integers(1, 5))):
        first = draw(st.integers(1, 30))
        if generation and draw(st.booleans()):
            events.append(
                regrouped(
                    *(generation, first - 1),
                    at=draw(_TIMES),
                    seconds=draw(_SECONDS),
                    steps_again=draw(st.integers(0, 9)),
                )
            )
        taken = draw(st.lists(_SECONDS, max_size=5))
        losses = [1.0] * len(taken)
        events.append(steps(first, losses, seconds=taken, generation=generation, at=draw(_TIMES)))
        faults: Sequence[Event] = [
            lost(1, at=draw(_TIMES), generation=generation),
            refused(first, [0], at=draw(_TIMES), generation=generation),
            slow(0, first, at=draw(_TIMES), generation=generation),
        ]
        events += draw(st.lists(st.sampled_from(faults), max_size=4))
    return draw(st.permutations([event_adapter.validate_json(e.model_dump_json()) for e in events]))


@settings(deadline=None, max_examples=150)
@given(any_story())
def test_goodput_is_a_share_and_its_parts_are_all_of_the_time(
    reused_run: Run, events: list[AnyEvent]
) -> None:
    state = RunState(job=reused_run.job, plan=reused_run.plan)
    for event in events:
        state.take(event, 0.0)
    assert all(one < other for one, other in itertools.pairwise(state.step))
    found = fault_figures(state).goodput
    assert (found.share is None) == (found.wall_seconds == 0)
    assert found.share is None or 0 <= found.share <= 1
    parts = found.model_dump(exclude={"share", "wall_seconds"})
    assert min(parts.values()) >= 0
    assert sum(parts.values()) == pytest.approx(found.wall_seconds, abs=1e-9)


def test_five_hundred_regroups(tmp_path: Path) -> None:
    report = ReportedRun.read(often_regrouped_run(tmp_path, 500))
    found = fault_figures(report.state)
    assert (report.summary.restarts, report.summary.steps, found.regroups) == (0, 4500, 500)
    assert found.goodput.share == pytest.approx(0.9, abs=1e-3)
