"""Faults that are put into a run from outside, one function each."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.chaos.faults.kinds import ON_DEVICES
from benchmarks.chaos.faults.schedule import Fault
from benchmarks.chaos.world.machine import NO_STEP, SAVE_EVERY, World
from benchmarks.chaos.world.workers import Worker

TELL_SECONDS = 150.0
"""Long, as all limits here: it only tells late from never."""
_PAUSE_SECONDS = 0.5


def target(world: World, fault: Fault, besides: Worker | None = None) -> Worker:
    """The worker that a fault is for."""
    there = [each for each in world.training() if each is not besides]
    return there[fault.rank % len(there)]


def told(world: World, fault: Fault, **facts: object) -> None:
    """Write down that a fault is there."""
    world.mark = (world.generation, world.step)
    world.history.write(
        "injected",
        number=fault.number,
        kind=fault.kind,
        step=world.step,
        generation=world.generation,
        **facts,
    )


def _kill(world: World, fault: Fault) -> None:
    victim = target(world, fault)
    told(world, fault, rank=victim.part, worker=victim.name)
    victim.signal(signal.SIGKILL)


def _several(world: World, fault: Fault) -> None:
    first = target(world, fault)
    second = target(world, fault, besides=first)
    told(world, fault, ranks=[first.part, second.part])
    for each in (first, second):
        each.signal(signal.SIGKILL)


def _all(world: World, fault: Fault) -> None:
    victims = world.training()
    told(world, fault, ranks=[each.part for each in victims])
    for each in victims:
        each.signal(signal.SIGKILL)


def _coordinator(world: World, fault: Fault) -> None:
    victim = world.training()[0]
    told(world, fault, rank=victim.part, worker=victim.name)
    victim.signal(signal.SIGKILL)


def _supervisor(world: World, fault: Fault) -> None:
    told(world, fault, pid=world.supervisor.pid)
    world.supervisor.kill()


def _stop(world: World, fault: Fault) -> None:
    told(world, fault, pid=world.supervisor.pid)
    world.supervisor.terminate()


def _pause(world: World, fault: Fault) -> None:
    victim = target(world, fault)
    told(world, fault, rank=victim.part, worker=victim.name)
    victim.signal(signal.SIGSTOP)
    time.sleep(_PAUSE_SECONDS)
    victim.signal(signal.SIGCONT)


def _hang(world: World, fault: Fault) -> None:
    victim = target(world, fault)
    told(world, fault, rank=victim.part, worker=victim.name)
    victim.signal(signal.SIGSTOP)


def _return(world: World, fault: Fault) -> None:
    before = world.generation
    _hang(world, fault)
    victim = target(world, fault)
    world.until(lambda: world.generation > before, TELL_SECONDS, "the others did not go on")
    victim.signal(signal.SIGCONT)


def _during_recovery(world: World, fault: Fault) -> None:
    first = target(world, fault)
    second = target(world, fault, besides=first)
    first.signal(signal.SIGKILL)
    time.sleep(fault.seconds)
    told(world, fault, ranks=[first.part, second.part])
    second.signal(signal.SIGKILL)


def _during_save(world: World, fault: Fault) -> None:
    def drafted() -> bool:
        return any(world.checkpoints.glob("*/.draft-*"))

    world.until(drafted, TELL_SECONDS, "no checkpoint was begun")
    _kill(world, fault)


def _replacement(world: World, fault: Fault) -> None:
    first, known = target(world, fault), set(world.workers)
    first.signal(signal.SIGKILL)

    def started() -> bool:
        return bool(world.workers.keys() - known)

    world.until(started, TELL_SECONDS, "nobody was started in its place")
    time.sleep(fault.seconds)
    world.until(lambda: bool(world.training()), TELL_SECONDS, "nobody trains")
    second = target(world, fault, besides=first)
    told(world, fault, ranks=[first.part, second.part])
    second.signal(signal.SIGKILL)


def _by_job(world: World, fault: Fault) -> None:
    victim = target(world, fault)
    fired = world.chaos / "fired" / f"{fault.number}.json"
    world.order(NO_STEP, fault, victim.name)
    world.until(fired.exists, TELL_SECONDS, "the job did not do what it was told")
    step = json.loads(fired.read_text())["step"]
    told(world, fault, rank=victim.part, worker=victim.name, at_step=step)


def _disk_full(world: World, fault: Fault) -> None:
    filler = world.checkpoints / "filler"
    told(world, fault)
    fill(filler)
    _until_not_saved(world)
    filler.unlink()


def fill(filler: Path) -> None:
    """Fill a file system to the last byte."""
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 16)):
                pass
        except OSError:
            pass  # full


def _read_only(world: World, fault: Fault) -> None:
    told(world, fault)
    _remount(world, "ro")
    _until_not_saved(world)
    _remount(world, "rw")


def _until_not_saved(world: World) -> None:
    """Until a checkpoint could not be written, or long enough for that to have come."""
    before, step = world.events["not_saved"], world.step
    world.until(
        lambda: world.events["not_saved"] > before or world.step > step + 2 * SAVE_EVERY,
        TELL_SECONDS,
        "no checkpoint was tried",
    )


def _remount(world: World, how: str) -> None:
    """A file system that is being written to cannot be made read-only: until it is not."""

    def done() -> bool:
        words = ["mount", "-o", f"remount,{how}", str(world.checkpoints)]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    world.until(done, TELL_SECONDS, f"the folder could not be made {how}")


def _damaged(damage: Callable[[Path, random.Random], None]) -> Callable[[World, Fault], None]:
    def inject(world: World, fault: Fault) -> None:
        def saved() -> list[Path]:
            return sorted(world.checkpoints.glob("*/step-*"))

        world.until(lambda: len(saved()) > 1, TELL_SECONDS, "there are no two checkpoints")
        told(world, fault, pid=world.supervisor.pid)
        world.supervisor.kill()
        world.supervisor.wait()
        wait_for_workers(world)  # or they would write another behind it
        newest = saved()[-1]
        chosen = random.Random(fault.number)
        file = chosen.choice(sorted(newest.glob("*.safetensors")))
        damage(file, chosen)
        world.history.write("damaged", number=fault.number, file=f"{newest.name}/{file.name}")

    return inject


def wait_for_workers(world: World) -> None:
    """Until all workers have ended, whose launcher has."""
    for worker in world.workers.values():
        while worker.alive:
            time.sleep(0.001)


def _tear(file: Path, chosen: random.Random) -> None:
    os.truncate(file, chosen.randrange(file.stat().st_size))


def _flip(file: Path, chosen: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)
    file.write_bytes(content)


INJECT: dict[str, Callable[[World, Fault], None]] = {
    "kill": _kill,
    "several": _several,
    "all": _all,
    "coordinator": _coordinator,
    "supervisor": _supervisor,
    "pause": _pause,
    "hang": _hang,
    "return": _return,
    "stuck": _by_job,
    "stop": _stop,
    "during-recovery": _during_recovery,
    "during-save": _during_save,
    "replacement": _replacement,
    "nan": _by_job,
    "flip": _by_job,
    "memory": _by_job,
    "clock": _by_job,
    "straggler": _by_job,
    **dict.fromkeys(ON_DEVICES, _by_job),
    "disk-full": _disk_full,
    "read-only": _read_only,
    "torn": _damaged(_tear),
    "disk-flip": _damaged(_flip),
}
