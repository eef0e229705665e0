"""What happens in a run, as JSON lines: one file per node, one line per event.

Cluster-wide quantities (losses, samples) are reduced over the workers first and written once, by
the node of worker 0; what belongs to a node (its workers' state) is written by that node.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from paceline.specs.base import Spec


class Event(Spec):
    """What every event carries."""

    time: float
    """Unix seconds, by the clock of the node that wrote it."""
    node: str
    generation: int = 0
    """0 for the first start of a run, one more after each restart."""


class Started(Event):
    """A node's workers have met the others and begin to train."""

    kind: Literal["started"] = "started"
    ranks: list[int]
    workers: int
    nodes: int
    device: str
    """cpu, cuda, xpu, …"""
    backend: str
    interface: str
    """The network interface towards the other workers."""
    address: str
    threads: int
    """CPU threads per worker."""
    parameters: int
    batch: int
    """Samples in a global batch."""
    steps: int
    """Steps that the run will take."""
    startup_seconds: float
    """From the start of the process to the first step."""


class Steps(Event):
    """Consecutive optimizer steps; every list has one entry a step. From worker 0's node."""

    kind: Literal["steps"] = "steps"
    first: int
    """The number of the first of them; steps count from 1."""
    loss: list[float]
    """Mean over the global batch. NaN and infinities are JSON's NaN, Infinity."""
    seconds: list[float]
    samples: list[int]


class WorkerState(Spec):
    """How one worker did over the last window of steps."""

    rank: int
    step: int
    step_seconds: float
    """Mean over the window."""


class Workers(Event):
    """The state of this node's workers, about once a second."""

    kind: Literal["workers"] = "workers"
    states: list[WorkerState]


class Failed(Event):
    """A worker ended by an error."""

    kind: Literal["failed"] = "failed"
    rank: int
    message: str
    lost_peer: bool = False
    """True when it failed only because another worker went away: not the cause."""


class Finished(Event):
    """All workers reached the end, or stopped together before it. From worker 0's node."""

    kind: Literal["finished"] = "finished"
    outcome: Literal["finished", "stopped"]
    """`stopped`: a warning signal (time limit, scheduler) ended it at the edge of a step."""
    steps: int
    samples: int
    seconds: float
    """From the beginning of the first step to the end of the last."""


class Ended(Event):
    """The launcher saw the last worker go."""

    kind: Literal["ended"] = "ended"
    exit_code: int


AnyEvent = Annotated[
    Started | Steps | Workers | Failed | Finished | Ended, Field(discriminator="kind")
]
event_adapter: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)
