"""Settings needed to repeat the run: plan, job, versions and files."""

import tomllib
from pathlib import Path

from paceline.report.drawing.brief import Content
from paceline.report.drawing.tables import flat
from paceline.report.run.section import ReportedRun, Section
from paceline.specs import PacelineError, Run
from paceline.specs.base import MOST_BYTES
from paceline.specs.owned_files import read_bounded


class _Settings(Section[None]):
    order = 100

    def content(self, run: ReportedRun, figures: None) -> Content:
        return Content(
            template=Path(__file__).with_suffix(".html.jinja"),
            values={
                "run": run.run,
                "plan": run.state.plan,
                "job": run.state.job,
                "versions": _versions(run.run.versions_file),
                "files": _files(run.run),
            },
        )


SECTION = _Settings()


def _versions(file: Path) -> list[tuple[str, str]]:
    try:
        return list(flat(tomllib.loads(read_bounded(file, MOST_BYTES).decode())))
    except (OSError, ValueError, PacelineError):
        return []


def _files(run: Run) -> list[tuple[str, int, int]]:
    """Return name, number of files and bytes of each entry of the folder, except the secret."""
    rows = []
    for entry in sorted(run.path.iterdir()):
        if entry == run.secret_file:
            continue
        files = _files_in(entry) if entry.is_dir() else [entry]
        name = f"{entry.name}/" if entry.is_dir() else entry.name
        rows.append((name, len(files), sum(file.stat().st_size for file in files)))
    return rows


def _files_in(folder: Path) -> list[Path]:
    """Return the files at any depth, but not the user's data that a code snapshot links to."""
    return [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
