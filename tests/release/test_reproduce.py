"""`make reproduce` compares with figures that the pages really have."""

import json
import re
from pathlib import Path

import pytest

from scripts import reproduce
from scripts.reproduce import BENCHMARKS, Figure, rows

ROOT = Path(__file__).parents[2]
FIGURES = [figure for figures in BENCHMARKS.values() for figure in figures]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.question)
def test_the_page_has_the_figure(figure: Figure) -> None:
    assert figure.documented in (ROOT / "docs" / figure.page).read_text()


@pytest.mark.parametrize("command", BENCHMARKS)
def test_the_benchmark_is_listed(command: str) -> None:
    assert (
        f"`python -m {command.split(maxsplit=1)[0]}" in (ROOT / "benchmarks/README.md").read_text()
    )


@pytest.mark.slow
def test_a_row_has_the_figure_that_the_benchmark_prints() -> None:
    """With one that is simulated, and so always the same."""
    command = "benchmarks.sync.consensus --draws 5"
    largest = Figure(
        "steps", "simulated", lambda found: json.dumps(found["curves"][0]["workers"]), "", "8"
    )
    (line,) = rows({command: [largest]})
    assert re.fullmatch(r"\| steps \| simulated \| 8 \| \d+ \| \d+ s at load [\d.]+ \|", line)


def test_a_benchmark_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "LONGEST_SECONDS", 0)
    command, figures = next(iter(BENCHMARKS.items()))
    lines = list(rows({command: figures}))
    assert len(lines) == len(figures)
    assert all("| not within 0 s |" in line for line in lines)
