"""What is said about a testbed that is up."""

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class NodeStatus:
    """One node: where it is, whether it has power, its link, and what Slurm says of it."""

    name: str
    address: str
    state: Literal["up", "down"]
    link: Literal["up", "down"]
    rate_bits_per_second: int | None
    delay_seconds: float
    loss: float
    cores: list[int]
    slurm_state: str


@dataclass(frozen=True)
class Status:
    """A testbed that is up, and its nodes."""

    name: str
    head_address: str
    rootless: bool
    nodes: list[NodeStatus]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self)
