"""`benchmarks/frameworks/correctness`: its figures, and Paceline beside the plain loop."""

from pathlib import Path

import pytest

from benchmarks.frameworks.correctness.__main__ import FIGURES, PAGE
from benchmarks.frameworks.correctness.outputs import apart
from benchmarks.frameworks.correctness.results import ROUNDING, Results, counted
from benchmarks.frameworks.correctness.runs import (
    PACELINE,
    PLAIN,
    SETTINGS,
    WAYS,
    run_forked,
    run_paceline,
    trained,
)


def test_the_page_has_the_figures_of_the_file() -> None:
    fresh = Results.read(FIGURES).markdown()
    assert fresh in PAGE.read_text(), (
        f"`python -m benchmarks.frameworks.correctness --show {FIGURES} --write` puts them there"
    )


def test_lines_of_code_are_those_of_the_files() -> None:
    for case, lines in Results.read(FIGURES).lines.items():
        for way in (PLAIN, *WAYS):
            if way.name in lines:
                assert lines[way.name] == counted(case, way), (case, way.name)


def test_paceline_equals_the_plain_loop_in_every_figure() -> None:
    rows = [row for row in Results.read(FIGURES).rows if row.way in ("null", PACELINE.name)]
    assert len(rows) == 30
    for row in rows:
        assert row.distance is not None
        assert row.distance < ROUNDING
        assert row.steps == row.plain_steps


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_batch_that_does_not_divide_trains_as_the_plain_loop(tmp_path: Path) -> None:
    *_, setting = SETTINGS
    run_forked(PLAIN, tmp_path)
    for case in ("clip", "translation"):
        run_paceline(case, setting, tmp_path)
        plain, found = (trained(way, case, setting, tmp_path) for way in (PLAIN, PACELINE))
        assert apart(case, found.weights, plain.weights) < ROUNDING
