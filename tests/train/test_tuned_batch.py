"""A training that was tuned at another batch: rules for its optimizer, schedule and steps."""

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.learning.rules import in_words
from paceline.specs import Job, Layout, PacelineError, RuleApplied, Saving, SyncSettings
from paceline.train.state.tuned_batch import (
    apply_rule,
    refuse_dependent_samples,
    replicas_apart,
    rule_for,
)
from paceline.train.study_overrides import as_studied
from ranks import RankFailed, go_on, new_run, run_ranks
from train.trainings import classification


def _ruled(optimizer: torch.optim.Optimizer, **changes: Any) -> dict[str, Any]:
    """The settings of an optimizer that was tuned at a batch of 2, for one of 32."""
    training = classification(batch=32, tuned_at=2, **changes)
    rule = rule_for(optimizer, training)
    assert rule is not None
    apply_rule(rule, optimizer)
    return optimizer.param_groups[0]


def _weight() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(1))]


def test_adam_like_optimizers_go_by_the_square_root() -> None:
    adam = torch.optim.AdamW(_weight(), lr=0.001, betas=(0.9, 0.99), weight_decay=0.1)
    found = _ruled(adam)
    assert found["lr"] == pytest.approx(0.004)
    assert found["betas"] == pytest.approx((0.9**16, 0.99**16))
    assert found["weight_decay"] == pytest.approx(0.4)
    found = _ruled(torch.optim.RMSprop(_weight(), lr=0.001, alpha=0.99))
    assert found["alpha"] == pytest.approx(0.99**16)


def test_sgd_goes_with_the_batch_and_levels_off_at_the_noise() -> None:
    sgd: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}
    found = _ruled(torch.optim.SGD(_weight(), **sgd))
    assert found["lr"] == pytest.approx(1.6)
    assert (found["momentum"], found["weight_decay"]) == (0.9, 0.1)
    found = _ruled(torch.optim.SGD(_weight(), **sgd), critical_batch=30.0)
    assert found["lr"] == pytest.approx(0.1 * 16 * (32 / 30) / (62 / 30))
    assert found["lr"] * found["weight_decay"] == pytest.approx(0.01 * 16)


def test_an_optimizer_without_a_rule_is_refused() -> None:
    with pytest.raises(PacelineError, match="Adagrad, for which no rule") as error:
        _ruled(torch.optim.Adagrad(_weight()))
    assert "SGD, Adam, AdamW" in str(error.value)


def test_samples_that_depend_on_each_other_have_no_rule() -> None:
    """With batch normalization or `paceline.gather`, another batch was another computation."""
    training = classification(batch=32, tuned_at=2)
    adam = torch.optim.Adam(_weight())
    with pytest.raises(PacelineError, match="normalizes over the batch in 1: another") as error:
        refuse_dependent_samples(training, nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), adam)
    assert "nn.GroupNorm" in str(error.value)
    model = nn.Linear(2, 2)
    refuse_dependent_samples(training, model, adam)
    adam.step()
    refuse_dependent_samples(training, model, adam)
    paceline.gather(torch.zeros(4, 2))
    with pytest.raises(PacelineError, match="compares the samples of a batch"):
        adam.step()


