"""Several runs beside each other: which is fastest, which learns most from as many samples."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.report.drawing.tables import flat
from paceline.report.run.figures import Summary, by_number
from paceline.report.run.section import ReportedRun
from paceline.report.run.step_breakdown import Breakdown, breakdown
from paceline.specs import Cluster, Layout, PacelineError, Run

WINDOW = 0.05
"""Of the samples that all runs have seen: so many at their end, over which losses are compared."""
_OWN = {"name", "folder", "python", "port", "first_generation", "estimate", "rejected"}
"""Settings that say nothing of how a run trains."""


@dataclass(frozen=True)
class Compared:
    """One of the runs."""

    number: int
    name: str
    path: Path
    figures: Summary
    breakdown: Breakdown | None
    all_figures: dict[str, Any]
    """Those of all sections, as `--json` prints them."""
    layout: Layout
    settings: dict[str, str]
    seen: NDArray[np.int64]
    """Samples so far, after each step."""
    loss: NDArray[np.float64]

    @property
    def per_worker(self) -> float:
        """Samples per second by the number of workers."""
        return self.figures.samples_per_second / max(1, self.figures.workers)

    def loss_at(self, samples: int) -> float | None:
        """The mean loss of the steps up to so many samples, over the window."""
        last = int(np.searchsorted(self.seen, samples, side="right"))
        first = int(np.searchsorted(self.seen, (1 - WINDOW) * samples, side="right"))
        window = self.loss[min(first, last - 1) : last] if last else self.loss[:0]
        finite = window[np.isfinite(window)]
        return float(finite.mean()) if len(finite) else None


@dataclass(frozen=True)
class Comparison:
    """All of them, in the order in which they were given."""

    runs: list[Compared]

    @cached_property
    def trained(self) -> list[Compared]:
        """Those that took a step."""
        return [each for each in self.runs if each.figures.steps]

    @cached_property
    def equal_samples(self) -> int:
        """Samples that all of them have seen; 0 where no run took a step."""
        return min((int(each.seen[-1]) for each in self.trained if len(each.seen)), default=0)

    @cached_property
    def losses(self) -> dict[int, float | None]:
        """By the number of the run: its loss after as many samples as all of them have seen."""
        return {each.number: each.loss_at(self.equal_samples) for each in self.runs}

    @property
    def fastest(self) -> Compared | None:
        """By samples per second."""
        return max(self.trained, key=lambda each: each.figures.samples_per_second, default=None)

    @property
    def best(self) -> Compared | None:
        """The lowest loss after as many samples."""
        known = [each for each in self.trained if self.losses[each.number] is not None]
        return min(known, key=lambda each: self.losses[each.number] or 0.0, default=None)

    def efficiency(self, each: Compared) -> float | None:
        """Samples per second and worker, over those of the first run that took a step."""
        if not self.trained or not self.trained[0].per_worker or not each.figures.steps:
            return None
        return each.per_worker / self.trained[0].per_worker

    @cached_property
    def differs(self) -> dict[str, dict[str, list[int]]]:
        """Settings of plan and job that are not the same in all runs: which runs have which."""
        keys = sorted({key for each in self.runs for key in each.settings})
        found: dict[str, dict[str, list[int]]] = {}
        for key in keys:
            values: dict[str, list[int]] = {}
            for each in self.runs:
                values.setdefault(each.settings.get(key, "unset"), []).append(each.number)
            if len(values) > 1:
                found[key] = values
        return found

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        fastest, best = self.fastest, self.best
        return {
            "equal_samples": self.equal_samples,
            "fastest": fastest.number if fastest else None,
            "lowest_loss": best.number if best else None,
            "differs": self.differs,
            "runs": [
                {
                    "number": each.number,
                    "name": each.name,
                    "path": str(each.path),
                    "loss_at_equal_samples": self.losses[each.number],
                    "efficiency_per_worker": self.efficiency(each),
                    "figures": each.all_figures,
                }
                for each in self.runs
            ],
        }


def runs_in(paths: Sequence[Path]) -> list[Run]:
    """The runs of these folders: each is a run, or has runs in it."""
    found: dict[Path, Run] = {}
    for path in paths:
        if Run(path).job_file.is_file() or not path.is_dir():
            runs = [Run.open(path)]
        else:
            inside = sorted(path.iterdir(), key=lambda each: by_number(each.name))
            runs = [Run.open(each) for each in inside if Run(each).job_file.is_file()]
        if not runs:
            raise PacelineError(
                f"{path} is neither a run's folder nor has it any in it",
                fix="give runs, a folder of runs such as runs/, or STUDY/runs",
            )
        found |= {run.path.resolve(): run for run in runs}
    return list(found.values())


def compared(runs: Sequence[Run], cluster: Cluster | None = None) -> Comparison:
    """Read them all."""
    often = Counter(run.name for run in runs)
    return Comparison(
        [
            _read(number, run, run.name if often[run.name] == 1 else _with_parent(run), cluster)
            for number, run in enumerate(runs, 1)
        ]
    )


def _read(number: int, run: Run, name: str, cluster: Cluster | None) -> Compared:
    report = ReportedRun.read(run, cluster)
    state = report.state
    set_up = state.plan.model_dump(mode="json") | state.job.model_dump(mode="json")
    return Compared(
        number=number,
        name=name,
        path=run.path,
        figures=report.summary,
        breakdown=breakdown(state),
        all_figures=report.to_dict(),
        layout=state.plan.layout,
        settings=dict(flat({key: set_up[key] for key in set_up.keys() - _OWN})),
        seen=np.cumsum(state.samples, dtype=np.int64),
        loss=np.asarray(state.loss, dtype=np.float64),
    )


def _with_parent(run: Run) -> str:
    return f"{run.path.parent.name}/{run.name}"
