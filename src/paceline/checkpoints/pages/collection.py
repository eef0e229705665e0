"""Collect the workers' parts of a checkpoint along a tree of nodes.

The first worker of a node writes the node's page. The first of 64 such workers writes a page about
their pages, and so on up to worker 0, which writes the root. So no worker's effort grows with the
number of nodes, except with the logarithm.
"""

import threading
import time
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from paceline.checkpoints.manifest import MOST_MANIFEST_BYTES
from paceline.checkpoints.pages.handed_in import HandedIn, handed_in_page, merged, page_name
from paceline.checkpoints.pages.packed import packed, unpacked
from paceline.checkpoints.pages.page import MOST_PAGE_BYTES
from paceline.checkpoints.storage import Draft
from paceline.specs import PacelineError

FAN_IN = 64
"""Pages below a page."""

_POLL_SECONDS = 0.02
_SLOWEST_POLL_SECONDS = 0.5
"""A shared file system must not be busy with the workers that wait for a slow one."""
_PEERS_TIMEOUT_SECONDS = 600.0
"""How long a worker waits for the parts that it collects; a level above, as long again."""


class PartFailed(OSError):
    """Another worker could not write its part; the message names the worker."""


@dataclass(frozen=True)
class Duties:
    """Which workers' parts a worker collects, and which worker it hands them in to."""

    groups: tuple[tuple[int, ...], ...]
    """The other workers of each group that this worker collects, its node's first."""
    parent: int | None
    """None for worker 0, which writes the root."""


def duties(worker: int, nodes: Iterable[Sequence[int]]) -> Duties:
    """Return a worker's duties, given the workers of each node."""
    level = sorted(tuple(sorted(node)) for node in nodes)
    groups: list[tuple[int, ...]] = []
    while True:
        first, *others = next(group for group in level if worker in group)
        if first != worker:
            return Duties(tuple(groups), first)
        groups.append(tuple(others))
        if len(level) == 1:
            return Duties(tuple(groups), None)
        firsts = [group[0] for group in level]
        level = [tuple(firsts[at : at + FAN_IN]) for at in range(0, len(firsts), FAN_IN)]


class Collector:
    """Collects the parts of one worker and those below it, and hands them in."""

    def __init__(
        self,
        worker: int,
        nodes: Iterable[Sequence[int]],
        attempt: int,
        abandoned: threading.Event,
    ) -> None:
        self._worker, self._attempt, self._abandoned = worker, attempt, abandoned
        self._nodes = nodes

    @cached_property
    def _duties(self) -> Duties:
        """A worker that has no rank yet, as it waits to join, has none."""
        return duties(self._worker, self._nodes)

    @property
    def commits(self) -> bool:
        """Whether this worker writes the root."""
        return self._duties.parent is None

    def collect(self, own: HandedIn, draft: Draft) -> HandedIn:
        """Return this worker's part together with those below it, once their pages are written."""
        collected, groups = own, self._duties.groups
        for level, others in enumerate(groups):
            collected = merged([collected, *self._parts_of(others, level, draft)])
            is_root = self.commits and level == len(groups) - 1
            if collected.page.files and not is_root:
                name = page_name(level, self._worker)
                text = collected.page.model_dump_json().encode()
                check_size(text, MOST_PAGE_BYTES)
                draft.write(name, [text])
                collected = handed_in_page(collected, name, text)
        return collected

    def hand_in(self, collected: HandedIn, draft: Draft) -> None:
        """Hand in what was collected."""
        draft.write(self._handed_in, [packed(collected)])

    def hand_in_error(self, error: Exception, why: str, draft: Draft) -> None:
        """Report a failure to the worker that waits for this one's part, if possible."""
        text = why if isinstance(error, PartFailed) else f"worker {self._worker}: {why}"
        failed = packed(HandedIn(error=text))
        for chunks in ([failed], []):  # an empty file fits on a full disk
            with suppress(OSError):  # or worker 0 has abandoned the draft
                draft.write(self._handed_in, chunks)
                return

    @property
    def _handed_in(self) -> str:
        parent = self._duties.parent
        assert parent is not None
        folder = self._folder(len(self._duties.groups), parent)
        return f"{folder}/{_name(self._worker)}"

    def _folder(self, level: int, worker: int) -> str:
        """Return the folder of a draft to which a group hands in its parts."""
        return f"handed-in-{self._attempt}-{level}-{worker:05d}"

    def _parts_of(self, others: Sequence[int], level: int, draft: Draft) -> list[HandedIn]:
        """Wait for what a group's other workers hand in, and return it."""
        folder = self._folder(level, self._worker)
        names = {_name(worker): worker for worker in others}
        self._await(draft, folder, names.keys(), (level + 1) * _PEERS_TIMEOUT_SECONDS)
        parts, left_bytes = [], MOST_MANIFEST_BYTES
        for name, worker in names.items():
            handed = draft.read(f"{folder}/{name}", left_bytes)
            if not handed:
                raise PartFailed(f"worker {worker}: its disk is full")
            part, size = unpacked(HandedIn, handed, left_bytes)
            left_bytes -= size
            if part.error is not None:
                raise PartFailed(part.error)
            parts.append(part)
        if names:
            draft.clear(folder)
        return parts

    def _await(self, draft: Draft, folder: str, names: Set[str], most_seconds: float) -> None:
        began = time.monotonic()
        while missing := names and names - draft.names(folder):
            waited = time.monotonic() - began
            if waited > most_seconds:
                raise TimeoutError(f"{len(missing)} workers did not write their part in time")
            seconds = min(max(_POLL_SECONDS, waited / 10), _SLOWEST_POLL_SECONDS)
            if self._abandoned.wait(seconds):
                raise OSError("workers were lost before they had written their part")


def _name(worker: int) -> str:
    """Return the name of the file that a worker hands in."""
    return f"{worker:05d}"


def check_size(text: bytes, most_bytes: int) -> None:
    """Refuse to write a page or root that nobody would read."""
    if len(text) > most_bytes:
        raise PacelineError(
            f"its manifest would have {len(text):,} bytes, and no worker reads more than"
            f" {most_bytes:,}",
            fix="divide the state into fewer shards (--shards), with more replicas",
        )
