"""Keep a run's copy on this machine and its store alike, in the background."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from paceline.remote.places import copy_of, keep_copy, run_to_read
from paceline.specs import PacelineError, Run

SYNC_SECONDS = 2.0
"""Seconds between two looks at the copy and the store: what a machine's end can cost."""


class Mirror:
    """A thread that makes a run's copy and its store alike, again and again.

    A store that is away for a while does not disturb the training: what it lacks is written when
    it is back.
    """

    def __init__(self, run: Run, sync: Callable[[], None]) -> None:
        self._run, self._sync = run, sync
        self._over = threading.Event()
        self._is_away = False
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(SYNC_SECONDS):
            try:
                self._sync()
            except OSError as error:
                if not self._run.path.exists():
                    return
                if not self._is_away:
                    print(f"{self._run.url} does not answer: {error}", file=sys.stderr)
                self._is_away = True
            else:
                self._is_away = False


@contextmanager
def mirrored(run: Run, *, whole: bool = False) -> Iterator[None]:
    """Write what this machine records to the run's store, and read what others signal, for a block.

    `whole`: also read what other machines record, to show it. A run in a folder has no store.
    """
    if run.url is None:
        yield
        return
    copy = copy_of(run)
    try:
        copy.sync(whole=whole)
    except OSError as error:
        raise PacelineError(
            f"{run.url} cannot be written: {error}",
            fix="check the bucket's name, your credentials and the endpoint, as for other programs"
            " (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …)",
        ) from None
    mirror = Mirror(run, partial(copy.sync, whole=whole))
    try:
        yield
    finally:
        mirror.close()
        try:
            copy.sync(whole=whole, last=True)
        except OSError as error:
            why = f"{run.url} lacks what this machine recorded last: {error}"
            print(f"{why}; it is in {run.path}", file=sys.stderr)
            keep_copy(run)


@contextmanager
def followed(place: str | Path) -> Iterator[Run]:
    """Open anybody's run to read what it records, for a block, and what it goes on to record."""
    with run_to_read(place) as run:
        mirror = Mirror(run, copy_of(run).pull) if run.url is not None else None
        try:
            yield run
        finally:
            if mirror is not None:
                mirror.close()
