"""What is shown of protections that are off, from the events of a run."""

import io
import time
from pathlib import Path

from rich.console import Console

from paceline.observe.digest import FIGURES, Digest
from paceline.report import RunReader, RunState
from paceline.report.live.view import line, view
from paceline.report.run.page import page
from paceline.report.run.section import ReportedRun
from paceline.specs import Degraded, Protection, Run, units
from report.faulty import regrouped
from report.folders import empty_run, resumed, say, started, steps

NOW = time.time()


def off(
    protection: Protection, rank: int | None, *, node: str = "n1", generation: int = 0
) -> Degraded:
    return Degraded(
        time=NOW + 10,
        node=node,
        generation=generation,
        protection=protection,
        rank=rank,
        step=None if rank is None else 20,
        why="<b>No space</b>",
    )


def shown(state: RunState) -> str:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(view(state, width=200))
    return captured.get()


def begun(folder: Path) -> Run:
    run = empty_run(folder)
    say(run, started(0))
    say(run, steps(1, [1.0] * 30))
    return run


def test_what_is_off_is_shown_until_it_is_over(tmp_path: Path) -> None:
    run = begun(tmp_path)
    reader = RunReader(run)
    assert "are not made" not in line(reader.refresh())
    for rank in range(3):
        say(run, off("peer copies", rank))
    assert "peer copies are not made since step 20 (3 workers, first worker 0 on n1)" in shown(
        reader.refresh()
    )
    assert line(reader.refresh()).count("peer copies are not made") == 1
    html = page(ReportedRun.read(run))
    assert "still off" in html
    assert "<b>No space</b>" not in html
    for rank in range(3):
        say(run, off("peer copies", rank).restored(NOW + 15, step=40, note="none lost"))
    assert "are not made" not in shown(reader.refresh()) + line(reader.refresh())
    assert reader.refresh().off == []
    report = ReportedRun.read(run)
    assert f"step 40, after {units.duration(5)}" in page(report)
    first = report.to_dict()["protection"][0]
    assert (first["step"], first["restored_step"], first["seconds"]) == (20, 40, 5.0)
    assert not first["off"]


def test_a_lapse_ends_with_its_workers_and_a_nodes_with_its_start(tmp_path: Path) -> None:
    run = begun(tmp_path)
    say(run, off("checkpoints", 0))
    say(run, off("energy", None))
    reader = RunReader(run)
    assert {each.protection for each in reader.refresh().off} == {"checkpoints", "energy"}
    say(run, regrouped(1, 20, at=NOW + 20, workers=3))
    assert [each.protection for each in reader.refresh().off] == ["energy"]
    say(run, off("checkpoints", 0, generation=1))  # it is still off
    assert len(reader.refresh().off) == 2
    say(run, resumed(20, generation=2, at=NOW + 30))
    assert reader.refresh().off == []
    assert len(reader.refresh().lapses) == 3
    assert "the next generation" in page(ReportedRun.read(run))


def test_listeners_are_told_once_per_change() -> None:
    digest = Digest()
    (begin,) = [seen for seen in digest.take([started(0)]) if seen.kind == "started"]
    assert begin.figures["off/peer_copies"] == 0
    (seen,) = digest.take([off("peer copies", 1), off("peer copies", 1)])
    assert seen.figures.keys() <= FIGURES.keys()
    assert seen.figures["off/peer_copies"] == 1
    assert seen.note == "peer copies, worker 1 on n1: are off: <b>No space</b>"
    (seen,) = digest.take([off("peer copies", 1).restored(NOW + 20)])
    assert (seen.figures["off/peer_copies"], seen.kind) == (0, "happened")
    digest.take([off("checkpoints", 0), off("energy", None)])
    news = digest.take([regrouped(1, 20, at=NOW + 20, workers=3)])
    assert news[-1].figures["off/checkpoints"] == 0
    assert news[-1].figures["off/energy"] == 1
    assert digest.take([off("checkpoints", 0)]) == []  # of workers that are over
