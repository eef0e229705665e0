"""What goes wrong in a run while it goes on, and how it came back from it."""

from typing import Literal

from paceline.specs.runs.event import Event, Seconds, Whole

Source = Literal["members", "peers", "checkpoint", "beginning"]
"""Where the workers of a generation have their state from: `members`: what those who are left
hold; `peers`: copies in the memory of others; `checkpoint`: the disk."""


class Lost(Event):
    """A worker is no longer heard; the others go on without it. From worker 0's node; the event is
    of the generation that it was in."""

    kind: Literal["lost"] = "lost"
    rank: Whole
    lost_node: str
    """Where it ran."""
    why: str


class Regrouped(Event):
    """A generation of workers begins inside the living processes. From worker 0's node; the event
    is of the new generation."""

    kind: Literal["regrouped"] = "regrouped"
    workers: Whole
    idle: Whole
    """Members that the layout has no place for; they stand by."""
    lost: list[Whole]
    """Those who are gone, by their ranks in the generation before."""
    joined: list[Whole]
    """Those who came new, by their ranks in this one."""
    step: Whole
    """Steps that count: training goes on with the next."""
    steps_again: Whole
    """Steps after it that had been taken and are taken again."""
    source: Source
    seconds: Seconds
    """From when worker 0 left the groups of the generation before until it could train again."""
    why: str


class Slow(Event):
    """A worker holds the others up. From its own node: each compares itself with the median."""

    kind: Literal["slow"] = "slow"
    rank: Whole
    slow_node: str
    step: Whole
    """Up to which it was watched."""
    times: float
    """Its own time for a step over the median of all workers'."""
    why: str
    """What its time goes to, in words."""


class Refused(Event):
    """A step was not counted, because of what a worker brought to it. From worker 0's node, or
    where only some workers know of it, from that of one of these."""

    kind: Literal["refused"] = "refused"
    step: Whole
    ranks: list[Whole]
    what: Literal["not finite", "corrupt"]
    message: str
