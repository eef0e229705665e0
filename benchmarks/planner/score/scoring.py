"""How good predictions are: errors, regret, coverage, memory; and the null model beside each."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.planner.score.cases import Case, chosen, grouped
from paceline.cluster.catalog import device
from paceline.cluster.collectives import Array
from paceline.plan.calibration.calibrate import Fit, Steps, fit, from_priors
from paceline.plan.cost.memory import memory, stage

SCALE = 512
"""Devices up to which scale-out tables are fitted."""
LARGE = 3000
NULL_FRACTION = 0.4
"""Of the peak, where the null model has no rows to be fitted to."""
Row = dict[str, float | int | str | None]


@dataclass(frozen=True)
class Prediction:
    """Of one row."""

    case: Case
    seconds: float
    low: float
    high: float
    null: float

    @property
    def error(self) -> float:
        """Of the step, by what was measured."""
        assert self.case.step_seconds
        return abs(self.seconds / self.case.step_seconds - 1)

    @property
    def null_error(self) -> float:
        """The same of the null model."""
        assert self.case.step_seconds
        return abs(self.null / self.case.step_seconds - 1)


def sweep(name: str, cases: Sequence[Case], fitted: bool) -> Row:
    """A table of which some rows are for calibration, in one of the two modes."""
    timed = [each for each in cases if each.step_seconds]
    keys = chosen(timed) if fitted else set()
    known = [each for each in timed if each.key in keys]
    return _time_row(name, timed, known, [each for each in timed if each.key not in keys])


def scale_out(name: str, cases: Sequence[Case], smallest: int) -> Row:
    """Fitted on small clusters; scored on those of `smallest` devices and more."""
    known = [each for each in cases if each.gpus <= SCALE]
    return _time_row(name, [], known, [each for each in cases if each.gpus >= smallest])


def _time_row(name: str, every: list[Case], known: list[Case], tested: list[Case]) -> Row:
    found = fit([steps for _, steps in grouped(known)]) if known else from_priors()
    mode = f"fitted on {len(known)}" if known else "catalog"
    return time_row(name, mode, found, every, tested, _null_rates(known))


def time_row(
    name: str,
    mode: str,
    found: Fit,
    every: list[Case],
    tested: list[Case],
    rates: dict[str, float],
) -> Row:
    """Errors of tested rows and regret over all rows; `rates`: of the null model."""
    predicted = predict(tested, found, rates)
    row: Row = {"table": name, "mode": mode, "rows": len(tested)}
    if predicted:
        row |= {
            "mean": statistics.mean(each.error for each in predicted),
            "median": statistics.median(each.error for each in predicted),
            "null_mean": statistics.mean(each.null_error for each in predicted),
            "null_median": statistics.median(each.null_error for each in predicted),
            "coverage": statistics.mean(
                each.low <= (each.case.step_seconds or 0) <= each.high for each in predicted
            ),
        }
    return row | regret(predict(every, found, rates))


def predict(cases: Sequence[Case], found: Fit, rates: dict[str, float]) -> list[Prediction]:
    """Of every case, in no particular order."""
    predictions = []
    for members, steps in grouped(cases):
        columns = zip(members, *found.predict(steps), strict=True)
        for index, seconds, low, high in columns:
            case = cases[index]
            rate = rates.get(case.family) or _unfitted_rate(case, rates)
            null = _useful(case) / (case.gpus * rate)
            predictions.append(Prediction(case, float(seconds), float(low), float(high), null))
    return predictions


def _useful(case: Case) -> float:
    """FLOPs of a step without what is computed again."""
    return case.profile.flops * case.batch


def _null_rates(known: Sequence[Case]) -> dict[str, float]:
    """Useful FLOP/s of one device, the median of the calibration rows of its kind."""
    rates: dict[str, list[float]] = defaultdict(list)
    for each in known:
        assert each.step_seconds
        rates[each.family].append(_useful(each) / (each.gpus * each.step_seconds))
    return {family: statistics.median(each) for family, each in rates.items()}


def _unfitted_rate(case: Case, rates: dict[str, float]) -> float:
    """Where no calibration row is of its kind: the fraction of peak that the others reach."""
    fractions = [rate / _peak(family) for family, rate in rates.items()]
    fraction = statistics.median(fractions) if fractions else NULL_FRACTION
    return fraction * case.cluster.device.peak(case.precision)


def _peak(family: str) -> float:
    name, precision = family.split(" ")
    return device(name).peak(precision)


def regret(predicted: Sequence[Prediction]) -> Row:
    """How much slower the layout that is ranked first is than the fastest measured of its group.
    The null model cannot rank: the mean over the layouts stands for it."""
    groups: dict[str, list[Prediction]] = defaultdict(list)
    for each in predicted:
        if each.case.group:
            groups[each.case.group].append(each)
    regrets, blind = [], []
    for members in groups.values():
        if len(members) < 2:
            continue
        fastest = min(each.case.step_seconds or np.inf for each in members)
        choice = min(members, key=lambda each: each.seconds)
        regrets.append((choice.case.step_seconds or np.inf) / fastest - 1)
        blind.append(
            statistics.mean((each.case.step_seconds or np.inf) / fastest - 1 for each in members)
        )
    if not regrets:
        return {}
    return {
        "groups": len(regrets),
        "regret_mean": statistics.mean(regrets),
        "regret_max": max(regrets),
        "null_regret_mean": statistics.mean(blind),
    }


def held_bytes(steps: Steps, last_stage: bool) -> Array:
    """Predicted peak of the fullest device, or of one of the last stage."""
    of = (steps.profile, steps.layouts, steps.batch, steps.engine)
    return stage(*of, last=True).total if last_stage else memory(*of).total


def memory_row(name: str, cases: Sequence[Case], last_stage: bool = False) -> Row | None:
    """Peak memory against what was measured, and whether those that did not fit were seen. With
    `last_stage`, the measured device is one of the last stage and not the fullest."""
    errors, missed, failed, alarms, inside = [], 0, 0, 0, 0
    for members, steps in grouped(cases):
        for index, nbytes in zip(members, held_bytes(steps, last_stage), strict=True):
            case = cases[index]
            fits = bool(nbytes * case.engine.memory_high <= case.cluster.device.memory_bytes)
            if case.out_of_memory:
                failed += 1
                missed += fits
            elif case.memory_bytes:
                alarms += not fits
                errors.append(float(nbytes) / case.memory_bytes - 1)
                ratio = case.memory_bytes / float(nbytes)
                inside += case.engine.memory_low <= ratio <= case.engine.memory_high
    if not errors and not failed:
        return None
    row: Row = {"table": name, "rows": len(errors), "oom_rows": failed, "oom_missed": missed}
    if errors:
        row |= {
            "mean": statistics.mean(abs(each) for each in errors),
            "median": statistics.median(abs(each) for each in errors),
            "max": max(abs(each) for each in errors),
            "bias": statistics.median(errors),
            "coverage": inside / len(errors),
            "false_alarms": alarms,
        }
    return row
