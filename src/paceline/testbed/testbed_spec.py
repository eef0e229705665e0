"""The specification of a testbed, and its nodes' names, addresses and cores."""

import re
from dataclasses import dataclass
from itertools import pairwise

from paceline.specs.errors import PacelineError

HEAD = "head"
HEAD_ADDRESS = "10.77.0.1"
PREFIX_LENGTH = 24
MOST_NODES = 64

_FIRST_NODE_ADDRESS = 11
_BITS_PER_UNIT = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_SECONDS_PER_UNIT = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_SLOWEST_BITS_PER_SECOND = 8_000
_LONGEST_DELAY_SECONDS = 10.0
_MOST_LOSS = 0.5


@dataclass(frozen=True)
class TestbedSpec:
    """A testbed's name, number of nodes, and the nodes' links to the switch.

    `link`: rate such as "1gbit"; default: not limited. `delay`: time such as "20ms" that each link
    adds in each direction. `accounting`: whether Slurm has accounts and QOS with limits.
    `scratch`: an existing folder in whose place each node has an empty one of its own.
    """

    __test__ = False  # pytest collects every class named Test… as a test

    name: str = "default"
    nodes: int = 2
    link: str | None = None
    delay: str | None = None
    accounting: bool = False
    scratch: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if not 1 <= self.nodes <= MOST_NODES:
            raise PacelineError(
                f"a testbed can't have {self.nodes} nodes",
                fix=f"choose from 1 to {MOST_NODES} nodes",
            )
        if self.link is not None:
            bits_per_second(self.link)
        if self.delay is not None:
            delay_seconds(self.delay)


def check_name(name: str) -> None:
    """Refuse a testbed name that cannot be a folder's name and part of a socket's path."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
        raise PacelineError(
            f"{name!r} can't be the name of a testbed",
            fix="use up to 31 lower-case letters, digits and hyphens, such as 'two-racks'",
        )


def bits_per_second(rate: str) -> int:
    """Parse a rate such as "1gbit" or "2.5mbit"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)", rate.strip().lower())
    bits = round(float(found[1]) * _BITS_PER_UNIT[found[2]]) if found else 0
    if bits < _SLOWEST_BITS_PER_SECOND:
        raise PacelineError(
            f"{rate!r} is not a link rate",
            fix="write a number and bit, kbit, mbit or gbit (per second), such as 100mbit",
        )
    return bits


def delay_seconds(delay: str) -> float:
    """Parse a delay such as "20ms" or "0"."""
    text = delay.strip().lower()
    if text == "0":
        return 0.0
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", text)
    seconds = float(found[1]) * _SECONDS_PER_UNIT[found[2]] if found else None
    if seconds is None or seconds > _LONGEST_DELAY_SECONDS:
        raise PacelineError(
            f"{delay!r} is not a link delay",
            fix="write a number and us, ms or s, up to 10s, such as 20ms, or 0 for none",
        )
    return seconds


def lost_part(loss: str) -> float:
    """Parse a loss such as "2%" or "0" into a fraction of frames."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)%|0", loss.strip())
    part = float(found[1] or 0) / 100 if found else 1.0
    if part > _MOST_LOSS:
        raise PacelineError(
            f"{loss!r} is not a link's loss",
            fix="write a number of per cent, up to 50%, such as 2%, or 0 for none",
        )
    return part


def node_names(nodes: int) -> list[str]:
    """Return the host names of the nodes, in order."""
    return [f"n{number}" for number in range(1, nodes + 1)]


def node_address(name: str) -> str:
    """Return the address of a node on the testbed's network."""
    return f"10.77.0.{_FIRST_NODE_ADDRESS + int(name[1:]) - 1}"


def cores_of_nodes(nodes: int, cores: list[int]) -> list[list[int]]:
    """Return each node's cores: disjoint sets if there are enough, else one shared core each."""
    if nodes >= len(cores):
        return [[cores[index % len(cores)]] for index in range(nodes)]
    bounds = [index * len(cores) // nodes for index in range(nodes + 1)]
    return [cores[start:end] for start, end in pairwise(bounds)]
