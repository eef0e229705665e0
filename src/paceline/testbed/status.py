"""Status of a running testbed."""

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class NodeStatus:
    """A node's address, power state, link, cores and Slurm state."""

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
    """A running testbed and its nodes."""

    name: str
    head_address: str
    rootless: bool
    nodes: list[NodeStatus]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, for JSON."""
        return asdict(self)
