"""What Slurm knows: its partitions, nodes and jobs, asked through its own commands.

Every call has a time limit, since Slurm's clients wait for ever when nobody answers.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.specs import PacelineError

_CALL_SECONDS = 30.0
_PING_SECONDS = 10.0

ENDED_STATES = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "TIMEOUT",
    }
)


class SlurmRefused(PacelineError):
    """Slurm answered, and the answer was no."""


@dataclass(frozen=True)
class Partition:
    """A queue and its limits; None where there is none."""

    name: str
    default: bool
    max_minutes: int | None
    max_memory_megabytes: int | None


@dataclass(frozen=True)
class Node:
    """A machine that Slurm gives out."""

    name: str
    cpus: int
    memory_megabytes: int
    gpus: int
    partitions: frozenset[str]
    state: str

    @property
    def usable(self) -> bool:
        """Whether jobs can start on it, now or after others have ended."""
        return not re.search(r"DOWN|DRAIN|FAIL|NOT_RESPONDING|POWERED_DOWN|\*", self.state)


@dataclass(frozen=True)
class Slurm:
    """A way to one cluster's Slurm: the commands on PATH, or behind a prefix."""

    prefix: tuple[str, ...] = ()
    """What stands before every command, where Slurm is reached through another program."""
    environment: Mapping[str, str] = field(default_factory=dict)
    name: str = "Slurm"
    shares_files: bool = False
    """Whether every node is known to see every file of this machine's disks."""

    def call(self, *command: str, seconds: float = _CALL_SECONDS) -> str:
        """Run a Slurm command and return what it printed."""
        try:
            done = subprocess.run(
                [*self.prefix, *command],
                env=os.environ | dict(self.environment),
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError:
            raise PacelineError(
                f"Slurm is not reachable: there is no command {command[0]} on this machine",
                fix="run this on a login node of the cluster, or try it on one machine:"
                " `paceline testbed up`",
            ) from None
        except subprocess.TimeoutExpired:
            raise PacelineError(
                f"{self.name} is not reachable: {command[0]} did not answer within {seconds:.0f} s",
                fix="check `scontrol ping`; on a machine without a cluster, try"
                " `paceline testbed up`",
            ) from None
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            if re.search(r"[Uu]nable to contact|could not establish a configuration|conf", said):
                raise PacelineError(
                    f"{self.name} is not reachable: {_last_line(said)}",
                    fix="check `scontrol ping`; on a machine without a cluster, try"
                    " `paceline testbed up`",
                )
            raise SlurmRefused(
                f"{self.name} refused `{command[0]}`: {_last_line(said)}",
                fix="change what it names and try again",
            )
        return done.stdout

    def ping(self) -> None:
        """Raise unless a controller answers."""
        self.call("scontrol", "ping", seconds=_PING_SECONDS)

    def partitions(self) -> list[Partition]:
        """All partitions."""
        return [
            Partition(
                name=row["PartitionName"],
                default=row.get("Default") == "YES",
                max_minutes=minutes_of(row.get("MaxTime", "UNLIMITED")),
                max_memory_megabytes=_number(row.get("MaxMemPerNode", "UNLIMITED")),
            )
            for row in self._rows("partition")
        ]

    def nodes(self) -> list[Node]:
        """All nodes."""
        return [
            Node(
                name=row["NodeName"],
                cpus=int(row.get("CPUTot", "1")),
                memory_megabytes=int(row.get("RealMemory", "1")),
                gpus=_gpus(row.get("Gres", "")),
                partitions=frozenset(row.get("Partitions", "").split(",")),
                state=row.get("State", "UNKNOWN"),
            )
            for row in self._rows("node")
        ]

    def job_state(self, job_id: int) -> str | None:
        """The state of a job, such as PENDING or RUNNING; None when Slurm has forgotten it."""
        try:
            rows = self._rows("job", str(job_id))
        except SlurmRefused:
            return None
        return rows[0].get("JobState") if rows else None

    def is_preempted(self, job_id: int) -> bool:
        """Whether a job has to make room for another, now or in its grace time."""
        (row,) = self._rows("job", str(job_id))
        return row.get("PreemptTime", "None") != "None"

    def job_nodes(self, job_id: int) -> list[str]:
        """The nodes that a job has now."""
        (named,) = self.call("squeue", "--noheader", "--jobs", str(job_id), "--format=%N").split()
        return self.call("scontrol", "show", "hostnames", named).split()

    def _rows(self, kind: str, *names: str) -> list[dict[str, str]]:
        lines = self.call("scontrol", "show", kind, *names, "--oneliner").splitlines()
        rows = (dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines)
        return [row for row in rows if row]


def minutes_of(text: str) -> int | None:
    """Minutes in one of Slurm's ways to write a time; None for no limit."""
    if text.upper() in ("UNLIMITED", "INFINITE", "NONE"):
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if match is None:
        raise PacelineError(
            f"{text!r} is not a time",
            fix="write minutes (90), hours:minutes:seconds (1:30:00) or days-hours (2-12)",
        )
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours = 0
        minutes, seconds = [*numbers, 0][:2]
    return int(days or 0) * 1440 + hours * 60 + minutes + (seconds > 0)


def megabytes_of(text: str) -> int:
    """Megabytes in a size as Slurm writes it: 512M, 4G, 1T; a bare number is megabytes."""
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", text.upper())
    if match is None or int(match[1]) == 0:
        raise PacelineError(f"{text!r} is not an amount of memory", fix="write 512M, 4G or 1T")
    factor = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}[match[2]]
    return max(1, int(int(match[1]) * factor))


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _gpus(gres: str) -> int:
    """GPUs in a node's generic resources, such as `gpu:a100:4(S:0-1)` or `gpu:2`."""
    return sum(int(count) for count in re.findall(r"\bgpu(?::[A-Za-z][^:,()]*)?:(\d+)", gres))


def _last_line(text: str) -> str:
    lines = text.splitlines()
    return lines[-1] if lines else "no reason given"


def is_preempted() -> bool:
    """Whether Slurm takes this job's nodes for another: it does not say so by another signal than
    who stops the run by hand."""
    job = os.environ.get("SLURM_JOB_ID")
    try:
        return job is not None and Slurm().is_preempted(int(job))
    except (PacelineError, ValueError):
        return False
