"""A run's events as JSON lines: one file per node, one line per event.

Cluster-wide values (losses, samples) are reduced over the workers and written once, by the node of
worker 0. Each node writes its own values, such as its workers' state.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import AliasChoices, Field, TypeAdapter

from paceline.specs.base import Spec
from paceline.specs.plans.sync import AnySync
from paceline.specs.runs.event import Event, Seconds, Whole
from paceline.specs.runs.fault_events import (
    Degraded,
    Lost,
    Refused,
    Regrouped,
    Restored,
    SickDevice,
    Slow,
)
from paceline.specs.runs.learning_events import Grew, Noise, RuleApplied

Outcome = Literal["finished", "stopped", "interrupted", "preempted"]
"""`stopped`: a user asked for it, and the run ended at a step boundary. `interrupted`: the time
limit did; the state is saved, and the scheduler is asked to requeue the job."""


Part = Literal[
    "data", "forward", "backward", "pipeline", "communication", "optimizer", "checkpoint", "other"
]
"""The step breakdown of a worker. `data`: waiting for a batch. `pipeline`: forward and backward
of its stages, and waiting for other stages. `communication`: exposed communication, which does
not overlap with compute. `optimizer`: clipping and the update. `checkpoint`: blocked while the
state is copied. `other`: the user's own loop, and the rest."""
PARTS: tuple[Part, ...] = get_args(Part)


def own_seconds(parts: Mapping[Part, float], step_seconds: float) -> float:
    """Return a worker's busy time in a step: all but exposed communication."""
    return step_seconds - parts.get("communication", 0.0)


class Started(Event):
    """A node's workers have joined the rendezvous and begin to train."""

    kind: Literal["started"] = "started"
    ranks: list[Whole]
    workers: Whole
    nodes: Whole
    device: str
    """Device type: cpu, cuda, xpu, …"""
    backend: str
    interface: str
    """Network interface toward the other workers."""
    address: str
    threads: Whole
    """CPU threads per worker."""
    parameters: Whole
    batch: Whole
    """Samples in a global batch."""
    steps: Whole
    """Planned steps of the run."""
    startup_seconds: Seconds
    """Time from the start of the process to the first step."""


class Steps(Event):
    """Consecutive optimizer steps; every list has one entry per step. From worker 0's node."""

    kind: Literal["steps"] = "steps"
    first: Whole
    """Number of the first step; steps count from 1."""
    loss: list[float]
    """Mean loss over the global batch. NaN and infinities are JSON's NaN, Infinity."""
    seconds: list[Seconds]
    samples: list[Whole]


class Logged(Event):
    """Metrics of `trainer.log`; every list has one entry per step. From worker 0's node."""

    kind: Literal["logged"] = "logged"
    steps: list[Whole]
    """Steps after which they were logged."""
    metrics: dict[str, list[float | None]]
    """Means over the workers, weighted by their samples; None where a metric was not logged."""


class WorkerState(Spec):
    """One worker's state over the last window of steps."""

    rank: Whole
    step: Whole
    step_seconds: Seconds
    """Mean step time over the window."""
    parts: dict[Part, Seconds] = Field(default_factory=dict)
    """Mean step breakdown over the window, without parts that took no time. On an accelerator,
    its own clock is read late: parts may belong to the previous window."""


class Workers(Event):
    """States of workers of this node, about once a second; each worker reports its own."""

    kind: Literal["workers"] = "workers"
    states: list[WorkerState]


class Traffic(Spec):
    """Bytes through a network interface."""

    sent_bytes: Whole
    received_bytes: Whole


class GpuUsage(Spec):
    """Usage of a GPU; values that it does not report are None."""

    index: Whole
    """Index among the GPUs that the node's workers see."""
    name: str | None = None
    busy: float | None = None
    """Fraction of the time in which a kernel ran, mean over the readings."""
    memory_bytes: Whole | None = None
    """Highest reading."""
    memory_total_bytes: Whole | None = None
    watts: float | None = None
    """Mean power over the readings."""


