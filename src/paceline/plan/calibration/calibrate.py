"""Fits of the planner's coefficients to measured steps, with the uncertainty of predictions.

The fit maximizes the posterior of the coefficients' logarithms: it starts at the priors and weighs
their spreads against the measured steps. Outliers weigh less (Student's t). Without measurements,
the priors and their spreads remain.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt

from paceline.cluster.collectives import Array
from paceline.plan.cost.coefficients import KIND_SPREAD, PRIORS, Coefficients, Prior, spreads
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.layout_table import Index, Layouts
from paceline.plan.cost.step_time import StepModel
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile
from paceline.specs.plans.estimate import Origin

ROUNDS = 25
SETTLED = 1e-3
"""Change of a logarithm at which the fit has converged."""
FOLDS = 5
"""Folds of the cross-validation that sets the width of intervals."""
DIFFERENCE = 1e-3
FREEDOM = 4.0
"""Degrees of freedom of Student's t: few, so that outliers pull little."""
NINE_OF_TEN = 1.645
CATALOG_WIDTH = 1.3
"""Half-width of the 90 % interval before anything is measured, in standard deviations that the
priors give: earned on tables left out (`python -m benchmarks.planner.score --left-out`)."""
FEW_ROWS = 1.3
"""Widens intervals after few rows: close to Student's t with as many degrees of freedom."""
UNFITTED_NOISE = 0.1
"""Residual standard deviation before anything is fitted."""
MATTERS = 0.05
"""Elasticity of a step from which on a coefficient matters to it."""
LEARNED = 0.7
"""A coefficient counts as measured when its spread falls below this fraction of the prior's."""
FROM_WEAK_TO_FIRM: tuple[Origin, ...] = ("assumed", "published", "measured")
USUAL_NOISE, NOISE_ROWS = 0.05, 4.0
"""Prior of the residual standard deviation, and the rows that it counts for."""


@dataclass(frozen=True)
class Steps:
    """Layouts of one model on one cluster, and their measured step times."""

    profile: Profile
    cluster: Cluster
    precision: str
    engine: Engine
    layouts: Layouts
    batch: Array
    seconds: Array = field(default_factory=lambda: np.empty(0))
    """Measured; empty for predictions only."""

    @property
    def kind(self) -> str:
        """Device and precision; each kind has its own rate of matrix products."""
        return f"{self.cluster.device.name} {self.precision}"

    def take(self, index: Index) -> "Steps":
        """Return the rows of an index."""
        return replace(
            self,
            layouts=self.layouts.take(index),
            batch=self.batch[index],
            seconds=self.seconds[index] if len(self.seconds) else self.seconds,
        )

    @property
    def columns(self) -> Array:
        """Layout and batch, a column per row."""
        layouts = [getattr(self.layouts, each.name) for each in fields(Layouts)]
        return np.stack(np.broadcast_arrays(*layouts, self.batch))

    def resembles(self, other: "Steps") -> bool:
        """Return whether equal layouts of both are the same step: nodes follow from a layout."""
        mine, theirs = (each.cluster.model_copy(update={"nodes": 1}) for each in (self, other))
        return (self.profile, mine, self.precision, self.engine) == (
            other.profile,
            theirs,
            other.precision,
            other.engine,
        )

    def predicted(self, numbers: Coefficients) -> Array:
        """Return the predicted seconds of each step."""
        model = StepModel(self.profile, self.cluster, self.precision, self.engine, numbers)
        return model.times(self.layouts, self.batch).total


