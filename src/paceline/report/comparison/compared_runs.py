"""Compare several runs: which is fastest, and which reaches the lowest loss at equal samples."""

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
from paceline.specs import Cluster, Layout, PacelineError, Prices, Run

WINDOW = 0.05
"""Compare losses over this last fraction of the samples that all runs have seen."""
_OWN = {"name", "folder", "python", "port", "first_generation", "estimate", "rejected"}
"""Settings that do not affect how a run trains."""


@dataclass(frozen=True)
class Compared:
    """One of the compared runs."""

    number: int
    name: str
    path: Path
    figures: Summary
    breakdown: Breakdown | None
    all_figures: dict[str, Any]
    """Figures of all sections, as `--json` prints them."""
    layout: Layout
    settings: dict[str, str]
    seen: NDArray[np.int64]
    """Cumulative samples after each step."""
    loss: NDArray[np.float64]

    @property
    def per_worker(self) -> float:
        """Samples/s per worker."""
        return self.figures.samples_per_second / max(1, self.figures.workers)

    def loss_at(self, samples: int) -> float | None:
        """Return the mean loss over the window that ends at `samples`."""
        last = int(np.searchsorted(self.seen, samples, side="right"))
        first = int(np.searchsorted(self.seen, (1 - WINDOW) * samples, side="right"))
        window = self.loss[min(first, last - 1) : last] if last else self.loss[:0]
        finite = window[np.isfinite(window)]
        return float(finite.mean()) if len(finite) else None


@dataclass(frozen=True)
class Comparison:
    """All compared runs, in the order given."""

    runs: list[Compared]

    @cached_property
    def trained(self) -> list[Compared]:
        """Runs that took at least one step."""
        return [each for each in self.runs if each.figures.steps]

    @cached_property
    def equal_samples(self) -> int:
        """Samples that all runs have seen; 0 if no run took a step."""
        return min((int(each.seen[-1]) for each in self.trained if len(each.seen)), default=0)

    @cached_property
    def losses(self) -> dict[int, float | None]:
        """Each run's loss at `equal_samples`, by run number."""
        return {each.number: each.loss_at(self.equal_samples) for each in self.runs}

    @property
    def fastest(self) -> Compared | None:
        """The run with the most samples/s."""
        return max(self.trained, key=lambda each: each.figures.samples_per_second, default=None)

    @property
    def best(self) -> Compared | None:
        """The run with the lowest loss at equal samples."""
        known = [each for each in self.trained if self.losses[each.number] is not None]
        return min(known, key=lambda each: self.losses[each.number] or 0.0, default=None)

    def efficiency(self, each: Compared) -> float | None:
        """Return samples/s per worker relative to the first run that took a step."""
        if not self.trained or not self.trained[0].per_worker or not each.figures.steps:
            return None
        return each.per_worker / self.trained[0].per_worker

    @cached_property
    def differs(self) -> dict[str, dict[str, list[int]]]:
        """Plan and job settings that differ between runs: run numbers by setting and value."""
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
        """Return the comparison as plain data, for programs."""
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
    """Open the runs in these folders; each folder is a run or contains runs."""
    found: dict[Path, Run] = {}
    for path in paths:
        if Run(path).job_file.is_file() or not path.is_dir():
            runs = [Run.open_to_read(path)]
        else:
            inside = sorted(path.iterdir(), key=lambda each: by_number(each.name))
            runs = [Run.open_to_read(each) for each in inside if Run(each).job_file.is_file()]
        if not runs:
            raise PacelineError(
                f"{path} is neither a run's folder nor a folder of runs",
                fix="give runs, a folder of runs such as runs/, or STUDY/runs",
            )
        found |= {run.path.resolve(): run for run in runs}
    return list(found.values())


def compared(
    runs: Sequence[Run], cluster: Cluster | None = None, prices: Prices | None = None
) -> Comparison:
    """Read all runs and compare them."""
    often = Counter(run.name for run in runs)
    return Comparison(
        [
            _compared(
                number,
                run.name if often[run.name] == 1 else _with_parent(run),
                ReportedRun.read(run, cluster, prices),
            )
            for number, run in enumerate(runs, 1)
        ]
    )


def _compared(number: int, name: str, report: ReportedRun) -> Compared:
    state = report.state
    set_up = state.plan.model_dump(mode="json") | state.job.model_dump(mode="json")
    return Compared(
        number=number,
        name=name,
        path=report.run.path,
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
