"""Members as they are in large runs: their names, and what their trainings say of themselves."""

from collections.abc import Callable
from typing import Any

from paceline.membership.hooks import Hooks
from paceline.specs.runs.roster import Member

PER_NODE = 8
RACK_NODES = 32
NO_PROCESS = (1 << 22) + 1
"""A number that Linux gives to no process: who is lost here must not have a process ended."""
FACTS: dict[str, Any] = {
    "step": 10_000,
    "reached": 10_001,
    "reported": {
        "steps": 10_000,
        "samples": 5_120_000,
        "seconds": 2718.281828459045,
        "loss": 3.141592653589793,
        "window_steps": 5,
    },
    "held": {
        "held": [
            {
                "moment": {"generation": 3, "step": step, "workers": 1024},
                "own": 0,
                "copies": [1024 - PER_NODE],
                "rows": [],
            }
            for step in (9_980, 9_990)
        ]
    },
}
"""Of a training with shards, whose workers hold copies for peers on the next node."""


def facts(rank: int) -> dict[str, Any]:
    """Return the facts about the training of a worker that had this rank."""
    return FACTS | {"held_from": [rank, rank]}


def member(rank: int, port: int = 40_000) -> Member:
    """A worker that listens on loopback."""
    node = f"node{rank // PER_NODE:06d}"
    return Member(
        name=f"{node}:{rank:07d}:12345678",
        node=node,
        pid=NO_PROCESS,
        start_ticks=12_345_678,
        address="127.0.0.1",
        port=port,
        memory_port=40_001,
    )


def hooks(
    planned: int, leader: Member | None = None, interrupt: Callable[[], None] = lambda: None
) -> Hooks:
    """What a training does for its control that is always ready, and fits on any number."""
    return Hooks(
        interrupt=interrupt,
        kill_process=lambda: None,
        work_done=lambda: 0.0,
        open_store=lambda: 40_000,
        announce=lambda roster, who: None,
        find_leader=lambda: leader,
        fitting=lambda members: members,
        run_ended=lambda: False,
        planned=planned,
    )
