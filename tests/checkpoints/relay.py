"""A relay in front of a server, which counts what the server sends."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Relay:
    """Where it listens, and the bytes that it has passed on to clients."""

    def __init__(self, port: int) -> None:
        self.sent_bytes = 0
        self._server = ("127.0.0.1", port)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Pass on every connection until the listening socket is closed."""
        with suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                server = socket.create_connection(self._server)
                for source, sink, counts in ((client, server, False), (server, client, True)):
                    threading.Thread(
                        target=self._pass_on, args=(source, sink, counts), daemon=True
                    ).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                sink.sendall(data)
                with self._lock:
                    self.sent_bytes += len(data) if counts else 0
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def relaying(port: int) -> Iterator[Relay]:
    """Relay to a port of this machine."""
    relay = Relay(port)
    thread = threading.Thread(target=relay.serve, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        relay.listening.shutdown(socket.SHUT_RDWR)
        relay.listening.close()
        thread.join()
