"""Keeps this worker's state, and what it should keep of others', in memory while training goes on.

At the edge of a step the state is copied; a thread lays it out as the files of a checkpoint, then
reads from the others what this worker should keep of theirs. Nobody writes into another's memory.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from paceline.checkpoints.saver import Snapshot, describe
from paceline.checkpoints.staging import Staging
from paceline.peers.copy_placement import Duties, duties
from paceline.peers.erasure_code import check_possible
from paceline.peers.held_copies import HeldCopies
from paceline.peers.inventory import Inventory, Moment, Row
from paceline.peers.memory_client import Calls, Peer, Stretch
from paceline.peers.memory_file import Pool
from paceline.peers.memory_server import Server
from paceline.peers.parity import computed_row
from paceline.peers.part_files import Outline, laid_out


@dataclass(frozen=True)
class Copied:
    """What a copy took of this worker."""

    bytes: int
    """Its own part."""
    received_bytes: int
    """What it read from others."""
    seconds: float
    """From the edge of the step until all that it should keep was there."""
    stall_seconds: float
    """How long training stood still for it."""


@dataclass(frozen=True)
class _Place:
    """In one generation. Its buffers are its own: a copy of the generation before may still use
    others."""

    generation: int
    rank: int
    peers: tuple[Peer, ...]
    duties: Duties
    outline: Outline
    staging: Staging = field(default_factory=Staging)
    pool: Pool = field(default_factory=Pool)


class PeerMemory:
    """What one member keeps, and its connections to the others.

    `tell` hears from every copy what it took, or why this worker does not have all that it should
    keep of it; the next one is tried all the same.
    """

    def __init__(
        self,
        secret: bytes,
        address: str,
        tell: Callable[[int, Copied | str], None],
        *,
        patience_seconds: float = 30.0,
    ) -> None:
        self._secret, self._patience_seconds = secret, patience_seconds
        self.copies = HeldCopies()
        self._tell = tell
        self._server = Server(address, secret, self.copies)
        self._place: _Place | None = None
        self._thread: threading.Thread | None = None
        self._calls: Calls | None = None

    @property
    def port(self) -> int:
        """Where others read this member's memory."""
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
        """A generation of workers, by their ranks, begins after `step`; without a rank this member
        stands by. What is kept stays until there is newer, but for what was after that step. A copy
        that is going on is given up, but not waited for: its peers may be gone."""
        self._leave()
        self._thread = None
        self.copies.begin(generation, step)
        if rank is not None:
            nodes = [peer.node for peer in peers]
            mine = duties(rank, nodes, parity_group=parity_group, parity=parity)
            for row in mine.rows:
                check_possible(row.parity)
            self._place = _Place(generation, rank, tuple(peers), mine, Outline(rank))

    def copy(self, snapshot: Snapshot) -> None:
        """Begin to copy; the tensors may change again when this returns. The copy before this one
        is waited for, if it is still going on."""
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
                Snapshot(snapshot.head, staged, snapshot.scalars),
                self.calls(self._place.generation, self._patience_seconds),
                began,
                stall,
            ),
            name="copy to peers",
            daemon=True,  # what is not copied when the process ends is gone anyway
        )
        self._thread.start()

    def wait(self) -> None:
        """Until this worker has what it should keep of the last copy, or has given up."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def calls(self, generation: int, patience_seconds: float) -> Calls:
        """Connections to others, which `interrupt` ends; those before are given up."""
        self.interrupt()
        self._calls = Calls(self._secret, generation, patience_seconds)
        return self._calls

    def interrupt(self) -> None:
        """Let the copy that is going on, or the reading of a state, fail at once; from any thread:
        others who are waited for may be gone."""
        if self._calls is not None:
            self._calls.interrupt()

    @property
    def complete_step(self) -> int | None:
        """The newest step of which this worker has its own part and all that it should keep."""
        return self.copies.complete_step

    def holdings(self) -> Inventory:
        """What this member has, to find the newest state that is whole."""
        return self.copies.holdings()

    def forget(self, before: int) -> None:
        """Drop what is of earlier steps: the caller knows that this one is complete everywhere."""
        self.copies.forget(before)

    def close(self) -> None:
        """Drop all and listen no longer."""
        self._leave()
        self.wait()
        self.copies.close()
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
            own = laid_out(snapshot, place.outline, place.pool)
            self.copies.put_own(moment, place.rank, own)
            received = sum(
                self._keep_copy(place, calls, moment, rank) for rank in place.duties.copies
            ) + sum(self._keep_row(place, calls, moment, row) for row in place.duties.rows)
            self.copies.completed(moment)
        except Exception as error:
            self._tell(step, describe(error))
            return
        finally:
            calls.close()
        seconds = time.perf_counter() - began
        self._tell(step, Copied(own.description.bytes, received, seconds, stall_seconds))

    def _keep_copy(self, place: _Place, calls: Calls, moment: Moment, rank: int) -> int:
        source = calls.source(place.peers[rank])
        description = source.description(moment, rank, wait=True)
        self.copies.put_copy(moment, rank, source.copied(moment, rank, description, place.pool))
        return description.bytes

    def _keep_row(self, place: _Place, calls: Calls, moment: Moment, row: Row) -> int:
        sources = {rank: calls.source(place.peers[rank]) for rank in row.data_ranks}
        described = {
            rank: source.description(moment, rank, wait=True) for rank, source in sources.items()
        }
        received = 0

        def read(stretches: Sequence[Stretch]) -> list[bytearray]:
            nonlocal received
            asked = [(sources[cast(int, each.of)], bytearray(each.bytes)) for each in stretches]
            for (source, _), stretch in zip(asked, stretches, strict=True):
                source.ask(moment, stretch)
            for source, block in asked:
                source.take(memoryview(block))
                received += len(block)
            return [block for _, block in asked]

        sizes = {rank: each.bytes for rank, each in described.items()}
        self.copies.put_row(moment, row, computed_row(row, sizes, read, place.pool), described)
        return received
