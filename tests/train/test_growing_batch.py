"""A batch that grows: killed and resumed on other workers, schedules, rules, epochs, refusals."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import paceline
from paceline.checkpoints.ledger import read_ledger
from paceline.schedulers.task_placement import run_folder
from paceline.specs import Job, Layout, PacelineError, Run, Saving, Steps, event_adapter
from paceline.train.study_overrides import as_studied
from paceline.user.training import Training
from ranks import RankFailed, go_on, run_ranks
from sync.simulated import planned
from sync.test_canonical import FOUR, _state, adam, dropping, repeating
from train.trainings import CLASSES, FEATURES, classification

SAMPLES = 75
STAGES: dict[int, int] = {0: 8, 40: 16, 110: 21}
"""Of 75 samples in an epoch: 5 steps of 8, 2 of 16, one of 3 at its end; from 123 on 21."""


def growing(**changes: Any) -> Training:
    settings: dict[str, Any] = {
        "samples": SAMPLES,
        "batch": STAGES,
        "epochs": 3,
        "steps": None,
        "tuned_at": 8,
        "model": dropping,
        "optimizer": adam,
        "schedule": lambda optimizer: torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=30),
        "clip": 0.5,
    }
    return classification(**settings | changes)


def _sizes() -> list[int]:
    """The samples of every step, as this run's folder has it."""
    folder = run_folder()
    assert folder is not None
    found: dict[int, int] = {}
    for file in sorted(Run(folder).events.iterdir()):
        for line in file.read_text().splitlines():
            event = event_adapter.validate_json(line)
            if isinstance(event, Steps):
                found |= dict(enumerate(event.samples, event.first))
    return [found[step] for step in sorted(found)]


def state_after(changes: dict[str, Any], dies_after: int | None = None) -> tuple[str, list[int]]:
    """All that a rank has after all steps, and their samples; worker 0 may be killed before."""
    with paceline.start(growing(**changes)) as trainer:
        for batch in trainer:
            if trainer.step(batch).step == dies_after and trainer.is_main:
                os.kill(os.getpid(), signal.SIGKILL)
    return _state(trainer), _sizes() if trainer.is_main else []


def _resume(run: Run, workers: int) -> None:
    layout = run.plan.layout.model_copy(update={"replicas": workers})
    go_on(run, layout=layout, sync=FOUR)


def _killed_and_resumed(tmp_path: Path, changes: dict[str, Any], step: int) -> list[int]:
    """Compare a run on 2 workers with one that is killed after a step and goes on with 3."""
    saving = Saving(every_steps=2, ledger=True)
    throughout = planned(tmp_path / "throughout", 2, FOUR, saving=saving)
    expected = run_ranks(state_after, 2, tmp_path, changes, run=throughout)
    run = planned(tmp_path / "killed", 2, FOUR, saving=saving)
    with pytest.raises(RankFailed, match="died without a word"):
        run_ranks(state_after, 2, tmp_path, changes, step, run=run)
    _resume(run, 3)
    found = run_ranks(state_after, 3, tmp_path, changes, run=run)
    assert {state for state, _ in (*expected, *found)} == {expected[0][0]}
    assert expected[0][1] == found[0][1]
    epochs = read_ledger(run.ledger)
    assert [each.exact for each in epochs] == [True] * 3
    sizes: list[int] = found[0][1]
    return sizes


def test_killed_in_a_stage_and_resumed_on_other_workers_with_the_same_bits(tmp_path: Path) -> None:
    sizes = _killed_and_resumed(tmp_path, {}, step=7)
    assert sizes == [8] * 5 + [16, 16, 3] + [16, 16, 16, 21, 6] + [21, 21, 21, 12]


class Watched(torch.optim.AdamW):
    """Remembers the settings of every update."""

    seen: list[tuple[float, float, float]] = []  # noqa: RUF012 -- one process, one training

    def step(self, closure: Any = None) -> Any:
        group = self.param_groups[0]
        self.seen.append((group["lr"], group["betas"][1], group["weight_decay"]))
        return super().step(closure)


def _settings(changes: dict[str, Any]) -> list[tuple[float, float, float]]:
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return Watched(parameters, lr=1.0, betas=(0.9, 0.99), weight_decay=0.1)

    def halving(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=0.5)

    settings = {"batch": {0: 8, 32: 32}, "samples": 64, "epochs": 2} | changes
    with paceline.start(growing(optimizer=optimizer, schedule=halving, **settings)) as trainer:
        for batch in trainer:
            trainer.step(batch)
    return Watched.seen


