"""A run that was started several times is one story, in whatever order its files are read."""

import random
from pathlib import Path

import pytest

from paceline.report import ReportedRun, RunReader, RunState, summary
from paceline.report.run.interruption_figures import (
    checkpoint_figures,
    interruption_figures,
    trouble_figures,
)
from paceline.specs import Damaged, Event, NotSaved, Run
from report.folders import (
    BATCH,
    empty_run,
    ended,
    failed,
    finished,
    interrupted_run,
    resumed,
    saved,
    say,
    started,
    steps,
    workers,
)


def state_of(folder: Path, *events: Event) -> RunState:
    run = empty_run(folder)
    for event in events:
        say(run, event)
    return RunReader(run).refresh()


def lines_of(run: Run) -> dict[str, list[str]]:
    return {file.name: file.read_text().splitlines() for file in run.events.glob("*.jsonl")}


def facts(state: RunState) -> tuple[object, ...]:
    """All that must not depend on the order of reading."""
    means = {rank: worker.mean_step_seconds for rank, worker in state.workers.items()}
    return (
        summary(state).model_dump(),
        interruption_figures(state),
        checkpoint_figures(state),
        state.step,
        state.loss,
        state.seconds,
        means,
        sorted(event.model_dump_json() for event in state.trouble),
    )


def test_three_starts_are_one_story(tmp_path: Path) -> None:
    state = RunReader(interrupted_run(tmp_path)).refresh()
    assert (state.status, state.restarts) == ("finished", 2)
    assert state.step == list(range(1, 101))
    first, second = state.interruptions
    assert (first.cause, first.reached, first.resumed) == ("worker 2: killed by SIGKILL", 38, 20)
    assert (first.workers, first.workers_after, first.lost_steps) == (4, 3, 18)
    # The failure was noticed 20 s after the beginning, but nothing was trained after 3.8 s.
    assert first.away_seconds == pytest.approx(100 - 3.8)
    assert (second.cause, second.reached, second.resumed) == ("time limit", 70, 70)
    assert (second.workers, second.workers_after, second.lost_steps) == (3, 2, 0)
    assert second.away_seconds == pytest.approx(400 - 105)


def test_totals_count_each_step_once(tmp_path: Path) -> None:
    run = interrupted_run(tmp_path)
    whole = summary(RunReader(run).refresh())
    assert (whole.steps, whole.samples) == (100, 100 * BATCH)
    assert whole.seconds == pytest.approx(10.0)
    # Without the last word the columns are added up, to the same.
    for file in run.events.glob("*.jsonl"):
        kept = [line for line in file.read_text().splitlines() if '"finished"' not in line]
        file.write_text("".join(f"{line}\n" for line in kept))
    state = RunReader(run).refresh()
    added = summary(state)
    assert (added.steps, added.samples) == (100, 100 * BATCH)
    assert added.seconds == pytest.approx(10.0)
    checkpoints = checkpoint_figures(state)
    assert checkpoints.count == 6
    # Training also stood still for steps that were taken again: 118 were taken.
    assert checkpoints.stall_share == pytest.approx(0.06 / 11.8)


@pytest.mark.parametrize("seed", range(8))
def test_files_may_appear_in_any_order_and_piece_by_piece(tmp_path: Path, seed: int) -> None:
    run = interrupted_run(tmp_path)
    expected = facts(RunReader(run).refresh())
    lines = lines_of(run)
    for file in run.events.glob("*.jsonl"):
        file.unlink()
    reader = RunReader(run)
    chance = random.Random(seed)
    while lines:
        name = chance.choice(sorted(lines))
        some = chance.randint(1, 4)
        with (run.events / name).open("a") as stream:
            stream.writelines(f"{line}\n" for line in lines[name][:some])
        state = reader.refresh()
        assert state.step == sorted(set(state.step))
        lines[name] = lines[name][some:]
        if not lines[name]:
            del lines[name]
    assert facts(reader.refresh()) == expected


