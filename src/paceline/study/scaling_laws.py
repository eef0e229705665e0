"""Speed-ups, scaling laws and their extrapolation, from measured points.

With n workers, relative to one:
- Amdahl (Validity of the single processor approach, 1967): S = 1 / (s + (1 - s) / n).
- Gustafson (Reevaluating Amdahl's law, 1988): S = n - s (n - 1).
- Universal Scalability Law, Gunther (A simple capacity model of massively parallel transaction
  systems, 1993; Guerrilla Capacity Planning, 2007): S = n / (1 + a (n - 1) + b n (n - 1)).
"""

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from paceline.cluster.collectives import Array
from paceline.specs import Interval, Kind, Law, PointResult, Reach
from paceline.specs.measurements.study import FARTHEST, LawName, families
from paceline.study.confidence import quantile, rate_interval

_NORMAL = 1.960  # quantile 0.975
DRAWS = 1000
FEWEST_NUMBERS = 3
"""Fewest numbers of workers to fit a law to."""
CURVE_POINTS = 40
BEYOND = 4
"""A curve extends to this multiple of the most workers measured."""


def with_scaling(points: Sequence[PointResult]) -> tuple[PointResult, ...]:
    """Return the points with throughput, speed-up and efficiency, if a run has finished.

    The base of a family is its first point of the fewest workers with a finished run. The speed-up
    of the base is its number of workers by definition, so it has no interval.
    """
    bases: dict[str, PointResult] = {}
    for each in sorted(points, key=lambda each: each.point.workers):
        if each.runs:
            bases.setdefault(each.point.family, each)
    return tuple(_scaled(each, bases[each.point.family]) if each.runs else each for each in points)


def laws(points: Sequence[PointResult], kind: Kind) -> tuple[Law, ...]:
    """Fit Amdahl's (strong) or Gustafson's law (weak), and the Universal Scalability Law.

    Each family needs finished runs on at least three numbers of workers. The base is not fitted:
    its speed-up is a definition. If it has more than one worker, the speed-ups assume perfect
    scaling up to there.
    """
    fitted = []
    for family, measured in families(points).items():
        if len({each.point.workers for each in measured}) >= FEWEST_NUMBERS:
            drawn = _drawn(measured)
            forms = (_AMDAHL if kind == "strong" else _GUSTAFSON, _USL)
            fitted += [_law(form, family, measured, drawn) for form in forms]
    return tuple(fitted)


def reaches(
    fitted: Sequence[Law], points: Sequence[PointResult], bound: float = 0.8
) -> tuple[Reach, ...]:
    """Return how far each family with a fitted Universal Scalability Law scales.

    `bound`, between 0 and 1, is the efficiency to keep. The batch that keeps it (isoefficiency:
    Grama, Gupta and Kumar, 1993): a step of n workers takes 1 + a (n - 1) + b n (n - 1), in units
    of a worker's compute in it. The part beyond 1 is overhead. If it does not grow with the batch,
    k times the batch takes k + overhead, and k of that is compute: efficiency is k / (k +
    overhead), which is the bound for k = overhead * bound / (1 - bound).

    `strong`: k is relative to the training's batch, the same on any number of workers. `weak`:
    relative to the batch for that number of workers, so that each local batch becomes k times as
    large. k is at least 1: if the present batch keeps the bound, a smaller one would only lose
    efficiency.
    """
    found = families(points)
    return tuple(
        _reach(law, sorted({each.point.workers for each in found[law.family]}), bound)
        for law in fitted
        if law.name == "usl"
    )


def _rates(result: PointResult) -> list[float]:
    return [run.samples_per_second for run in result.runs]


def _scaled(result: PointResult, base: PointResult) -> PointResult:
    workers = result.point.workers
    pair = [base, result]
    if result is base:
        speedup = Interval(value=workers)
    else:
        drawn = _drawn(pair)
        speedup = _surrounded(
            float(_speedups(pair, _means(pair))[0, 0]),
            None if drawn is None else _speedups(pair, drawn)[:, 0],
        )
    each = speedup.model_dump(exclude_none=True)
    return result.model_copy(
        update={
            "samples_per_second": rate_interval(_rates(result)),
            "speedup": speedup,
            "efficiency": Interval(**{key: value / workers for key, value in each.items()}),
        }
    )


def _means(measured: Sequence[PointResult]) -> Array:
    """Return samples per second as one row, in the shape of `_drawn`."""
    return np.array([[fmean(_rates(each)) for each in measured]])


def _drawn(measured: Sequence[PointResult]) -> Array | None:
    """Return bootstrap draws of samples per second, draws x points; None if a point has one run.

    Each draw is a mean of runs resampled from those of the point. With the usual two or three runs,
    such means spread too little for a 95 % interval (Hesterberg, What teachers should know about
    the bootstrap, 2015): by sqrt((n - 1) / n), and because the normal distribution is narrower than
    Student's t. Both factors widen their distance from the mean; as a power, so that none becomes
    negative.
    """
    if any(len(each.runs) == 1 for each in measured):
        return None
    # The runs of all points give the degrees of freedom, as if all points had the same spread.
    widening = quantile(0.975, sum(len(each.runs) - 1 for each in measured)) / _NORMAL
    generator = np.random.default_rng(0)
    columns = []
    for each in measured:
        rates = np.array(_rates(each))
        drawn = rates[generator.integers(len(rates), size=(DRAWS, len(rates)))].mean(axis=1)
        stretch = widening * math.sqrt(len(rates) / (len(rates) - 1))
        columns.append(rates.mean() * (drawn / rates.mean()) ** stretch)
    return np.column_stack(columns)


