"""The same bits on any number of workers, and over a change of their number."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paceline
from paceline.checkpoints.folder import Folder
from paceline.comm.device_kind import device_kind
from paceline.schedulers.task_placement import placement
from paceline.specs import Layout, Run, Saving, SyncSettings
from paceline.sync.modes.allreduce import AllReduce
from paceline.train.elastic.joined_groups import joined
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.trainer import Trainer
from ranks import RankFailed, go_on, new_run, run_ranks
from sync.simulated import planned
from train.trainings import CLASSES, FEATURES, classification

FOUR = SyncSettings.parse("canonical:parts=4")
SEVEN = SyncSettings.parse("canonical:parts=7")
STEPS = 9


def linear(width: int = 33) -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, width), nn.Linear(width, CLASSES))


def dropping() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(FEATURES, 33), nn.Dropout(0.3), nn.Tanh(), nn.Linear(33, CLASSES)
    )


def normalizing() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 33), nn.BatchNorm1d(33), *list(dropping())[1:])


class Choosing(nn.Module):
    """Of two layers, one may see no sample of a part: what is not used there counts as zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = dropping(), dropping()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        chosen: nn.Module = self.first if inputs[0, 0] > 0 else self.second
        output: torch.Tensor = chosen(inputs)
        return output


def repeating() -> nn.Module:
    blocks = (nn.Sequential(nn.Linear(33, 33), nn.Dropout(0.3), nn.Tanh()) for _ in range(2))
    return nn.Sequential(nn.Linear(FEATURES, 33), nn.Sequential(*blocks), nn.Linear(33, CLASSES))


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


def by_class(target: torch.Tensor) -> torch.Tensor:
    """Weights that no division makes equal."""
    return (0.1 + target.float()).sum()


