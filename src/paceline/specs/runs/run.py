"""A run's folder: the interface between the packages that train and those that report."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from paceline.specs.errors import PacelineError, RunFolderGone
from paceline.specs.owned_files import check_owned_folder, make_folder, write_owned
from paceline.specs.plans.plan import Plan
from paceline.specs.runs.job import Job

BATCH_ALIVE_SECONDS = 2
"""Seconds between heartbeats of a batch script."""


@dataclass(frozen=True)
class Run:
    """The folder of one run and the paths in it."""

    path: Path
    own: bool = False
    """Whether to refuse a plan and a job that another user owns or can write: they are followed."""
    copied_from: str | None = None
    """URL of which another machine's folder at this path will be a copy; None: see `url_file`."""

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def plan_file(self) -> Path:
        """The plan that the run follows."""
        return self.path / "plan.toml"

    @property
    def job_file(self) -> Path:
        """The job that was started."""
        return self.path / "job.toml"

    @property
    def versions_file(self) -> Path:
        """Software versions that the run was started with."""
        return self.path / "versions.toml"

    @property
    def code(self) -> Path:
        """Copies of the user's code, one folder per snapshot; see `jobs.code_snapshot`."""
        return self.path / "code"

    @property
    def events(self) -> Path:
        """Events as JSON lines, one file per node."""
        return self.path / "events"

    @property
    def logs(self) -> Path:
        """Output of the workers: one file per node, each line prefixed with `rank: `."""
        return self.path / "logs"

    @property
    def batch_log(self) -> Path:
        """Output of the batch script, to which its scheduler appends."""
        return self.logs / "batch.log"

    @property
    def checkpoints(self) -> Path:
        """The run's checkpoints, unless the plan names another folder."""
        return self.path / "checkpoints"

    @property
    def ledger(self) -> Path:
        """The sample ledger, if it is recorded."""
        return self.path / "ledger"

    @property
    def trace(self) -> Path:
        """Profiles of workers over a few steps, one file each, if recorded."""
        return self.path / "trace"

    @property
    def lease(self) -> Path:
        """The run's lease: which process or job trains it, one file per term."""
        return self.path / "lease"

    @property
    def job_id_file(self) -> Path:
        """The scheduler's ID of the run's last job."""
        return self.path / "job-id"

    @property
    def outcome_file(self) -> Path:
        """Exists when the training is over for good: the exit code, written by its last workers."""
        return self.path / "outcome"

    @property
    def requeue_file(self) -> Path:
        """Exists if the time limit, or too few workers, stopped the run and it wants to
        continue."""
        return self.path / "requeue"

    @property
    def alive_file(self) -> Path:
        """Heartbeat of the batch script: rewritten while it runs."""
        return self.path / "batch-alive"

    @property
    def rendezvous(self) -> Path:
        """Worker 0's signed address, by which the other workers find it."""
        return self.path / "rendezvous"

    @property
    def newest_generation(self) -> int | None:
        """The last generation that is known to have begun; None before the first."""
        found = self.rendezvous.glob("leader-*.json")
        names = (path.stem.removeprefix("leader-") for path in found)
        return max((int(name) for name in names if name.isdigit()), default=None)

    def has_begun(self, generation: int) -> bool:
        """Return whether this generation, or a later one, has completed its rendezvous."""
        newest = self.newest_generation
        return newest is not None and newest >= generation

    @property
    def secret_file(self) -> Path:
        """The job's secret, mode 0600; signs all rendezvous messages."""
        return self.path / "secret"

    @property
    def metrics_token_file(self) -> Path:
        """Token that a scraper of the run's metrics must present, mode 0600; created on first
        use."""
        return self.path / "prometheus-token"

    @property
    def listeners_log(self) -> Path:
        """Output of the process that forwards the run's events to listeners."""
        return self.logs / "listeners.log"

    @property
    def url_file(self) -> Path:
        """Exists if this folder is a machine's copy of a run in an object store: the run's URL."""
        return self.path / "object-store"

    @property
    def url(self) -> str | None:
        """URL of the run in an object store, of which this folder is a copy; None: a folder."""
        try:
            return self.copied_from or self.url_file.read_text()
        except FileNotFoundError:
            return None

    @property
    def place(self) -> str:
        """Path or URL of the run, as commands take it."""
        return self.url or str(self.path)

    @property
    def checkpoint_place(self) -> str:
        """Path or URL of the run's checkpoints, in its own folder or where the plan says."""
        folder = self.plan.saving.folder
        if folder:
            return f"{folder}/{self.name}"
        url = self.url
        return f"{url}/checkpoints" if url else str(self.checkpoints)

    @property
    def is_gone(self) -> bool:
        """Whether the folder was deleted, at least in part: deleting many files takes a while."""
        lasting = (self.job_file, self.plan_file, self.secret_file, self.events)
        return not all(each.exists() for each in lasting)

    @contextmanager
    def told_if_gone(self) -> Iterator[None]:
        """Raise `RunFolderGone` for an error in the block if the folder was deleted."""
        try:
            yield
        except (OSError, PacelineError):
            if self.is_gone:
                raise RunFolderGone(self.path) from None
            raise

    @property
    def plan(self) -> Plan:
        """The plan, read from the folder."""
        return Plan.read(self.plan_file, own=self.own)

    @property
    def job(self) -> Job:
        """The job, read from the folder."""
        return Job.read(self.job_file, own=self.own)

    @classmethod
    def create(cls, parent: Path, job: Job, plan: Plan) -> "Run":
        """Create the folder `<name>-<time>` under `parent`, with the plan, the job and a secret."""
        try:
            run = cls(_new_folder(parent.absolute(), job.name, share=job.share), own=True)
            for folder in (run.events, run.logs, run.rendezvous):
                make_folder(folder)
            run.write_plan(plan)
            run.write_job(job)
            write_owned(run.secret_file, secrets.token_hex(32), share=False)
        except OSError as error:
            raise PacelineError(
                f"no run folder can be made in {parent.absolute()}: {error.strerror}",
                fix="give another parent with --runs DIR",
            ) from None
        return run

    def write_plan(self, plan: Plan) -> None:
        """Write the plan that the run follows."""
        write_owned(self.plan_file, plan.to_toml())

    def write_job(self, job: Job) -> None:
        """Write the job to start."""
        write_owned(self.job_file, job.to_toml())

    @classmethod
    def open(cls, path: Path, *, deep: bool = False) -> "Run":
        """Return the user's own run in an existing folder, to start or continue it.

        Refuse a folder if another user owns or can write it or an entry of it, before anything in
        it is followed; `deep`: at any depth.
        """
        run = cls.open_to_read(path)
        check_owned_folder(run.path, deep=deep)
        return cls(run.path, own=True)

    @classmethod
    def open_to_read(cls, path: Path) -> "Run":
        """Return the run in an existing folder, anybody's, to read what it records."""
        run = cls(path.absolute())
        if not run.job_file.is_file():
            there = "is not a run's folder: it has no job.toml"
            raise PacelineError(
                f"{path} {there if run.path.exists() else 'does not exist'}",
                fix="give the folder that `paceline run` or `paceline submit` printed,"
                " runs/<name>-<time> by default",
            )
        return run


def _new_folder(parent: Path, name: str, *, share: bool) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(100):
        suffix = f"-{attempt + 1}" if attempt else ""
        path = parent / f"{name}-{stamp}{suffix}"
        with suppress(FileExistsError):
            make_folder(path, share=share)
            return path
    raise PacelineError(
        f"{parent} has 100 runs that started in this second", fix="give another --name"
    )
