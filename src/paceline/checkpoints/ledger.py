"""The sample ledger: a record of the samples that entered every step, for tests and audits.

There is one file per generation and data-parallel rank. A worker records its samples before any
worker can learn from them. A later generation invalidates the steps after the step from which it
resumed. The remaining steps are the ones in the weights.

Where nodes share no disk, a lost node's last lines may be lost with it. The survivors then derive
them from the order of the data, in files that say so; a line that a worker wrote itself wins.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

from pydantic import NonNegativeInt, PositiveInt, ValidationError

from paceline.specs import PacelineError
from paceline.specs.base import Spec, problem_of
from paceline.specs.line_files import WaitingLines, whole_lines
from paceline.specs.owned_files import make_folder, open_owned

_Kind = TypeVar("_Kind", bound=Spec)

_DERIVED = "-derived"
_MOST_LINE_BYTES = 64 << 20
"""Maximum size of a line: some million samples of a worker in one step."""


CountedBy = Literal["index", "stream position", "made"]
"""The meaning of a sample's number: its index in the dataset or its position in a stream. Samples
that the training made have none and are only counted."""


class _Head(Spec):
    """The first line of a ledger file."""

    resumed: NonNegativeInt
    parts: PositiveInt
    samples: NonNegativeInt
    by: CountedBy = "index"


class _Line(Spec):
    """One worker's samples in a step."""

    step: NonNegativeInt
    epoch: NonNegativeInt
    ids: list[NonNegativeInt]
    made: NonNegativeInt = 0


@dataclass
class _Step:
    """All workers' samples in a step."""

    start: str
    epoch: int
    left: int
    """Number of workers whose samples are not recorded."""
    ids: list[int] = field(default_factory=list)
    made: int = 0
    derived: int = 0
    """Samples that another worker derived from the order of the data."""


class Ledger:
    """Records one worker's samples.

    A full disk does not end a training: lines wait in memory until they fit. The steps of lines
    that are lost with their worker are read as incomplete.
    """

    def __init__(
        self,
        folder: Path,
        *,
        generation: int,
        part: int,
        parts: int,
        resumed: int,
        samples: int,
        by: CountedBy = "index",
        derived: bool = False,
        publish: Callable[[Path], None] = lambda path: None,
    ) -> None:
        """`derived`: another worker writes what this part's worker drew. `publish`: keep the file
        elsewhere, too, when it is synced or closed."""
        name = f"start-{generation:05d}-part-{part:05d}{_DERIVED if derived else ''}.jsonl"
        self._path, self._publish = folder / name, publish
        self._file: IO[bytes] | None = None
        self._lines = WaitingLines()
        self._off = False
        self._write({"resumed": resumed, "parts": parts, "samples": samples, "by": by})

    def entering(self, step: int, epoch: int, ids: tuple[int, ...], made: int = 0) -> None:
        """Record the samples of a step before the step runs, or how many were made for it."""
        self._write({"step": step, "epoch": epoch, "ids": ids, "made": made})

    def sync(self) -> None:
        """Flush the ledger to disk, before a checkpoint commits these steps."""

        def flush() -> None:
            file = self._opened()
            self._lines.write_to(file)
            os.fsync(file.fileno())
            self._publish(self._path)

        self._try(flush)

    def close(self) -> None:
        """Close the file after the last step."""
        if self._file is None or not self._file.closed:
            self.sync()
        if self._file is not None:
            self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._lines.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._try(lambda: self._lines.write_to(self._opened()))

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            make_folder(self._path.parent, exist_ok=True)
            self._path.unlink(missing_ok=True)  # of a generation that never began
            self._file = open_owned(self._path, "ab", buffering=0)
        return self._file

    def _try(self, write: Callable[[], None]) -> None:
        """Call a function that writes; if it cannot, say so once."""
        try:
            write()
        except OSError as error:
            if not self._off:
                said = f"{self._path} cannot be written: {error.strerror}; its lines wait in memory"
                with suppress(OSError):  # standard error may be on the same disk
                    print(said, file=sys.stderr)
            self._off = True
            self._lines.limit()
        else:
            self._off = False


@dataclass(frozen=True)
class EpochRecord:
    """The samples that an epoch's steps used."""

    epoch: int
    steps: int
    samples: int
    """Number of samples in the dataset."""
    once: int
    repeated: tuple[int, ...]
    """Samples that were used more than once."""
    missing: int
    """Number of samples that were not used."""
    incomplete_steps: tuple[int, ...]
    """Steps for which some worker's samples are not recorded."""
    by: CountedBy = "index"
    """The meaning of the samples' numbers."""
    made: int = 0
    """Number of samples that the training made itself."""
    derived: int = 0
    """Number of samples that are known from the order of the data, because a node was lost with
    its records."""

    @property
    def exact(self) -> bool:
        """Whether every sample was used exactly once."""
        return not self.repeated and not self.missing and not self.incomplete_steps


def read_ledger(folder: Path) -> list[EpochRecord]:
    """Return the samples used by the steps that count, per epoch."""
    steps: dict[int, _Step] = {}
    samples = 0
    by: CountedBy = "index"
    recorded: dict[str, set[int]] = {}
    """Steps by the generation and part that they are recorded for."""
    for path in sorted(folder.glob("start-*-part-*.jsonl"), key=_reading_order):
        lines = _lines(path)
        first = next(lines, None)
        if first is None:  # the worker was killed before it could write
            continue
        head = _parsed(_Head, path, *first)
        start = path.name.split("-part-")[0]
        samples, by = head.samples, head.by
        # A new generation invalidates the steps after the one from which it resumed.
        steps = {
            number: step
            for number, step in steps.items()
            if number <= head.resumed or step.start == start
        }
        name = path.stem.removesuffix(_DERIVED)
        is_derived = path.stem.endswith(_DERIVED)
        known = recorded.setdefault(name, set())
        for number, text in lines:
            line = _parsed(_Line, path, number, text)
            if is_derived and line.step in known:
                continue
            known.add(line.step)
            step = steps.setdefault(line.step, _Step(start, line.epoch, head.parts))
            step.ids += line.ids
            step.made += line.made
            step.derived += is_derived * (len(line.ids) + line.made)
            step.left -= 1
    epochs = sorted({step.epoch for step in steps.values()})
    return [_epoch(epoch, steps, samples, by) for epoch in epochs]


def _reading_order(path: Path) -> tuple[str, bool, str]:
    """Order files by their generation, and what was derived after what was recorded."""
    return path.name.split("-part-")[0], path.stem.endswith(_DERIVED), path.name


def _epoch(epoch: int, steps: dict[int, _Step], samples: int, by: CountedBy) -> EpochRecord:
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
        by=by,
        made=sum(step.made for step in own.values()),
        derived=sum(step.derived for step in own.values()),
    )


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield all complete lines. A killed worker may have left its last line incomplete."""
    with path.open("rb") as file:
        yield from enumerate(whole_lines(file, _MOST_LINE_BYTES), start=1)


def _parsed(kind: type[_Kind], path: Path, number: int, text: bytes) -> _Kind:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise PacelineError(
            f"line {number} of the ledger's file {path.name} is none that a worker has written:"
            f" {problem_of(error.errors()[0])}",
            fix="do not trust this ledger: its file was changed, or its disk is damaged",
        ) from None