def _surrounded(value: float, drawn: Array | None) -> Interval:
    if drawn is None:
        return Interval(value=value)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Interval(value=value, low=float(low), high=float(high))


def _speedups(measured: Sequence[PointResult], rates: Array) -> Array:
    """Return the speed-ups of all points but the base, the first, for each row of rates."""
    return rates[:, 1:] / rates[:, :1] * measured[0].point.workers


# Each law is fitted by least squares in the form that is linear in its numbers. That form's error
# is not the speed-up's, so it is weighted to be the relative one: an error of 1/S, times S, is
# S/fitted - 1 (Amdahl); one of n/S, times S/n, likewise (USL); and one of S, divided by S, is 1 -
# fitted/S (Gustafson). So a point of 64 workers counts no more than one of 2.


def _amdahl(workers: Array, serial: float) -> Array:
    return 1 / (serial + (1 - serial) / workers)


def _fit_amdahl(workers: Array, speedups: Array) -> tuple[Array, ...]:
    return (_share((1 - 1 / workers) * speedups, 1 - speedups / workers),)


def _gustafson(workers: Array, serial: float) -> Array:
    return workers - serial * (workers - 1)


def _fit_gustafson(workers: Array, speedups: Array) -> tuple[Array, ...]:
    return (_share((workers - 1) / speedups, workers / speedups - 1),)


def _share(x: Array, y: Array) -> Array:
    """Return the least-squares s of y = s x, in [0, 1], for each row."""
    share: Array = (x * y).sum(axis=1) / (x * x).sum(axis=1)
    return np.clip(share, 0, 1)


def _usl(workers: Array, contention: float, coherence: float) -> Array:
    return workers / (1 + (workers - 1) * (contention + coherence * workers))


def _fit_usl(workers: Array, speedups: Array) -> tuple[Array, ...]:
    efficiencies = speedups / workers
    x = (workers - 1) * efficiencies
    z = workers * x
    y = 1 - efficiencies
    xx, zz, xz = (x * x).sum(axis=1), (z * z).sum(axis=1), (x * z).sum(axis=1)
    xy, zy = (x * y).sum(axis=1), (z * y).sum(axis=1)
    determinant = xx * zz - xz * xz
    a, b = (xy * zz - zy * xz) / determinant, (zy * xx - xy * xz) / determinant
    # The error is convex: if its minimum is at a negative number, the allowed minimum has one of
    # the two at 0; take the one that reduces the squared error more.
    only_a, only_b = np.maximum(xy, 0) / xx, np.maximum(zy, 0) / zz
    allowed, prefer_a = (a >= 0) & (b >= 0), only_a * xy >= only_b * zy
    return (
        np.where(allowed, a, np.where(prefer_a, only_a, 0)),
        np.where(allowed, b, np.where(prefer_a, 0, only_b)),
    )


class _Form(NamedTuple):
    name: LawName
    numbers: tuple[str, ...]
    speedup: Callable[..., Array]
    """Returns the speed-up from workers and the law's numbers."""
    fit: Callable[[Array, Array], tuple[Array, ...]]
    """Returns the law's numbers for each row, from workers and rows of speed-ups."""


_AMDAHL = _Form("amdahl", ("serial",), _amdahl, _fit_amdahl)
_GUSTAFSON = _Form("gustafson", ("serial",), _gustafson, _fit_gustafson)
_USL = _Form("usl", ("contention", "coherence"), _usl, _fit_usl)


def _law(form: _Form, family: str, measured: Sequence[PointResult], drawn: Array | None) -> Law:
    workers = np.array([float(each.point.workers) for each in measured])
    speedups = _speedups(measured, _means(measured))
    values = [float(each[0]) for each in form.fit(workers[1:], speedups)]
    around: Sequence[Array | None] = [None] * len(values)
    if drawn is not None:
        around = form.fit(workers[1:], _speedups(measured, drawn))
    errors = form.speedup(workers[1:], *values) / speedups[0] - 1
    curve = np.geomspace(workers[0], BEYOND * workers[-1], CURVE_POINTS)
    return Law(
        name=form.name,
        family=family,
        numbers=dict(zip(form.numbers, map(_surrounded, values, around), strict=True)),
        off=float(np.sqrt(np.mean(errors**2))),
        curve=tuple(zip(curve.tolist(), form.speedup(curve, *values).tolist(), strict=True)),
    )


def _reach(law: Law, measured: Sequence[int], bound: float) -> Reach:
    """Return the reach of a law; `measured`: numbers of workers, ascending."""
    a, b = law.numbers["contention"].value, law.numbers["coherence"].value
    most = measured[-1]
    allowed = 1 / bound - 1
    # With m = n - 1, the overhead is m (a + b) + b m^2; solved so that b may be 0.
    slope = a + b + math.sqrt((a + b) ** 2 + 4 * b * allowed)
    more = 2 * allowed / slope if slope else math.inf
    # The curve peaks at sqrt((1 - a) / b), seldom an integer. n workers are as fast as n + 1 if n
    # (n + 1) = (1 - a) / b.
    turn = (1 - a) / b if b else math.inf if a <= 1 else 0.0
    peak = math.sqrt(max(turn, 0.0) + 0.25) - 0.5
    numbers = [*measured, 2 * most, 4 * most]
    return Reach(
        family=law.family,
        bound=bound,
        workers=1 + math.floor(more) if 1 + more <= FARTHEST * most else None,
        peak_workers=max(1, math.ceil(peak)) if peak <= FARTHEST * most else None,
        batch_for=tuple((n, max(1.0, (n - 1) * (a + b * n) / allowed)) for n in numbers),
    )
