"""A gradient that is not finite is not applied on an accelerator, and nothing waits to know it.

Before, the host read in every step whether the gradient was finite.
"""

import copy
import os
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paceline
from paceline.specs import Faults, Layout
from ranks import RankFailed
from simulated_devices import run_sim_ranks
from train.trainings import CLASSES, FEATURES, classification
from train.watched import found, watched_run

STEP = 7
COPIES = Faults(lease_seconds=30.0, copy_every=10)
LAYOUTS = {
    "replicas": Layout(replicas=2, batch_norm="local"),
    "shards": Layout(shards=2, batch_norm="local"),
}


class Normalized(nn.Sequential):
    """A classifier with running statistics."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(FEATURES, 32), nn.BatchNorm1d(32), nn.Linear(32, CLASSES))


def _train(bad_steps: int, adam: bool) -> tuple[list[float], int]:
    """Train with inputs on worker 1 that are not finite from `STEP` on, in so many steps.

    Without bad steps, undo that step by hand. Return the weights, the running statistics and the
    optimizer's state, and how often the host waited in the bad step.
    """
    from paceline_simulated.waits import host_waits, reset

    step, waits = 0, 0
    bad = bad_steps if os.environ["PACELINE_RANK"] == "1" else 0

    def spoil(_: nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        return (inputs[0] * float("nan"),) if STEP <= step < STEP + bad else inputs

    def optimizer(parameters: paceline.Parameters) -> torch.optim.Optimizer:
        if adam:
            return torch.optim.AdamW(parameters, lr=0.01)
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    training = classification(
        model=Normalized, loss=F.cross_entropy, steps=12, optimizer=optimizer, clip=1.0
    )
    with paceline.start(training) as trainer:
        model = trainer.model
        model.register_forward_pre_hook(spoil)
        for batch in trainer:
            step += 1
            undone = step == STEP and not bad_steps
            before = [copy.deepcopy(each.state_dict()) for each in (model, trainer.optimizer)]
            reset()
            trainer.step(batch)
            waits += host_waits().total() * (step == STEP)
            if undone:
                for name, value in model.state_dict().items():
                    value.copy_(before[0][name])
                trainer.optimizer.load_state_dict(before[1])
    state = [each for kept in trainer.optimizer.state.values() for each in kept.values()]
    kept = [*model.parameters(), *model.buffers(), *state]
    local = [each.to_local() if hasattr(each, "to_local") else each for each in kept]
    return torch.cat([each.detach().flatten().double() for each in local]).tolist(), waits


@pytest.mark.parametrize(
    ("layout", "adam"),
    [
        ("replicas", True),
        pytest.param("replicas", False, marks=pytest.mark.nightly),
        pytest.param("shards", True, marks=pytest.mark.nightly),
    ],
)
def test_a_skipped_update_leaves_no_trace(tmp_path: Path, layout: str, adam: bool) -> None:
    (tmp_path / "undone").mkdir()
    run = watched_run(tmp_path, LAYOUTS[layout], faults=COPIES)
    undone = watched_run(tmp_path / "undone", LAYOUTS[layout], faults=COPIES)
    skipped = run_sim_ranks(_train, 2, tmp_path, 1, adam, run=run)
    expected = run_sim_ranks(_train, 2, tmp_path, 0, adam, run=undone)
    assert [weights for weights, _ in skipped] == [weights for weights, _ in expected]
    assert [waits for _, waits in skipped] == [0, 0]
    (refused,) = found(run)
    assert (refused.step, refused.ranks, refused.what) == (STEP, [1], "not finite")
    assert "the loss was not finite on worker 1: the update was skipped" in refused.message


def test_two_skipped_updates_in_a_row_end_the_run(tmp_path: Path) -> None:
    run = watched_run(tmp_path, LAYOUTS["replicas"])
    with pytest.raises(RankFailed, match=rf"the loss became nan at step {STEP + 1} on worker 1"):
        run_sim_ranks(_train, 2, tmp_path, 2, True, run=run)
