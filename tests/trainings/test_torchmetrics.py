"""Metrics of torchmetrics: objects whose states workers merge, not means of means."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import paceline
from paceline.specs import Layout, PacelineError
from paceline.train.gradients.metric_objects import check_metrics
from ranks import RankFailed, run_ranks
from train.trainings import classification
from trainings.comparison import LAYOUTS, classified, plain_steps, seeded_model

pytestmark = pytest.mark.slow  # every rank imports torchmetrics, and that much else


class Own:
    """An object that is not torchmetrics'."""

    def __init__(self) -> None:
        self.count = 0

    def update(self, output: Any, target: Any) -> None:
        self.count += len(target)

    def compute(self) -> int:
        return self.count

    def reset(self) -> None:
        self.count = 0


def measured(names: list[str], samples: int = 41) -> dict[str, float]:
    """Train a little, and evaluate twice on samples that no number of workers divides."""
    from trainings.scores import Scattered, metrics

    known = metrics() | {"own": Own(), "scattered": Scattered()}
    data = TensorDataset(*classification(samples).data.tensors)
    with paceline.start(classification(steps=3)) as trainer:
        for batch in trainer:
            trainer.step(batch)
        chosen = {name: known[name] for name in names}
        first = trainer.evaluate(data, chosen).metrics
        assert trainer.evaluate(data, chosen).metrics == first, "the second begins anew"
    return first


@pytest.fixture(scope="module")
def plain() -> dict[str, float]:
    from trainings.scores import metrics

    described = classification(steps=3)
    model = seeded_model(described)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for samples in plain_steps(described):
        optimizer.zero_grad()
        classified(model, samples).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    inputs, target = classification(41).data.tensors
    found = {}
    with torch.no_grad():
        output = model(inputs)
    for name, metric in metrics().items():
        metric.update(output, target)
        found[name] = float(metric.compute())
    return found


@pytest.mark.parametrize(
    "layout",
    [*LAYOUTS.values(), Layout(replicas=3, micro_batch=4)],
    ids=[*LAYOUTS, "3 replicas with micro-batches"],
)
def test_it_equals_one_process(layout: Layout, plain: dict[str, float], tmp_path: Path) -> None:
    found = run_ranks(measured, layout.workers, tmp_path, list(plain), layout=layout, seconds=100)
    for each in found:
        assert each == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "samples", "layout", "words"),
    [
        pytest.param(
            *("own", 41, Layout(replicas=2), "only torchmetrics could merge"),
            marks=pytest.mark.nightly,
        ),
        ("f1", 1, Layout(replicas=2), "leave some of the 2 workers without"),
        pytest.param(
            *("scattered", 41, Layout(replicas=2), "dist_reduce_fx=None, of which workers have"),
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_what_cannot_be_merged_is_refused(
    name: str, samples: int, layout: Layout, words: str, tmp_path: Path
) -> None:
    with pytest.raises(RankFailed, match=words):
        run_ranks(measured, 2, tmp_path, [name], samples, layout=layout, seconds=100)


def test_a_pipeline_is_refused() -> None:
    from trainings.scores import metrics

    validation = paceline.Validation(classification(41).data, metrics=metrics())
    with pytest.raises(PacelineError, match="only the last of 2 pipeline stages"):
        check_metrics(validation, Layout(pipeline=2))
    check_metrics(validation, Layout(replicas=2))


def test_slices_count_each_sample_once(plain: dict[str, float], tmp_path: Path) -> None:
    """Both workers of a sliced model see all samples."""
    layout = Layout(tensor=2)
    found = run_ranks(measured, 2, tmp_path, ["f1", "own"], layout=layout, seconds=100)
    assert found[0] == pytest.approx({"f1": plain["f1"], "own": 41})
