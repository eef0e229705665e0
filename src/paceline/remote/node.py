"""A node of a job without shared files: `python -m paceline.remote.node DO URL FOLDER`.

`prepare` makes the folder a new copy of the run; `first` does so for the batch script, and clears
how the last start of the job ended. `mirror` keeps the copy and the store alike until SIGTERM or
SIGUSR2; `sync` does so once, and `finish` for the last time. Then the copy is removed.
"""

import os
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path

from paceline.remote.file_kinds import object_of
from paceline.remote.mirror import mirrored
from paceline.remote.object_store import ObjectStore
from paceline.remote.places import (
    SECRET_FILE_VARIABLE,
    SECRET_VARIABLE,
    copy_of,
    given_secret,
    is_kept,
    pull_run,
)
from paceline.specs import PacelineError, Run
from paceline.specs.owned_files import check_owned_folder, make_folder, write_owned

_FIRST = ".first"
START_VARIABLE = "PACELINE_START"
"""Environment variable that tells one start of the job from another."""


def main() -> int:
    """Do what the command line says; return the exit code."""
    do, url, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    try:
        match do:
            case "prepare" | "first":
                prepare(url, folder, is_first=do == "first")
            case "mirror":
                _mirror(folder)
            case "sync" | "finish":
                _recognized(folder)
                copy_of(Run(folder)).sync(last=True)
                if do == "finish":
                    _remove(folder)
            case _:
                raise PacelineError(
                    f"nothing is called {do!r}", fix="use first, prepare, mirror, sync or finish"
                )
    except PacelineError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"{url} does not answer: {error}", file=sys.stderr)
        return 1
    return 0


def prepare(url: str, folder: Path, *, is_first: bool = False) -> None:
    """Make a folder a new copy of a run, with the secret from the environment."""
    start = f"{os.environ.get(START_VARIABLE, '')} of {socket.gethostname()}"
    marker = folder.parent / ".prepared"
    if marker.exists() and marker.read_text() == start:
        return
    if marker.exists() and marker.read_text().partition(" of ")[0] == start.partition(" of ")[0]:
        raise PacelineError(
            f"{folder.parent} is shared with {marker.read_text().partition(' of ')[2]}, so the"
            " nodes' copies of the run would be one",
            fix="set PACELINE_SCRATCH to a folder on each node's own disk; if the nodes share"
            " files, keep the run in a folder instead (--runs DIR)",
        )
    secret = given_secret()
    if secret is None:
        raise PacelineError(
            f"{socket.gethostname()} does not have the run's secret",
            fix=f"set {SECRET_VARIABLE}, or {SECRET_FILE_VARIABLE} to the path of a file with it",
        )
    shutil.rmtree(folder.parent, ignore_errors=True)
    make_folder(folder.parent.parent, share=False, exist_ok=True)
    check_owned_folder(folder.parent.parent)
    make_folder(folder.parent, share=False)
    write_owned(marker, start)
    run = Run(folder)
    if is_first:
        write_owned(folder.parent / _FIRST, "")
        ended = [object_of(file.name) for file in (run.outcome_file, run.requeue_file)]
        ObjectStore(url).delete(ended)
    write_owned(pull_run(url, folder).secret_file, secret, share=False)


def _mirror(folder: Path) -> None:
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: over.set())
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # warns the workers of the time limit
    _recognized(folder)
    with mirrored(Run(folder)):
        while not over.wait(1):
            pass
    if not (folder.parent / _FIRST).exists():  # else the batch script ends there
        _remove(folder)


def _remove(folder: Path) -> None:
    if not is_kept(Run(folder)):
        shutil.rmtree(folder.parent)


def _recognized(folder: Path) -> None:
    copy_of(Run(folder)).recognize()


if __name__ == "__main__":
    sys.exit(main())
