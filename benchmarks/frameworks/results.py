"""What the runs gave: the figures of each way, as JSON, as a table and as Markdown."""

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from benchmarks.common.code_lines import lines_of
from benchmarks.frameworks.ways import JOBS, WAYS, Measured

TOLERANCE = 1e-3
"""Losses of one job that differ by more did not train the same."""
BUSY = 2.0
"""A load average above it, the number of workers, before the first run is other work."""
APART = ("Metered", "network")
"""The stopwatch and the model, where a script has them."""
METER = r"\b[Mm]eter"
COLUMNS = (
    "framework",
    "version",
    "steps/s",
    "ratio to DDP",
    "range",
    "start-up s",
    "MB",
    "lines",
    "loss",
)


@dataclass(frozen=True)
class Run:
    """One run and the round it was in; in the order in which they ran."""

    round: int
    way: str
    measured: Measured


@dataclass
class Results:
    """All runs, and what is to be known of them."""

    machine: str
    steps: int
    load_before: float
    """The machine's load average before the first run: what else it was busy with."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of each way's framework."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Ways that do not install or run, and what they said."""
    runs: list[Run] = field(default_factory=list)

    def ways(self) -> list[str]:
        """Those that ran."""
        return [name for name in WAYS if any(run.way == name for run in self.runs)]

    def of(self, way: str) -> list[Measured]:
        """What its runs gave."""
        return [run.measured for run in self.runs if run.way == way]

    def median(self, way: str, quantity: str) -> float:
        """Of one quantity over its runs."""
        return statistics.median(float(getattr(each, quantity)) for each in self.of(way))

    def ratios(self, way: str) -> list[float]:
        """Speeds by the mean of the runs of DDP just before and after; DDP's by the one before."""
        base = WAYS[way].base
        runs = [run for run in self.runs if WAYS[run.way].base == base]
        found = []
        for placement, run in enumerate(runs):
            first, last = (
                (placement - 2, placement) if way == base else (placement - 1, placement + 2)
            )
            speeds = [
                each.measured.steps_per_second
                for each in runs[max(first, 0) : last]
                if each.way == base and each.round == run.round
            ]
            if run.way == way and speeds:
                found.append(run.measured.steps_per_second / statistics.mean(speeds))
        return found

    def disagreeing(self) -> list[str]:
        """Ways of which a run ended at another loss than DDP's first."""
        return [
            way
            for way in self.ways()
            if any(
                not abs(each.final_loss - self.of(WAYS[way].base)[0].final_loss) <= TOLERANCE
                for each in self.of(way)
            )
        ]

    def write(self, file: Path) -> None:
        """All of it as JSON."""
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, file: Path) -> Self:
        """What `write` wrote."""
        said = json.loads(file.read_text())
        runs = [
            Run(each["round"], each["way"], Measured(**each["measured"]))
            for each in said.pop("runs")
        ]
        return cls(**said, runs=runs)

    def rows(self) -> Iterable[tuple[str, ...]]:
        """A row for each way, by COLUMNS."""
        differing = self.disagreeing()
        for way in self.ways():
            ratios = self.ratios(way)
            loss = f"{self.median(way, 'final_loss'):.4f}"
            yield (
                way,
                self.versions[way],
                f"{self.median(way, 'steps_per_second'):.2f}",
                f"{statistics.median(ratios):.2f}" if ratios else "-",
                f"{min(ratios):.2f}–{max(ratios):.2f}" if ratios else "-",
                f"{self.median(way, 'startup_seconds'):.1f}",
                f"{self.median(way, 'peak_bytes') / 1e6:.0f}",
                str(lines_of(JOBS / WAYS[way].script, APART, METER)),
                f"{loss} DIFFERS" if way in differing else loss,
            )

    def caption(self) -> str:
        """How it was measured, and whether it can be relied on."""
        busy = (
            " The machine was busy with other work: speeds, ratios and start-up mean nothing here."
            if self.load_before > BUSY
            else ""
        )
        fewest = min(len(self.of(way)) for way in self.ways())
        return (
            f"Measured: {self.machine}; {self.steps} steps per run; at least {fewest} runs of each;"
            f" load average before the first run: {self.load_before:.1f}.{busy}"
        )

    def markdown(self) -> str:
        """The table for the page, what was skipped, and the caption."""
        lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---" + "|---:" * (len(COLUMNS) - 2) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows()]
        lines += ["", self.caption()]
        lines += [f"\n{way} was skipped: {reason}" for way, reason in self.skipped.items()]
        return "\n".join(lines)
