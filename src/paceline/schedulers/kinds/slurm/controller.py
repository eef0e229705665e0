"""Slurm's partitions, nodes and jobs, read from its controller through Slurm's commands."""

import re
from dataclasses import dataclass, field

from paceline.schedulers.quantities import minutes_of
from paceline.schedulers.site import CommandFailed, Site, Unreachable, last_line

TITLE = "Slurm"
_CALL_SECONDS = 30.0
_PING_SECONDS = 10.0
_NO_CONTROLLER = re.compile(r"[Uu]nable to contact|could not establish a configuration|conf")
"""Slurm's commands exit with 1 for any error; only the output shows that no controller answered."""


@dataclass(frozen=True)
class Partition:
    """A partition and its limits; None: no limit."""

    name: str
    default: bool
    max_minutes: int | None
    max_memory_megabytes: int | None


@dataclass(frozen=True)
class Node:
    """A node of the cluster."""

    name: str
    cpus: int
    memory_megabytes: int
    gpus: int
    partitions: frozenset[str]
    state: str

    @property
    def usable(self) -> bool:
        """Whether jobs can start on it, now or after other jobs end."""
        return not re.search(r"DOWN|DRAIN|FAIL|NOT_RESPONDING|POWERED_DOWN|\*", self.state)


@dataclass(frozen=True)
class Controller:
    """The controller of one cluster."""

    site: Site = field(default_factory=Site)

    def call(self, *command: str, seconds: float = _CALL_SECONDS) -> str:
        """Run a Slurm command and return its output."""
        try:
            return self.site.call(*command, title=TITLE, seconds=seconds)
        except CommandFailed as error:
            if not _NO_CONTROLLER.search(error.output):
                raise
            raise Unreachable(
                f"{self.site.name or TITLE} is not reachable: {last_line(error.output)}",
                fix="check `scontrol ping`; on a machine without a cluster, try"
                " `paceline testbed up`",
            ) from None

    def ping(self) -> None:
        """Raise unless a controller answers."""
        self.call("scontrol", "ping", seconds=_PING_SECONDS)

    def partitions(self) -> list[Partition]:
        """Return all partitions."""
        return [
            Partition(
                name=row["PartitionName"],
                default=row.get("Default") == "YES",
                max_minutes=minutes_of(row.get("MaxTime", "UNLIMITED")),
                max_memory_megabytes=_number(row.get("MaxMemPerNode", "UNLIMITED")),
            )
            for row in self.rows("partition")
        ]

    def nodes(self) -> list[Node]:
        """Return all nodes."""
        return [
            Node(
                name=row["NodeName"],
                cpus=int(row.get("CPUTot", "1")),
                memory_megabytes=int(row.get("RealMemory", "1")),
                gpus=_gpus(row.get("Gres", "")),
                partitions=frozenset(row.get("Partitions", "").split(",")),
                state=row.get("State", "UNKNOWN"),
            )
            for row in self.rows("node")
        ]

    def rows(self, kind: str, *names: str) -> list[dict[str, str]]:
        """Return the output of `scontrol show`, one mapping per partition, node or job."""
        lines = self.call("scontrol", "show", kind, *names, "--oneliner").splitlines()
        rows = (dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines)
        return [row for row in rows if row]


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _gpus(gres: str) -> int:
    """Count GPUs in a node's generic resources, such as `gpu:a100:4(S:0-1)` or `gpu:2`."""
    return sum(int(count) for count in re.findall(r"\bgpu(?::[A-Za-z][^:,()]*)?:(\d+)", gres))
