"""What a probe leaves in its run's folder: how far it is, and what was measured."""

from pathlib import Path

from paceline.specs import PacelineError, Run
from paceline.specs.measurements.probe import Probed


def note_done(run: Run, part: float) -> None:
    """Say how much of the probe is done, for whoever waits for it."""
    _write(_progress_file(run), f"{part:.4f}")


def done_part(run: Run) -> float:
    """How much of the probe is done, from 0 to 1."""
    try:
        return float(_progress_file(run).read_text())
    except FileNotFoundError:
        return 0.0


def write_probed(run: Run, probed: Probed) -> None:
    """Keep all that was measured."""
    _write(_probed_file(run), probed.model_dump_json())


def read_probed(run: Run) -> Probed:
    """What was measured."""
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
    """All at once, so that nobody reads half of it."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)
