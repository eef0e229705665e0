"""A run's lease in an object store."""

import time
import tomllib
from pathlib import Path

from paceline.lease.record import LeaseRecord
from paceline.lease.store import LeaseFolder, LeaseStore, not_a_lease
from paceline.remote.file_kinds import object_of
from paceline.remote.object_store import ObjectStore
from paceline.specs import PacelineError, Run

SETTLE_SECONDS = 1.0
"""Minimum wait of a holder for others that begin the same term, if the store cannot refuse them."""
SETTLE_BEGINNINGS = 5
"""The same, in times that its own beginning took: a slow link or machine delays the others, too."""


class ObjectLease:
    """A lease as objects `<term>.toml`, and `<term>.released` at its end.

    A term is begun by a put that must not replace an object (`If-None-Match`), where the store
    honors that. Elsewhere, of several that put the same object, the last counts, after a moment.
    Whether a newer term has begun is read from this machine's copy of the run, as often as wanted.
    """

    def __init__(self, run: Run, store: ObjectStore) -> None:
        self._run, self._store = run, store
        self._copy = LeaseFolder(run.lease)

    def newest(self) -> LeaseRecord | None:
        """Return the newest term; None before the first."""
        terms = [int(path.stem) for path in self._entries() if path.suffix == ".toml"]
        return self._read(max(terms)) if terms else None

    def create(self, record: LeaseRecord) -> bool:
        """Begin a term; return False, without a change, if another holder has begun it."""
        name, contents = self._named(f"{record.term}.toml"), record.to_toml().encode()
        asked = time.monotonic()
        if self._exists(name):
            return False
        if not self._store.create(name, contents):
            # A repeated request can be refused although the first one succeeded.
            return self._store.read(name) == contents
        if self._store.create(name, contents):  # this store replaces what it was told not to
            time.sleep(max(SETTLE_SECONDS, SETTLE_BEGINNINGS * (time.monotonic() - asked)))
        return self._store.read(name) == contents

    def rewrite(self, record: LeaseRecord) -> None:
        """Replace the entry of a term; only its holder calls this."""
        self._store.write(self._named(f"{record.term}.toml"), record.to_toml().encode())

    def release(self, term: int) -> None:
        """Record that a term's holder has ended."""
        self._store.write(self._named(f"{term}.released"), b"\n")

    def is_released(self, term: int) -> bool:
        """Return whether a term's holder has ended by itself."""
        return self._exists(self._named(f"{term}.released"))

    def has_term(self, term: int) -> bool:
        """Return whether a term is known to have begun, by this machine's copy of the run."""
        return self._copy.has_term(term)

    def _read(self, term: int) -> LeaseRecord:
        name = self._named(f"{term}.toml")
        try:
            text = self._store.read(name).decode()
            record = LeaseRecord.checked(tomllib.loads(text), Path(name))
        except (PacelineError, ValueError) as error:
            raise not_a_lease(f"{self._store.url}/{name}", str(error)) from None
        if record.term != term:
            raise not_a_lease(f"{self._store.url}/{name}", f"it is of term {record.term}")
        return record

    def _entries(self) -> list[Path]:
        found = [Path(name) for name in self._store.list(object_of(self._run.lease.name))]
        return [path for path in found if path.stem.isdigit()]

    def _exists(self, name: str) -> bool:
        return Path(name) in self._entries()

    def _named(self, entry: str) -> str:
        return object_of(f"{self._run.lease.name}/{entry}")


def lease_store_of(run: Run) -> LeaseStore:
    """Return where a run's lease is: in its folder, or in its object store."""
    url = run.url
    return LeaseFolder(run.lease) if url is None else ObjectLease(run, ObjectStore(url))
