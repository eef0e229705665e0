"""A run's lease, as its holder has it: taken, renewed by heartbeats, lost or released.

A lease is taken over only when its holder is dead or silent. A holder that was only suspended or
cut off finds a newer term when it comes back, at its next heartbeat or checkpoint, and stops.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from paceline.lease.record import JobHolder, LeaseRecord, LocalHolder
from paceline.lease.store import LeaseFolder, LeaseStore
from paceline.specs import Run
from paceline.specs.errors import PacelineError

BEAT_SECONDS = 2.0
"""Seconds between heartbeats."""
WATCHED_BEATS = 5
"""Missed heartbeats after which a holder counts as dead; a shared folder may be late."""
TERM_VARIABLE = "PACELINE_LEASE_TERM"
"""Environment variable that tells a worker the term of its launcher."""
_POLL_SECONDS = 0.1

Judge = Callable[[LeaseRecord], PacelineError | None]
"""Returns why the holder of a term counts as alive; None if it is dead."""


class LeaseLost(PacelineError):
    """Another holder has taken over the run."""


class LeaseHeld(PacelineError):
    """Another holder, which is alive, trains the run."""


class Lease:
    """One holder's term of a run's lease."""

    def __init__(self, store: LeaseStore, record: LeaseRecord) -> None:
        self._store, self._record = store, record
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def take(cls, store: LeaseStore, holder: LocalHolder | JobHolder, living: Judge) -> "Lease":
        """Begin the next term; raise `LeaseHeld` if the holder of the newest term is alive."""
        while True:
            found = store.newest()
            if found is not None and not store.is_released(found.term):
                refusal = living(found)
                if refusal is not None:
                    raise LeaseHeld(refusal.problem, fix=refusal.fix, about=refusal.topic)
            record = LeaseRecord.begin(found.term + 1 if found else 1, holder)
            if store.create(record):
                return cls(store, record)

    @property
    def term(self) -> int:
        """The number of the term, which every later holder exceeds."""
        return self._record.term

    @property
    def lost(self) -> bool:
        """Whether another holder has begun a newer term."""
        return self._store.has_term(self.term + 1)

    def hand_over(self, holder: JobHolder) -> None:
        """Name the job that continues this term in place of this process."""
        self._stop_beating()
        self._record = self._record.model_copy(update={"holder": holder})
        self._store.rewrite(self._record)

    def keep(self) -> None:
        """Renew the lease in the background until it is released or lost."""
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Write a heartbeat; raise `LeaseLost` if there is a newer term."""
        self._record = self._record.model_copy(update={"beats": self._record.beats + 1})
        # Rewriting an entry of the folder also makes an NFS client notice what others changed.
        self._store.rewrite(self._record)
        self.check()

    def check(self) -> None:
        """Raise `LeaseLost` if there is a newer term."""
        check_term(self._store, self.term)

    def release(self) -> None:
        """End the term, so that the next holder need not ask whether this one is dead."""
        self._stop_beating()
        with suppress(OSError):  # the folder may be gone; a dead holder is found anyway
            self._store.release(self.term)

    def _stop_beating(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _beat(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            try:
                with suppress(OSError):  # the file server may be away for a while
                    self.renew()
            except LeaseLost:
                return


def check_term(store: LeaseStore, term: int) -> None:
    """Raise `LeaseLost` if a newer term than this one has begun."""
    if not store.has_term(term + 1):
        return
    newer = store.newest()
    raise LeaseLost(
        f"this training stopped: it was taken for dead, and {newer.holder if newer else 'another'}"
        " trains the run now",
        fix="leave the run to the other one; `paceline watch` shows its progress",
    )


def fence_of(run: Run) -> Callable[[], None]:
    """Return a function that raises `LeaseLost` if this worker's launcher has lost the run."""
    term = os.environ.get(TERM_VARIABLE)
    if term is None:
        return lambda: None
    store, number = LeaseFolder(run.lease), int(term)
    return lambda: check_term(store, number)


def is_renewed(store: LeaseStore, record: LeaseRecord) -> bool:
    """Watch a lease for some heartbeats, and return whether its holder has renewed it."""
    deadline = time.monotonic() + WATCHED_BEATS * BEAT_SECONDS
    while time.monotonic() < deadline:
        if store.is_released(record.term):
            return False
        if store.newest() != record:
            return True
        time.sleep(_POLL_SECONDS)
    return False
