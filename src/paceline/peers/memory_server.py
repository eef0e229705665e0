"""Server side of peer memory: answers other members' reads."""

import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from blake3 import blake3

from paceline.comm.signing import Forged
from paceline.comm.strangers import PROOF_SECONDS, Strangers
from paceline.peers.held_copies import HeldCopies
from paceline.peers.protocol import IDLE_SECONDS, Answer, AskPage, AskPart, Question, Refusal, Wire
from paceline.peers.shared_pages import PublishedPages

_BREATH_SECONDS = 0.05
"""Pause after a failed accept: the process may have run out of file descriptors."""


class Server:
    """A server on one address with one thread per connection.

    The threads mostly wait for the network or compute hashes, both without holding the GIL.
    """

    def __init__(
        self, address: str, secret: bytes, copies: HeldCopies, pages: PublishedPages
    ) -> None:
        self._secret, self._copies, self._pages = secret, copies, pages
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family, backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._strangers: Strangers[socket.socket] = Strangers(_end)
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._accepting = threading.Thread(target=self._accept, name="peer memory", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._closed.set()
            open_ones = list(self._connections.items())
        _end(self._listener)
        self._accepting.join()
        for connection, _ in open_ones:
            _end(connection)
        for _, thread in open_ones:
            thread.join()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                self._closed.wait(_BREATH_SECONDS)
                continue
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="peer memory", daemon=True
            )
            with self._lock:
                if self._closed.is_set():
                    connection.close()
                    break
                self._connections[connection] = thread
                self._strangers.add(connection)
                try:
                    thread.start()
                except RuntimeError:  # the system allows no further thread
                    self._strangers.remove(connection)
                    del self._connections[connection]
                    connection.close()
        self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        known = False
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            deadline = time.monotonic() + PROOF_SECONDS
            wire = Wire(connection, self._secret, called=False, deadline=deadline)
            while True:
                question = wire.receive_message()
                if not known:
                    known = True
                    self._strangers.remove(connection)
                    wire.trust(IDLE_SECONDS)
                if not isinstance(question, Question):
                    raise Forged(f"received {question.kind} instead of a question")
                self._answer(wire, question)
        except OSError:
            pass  # the client notices and tries another member
        finally:
            self._strangers.remove(connection)
            with self._lock:
                self._connections.pop(connection, None)
            connection.close()

    def _answer(self, wire: Wire, question: Question) -> None:
        if question.generation < self._copies.generation:
            wire.send_message(
                Refusal(
                    why=f"this is generation {self._copies.generation}, not {question.generation}"
                )
            )
            return
        found = self._found(question)
        if found is None:
            moment = question.moment
            wire.send_message(
                Refusal(why=f"no copy of step {moment.step} of generation {moment.generation} here")
            )
            return
        answer, parts = found
        wire.send_message(answer)
        wire.send(parts)

    def _found(self, question: Question) -> tuple[Answer, Iterable[memoryview]] | None:
        moment = question.moment
        if isinstance(question, AskPart):
            part = self._copies.description(moment, question.rank, question.wait_seconds)
            if part is None:
                return None
            body = part.packed
            digest = blake3(body).hexdigest()
            return Answer(bytes=len(body), blake3=digest), [memoryview(body)]
        if isinstance(question, AskPage):
            page = self._pages.find(question.generation, question.number, question.wait_seconds)
            if page is None:
                return None
            return Answer(bytes=len(page), blake3=blake3(page).hexdigest()), [memoryview(page)]
        begin, count = question.begin, question.bytes
        stored = self._copies.stored(moment, question.of)
        if stored is None or begin + count > stored.size:
            return None
        answer = Answer(bytes=count, blake3=stored.blake3(begin, count))
        return answer, stored.views(begin, count)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):  # already shut down
        connection.shutdown(socket.SHUT_RDWR)
