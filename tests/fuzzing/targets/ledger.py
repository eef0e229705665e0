"""Files of the sample ledger."""

from contextlib import suppress
from pathlib import Path

from fuzzing.target import Target
from paceline.checkpoints.ledger import read_ledger
from paceline.specs import PacelineError
from paceline.specs.owned_files import write_owned


def consume(data: bytes, folder: Path) -> None:
    """Read a ledger of one file."""
    write_owned(folder / "start-0-part-0.jsonl", data)
    with suppress(PacelineError):
        read_ledger(folder)


def seeds() -> list[bytes]:
    """Return a ledger of two steps."""
    return [
        b'{"resumed":0,"parts":1,"samples":8}\n'
        b'{"step":1,"epoch":0,"ids":[1,2,3,4]}\n'
        b'{"step":2,"epoch":0,"ids":[5,6,7,0]}\n'
    ]


TARGET = Target(seeds, consume)
