"""Runs beside each other."""

import csv
import io
import math
import shutil
import time
from pathlib import Path

import pytest

from command import paceline, paceline_json
from paceline.report.comparison.compared_runs import Comparison, compared, runs_in
from paceline.report.comparison.page import comparison_rows, layout_words, render_comparison
from paceline.report.formats import comparison_report
from paceline.specs import Layout, PacelineError
from report.comparisons import divided_run, three_runs
from report.folders import empty_run, failed_run, say, steps
from report.studies import caption, first_screen, rows, specs
from report.test_page import NASTY, Outline, body


def test_who_is_ahead(tmp_path: Path) -> None:
    found = compared(three_runs(tmp_path))
    assert found.fastest is found.runs[2]
    assert found.equal_samples == 300 * 64
    assert found.losses[1] == pytest.approx(1.4, abs=0.1)
    assert found.losses[3] == pytest.approx(1.57, abs=0.05)
    assert found.efficiency(found.runs[0]) == 1
    # Two workers take 0.22 s, four 0.16 s: of twice as many, each does so much.
    assert found.efficiency(found.runs[1]) == pytest.approx(0.22 / 0.16 / 2, rel=0.01)
    page = render_comparison(found)
    said = first_screen(page)
    assert "Fastest: run 3 (gpt-four-local), 2.00 times as fast as the slowest, run 1" in said
    assert "Lowest loss after 19,200 samples, which all runs have seen: run" in said
    assert set(specs(page)) == {"loss", "throughput", "parts"}
    assert len({row["run"] for row in rows(specs(page)["throughput"])}) == 3
    text = body(page)
    assert "<mark>local:every=8</mark>" in text
    assert "layout.replicas</th><td>2 (1); 4 (2, 3)</td>" in text
    assert "<mark>2</mark>" not in text


def test_none_has_the_lowest_loss_where_all_have_the_same(tmp_path: Path) -> None:
    run = divided_run(tmp_path, "one")
    shutil.copytree(run.path, tmp_path / "another")
    said = first_screen(render_comparison(compared(runs_in([tmp_path]))))
    assert "Lowest loss after 19,200 samples, which all runs have seen: all alike." in said
    assert "after 19,200 samples, all alike" in said


def test_losses_are_compared_where_the_shortest_run_ends(tmp_path: Path) -> None:
    short = divided_run(tmp_path, "short", steps=100, floor=1.0)
    long = divided_run(tmp_path, "long", steps=300, floor=0.9)
    found = compared([short, long])
    assert found.equal_samples == 6400
    last = slice(95, 100)
    for each in found.runs:
        assert found.losses[each.number] == pytest.approx(each.loss[last].mean())
    assert found.best is found.runs[1]


def test_runs_that_never_trained_or_lost_their_loss(tmp_path: Path) -> None:
    idle, broken = empty_run(tmp_path), failed_run(tmp_path / "failed")
    lost = empty_run(tmp_path / "lost")
    say(lost, steps(1, [math.nan] * 200))
    found = compared([idle, broken, lost])
    page = render_comparison(found)
    said = first_screen(page)
    assert "Without a step, and not drawn: run 1." in said
    assert "Failed: run 2." in said
    assert found.losses[3] is None
    assert found.best is found.runs[1]
    assert found.efficiency(found.runs[0]) is None
    assert found.efficiency(found.runs[1]) == 1
    assert render_comparison(compared([idle, empty_run(tmp_path / "two")])).count("<svg") == 0


def test_names_that_are_alike_are_told_apart_and_stay_text(tmp_path: Path) -> None:
    runs = [divided_run(tmp_path / each, "same", steps=10) for each in ("a", "b")]
    assert [each.name for each in compared(runs).runs] == ["a/same", "b/same"]
    nasty = divided_run(tmp_path, NASTY.replace("/", ""), steps=10)
    page = render_comparison(compared([*runs, nasty]))
    assert Outline(page).scripts == ["application/json"] * 3 + ["module"] * 2
    assert "img" not in Outline(page).tags


def test_a_folder_of_runs(tmp_path: Path) -> None:
    three_runs(tmp_path)
    (tmp_path / "notes").mkdir()
    assert [run.name for run in runs_in([tmp_path])] == ["gpt-four", "gpt-four-local", "gpt-two"]
    twice = [tmp_path / "gpt-two", tmp_path]
    assert [run.name for run in runs_in(twice)] == ["gpt-two", "gpt-four", "gpt-four-local"]
    with pytest.raises(PacelineError, match="notes is neither a run's folder nor a folder of runs"):
        runs_in([tmp_path / "notes"])
    with pytest.raises(PacelineError, match="nowhere does not exist"):
        runs_in([tmp_path / "gpt-two", tmp_path / "nowhere"])


def test_a_thousand_runs(tmp_path: Path) -> None:
    few = [divided_run(tmp_path, f"run-{at}", workers=1, steps=20) for at in range(8)]
    read = compared(few).runs
    many = Comparison(
        [
            type(each)(**{**each.__dict__, "number": at + 1, "name": f"run-{at}"})
            for at, each in enumerate(read * 125)
        ]
    )
    begin = time.process_time()
    page = render_comparison(many)
    assert time.process_time() - begin < 15
    assert len(page.encode()) < 2_000_000
    assert "100 of 1,000 runs: the first and the fastest" in page
    assert body(page).split("<h2>Runs</h2>")[1].split("</table>")[0].count("<tr>") == 101
    assert "of 1,000 runs the first and the 11 of lowest loss" in caption(page, "loss")
    assert "of 1,000 runs the first and the 19 fastest" in caption(page, "throughput")
    assert len(comparison_rows(many)) == 1000


def test_rows_for_programs(tmp_path: Path) -> None:
    report = comparison_report(three_runs(tmp_path))
    read = list(csv.DictReader(io.StringIO(report.csv())))
    assert [row["run"] for row in read] == ["gpt-two", "gpt-four", "gpt-four-local"]
    assert [row["limit"] for row in read] == ["compute", "network", "compute"]
    assert len(report.table().rows) == 3


def test_layouts_in_words() -> None:
    assert layout_words(Layout()) == "one device"
    assert layout_words(Layout(replicas=2, shards=4)) == "2 replicas x 4 shards"


def test_the_command_compares(tmp_path: Path) -> None:
    three_runs(tmp_path)
    said = paceline_json("report", "gpt-two", "gpt-four", folder=tmp_path)
    assert [run["name"] for run in said["runs"]] == ["gpt-two", "gpt-four"]
    assert said["differs"]["layout.replicas"] == {"2": [1], "4": [2]}
    assert said["fastest"] == 2
    paceline("report", ".", "--format", "csv", "-o", "all.csv", folder=tmp_path)
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 4
    failed = paceline("report", "gpt-two", "--format", "word", folder=tmp_path, expect=2)
    assert "'word' is not one of" in failed.stderr
