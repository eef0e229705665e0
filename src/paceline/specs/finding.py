"""The result of one check, of this machine or of a training."""

from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    state: Literal["ok", "note", "bad"]
    """`note`: works for some uses; `bad`: training does not work until it is fixed."""
    text: str
    fix: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the fields as plain values, for JSON."""
        return asdict(self)
