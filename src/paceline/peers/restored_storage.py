"""Read a state from the survivors' memory with the interface of checkpoint storage."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from paceline.checkpoints.manifest import FileRecord
from paceline.checkpoints.pages.page_index import PageIndex
from paceline.checkpoints.pages.structure import worker_of
from paceline.checkpoints.saved_state import SavedState
from paceline.peers.inventory import Inventory, Moment, Row, Sources
from paceline.peers.memory_client import ByteRange, Calls, Peer, PeerFailed, Source
from paceline.peers.memory_file import MemoryFile
from paceline.peers.parity import rebuild
from paceline.peers.part_files import PartDescription, PartFiles
from paceline.peers.peer_memory import PeerMemory
from paceline.peers.shared_pages import SharedPages

Found = TypeVar("Found")

_PATIENCE_SECONDS = 5.0
"""Short: requested data either exists already or never will."""
_PAGE_SECONDS = 30.0
"""How long to wait for a page of a member that may still build its model."""


class PartLost(OSError):
    """The survivors can neither supply nor rebuild a part of the state."""


@contextmanager
def restored_storage(
    memory: PeerMemory,
    moment: Moment,
    inventories: Mapping[str, Inventory],
    peers: Mapping[str, Peer],
    *,
    name: str,
    generation: int,
    together: Sequence[str] = (),
) -> Iterator[SavedState]:
    """Open the state of a moment for reading from the members in `inventories`.

    `name` is this member's name; its own memory is read without the network. `generation` is the
    one about to begin; members in a newer generation refuse to answer. `together`: all members that
    restore it at this time, in order. Members that fail are excluded. Raises PartLost if too few
    members remain, or if the peer memory is interrupted.
    """
    calls = memory.calls(generation, _PATIENCE_SECONDS)
    try:
        yield _PeersState(
            memory, moment, inventories, peers, name, calls, generation, together
        ).saved()
    except BaseException:
        memory.pages.withdraw(generation)
        raise
    finally:
        calls.close()


class _PeersState:
    def __init__(
        self,
        memory: PeerMemory,
        moment: Moment,
        inventories: Mapping[str, Inventory],
        peers: Mapping[str, Peer],
        me: str,
        calls: Calls,
        generation: int,
        together: Sequence[str],
    ) -> None:
        self._copies, self._moment, self._peers = memory.copies, moment, peers
        self._me, self._calls = me, calls
        self._holdings = dict(inventories)
        self._sources = Sources(moment, inventories)
        self._described: dict[int, PartDescription] = {}
        self._pages = SharedPages(
            memory.pages,
            moment,
            generation,
            me=me,
            together=together,
            ask=self._page,
            describe=lambda rank: self._from_those_left(self._description, rank),
        )

    def saved(self) -> SavedState:
        """Return the state with the manifest that a checkpoint of it would have."""
        root = self._pages.root()
        index = PageIndex(root.structures, root.page, self._pages.read)
        return SavedState(root.manifest, index, self)

    @contextmanager
    def reading(self, step: int, name: str, most_bytes: int) -> Iterator[Path]:
        """Open a file for reading."""
        del most_bytes  # a file is received into memory of the size that its owner recorded
        if step != self._moment.step:
            raise FileNotFoundError(f"this is the state of step {self._moment.step}, not {step}")
        file = self._from_those_left(self._file, worker_of(name), name)
        yield file.path

    def _from_those_left(self, get: Callable[..., Found], *arguments: int | str) -> Found:
        """Retry without each member that fails, until `get` succeeds or too few members remain."""
        while True:
            try:
                return get(*arguments)
            except PeerFailed as failed:
                self._calls.close()  # answers of other members may still be in transit
                lost = {name for name in self._holdings if self._peers.get(name) == failed.peer}
                for name in lost:
                    del self._holdings[name]
                self._sources = Sources(self._moment, self._holdings)
                if self._sources.missing():
                    raise PartLost(
                        f"too few peers are left to restore step {self._moment.step}: {failed}"
                    ) from failed

    def _part(self, rank: int) -> PartDescription:
        if rank not in self._described:
            self._described |= self._pages.page_of(rank).descriptions()
        return self._described[rank]

    def _page(self, name: str, number: int) -> bytes:
        """Return a page that another member makes."""
        deadline = time.monotonic() + _PAGE_SECONDS
        try:
            while True:
                body = self._calls.source(self._peers[name]).page(self._moment, number)
                if body or time.monotonic() > deadline:
                    return body
        except PeerFailed:
            self._calls.close()  # its answer may still be in transit
            raise

    def _description(self, rank: int) -> PartDescription:
        names = list(self._sources.parts.get(rank, ()))
        for row in self._sources.rows_about(rank):
            names += self._sources.rows[row]
        if self._me in names:
            here = self._copies.description(self._moment, rank)
            if here is not None:
                return here
        return self._source(names).description(self._moment, rank)

    def _file(self, rank: int, name: str) -> MemoryFile:
        spans = self._part(rank).spans()
        begin, record = next((begin, record) for each, begin, record in spans if each == name)
        if self._me in self._sources.parts.get(rank, ()):
            here = self._copies.stored(self._moment, rank)
            if isinstance(here, PartFiles) and _is(here.files[name], record):
                return here.files[name]
            self._leave_out_own(rank)
        file = MemoryFile(record.bytes)
        if rank in self._sources.parts:
            source = self._source(self._sources.parts[rank])
            source.file(self._moment, rank, begin, file, record.blake3)
            return file
        found = self._sources.rebuilding_group(rank)
        if found is None:
            raise PartLost(f"the part of worker {rank} is no longer available")
        group, parity = found
        rebuild(
            rank,
            group,
            parity,
            {each: self._part(each).size for each in group},
            at_hand=lambda of: (
                of in (self._sources.rows if isinstance(of, Row) else self._sources.parts)
            ),
            read=self._read,
            begin=begin,
            into=file,
        )
        if not _is(file, record):
            raise PartLost(f"{name} could not be rebuilt from its parity group")
        return file

    def _leave_out_own(self, rank: int) -> None:
        """Stop using this member's copy of a rank, which is damaged; another member may have it."""
        held = tuple(
            each.model_copy(
                update={
                    "own": None if each.own == rank else each.own,
                    "copies": tuple(other for other in each.copies if other != rank),
                }
            )
            for each in self._holdings[self._me].held
        )
        self._holdings[self._me] = Inventory(held=held)
        self._sources = Sources(self._moment, self._holdings)

    def _read(self, byte_ranges: Sequence[ByteRange]) -> list[bytearray]:
        """Read byte ranges; send all requests before waiting for the first answer."""
        blocks: list[bytearray] = []
        asked: list[tuple[Source, bytearray]] = []
        for each in byte_ranges:
            here = self._copies.stored(self._moment, each.of)
            if here is not None:
                blocks.append(bytearray().join(here.views(each.begin, each.bytes)))
                continue
            of = each.of
            source = self._source(
                self._sources.rows[of] if isinstance(of, Row) else self._sources.parts[of]
            )
            source.ask(self._moment, each)
            blocks.append(bytearray(each.bytes))
            asked.append((source, blocks[-1]))
        for source, block in asked:
            source.take(memoryview(block))
        return blocks

    def _source(self, names: Sequence[str]) -> Source:
        others = [name for name in names if name != self._me]
        if not others:
            raise PartLost(f"this worker no longer holds its part of step {self._moment.step}")
        return self._calls.source(self._peers[others[0]])


def _is(file: MemoryFile, record: FileRecord) -> bool:
    return file.blake3(0, file.size) == record.blake3
