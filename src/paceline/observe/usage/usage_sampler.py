"""What a node's workers use – cores, memory, network, GPUs, joules – seen from beside training.

One worker of a node looks every few seconds, in a thread; a step itself does nothing for it.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import psutil

from paceline.observe.event_writer import EventWriter
from paceline.observe.usage.energy_counters import Counter, processor_counters
from paceline.observe.usage.gpus import Gpu, gpus_of_node
from paceline.specs import Traffic, Usage

T = TypeVar("T")

EVENT_SECONDS = 5.0
GPU_SECONDS = 1.0
"""Between two looks at a GPU, whose readings are of the last second at most."""
LOOKING_SHARE = 0.001
"""Of the time, what looking for processes may take: it grows with all that run on the node."""


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
    """A block whose use of this node is written about every five seconds, and at its end.

    `workers`: on this node. `interface`: towards the others. `gpus`: whether each worker has one.
    """
    over = threading.Event()

    def watch() -> None:
        of = gpus_of_node(workers) if gpus else []
        watched = NodeWatch(workers, interface, of, processor_counters())
        while True:  # at least once, however short the block is
            watched.rest(over)
            writer.write(watched.taken(node, generation))
            if over.is_set():
                return

    thread = threading.Thread(target=watch, name="usage", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(EVENT_SECONDS)  # a driver that hangs does not hold up the end


class NodeWatch:
    """Looks at this node, always in the same thread, as psutil wants it."""

    def __init__(
        self, workers: int, interface: str | None, gpus: list[Gpu], counters: list[Counter]
    ) -> None:
        self._workers = workers
        self._interface = interface
        self._gpus = gpus
        self._counters = counters
        self._processes = Processes()
        self._edge = time.monotonic()
        self._network = psutil.net_io_counters(pernic=True)
        psutil.cpu_percent(percpu=True)  # from here on
        self._read_gpus()

    def rest(self, over: threading.Event) -> None:
        """Until the next event is due or all is over, but for looks at the GPUs."""
        due = self._edge + EVENT_SECONDS
        while (left := due - time.monotonic()) > 0:
            if over.wait(min(left, GPU_SECONDS) if self._gpus else left):
                break
            self._read_gpus()

    def taken(self, node: str, generation: int) -> Usage:
        """What was used since the last call."""
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
        """How many the workers may use, and the part of the time in which these were busy."""
        every = psutil.cpu_percent(percpu=True)
        allowed = self._processes.cores()
        # Cores that are switched off have no place in psutil's list: then it is that of all.
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
            with suppress(Exception):  # it may be lost; the others are not
                gpu.read(time.monotonic())

    def _joules(self) -> dict[str, float]:
        readings: list[tuple[str, Callable[[], float | None]]] = [
            (counter.name, counter.take) for counter in self._counters
        ]
        readings += [(f"gpu-{gpu.index}", gpu.take_joules) for gpu in self._gpus]
        found = {}
        for name, take in readings:
            with suppress(Exception):  # a counter that falls silent is missing in the event
                joules = take()
                if joules is not None:
                    found[name] = round(joules, 3)
        return found


class Processes:
    """The processes of this node's workers: all that have their launcher as a forebear."""

    def __init__(self) -> None:
        self._found = [psutil.Process()]
        self._look_again = 0.0

    def memory_bytes(self) -> int:
        """Resident in all of them; pages that several share count in each."""
        self._look()
        return sum(self._each(lambda process: process.memory_info().rss))

    def cores(self) -> set[int]:
        """That they may use."""
        self._look()
        found = self._each(psutil.Process.cpu_affinity)
        return {core for cores in found for core in cores} or set(os.sched_getaffinity(0))

    def _look(self) -> None:
        begin = time.monotonic()
        if begin < self._look_again:
            return
        try:
            found = psutil.Process(os.getppid()).children(recursive=True)
        except psutil.Error:  # the launcher is not ours to see
            found = [psutil.Process(), *psutil.Process().children(recursive=True)]
        self._found = found
        took = time.monotonic() - begin
        self._look_again = begin + max(EVENT_SECONDS / 2, took / LOOKING_SHARE)

    def _each(self, ask: Callable[[psutil.Process], T]) -> list[T]:
        answers = []
        for process in self._found:
            with suppress(psutil.Error):  # it has ended meanwhile
                answers.append(ask(process))
        return answers
