"""The peer copies and parity that one member holds in memory, by moment."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.peers.inventory import HeldMoment, Inventory, Moment, Row
from paceline.peers.memory_file import MemoryFile
from paceline.peers.part_files import PartDescription, PartFiles

_MOST_MOMENTS = 3
"""A worker may be a whole copy ahead of a peer that is still receiving the previous copy."""


@dataclass
class _StoredState:
    own: int | None = None
    parts: dict[int, PartFiles] = field(default_factory=dict)
    rows: dict[Row, MemoryFile] = field(default_factory=dict)
    described: dict[int, PartDescription] = field(default_factory=dict)
    """Descriptions of parts whose parity is held here, but not their bytes."""
    complete: bool = False


class HeldCopies:
    """A member's own parts, peer copies and parity. Entries never change once stored."""

    def __init__(self) -> None:
        self._kept: dict[Moment, _StoredState] = {}
        self._changed = threading.Condition()
        self._closed = False
        self.generation = 0
        """The newest generation this member has been in. It refuses requests from older ones."""

    def begin(self, generation: int, step: int) -> None:
        """Begin a generation that continues after `step`; drop later state: it is invalid."""
        with self._changed:
            self.generation = generation
            for moment in [each for each in self._kept if each.step > step]:
                del self._kept[moment]
            self._changed.notify_all()

    def put_own(self, moment: Moment, rank: int, part: PartFiles) -> None:
        """Store this member's own part."""
        with self._changed:
            if moment.generation != self.generation:
                raise ConnectionAbortedError(f"the copy of step {moment.step} was abandoned")
            kept = self._kept.setdefault(moment, _StoredState())
            kept.own, kept.parts[rank] = rank, part
            self._drop_oldest()
            self._changed.notify_all()

    def put_copy(self, moment: Moment, rank: int, part: PartFiles) -> None:
        """Store another rank's part, which must be complete and verified."""
        with self._changed:
            self._going_on(moment).parts[rank] = part

    def put_row(
        self, moment: Moment, row: Row, file: MemoryFile, described: Mapping[int, PartDescription]
    ) -> None:
        """Store a parity row and the descriptions of the parts that it covers."""
        with self._changed:
            kept = self._going_on(moment)
            kept.rows[row] = file
            kept.described.update(described)

    def completed(self, moment: Moment) -> None:
        """Mark a moment as complete: this member holds everything that it must store of it."""
        with self._changed:
            self._going_on(moment).complete = True

    def _going_on(self, moment: Moment) -> _StoredState:
        """Return the entry of a copy in progress; raise an error if a new generation began."""
        if moment.generation != self.generation or moment not in self._kept:
            raise ConnectionAbortedError(f"the copy of step {moment.step} was abandoned")
        return self._kept[moment]

    @property
    def complete_step(self) -> int | None:
        """The newest step for which this member holds everything that it must store."""
        with self._changed:
            return max(
                (each.step for each, kept in self._kept.items() if kept.complete), default=None
            )

    def forget(self, before: int) -> None:
        """Drop everything from earlier steps."""
        with self._changed:
            for moment in [each for each in self._kept if each.step < before]:
                del self._kept[moment]

    def close(self) -> None:
        """Drop everything and release all waiting threads."""
        with self._changed:
            self._closed = True
            self._kept.clear()
            self._changed.notify_all()

    def description(
        self, moment: Moment, rank: int, wait_seconds: float = 0
    ) -> PartDescription | None:
        """Return a part's description, after waiting up to `wait_seconds` for it."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._described(moment, rank) is not None
                    or self._closed
                    or self.generation > moment.generation
                ),
                wait_seconds,
            )
            return self._described(moment, rank)

    def _described(self, moment: Moment, rank: int) -> PartDescription | None:
        kept = self._kept.get(moment)
        if kept is None:
            return None
        part = kept.parts.get(rank)
        return part.description if part else kept.described.get(rank)

    def stored(self, moment: Moment, of: int | Row) -> PartFiles | MemoryFile | None:
        """Return a rank's part or a parity row, or None if it is not held here."""
        with self._changed:
            kept = self._kept.get(moment)
            if kept is None:
                return None
            return kept.rows.get(of) if isinstance(of, Row) else kept.parts.get(of)

    def inventory(self) -> Inventory:
        """Return an inventory of everything held here."""
        with self._changed:
            return Inventory(
                held=tuple(
                    HeldMoment(
                        moment=moment,
                        own=kept.own,
                        copies=tuple(sorted(kept.parts.keys() - {kept.own})),
                        rows=tuple(kept.rows),
                    )
                    for moment, kept in self._kept.items()
                )
            )

    def _drop_oldest(self) -> None:
        """Drop moments beyond the limit, incomplete ones first, but never the newest."""
        while len(self._kept) > _MOST_MOMENTS:
            _, *older = sorted(self._kept, key=lambda each: each.order, reverse=True)
            unfinished = [moment for moment in older if not self._kept[moment].complete]
            del self._kept[(unfinished or older)[-1]]
