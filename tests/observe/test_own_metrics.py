"""A training's own metrics, read back from TensorBoard and Prometheus."""

import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from paceline.observe.audience import Audience
from paceline.report import RunReader, render
from paceline.report.live.view import line
from paceline.specs import Evaluated, Logged, Run
from report.folders import empty_run, say, started, steps

AT = {"time": 1_767_600_100.0, "node": "n1"}


def measured_run(parent: Path) -> Run:
    """A run of four steps that logs an accuracy, and validates twice."""
    run = empty_run(parent)
    say(run, started(0, steps=4))
    say(run, steps(1, [3.0, 2.0, 1.5, 1.2]))
    logged: list[float | None] = [0.25, None, 0.5]
    say(run, Logged(steps=[1, 2, 4], metrics={"accuracy": logged, "rate": [0.1, 0.2, 0.3]}, **AT))
    for step, accuracy in ((2, 0.25), (4, 0.75)):
        found = {"accuracy": accuracy}
        say(run, Evaluated(step=step, samples=40, loss=2.0 / step, metrics=found, **AT))
    return run


def test_they_are_in_tensorboard_and_prometheus(tmp_path: Path) -> None:
    run = measured_run(tmp_path)
    said: list[str] = []
    audience = Audience(run, ["tensorboard", "prometheus:127.0.0.1:0"], said.append)
    try:
        RunReader(run, audience.forward).refresh()
        url = said[1].split()[1].rstrip(",")
        token = {"Authorization": f"Bearer {run.metrics_token_file.read_text()}"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=token), timeout=5) as page:
            families = text_string_to_metric_families(page.read().decode())
    finally:
        audience.close()
    samples = [each for family in families for each in family.samples]
    assert {each.labels["name"]: each.value for each in samples if "name" in each.labels} == {
        "accuracy": 0.5,
        "rate": 0.3,
        "validation/accuracy": 0.75,
        "validation/loss": 0.5,
    }
    board = EventAccumulator(str(run.path / "tensorboard"))
    board.Reload()
    scalars = {
        tag: [(each.step, each.value) for each in board.Scalars(tag)]
        for tag in ("metrics/accuracy", "validation/accuracy", "validation/loss")
    }
    assert scalars == {
        "metrics/accuracy": [(1, 0.25), (4, 0.5)],
        "validation/accuracy": [(2, 0.25), (4, 0.75)],
        "validation/loss": [(2, 1.0), (4, 0.5)],
    }


def test_watch_and_report_show_them(tmp_path: Path) -> None:
    run = measured_run(tmp_path)
    state = RunReader(run).refresh()
    assert "accuracy 0.5" in line(state)
    assert "validation/accuracy 0.75" in line(state)
    assert state.metrics["rate"].step == [1, 2, 4]
    page = render(run)
    for words in ("Line chart of accuracy over the steps", "in training and validation"):
        assert words in page
    assert page.count("validation/accuracy") >= 1
    with pytest.raises(KeyError):
        state.metrics["loss"]