def test_steps_have_the_tuned_samples_or_those_that_the_batch_needs() -> None:
    tuned = {"batch": 32, "tuned_at": 2}
    assert classification(200, steps=100, **tuned).total_steps == 7
    assert classification(200, steps=None, epochs=3, **tuned).total_steps == 3 * 7
    more = classification(200, steps=100, critical_batch=30.0, **tuned)
    assert (more.tuned_steps, more.total_steps) == (100, -(-7 * 62 // 32))
    assert classification(steps=100).total_steps == 100
    rule = rule_for(torch.optim.Adam(_weight()), more)
    assert rule is not None
    assert in_words(rule, more.total_steps, more.tuned_steps) == (
        "batch 32, tuned at 2: learning rate × 4, betas to the power of 16, weight decay × 4;"
        " 14 steps instead of 100 (samples × 1.94 for a critical batch of 30)"
    )


class Watched(torch.optim.Adam):
    """Remembers the rate of every update."""

    seen: list[float] = []  # noqa: RUF012 -- one process, one training

    def step(self, closure: Any = None) -> Any:
        self.seen.append(self.param_groups[0]["lr"])
        return super().step(closure)


def _rates(dies_after: int | None = None) -> list[float]:
    """The rates of all steps; worker 0 may be killed before."""
    training = classification(
        320,
        batch=32,
        tuned_at=8,
        steps=40,
        optimizer=lambda given: Watched(given, lr=0.1),
        schedule=lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=[2 * group["lr"] for group in optimizer.param_groups], total_steps=40
        ),
    )
    with paceline.start(training) as trainer:
        for batch in trainer:
            if trainer.step(batch).step == dies_after and trainer.is_main:
                os.kill(os.getpid(), signal.SIGKILL)
    return Watched.seen


def _expected() -> list[float]:
    """The rates of a batch four times the tuned one, in a fourth of the steps."""
    adam = torch.optim.Adam(_weight(), lr=0.2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=0.4, total_steps=40)
    expected = []
    for _ in range(39):
        expected.append(adam.param_groups[0]["lr"])
        adam.step()
        schedule.step()
    return expected[::4]


def test_a_run_goes_through_its_schedule_in_fewer_steps(tmp_path: Path) -> None:
    (rates,) = run_ranks(_rates, 1, tmp_path, layout=Layout())
    assert rates == pytest.approx(_expected())
    assert len(rates) == 10


@pytest.mark.parametrize(
    "mode", ["local:every=2", pytest.param("gossip", marks=pytest.mark.nightly), "allreduce"]
)
def test_local_steps_go_by_the_batch_of_a_replica(tmp_path: Path, mode: str) -> None:
    """The rule was that of the global batch, twice of what an update of a replica has."""
    run = new_run(tmp_path, 2, sync=SyncSettings.parse(mode))
    times = 4 if mode == "allreduce" else 2
    for rates in run_ranks(_rates, 2, tmp_path, run=run):
        assert rates[0] == pytest.approx(2 * 0.1 * math.sqrt(times) / 25)
        assert len(rates) == 10
    written = "".join(file.read_text() for file in run.events.iterdir()).splitlines()
    rules = [RuleApplied.model_validate_json(each).rule for each in written if "tuned_at" in each]
    assert [(rule.batch, rule.replicas) for rule in rules] == [(32, 4 // times)]
    said = "batch 32, tuned at 8" if times == 4 else "batch 32 (16 on each replica), tuned at 8"
    assert in_words(rules[0], 10, 40).startswith(said)


def test_a_run_that_goes_on_with_other_replicas_has_their_rule(tmp_path: Path) -> None:
    """It kept the rates of the old ones, from its checkpoint, and printed the new ones."""
    mode, saving = SyncSettings.parse("local:every=2"), Saving(every_steps=2)
    run = new_run(tmp_path, 2, sync=mode, saving=saving)
    with pytest.raises(RankFailed, match="died without a word"):
        run_ranks(_rates, 2, tmp_path, 5, run=run)
    go_on(run, layout=Layout())
    (rates,) = run_ranks(_rates, 1, tmp_path, run=run)
    assert 4 <= len(rates) < 10
    assert rates == pytest.approx(_expected()[-len(rates) :])


def test_a_mode_that_is_not_decided_has_no_rule_and_servers_have_the_whole_batch() -> None:
    training, layout = classification(batch=32, tuned_at=2), Layout(replicas=4)
    assert replicas_apart(SyncSettings.parse("stale"), layout, training) == 1
    assert replicas_apart(SyncSettings.parse("easgd"), layout, training) == 4
    assert replicas_apart(SyncSettings.parse("auto"), layout, classification()) == 4
    with pytest.raises(PacelineError, match="given with --sync auto, which chooses") as error:
        replicas_apart(SyncSettings.parse("auto"), layout, training)
    assert "name a synchronization mode" in str(error.value)


def test_what_contradicts_it_is_refused() -> None:
    with pytest.raises(PacelineError, match=r"tuned_at=0\) trains nothing"):
        classification(tuned_at=0)
    with pytest.raises(PacelineError, match="is no number of samples"):
        classification(tuned_at=8, critical_batch=-1.0)
    job = Job(name="point", folder=Path("/"), python=Path("/bin/python"), batch_times=4)
    with pytest.raises(PacelineError, match="has rules for the batch already"):
        as_studied(classification(tuned_at=8), job)
