"""Event files, as `watch` and `report --json` read them."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzzing.target import Target
from paceline.report import ReportedRun, RunReader
from paceline.specs import Run
from report.folders import empty_run, failed_run, interrupted_run


def consume(data: bytes, folder: Path) -> None:
    """Read a run with one event file."""
    found = next(folder.iterdir(), None)
    run = Run(found) if found else empty_run(folder)
    (run.events / "n1.jsonl").write_bytes(data)
    json.dumps(ReportedRun(run, RunReader(run).refresh()).to_dict())


def seeds() -> list[bytes]:
    """Return the event files of a run that failed and of one that was interrupted."""
    found = []
    for make in (failed_run, interrupted_run):
        with TemporaryDirectory() as folder:
            run = make(Path(folder))
            found += [each.read_bytes()[:20_000] for each in run.events.iterdir()]
    return found


TARGET = Target(seeds, consume)
