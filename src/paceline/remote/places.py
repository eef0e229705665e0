"""Where a run's files are: in a folder, or in an object store with a copy on this machine.

A store's URL has any scheme that fsspec knows, built in or from another package.
"""

import atexit
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from paceline.remote.object_store import ObjectStore, is_url
from paceline.remote.run_copy import RunCopy
from paceline.specs import Job, PacelineError, Plan, Run
from paceline.specs.owned_files import check_owned_folder, make_folder, read_bounded, write_owned

SCRATCH_VARIABLE = "PACELINE_SCRATCH"
"""Environment variable with the folder of copies, on each machine's own disk."""
SECRET_VARIABLE, SECRET_FILE_VARIABLE = "PACELINE_SECRET", "PACELINE_SECRET_FILE"
"""Environment variables with the run's secret, or with the path of a file that has it."""
_MOST_SECRET_BYTES = 4096
_KEPT: set[Path] = set()


def create_run(parent: str | Path, job: Job, plan: Plan) -> Run:
    """Create a run in a parent folder, or below a store's URL with a copy on this machine."""
    if not is_url(parent):
        return Run.create(Path(parent), job, plan)
    if (folder := str(parent).removeprefix("file://")) != str(parent):
        raise PacelineError(
            f"--runs {parent} is the URL of a folder, not of an object store",
            fix=f"give the folder's path: --runs {folder}",
        )
    run = Run.create(_new_scratch(), job, plan)
    write_owned(run.url_file, f"{str(parent).rstrip('/')}/{run.name}")
    secret = given_secret()
    if secret is not None:
        write_owned(run.secret_file, secret, share=False)
    return run


def open_run(place: str | Path, *, deep: bool = False) -> Run:
    """Return the user's own run in a folder or a store, to start or continue it."""
    if not is_url(place):
        return Run.open(Path(place), deep=deep)
    run = _pulled(str(place), _new_scratch())
    # Whoever continues the run need not have the secret of its earlier workers, which are gone.
    write_owned(run.secret_file, given_secret() or secrets.token_hex(32), share=False)
    return Run.open(run.path, deep=deep)


@contextmanager
def folder_to_read(place: str | Path) -> Iterator[Path]:
    """Return a folder, or a copy of the run in a store, to read for a block."""
    if not is_url(place):
        yield Path(place)
        return
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        yield _pulled(str(place), Path(folder)).path


@contextmanager
def run_to_read(place: str | Path) -> Iterator[Run]:
    """Open anybody's run in a folder or a store, to read what it records, for a block."""
    with folder_to_read(place) as folder:
        yield Run.open_to_read(folder)


def pull_run(url: str, folder: Path) -> Run:
    """Make a folder the copy of a run in a store."""
    make_folder(folder, share=False, exist_ok=True)
    write_owned(folder / Run(folder).url_file.name, url.rstrip("/"))
    run = Run(folder)
    try:
        copy_of(run).pull()
    except OSError as error:
        raise PacelineError(
            f"{url} cannot be read: {error}",
            fix="check the URL, your credentials and the endpoint, as for other programs"
            " (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …)",
        ) from None
    if not run.job_file.is_file():
        raise PacelineError(
            f"{url} is not a run: it has no job.toml",
            fix="give the URL that `paceline run` or `paceline submit` printed",
        )
    for inside in (run.events, run.logs, run.rendezvous):
        make_folder(inside, exist_ok=True)
    return run


def publish(run: Run) -> None:
    """Write what this machine has of a run to its store, so that other machines can start it."""
    if run.url is not None:
        copy_of(run).push()


def publish_file(run: Run, file: Path) -> None:
    """Write what a growing file has to the run's store, if the run has one."""
    if run.url is not None:
        copy_of(run).push_growing(file)


def copy_of(run: Run) -> RunCopy:
    """Return this process's view of a run's copy and its store."""
    assert run.url is not None
    return _copy(run.path, run.url)


def remove_run(run: Run) -> None:
    """Remove a run that no job has, also from its store."""
    if run.url is not None:
        store = ObjectStore(run.url)
        files, folders = store.top()
        store.delete([*files, *(name for folder in folders for name in store.list(folder))])
    shutil.rmtree(run.path)


def keep_copy(run: Run) -> None:
    """Leave a run's copy where it is: the store lacks some of it."""
    _KEPT.add(run.path.parent)


def is_kept(run: Run) -> bool:
    """Return whether the store lacks some of a run's copy, which therefore stays."""
    return run.path.parent in _KEPT


def given_secret() -> str | None:
    """Return the secret that the environment names; None if it names none."""
    secret = os.environ.get(SECRET_VARIABLE)
    if secret is None and (file := os.environ.get(SECRET_FILE_VARIABLE)):
        try:
            secret = read_bounded(Path(file), _MOST_SECRET_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise PacelineError(
                f"{SECRET_FILE_VARIABLE} is {file}, which cannot be read: {error}",
                fix="give the path of a file with the run's secret",
            ) from None
    if secret is None:
        return None
    try:
        enough = len(bytes.fromhex(secret)) >= 16
    except ValueError:
        enough = False
    if not enough:
        raise PacelineError(
            f"the secret in {SECRET_VARIABLE} or {SECRET_FILE_VARIABLE} is not 32 or more"
            " hexadecimal digits",
            fix="make one: `openssl rand -hex 32`",
        )
    return secret.strip()


@cache
def _copy(folder: Path, url: str) -> RunCopy:
    return RunCopy(folder, ObjectStore(url))


def _pulled(url: str, parent: Path) -> Run:
    return pull_run(url, parent / url.rstrip("/").rpartition("/")[2])


def scratch_folder() -> Path:
    """Return the folder of copies on this machine's own disk."""
    named = os.environ.get(SCRATCH_VARIABLE)
    if named:
        return Path(named).absolute()
    return Path(tempfile.gettempdir()) / f"paceline-{os.geteuid()}"


def _new_scratch() -> Path:
    """Return a new folder for a run's copy, which is removed when this process ends."""
    parent = scratch_folder()
    make_folder(parent, share=False, exist_ok=True)
    check_owned_folder(parent)
    folder = Path(tempfile.mkdtemp(dir=parent))
    atexit.register(_remove, folder)
    return folder


def _remove(folder: Path) -> None:
    if folder not in _KEPT:
        shutil.rmtree(folder, ignore_errors=True)
