"""Event files, as `watch` and `report --json` read them."""

import json
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzzing.target import Target
from paceline.report import ReportedRun, RunReader
from paceline.specs import Job, Plan, Run
from report.folders import empty_run, failed_run, interrupted_run


class Known(Run):
    """A run whose job and plan are read once: they are not what is mutated."""

    @cached_property
    def job(self) -> Job:
        """The job."""
        return Job.read(self.job_file)

    @cached_property
    def plan(self) -> Plan:
        """The plan."""
        return Plan.read(self.plan_file)


RUNS: dict[Path, Known] = {}


def consume(data: bytes, folder: Path) -> None:
    """Read a run with one event file."""
    if folder not in RUNS:
        RUNS[folder] = Known(empty_run(folder).path)
    run = RUNS[folder]
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
