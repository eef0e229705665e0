"""One run with faults, from its schedule to what the checker found."""

import os
import shutil
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.chaos.check.all import violations
from benchmarks.chaos.check.evidence import Evidence
from benchmarks.chaos.check.samples import tally
from benchmarks.chaos.faults.kinds import KINDS
from benchmarks.chaos.faults.schedule import Fault, schedule, total_steps
from benchmarks.chaos.inject.drive import drive, undisturbed
from benchmarks.chaos.inject.testbed import BoxWorld
from benchmarks.chaos.outcomes import outcomes
from benchmarks.chaos.results import Broken, Finished, Results
from benchmarks.chaos.settings import SPARES, WORKERS, Setting
from benchmarks.chaos.world.isolation import own_disk
from benchmarks.chaos.world.machine import World
from paceline import testbed

_CHECKPOINT_MEGABYTES, _RUN_MEGABYTES = 16, 64


def scheduled(setting: Setting, names: list[str], options: Namespace) -> list[Fault]:
    """The faults of a run: those kinds that the setting can notice."""
    fitting = [name for name in names if setting.has_replicas or not KINDS[name].replicas]
    return schedule(options.seed, fitting, options.faults, options.nodes or WORKERS + SPARES)


def run(
    folder: Path,
    setting: Setting,
    names: list[str],
    options: Namespace,
    results: Results,
    advance: Callable[[], object],
) -> None:
    """Put faults into a run and add what came of it to the results."""
    faults = scheduled(setting, names, options)
    began = time.monotonic()
    alone = folder / "undisturbed"
    alone.mkdir(parents=True)
    undisturbed(alone, setting, total_steps(faults))
    with _world(folder, setting, faults, options.nodes) as world:
        drive(world, faults, options.seed, advance)
        found = [] if options.nodes else violations(folder, alone)
        if found:  # that disk is gone with this process
            shutil.copytree(world.runs, folder / "kept-runs")
    if options.nodes:  # what the testbed itself runs is gone only now
        found = violations(folder, alone)
    evidence = Evidence(folder)
    results.outcomes += outcomes(evidence)
    for each in found:
        results.broken.append(Broken(setting.name, options.seed, each.rule, each.message))
    samples = tally(evidence)
    results.runs.append(
        Finished(
            setting=setting.name,
            seed=options.seed,
            faults=len(evidence.told("injected")),
            planned=len(faults),
            seconds=round(time.monotonic() - began, 1),
            date=datetime.now(UTC).date().isoformat(),
            samples=samples.counted,
            wrong_samples=samples.wrong,
        )
    )


@contextmanager
def _world(
    folder: Path, setting: Setting, faults: list[Fault], nodes: int | None
) -> Iterator[World]:
    steps = total_steps(faults)
    if not nodes:
        world = World(folder, setting, steps=steps, faults=len(faults), spares=SPARES)
        own_disk(world.checkpoints, _CHECKPOINT_MEGABYTES)
        own_disk(world.runs, _RUN_MEGABYTES)
        try:
            yield world
        finally:
            world.close()
        return
    box = f"chaos-{os.getpid()}"
    testbed.up(testbed.TestbedSpec(name=box, nodes=nodes, link="1gbit"))
    try:
        world = BoxWorld(folder, setting.on(nodes), box, nodes, steps)
        try:
            yield world
        finally:
            world.close()
    finally:
        testbed.down(box)
