"""Results of studies as `paceline study` would make them, and what their pages say."""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.specs import (
    Interval,
    Law,
    Limit,
    Measured,
    Part,
    Point,
    PointResult,
    Reach,
    Study,
    StudyResult,
)

ONE_WORKER = 400.0
"""Samples per second."""
BATCH = 256
BOUND = 0.8
THREE = {"allreduce": (0.06, 0.004), "local:every=8": (0.01, 0.0001), "powersgd": (0.02, 0.001)}


def usl(workers: float, contention: float, coherence: float) -> float:
    """Speed-up by the Universal Scalability Law (Gunther 1993)."""
    return workers / (1 + contention * (workers - 1) + coherence * workers * (workers - 1))


def measured_run(workers: int, rate: float, *, limit: Limit, name: str) -> Measured:
    """One run, in which all that is lost is lost by waiting for the others."""
    step = BATCH / rate
    computing = BATCH / (ONE_WORKER * workers)
    waiting = max(0.0, step - computing)
    seconds: dict[Part, float] = {
        "forward": 0.3 * computing,
        "backward": 0.6 * computing,
        "optimizer": 0.08 * computing,
        "data": 0.02 * computing,
    }
    if waiting:
        seconds["communication"] = waiting
    return Measured(
        run=name,
        samples_per_second=rate,
        step_seconds=step,
        batch=BATCH,
        seconds=seconds,
        network_seconds=0.75 * waiting,
        limit=limit,
        final_loss=1.47,
    )


def study_result(
    nodes: Sequence[int] = (1, 2, 4, 8),
    *,
    varied: Mapping[str, tuple[float, float]] | None = None,
    numbers: tuple[float, float] = (0.02, 0.001),
    repeat: int = 3,
    limit: Limit = "network",
    predicted: bool = True,
    name: str = "gpt on the box",
    findings: tuple[str, ...] = ("It scales well.", "The network limits it."),
) -> StudyResult:
    """`varied`: what `--sync` is in each family, and that family's contention and coherence;
    without, there is one family, with `numbers`."""
    chance = random.Random(7)
    points, laws, reaches = [], [], []
    families = [({"sync": sync}, law) for sync, law in (varied or {}).items()]
    for options, law in families or [({}, numbers)]:
        of_family = [
            _point_result(
                Point(nodes=each, varied=options), law, min(nodes), repeat, limit, predicted, chance
            )
            for each in nodes
        ]
        points += of_family
        family = of_family[0].point.family
        laws += _laws(family, law, nodes)
        reaches.append(_reach(family, law, nodes))
    return StudyResult(
        study=Study(
            name=name,
            train=Path("/home/ada/train.py"),
            points=tuple(each.point for each in points),
            repeat=repeat,
            cluster="the testbed box",
        ),
        points=tuple(points),
        laws=tuple(laws),
        reaches=tuple(reaches),
        findings=findings,
    )


def changed(result: StudyResult, at: int, **fields: object) -> StudyResult:
    """The same, but for these fields of one point."""
    points = [*result.points]
    points[at] = points[at].model_copy(update=fields)
    return result.model_copy(update={"points": tuple(points)})


def with_failures(result: StudyResult, at: int, *why: str, finished: int = 0) -> StudyResult:
    """The same, but of one point's runs only so many have finished."""
    fields: dict[str, object] = {"runs": result.points[at].runs[:finished], "failures": why}
    if not finished:
        fields |= {"samples_per_second": None, "speedup": None, "efficiency": None}
    return changed(result, at, **fields)


def nasty_study(nasty: str) -> StudyResult:
    """One in which this is said wherever a user may say something."""
    result = study_result(
        varied={nasty: (0.02, 0.001), "b": (0.03, 0.001)}, name=nasty, findings=(nasty,)
    )
    study = result.study.model_copy(update={"cluster": nasty, "function": nasty})
    return with_failures(result.model_copy(update={"study": study}), 3, nasty, finished=1)


def first_screen(html: str) -> str:
    """What stands before the pictures, without its marks."""
    text = re.split(r'<div class="pictures">|<h2>', html.split("<header>")[1])[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def specs(html: str) -> dict[str, Any]:
    """The pictures' specifications by key; what is not JSON by the standard is an error."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    found = re.findall(r'<script type="application/json" id="([\w-]+)-spec">(.*?)</script>', html)
    return {key: json.loads(text, parse_constant=refuse) for key, text in found}


def rows(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All that is drawn, of all layers."""
    for layer in spec.get("layer", [spec]):
        yield from layer.get("data", spec.get("data"))["values"]


def caption(html: str, key: str) -> str:
    """What stands below a picture."""
    after = html.split(f'id="{key}"')[1].split("<figcaption>")[1]
    return after.split("</figcaption>", maxsplit=1)[0]


def _point_result(
    point: Point,
    law: tuple[float, float],
    fewest: int,
    repeat: int,
    limit: Limit,
    predicted: bool,
    chance: random.Random,
) -> PointResult:
    ideal = ONE_WORKER * usl(point.workers, *law)
    rates = [ideal * (1 + chance.gauss(0, 0.01)) for _ in range(repeat)]
    mean = sum(rates) / repeat
    half = (max(rates) - min(rates)) if repeat > 1 else None
    one_worker = ONE_WORKER * usl(fewest, *law) / fewest
    base = point.workers == fewest
    rate = ideal if base else mean
    return PointResult(
        point=point,
        runs=tuple(
            measured_run(
                point.workers, each, limit=limit, name=f"{point.nodes}n-{point.family}-{number + 1}"
            )
            for number, each in enumerate(rates)
        ),
        samples_per_second=_around(mean, half),
        speedup=_around(rate / one_worker, None if base or half is None else half / one_worker),
        efficiency=_around(
            rate / one_worker / point.workers,
            None if base or half is None else half / one_worker / point.workers,
        ),
        predicted_samples_per_second=1.05 * ideal if predicted else None,
    )


def _around(value: float, half: float | None) -> Interval:
    if half is None:
        return Interval(value=value)
    return Interval(value=value, low=value - half, high=value + half)


def _laws(family: str, law: tuple[float, float], nodes: Sequence[int]) -> list[Law]:
    contention, coherence = law
    places = [min(nodes) * (4 * max(nodes) / min(nodes)) ** (at / 20) for at in range(21)]
    return [
        Law(
            name="amdahl",
            family=family,
            numbers={"serial": Interval(value=contention)},
            off=0.03,
            curve=tuple((n, usl(n, contention, 0.0)) for n in places),
        ),
        Law(
            name="usl",
            family=family,
            numbers={
                "contention": Interval(
                    value=contention, low=0.9 * contention, high=1.1 * contention
                ),
                "coherence": Interval(value=coherence),
            },
            off=0.004,
            curve=tuple((n, usl(n, contention, coherence)) for n in places),
        ),
    ]


def _reach(family: str, law: tuple[float, float], nodes: Sequence[int]) -> Reach:
    farthest = 100 * max(nodes)
    within = [n for n in range(1, farthest + 1) if usl(n, *law) / n >= BOUND]
    rates = [usl(n, *law) for n in range(1, farthest + 1)]
    overhead = {n: n / usl(n, *law) - 1 for n in (*nodes, 2 * max(nodes), 4 * max(nodes))}
    peak = 1 + rates.index(max(rates))
    return Reach(
        family=family,
        bound=BOUND,
        workers=max(within) if max(within) < farthest else None,
        peak_workers=peak if peak < farthest else None,
        batch_for=tuple((n, max(1.0, lost * BOUND / (1 - BOUND))) for n, lost in overhead.items()),
    )
