"""What listeners are told of a run whose workers regrouped."""

import random
from pathlib import Path

import pytest

from paceline.observe.digest import FIGURES, Digest, Observation
from paceline.observe.generations import Generations
from paceline.report import RunReader
from paceline.specs import AnyEvent
from report.faulty import faulty_run, lost, regrouped
from report.folders import ended, finished, resumed, started, steps


def newest(news: list[Observation]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for seen in news:
        figures |= seen.figures
    return figures


@pytest.mark.parametrize("together", [True, False])
def test_regroups_are_counted_and_are_no_restarts(tmp_path: Path, together: bool) -> None:
    events: list[AnyEvent] = []
    RunReader(faulty_run(tmp_path), events.extend).refresh()
    chance = random.Random(3)
    if together:
        news = Digest().take(chance.sample(events, len(events)))
    else:
        digest, news = Digest(), []
        for event in sorted(events, key=lambda each: each.time):
            news += digest.take([event])
    figures = newest(news)
    assert figures.keys() <= FIGURES.keys()
    assert {name: figures[name] for name in figures if name.startswith("faults/")} == pytest.approx(
        {
            "faults/lost_workers": 2,
            "faults/regroups": 2,
            "faults/regroup_seconds": 0.52,
            "faults/slow_workers": 1,
            "faults/refused_steps": 1,
        }
    )
    assert (figures["restarts"], figures["workers"], figures["exit_code"]) == (0, 3, 0)
    again = [(seen.step, seen.note) for seen in news if seen.kind == "again"]
    assert again[-1] == (55, "the run continued from step 55; steps up to 60 are repeated")
    notes = [seen.note for seen in news if seen.kind == "happened"]
    assert "worker 2 on n3 was lost: its connection ended" in notes
    assert "3 workers continue from step 55: a worker was lost" in notes
    # The launcher's last word names the start's first generation, and is still the last.
    assert [seen.note for seen in news if seen.kind == "ended"] == ["finished"]
    assert news[-1].kind == "ended"


def test_what_a_lost_generation_says_late_is_counted_but_sets_nothing_back() -> None:
    digest = Digest()
    digest.take([started(0), steps(1, [1.0] * 5), regrouped(2, 5, at=2.0, workers=2)])
    news = digest.take([lost(1, at=1.0), regrouped(1, 5, at=1.5, workers=3)])
    assert newest(news) == {
        "faults/lost_workers": 1,
        "faults/regroups": 2,
        "faults/regroup_seconds": 0.24,
    }


def test_a_start_that_is_resumed_has_last_words_of_its_own() -> None:
    digest = Digest()
    first: list[AnyEvent] = [started(0), steps(1, [1.0]), regrouped(1, 1, at=2.0), ended(1)]
    second: list[AnyEvent] = [resumed(1, generation=2, at=3.0), started(0, generation=2)]
    digest.take([*first, *second])
    assert digest.take([ended(1, generation=1)]) == []
    last = digest.take([finished(5, generation=2), ended(0, generation=2)])
    assert [seen.note for seen in last] == ["finished"]


def test_numbers_that_were_left_out() -> None:
    known = Generations()
    for event in (started(0), regrouped(3, 1, at=1.0), started(0, generation=5)):
        known.take(event)
    assert [known.restarts(each) for each in range(6)] == [0, 0, 0, 0, 0, 2]
    assert [known.last(each) for each in (0, 3, 5)] == [3, 3, 5]
