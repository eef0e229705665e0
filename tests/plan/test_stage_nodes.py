"""A batch that grows: the plan says how many nodes pay in each of its stages."""

from pathlib import Path

import pytest

from command import paceline, paceline_json
from paceline.plan.calibration.calibrate import from_priors
from paceline.plan.search.best_layout import Profiles
from paceline.plan.search.node_counts import Goal, bests_on
from paceline.plan.stage_nodes import stage_options
from paceline.profile.families import decoder
from paceline.specs.plans.sync import default_sync
from plan.shapes import SMALL, cluster

COUNTS = [1, 4, 16]
PROFILES: Profiles = {"bf16": decoder(SMALL)}
WHERE = cluster(nodes=16, between=0.1)


@pytest.mark.parametrize("goal", ["fastest", "knee"])
def test_small_stages_are_worth_fewer_nodes(goal: Goal) -> None:
    # Before, a plan had the largest batch only.
    batches, fit, sync = (64, 1024, 65536), from_priors(), default_sync()
    found = stage_options(PROFILES, WHERE, batches, COUNTS, fit, goal, sync, planned=16)
    assert [each.batch for each in found] == [64, 1024, 65536]
    nodes = [each.nodes for each in found]
    assert nodes == sorted(nodes)
    assert nodes[0] < nodes[-1]
    for each in found:
        bests, _ = bests_on(PROFILES, WHERE, each.batch, fit, COUNTS, sync)
        seconds = {best.nodes: best.estimate.step_seconds.value for best in bests}
        assert each.step_seconds == seconds[each.nodes]
        assert each.planned_step_seconds == seconds[16]
        if goal == "fastest":
            assert each.step_seconds == min(seconds.values())


TRAIN = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
import paceline


def training():
    inputs = torch.randn(4096, 64)
    return paceline.Training(
        model=lambda: nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)),
        loss=nn.functional.mse_loss,
        data=TensorDataset(inputs, inputs.sum(1, keepdim=True)),
        optimizer=lambda parameters: torch.optim.AdamW(parameters),
        batch=BATCH,
        epochs=4,
    )
"""


@pytest.mark.nightly
@pytest.mark.parametrize("batch", ["{0: 8, 1000: 64, 9000: 512}", "paceline.grow(256, to=1024)"])
def test_a_plan_of_a_growing_batch_has_its_stages(batch: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.replace("BATCH", batch))
    words = ("plan", "train.py", "--device", "a100-80gb", "--nodes", "1,2,4", "--count")
    found = paceline_json(*words, folder=tmp_path)
    expected = [8, 64, 512] if "grow" not in batch else [256, 512, 1024]
    assert [each["batch"] for each in found["stages"]] == expected
    shown = paceline(*words, folder=tmp_path).stdout
    assert "stage: batch" in shown
    assert found["batch"] == expected[-1]
    assert not paceline_json(*words, "--batch", "64", folder=tmp_path)["stages"]