@dataclass(frozen=True)
class Fit:
    """Fitted coefficients with their covariance and the residual noise."""

    numbers: Coefficients
    kinds: dict[str, float]
    """Logarithm of each kind's matrix rate, relative to the common one."""
    covariance: Array
    """Covariance of the logarithms: coefficients, then kinds."""
    noise: float
    """Standard deviation of the logarithm of a step time."""
    width: float
    """Half-width of the 90 % interval, in standard deviations."""
    origins: tuple[Origin, ...]
    """Origins of the coefficients, in order."""
    runs: tuple[Steps, ...] = ()
    """What was measured: a layout that ran takes as long as it took."""

    def measured(self, steps: Steps) -> Array:
        """Return the geometric mean of each layout's measured steps; NaN where it never ran."""
        logs, count = np.zeros(len(steps.layouts)), np.zeros(len(steps.layouts))
        for runs in self.runs:
            if runs.resembles(steps):
                columns = steps.columns
                for column, seconds in zip(runs.columns.T, runs.seconds, strict=True):
                    same = (columns == column[:, np.newaxis]).all(axis=0)
                    logs += same * np.log(seconds)
                    count += same
        known = np.full(len(count), np.nan)
        np.divide(logs, count, out=known, where=count > 0)
        return np.asarray(np.exp(known))

    def predict(self, steps: Steps) -> tuple[Array, Array, Array]:
        """Return seconds and the ends of their 90 % interval."""
        log, slope = self._slopes(steps)
        known = self.measured(steps)
        log = np.where(np.isnan(known), log, np.log(known))
        variance = np.einsum("ij,jk,ik->i", slope, self.covariance, slope) + self.noise**2
        if steps.kind not in self.kinds:
            variance = variance + (slope[:, 0] * KIND_SPREAD) ** 2
        spread = self.width * np.sqrt(variance)
        return np.exp(log), np.exp(log - spread), np.exp(log + spread)

    def model(self, steps: Steps) -> StepModel:
        """Return the step model with these coefficients."""
        return StepModel(
            steps.profile,
            steps.cluster,
            steps.precision,
            steps.engine,
            self.numbers.faster(float(np.exp(self.kinds.get(steps.kind, 0.0)))),
        )

    def origin(self, steps: Steps) -> list[Origin]:
        """Return each prediction's origin: the weakest of the coefficients that matter for it."""
        _, slope = self._slopes(steps)
        matters = np.abs(slope[:, : len(self.origins)]) > MATTERS
        return [
            min(
                (each for each, used in zip(self.origins, row, strict=True) if used),
                key=FROM_WEAK_TO_FIRM.index,
                default="measured",
            )
            for row in matters
        ]

    def _slopes(self, steps: Steps) -> tuple[Array, Array]:
        logs = np.append(self.numbers.logs, list(self.kinds.values()))
        return _slopes([steps], logs, list(self.kinds))


def from_priors(priors: Mapping[str, Prior] = PRIORS, width: float = CATALOG_WIDTH) -> Fit:
    """Return the priors as a fit; `width`: half-width of its intervals, in standard deviations."""
    return Fit(
        numbers=Coefficients.prior(priors),
        kinds={},
        covariance=np.diag(spreads(priors) ** 2),
        noise=UNFITTED_NOISE,
        width=width,
        origins=tuple(each.origin for each in priors.values()),
    )


def fit(measured: Sequence[Steps], priors: Mapping[str, Prior] = PRIORS) -> Fit:
    """Fit the coefficients; cross-validation sets the width of the intervals."""
    found = posterior(measured, priors)
    found = replace(found, runs=tuple(measured))
    places = np.arange(sum(len(each.layouts) for each in measured)) % FOLDS
    if len(places) < 2 * FOLDS:
        return found
    misses: list[Array] = []
    for fold in range(FOLDS):
        partly = posterior(_some(measured, places != fold), priors)
        for each in _some(measured, places == fold):
            seconds, low, _ = partly.predict(each)
            one = np.log(seconds / low) / partly.width
            misses.append(np.abs(np.log(each.seconds / seconds)) / one)
    sizes = np.sort(np.concatenate(misses))
    place = min(int(np.ceil(0.9 * (len(sizes) + 1))), len(sizes)) - 1
    return replace(found, width=max(float(sizes[place]), found.width))


def _some(measured: Sequence[Steps], mask: npt.NDArray[np.bool_]) -> list[Steps]:
    """Return the rows of the mask."""
    kept, begin = [], 0
    for each in measured:
        inside = np.flatnonzero(mask[begin : begin + len(each.layouts)])
        begin += len(each.layouts)
        if len(inside):
            kept.append(each.take(inside))
    return kept


