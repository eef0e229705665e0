"""What listeners are told: every step, in its order, and as few figures however many workers."""

import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.observe.digest import FIGURES, Digest, Observation
from paceline.report import RunReader
from paceline.specs import AnyEvent, Run, Workers, WorkerState
from report.folders import failed, failed_run, interrupted_run, resumed, started, steps


def events_of(run: Run) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    RunReader(run, events.extend).refresh()
    return events


def steps_in(news: list[Observation]) -> list[int]:
    return [seen.step for seen in news if "loss" in seen.figures]


def loaded(rank: int, step: int, seconds: float, **parts: float) -> Workers:
    state = WorkerState.model_validate(
        {"rank": rank, "step": step, "step_seconds": seconds, "parts": parts}
    )
    return Workers(time=float(step), node=f"n{rank}", states=[state])


def test_a_run_of_three_starts(tmp_path: Path) -> None:
    run = interrupted_run(tmp_path)
    news = Digest().take(events_of(run))
    assert steps_in(news) == [*range(1, 39), *range(21, 71), *range(71, 101)]
    again = [(seen.step, seen.note) for seen in news if seen.kind == "again"]
    assert again == [
        (20, "the run continued from step 20; steps up to 38 are repeated"),
        (70, "the run continued from step 70"),
    ]
    assert [seen.note for seen in news if seen.kind == "ended"] == ["failed", "finished"]
    notes = [seen.note for seen in news if seen.kind == "happened"]
    assert "worker 2 on n3 failed: killed by SIGKILL" in notes
    assert notes.count("the checkpoint of step 40 is complete") == 1
    newest: dict[str, float] = {}
    for seen in news:
        newest |= seen.figures
    assert newest.keys() <= FIGURES.keys()
    expected = {"restarts": 2, "failures": 1, "checkpoints/complete": 6, "workers": 2, "step": 100}
    assert {name: newest[name] for name in expected} == expected
    assert newest["samples_per_second"] == pytest.approx(640)


def test_workers_that_only_lost_a_peer_did_not_fail(tmp_path: Path) -> None:
    news = Digest().take(events_of(failed_run(tmp_path)))
    (note,) = [seen.note for seen in news if seen.kind == "happened"]
    assert note.startswith("worker 2 on n3 failed: RuntimeError: ")
    assert news[-1].note == "failed"


def test_a_step_ends_when_it_ended() -> None:
    event = steps(5, [1.0, 2.0], seconds=[0.25, 0.5], at=1000.0)
    told = [(each.step, each.time) for each in Digest().take([event]) if each.kind == "figures"]
    assert told == [(5, 999.5), (6, 1000.0)]


def test_what_an_earlier_start_says_late_is_past() -> None:
    digest = Digest()
    digest.take([started(0), steps(1, [1.0, 1.0])])
    digest.take([resumed(1, generation=1, at=9.0), steps(2, [1.0], generation=1)])
    assert digest.take([failed(0, "late", at=8.0), steps(3, [1.0])]) == []


def test_the_mean_worker_and_the_slowest() -> None:
    digest = Digest()
    digest.take([loaded(rank, 1, 0.2, data=0.1, communication=0.1) for rank in range(3)])
    digest.take([loaded(3, 1, 0.2, data=0.19, communication=0.01)])
    *_, load = digest.take([steps(1, [1.0], at=1.0)])
    assert load.figures == {
        "mean/data_seconds": pytest.approx(0.49 / 4),
        "mean/communication_seconds": pytest.approx(0.31 / 4),
        "slowest/data_seconds": 0.19,
        "slowest/communication_seconds": 0.01,
        "slowest/busy_seconds": pytest.approx(0.19),
        "slowest/rank": 3,
    }
    # A worker counts with its newest window alone, and a new start has its own workers.
    *_, load = digest.take([loaded(3, 2, 0.2, data=0.1), steps(2, [1.0], at=2.5)])
    assert load.figures["mean/data_seconds"] == pytest.approx(0.1)
    news = digest.take([steps(3, [1.0], generation=1)])
    assert not any("slowest/rank" in seen.figures for seen in news)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 40))
def test_read_at_once_or_bit_by_bit_the_steps_are_the_same(
    seed: int, windows: int, workers: int
) -> None:
    chance = random.Random(seed)
    events: list[AnyEvent] = []
    for window in range(windows):
        events += [loaded(rank, window, 0.2, data=chance.random()) for rank in range(workers)]
        events += [steps(window * 3 + 1, [math.nan, 1.0, 2.0], at=window + 0.5)]
    at_once = Digest().take(chance.sample(events, len(events)))
    digest, bit_by_bit = Digest(), list[Observation]()
    for event in events:
        bit_by_bit += digest.take([event])
    assert steps_in(at_once) == steps_in(bit_by_bit) == list(range(1, 3 * windows + 1))
    assert max(len(seen.figures) for seen in at_once) <= len(FIGURES)
    assert len(at_once) == 4 * windows  # whatever the number of workers
