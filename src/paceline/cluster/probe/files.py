"""What a probe leaves in its run's folder: how far it is, and what was measured."""

from pathlib import Path

from paceline.specs import PacelineError, Run
from paceline.specs.base import Spec
from paceline.specs.probe import Probed


class Progress(Spec):
    """How far a probe is."""

    done: int
    planned: int
    doing: str


def note_progress(run: Run, progress: Progress) -> None:
    """Say how far the probe is, for whoever waits for it."""
    _write(_progress_file(run), progress)


def read_progress(run: Run) -> Progress | None:
    """How far the probe is; None before it has begun."""
    try:
        return Progress.model_validate_json(_progress_file(run).read_text())
    except FileNotFoundError:
        return None


def write_probed(run: Run, probed: Probed) -> None:
    """Keep all that was measured."""
    _write(_probed_file(run), probed)


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
    return run.path / "progress.json"


def _probed_file(run: Run) -> Path:
    return run.path / "probe.json"


def _write(path: Path, spec: Spec) -> None:
    """All at once, so that nobody reads half of it."""
    draft = path.with_suffix(".draft")
    draft.write_text(spec.model_dump_json())
    draft.rename(path)
