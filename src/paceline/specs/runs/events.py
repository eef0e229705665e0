"""What happens in a run, as JSON lines: one file per node, one line per event.

Cluster-wide quantities (losses, samples) are reduced over the workers first and written once, by
the node of worker 0; what belongs to a node (its workers' state) is written by that node.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter

from paceline.specs.base import Spec
from paceline.specs.plans.sync import AnySync
from paceline.specs.runs.event import Event, Seconds, Whole
from paceline.specs.runs.fault_events import Lost, Refused, Regrouped, Slow

Outcome = Literal["finished", "stopped", "interrupted", "preempted"]
"""`stopped`: somebody asked for it, and it ended at the edge of a step. `interrupted`: the time
limit did so, the state is saved, and the scheduler is asked for another turn."""


Part = Literal[
    "data", "forward", "backward", "pipeline", "communication", "optimizer", "checkpoint", "other"
]
"""The step breakdown: what a worker's time goes to. `data`: waiting for a batch. `pipeline`:
forward and backward of its stages, and waiting for the other stages. `communication`: exposed
communication, waiting for other workers beyond what overlaps with compute. `optimizer`: clipping
and the update. `checkpoint`: blocked while the state is copied. `other`: the user's own loop, and
the rest."""
PARTS: tuple[Part, ...] = get_args(Part)


def own_seconds(parts: Mapping[Part, float], step_seconds: float) -> float:
    """How long a worker is busy in a step: what it does not wait for the others."""
    return step_seconds - parts.get("communication", 0.0)


class Started(Event):
    """A node's workers have met the others and begin to train."""

    kind: Literal["started"] = "started"
    ranks: list[Whole]
    workers: Whole
    nodes: Whole
    device: str
    """cpu, cuda, xpu, …"""
    backend: str
    interface: str
    """The network interface towards the other workers."""
    address: str
    threads: Whole
    """CPU threads per worker."""
    parameters: Whole
    batch: Whole
    """Samples in a global batch."""
    steps: Whole
    """Steps that the run will take."""
    startup_seconds: Seconds
    """From the start of the process to the first step."""


class Steps(Event):
    """Consecutive optimizer steps; every list has one entry a step. From worker 0's node."""

    kind: Literal["steps"] = "steps"
    first: Whole
    """The number of the first of them; steps count from 1."""
    loss: list[float]
    """Mean over the global batch. NaN and infinities are JSON's NaN, Infinity."""
    seconds: list[Seconds]
    samples: list[Whole]


class WorkerState(Spec):
    """How one worker did over the last window of steps."""

    rank: Whole
    step: Whole
    step_seconds: Seconds
    """Mean over the window."""
    parts: dict[Part, Seconds] = Field(default_factory=dict)
    """Seconds of a step by what they went to, mean over the window; parts of no time are left out.
    On an accelerator by its own clock, which is read late: parts may be those of the window
    before."""


class Workers(Event):
    """The state of workers of this node, about once a second; each says its own."""

    kind: Literal["workers"] = "workers"
    states: list[WorkerState]


class Traffic(Spec):
    """What passed through a network interface."""

    sent_bytes: Whole
    received_bytes: Whole


class GpuUsage(Spec):
    """How a GPU was used; what it does not tell is unset."""

    index: Whole
    """Among those that the node's workers see."""
    name: str | None = None
    busy: float | None = None
    """The part of the time in which a kernel ran on it, mean over the readings."""
    memory_bytes: Whole | None = None
    """The most that was seen."""
    memory_total_bytes: Whole | None = None
    watts: float | None = None
    """Mean over the readings."""


