"""The last votes of a node's members, in files of that node's memory, which outlive their process.

A member records each vote before it answers. When it is dead, its neighbors read its last vote and
report it, so that no leader takes a member for dead without knowing what it voted for. A member
without a readable record is only absent.
"""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from paceline.membership.consensus import AcceptorState
from paceline.membership.deaths.process_death import is_dead
from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError
from paceline.specs.owned_files import make_folder, read_bounded, write_owned
from paceline.specs.runs.roster import Member, Roster

_MEMORY = Path("/dev/shm")  # noqa: S108 -- the folder in it is this user's alone
_MOST_BYTES = 64 << 20
_KEPT_GENERATIONS = 4
_STALE_SECONDS = 3600.0
_RECORD, _ROSTER = ".vote", ".roster"


class _Record(Spec):
    """A member's last state; rosters by the names of their files."""

    member: Member
    begun: str
    accepted: str | None
    closed: bool
    """Whether it has left the run, or rejoined under another name, and will not vote again."""


class LastVotes:
    """The folder of one run on this node. It is private to this user."""

    def __init__(self, secret: bytes, memory: Path = _MEMORY) -> None:
        words = hashlib.sha256(b"votes" + secret).hexdigest()[:32]
        self._folder = memory / f"paceline-votes-{os.geteuid()}-{words}"

    def record(self, member: Member, state: AcceptorState, *, closed: bool = False) -> bool:
        """Record a member's state before it votes; return whether it may vote.

        A member whose state cannot be written has no record, so that nobody reads an older one.
        """
        try:
            if not self._folder.exists():
                self._remove_stale()
                make_folder(self._folder, share=False, exist_ok=True)
            accepted = None if state.accepted is None else self._written(state.accepted)
            begun = self._written(state.begun)
            record = _Record(member=member, begun=begun, accepted=accepted, closed=closed)
            write_owned(self._path(member.name), record.model_dump_json())
        except (OSError, PacelineError):
            try:
                self._path(member.name).unlink(missing_ok=True)
            except OSError:
                return False
        return True

    def read(self, name: str) -> AcceptorState | None:
        """Return a dead member's last state; None if it is not known."""
        try:
            record = _read_record(self._path(name))
            accepted = None if record.accepted is None else self._read(record.accepted)
            return AcceptorState(self._read(record.begun), accepted, 0)
        except (OSError, PacelineError, ValueError):
            return None

    def rejoins(self, member: Member) -> bool:
        """Return whether a member's process has taken another name, under which it joins again."""
        for path in self._folder.glob(f"*{_RECORD}"):
            with suppress(OSError, PacelineError, ValueError):
                record = _read_record(path)
                has_its_name = record.member.name == member.name
                if record.member.is_process_of(member) and not (has_its_name or record.closed):
                    return True
        return False

    def _remove_stale(self) -> None:
        """Remove the folders of runs whose workers were all killed."""
        for folder in self._folder.parent.glob(f"paceline-votes-{os.geteuid()}-*"):
            with suppress(OSError, PacelineError, ValueError):
                if time.time() - folder.stat().st_mtime > _STALE_SECONDS:
                    _remove_if_ended(folder)

    def forget_before(self, generation: int) -> None:
        """Remove rosters that are much older than a generation."""
        with suppress(OSError, ValueError):
            for path in self._folder.glob(f"*{_ROSTER}"):
                if int(path.name.partition("-")[0]) < generation - _KEPT_GENERATIONS:
                    path.unlink(missing_ok=True)

    def close(self, member: Member, state: AcceptorState) -> None:
        """Note that a member has left the run; remove the folder after the last one."""
        self.record(member, state, closed=True)
        with suppress(OSError, PacelineError, ValueError):
            _remove_if_ended(self._folder)

    def _path(self, name: str) -> Path:
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}{_RECORD}"

    def _written(self, roster: Roster) -> str:
        """Return the name of a roster's file, which the node's first member to need it writes."""
        # Of a member that has been in no generation, the generation is -1.
        path = self._folder / f"{roster.generation + 1:09d}-{roster.digest}{_ROSTER}"
        if not path.exists():
            write_owned(path, roster.model_dump_json())
        return path.name

    def _read(self, name: str) -> Roster:
        if Path(name).name != name:
            raise ValueError("not the name of a file in this folder")
        text = read_bounded(self._folder / name, _MOST_BYTES, own=True)
        return Roster.model_validate_json(text)


def _remove_if_ended(folder: Path) -> None:
    records = [_read_record(path) for path in folder.glob(f"*{_RECORD}")]
    if all(each.closed or is_dead(each.member) for each in records):
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        folder.rmdir()


def _read_record(path: Path) -> _Record:
    return _Record.model_validate_json(read_bounded(path, _MOST_BYTES, own=True))
