"""Coefficients are found again in steps that were made with them."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.plan.calibration.calibrate import Steps, fit, from_priors
from paceline.plan.cost.coefficients import PRIORS, Coefficients
from paceline.specs import Layout
from plan.shapes import steps

LAYOUTS = [
    Layout(replicas=replicas, tensor=tensor, pipeline=pipeline, micro_batch=samples)
    for replicas, tensor, pipeline in [(64, 1, 1), (8, 8, 1), (8, 1, 8), (4, 16, 1), (16, 2, 2)]
    for samples in (1, 4, 16)
]
OTHERS = [Layout(replicas=16, tensor=4, micro_batch=8), Layout(replicas=4, tensor=4, pipeline=4)]


def measured(logs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Steps:
    what = steps(*LAYOUTS)
    return replace(what, seconds=what.predicted(Coefficients.from_logs(logs)))


def test_a_slower_cluster_is_recognized() -> None:
    names = list(PRIORS)
    logs = Coefficients.prior().logs
    logs[names.index("matmul_rate")] -= 0.1
    logs[names.index("between_rate")] -= 0.4
    logs[names.index("launch_seconds")] += 0.5
    found = fit([measured(logs)])
    unseen = steps(*OTHERS)
    truth = unseen.predicted(Coefficients.from_logs(logs))
    before, _, _ = from_priors().predict(unseen)
    after, low, high = found.predict(unseen)
    assert np.abs(before / truth - 1).max() > 0.1
    np.testing.assert_allclose(after, truth, rtol=0.03)
    assert ((low < truth) & (truth < high)).all()


def test_one_wild_row_pulls_little() -> None:
    what = measured(Coefficients.prior().logs)
    seconds = what.seconds.copy()
    seconds[4] *= 2.0
    found = fit([replace(what, seconds=seconds)])
    predicted, _, _ = found.predict(what)
    np.testing.assert_allclose(np.delete(predicted, 4), np.delete(what.seconds, 4), rtol=0.06)


def test_what_was_fitted_is_surer_than_a_guess() -> None:
    what = measured(Coefficients.prior().logs)
    _, low, high = from_priors().predict(what)
    _, fitted_low, fitted_high = fit([what]).predict(what)
    assert (np.log(fitted_high / fitted_low) < np.log(high / low)).all()


def test_guesses_say_where_they_come_from() -> None:
    for name, each in PRIORS.items():
        assert each.why, name
        assert each.origin in ("measured", "published", "assumed")
        assert float(getattr(Coefficients.prior(), name)) == pytest.approx(each.value)
