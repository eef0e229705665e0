"""Nothing is left of a run, and nothing grows while it lasts."""

import os
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.chaos.check.evidence import Evidence, Line, Violation

RULE = "no leftovers"
GROWTH_RULE = "no leaks"
SHARED_MEMORY = Path("/dev/shm")
_LISTENS = "0A"
_SAMPLES = 8
"""Fewer of a process say nothing about growth."""
_GENERATIONS = 6
"""Nor do fewer of these: with more workers a process has more connections."""
_MORE = {"fds": 48, "threads": 12, "rss_bytes": 64 << 20}
"""How much more a process may have at the end of its life than in the middle of it: one that
becomes worker 0 meanwhile has connections to all others, and hosts where they meet. By the middle
it has met most numbers of workers, for each of which PyTorch keeps what it has cached."""


def check(evidence: Evidence) -> Iterator[Violation]:
    """Processes, ports, shared memory and temporary files; then what each process used."""
    mark = f"PACELINE_CHAOS={evidence.folder / 'chaos'}".encode()
    for pid in _processes(mark):
        yield Violation(RULE, f"process {pid} is still there: {_command(pid)}")
    alone = evidence.run.get("alone", True)
    """Whether the run had a network and a /dev/shm to itself, in which this process is too."""
    for port in _ports() if alone else ():
        yield Violation(RULE, f"somebody listens on port {port}")
    for placement in (*([SHARED_MEMORY] if alone else []), evidence.folder / "tmp"):
        left = sorted(path.name for path in placement.iterdir()) if placement.is_dir() else []
        if left:
            yield Violation(RULE, f"{len(left)} files in {placement}, such as {left[0]}")
    strangers = [each["at"] for each in evidence.told("injected") if each["kind"] == "strangers"]
    yield from growth(evidence.told("sample"), strangers)


def growth(samples: list[Line], strangers: Sequence[float] = ()) -> Iterator[Violation]:
    """Compares the middle third of the generations that each process lived through with the last:
    what leaks grows with every generation, what is cached does not.

    `strangers`: when they came. Gloo keeps a stranger's connection open until its group is gone,
    so the open files of processes that met them say nothing.
    """
    by_process: dict[str, list[Line]] = defaultdict(list)
    for sample in samples:
        by_process[sample["worker"]].append(sample)
    for worker, found in by_process.items():
        generations = found[-1]["generation"] - found[0]["generation"]
        if len(found) < _SAMPLES or generations < _GENERATIONS:
            continue
        third = generations / 3
        begun = found[0]["generation"]
        middle = [each for each in found if third <= each["generation"] - begun < 2 * third]
        end = [each for each in found if each["generation"] - begun >= 2 * third]
        met = any(found[0]["at"] <= at <= found[-1]["at"] for at in strangers)
        for what, allowed in _MORE.items() if middle else ():
            if met and what == "fds":
                continue
            first = statistics.median(each[what] for each in middle)
            last = statistics.median(each[what] for each in end)
            if last - first > allowed:
                yield Violation(
                    GROWTH_RULE,
                    f"worker {worker}: {what} from {first:g} to {last:g} over {generations}"
                    " generations",
                )


def _processes(mark: bytes) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:  # it is gone, or it is not ours
                continue
            if mark in variables:
                yield int(entry.name)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:100]
    except OSError:
        return "it has gone since"


def _ports() -> Iterator[int]:
    """Of the network that this process is in, which these runs have to themselves."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            _, local, _, state, *_ = line.split()
            if state == _LISTENS:
                yield int(local.rpartition(":")[2], 16)