def test_another_node_starts_before_it_is_known_what_was_resumed(tmp_path: Path) -> None:
    """Worker 0 may be on another node than before, whose file is read after the others."""
    run = empty_run(tmp_path)
    say(run, started(0, at=0.0))
    say(run, steps(1, [3.0] * 30, at=3.0))
    reader = RunReader(run)
    reader.refresh()
    say(run, started(1, generation=1, workers=2, at=10.0), file="a-node-first-read")
    early = reader.refresh()
    assert (len(early.step), early.interruptions[0].resumed) == (30, None)
    say(run, resumed(20, generation=1, at=9.0, node="z"))
    say(run, started(0, generation=1, workers=2, at=10.0), file="z")
    state = reader.refresh()
    assert (len(state.step), state.interruptions[0].resumed) == (20, 20)


def test_a_start_that_comes_late_takes_its_place(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    reader = RunReader(run)
    say(run, resumed(2, generation=1, at=10.0))
    say(run, started(0, generation=1, at=10.0))
    say(run, steps(3, [1.0, 0.9], generation=1, at=11.0))
    reader.refresh()
    say(run, started(0, at=0.0), file="slow-disk")
    say(run, steps(1, [3.0, 2.0, 1.5], at=0.3), file="slow-disk")
    say(run, failed(3, "late", at=0.4), file="slow-disk")
    state = reader.refresh()
    assert (state.step, state.loss) == ([1, 2, 3, 4], [3.0, 2.0, 1.0, 0.9])
    assert (state.status, state.generation) == ("running", 1)
    (only,) = state.interruptions
    assert (only.cause, only.reached, only.lost_steps) == ("worker 3: late", 3, 1)


def test_without_a_checkpoint_it_begins_again(tmp_path: Path) -> None:
    state = state_of(
        tmp_path,
        started(0, at=0.0),
        steps(1, [3.0, 2.0, 1.0], at=1.0),
        started(0, generation=1, at=5.0),
    )
    assert (state.step, state.status) == ([], "running")
    (only,) = state.interruptions
    assert (only.cause, only.resumed, only.lost_steps) == ("cut off", 0, 3)
    assert interruption_figures(state)[0].resumed_step == 0


def test_two_starts_from_the_same_checkpoint(tmp_path: Path) -> None:
    state = state_of(
        tmp_path,
        *(started(0, at=0.0), steps(1, [3.0] * 38, at=4.0), saved(20, at=4.0)),
        *(resumed(20, generation=1, at=9.0), started(0, generation=1, at=9.0)),
        steps(21, [2.0] * 10, generation=1, at=10.0),
        *(resumed(20, generation=2, at=19.0), started(0, generation=2, at=19.0)),
        steps(21, [1.0] * 2, generation=2, at=20.0),
    )
    assert state.step == list(range(1, 23))
    assert state.loss[19:] == [3.0, 1.0, 1.0]
    assert [each.lost_steps for each in state.interruptions] == [18, 10]


def test_a_start_that_never_trained_is_no_interruption_of_its_own(tmp_path: Path) -> None:
    state = state_of(
        tmp_path,
        *(started(0, at=0.0), steps(1, [3.0, 2.0], at=1.0), saved(2, at=1.0)),
        failed(0, "the run was started with batch=64", at=5.0, generation=1),
        *(resumed(2, generation=2, at=9.0), started(0, generation=2, at=9.0)),
    )
    (only,) = state.interruptions
    assert (only.cause, only.reached, only.resumed, only.away_seconds) == ("cut off", 2, 2, 8.0)
    assert [failure.generation for failure in state.earlier_failures] == [1]
    assert state.planned_steps == 500


def test_a_time_limit_makes_the_run_wait_for_its_next_start(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    reader = RunReader(run)
    say(run, started(0, at=0.0))
    say(run, steps(1, [3.0] * 10, at=1.0))
    say(run, finished(10, at=1.5, outcome="interrupted"))
    state = reader.refresh()
    assert (state.status, state.over) == ("waiting", False)
    (only,) = state.interruptions
    assert (only.cause, only.reached, only.resumed) == ("time limit", 10, None)
    say(run, resumed(10, generation=1, at=60.0))
    assert reader.refresh().status == "waiting"
    assert state.planned_steps == 500
    say(run, started(0, generation=1, at=61.0))
    assert reader.refresh().status == "running"
    assert state.interruptions[0].away_seconds == pytest.approx(59.5)


def test_a_time_limit_without_another_turn_is_a_stop(tmp_path: Path) -> None:
    state = state_of(
        tmp_path,
        *(started(0), steps(1, [3.0]), finished(1, outcome="interrupted")),
        ended(3),
    )
    assert (state.status, state.interruptions) == ("stopped", [])


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        ([], "cut off"),
        ([ended(139)], "exit code 139"),
        ([finished(1, outcome="stopped"), ended(3)], "stopped"),
        ([finished(1, outcome="interrupted")], "time limit"),
        ([failed(1, "peer", at=2.0, lost_peer=True)], "a worker was lost"),
        (
            [failed(1, "peer", at=2.0, lost_peer=True), failed(2, "no disk\nmore", at=3.0)],
            "worker 2: no disk",
        ),
        ([failed(1, "", at=2.0)], "worker 1: failed"),
    ],
)
def test_causes(tmp_path: Path, last: list[Event], cause: str) -> None:
    again = started(0, generation=1, at=9.0)
    state = state_of(tmp_path, started(0, at=0.0), steps(1, [3.0], at=1.0), *last, again)
    assert [each.cause for each in state.interruptions] == [cause]


