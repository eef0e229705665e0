"""The page and the tables of a study: what they say, what they must never do."""

import csv
import json
import re
import sys
import time
from functools import cache
from html import unescape
from pathlib import Path

import pytest

from paceline.report.drawing.tables import rows_to_csv, to_latex
from paceline.report.studies.page import render_study
from paceline.report.studies.study_tables import study_rows, study_table
from paceline.specs import Interval, Point
from report.studies import (
    BATCH,
    THREE,
    caption,
    changed,
    first_screen,
    nasty_study,
    rows,
    specs,
    study_result,
    with_failures,
)
from report.test_browser import CHROMIUM, chromium
from report.test_page import NASTY, Outline, body


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said beside them is made at once; drawing takes half a second."""
    monkeypatch.setattr("paceline.report.studies.page._pictures", lambda result: [])


@cache
def good_page() -> str:
    return render_study(study_result())


def test_a_training_that_scales_well() -> None:
    result, html = study_result(), good_page()
    said = first_screen(html)
    last = result.points[-1]
    assert last.speedup
    assert last.speedup.low
    assert last.efficiency
    assert "<title>gpt on the box: strong scaling – Paceline report</title>" in html
    assert "of train.py, measured on the testbed box: 12 of 12 runs finished" in said
    assert f"Speed-up {last.speedup.value:.2f} x on 8 nodes, {last.speedup.low:.2f} to" in said
    assert f"Efficiency {last.efficiency.value:.0%}".replace("%", " %") in said
    share = sum(run.network_seconds / run.step_seconds for run in last.runs) / 3
    assert f"Limited by Network {share:.0%} of a step".replace("%", " %") in said
    assert f"Scales to {result.reaches[0].workers} workers at 80 % efficiency" in said
    assert last.samples_per_second
    assert f"Samples per second {last.samples_per_second.value:,.0f} on 8 nodes" in said
    assert said.index("Samples per second") < said.index(" ".join(result.findings))
    assert '<div class="finished"><dt>Efficiency' in html
    assert 'class="note"' not in html
    assert list(specs(html)) == ["speedup", "efficiency", "parts", "prediction", "isoefficiency"]
    assert "Upright bars: 95 % intervals over the runs" in caption(html, "speedup")


@pytest.mark.usefixtures("without_pictures")
def test_a_training_that_scales_badly() -> None:
    html = render_study(study_result(numbers=(0.3, 0.02), limit="slow worker"))
    said = first_screen(html)
    assert '<div class="failed"><dt>Efficiency' in html
    assert re.search(r"Limited by Slow worker 1\d % of a step is waiting for it", said)
    assert "Scales to 1 worker at 80 % efficiency; fastest on 6" in said


@pytest.mark.usefixtures("without_pictures")
def test_a_training_that_scales_without_end() -> None:
    html = render_study(study_result(numbers=(0.0, 0.0), limit="compute"))
    said = first_screen(html)
    assert "Scales to beyond 800 at 80 % efficiency" in said
    assert re.search(r"Limited by Compute (9\d|100) % of a step", said)
    assert "no end found" in body(html)


@pytest.mark.usefixtures("without_pictures")
def test_runs_that_name_different_limits() -> None:
    result = study_result()
    runs = [*result.points[-1].runs]
    runs[0] = runs[0].model_copy(update={"limit": "data"})
    said = first_screen(render_study(changed(result, -1, runs=tuple(runs))))
    assert re.search(r"Limited by Network \d+ % of a step, in 2 of 3 runs", said)


def test_one_run_has_no_interval() -> None:
    html = render_study(study_result(repeat=1))
    said = first_screen(html)
    assert re.search(r"Speed-up 6\.\d+ x on 8 nodes, one run Efficiency", said)
    for key in ("speedup", "efficiency", "prediction"):
        assert "One run each: no intervals." in caption(html, key)
        assert not [row for row in rows(specs(html)[key]) if "low" in row]
    assert "Upright" not in html.split("</style>")[1].split('<script type="module">')[0]


def test_intervals_that_reach_below_nothing_can_be_drawn() -> None:
    wide = Interval(value=6.6, low=-3.0, high=16.2)
    html = render_study(changed(study_result(), -1, speedup=wide))
    bars = [each for each in specs(html)["speedup"]["layer"] if each["mark"]["type"] == "rule"]
    lows = [row["low"] for layer in bars for row in layer["data"]["values"]]
    assert len(lows) == 3
    assert min(lows) > 0


def test_points_that_failed_are_noted() -> None:
    result = with_failures(study_result(), 3, "worker 2 on n7: out of memory", finished=0)
    result = with_failures(result, 1, "time limit", finished=2)
    html = render_study(result)
    said = first_screen(html)
    assert "8 of 12 runs finished" in said
    assert "8 nodes: none of 3 runs finished – worker 2 on n7: out of memory" in said
    assert "2 nodes: only 2 of 3 runs finished – time limit" in said
    # What the first screen says is of the most workers that were measured.
    assert re.search(r"Speed-up 3\.\d+ x on 4 nodes", said)
    assert "Left out, without a finished run: 8 nodes." in caption(html, "speedup")
    assert "<h2>What failed</h2>" in html


@pytest.mark.usefixtures("without_pictures")
def test_points_that_were_not_run_are_noted() -> None:
    result = with_failures(study_result(), 3)
    planned = (*result.study.points, Point(nodes=16))
    study = result.study.model_copy(update={"points": planned})
    said = first_screen(render_study(result.model_copy(update={"study": study})))
    assert "9 of 15 runs finished" in said
    assert "Not run yet: 8 nodes (3 runs); 16 nodes." in said
    assert "failed" not in said


def test_without_a_finished_run_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    result = study_result(nodes=(1, 2)).model_copy(update={"laws": (), "reaches": ()})
    for at in (0, 1):
        result = with_failures(result, at, "no such file")
    html = render_study(result)
    assert "no run has finished" in first_screen(html)
    assert "nothing to draw" in html
    assert "<script" not in html


def test_one_number_of_workers_says_nothing_about_scaling() -> None:
    result = study_result(nodes=(4,)).model_copy(update={"laws": (), "reaches": ()})
    html = render_study(result)
    assert "Only one number of workers was measured" in first_screen(html)
    assert "Scales to – too few points to say" in first_screen(html)
    assert "isoefficiency" not in specs(html)


def test_families() -> None:
    html = render_study(study_result(varied=THREE))
    assert "The figures are those of sync=local:every=8, fastest on the most workers." in html
    for key in ("speedup", "efficiency", "prediction", "isoefficiency"):
        families = {row.get("family") for row in rows(specs(html)[key])}
        assert families >= {f"sync={sync}" for sync in THREE}
        colors = [layer["encoding"].get("color") for layer in specs(html)[key]["layer"]]
        assert any(color and color["legend"]["orient"] == "top" for color in colors)
    assert len({row["point"] for row in rows(specs(html)["parts"])}) == 12


def test_a_single_family_has_no_legend() -> None:
    for key in ("speedup", "efficiency", "prediction"):
        layers = specs(good_page())[key]["layer"]
        colors = [layer["encoding"]["color"] for layer in layers if "color" in layer["encoding"]]
        assert {color["legend"] for color in colors} == {None}


def test_of_many_families_the_fastest_are_drawn() -> None:
    many = {f"local:every={8 - each}": (0.01 * each, 0.0) for each in range(8)}
    html = render_study(study_result(varied=many))
    families = {row.get("family") for row in rows(specs(html)["efficiency"])} - {None}
    assert families == {f"sync=local:every={8 - each}" for each in range(6)}
    assert "Drawn: the 6 fastest of 8 families." in caption(html, "efficiency")


def test_predictions_are_drawn_as_speedups_by_the_measured_rate_of_one_worker() -> None:
    result = study_result()
    drawn = [row for row in rows(specs(good_page())["speedup"]) if "off" in row]
    expected = []
    for each in result.points:
        assert each.predicted_samples_per_second
        assert each.samples_per_second
        assert each.speedup
        rate_of_one = each.samples_per_second.value / each.speedup.value
        expected.append(each.predicted_samples_per_second / rate_of_one)
    assert [row["value"] for row in drawn] == pytest.approx(expected, rel=1e-3)


def test_without_predictions_none_are_shown() -> None:
    html = render_study(study_result(predicted=False))
    assert "prediction" not in specs(html)
    assert "Predicted" not in body(html)
    assert "Hollow" not in body(html)


def test_each_point_has_a_bar_of_its_own() -> None:
    result = study_result(nodes=(1, 2))
    twice = result.points[1].model_copy(update={"point": Point(nodes=2, batch_times=2)})
    html = render_study(result.model_copy(update={"points": (*result.points, twice)}))
    shares: dict[str, float] = {}
    for row in rows(specs(html)["parts"]):
        shares[row["point"]] = shares.get(row["point"], 0.0) + row["share"]
    assert list(shares) == ["1 worker", "2 nodes, 1 x the batch", "2 nodes, 2 x the batch"]
    assert list(shares.values()) == pytest.approx([1.0] * 3, abs=1e-3)


def test_text_of_the_user_stays_text() -> None:
    html = render_study(nasty_study(NASTY))
    outline = Outline(html)
    assert outline.scripts == ["application/json"] * 5 + ["module"] * 2
    assert not {"img", "link"} & set(outline.tags)
    assert len(specs(html)) == 5
    assert outline.addresses == []
    assert "default-src 'none'" in html


def test_every_row_of_csv_is_a_point() -> None:
    result = with_failures(nasty_study(NASTY), 7)
    read = list(csv.DictReader(rows_to_csv(study_rows(result)).splitlines()))
    assert [row["family"] for row in read] == [each.point.family for each in result.points]
    assert [int(row["workers"]) for row in read] == [1, 2, 4, 8] * 2
    assert {row["batch"] for row in read[:7]} == {str(BATCH)}
    assert [read[7][name] for name in ("speedup", "limit", "runs")] == ["", "", "0"]
    for row, each in zip(read[:7], result.points[:7], strict=True):
        assert each.speedup
        assert float(row["speedup"]) == each.speedup.value
        # The speed-up of the fewest workers is a definition, without an interval.
        assert row["speedup_high"] == ("" if row["workers"] == "1" else str(each.speedup.high))


def test_a_table_for_latex() -> None:
    result = study_result(varied={"a_b&c%": (0.02, 0.001)}, name="50 % of #1 {x}")
    text = to_latex(study_table(result))
    assert r"\caption{50 \% of \#1 \{x\}: strong scaling of train.py" in text
    assert r"sync=a\_b\&c\%" in text
    lines = text.split("\\midrule\n")[1].split("    \\bottomrule")[0].splitlines()
    columns = text.split(r"\begin{tabular}{")[1].split("}")[0]
    assert len(lines) == len(result.points)
    for line in lines:
        assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1
        assert line.endswith(r" \\")
    assert "--" in to_latex(study_table(with_failures(result, 3)))


def test_a_thousand_runs() -> None:
    many = {f"local:every={each}": (0.001 * each, 1e-5) for each in range(1, 26)}
    result = study_result(range(1, 11), varied=many, repeat=4)
    begin = time.process_time()
    html = render_study(result)
    assert time.process_time() - begin < 5
    assert len(html.encode()) < 4_000_000
    assert "1,000 of 1,000 runs finished" in html
    assert "The first 200 of 1,000 runs" in html
    assert html.split("<h2>Runs</h2>")[1].split("</table>")[0].count("<tr>") == 201
    assert "Drawn: 16 of 250 points" in caption(html, "parts")


TELL = """<script>onload = () => setTimeout(() => parent.postMessage(JSON.stringify({
  window: innerWidth, content: document.documentElement.scrollWidth,
  shown: document.querySelector("main").innerHTML}), "*"), 3000);</script>"""
HEAR = "<pre></pre><script>onmessage = (said) => document.querySelector('pre').append(said.data)"


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1280, 390])
def test_in_a_browser(tmp_path: Path, width: int) -> None:
    result = with_failures(study_result(varied=THREE), 3, "worker 2 on n7: out of memory")
    page, frame = tmp_path / "report.html", tmp_path / "frame.html"
    # The appended script is not the page's own: its policy would stop it.
    page.write_text(render_study(result).replace('http-equiv="Content-Security-Policy"', "") + TELL)
    # A window cannot be as narrow as a phone, but a frame in it can.
    frame.write_text(
        f'<iframe src="{page.name}" width="{width}" height="900"></iframe>{HEAR}</script>'
    )
    done = chromium(tmp_path, frame, "--dump-dom", "--window-size=1400,1000")
    assert "CONSOLE" not in done.stderr
    told = json.loads(unescape(done.stdout.split("<pre>")[1].split("</pre>")[0]))
    assert told["window"] == width
    assert told["content"] <= width
    assert "could not be drawn" not in told["shown"]
    for key in ("speedup", "efficiency", "parts", "prediction", "isoefficiency"):
        drawn = told["shown"].split(f'id="{key}"')[1].split("</figure>")[0]
        marks = re.findall(r'aria-roledescription="(?:point|bar|line mark|rule)"', drawn)
        assert len(marks) >= 3, key
        assert "NaN" not in drawn
