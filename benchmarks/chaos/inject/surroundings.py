"""Faults of what a run stands on: its folder, its ports, and its claim to be the only trainer."""

import random
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

import psutil

from benchmarks.chaos.faults.schedule import Fault
from benchmarks.chaos.inject.local import TELL_SECONDS, fill, told, wait_for_workers
from benchmarks.chaos.world.machine import GaveUp, World

_UNWRITTEN_STEPS, _UNWRITTEN_SECONDS = 40, 3.0
"""So long no event is written where none can be: workers write some at least every second."""
_SILENT, _HELD_STEPS = 70, 10
_MOST_FILES = 1 << 14
_REFUSE_SECONDS = 120.0


def _run_disk_full(world: World, fault: Fault) -> None:
    told(world, fault, events_before=world.events.total())
    filler, restored = world.runs / "filler", world.events["restored"]
    fill(filler)
    size, step, began = -1, world.step, time.monotonic()

    def nothing_is_written() -> bool:
        nonlocal size, step, began
        now = sum(path.stat().st_size for path in (world.run / "events").iterdir())
        if now != size:
            size, step, began = now, world.step, time.monotonic()
        return (
            world.step > step + _UNWRITTEN_STEPS and time.monotonic() > began + _UNWRITTEN_SECONDS
        )

    world.until(nothing_is_written, TELL_SECONDS, "events are still written")
    filler.unlink()
    world.until(
        lambda: world.events["restored"] > restored, TELL_SECONDS, "no event was caught up with"
    )


def _folder_gone(world: World, fault: Fault) -> None:
    told(world, fault, pid=world.supervisor.pid)
    run = world.run
    away = run.with_name("away")
    run.rename(away)
    try:
        world.supervisor.wait(TELL_SECONDS)
    except subprocess.TimeoutExpired:
        raise GaveUp("the run does not end without its folder") from None
    finally:
        away.rename(run)
    wait_for_workers(world)


def _strangers(world: World, fault: Fault) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, _MOST_FILES), most))
    ports = [
        (each.laddr.ip, each.laddr.port)
        for each in psutil.net_connections("tcp")
        if each.laddr and each.status == psutil.CONN_LISTEN
    ]
    told(world, fault, ports=len(ports))
    noise = random.Random(fault.number).randbytes(4096)
    first = world.step
    with ExitStack() as held:
        for address in ports:
            for _ in range(_SILENT):
                _connect(held, address, b"")
            for garbage in (b"\x01", b"GET / HTTP/1.1\r\n\r\n", bytes(4096), b"\xff" * 4096):
                _connect(held, address, garbage)
            _connect(held, address, noise)
            _connect(held, address, noise * 64)
        world.until(
            lambda: world.finished or world.step > first + _HELD_STEPS,
            TELL_SECONDS,
            "no step was taken among strangers",
        )


def _connect(held: ExitStack, address: tuple[str, int], words: bytes) -> None:
    """Connect and say something; the listener may be gone, or have had enough."""
    with suppress(OSError):
        stranger = held.enter_context(socket.create_connection(address, timeout=5))
        stranger.setblocking(False)
        stranger.send(words)


def _second_trainer(world: World, fault: Fault) -> None:
    told(world, fault)
    with (world.folder / "second.txt").open("ab") as said:
        second = subprocess.Popen(
            [sys.executable, "-m", "paceline", *world.words_to_resume(), "--quiet"],
            cwd=world.folder,
            env=world.environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
    try:
        world.until(
            lambda: second.poll() is not None, _REFUSE_SECONDS, "the second was not refused"
        )
    finally:
        second.kill()
        second.wait()
    world.history.write("second trainer", number=fault.number, code=second.returncode)


INJECT_AROUND: dict[str, Callable[[World, Fault], None]] = {
    "run-disk-full": _run_disk_full,
    "folder-gone": _folder_gone,
    "strangers": _strangers,
    "second-trainer": _second_trainer,
}
