"""Count what a process's members say: every message of a connection is signed and checked once."""

from collections.abc import Callable

from benchmarks.control_plane.board import Board, Field
from paceline.comm.signing import MAC_BYTES, Signing
from paceline.membership import channel

OVERHEAD_BYTES = 4 + MAC_BYTES
"""Length and signature of a message."""
_HEARTBEAT = b'{"kind":"heartbeat"'


def count_traffic(board: Board, row: Callable[[], int]) -> None:
    """Count this process's messages from now on; `row` returns the row of the current member."""

    class Counting(Signing):
        def sign(self, body: bytes) -> bytes:
            """Count an outgoing message."""
            if body.startswith(_HEARTBEAT):
                board.add(row(), Field.SENT_HEARTBEATS, 1)
            else:
                board.add(row(), Field.SENT_MESSAGES, 1)
                board.add(row(), Field.SENT_BYTES, OVERHEAD_BYTES + len(body))
            return super().sign(body)

        def check(self, mac: bytes, body: bytes) -> None:
            """Count an incoming message."""
            if not body.startswith(_HEARTBEAT):
                board.add(row(), Field.RECEIVED_BYTES, OVERHEAD_BYTES + len(body))
            super().check(mac, body)

    setattr(channel, "Signing", Counting)  # noqa: B010 -- in a process of the rig's own
