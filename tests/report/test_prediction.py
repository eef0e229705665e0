"""What a plan said stands beside what the run took."""

from pathlib import Path

import pytest

from paceline.report import RunReader, render
from paceline.report.run.sections.prediction import prediction_figures, prediction_sentence
from paceline.specs import Amount, Estimate, Layout, Plan, Run
from report.folders import BATCH, empty_run, say, started, steps

SECONDS = 0.2


def _run(parent: Path, plan: Plan) -> Run:
    run = empty_run(parent, nodes=1)
    plan.write(run.plan_file)
    say(run, started(0, workers=1))
    say(run, steps(1, [2.0] * 10, seconds=SECONDS))
    return run


def _plan(predicted: float, batch: int = BATCH) -> Plan:
    return Plan(
        layout=Layout(micro_batch=4),
        estimate=Estimate(
            layout=Layout(micro_batch=4),
            batch=batch,
            step_seconds=Amount(
                value=predicted, low=0.9 * predicted, high=1.1 * predicted, origin="measured"
            ),
            seconds={"compute": predicted},
            peak_bytes=Amount(value=1e9, low=1e9, high=1e9, origin="assumed"),
            bytes={"weights": 1e9},
            fits=True,
        ),
    )


@pytest.mark.parametrize(("predicted", "within"), [(0.21, True), (0.3, False)])
def test_a_prediction_is_held_against_the_median_step(
    tmp_path: Path, predicted: float, within: bool
) -> None:
    run = _run(tmp_path, _plan(predicted))
    figures = prediction_figures(RunReader(run).refresh())
    assert figures is not None
    assert figures.measured_seconds == pytest.approx(SECONDS)
    assert figures.off == pytest.approx(predicted / SECONDS - 1)
    assert figures.within == within
    sentence = prediction_sentence(figures)
    assert "too long" in sentence
    assert ("within" in sentence) == within
    page = render(run)
    assert "Prediction and measurement" in page
    assert sentence in page


def test_a_run_that_does_not_follow_the_plan_is_not_compared(tmp_path: Path) -> None:
    other_layout = _plan(0.2).model_copy(update={"layout": Layout(replicas=2)})
    for plan in (Plan(), other_layout, _plan(0.2, batch=2 * BATCH)):
        run = _run(tmp_path, plan)
        assert prediction_figures(RunReader(run).refresh()) is None
        assert "Prediction and measurement" not in render(run)
