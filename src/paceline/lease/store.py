"""Storage of a run's lease.

Each term is an entry of its own, created exclusively: of all that want the next term, one gets it.
A holder rewrites only its own entry, so nothing ever needs to compare and swap. An object store
offers the same with conditional puts (`object_lease`).
"""

import os
import uuid
from pathlib import Path
from typing import Protocol

from paceline.lease.record import LeaseRecord
from paceline.specs.errors import PacelineError
from paceline.specs.owned_files import NotOwned, make_folder, open_owned, write_owned


class LeaseStore(Protocol):
    """The terms of one run's lease."""

    def newest(self) -> LeaseRecord | None:
        """Return the newest term; None before the first."""

    def create(self, record: LeaseRecord) -> bool:
        """Begin a term; return False, without a change, if another holder has begun it."""

    def rewrite(self, record: LeaseRecord) -> None:
        """Replace the entry of a term; only its holder calls this."""

    def release(self, term: int) -> None:
        """Record that a term's holder has ended."""

    def is_released(self, term: int) -> bool:
        """Return whether a term's holder has ended by itself."""

    def has_term(self, term: int) -> bool:
        """Return whether a term is known to have begun."""


class LeaseFolder:
    """A lease in a folder that nodes may share: `<term>.toml`, and `<term>.released` at its end.

    No `flock`: network file systems do not all honor it between nodes. A new term is written to a
    draft and linked to its name, which is atomic on NFS too, so a reader never sees half a file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def newest(self) -> LeaseRecord | None:
        """Return the newest term; None before the first."""
        terms = [int(path.stem) for path in self._folder.glob("*.toml") if path.stem.isdigit()]
        return self._read(max(terms)) if terms else None

    def create(self, record: LeaseRecord) -> bool:
        """Begin a term; return False, without a change, if another holder has begun it."""
        make_folder(self._folder, exist_ok=True)
        draft = self._folder / f".draft-{uuid.uuid4().hex}"
        write_owned(draft, record.to_toml())
        try:
            try:
                os.link(draft, self._file(record.term))
            except FileExistsError:
                pass
            except OSError as error:
                raise PacelineError(
                    f"{self._folder} is on a file system without hard links"
                    f" ({error.strerror}), so two trainers could take the run at once",
                    fix="keep the run's folder on another file system (--runs DIR)",
                ) from None
            # A repeated request can report an error although the first one succeeded.
            return draft.stat().st_nlink == 2
        finally:
            draft.unlink()

    def rewrite(self, record: LeaseRecord) -> None:
        """Replace the entry of a term; only its holder calls this."""
        write_owned(self._file(record.term), record.to_toml())

    def release(self, term: int) -> None:
        """Record that a term's holder has ended."""
        open_owned(self._released(term), "a").close()

    def is_released(self, term: int) -> bool:
        """Return whether a term's holder has ended by itself."""
        return self._released(term).exists()

    def has_term(self, term: int) -> bool:
        """Return whether a term is known to have begun."""
        try:
            return self._file(term).exists()
        except OSError:  # a file server that is away for a while must not end a training
            return False

    def _read(self, term: int) -> LeaseRecord:
        path = self._file(term)
        try:
            record = LeaseRecord.read(path, own=True)
        except NotOwned:
            raise
        except PacelineError as error:
            raise not_a_lease(path, error.problem) from None
        if record.term != term:
            raise not_a_lease(path, f"it is of term {record.term}")
        return record

    def _file(self, term: int) -> Path:
        return self._folder / f"{term}.toml"

    def _released(self, term: int) -> Path:
        return self._folder / f"{term}.released"


def not_a_lease(path: Path | str, problem: str) -> PacelineError:
    """Return the refusal of a lease's entry that Paceline did not write."""
    return PacelineError(
        f"{path} should name the process or job that trains the run, but Paceline did not write"
        f" it: {problem}",
        fix="see that no process and no job trains the run, then delete that file",
    )
