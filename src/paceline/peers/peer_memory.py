"""Hold this worker's state, and its peers' copies and parity, in memory during training.

The training thread copies the state between steps. A background thread lays it out as checkpoint
files, then reads from the peers the parts that this worker must store. No worker writes into
another worker's memory.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from paceline.checkpoints.pages.outline import Outline
from paceline.checkpoints.saver import Snapshot, describe
from paceline.checkpoints.staging import Staging
from paceline.peers.copy_placement import Duties, duties
from paceline.peers.erasure_code import check_possible
from paceline.peers.held_copies import HeldCopies
from paceline.peers.inventory import Inventory, Moment, Row
from paceline.peers.memory_client import ByteRange, Calls, Peer
from paceline.peers.memory_file import Pool
from paceline.peers.memory_server import Server
from paceline.peers.parity import computed_row
from paceline.peers.part_files import laid_out
from paceline.peers.shared_pages import PublishedPages


@dataclass(frozen=True)
class Copied:
    """The size and duration of one peer copy, on this worker."""

    bytes: int
    """Size of this worker's own part."""
    received_bytes: int
    """Bytes read from peers."""
    seconds: float
    """Time from the end of the step until this worker holds everything that it must store."""
    stall_seconds: float
    """How long training was blocked."""


@dataclass(frozen=True)
class _Place:
    """This worker's rank, peers and buffers in one generation.

    Each generation has its own buffers, because an aborted copy of the previous generation may
    still use the old ones.
    """

    generation: int
    rank: int
    peers: tuple[Peer, ...]
    duties: Duties
    outline: Outline
    staging: Staging = field(default_factory=Staging)
    pool: Pool = field(default_factory=Pool)


class PeerMemory:
    """One member's peer memory: what it holds, its server and its connections.

    `on_copied` receives the result of every copy: a `Copied`, or the reason why this worker does
    not hold everything that it must store. A failed copy does not prevent the next one.
    """

    def __init__(
        self,
        secret: bytes,
        address: str,
        on_copied: Callable[[int, Copied | str], None],
        *,
        patience_seconds: float = 30.0,
    ) -> None:
        self._secret, self._patience_seconds = secret, patience_seconds
        self.copies = HeldCopies()
        self._on_copied = on_copied
        self.pages = PublishedPages()
        self._server = Server(address, secret, self.copies, self.pages)
        self._place: _Place | None = None
        self._thread: threading.Thread | None = None
        self._calls: Calls | None = None

    @property
    def port(self) -> int:
        """The port on which peers read this member's memory."""
        return self._server.port

    def join(
        self,
        generation: int,
        rank: int | None,
        peers: Sequence[Peer],
        *,
        step: int,
        parity_group: int,
        parity: int,
    ) -> None:
        """Join a generation that continues after `step`; `rank` is None for a spare.

        `peers` are in rank order. State up to `step` stays until newer state replaces it; later
        state is dropped. A copy in progress is aborted without waiting for it, because its peers
        may be dead.
        """
        self._leave()
        self._thread = None
        self.copies.begin(generation, step)
        self.pages.withdraw(generation)
        if rank is not None:
            nodes = [peer.node for peer in peers]
            mine = duties(rank, nodes, parity_group=parity_group, parity=parity)
            for row in mine.rows:
                check_possible(row.parity)
            self._place = _Place(generation, rank, tuple(peers), mine, Outline(rank))

    def copy(self, snapshot: Snapshot) -> None:
        """Wait for the previous copy, then start one. The tensors may change after this returns;
        those of a device after `state_copies.let_end`."""
        if self._place is None:
            raise RuntimeError("a member without a rank has no state to copy")
        began = time.perf_counter()
        self.wait()
        staged = self._place.staging.copied(snapshot.sections)
        stall = time.perf_counter() - began
        self._thread = threading.Thread(
            target=self._copy,
            args=(
                self._place,
                replace(snapshot, sections=staged),
                self.calls(self._place.generation, self._patience_seconds),
                began,
                stall,
            ),
            name="copy to peers",
            daemon=True,  # a copy unfinished at process exit is lost anyway
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until the last copy is complete on this worker, or has failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def calls(self, generation: int, patience_seconds: float) -> Calls:
        """Return new connections to peers, which `interrupt` ends; interrupt the previous ones."""
        self.interrupt()
        self._calls = Calls(self._secret, generation, patience_seconds)
        return self._calls

    def interrupt(self) -> None:
        """Make a copy or restore in progress fail, as its peers may be dead. Safe from any
        thread."""
        if self._calls is not None:
            self._calls.interrupt()

    @property
    def complete_step(self) -> int | None:
        """The newest step for which this worker holds its own part and everything it must store."""
        return self.copies.complete_step

    def inventory(self) -> Inventory:
        """Return this member's inventory, for finding the newest complete state."""
        return self.copies.inventory()

    def forget(self, before: int) -> None:
        """Drop earlier steps; the caller knows that step `before` is complete on all workers."""
        self.copies.forget(before)

    def close(self) -> None:
        """Drop all state and stop the server."""
        self._leave()
        self.wait()
        self.copies.close()
        self.pages.close()
        self._server.close()

    def _leave(self) -> None:
        self.interrupt()
        if self._place is not None:
            self._place.pool.close()
            self._place = None

    def _copy(
        self, place: _Place, snapshot: Snapshot, calls: Calls, began: float, stall_seconds: float
    ) -> None:
        step = snapshot.head.step
        moment = Moment(generation=place.generation, step=step, workers=len(place.peers))
        try:
            place.staging.wait(lambda: place is not self._place)
            own = laid_out(snapshot.arrived(), place.outline, place.pool)
            self.copies.put_own(moment, place.rank, own)
            received = sum(
                self._keep_copy(place, calls, moment, rank) for rank in place.duties.copies
            ) + sum(self._keep_row(place, calls, moment, row) for row in place.duties.rows)
            self.copies.completed(moment)
        except Exception as error:
            self._on_copied(step, describe(error))
            return
        finally:
            calls.close()
        seconds = time.perf_counter() - began
        self._on_copied(step, Copied(own.description.size, received, seconds, stall_seconds))

    def _keep_copy(self, place: _Place, calls: Calls, moment: Moment, rank: int) -> int:
        source = calls.source(place.peers[rank])
        description = source.description(moment, rank, wait=True)
        self.copies.put_copy(moment, rank, source.copied(moment, rank, description, place.pool))
        return description.size

    def _keep_row(self, place: _Place, calls: Calls, moment: Moment, row: Row) -> int:
        # One after the other: a peer soon closes a connection on which it is asked nothing.
        described = {
            rank: calls.source(place.peers[rank]).description(moment, rank, wait=True)
            for rank in row.data_ranks
        }
        sources = {rank: calls.source(place.peers[rank]) for rank in row.data_ranks}
        received = 0

        def read(byte_ranges: Sequence[ByteRange]) -> list[bytearray]:
            nonlocal received
            asked = [(sources[cast(int, each.of)], bytearray(each.bytes)) for each in byte_ranges]
            for (source, _), byte_range in zip(asked, byte_ranges, strict=True):
                source.ask(moment, byte_range)
            for source, block in asked:
                source.take(memoryview(block))
                received += len(block)
            return [block for _, block in asked]

        sizes = {rank: each.size for rank, each in described.items()}
        self.copies.put_row(moment, row, computed_row(row, sizes, read, place.pool), described)
        return received