def test_schedules_count_samples_and_rules_follow_the_stages(tmp_path: Path) -> None:
    """Before, a schedule counted steps, so that it would slow down as the batch grows."""
    (tuned,) = run_ranks(_settings, 1, tmp_path / "tuned", {})
    # 4 steps of 8, and 3 of 32: each is 4 steps of the schedule, which halves after 8.
    rates, betas, decays = zip(*tuned, strict=True)
    assert rates == pytest.approx([1, 1, 1, 1, 2, 1, 1])
    assert betas == pytest.approx([0.99] * 4 + [0.99**4] * 3)
    assert decays == pytest.approx([0.1] * 4 + [0.2] * 3)
    (plain,) = run_ranks(_settings, 1, tmp_path / "plain", {"tuned_at": None})
    assert [each[0] for each in plain] == pytest.approx([1, 1, 1, 1, 1, 0.5, 0.5])
    assert {each[1:] for each in plain} == {(0.99, 0.1)}


def test_steps_are_those_of_the_first_batch_and_the_critical_batch_adds_samples() -> None:
    assert growing(steps=30, epochs=None, tuned_at=None).total_steps == 17
    stages = {"batch": {0: 8, 80: 32}, "samples": 1000, "epochs": None, "steps": 20}
    assert growing(**stages).total_steps == 10 + 3  # 80 samples in 2.5 steps of 32
    # The 80 samples after the first 80 become 80 x (32 + 16) / (8 + 16) = 160.
    assert growing(**stages, critical_batch=16.0).total_steps == 10 + 5
    training = growing()
    assert (training.first_batch, training.largest_batch, training.grows) == (8, 21, True)
    assert not classification(batch={0: 8}).grows


def test_another_batch_may_follow_a_resume_but_not_change_what_was_trained(tmp_path: Path) -> None:
    run = planned(tmp_path, 2, FOUR, saving=Saving(every_steps=2, ledger=True))
    with pytest.raises(RankFailed, match="died without a word"):
        run_ranks(state_after, 2, tmp_path, {}, 7, run=run)
    _resume(run, 2)
    with pytest.raises(RankFailed, match=r"was trained with batch=\{0: 8.*\} up to sample"):
        run_ranks(state_after, 2, tmp_path, {"batch": {0: 8, 8: 24}}, run=run)
    run.job.model_copy(update={"first_generation": 2}).write(run.job_file)
    (_, sizes), _ = run_ranks(state_after, 2, tmp_path, {"batch": {0: 8, 40: 16, 75: 30}}, run=run)
    assert sizes == [8] * 5 + [16, 16, 3] + [30, 30, 15] * 2
    assert all(each.exact for each in read_ledger(run.ledger))


def _in_stages() -> list[int]:
    with paceline.start(growing(batch={0: 8, 40: 24}, epochs=1, model=repeating)) as trainer:
        for batch in trainer:
            trainer.step(batch)
    return _sizes()


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(Layout(shards=2, micro_batch=4), id="shards"),
        pytest.param(Layout(pipeline=2), id="stages"),
    ],
)
def test_layouts_take_steps_of_every_stage(layout: Layout, tmp_path: Path) -> None:
    assert run_ranks(_in_stages, 2, tmp_path, layout=layout)[0] == [8] * 5 + [24, 11]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": {10: 8}}, "does not say with which batch training begins"),
        ({"batch": {0: 8, 10: 0}}, "names no batch from a sample on"),
        ({"data": None, "epochs": None, "steps": 4}, "your own loop makes the batches"),
        ({"batch": paceline.grow(8, to=16), "noise_every": 0}, "measures no gradient noise"),
    ],
)
def test_what_contradicts_a_growing_batch_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PacelineError, match=words):
        growing(**changes)
    with pytest.raises(PacelineError, match="cannot grow"):
        paceline.grow(8, to=8)
    job = Job(name="point", folder=Path("/"), python=Path("/bin/python"), batch_times=4)
    with pytest.raises(PacelineError, match=r"Training\(batch=…\) grows"):
        as_studied(growing(tuned_at=None), job)


def _meaningless() -> TensorDataset:
    """Labels that nothing explains: the noise scale is far above 32 samples."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(400, FEATURES, generator=generator)
    return TensorDataset(inputs, torch.randint(0, CLASSES, (400,), generator=generator))


NOISY: dict[str, Any] = {
    "batch": paceline.grow(8, to=32),
    "data": _meaningless(),
    "noise_every": 1,
    "optimizer": adam,
}


def test_killed_in_a_growth_by_noise_and_resumed_on_other_workers_with_the_same_bits(
    tmp_path: Path,
) -> None:
    sizes = _killed_and_resumed(tmp_path, NOISY, step=23)
    assert {8, 16, 32} <= set(sizes)
