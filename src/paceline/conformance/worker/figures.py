"""Figures that the workers of a run measure, one file per worker in the run's folder."""

import json
from pathlib import Path
from typing import Any

from paceline.specs import PacelineError, Run
from paceline.specs.owned_files import read_bounded, write_owned

_MOST_BYTES = 1 << 20


def write_figures(run: Path, rank: int, figures: dict[str, Any]) -> None:
    """Write one worker's figures."""
    write_owned(_file(run, rank), json.dumps(figures))


def read_figures(run: Run) -> list[dict[str, Any]]:
    """Return the figures of all workers, by rank."""
    try:
        return [
            json.loads(read_bounded(_file(run.path, rank), _MOST_BYTES))
            for rank in range(run.job.workers)
        ]
    except FileNotFoundError as error:
        raise PacelineError(
            f"a worker wrote no {Path(error.filename).name}",
            fix=f"see the workers' logs in {run.logs}",
        ) from None


def _file(run: Path, rank: int) -> Path:
    return run / f"figures-{rank}.json"
