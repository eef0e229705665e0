"""Run folders of runs whose workers regrouped, written with the real specs."""

import time
from collections.abc import Sequence
from pathlib import Path

from paceline.specs import Event, Lost, Refused, Regrouped, Run, Slow, Source
from report.folders import empty_run, ended, finished, saved, say, started, steps, workers

STEP_SECONDS = 0.1


def lost(
    rank: int,
    *,
    at: float,
    generation: int = 0,
    node: str = "n1",
    why: str = "its connection ended",
    where: str | None = None,
) -> Lost:
    """Worker `rank`, alone on its node, is no longer heard."""
    return Lost(
        time=at,
        node=node,
        generation=generation,
        rank=rank,
        lost_node=where or f"n{rank + 1}",
        why=why,
    )


def regrouped(
    generation: int,
    step: int,
    *,
    at: float,
    workers: int = 3,
    lost: Sequence[int] = (),
    joined: Sequence[int] = (),
    steps_again: int = 0,
    source: Source = "members",
    seconds: float = 0.12,
    node: str = "n1",
    why: str = "a worker was lost",
) -> Regrouped:
    """Those who are left go on after a step."""
    return Regrouped(
        time=at,
        node=node,
        generation=generation,
        workers=workers,
        idle=0,
        lost=list(lost),
        joined=list(joined),
        step=step,
        steps_again=steps_again,
        source=source,
        seconds=seconds,
        why=why,
    )


def slow(rank: int, step: int, *, at: float, generation: int = 0) -> Slow:
    """Worker `rank` holds the others up."""
    return Slow(
        time=at,
        node="n1",
        generation=generation,
        rank=rank,
        slow_node=f"n{rank + 1}",
        step=step,
        times=1.8,
        why="compute",
    )


def refused(step: int, ranks: Sequence[int], *, at: float, generation: int = 0) -> Refused:
    """A step was not counted."""
    return Refused(
        time=at,
        node="n1",
        generation=generation,
        step=step,
        ranks=list(ranks),
        what="not finite",
        message="the gradient of fc.weight has NaN",
    )


def on(node: str, event: Event) -> Event:
    """An event as another node writes it."""
    return event.model_copy(update={"node": node})


def faulty_run(parent: Path, *, began: float | None = None) -> Run:
    """100 steps of 4 workers in one start: worker 2 lost after step 38, worker 0 after 60, when the
    other has come back; a slow worker, a step that was refused, three checkpoints."""
    run = empty_run(parent)
    began = time.time() - 100 if began is None else began
    for rank in range(4):
        say(run, started(rank, steps=100, at=began))
    say(run, steps(1, [3.0 - step / 50 for step in range(38)], at=began + 3.8))
    say(run, saved(20, at=began + 2.0))
    say(run, lost(2, at=began + 3.9))
    for place, node in enumerate(("n1", "n2", "n4")):
        here = started(place, workers=3, steps=100, generation=1, at=began + 4.0)
        say(run, here.model_copy(update={"node": node, "startup_seconds": 0.12}))
    say(run, regrouped(1, 38, at=began + 4.0, lost=[2]))
    say(run, slow(1, 45, at=began + 4.7, generation=1))
    say(run, refused(50, [1], at=began + 5.2, generation=1))
    say(run, steps(39, [2.2] * 22, generation=1, at=began + 6.2))
    say(run, saved(40, generation=1, at=began + 4.4))
    again = regrouped(
        *(2, 55),
        at=began + 8.2,
        lost=[0],
        joined=[2],
        steps_again=5,
        source="peers",
        seconds=0.4,
        node="n2",
    )
    say(run, lost(0, at=began + 7.8, generation=1, node="n2", why="nothing heard for 1.5 s"))
    for place, node in enumerate(("n2", "n4", "n3")):
        here = started(place, workers=3, steps=100, generation=2, at=began + 8.2)
        say(run, here.model_copy(update={"node": node, "startup_seconds": 0.4}))
    say(run, again)
    end = began + 8.2 + 4.5
    say(run, on("n2", steps(56, [1.5] * 45, generation=2, at=end)))
    for place, node in enumerate(("n2", "n4", "n3")):
        say(run, on(node, workers(place, 100, STEP_SECONDS, generation=2, at=end)))
    say(run, on("n2", finished(100, generation=2, at=end)))
    say(run, ended(0), file="batch")  # of the start, not of its last generation
    return run


def often_regrouped_run(parent: Path, faults: int) -> Run:
    """Every second a worker is lost, and half a second later it is back; nine steps between."""
    run = empty_run(parent)
    began = time.time() - 2 * faults
    say(run, started(0, steps=9 * faults, at=began))
    for fault in range(faults):
        at, gone = began + fault, fault % 2 == 0
        say(run, steps(9 * fault + 1, [2.0] * 9, generation=fault, at=at + 0.9))
        if gone:
            say(run, lost(3, generation=fault, at=at + 0.92))
        say(
            run,
            regrouped(
                *(fault + 1, 9 * fault + 9),
                at=at + 1.0,
                workers=3 if gone else 4,
                lost=[3] if gone else [],
                joined=[] if gone else [3],
                seconds=0.08,
            ),
        )
    return run
