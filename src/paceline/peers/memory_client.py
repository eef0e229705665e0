"""Client side of peer memory: reads state from other members."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from paceline.checkpoints.pages.packed import unpacked
from paceline.comm.signing import Forged
from paceline.peers.inventory import Moment, Row
from paceline.peers.memory_file import MemoryFile, Pool
from paceline.peers.part_files import PartDescription, PartFiles
from paceline.peers.protocol import (
    IDLE_SECONDS,
    Answer,
    AskBytes,
    AskPage,
    AskPart,
    Refusal,
    Wire,
)

_MOST_DESCRIPTION_BYTES = 1 << 30
_CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Peer:
    """The address of a member's memory server."""

    address: str
    port: int
    node: str


class PeerFailed(ConnectionError):
    """A member does not answer, or sends a wrong answer."""

    def __init__(self, peer: Peer, why: Exception | str) -> None:
        super().__init__(f"the worker at {peer.address}, port {peer.port}, on {peer.node}: {why}")
        self.peer = peer


@dataclass(frozen=True)
class ByteRange:
    """A byte range of a rank's part or of a parity row."""

    of: int | Row
    begin: int
    bytes: int


class Source:
    """Another member's memory, over one connection. Every failure raises PeerFailed."""

    def __init__(self, peer: Peer, secret: bytes, generation: int, patience_seconds: float) -> None:
        self._peer, self._generation = peer, generation
        self._patience_seconds = patience_seconds
        self._used = time.monotonic()
        with self._told_of():
            self._connection = socket.create_connection((peer.address, peer.port), _CONNECT_SECONDS)
            try:
                self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                deadline = time.monotonic() + _CONNECT_SECONDS
                self._wire = Wire(self._connection, secret, called=True, deadline=deadline)
                # The other end may wait as long as `patience_seconds` before it refuses.
                self._wire.trust(patience_seconds + _CONNECT_SECONDS)
            except BaseException:
                self._connection.close()
                raise

    @property
    def may_be_closed(self) -> bool:
        """Whether the other end may have closed the connection, because it was idle."""
        return time.monotonic() - self._used > IDLE_SECONDS / 2

    def description(self, moment: Moment, rank: int, *, wait: bool = False) -> PartDescription:
        """Return the description of a rank's part; with `wait`, wait until the part exists."""
        seconds = self._patience_seconds if wait else 0
        with self._told_of():
            self._wire.send_message(
                AskPart(generation=self._generation, moment=moment, rank=rank, wait_seconds=seconds)
            )
            body = self._body()
            try:
                found, _ = unpacked(PartDescription, body, _MOST_DESCRIPTION_BYTES)
            except ValueError:
                raise Forged("received no description of a part") from None
            if found.head.step != moment.step:
                raise Forged(f"received a part of step {found.head.step}, not {moment.step}")
            return found

    def page(self, moment: Moment, number: int) -> bytes:
        """Return a page that this member makes for a restore; empty if it is not there yet."""
        with self._told_of():
            self._wire.send_message(
                AskPage(
                    generation=self._generation,
                    moment=moment,
                    number=number,
                    wait_seconds=self._patience_seconds,
                )
            )
            return self._body()

    def copied(self, moment: Moment, rank: int, part: PartDescription, pool: Pool) -> PartFiles:
        """Read all files of a rank's part and verify their hashes."""
        files = {}
        for name, begin, record in part.spans():
            files[name] = MemoryFile(record.bytes, pool)
            self.file(moment, rank, begin, files[name], record.blake3)
        return PartFiles(part, files)

    def file(self, moment: Moment, rank: int, begin: int, into: MemoryFile, blake3: str) -> None:
        """Read one file of a rank's part and verify its hash."""
        self.ask(moment, ByteRange(rank, begin, into.size))
        with self._told_of(), into.view as view:
            if self._taken(view) != blake3:
                raise Forged("a file does not match its owner's hash")

    def ask(self, moment: Moment, byte_range: ByteRange) -> None:
        """Request bytes; `take` receives them later."""
        with self._told_of():
            self._wire.send_message(
                AskBytes(
                    generation=self._generation,
                    moment=moment,
                    of=byte_range.of,
                    begin=byte_range.begin,
                    bytes=byte_range.bytes,
                )
            )

    def take(self, into: memoryview) -> None:
        """Receive the requested bytes."""
        with self._told_of():
            self._taken(into)

    def interrupt(self) -> None:
        """Shut down the connection from another thread, so that a blocked read fails at once."""
        with suppress(OSError):  # already shut down
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _body(self) -> bytes:
        answer = self._heard()
        if answer.bytes > _MOST_DESCRIPTION_BYTES:
            raise Forged(f"a description of {answer.bytes} bytes exceeds the limit")
        body = bytearray(answer.bytes)
        self._receive(answer, memoryview(body))
        return bytes(body)

    def _taken(self, into: memoryview) -> str:
        answer = self._heard()
        if answer.bytes != len(into):
            raise Forged(f"{answer.bytes} bytes were announced instead of {len(into)}")
        return self._receive(answer, into)

    def _heard(self) -> Answer:
        answer = self._wire.receive_message()
        if isinstance(answer, Refusal):
            raise PeerFailed(self._peer, answer.why)
        if not isinstance(answer, Answer):
            raise Forged(f"received {answer.kind} instead of an answer")
        return answer

    def _receive(self, answer: Answer, into: memoryview) -> str:
        found = self._wire.receive(into)
        if found != answer.blake3:
            raise Forged("received bytes do not match their announced hash")
        return found

    @contextmanager
    def _told_of(self) -> Iterator[None]:
        try:
            yield
        except PeerFailed:
            raise
        except OSError as error:
            raise PeerFailed(self._peer, error) from error
        finally:
            self._used = time.monotonic()


class Calls:
    """Connections to several members for the duration of one operation."""

    def __init__(self, secret: bytes, generation: int, patience_seconds: float) -> None:
        self._secret, self._generation = secret, generation
        self._patience_seconds = patience_seconds
        self._open: dict[Peer, Source] = {}
        self._lock = threading.Lock()
        self._interrupted = False

    def source(self, peer: Peer) -> Source:
        """Return the connection to a member, for use by one thread at a time."""
        with self._lock:
            known = self._open.get(peer)
        if known is not None and not known.may_be_closed:
            return known
        if known is not None:
            known.close()
        source = Source(peer, self._secret, self._generation, self._patience_seconds)
        with self._lock:
            self._open[peer] = source
            if self._interrupted:
                source.interrupt()
        return source

    def interrupt(self) -> None:
        """Make all reads in progress fail at once; call it from another thread."""
        with self._lock:
            self._interrupted = True
            for source in self._open.values():
                source.interrupt()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for source in self._open.values():
                source.close()
            self._open.clear()
