"""The files of a probe in its run's folder: progress and measurements."""

from pathlib import Path

from paceline.specs import PacelineError, Run
from paceline.specs.measurements.probe import Probed
from paceline.specs.owned_files import read_bounded, write_owned

_MOST_PROGRESS_BYTES = 1024
_MOST_PROBED_BYTES = 64 << 20
"""Maximum size of the measurements: a hundred bytes per repetition of each collective."""


def note_done(run: Run, part: float) -> None:
    """Write the fraction of the probe that is done."""
    write_owned(_progress_file(run), f"{part:.4f}")


def done_part(run: Run) -> float:
    """Return the fraction of the probe that is done."""
    try:
        return float(read_bounded(_progress_file(run), _MOST_PROGRESS_BYTES))
    except FileNotFoundError:
        return 0.0


def write_probed(run: Run, probed: Probed) -> None:
    """Write the measurements."""
    write_owned(_probed_file(run), probed.model_dump_json())


def read_probed(run: Run) -> Probed:
    """Read the measurements."""
    try:
        return Probed.model_validate_json(read_bounded(_probed_file(run), _MOST_PROBED_BYTES))
    except FileNotFoundError:
        raise PacelineError(
            f"the probe in {run.path} measured nothing: it ended too early",
            fix=f"see the workers' logs in {run.logs}, and probe again",
        ) from None


def _progress_file(run: Run) -> Path:
    return run.path / "progress"


def _probed_file(run: Run) -> Path:
    return run.path / "probe.json"
