"""TCP traffic for the tests; runs inside nodes by path with a bare interpreter.

traffic.py serve              echo what comes in on PORT_ECHO, swallow what comes on PORT_SINK
traffic.py rate HOST SECONDS  bits per second that arrive at HOST
traffic.py round-trip HOST    median seconds of a one-byte round trip
traffic.py hold HOST          one connection: a round trip for every line on standard input
"""

import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable

PORT_ECHO, PORT_SINK = 7001, 7002


def serve() -> None:
    ready = [_listen(PORT_ECHO, _echo), _listen(PORT_SINK, _swallow)]
    print("serving", flush=True)
    for thread in ready:
        thread.join()


def _listen(port: int, handle: Callable[[socket.socket], None]) -> threading.Thread:
    server = socket.create_server(("", port))

    def accept() -> None:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=handle, args=[connection], daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    return thread


def _echo(connection: socket.socket) -> None:
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(4096):
            connection.sendall(data)


def _swallow(connection: socket.socket) -> None:
    """Count until the sender closes, leaving out the first fifth of the time; then report."""
    buffer = bytearray(2**20)
    with connection:
        warm_up_seconds = struct.unpack("d", connection.recv(8))[0]
        started = time.monotonic()
        counted, counting_since = 0, 0.0
        while received := connection.recv_into(buffer):
            now = time.monotonic()
            if counting_since:
                counted += received
            elif now - started > warm_up_seconds:
                counting_since = now
            if buffer[received - 1]:
                break
        connection.sendall(struct.pack("d", counted * 8 / (now - counting_since)))


def rate(host: str, seconds: float) -> float:
    with socket.create_connection((host, PORT_SINK), timeout=30) as connection:
        connection.sendall(struct.pack("d", seconds / 5))
        block = bytes(2**18)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            connection.sendall(block)
        connection.sendall(b"\1")
        return float(struct.unpack("d", connection.recv(8))[0])


def round_trips(host: str) -> Callable[[], float]:
    connection = socket.create_connection((host, PORT_ECHO), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def one() -> float:
        started = time.perf_counter()
        connection.sendall(b"x")
        connection.recv(1)
        return time.perf_counter() - started

    return one


def main(what: str, *arguments: str) -> None:
    if what == "serve":
        serve()
    elif what == "rate":
        print(rate(arguments[0], float(arguments[1])))
    elif what == "round-trip":
        one = round_trips(arguments[0])
        print(statistics.median(one() for _ in range(15)))
    elif what == "hold":
        one = round_trips(arguments[0])
        for _ in sys.stdin:
            print(one(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
