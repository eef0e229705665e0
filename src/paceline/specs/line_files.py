"""Files of lines, such as events and ledgers, to which a writer may be appending."""

from collections.abc import Iterator
from typing import BinaryIO


def whole_lines(stream: BinaryIO, most_bytes: int) -> Iterator[bytes]:
    """Yield the lines that end in a newline; one of more than `most_bytes` comes in pieces.

    An unfinished last line is left out: its writer may have died, or still be writing it.
    """
    while line := stream.readline(most_bytes):
        if not line.endswith(b"\n") and len(line) < most_bytes:
            return
        yield line
