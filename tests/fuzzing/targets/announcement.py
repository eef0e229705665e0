"""The address of a node's contact in the run folder."""

import json
from contextlib import suppress
from pathlib import Path

from fuzzing.target import Target
from paceline.comm.signing import ForgedValue, sign
from paceline.membership.rendezvous.address_files import published_address

SECRET = b"s" * 32


def consume(data: bytes, folder: Path) -> None:
    """Read an announcement."""
    del folder
    with suppress(ForgedValue):
        assert published_address(data, 3, 5, SECRET) == ("127.0.0.1", 4000)


def seeds() -> list[bytes]:
    """Return a signed announcement."""
    where = json.dumps(["127.0.0.1", 4000])
    signature = sign(SECRET, "rendezvous/3/5", where.encode()).hex()
    return [json.dumps({"where": where, "signature": signature}).encode()]


TARGET = Target(seeds, consume)
