"""The time line, the table of faults and the live view of a run that went on."""

import io
import json
from pathlib import Path
from typing import Any

import pypdf
import pytest
from rich.console import Console

from paceline.report import RunReader, RunState, cause, render, view
from paceline.report.drawing.chart import Chart, drawing_packages
from paceline.report.formats import run_report, write
from paceline.report.live.view import line
from paceline.report.run.fault_history import fault_figures
from paceline.report.run.timeline import SLOTS, timeline_picture
from report.faulty import faulty_run, lost, often_regrouped_run, regrouped
from report.folders import empty_run, ended, failed, interrupted_run, resumed, say, started, steps


def drawn(state: RunState) -> Chart:
    return timeline_picture(state, fault_figures(state), drawing_packages()[0])


def layers(picture: Chart) -> list[list[dict[str, Any]]]:
    """The rows of each layer."""
    return [layer["data"]["values"] for layer in picture.spec["layer"]]


def shown(state: RunState, width: int = 120) -> str:
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(view(state, width=width))
    return console.export_text()


def test_each_kind_has_its_lane(tmp_path: Path) -> None:
    picture = drawn(RunReader(faulty_run(tmp_path, began=1000.0)).refresh())
    away, workers, events = layers(picture)
    kinds = [row["kind"] for row in sorted(events, key=lambda row: -row["high"])]
    order = ["lost", "lost", "refused", "slow", "regrouped", "regrouped", "joined"]
    assert kinds == [*order, "saved", "saved"]
    assert sorted(row["at"] for row in events if row["kind"] == "lost") == [3.9, 7.8]
    assert [round(row["end"] - row["begin"], 3) for row in away] == [0.2, 2.0]
    # Four workers, none, three, none, three; the strip is two lanes high.
    assert [row["height"] for row in workers[:-1]] == [0.0, -2.0, -0.5, -2.0, -0.5]
    assert picture.caption == (
        "2 workers lost, 2 regroups, 1 slow worker, 1 refused step. Blue: workers that trained,"
        " of 4 planned. Shaded: no training."
    )


def test_one_fault_is_drawn(tmp_path: Path) -> None:
    picture = drawn(RunReader(often_regrouped_run(tmp_path, 1)).refresh())
    assert [(row["kind"], row["count"]) for row in layers(picture)[-1]] == [
        ("lost", 1),
        ("regrouped", 1),
    ]


def test_many_faults_are_drawn_as_fewer_marks_and_none_is_left_out(tmp_path: Path) -> None:
    state = RunReader(often_regrouped_run(tmp_path, 700)).refresh()
    picture = drawn(state)
    workers, events = layers(picture)  # nothing is long enough to be shaded
    assert len(events) <= 3 * (SLOTS + 1)
    assert sum(row["count"] for row in events) == 350 + 700 + 350
    assert "Events of a kind within a hundredth of the time are one mark" in picture.caption
    assert len(workers) <= 4 * SLOTS + 1
    # Between three and four of four workers trained for nine tenths of the time.
    mean = sum(1 + row["height"] / 2 for row in workers[:-1]) / len(workers[:-1])
    assert mean == pytest.approx(0.9 * 3.5 / 4, abs=0.01)
    assert len(json.dumps(picture.spec)) < 120_000


def test_the_page(tmp_path: Path) -> None:
    html = render(faulty_run(tmp_path))
    text = " ".join(html.split("<body>")[1].split('<script type="module">')[0].split())
    assert "Finished after 2 interruptions without a restart: 100 of 100 steps" in text
    assert 'id="time-line"' in text
    assert "Goodput 78 %: 9.90 s of the 12.7 s" in text
    assert "4 planned, global batch 64" in text
    table = text.split('<section id="faults">')[1].split("</table>")[0]
    assert table.count("<tr>") == 1 + 6
    assert "<td>lost</td><td>nothing heard for 1.5 s</td>" in table
    assert '<td class="number">2.50 s</td><td>peer copies</td>' in table
    for words in ("restarted", "Interruptions", "Dashed", "start 1"):
        assert words not in text


