"""A term of a run's lease: its number, its holder and its heartbeats."""

import os
import socket
import time
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from paceline.cluster.process import start_ticks
from paceline.specs.base import Spec


class LocalHolder(Spec):
    """The supervisor of a run on one machine, or the process that is submitting the run."""

    kind: Literal["local"] = "local"
    host: str
    machine: str
    """Boot and process namespace: where both are equal, `pid` names the same process."""
    pid: int
    start_ticks: int
    """Start time of the process, which tells it from a later one with the same ID."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class JobHolder(Spec):
    """A job in a scheduler's queue."""

    kind: Literal["scheduler"] = "scheduler"
    scheduler: str
    testbed: str | None = None
    """Name of the testbed whose scheduler has the job; None: a real cluster."""
    job_id: str

    def __str__(self) -> str:
        return f"job {self.job_id} of {self.testbed or self.scheduler}"


Holder = Annotated[LocalHolder | JobHolder, Field(discriminator="kind")]


class LeaseRecord(Spec):
    """A term of a lease. Each holder has a term of its own, numbered from 1."""

    term: int = Field(ge=1)
    holder: Holder
    since: str
    """Start of the term by the holder's clock, for messages only."""
    beats: int = Field(default=0, ge=0)
    """Number of heartbeats so far. Only its change counts: clocks of two nodes may differ."""

    @classmethod
    def begin(cls, term: int, holder: LocalHolder | JobHolder) -> "LeaseRecord":
        """Return the record of a term that begins now."""
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        return cls(term=term, holder=holder, since=since)


def this_process() -> LocalHolder:
    """Return this process as a holder."""
    pid = os.getpid()
    return LocalHolder(
        host=socket.gethostname(), machine=this_machine(), pid=pid, start_ticks=start_ticks(pid)
    )


def this_machine() -> str:
    """Return the identity of this boot of the machine and of this process namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    # Containers, and nodes of a testbed, share the boot but number their processes separately.
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
