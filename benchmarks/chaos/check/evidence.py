"""All that there is to judge a run by, as it was left behind."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

Line = dict[str, Any]


@dataclass(frozen=True)
class Violation:
    """An invariant that a run violated."""

    rule: str
    message: str


@dataclass(frozen=True)
class StepLine:
    """What a worker wrote down after a step."""

    worker: str
    step: int
    generation: int
    whose: str
    hash: str
    at: float
    final: bool


class Evidence:
    """The folder of a run with faults."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def history(self) -> list[Line]:
        """What the harness did and saw."""
        return list(lines(self.folder / "history.jsonl"))

    def told(self, what: str) -> list[Line]:
        """Those lines of the history that are about this."""
        return [line for line in self.history if line["what"] == what]

    @cached_property
    def run(self) -> Line:
        """What was run."""
        return self.told("run")[0]

    @cached_property
    def run_folder(self) -> Path:
        """Paceline's own folder of the run."""
        return next((self.folder / "runs").iterdir())

    @cached_property
    def events(self) -> dict[str, list[Line]]:
        """Each node's events, in the order in which they were written."""
        return {
            path.stem: list(lines(path)) for path in sorted((self.run_folder / "events").iterdir())
        }

    def events_of(self, kind: str) -> list[Line]:
        """All events of a kind."""
        return [each for node in self.events.values() for each in node if each["kind"] == kind]

    @cached_property
    def step_lines(self) -> list[StepLine]:
        """What the workers wrote down after their steps, each worker's in its order."""
        return [
            StepLine(
                worker=path.stem,
                step=line["step"],
                generation=line["generation"],
                whose=line["whose"],
                hash=line["hash"],
                at=line["at"],
                final=line.get("final", False),
            )
            for path in sorted((self.folder / "chaos" / "steps").iterdir())
            for line in lines(path)
        ]

    @cached_property
    def ledger(self) -> dict[int, list[list[Line]]]:
        """The ledger's files by generation, each a head and the lines of its steps."""
        found: dict[int, list[list[Line]]] = {}
        for path in sorted((self.run_folder / "ledger").glob("start-*-part-*.jsonl")):
            content = list(lines(path))
            if content:
                found.setdefault(int(path.name.split("-")[1]), []).append(content)
        return dict(sorted(found.items()))

    def counts_up_to(self, generation: int) -> float:
        """The last step of a generation that later ones took over; all where none came later."""
        heads = [
            part[0]["resumed"]
            for later, parts in self.ledger.items()
            if later > generation
            for part in parts
        ]
        return min(heads, default=float("inf"))


def lines(path: Path) -> Iterator[Line]:
    """The whole lines of a file; a writer may have been killed in the middle of the last one."""
    text = path.read_bytes()
    for line in text[: text.rfind(b"\n") + 1].splitlines():
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue  # torn by a kill, and others wrote behind it
