"""Requests to a testbed's holder: one JSON line each way over a Unix socket."""

import json
import socket
from pathlib import Path
from typing import Any

from paceline.specs.errors import PacelineError

_REQUEST_SECONDS = 60.0


def connect(address: Path) -> socket.socket:
    """Connect to the holder."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_REQUEST_SECONDS)
        connection.connect(str(address))
    except OSError:
        connection.close()
        raise
    return connection


def request(address: Path, message: dict[str, Any]) -> Any:
    """Send the holder a request and return its answer; raise the error that it reports."""
    try:
        with connect(address) as connection, connection.makefile("rw") as stream:
            stream.write(json.dumps(message) + "\n")
            stream.flush()
            line = stream.readline()
    except (TimeoutError, ConnectionResetError, BrokenPipeError):
        line = ""
    if not line:
        raise PacelineError(
            f"the testbed did not answer {message['do']!r}",
            fix="it may have been taken down just now; else take it down and up again",
        )
    reply = json.loads(line)
    if "error" in reply:
        raise PacelineError(reply["error"]["problem"], fix=reply["error"]["fix"])
    return reply["answer"]
