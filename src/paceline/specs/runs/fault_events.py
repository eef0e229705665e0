"""Events of faults that a run survives, and of its recovery."""

from typing import Literal, get_args

from paceline.specs.runs.event import Event, Seconds, Whole

Source = Literal["members", "peers", "checkpoint", "beginning"]
"""Where a generation's state comes from: `members`: the survivors' own state; `peers`: copies in
other workers' memory; `checkpoint`: the disk."""

Protection = Literal["peer copies", "checkpoints", "events", "energy"]
"""What a run does beside training. `events`: its records in the run's folder. `energy`: reading the
counters of power and energy."""
PROTECTIONS: tuple[Protection, ...] = get_args(Protection)


class Lost(Event):
    """A worker's lease expired; the others continue without it. From worker 0's node;
    `generation` is the one that the worker belonged to."""

    kind: Literal["lost"] = "lost"
    rank: Whole
    lost_node: str
    """The node on which it ran."""
    why: str


class Regrouped(Event):
    """A new generation begins inside the living processes. From worker 0's node; `generation` is
    the new one."""

    kind: Literal["regrouped"] = "regrouped"
    workers: Whole
    idle: Whole
    """Members that do not fit the layout and wait as spares."""
    lost: list[Whole]
    """Lost workers, by their ranks in the previous generation."""
    joined: list[Whole]
    """New workers, by their ranks in this generation."""
    step: Whole
    """Steps that count: training continues with the next one."""
    steps_again: Whole
    """Later steps that were done before and are repeated."""
    source: Source
    seconds: Seconds
    """Time from when worker 0 left the previous generation's process groups until it could train
    again."""
    why: str


class Slow(Event):
    """A straggler holds the others up. From its own node: each worker compares itself with the
    median."""

    kind: Literal["slow"] = "slow"
    rank: Whole
    slow_node: str
    step: Whole
    """Last step of the observed window."""
    times: float
    """Its own step time relative to the median of all workers."""
    why: str
    """Where its time goes, in words."""


class Refused(Event):
    """A step was discarded because a worker's values were corrupt or not finite. From worker 0's
    node or, if only some workers know of it, from the node of one of them."""

    kind: Literal["refused"] = "refused"
    step: Whole
    ranks: list[Whole]
    what: Literal["not finite", "corrupt"]
    message: str


class SickDevice(Event):
    """A worker's device failed. From its own node: the worker ends, its device is not used again in
    this run, and the others continue."""

    kind: Literal["sick_device"] = "sick_device"
    rank: Whole
    """JOINS for a spare."""
    device: str
    why: str


SurvivedFault = Lost | Slow | Refused | SickDevice


class Degraded(Event):
    """A protection is off while training continues; one event per change and generation."""

    kind: Literal["degraded"] = "degraded"
    protection: Protection
    rank: Whole | None = None
    """The worker for which it is off; None for the node."""
    step: Whole | None = None
    """The step whose state could not be protected; None if it does not depend on one."""
    why: str

    def restored(self, time: float, *, step: int | None = None, note: str = "") -> "Restored":
        """Return the event that ends it."""
        return Restored(
            time=time,
            node=self.node,
            generation=self.generation,
            protection=self.protection,
            rank=self.rank,
            step=step,
            seconds=max(0.0, time - self.time),
            note=note,
        )


class Restored(Event):
    """A protection that was off works again."""

    kind: Literal["restored"] = "restored"
    protection: Protection
    rank: Whole | None = None
    step: Whole | None = None
    seconds: Seconds
    """How long it was off."""
    note: str = ""
    """What was lost or made up for, if anything."""