def test_a_workers_mean_counts_only_the_steps_of_its_start(tmp_path: Path) -> None:
    """Also where its first window is read before the step that it went on from."""
    state = state_of(
        tmp_path,
        workers(1, 110, 0.1, generation=1),
        workers(1, 120, 0.3, generation=1),
        *(resumed(100, generation=1, at=1.0), started(0, generation=1)),
    )
    assert state.workers[1].mean_step_seconds == pytest.approx(0.2)


def test_trouble_is_told_once(tmp_path: Path) -> None:
    def damaged(node: str) -> Damaged:
        return Damaged(
            time=1.0, node=node, generation=1, step=40, message="manifest.json is missing"
        )

    def not_saved(rank: int, message: str) -> NotSaved:
        return NotSaved(time=2.0, node=f"n{rank + 1}", step=60, rank=rank, message=message)

    state = state_of(
        tmp_path,
        *(damaged("n1"), damaged("n2")),
        *(not_saved(1, "disk full"), not_saved(0, "worker 1: disk full")),
    )
    found = trouble_figures(state)
    assert [(each.kind, each.step, each.worker, each.message) for each in found] == [
        ("not_saved", 60, 1, "disk full"),
        ("damaged", 40, None, "manifest.json is missing"),
    ]


def test_figures_for_programs(tmp_path: Path) -> None:
    found = ReportedRun.read(interrupted_run(tmp_path)).to_dict()
    assert found["interruptions"][0] | {"time": 0, "away_seconds": 0} == {
        "time": 0,
        "cause": "worker 2: killed by SIGKILL",
        "workers_before": 4,
        "workers_after": 3,
        "reached_step": 38,
        "resumed_step": 20,
        "steps_again": 18,
        "away_seconds": 0,
    }
    assert found["checkpoints"] == pytest.approx(
        {
            "count": 6,
            "last_step": 100,
            "bytes": 50_000_000,
            "unchanged_bytes": 10_000_000,
            "write_seconds": 0.8,
            "stall_seconds": 0.06,
            "stall_share": 0.06 / 11.8,
        }
    )
    assert found["trouble"] == []


def test_a_run_without_any_of_it(tmp_path: Path) -> None:
    state = state_of(tmp_path, started(0), steps(1, [1.0]))
    assert (interruption_figures(state), trouble_figures(state)) == ([], [])
    assert (checkpoint_figures(state).count, checkpoint_figures(state).last_step) == (0, None)
