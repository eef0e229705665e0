"""The planner's memory beside what the engine itself holds in a dry run."""

from pathlib import Path

import pytest

from command import EXAMPLES
from paceline.parallel.dry_run.dry_run import dry_run
from paceline.parallel.dry_run.model_profile import profile_of
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.cost.memory import memory
from paceline.plan.engines.paceline import ENGINE as PACELINE
from paceline.specs import Layout
from paceline.user.script import training_of
from plan.shapes import cluster

DAILY = [
    Layout(replicas=4, micro_batch=8),
    Layout(shards=4, micro_batch=8, precision="bf16"),
    Layout(pipeline=4, micro_batch=2, precision="bf16"),
    Layout(shards=4),  # without micro-batches, the planner had taken them to be of one sample
]
NIGHTLY = [
    Layout.model_validate({**layout, "precision": precision})
    for precision in ("fp32", "bf16")
    for layout in (
        {"micro_batch": 8},
        {"shards": 4, "micro_batch": 2},
        {"tensor": 4, "micro_batch": 32},
        {"pipeline": 4, "micro_batch": 2},
        {"replicas": 4, "micro_batch": 8, "recompute": "block"},
        {"replicas": 4, "micro_batch": 8, "recompute": "selective"},
    )
]


@pytest.mark.parametrize(
    "layout",
    [*DAILY, *(pytest.param(each, marks=pytest.mark.nightly) for each in NIGHTLY)],
    ids=str,
)
def test_the_peak_is_that_of_the_engine(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = EXAMPLES / "gpt"
    monkeypatch.syspath_prepend(str(folder))
    training = training_of(Path(folder / "train.py"), "training")
    profile = profile_of(training, "gpt", layout)
    engine = PACELINE.engine(profile, cluster(), layout.precision)
    batch = training.first_batch
    predicted = memory(profile, Layouts.of([layout], batch), float(batch), engine).total[0]
    held = dry_run(training, layout, devices_per_node=layout.workers)
    peak = max(each.memory.peak for each in held.ranks)
    assert 0.8 < predicted / peak < 1.1