def posterior(measured: Sequence[Steps], priors: Mapping[str, Prior] = PRIORS) -> Fit:
    """Return the mode of the coefficients' posterior; `fit` also widens its intervals."""
    from scipy.optimize import least_squares  # noqa: PLC0415

    kinds = sorted({each.kind for each in measured})
    truth = np.log(np.concatenate([each.seconds for each in measured]))
    start = np.append(Coefficients.prior(priors).logs, np.zeros(len(kinds)))
    widths = np.append(spreads(priors), np.full(len(kinds), KIND_SPREAD))
    believed = np.diag(widths**-2.0)
    logs, noise = start, UNFITTED_NOISE

    def residuals(at: Array) -> Array:
        return np.append((_logs(measured, at, kinds) - truth) / noise, (at - start) / widths)

    def jacobian(at: Array) -> Array:
        return np.vstack([_slopes(measured, at, kinds)[1] / noise, np.diag(1 / widths)])

    def loss(squares: Array) -> Array:
        """Student's t for the rows, plain squares for the priors."""
        rho = np.stack([squares, np.ones_like(squares), np.zeros_like(squares)])
        rows = squares[: len(truth)]
        weights = (FREEDOM + 1.0) / (FREEDOM + rows)
        rho[0, : len(truth)] = (FREEDOM + 1.0) * np.log1p(rows / FREEDOM)
        rho[1, : len(truth)] = weights
        rho[2, : len(truth)] = -weights / (FREEDOM + rows)
        return rho

    for _ in range(ROUNDS):
        moved = least_squares(residuals, logs, jac=jacobian, loss=loss, xtol=SETTLED).x
        settled = bool(np.abs(moved - logs).max() < SETTLED)
        logs = moved
        log, slope = _slopes(measured, logs, kinds)
        error = truth - log
        weights = (FREEDOM + 1.0) / (FREEDOM + (error / noise) ** 2)
        known = (slope.T * weights) @ slope / noise**2
        left = len(truth) - np.trace(np.linalg.solve(known + believed, known))
        squares = (weights * error**2).sum() + NOISE_ROWS * USUAL_NOISE**2
        noise = float(np.sqrt(squares / (max(left, 0.0) + NOISE_ROWS)))
        if settled:
            break
    covariance = np.linalg.inv(known + believed)
    narrowed = np.sqrt(np.diag(covariance)) < LEARNED * widths
    return Fit(
        numbers=Coefficients.from_logs(logs[: len(PRIORS)]),
        kinds=dict(zip(kinds, logs[len(PRIORS) :].tolist(), strict=True)),
        covariance=covariance,
        noise=noise,
        width=NINE_OF_TEN * (1.0 + FEW_ROWS / len(truth)),
        origins=tuple(
            "measured" if learned else each.origin
            for each, learned in zip(priors.values(), narrowed, strict=False)
        ),
    )


def _logs(measured: Sequence[Steps], logs: Array, kinds: Sequence[str]) -> Array:
    return np.asarray(_evaluated(measured, logs[np.newaxis], kinds)[0])


def _slopes(measured: Sequence[Steps], logs: Array, kinds: Sequence[str]) -> tuple[Array, Array]:
    """Return log predictions and their derivatives with respect to each log coefficient and
    kind."""
    count = len(PRIORS)
    moves = np.eye(len(logs))[:count] * DIFFERENCE
    found = _evaluated(measured, np.vstack([logs, logs + moves]), kinds)
    slope = ((found[1:] - found[0]) / DIFFERENCE).T
    of = np.concatenate([np.full(len(each.layouts), each.kind) for each in measured])
    # A kind's rate multiplies the common rate, which is the first coefficient.
    own = np.array([[kind == name for name in kinds] for kind in of], dtype=np.float64)
    return found[0], np.hstack([slope, own.reshape(len(of), len(kinds)) * slope[:, :1]])


def _evaluated(measured: Sequence[Steps], logs: Array, kinds: Sequence[str]) -> Array:
    """Return log predictions, a row for each row of `logs`."""
    count = len(PRIORS)
    numbers = Coefficients.from_logs(logs[:, :count])
    rates = dict(zip(kinds, logs[0, count:], strict=True))
    columns = [
        each.predicted(numbers.faster(float(np.exp(rates.get(each.kind, 0.0)))))
        for each in measured
    ]
    return np.log(np.concatenate(columns, axis=1))