def loss_by_class(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    each = F.cross_entropy(output, target, reduction="none")
    return (each * (0.1 + target.float())).sum() / by_class(target)


# 75 samples in batches of 21: uneven parts, and at the end of an epoch 12 samples are left.
USUAL: dict[str, Any] = {
    "samples": 75,
    "batch": 21,
    "steps": STEPS,
    "model": dropping,
    "optimizer": adam,
    "clip": 0.5,
}
CASES: dict[str, tuple[SyncSettings, dict[str, Any], dict[str, Any]]] = {
    "dropout, uneven parts": (FOUR, {}, {}),
    "weighted, unused weights": (
        FOUR,
        {"weight": by_class, "loss": loss_by_class, "model": Choosing},
        {},
    ),
    "a last batch of fewer samples than parts": (FOUR, {"samples": 23}, {}),
    "normalised, parts that are no power of two": (
        SEVEN,
        {"model": normalizing, "samples": 77},
        {"batch_norm": "local"},
    ),
    "workers that are too slow for any part": (FOUR, {}, {"speeds": (10.0, 1.0, 1.0, 1.0)}),
    "half precision, computed again": (
        FOUR,
        {"model": repeating},
        {"precision": "fp16", "recompute": "block"},
    ),
    "in several buckets": (
        FOUR,
        {"model": lambda: linear(20_000)},
        {"bucket_megabytes": 1},
    ),
}


def _state(trainer: Trainer) -> str:
    """A hash of all that a worker has of weights, statistics and the optimizer's state."""
    kept = dict(trainer.model.state_dict())
    for number, state in trainer.optimizer.state_dict()["state"].items():
        kept |= {f"{number}/{key}": value for key, value in state.items()}
    found = hashlib.sha256()
    for name in sorted(kept):
        numbers = torch.as_tensor(kept[name]).detach()
        assert numbers.isfinite().all()
        found.update(name.encode() + numbers.numpy().tobytes())
    return found.hexdigest()


def every_case(run: Run, workers: int) -> dict[str, Any]:
    """For each case, the state in the end and the loss of every step that was reported."""
    found = {}
    here = placement(0)
    with joined(run, here, device_kind().bind(here), None) as groups:
        for case, (sync, changes, settings) in CASES.items():
            telemetry = Telemetry(groups, None, lambda: False)
            speeds = settings.get("speeds", (1.0,) * workers)[:workers]
            layout = Layout(replicas=workers, **settings | {"speeds": speeds})
            trainer = Trainer(
                classification(**USUAL | changes), layout, groups, telemetry, sync=sync
            )
            losses = []
            for batch in trainer:
                trainer.step(batch)
                telemetry.report_all()
                losses.append(trainer.progress.loss)
            found[case] = (losses, _state(trainer))
            trainer.close()
    return found


@pytest.mark.nightly
def test_any_number_of_workers_comes_to_the_same_bits(tmp_path: Path) -> None:
    of_all: list[dict[str, Any]] = []
    for workers in (4, 3, 2, 1):
        folder = tmp_path / str(workers)
        run = new_run(folder, workers)
        of_all += run_ranks(every_case, workers, folder, run, workers, run=run)
    for case in CASES:
        first, *others = (each[case] for each in of_all)
        assert len(first[0]) == STEPS
        assert all(other == first for other in others), case


def weights_after(changes: dict[str, Any]) -> list[float]:
    """What a rank has of the weights after all steps."""
    with paceline.start(classification(**USUAL | changes)) as trainer:
        for batch in trainer:
            trainer.step(batch)
    return torch.cat([each.detach().flatten() for each in trainer.model.parameters()]).tolist()


@pytest.mark.nightly
def test_it_is_the_mean_gradient_which_has_other_bits_otherwise(tmp_path: Path) -> None:
    changes = {"model": linear, "weight": by_class, "loss": loss_by_class}
    plain, otherwise, canonical = (
        run_ranks(
            weights_after,
            workers,
            tmp_path / f"{sync.mode}-{workers}",
            changes,
            run=planned(tmp_path / f"{sync.mode}-{workers}", workers, sync),
        )[0]
        for sync, workers in ((AllReduce(), 2), (AllReduce(), 1), (FOUR, 1))
    )
    assert plain != otherwise
    assert canonical == pytest.approx(plain, rel=1e-4, abs=1e-5)


def state_after(changes: dict[str, Any], threads: int = 1) -> tuple[str, int]:
    """All that a rank has after all steps, and how many threads it computed with."""
    torch.set_num_threads(threads)
    with paceline.start(classification(**USUAL | changes)) as trainer:
        for batch in trainer:
            trainer.step(batch)
    return _state(trainer), torch.get_num_threads()


def test_a_run_that_loses_a_worker_and_finds_another_keeps_its_bits(tmp_path: Path) -> None:
    """4 workers, 3 from step 4 on, 4 again from step 8 on; and 4 throughout."""
    changes = {"model": normalizing, "weight": by_class, "steps": 12}
    saving = Saving(every_steps=4, keep_last=9)
    layout = Layout(replicas=4, batch_norm="local")
    run = planned(tmp_path, 4, FOUR, layout, saving)
    throughout = run_ranks(state_after, 4, tmp_path, changes, run=run)
    assert all(each == throughout[0] for each in throughout)
    checkpoints = Folder(run.checkpoints)
    for generation, (workers, resumed) in enumerate(((3, 4), (4, 8)), 1):
        for step in checkpoints.steps():
            if step > resumed:
                checkpoints.remove(step)
        now = layout.model_copy(update={"replicas": workers})
        go_on(run, generation, layout=now)
        found = run_ranks(state_after, workers, tmp_path, changes, run=run)
        assert all(each == throughout[0] for each in found)

    go_on(run, 3, layout=layout, sync=SEVEN)
    with pytest.raises(RankFailed, match=r"trained with canonical:parts=4, and this run with"):
        run_ranks(state_after, 4, tmp_path, changes, run=run)


def test_who_goes_on_computes_with_as_many_threads_as_before(tmp_path: Path) -> None:
    run = planned(tmp_path, 1, FOUR, saving=Saving(every_steps=4))
    assert run_ranks(state_after, 1, tmp_path, {"steps": 4}, 2, run=run)[0][1] == 2
    run.job.model_copy(update={"first_generation": 1}).write(run.job_file)
    assert run_ranks(state_after, 1, tmp_path, {"steps": 5}, 1, run=run)[0][1] == 2


def test_a_part_is_one_forward(tmp_path: Path) -> None:
    run = planned(tmp_path, 1, FOUR, Layout(micro_batch=5))
    with pytest.raises(RankFailed, match=r"one forward, of up to 6 samples(.|\n)* parts=5 or more"):
        run_ranks(state_after, 1, tmp_path, {}, run=run)


class ByChance(nn.Module):
    """A model with an operation that PyTorch has no deterministic way for."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layer(inputs)
        return output + torch.zeros(3).put_(torch.tensor([1]), torch.tensor([0.0])).sum()


def test_what_pytorch_leaves_to_chance_is_refused(tmp_path: Path) -> None:
    run = planned(tmp_path, 1, FOUR)
    with pytest.raises(RankFailed, match="the model uses put_"):
        run_ranks(state_after, 1, tmp_path, {"model": ByChance}, run=run)
