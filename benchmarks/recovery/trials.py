"""One fault, or a row of kills, in a run of its own; and what the run's history says of it."""

import os
import signal
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

import psutil

from benchmarks.recovery.history import History, lost_and_doubled
from benchmarks.recovery.launchers import WAYS, Settings, Started
from benchmarks.recovery.nodes import Nodes
from benchmarks.recovery.sizes import BATCH, WORKERS

Kind = Literal["kill", "node", "hang"]
KINDS: tuple[Kind, ...] = ("kill", "node", "hang")
WARM_STEPS = 20
STEPS_AFTER = 10
"""That a run goes on after the first step that it has recovered to."""
START_SECONDS = 120.0
_POLL_SECONDS = 0.25
"""Reading what workers write takes a core that they need."""


class DidNotStart(RuntimeError):
    """A way whose workers did not train, with the last line they said."""


@dataclass(frozen=True)
class Fault:
    """What one fault cost a way."""

    way: str
    kind: Kind
    seconds: float | None
    """Until the next step was committed; None where that did not happen in time."""
    lost: int | None
    doubled: int | None
    """Samples of the steps from the fault to the tenth after it."""


@dataclass(frozen=True)
class Goodput:
    """What a way committed while its workers were killed again and again."""

    way: str
    every_seconds: float
    kills: int
    undisturbed_samples_per_second: float
    samples_per_second: float
    stopped_seconds: float
    """Mean, from a kill to the next step; steps that are taken again before it count in."""
    away_seconds: float
    """Mean, from a kill until as many workers as before take steps."""

    @property
    def fraction(self) -> float:
        """Of what it commits undisturbed."""
        return self.samples_per_second / self.undisturbed_samples_per_second


def fault(way: str, kind: Kind, settings: Settings, random: Random, limit_seconds: float) -> Fault:
    """Start the job, hit one worker, wait for the others."""
    with _run(way, settings, on_nodes=kind == "node") as run:
        # The first node has torchrun's store: without it torchrun does not go on.
        victim = random.randrange(1, WORKERS)
        process = _living(run)[victim]
        time.sleep(random.uniform(0, 5 * settings.step_seconds))
        began = time.monotonic()
        if kind == "node":
            assert run.nodes
            run.nodes.lose(victim)
        else:
            os.kill(process, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)

        def goes_on() -> bool:
            found = run.read()
            first = found.recovered(began, process)
            return first is not None and found.last_step() >= first.step + STEPS_AFTER

        if not _wait(goes_on, limit_seconds):
            return Fault(way, kind, None, None, None)
        found = run.read()
        first = found.recovered(began, process)
        assert first
        before = max(each.step for each in found.commits if each.at <= began)
        around = range(before + 1, first.step + STEPS_AFTER + 1)
        lost, doubled = lost_and_doubled(found.counting(), around, BATCH)
        return Fault(way, kind, first.at - began, lost, doubled)


def goodput(
    way: str, settings: Settings, random: Random, every_seconds: float, kills: int
) -> Goodput:
    """Kill a worker as often as asked, and see that lost workers are started again.

    Undisturbed is what is committed in the last third of the time before each kill, if all workers
    are there: whoever shares the machine is not as busy now as a minute ago.
    """
    with _run(way, settings, on_nodes=False) as run:
        time.sleep(every_seconds)
        hits: list[tuple[float, int]] = []
        first = time.monotonic()
        for number in range(kills):
            time.sleep(max(0.0, first + number * every_seconds - time.monotonic()))
            # While all are being started again there is nobody to kill.
            if living := _living(run):
                victim = random.choice(sorted(living))
                hits.append((time.monotonic(), living[victim]))
                os.kill(living[victim], signal.SIGKILL)
                if run.replace:
                    run.replace(victim)
        time.sleep(max(0.0, first + kills * every_seconds - time.monotonic()))
        ends = first + kills * every_seconds
        found = run.read()
        steps, times = found.counting(), found.committed_at()

        def rate(begin: float, end: float) -> float:
            within = [step for step, at in times.items() if begin <= at < end]
            return sum(len(steps.get(step, ())) for step in within) / (end - begin)

        def all_take_part(begin: float, end: float) -> bool:
            within = {each.worker for each in found.commits if begin <= each.at < end}
            return len(within) == WORKERS

        quiet = [(at - every_seconds / 3, at) for at in (*(at for at, _ in hits), ends)]
        undisturbed = statistics.mean(rate(*each) for each in quiet if all_take_part(*each))
        stopped, away = _interruptions(found, hits, ends)
        return Goodput(way, every_seconds, len(hits), undisturbed, rate(first, ends), stopped, away)


def _interruptions(
    found: History, hits: list[tuple[float, int]], ends: float
) -> tuple[float, float]:
    """Mean seconds, over kills, for which all stood still, and for which a worker was missing."""
    stopped = away = 0.0
    for (at, process), (following, _) in zip(hits, [*hits[1:], (ends, 0)], strict=True):
        first = found.recovered(at, process)
        if first is None or first.at >= following:
            stopped, away = stopped + following - at, away + following - at
            continue
        stopped += first.at - at
        here = [each for each in found.commits if first.at <= each.at < following]
        took: dict[int, set[int]] = defaultdict(set)
        for each in here:
            took[each.step].add(each.worker)
        back = [each.at for each in here if len(took[each.step]) == WORKERS]
        away += min(back, default=following) - at
    return stopped / len(hits), away / len(hits)


@contextmanager
def _run(way: str, settings: Settings, *, on_nodes: bool) -> Iterator[Started]:
    """A run whose workers have all taken some steps; nothing of it is left afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="recovery-", ignore_cleanup_errors=True) as name,
        Nodes(WORKERS) if on_nodes else nullcontext() as nodes,
    ):
        run = Started(Path(name), settings, nodes)
        run.history.mkdir()
        try:
            WAYS[way](run)

            def warm() -> bool:
                steps = run.read()
                done = {commit.worker for commit in steps.commits if commit.step >= WARM_STEPS}
                return len(done) == WORKERS

            if not _wait(warm, START_SECONDS):
                said = [line for line in run.log.read_text(errors="replace").splitlines() if line]
                raise DidNotStart(said[-1] if said else "it said nothing")
            yield run
        finally:
            run.end()


def _living(run: Started) -> dict[int, int]:
    """The processes of the workers that have taken steps and live, by the worker's number."""
    found = {each.worker: each.process for each in run.read().commits}
    return {worker: process for worker, process in found.items() if _lives(process)}


def _lives(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait(until: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if until():
            return True
        time.sleep(_POLL_SECONDS)
    return False
