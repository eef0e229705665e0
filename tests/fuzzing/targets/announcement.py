"""The address of worker 0 in the run folder."""

import json
from contextlib import suppress
from pathlib import Path

from fuzzing.target import Target
from paceline.comm.rendezvous import _announced
from paceline.comm.signed_store import ForgedValue, sign

SECRET = b"s" * 32


def consume(data: bytes, folder: Path) -> None:
    """Read an announcement."""
    del folder
    with suppress(ForgedValue):
        assert _announced(data, 3, SECRET) == ("127.0.0.1", 4000)


def seeds() -> list[bytes]:
    """Return a signed announcement."""
    where = json.dumps({"address": "127.0.0.1", "port": 4000})
    signature = sign(SECRET, "rendezvous/3", where.encode()).hex()
    return [json.dumps({"where": where, "signature": signature}).encode()]


TARGET = Target(seeds, consume)