def test_a_restart_beside_regroups_is_said(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    story = [
        *(started(0, at=0.0), steps(1, [3.0] * 10, at=1.0), lost(2, at=1.1)),
        *(regrouped(1, 10, at=1.2), failed(1, "no <memory>", at=2.0, generation=1)),
        *(resumed(5, generation=2, at=9.0), started(0, generation=2, at=9.0)),
        steps(6, [2.0] * 5, generation=2, at=9.5),
    ]
    for event in story:
        say(run, event)
    html = render(run)
    assert "Running after 2 interruptions, 1 of them without a restart" in html
    assert "The run was restarted 1 time;" in html
    assert "start 1, worker 1 on n2: no &lt;memory&gt;" in html
    assert "Dashed line: the interruption, at the step where the next start continued." in html
    text = shown(RunReader(run).refresh())
    assert "restarted 1 ×" in text
    assert "resumed at step 5 after an interruption (worker 1: no <memory>)" in text


def test_on_paper(tmp_path: Path) -> None:
    report = run_report(faulty_run(tmp_path))
    pages = pypdf.PdfReader(write(report, "pdf", tmp_path / "run.pdf")).pages
    text = "".join(page.extract_text() for page in pages)
    assert "Time line" in text
    assert "nothing heard for 1.5 s" in text
    latex = write(report, "latex", tmp_path / "run.tex").read_text()
    assert r"    Regroups & 2 \\" in latex
    assert r"    Goodput & 78 \% \\" in latex
    without = run_report(interrupted_run(tmp_path / "without")).table()
    assert "Goodput" not in [name for name, _ in without.rows]


def test_the_live_view(tmp_path: Path) -> None:
    state = RunReader(faulty_run(tmp_path)).refresh()
    text = shown(state)
    assert "3 workers on 3 nodes" in text
    assert "3 of 4 planned workers  goodput 78 %, 2.80 s lost  2 regroups, 2 lost workers" in text
    assert "step 60: lost, worker 0 on n1: nothing heard for 1.5 s" in text
    assert "step 55: regrouped (2.50 s lost, state from peer copies), 3 wo" in text
    assert "restarted" not in text
    assert "resumed" not in text
    assert line(state).endswith("3/4 workers  goodput 78 %")


def test_a_run_that_failed_after_a_regroup_says_why(tmp_path: Path) -> None:
    """The launcher writes of workers' ends, and knows the generation that it started."""
    run = empty_run(tmp_path)
    story = [
        *(started(0, at=10.0), steps(1, [3.0] * 10, at=11.0)),
        *(lost(2, at=11.1), failed(2, "killed by SIGKILL", at=11.1), regrouped(1, 10, at=11.2)),
        *(steps(11, [3.0] * 10, at=12.2, generation=1), failed(1, "killed by SIGBUS", at=12.4)),
        ended(135),
    ]
    for event in story[:-2]:
        say(run, event)
    assert RunReader(run).refresh().status == "running"
    for event in story[-2:]:
        say(run, event)
    state = RunReader(run).refresh()
    assert state.status == "failed"
    assert "worker 1 on n2: killed by SIGBUS" in shown(state)
    found = cause(state, run)
    assert found is not None
    assert (found.rank, found.message) == (1, "killed by SIGBUS")


def test_text_of_others_moves_no_terminal(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, started(0, at=0.0))
    say(run, steps(1, [3.0], at=1.0))
    say(run, lost(1, at=1.1, why="[bold]gone\x1b[2J", where="n\x1b[1m2"))
    state = RunReader(run).refresh()
    assert "lost, worker 1 on n2: [bold]gone" in shown(state)
    assert "\x1b" not in json.dumps(drawn(state).spec, ensure_ascii=False)
