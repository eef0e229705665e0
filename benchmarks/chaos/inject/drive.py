"""Puts a schedule's faults into one run, one after the other, and follows it to its end."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.chaos.faults.kinds import KINDS
from benchmarks.chaos.faults.schedule import Fault, printed
from benchmarks.chaos.inject.local import INJECT
from benchmarks.chaos.inject.surroundings import INJECT_AROUND
from benchmarks.chaos.inject.testbed import INJECT_IN_BOX, BoxWorld
from benchmarks.chaos.settings import Setting
from benchmarks.chaos.world.machine import NO_STEP, GaveUp, World

_RECOVERY_SECONDS = _FIT_SECONDS = 300.0
"""Long, for machines that have much else to do: here it only tells late from never."""
_STEPS_OF_NEW = 3
"""Steps of a new generation after which the fault before it is over."""


def drive(
    world: World,
    faults: Sequence[Fault],
    seed: int,
    advance: Callable[[], object] = lambda: None,
) -> None:
    """Run a training with these faults; what came of it is in the world's folder."""
    (world.folder / "schedule.jsonl").write_text(printed(faults))
    setting, steps = world.setting, world.steps
    world.history.write(
        "run",
        seed=seed,
        setting=setting.name,
        steps=steps,
        agrees=setting.agrees,
        exact=setting.exact,
        same_bits=setting.same_bits,
        faults=len(faults),
        tells=setting.tells,
        alone=not isinstance(world, BoxWorld),
    )
    world.order(faults[0].step)
    world.start()
    try:
        for number, fault in enumerate(faults):
            after = faults[number + 1].step if number + 1 < len(faults) else steps
            if not _inject(world, fault, after):
                break
            advance()
        world.finish()
        world.history.write("over", step=world.step, generation=world.generation)
    except GaveUp as error:
        world.history.write("gave up", why=str(error), step=world.step)


def _inject(world: World, fault: Fault, next_step: int) -> bool:
    """Whether the fault found its place; a run that is over has none."""
    kind = KINDS[fault.kind]

    def fit() -> bool:
        due = world.step >= fault.step and len(world.training()) >= kind.workers
        return world.finished or due

    world.until(fit, _FIT_SECONDS, f"no {kind.workers} workers train for fault {fault.number}")
    if world.finished:
        world.history.write("not injected", number=fault.number, kind=fault.kind)
        return False
    world.order(NO_STEP)
    starts = world.starts
    if isinstance(world, BoxWorld) and fault.kind in INJECT_IN_BOX:
        INJECT_IN_BOX[fault.kind](world, fault)
    else:
        (INJECT | INJECT_AROUND)[fault.kind](world, fault)
    before, since = world.mark
    ends = kind.ends or (fault.kind == "nan" and world.setting.ends_by_nan)

    def recovered() -> bool:
        if ends and world.starts == starts:
            return False  # what there is of new generations is of faults before it
        if world.generation > before:
            return world.step >= world.first_step + _STEPS_OF_NEW
        return not kind.replaces and world.step >= since + kind.quiet_steps

    world.until(
        lambda: world.finished or recovered(),
        _RECOVERY_SECONDS,
        f"no step after fault {fault.number} ({fault.kind})",
    )
    world.history.write(
        "recovered", number=fault.number, step=world.step, generation=world.generation
    )
    world.order(next_step)
    return True


def undisturbed(folder: Path, setting: Setting, steps: int) -> None:
    """The same training without a fault, as fast as it goes; it saves at its end only."""
    world = World(folder, setting.compared_with, steps=steps, pace_seconds=0.0, save_every=steps)
    world.start()
    try:
        world.finish(600)
    finally:
        world.close()
    shutil.rmtree(world.chaos)
