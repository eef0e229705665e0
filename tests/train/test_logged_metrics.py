"""`trainer.log`: means over the global batch, on any number of workers, without waiting."""

from pathlib import Path
from typing import Any

import pytest
import torch

import paceline
from paceline.data.batches import Batches
from paceline.observe.digest import Digest
from paceline.report import RunReader
from paceline.report.live.view import line
from paceline.report.run.section import ReportedRun
from paceline.schedulers.task_placement import run_folder
from paceline.specs import Logged, PacelineError, Run, event_adapter
from paceline.train.monitor.logged_rows import check_metric_name
from ranks import RankFailed, run_ranks
from train.trainings import classification

STEPS = 12


def training() -> paceline.Training:
    """Batches of 16 do not divide 42 samples: the last of an epoch has 10."""
    return classification(42, batch=16, steps=STEPS)


def logged(only_worker_0: bool = False) -> dict[str, Any]:
    """Train, and return the run's metrics as a reader finds them: steps and values by name."""
    total = torch.zeros(())
    with paceline.start(training()) as trainer:
        for batch in trainer:
            step = trainer.step(batch).step
            mean = batch.target.float().mean()
            total += mean
            if trainer.is_main or not only_worker_0:
                trainer.log(target=mean, total=total, step=step)
            if step % 5 == 0:
                trainer.log(rare=0.5 * step)
    folder = run_folder()
    assert folder is not None
    found = RunReader(Run(folder)).refresh().metrics
    return {name: (series.step, series.value) for name, series in found.items()}


@pytest.mark.parametrize("workers", [1, 3])
def test_means_are_those_of_the_global_batch(workers: int, tmp_path: Path) -> None:
    found = run_ranks(logged, workers, tmp_path)[0]
    described = training()
    batches = Batches(described.sample_order(), batch=16, steps=STEPS, workers=1, rank=0)
    targets = [
        torch.stack([described.data[index][1] for index in indices]).float() for indices in batches
    ]
    means = [float(each.mean()) for each in targets]
    assert found["target"][0] == found["step"][0] == list(range(1, STEPS + 1))
    assert found["target"][1] == pytest.approx(means)
    assert found["step"][1] == list(range(1, STEPS + 1))
    assert found["rare"] == ([5, 10], [2.5, 5.0])
    if workers == 1:  # a tensor that the loop changes afterwards
        sums = torch.tensor(means).cumsum(0).tolist()
        assert found["total"][1] == pytest.approx(sums)


def test_names_that_only_one_worker_logs_end_the_run_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="the workers log different metrics"):
        run_ranks(logged, 2, tmp_path, True)


def test_watch_report_and_listeners_have_them(tmp_path: Path) -> None:
    run_ranks(logged, 1, tmp_path)
    (folder,) = (each for each in tmp_path.iterdir() if Run(each).job_file.exists())
    run = Run(folder)
    state = RunReader(run).refresh()
    assert f"target {state.metrics['target'].value[-1]:.4g}" in line(state)
    figures = ReportedRun.read(run).to_dict()["metrics"]["rare"]
    assert (figures["last"], figures["step"], figures["lowest"]) == (5.0, 10, 2.5)
    events = [
        event_adapter.validate_json(line)
        for file in run.events.iterdir()
        for line in file.read_text().splitlines()
    ]
    assert sum(isinstance(event, Logged) for event in events) < STEPS, "one event per window"
    seen = Digest().take(events)
    rare = {
        each.step: each.figures["metrics/rare"] for each in seen if "metrics/rare" in each.figures
    }
    assert rare == {5: 2.5, 10: 5.0}


def refused(**metrics: Any) -> str:
    with paceline.start(classification(steps=1)) as trainer:
        with pytest.raises(PacelineError) as caught:
            trainer.log(**metrics)
        for batch in trainer:
            trainer.step(batch)
    return caught.value.problem


def test_only_numbers_can_be_logged() -> None:
    assert refused(a=torch.zeros(3)) == "trainer.log(a=…) is a tensor of shape [3], not one number"
    assert refused(a="high") == "trainer.log(a=…) is of type str, not one number"
    with pytest.raises(PacelineError, match="cannot be the name of a metric"):
        check_metric_name("größe")
