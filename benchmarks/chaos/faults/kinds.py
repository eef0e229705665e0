"""What can go wrong, and how it is made here."""

from dataclasses import dataclass
from typing import Literal

Maker = Literal["process", "job", "device", "disk", "stranger", "node", "link"]
"""Who makes a fault: `process`: the harness, by a signal; `job`: the training script, when told;
`device`: the training script, on a simulated accelerator; `disk`: the harness, in the folder of the
checkpoints or of the run; `stranger`: a process that is not part of the run; `node`, `link`: the
testbed."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    name: str
    title: str
    """For people."""
    made: str
    """How it is injected, as part of a sentence."""
    by: Maker
    weight: float = 2
    """How often it comes in a schedule, by the others, beyond once in every hundred."""
    workers: int = 3
    """That must be training when it comes."""
    replaces: bool = True
    """Whether a new generation must follow; else training may go on as if nothing had been."""
    ends: bool = False
    """Whether the run ends by it, and is started again."""
    replicas: bool = False
    """Whether only layouts with three replicas or more can notice it."""
    takes_node: bool = False
    """Whether the node or device does not come back into the run."""
    quiet_steps: int = 12
    """After which one that led to nothing is over."""


_SELDOM = 0.1
"""The weight of what takes as long as ten other faults, such as to start the whole run again."""
_ALL = (
    Kind("kill", "a worker is killed", "kill −9", "process", weight=10),
    Kind("several", "two workers are killed at once", "kill −9 of both", "process", 3, 4),
    Kind("all", "all workers are killed at once", "kill −9 of all", "process", _SELDOM, 4),
    Kind("coordinator", "worker 0 is killed", "kill −9", "process", weight=5),
    Kind(
        "supervisor",
        "the supervisor is killed",
        "kill −9; then `paceline resume`",
        "process",
        weight=_SELDOM,
        ends=True,
    ),
    Kind(
        "pause",
        "a worker pauses for half a second",
        "SIGSTOP, SIGCONT",
        "process",
        weight=6,
        workers=2,
        replaces=False,
    ),
    Kind("hang", "a worker hangs", "SIGSTOP", "process", weight=3),
    Kind(
        "return",
        "a worker hangs until it is declared lost, then wakes up",
        "SIGSTOP; SIGCONT once the others have continued",
        "process",
    ),
    Kind(
        "stuck",
        "a worker's training loop hangs while its process lives",
        "its loop sleeps forever; `--faults stuck_seconds=8`",
        "job",
        weight=_SELDOM,
    ),
    Kind(
        "stop",
        "the run is stopped and resumed",
        "SIGTERM to the supervisor; then `paceline resume`",
        "process",
        weight=_SELDOM,
        workers=2,
        ends=True,
    ),
    Kind(
        "during-recovery",
        "a second worker is killed during recovery from the first",
        "kill −9 of one worker, and of another 0 to 100 ms later",
        "process",
        workers=4,
    ),
    Kind(
        "during-save",
        "a worker is killed while a checkpoint is written",
        "kill −9 as soon as the checkpoint's draft folder exists",
        "process",
    ),
    Kind(
        "replacement",
        "a second worker is killed while a replacement starts",
        "kill −9 of one worker, and of another while the replacement loads",
        "process",
        workers=4,
    ),
    Kind("nan", "a gradient is NaN", "one worker's loss × NaN", "job", 5, 2, False),
    Kind(
        "flip",
        "a bit of a gradient flips on one replica",
        "a mantissa bit, after the all-reduce and before the optimizer step",
        "job",
        weight=4,
        replaces=False,
        replicas=True,
    ),
    Kind(
        "memory",
        "a worker runs out of memory",
        "RLIMIT_AS is set to its current use, and it allocates 1 GB",
        "job",
        weight=_SELDOM,
        ends=True,
    ),
    Kind(
        "clock",
        "a worker's clock jumps by an hour",
        "time.time of the process is shifted for a while (setting the real clock needs privileges)",
        "job",
        weight=4,
        workers=2,
        replaces=False,
    ),
    Kind(
        "straggler",
        "a worker is slow",
        "30 steps of one worker take twice as long, at least 0.1 s longer",
        "job",
        workers=4,
        replaces=False,
        quiet_steps=34,
    ),
    Kind(
        "abort",
        "a worker is killed while the others wait for it in a collective",
        "it sleeps 0.3 s before its backward pass, then kill −9",
        "device",
        weight=10,
    ),
    Kind(
        "watchdog",
        "the watchdog of the collectives ends a worker",
        "its abort (SIGABRT), in the middle of a step",
        "device",
        weight=8,
    ),
    Kind(
        "sick",
        "a worker's device fails",
        "every call to the simulated device raises, as after an ECC error",
        "device",
        weight=8,
        takes_node=True,
    ),
    Kind(
        "order",
        "workers launch their collectives in different orders",
        "one launches a collective that its peers do not; `--faults stuck_seconds=8`",
        "device",
        weight=_SELDOM,
    ),
    Kind(
        "spin",
        "a worker's training loop spins",
        "an endless loop that uses a whole core; `--faults stuck_seconds=8`",
        "device",
        weight=_SELDOM,
    ),
    Kind(
        "disk-full",
        "the disk is full",
        "a separate file system is filled to the last byte until a checkpoint has failed",
        "disk",
        weight=3,
        workers=2,
        replaces=False,
    ),
    Kind(
        "read-only",
        "the checkpoint folder is read-only",
        "its file system is remounted read-only until a checkpoint has failed",
        "disk",
        weight=3,
        workers=2,
        replaces=False,
    ),
    Kind(
        "torn",
        "a checkpoint file is truncated",
        "half of a file of the newest is cut off; kill −9 of the supervisor, then `resume`",
        "disk",
        weight=_SELDOM,
        workers=2,
        ends=True,
    ),
    Kind(
        "disk-flip",
        "a bit of a checkpoint file flips",
        "in a file of the newest; kill −9 of the supervisor, then `resume`",
        "disk",
        weight=_SELDOM,
        workers=2,
        ends=True,
    ),
    Kind(
        "run-disk-full",
        "the run folder's disk is full",
        "its file system is filled to the last byte until no event can be written",
        "disk",
        weight=2,
        workers=2,
        replaces=False,
    ),
    Kind(
        "folder-gone",
        "the run folder is gone",
        "it is renamed until the run has ended, and put back; then `paceline resume`",
        "disk",
        weight=_SELDOM,
        workers=2,
        ends=True,
    ),
    Kind(
        "strangers",
        "strangers connect to every port",
        "to each listener: 70 connections that stay silent, and 6 that send garbage, for 10 steps",
        "stranger",
        weight=3,
        workers=2,
        replaces=False,
    ),
    Kind(
        "second-trainer",
        "a second trainer is started for the run",
        "`paceline resume` while it trains",
        "stranger",
        weight=2,
        workers=2,
        replaces=False,
    ),
    Kind(
        "node",
        "a node loses power",
        "`paceline testbed stop`, later `start`",
        "node",
        weight=3,
        takes_node=True,
    ),
    Kind("link-down", "a node's link is cut", "`paceline testbed link --down`", "link", 3),
    Kind(
        "partition",
        "the network splits in two",
        "the smaller half of the nodes is moved to another switch",
        "link",
        weight=2,
        workers=4,
    ),
    Kind(
        "slow-link",
        "a link is slow",
        "10 Mbit/s and 20 ms for 3 s",
        "link",
        weight=2,
        workers=2,
        replaces=False,
    ),
    Kind(
        "lost-packets",
        "a link loses packets",
        "the testbed's relay drops 2 of 100 frames for 3 s",
        "link",
        weight=2,
        workers=2,
        replaces=False,
    ),
)
KINDS = {kind.name: kind for kind in _ALL}

HERE = tuple(kind.name for kind in _ALL if kind.by not in ("node", "link", "device"))
"""Kinds that need one machine only."""
ON_DEVICES = tuple(kind.name for kind in _ALL if kind.by == "device")
"""Kinds that need simulated accelerators."""
TESTBED = tuple(kind.name for kind in _ALL if kind.by in ("node", "link"))
"""Kinds that need nodes and links."""
