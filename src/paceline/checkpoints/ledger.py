"""Which samples entered every step, for tests and for the doubtful.

One file for each generation of workers and each part of the batch. A worker writes before anybody
can learn from its samples; a later generation takes back the steps after the one that it went on
from, so what remains is what the weights have learnt from.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import NonNegativeInt, PositiveInt, ValidationError

from paceline.specs import PacelineError
from paceline.specs.base import Spec

_Kind = TypeVar("_Kind", bound=Spec)


class _Head(Spec):
    """The first line of a file."""

    resumed: NonNegativeInt
    parts: PositiveInt
    samples: NonNegativeInt


class _Line(Spec):
    """One worker's part of a step."""

    step: NonNegativeInt
    epoch: NonNegativeInt
    ids: list[NonNegativeInt]


@dataclass
class _Step:
    """All parts of a step."""

    start: str
    epoch: int
    left: int
    """Parts that nobody has written down."""
    ids: list[int] = field(default_factory=list)


class Ledger:
    """Writes down one worker's samples."""

    def __init__(
        self, folder: Path, *, generation: int, part: int, parts: int, resumed: int, samples: int
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"start-{generation:05d}-part-{part:05d}.jsonl"
        self._file = path.open("w", buffering=1)
        self._write({"resumed": resumed, "parts": parts, "samples": samples})

    def entering(self, step: int, epoch: int, ids: tuple[int, ...]) -> None:
        """A step is about to be taken on these samples."""
        self._write({"step": step, "epoch": epoch, "ids": ids})

    def sync(self) -> None:
        """Bring it to disk: before a checkpoint says that these steps count."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """The last step was taken."""
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")


@dataclass(frozen=True)
class EpochRecord:
    """What an epoch's steps saw."""

    epoch: int
    steps: int
    samples: int
    """Samples of the dataset."""
    once: int
    repeated: tuple[int, ...]
    """Samples that were seen more than once."""
    missing: int
    """Samples that were not seen."""
    incomplete_steps: tuple[int, ...]
    """Steps of which some worker's part was not written down."""

    @property
    def exact(self) -> bool:
        """Whether every sample was seen exactly once."""
        return not self.repeated and not self.missing and not self.incomplete_steps


def read_ledger(folder: Path) -> list[EpochRecord]:
    """What the steps that count have seen, epoch by epoch."""
    steps: dict[int, _Step] = {}
    samples = 0
    for path in sorted(folder.glob("start-*-part-*.jsonl")):
        lines = _lines(path)
        first = next(lines, None)
        if first is None:  # its worker was killed before it could write
            continue
        head = _parsed(_Head, path, *first)
        start = path.name.split("-part-")[0]
        samples = head.samples
        # What was not resumed from was never learnt from.
        steps = {
            number: step
            for number, step in steps.items()
            if number <= head.resumed or step.start == start
        }
        for number, text in lines:
            line = _parsed(_Line, path, number, text)
            step = steps.setdefault(line.step, _Step(start, line.epoch, head.parts))
            step.ids += line.ids
            step.left -= 1
    epochs = sorted({step.epoch for step in steps.values()})
    return [_epoch(epoch, steps, samples) for epoch in epochs]


def _epoch(epoch: int, steps: dict[int, _Step], samples: int) -> EpochRecord:
    own = {number: step for number, step in steps.items() if step.epoch == epoch}
    counts = Counter(sample for step in own.values() for sample in step.ids)
    return EpochRecord(
        epoch=epoch,
        steps=len(own),
        samples=samples,
        once=sum(count == 1 for count in counts.values()),
        repeated=tuple(sorted(sample for sample, count in counts.items() if count > 1)),
        missing=samples - len(counts),
        incomplete_steps=tuple(sorted(number for number, step in own.items() if step.left)),
    )


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """All whole lines: a worker may have been killed in the middle of its last one."""
    text = path.read_bytes()
    yield from enumerate(text[: text.rfind(b"\n") + 1].splitlines(), start=1)


def _parsed(kind: type[_Kind], path: Path, number: int, text: bytes) -> _Kind:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise PacelineError(
            f"line {number} of the ledger's file {path.name} is none that a worker has written:"
            f" {error.errors()[0]['msg']}",
            fix="do not trust this ledger: its file was changed, or its disk is damaged",
        ) from None