class Usage(Event):
    """What a node's workers used since its last such event, about every five seconds."""

    kind: Literal["usage"] = "usage"
    seconds: Seconds
    """That this covers; the first one begins when the workers have met."""
    workers: Whole
    """On this node."""
    interface: str | None
    """The one towards the other workers; unset where there are none."""
    cores: Whole
    """That this node's workers may use."""
    cpu_share: float
    """The part of the time in which these cores were busy, with whatever."""
    memory_bytes: Whole
    """Resident in the workers' processes and in those that they started, added up."""
    memory_total_bytes: Whole
    network: dict[str, Traffic] = Field(default_factory=dict)
    """By interface: `interface`, and others that moved bytes. All that passed, whoever sent it."""
    gpus: list[GpuUsage] = Field(default_factory=list)
    joules: dict[str, float] = Field(default_factory=dict)
    """Measured, by counter (`package-0`, `dram-0`, `gpu-0`); empty where none can be read."""


class Saved(Event):
    """A checkpoint is complete. From worker 0's node."""

    kind: Literal["saved"] = "saved"
    step: Whole
    bytes: Whole
    linked_bytes: Whole
    """Of these, what had not changed on worker 0 and was not written again."""
    seconds: Seconds
    """From the edge of the step until it was complete; training went on meanwhile."""
    stall_seconds: Seconds
    """How long worker 0 stood still for it."""


class NotSaved(Event):
    """A checkpoint could not be completed; training goes on."""

    kind: Literal["not_saved"] = "not_saved"
    step: Whole
    rank: Whole
    message: str


class Damaged(Event):
    """A checkpoint is not as it was written; the one before it is tried."""

    kind: Literal["damaged"] = "damaged"
    step: Whole
    message: str


class Resumed(Event):
    """The workers took up a checkpoint. From worker 0's node."""

    kind: Literal["resumed"] = "resumed"
    step: Whole
    seconds: Seconds
    """To check it and to read it."""


class Agreed(Event):
    """From a step on, replicas agree in another way. From worker 0's node."""

    kind: Literal["agreed"] = "agreed"
    step: Whole
    """After which."""
    sync: AnySync
    why: str


class Traced(Event):
    """A worker has recorded what it did in a few steps; seconds are the mean of a step."""

    kind: Literal["traced"] = "traced"
    rank: Whole
    first: Whole
    """The number of the first of these steps."""
    steps: Whole
    step_seconds: Seconds
    """With what recording costs."""
    communication_seconds: Seconds
    """In which something was on its way, or waited for at the other end."""
    hidden_seconds: Seconds
    """Of these: while the worker computed."""
    clock_offset_seconds: Seconds
    """By which its node's clock is ahead of that of worker 0's node."""
    clock_uncertainty_seconds: Seconds
    """The offset is right to within this."""

    @property
    def exposed_seconds(self) -> float:
        """Communication during which the worker did not compute."""
        return self.communication_seconds - self.hidden_seconds


class Evaluated(Event):
    """The model was evaluated on a dataset, by `trainer.evaluate`. From worker 0's node."""

    kind: Literal["evaluated"] = "evaluated"
    step: Whole
    """After which."""
    samples: Whole
    """In the dataset."""
    loss: float
    metrics: dict[str, float]


class Failed(Event):
    """A worker ended by an error."""

    kind: Literal["failed"] = "failed"
    rank: Whole
    message: str
    lost_peer: bool = False
    """True when it failed only because another worker went away: not the cause."""


class Finished(Event):
    """All workers reached the end, or stopped together before it. From worker 0's node."""

    kind: Literal["finished"] = "finished"
    outcome: Outcome
    steps: Whole
    samples: Whole
    seconds: Seconds
    """From the beginning of the first step to the end of the last."""


class Ended(Event):
    """The launcher saw the last worker go."""

    kind: Literal["ended"] = "ended"
    exit_code: Whole


AnyEvent = Annotated[
    Started
    | Steps
    | Workers
    | Usage
    | Saved
    | NotSaved
    | Damaged
    | Resumed
    | Agreed
    | Traced
    | Evaluated
    | Lost
    | Regrouped
    | Slow
    | Refused
    | Failed
    | Finished
    | Ended,
    Field(discriminator="kind"),
]
event_adapter: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)