class Usage(Event):
    """Resources that a node's workers used since its last such event, about every five seconds."""

    kind: Literal["usage"] = "usage"
    seconds: Seconds
    """Duration covered; the first event starts at the end of the rendezvous."""
    workers: Whole
    """Workers on this node."""
    interface: str | None
    """Network interface toward the other workers; None if there are none."""
    cores: Whole
    """Cores that this node's workers may use."""
    cpu_share: float
    """Fraction of the time in which these cores were busy, by any process."""
    memory_bytes: Whole
    """Resident memory of the workers and their child processes, summed."""
    memory_total_bytes: Whole
    network: dict[str, Traffic] = Field(default_factory=dict)
    """Traffic by interface: `interface`, and others that moved bytes. Includes other processes'
    traffic."""
    gpus: list[GpuUsage] = Field(default_factory=list)
    joules: dict[str, float] = Field(default_factory=dict)
    """Measured energy by counter (`package-0`, `dram-0`, `gpu-0`); empty if none can be read."""


class Saved(Event):
    """A checkpoint is complete. From worker 0's node."""

    kind: Literal["saved"] = "saved"
    step: Whole
    bytes: Whole
    linked_bytes: Whole
    """Bytes of this total that had not changed on worker 0 and were linked, not written again."""
    seconds: Seconds
    """Time from the step boundary until it was complete; training continued meanwhile."""
    stall_seconds: Seconds
    """Time for which it blocked worker 0."""


class NotSaved(Event):
    """A checkpoint could not be completed; training continues."""

    kind: Literal["not_saved"] = "not_saved"
    step: Whole
    rank: Whole
    message: str


class Damaged(Event):
    """A checkpoint is damaged; the previous one is tried."""

    kind: Literal["damaged"] = "damaged"
    step: Whole
    message: str


class Resumed(Event):
    """The workers restored a checkpoint. From worker 0's node."""

    kind: Literal["resumed"] = "resumed"
    step: Whole
    seconds: Seconds
    """Time to verify and load it."""


class SyncChanged(Event):
    """The replicas change their synchronization mode. From worker 0's node."""

    kind: Literal["sync_changed", "agreed"] = "sync_changed"
    """Version 0.1 wrote "agreed"."""
    step: Whole
    """Last step with the previous mode."""
    sync: AnySync
    why: str


class Traced(Event):
    """A worker has profiled a few steps; seconds are means per step."""

    kind: Literal["traced"] = "traced"
    rank: Whole
    first: Whole
    """Number of the first profiled step."""
    steps: Whole
    step_seconds: Seconds
    """Step time, including the profiler's overhead."""
    communication_seconds: Seconds
    """Time during which communication was in flight, including waiting for the peer."""
    overlapped_seconds: Annotated[
        Seconds, Field(validation_alias=AliasChoices("overlapped_seconds", "hidden_seconds"))
    ]
    """Overlapped communication: the part during which the worker computed. Version 0.1
    wrote `hidden_seconds`."""
    clock_offset_seconds: Seconds
    """Lead of its node's clock over that of worker 0's node."""
    clock_uncertainty_seconds: Seconds
    """Error bound of the offset."""

    @property
    def exposed_seconds(self) -> float:
        """Exposed communication: the worker did not compute during it."""
        return self.communication_seconds - self.overlapped_seconds


class Evaluated(Event):
    """The model was evaluated on a dataset, by `trainer.evaluate`. From worker 0's node."""

    kind: Literal["evaluated"] = "evaluated"
    step: Whole
    """Last step before the evaluation."""
    samples: Whole
    """Samples in the dataset."""
    loss: float
    metrics: dict[str, float]


class Failed(Event):
    """A worker ended with an error."""

    kind: Literal["failed"] = "failed"
    rank: Whole
    message: str
    lost_peer: bool = False
    """Whether it failed only because another worker was lost: not the cause."""
    topic: str | None = None
    """Topic of `paceline help` that explains the error; None for an exception of the user's."""


class Finished(Event):
    """All workers reached the end, or stopped together before it. From worker 0's node."""

    kind: Literal["finished"] = "finished"
    outcome: Outcome
    steps: Whole
    samples: Whole
    seconds: Seconds
    """Time from the start of the first step to the end of the last."""
    reason: str | None = None
    """Why training finished before its last step; None if it did not."""


class Ended(Event):
    """The launcher's last worker has exited."""

    kind: Literal["ended"] = "ended"
    exit_code: Whole


AnyEvent = Annotated[
    Started
    | Steps
    | Logged
    | Noise
    | RuleApplied
    | Grew
    | Workers
    | Usage
    | Saved
    | NotSaved
    | Damaged
    | Resumed
    | SyncChanged
    | Traced
    | Evaluated
    | Lost
    | Regrouped
    | Slow
    | Refused
    | SickDevice
    | Degraded
    | Restored
    | Failed
    | Finished
    | Ended,
    Field(discriminator="kind"),
]
event_adapter: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)
