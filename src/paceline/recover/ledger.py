"""Which samples entered every step, for tests and for the doubtful.

One file for each generation of workers and each part of the batch. A worker writes before anybody
can learn from its samples; a later generation takes back the steps after the one that it went on
from, so what remains is what the weights have learnt from.
"""

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
    steps: dict[int, dict[str, Any]] = {}
    samples = 0
    starts = sorted({path.name.split("-part-")[0] for path in folder.glob("start-*.jsonl")})
    for start in starts:
        for path in sorted(folder.glob(f"{start}-part-*.jsonl")):
            head, *lines = _lines(path)
            samples = head["samples"]
            # What was not resumed from was never learnt from.
            steps = {
                step: line
                for step, line in steps.items()
                if step <= head["resumed"] or line["start"] == start
            }
            for line in lines:
                known = steps.setdefault(
                    line["step"],
                    {"start": start, "epoch": line["epoch"], "ids": [], "left": head["parts"]},
                )
                known["ids"] += line["ids"]
                known["left"] -= 1
    epochs = sorted({line["epoch"] for line in steps.values()})
    return [_epoch(epoch, steps, samples) for epoch in epochs]


def _epoch(epoch: int, steps: dict[int, dict[str, Any]], samples: int) -> EpochRecord:
    own = {step: line for step, line in steps.items() if line["epoch"] == epoch}
    counts = Counter(sample for line in own.values() for sample in line["ids"])
    return EpochRecord(
        epoch=epoch,
        steps=len(own),
        samples=samples,
        once=sum(count == 1 for count in counts.values()),
        repeated=tuple(sorted(sample for sample, count in counts.items() if count > 1)),
        missing=samples - len(counts),
        incomplete_steps=tuple(sorted(step for step, line in own.items() if line["left"])),
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines: a worker may have been killed in the middle of its last one."""
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
