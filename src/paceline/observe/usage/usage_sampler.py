"""Sample the resources that a node's workers use: cores, memory, network, GPUs and joules.

One worker per node samples every few seconds in a thread, so steps do no extra work.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import psutil

from paceline.observe.event_writer import EventWriter
from paceline.observe.protection_state import ProtectionState
from paceline.observe.usage.energy_counters import Counter, processor_counters
from paceline.observe.usage.gpus import Gpu, gpus_of_node
from paceline.specs import Traffic, Usage

T = TypeVar("T")

EVENT_SECONDS = 5.0
GPU_SECONDS = 1.0
"""Interval between GPU samples; a GPU's readings cover the last second at most."""
LOOKING_SHARE = 0.001
"""Maximum share of time for finding processes; the cost grows with all processes on the node."""


@contextmanager
def usage_written(
    writer: EventWriter,
    *,
    node: str,
    generation: int,
    workers: int,
    interface: str | None,
    gpus: bool,
) -> Iterator[None]:
    """Write this node's resource usage about every five seconds during the block and at its end.

    `workers`: number on this node. `interface`: the one toward the other workers. `gpus`: whether
    each worker has one.
    """
    over = threading.Event()

    def watch() -> None:
        of = gpus_of_node(workers) if gpus else []
        energy = ProtectionState(writer, "energy")
        try:
            counters, unreadable = processor_counters(), ""
        except OSError as error:  # no permission
            counters, unreadable = [], f"{error.filename}: {error.strerror}"
        if gpus and not of:
            unreadable = "no GPU reports its power: NVML cannot be opened"
        watched = NodeWatch(workers, interface, of, counters)
        while True:  # at least once, however short the block is
            watched.rest(over)
            writer.write(watched.taken(node, generation))
            if why := unreadable or watched.unreadable:
                energy.failed(why, node=node, generation=generation)
            else:
                energy.worked()
            if over.is_set():
                return

    thread = threading.Thread(target=watch, name="usage", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(EVENT_SECONDS)  # a driver that hangs does not delay the end


class NodeWatch:
    """Samples this node, always in the same thread, as psutil requires."""

    def __init__(
        self, workers: int, interface: str | None, gpus: list[Gpu], counters: list[Counter]
    ) -> None:
        self._workers = workers
        self._interface = interface
        self._gpus = gpus
        self._counters = counters
        self.unreadable = ""
        """Why the last reading lacks energy that could be read before; empty if it does not."""
        self._processes = Processes()
        self._edge = time.monotonic()
        self._network = psutil.net_io_counters(pernic=True)
        psutil.cpu_percent(percpu=True)  # starts the first measurement interval
        self._read_gpus()

    def rest(self, over: threading.Event) -> None:
        """Wait until the next event is due or `over` is set, and sample the GPUs meanwhile."""
        due = self._edge + EVENT_SECONDS
        while (left := due - time.monotonic()) > 0:
            if over.wait(min(left, GPU_SECONDS) if self._gpus else left):
                break
            self._read_gpus()

    def taken(self, node: str, generation: int) -> Usage:
        """Return the usage since the last call."""
        now = time.monotonic()
        seconds, self._edge = now - self._edge, now
        cores, share = self._cores()
        self._read_gpus()
        joules = self._joules()
        return Usage(
            time=time.time(),
            node=node,
            generation=generation,
            seconds=round(seconds, 4),
            workers=self._workers,
            interface=self._interface,
            cores=cores,
            cpu_share=round(share, 4),
            memory_bytes=self._processes.memory_bytes(),
            memory_total_bytes=psutil.virtual_memory().total,
            network=self._traffic(),
            gpus=[gpu.take() for gpu in self._gpus],
            joules=joules,
        )

    def _cores(self) -> tuple[int, float]:
        """Return the number of cores available to the workers, and their mean utilization."""
        every = psutil.cpu_percent(percpu=True)
        allowed = self._processes.cores()
        # psutil's list omits offline cores, so indices may not match: then use all listed cores.
        own = [every[core] for core in allowed] if max(allowed) < len(every) else every
        return len(own), sum(own) / len(own) / 100

    def _traffic(self) -> dict[str, Traffic]:
        before, self._network = self._network, psutil.net_io_counters(pernic=True)
        found = {}
        for name, now in self._network.items():
            last = before.get(name)
            traffic = Traffic(
                sent_bytes=now.bytes_sent - (last.bytes_sent if last else 0),
                received_bytes=now.bytes_recv - (last.bytes_recv if last else 0),
            )
            if name == self._interface or traffic.sent_bytes or traffic.received_bytes:
                found[name] = traffic
        return found

    def _read_gpus(self) -> None:
        for gpu in self._gpus:
            with suppress(Exception):  # a GPU may be lost; the others are not
                gpu.read(time.monotonic())

    def _joules(self) -> dict[str, float]:
        readings: list[tuple[str, Callable[[], float | None]]] = [
            (counter.name, counter.take) for counter in self._counters
        ]
        readings += [(f"gpu-{gpu.index}", gpu.take_joules) for gpu in self._gpus]
        found = {}
        self.unreadable = ""
        for name, take in readings:
            try:
                joules = take()
            except Exception as error:  # the event omits a counter that stops reporting
                self.unreadable = f"{name}: {error}"
                continue
            if joules is not None:
                found[name] = round(joules, 3)
        return found


class Processes:
    """The processes of this node's workers: all descendants of their launcher."""

    def __init__(self) -> None:
        self._found = [psutil.Process()]
        self._look_again = 0.0

    def memory_bytes(self) -> int:
        """Return the total resident memory; pages that several processes share count in each."""
        self._look()
        return sum(self._each(lambda process: process.memory_info().rss))

    def cores(self) -> set[int]:
        """Return the cores that the processes may use."""
        self._look()
        found = self._each(psutil.Process.cpu_affinity)
        return {core for cores in found for core in cores} or set(os.sched_getaffinity(0))

    def _look(self) -> None:
        begin = time.monotonic()
        if begin < self._look_again:
            return
        try:
            found = psutil.Process(os.getppid()).children(recursive=True)
        except psutil.Error:  # no permission to see the launcher
            found = [psutil.Process(), *psutil.Process().children(recursive=True)]
        self._found = found
        took = time.monotonic() - begin
        self._look_again = begin + max(EVENT_SECONDS / 2, took / LOOKING_SHARE)

    def _each(self, ask: Callable[[psutil.Process], T]) -> list[T]:
        answers = []
        for process in self._found:
            with suppress(psutil.Error):  # the process has ended meanwhile
                answers.append(ask(process))
        return answers
