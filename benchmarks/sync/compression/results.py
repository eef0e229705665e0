"""What was measured, and what it comes to against no compression."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.sync.compression.candidates import BY_NAME, LAYERS, UNCOMPRESSED, WIDTH, Candidate
from paceline.specs import SyncSettings
from paceline.specs.plans.traffic import ReplicatedPart


def message_ratio(candidate: Candidate, workers: int) -> float:
    """How many times fewer bytes a worker sends in a step, of messages alone."""
    shapes = [(WIDTH, WIDTH), (WIDTH,)] * LAYERS
    parameters = LAYERS * (WIDTH * WIDTH + WIDTH)
    whole, less = (
        SyncSettings.parse(each.sync)
        .traffic(ReplicatedPart(workers, parameters, shapes=shapes))
        .bytes_per_step
        for each in (UNCOMPRESSED, candidate)
    )
    return whole / less


def ratio_with_warmup(candidate: Candidate) -> float:
    """The same between two workers over a whole training, its warm-up included."""
    part = candidate.warmup_part
    return 1 / (part + (1 - part) / message_ratio(candidate, 2))


@dataclass(frozen=True)
class Sent:
    """Bytes that the interfaces of the nodes counted for a candidate."""

    candidate: str
    workers: int
    frames: bool
    """Whether in frames of an Ethernet, each with its headers, instead of what a sender hands to
    its card at once."""
    bytes_per_step: tuple[float, ...]
    """Of each worker."""

    @property
    def mean_bytes(self) -> float:
        """Over the workers."""
        return statistics.mean(self.bytes_per_step)


@dataclass(frozen=True)
class Learnt:
    """What a run came to on what is held out."""

    task: str
    candidate: str
    seed: int
    rate: float
    loss: float = float("inf")
    accuracy: float = 0.0
    failed: str = ""


@dataclass(frozen=True)
class Compared:
    """A candidate's runs on a task, beside the uncompressed ones of the same seeds."""

    candidate: Candidate
    rate: float
    accuracy_points: float
    points: tuple[float, ...]
    """More accurate than uncompressed, for each seed."""
    loss: float
    loss_percent: tuple[float, ...]
    """More loss than uncompressed, for each seed."""


@dataclass
class Results:
    """All of it."""

    sent: list[Sent] = field(default_factory=list)
    learnt: list[Learnt] = field(default_factory=list)

    def ratio(self, candidate: str, workers: int, *, frames: bool = False) -> float:
        """How many times fewer bytes, at the interface."""
        found = {
            each.candidate: each.mean_bytes
            for each in self.sent
            if (each.workers, each.frames) == (workers, frames)
        }
        return found[UNCOMPRESSED.name] / found[candidate]

    def compared(self, task: str) -> list[Compared]:
        """In the order in which they were run."""
        by_name: dict[str, list[Learnt]] = {}
        for each in self.learnt:
            if each.task == task:
                by_name.setdefault(each.candidate, []).append(each)
        plain = {each.seed: each for each in by_name[UNCOMPRESSED.name]}
        return [_beside(BY_NAME[name], runs, plain) for name, runs in by_name.items()]

    def misses(self) -> list[str]:
        """What was asked for and not reached, in words."""
        found = []
        for each in self.sent:
            least = BY_NAME[each.candidate].least_ratio
            if least and each.workers == 2 and not each.frames:
                ratio = self.ratio(each.candidate, 2)
                if ratio < least:
                    found.append(f"{each.candidate}: {ratio:.1f}, not {least:g} times fewer bytes")
        for task in dict.fromkeys(each.task for each in self.learnt):
            for row in self.compared(task):
                most = row.candidate.most_points
                lost = loss_of(task, row)
                if most and lost > most:
                    unit = "% of the loss" if judged_by_loss(task) else "points"
                    found.append(f"{row.candidate.name} on {task}: {lost:.2f} {unit}, not {most:g}")
        return found


def judged_by_loss(task: str) -> bool:
    """Whether the loss counts; else it is the accuracy."""
    return task == "text"


def loss_of(task: str, row: Compared) -> float:
    """What is lost on average: percent of the loss, or points of accuracy."""
    if judged_by_loss(task):
        return statistics.mean(row.loss_percent)
    return -statistics.mean(row.points)


def _beside(candidate: Candidate, runs: Sequence[Learnt], plain: dict[int, Learnt]) -> Compared:
    return Compared(
        candidate=candidate,
        rate=runs[0].rate,
        accuracy_points=100 * statistics.mean(each.accuracy for each in runs),
        points=tuple(100 * (each.accuracy - plain[each.seed].accuracy) for each in runs),
        loss=statistics.mean(each.loss for each in runs),
        loss_percent=tuple(100 * (each.loss / plain[each.seed].loss - 1) for each in runs),
    )
