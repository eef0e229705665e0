"""Messages between members, after their signature was found valid."""

from contextlib import suppress
from pathlib import Path

from fuzzing.target import Target
from paceline.comm.signing import Forged
from paceline.membership.channel import parse
from paceline.membership.messages import Hello


def consume(data: bytes, folder: Path) -> None:
    """Parse a message."""
    del folder
    with suppress(Forged):
        parse(data)


def seeds() -> list[bytes]:
    """Return a message."""
    return [Hello(name="a", generation=3, purpose="ask").model_dump_json().encode()]


TARGET = Target(seeds, consume)
