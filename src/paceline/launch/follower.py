"""The process beside a local run that forwards its events and metrics to listeners."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from paceline.specs import Run
from paceline.specs.owned_files import open_owned

_UNNOTICED_SECONDS = 2.0
_LAST_WORDS_SECONDS = 60.0
_GRACE_SECONDS = 5.0


@contextmanager
def following(run: Run, say: Callable[[str], None]) -> Iterator[None]:
    """Run the listeners of a run's job during the block; their failures do not affect the run."""
    if not run.job.listeners:
        yield
        return
    try:
        follower = _started(run)
    except OSError as error:
        say(f"the listeners could not be started: {error}")
        yield
        return
    try:
        yield
        _wait_for(follower, say)
    finally:
        _end(follower)
    if follower.returncode:
        say(f"a listener failed: see {run.listeners_log}")


def _started(run: Run) -> "subprocess.Popen[bytes]":
    job = run.job
    words = [word for listener in job.listeners for word in ("--to", listener)]
    with open_owned(run.listeners_log, "ab") as log:
        return subprocess.Popen(
            ["nice", str(job.python), "-m", "paceline", "watch", str(run.path), *words],
            cwd=job.folder,
            env=os.environ | {"PACELINE_FOLLOWER_OF": str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            # In its own process group: after Ctrl-C it still has to forward the run's last events.
            process_group=0,
        )


def _wait_for(follower: "subprocess.Popen[bytes]", say: Callable[[str], None]) -> None:
    """Wait until the follower has forwarded the end of the run, after which it exits."""
    with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
        try:
            follower.wait(_UNNOTICED_SECONDS)
        except subprocess.TimeoutExpired:
            say("the run has ended; sending its last events to the listeners (Ctrl-C to skip)")
            follower.wait(_LAST_WORDS_SECONDS)


def _end(follower: "subprocess.Popen[bytes]") -> None:
    follower.terminate()
    try:
        follower.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        follower.kill()
        follower.wait()
