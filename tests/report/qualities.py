"""Results of studies of quality as `paceline study --kind quality` would make them."""

import random
from collections.abc import Mapping
from pathlib import Path

from paceline.report.studies.quality_words import quality_findings
from paceline.specs import (
    CurvePoint,
    Point,
    PointQuality,
    PointResult,
    Quality,
    RunQuality,
    Study,
    StudyResult,
)
from paceline.study.equivalence_test import comparisons
from report.studies import measured_run

BASE_LOSS = 0.5
MARGIN = 0.01
POINTS = {
    "same": Point(devices_per_node=4),
    "worse": Point(batch_times=8, varied={"batch": "8", "lr": "naive"}),
    "unknown": Point(batch_times=8, varied={"batch": "8", "lr": "scaled"}),
}
SHIFTS = {"same": (0.0, 1e-6), "worse": (0.3, 0.02), "unknown": (0.004, 0.05)}
"""Mean and spread of the difference from the base."""


def quality_result(
    shifts: Mapping[str, tuple[float, float]] = SHIFTS,
    *,
    seeds: int = 5,
    failed: bool = False,
    finished: bool = True,
    name: str = "digits",
    metric: str = "accuracy",
) -> StudyResult:
    """One worker, and points which differ from it so much."""
    chance = random.Random(5)
    luck = [chance.gauss(0, 0.02) for _ in range(seeds)]
    base = [_learned(number, BASE_LOSS + each, metric) for number, each in enumerate(luck)]
    points = [(Point(), base)]
    for key, (mean, spread) in shifts.items():
        losses = [each.values["loss"] + chance.gauss(mean, spread) for each in base]
        points.append(
            (POINTS[key], [_learned(number, loss, metric) for number, loss in enumerate(losses)])
        )
    found = [
        PointQuality(
            runs=tuple(runs) if finished else (),
            curve=_curve(runs) if finished else (),
            comparisons=comparisons(runs, base, MARGIN, failed=failed and number == 1)
            if number and finished
            else (),
        )
        for number, (_, runs) in enumerate(points)
    ]
    result = StudyResult(
        study=Study(
            name=name,
            train=Path("/home/ada/train.py"),
            kind="quality",
            points=tuple(point for point, _ in points),
            repeat=seeds,
            steps=0,
            cluster="here",
        ),
        points=tuple(
            PointResult(
                point=point,
                runs=tuple(
                    measured_run(point.workers, 400.0, limit="compute", name=run.run)
                    for run in runs
                )
                if finished
                else (),
                failures=("worker 1: the loss became nan",) if failed and number == 1 else (),
            )
            for number, (point, runs) in enumerate(points)
        ),
        quality=Quality(base=0, margin=MARGIN, points=tuple(found)),
    )
    return result.model_copy(update={"findings": tuple(quality_findings(result))})


def _learned(number: int, loss: float, metric: str) -> RunQuality:
    return RunQuality(
        run=f"r{number + 1}",
        seed_plus=number,
        samples=9000,
        values={"loss": loss, metric: 1 - loss / 5},
    )


def _curve(runs: list[RunQuality]) -> tuple[CurvePoint, ...]:
    losses = [run.values["loss"] for run in runs]
    mean, low, high = sum(losses) / len(losses), min(losses), max(losses)
    return tuple(
        CurvePoint(samples=90 * at, mean=mean * 100 / at, low=low * 100 / at, high=high * 100 / at)
        for at in range(1, 101)
    )
