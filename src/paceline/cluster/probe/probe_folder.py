"""The files of a probe in its run's folder: progress and measurements."""

from pathlib import Path

from paceline.specs import PacelineError, Run
from paceline.specs.measurements.probe import Probed


def note_done(run: Run, part: float) -> None:
    """Write the fraction of the probe that is done."""
    _write(_progress_file(run), f"{part:.4f}")


def done_part(run: Run) -> float:
    """Return the fraction of the probe that is done."""
    try:
        return float(_progress_file(run).read_text())
    except FileNotFoundError:
        return 0.0


def write_probed(run: Run, probed: Probed) -> None:
    """Write the measurements."""
    _write(_probed_file(run), probed.model_dump_json())


def read_probed(run: Run) -> Probed:
    """Read the measurements."""
    try:
        return Probed.model_validate_json(_probed_file(run).read_text())
    except FileNotFoundError:
        raise PacelineError(
            f"the probe in {run.path} measured nothing: it ended too early",
            fix=f"see the workers' logs in {run.logs}, and probe again",
        ) from None


def _progress_file(run: Run) -> Path:
    return run.path / "progress"


def _probed_file(run: Run) -> Path:
    return run.path / "probe.json"


def _write(path: Path, text: str) -> None:
    """Write atomically."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)
