"""Slurm's partitions, nodes and jobs, read from its controller through Slurm's commands."""

import re
from dataclasses import dataclass, field

from paceline.schedulers.kinds.slurm.sbatch_variables import TAKEN_OVER
from paceline.schedulers.quantities import minutes_of
from paceline.schedulers.site import CommandFailed, Site, Unreachable, last_line

TITLE = "Slurm"
_CALL_SECONDS = 30.0
_PING_SECONDS = 10.0


@dataclass(frozen=True)
class Admission:
    """Names that a partition admits: only those of `allowed`, if set, and none of `denied`."""

    allowed: frozenset[str] | None = None
    denied: frozenset[str] = frozenset()

    def admits(self, name: str) -> bool:
        """Whether the partition takes jobs of this name."""
        return (self.allowed is None or name in self.allowed) and name not in self.denied


@dataclass(frozen=True)
class Partition:
    """A partition and its limits; None: no limit."""

    name: str
    default: bool
    max_minutes: int | None
    max_memory_megabytes: int | None
    max_nodes: int | None = None
    qos: str | None = None
    """QOS whose limits hold for all jobs of the partition."""
    accounts: Admission = Admission()
    """Accounts whose jobs it takes."""
    qualities: Admission = Admission()
    """QOS whose jobs it takes."""


@dataclass(frozen=True)
class Node:
    """A node of the cluster."""

    name: str
    cpus: int
    memory_megabytes: int
    gpus: int
    partitions: frozenset[str]
    state: str
    features: frozenset[str] = frozenset()
    gres: tuple[str, ...] = ()
    """Generic resources, such as `gpu:a100:4`."""

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
            return self.site.call(*command, title=TITLE, seconds=seconds, without=TAKEN_OVER)
        except CommandFailed:
            self.ping()  # the commands exit with 1 for any error, also if nobody answers
            raise

    def ping(self) -> None:
        """Raise unless a controller answers."""
        try:
            self.site.call("scontrol", "ping", title=TITLE, seconds=_PING_SECONDS)
        except CommandFailed as error:
            raise Unreachable(
                f"{self.site.name or TITLE} is not reachable: {last_line(error.output)}",
                fix="check `scontrol ping`; on a machine without a cluster, try"
                " `paceline testbed up`",
            ) from None

    def partitions(self) -> list[Partition]:
        """Return all partitions."""
        return [
            Partition(
                name=row["PartitionName"],
                default=row.get("Default") == "YES",
                max_minutes=minutes_of(row.get("MaxTime", "UNLIMITED")),
                max_memory_megabytes=_number(row.get("MaxMemPerNode", "UNLIMITED")),
                max_nodes=_number(row.get("MaxNodes", "UNLIMITED")),
                qos=None if row.get("QoS", "N/A") == "N/A" else row["QoS"],
                accounts=_admission(row, "Accounts"),
                qualities=_admission(row, "Qos"),
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
                features=frozenset(_names(row.get("AvailableFeatures"))),
                gres=tuple(_names(re.sub(r"\([^)]*\)", "", row.get("Gres", "")))),
            )
            for row in self.rows("node")
        ]

    def settings(self) -> dict[str, str]:
        """Return the cluster's configuration, from `scontrol show config`."""
        lines = self.call("scontrol", "show", "config").splitlines()
        pairs = (line.partition("=") for line in lines)
        return {name.strip(): value.strip() for name, equals, value in pairs if equals}

    def user(self) -> str:
        """Return the name under which the cluster knows this user."""
        return self.call("id", "-un").strip()

    def rows(self, kind: str, *names: str) -> list[dict[str, str]]:
        """Return the output of `scontrol show`, one mapping per partition, node or job."""
        lines = self.call("scontrol", "show", kind, *names, "--oneliner").splitlines()
        rows = (dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines)
        return [row for row in rows if row]


def _names(text: str | None) -> list[str]:
    return [] if text in (None, "", "(null)") else str(text).split(",")


def _admission(row: dict[str, str], kind: str) -> Admission:
    allowed = row.get(f"Allow{kind}", "ALL")
    return Admission(
        allowed=None if allowed == "ALL" else frozenset(_names(allowed)),
        denied=frozenset(_names(row.get(f"Deny{kind}"))),
    )


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _gpus(gres: str) -> int:
    """Count GPUs in a node's generic resources, such as `gpu:a100:4(S:0-1)` or `gpu:2`."""
    return sum(int(count) for count in re.findall(r"\bgpu(?::[A-Za-z][^:,()]*)?:(\d+)", gres))
