"""The page and the tables of a study of quality."""

import csv
import re
from functools import cache
from pathlib import Path

import pytest

from paceline.report.drawing.tables import rows_to_csv, to_latex
from paceline.report.studies.quality_page import render_quality
from paceline.report.studies.quality_tables import quality_rows, quality_table
from paceline.report.studies.quality_words import said
from paceline.specs import Comparison, StudyResult
from report.qualities import BASE_LOSS, quality_result
from report.studies import caption, first_screen, rows, specs
from report.test_browser import CHROMIUM, chromium
from report.test_page import NASTY, Outline, body


@cache
def page() -> str:
    return render_quality(quality_result())


def found(result: StudyResult, point: int, measure: str = "loss") -> Comparison:
    assert result.quality
    (one,) = (each for each in result.quality.points[point].comparisons if each.measure == measure)
    return one


def test_what_is_said_first() -> None:
    result, text = quality_result(), first_screen(page())
    assert "<title>digits: quality – Paceline report</title>" in page()
    assert "Does train.py learn as well? Measured here: 20 of 20 runs finished, 5 seeds" in text
    same, worse, unknown = (found(result, point) for point in (1, 2, 3))
    assert [one.verdict for one in (same, worse, unknown)] == ["same", "worse", "unknown"]
    assert f"Compared with 1 worker: loss {same.base.value:.4f} ± " in text
    assert "The same: within 1 % of that." in text
    assert f"4 workers: loss the same within ±{same.margin:.3g}; accuracy the same" in text
    half = (worse.difference.high or 0) - worse.difference.value
    words = f"1 worker, batch=8 lr=naive: loss worse by {worse.difference.value:.3g} ± {half:.3g};"
    assert words in text
    assert "lr=scaled: loss too few seeds for a verdict: " in text
    # Nobody has said whether more of it is better.
    assert "accuracy lower by " in text
    assert "Different 2 1 worse, 1 lower" in text
    assert "Samples 9,000 in each run" in text


def test_how_it_was_found_stands_beside_the_table() -> None:
    text = body(page())
    for words in ("paired t test", "TOST, Schuirmann 1987", "1 % of the value of 1 worker"):
        assert words in text
    assert text.count(">base<") == 2
    assert text.count("<tr>") == 1 + 2 + 6 + 1 + 20


def test_differences_stand_beside_the_margin() -> None:
    drawn = specs(page())
    assert list(drawn) == ["differences", "curves", "differences-1"]
    every = list(rows(drawn["differences"]))
    assert {"low": -0.01, "high": 0.01} in every
    worse = next(row for row in every if row.get("verdict") == "worse")
    one = found(quality_result(), 2)
    assert worse["value"] == pytest.approx(one.difference.value / one.base.value, rel=1e-4)
    assert worse["low"] < worse["value"] < worse["high"]
    assert "shaded: the margin of ±1 %" in caption(page(), "differences")
    curves = list(rows(drawn["curves"]))
    assert len({row["point"] for row in curves}) == 4
    assert curves[0]["point"] == "1 worker"
    assert "band: from the lowest to the highest seed. Logarithmic." in caption(page(), "curves")


def test_a_run_that_failed_leaves_it_unsaid() -> None:
    html = render_quality(quality_result(failed=True))
    assert "4 workers: loss unknown, since a run failed" in first_screen(html)
    assert "the loss became nan" in body(html)


def test_one_seed_says_nothing() -> None:
    result = quality_result(seeds=1)
    assert said(found(result, 1)) == "one seed is too few"
    assert "one seed is too few" in first_screen(render_quality(result))


def test_nothing_has_finished() -> None:
    html = render_quality(quality_result(finished=False))
    assert "No run has finished" in html
    assert specs(html) == {}


def test_what_a_user_wrote_stays_text() -> None:
    html = render_quality(quality_result(name=NASTY, metric=NASTY))
    assert Outline(html).tags.count("script") == Outline(page()).tags.count("script")
    assert "alert(1)</script>" not in html
    assert not Outline(html).addresses


def test_csv_and_latex() -> None:
    result = quality_result()
    table = list(csv.DictReader(rows_to_csv(quality_rows(result)).splitlines()))
    assert len(table) == 6
    assert [row["verdict"] for row in table[::2]] == ["same", "worse", "unknown"]
    assert float(table[0]["base"]) == pytest.approx(BASE_LOSS, rel=0.1)
    text = to_latex(quality_table(result))
    assert "±" not in text
    assert text.count("&") == 4 * 7
    assert r"within 1 \% by two one-sided tests" in text


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_every_picture_is_drawn(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page())
    done = chromium(tmp_path, file, "--dump-dom")
    assert "CONSOLE" not in done.stderr
    assert "could not be drawn" not in done.stdout.split('type="module"')[0]
    for key, mark, marks in (("differences", "symbol", 3), ("curves", "line", 4)):
        drawn = done.stdout.split(f'id="{key}"')[1].split("</figure>")[0]
        group = re.findall(rf'<g class="mark-{mark} role-mark.*?</g>', drawn)
        assert sum(each.count("<path") for each in group) == marks
