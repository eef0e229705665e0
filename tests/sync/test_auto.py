"""What is chosen by what was measured, and how a run changes to it."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from hypothesis import given
from hypothesis import strategies as st

import paceline
from paceline.schedulers.task_placement import run_folder
from paceline.specs import Run, SyncChanged, SyncSettings, event_adapter
from paceline.specs.plans.traffic import ReplicatedPart
from paceline.sync.modes._local_steps import LocalSteps
from paceline.sync.modes.allreduce import AllReduce
from paceline.sync.modes.auto import Auto
from paceline.sync.modes.auto import hook as auto
from paceline.sync.modes.auto.choosing import Measured, best, predicted
from sync.simulated import trained
from sync.stepwise import whole_and_resumed
from train.trainings import classification

PARAMETERS = 10_000_000


def chosen(ratio: float, workers: int = 4) -> SyncSettings:
    """Where the bytes of a mean gradient take `ratio` times as long as computing."""
    sent = 2 * 4 * PARAMETERS * (workers - 1) / workers
    return best(Measured(0.1, sent / (0.1 * ratio)), workers, PARAMETERS).sync


def test_a_fast_link_asks_for_nothing_but_a_mean_gradient() -> None:
    assert chosen(0.01) == chosen(0.3) == AllReduce()


def test_a_slow_link_asks_for_steps_of_ones_own() -> None:
    assert {chosen(ratio).mode for ratio in (4, 16, 64)} == {"diloco"}


def test_a_link_that_takes_long_to_answer_asks_for_few_messages() -> None:
    measured = Measured(0.1, 1e12, latency_seconds=0.2)
    assert isinstance(best(measured, 4, PARAMETERS).sync, LocalSteps)


@given(st.floats(0.001, 1000), st.floats(1.1, 100), st.integers(2, 64))
def test_a_slower_link_never_asks_for_more_bytes(ratio: float, slower: float, workers: int) -> None:
    fast, slow = (
        chosen(each, workers).traffic(ReplicatedPart(workers, PARAMETERS)).bytes_per_step
        for each in (ratio, ratio * slower)
    )
    assert slow <= fast * (1 + 1e-9)


@given(st.floats(1e-4, 1e3), st.floats(1e3, 1e12), st.integers(2, 64))
def test_nothing_that_could_be_chosen_is_clearly_better(
    seconds: float, rate: float, workers: int
) -> None:
    measured = Measured(seconds, rate)
    found = best(measured, workers, PARAMETERS)
    for words in ("allreduce", "allreduce:compress=int8", "local:every=8,compress=int8"):
        other = predicted(SyncSettings.parse(words), measured, workers, PARAMETERS)
        assert found.cost <= other.cost * 1.2


def changing(changes: dict[str, Any], rates: list[float]) -> tuple[list[str], list[float]]:
    """Train on links that, by what is measured, carry these bytes per second, one for each look;
    what was chosen after them, and the weights in the end."""
    told = iter(rates)

    def measured(**figures: float) -> Measured:
        del figures
        return Measured(0.1, next(told))

    with (
        patch.object(auto, "Measured", measured),
        paceline.start(classification(**changes)) as trainer,
    ):
        for batch in trainer:
            trainer.step(batch)
    folder = run_folder()
    assert folder is not None
    events = [
        event_adapter.validate_json(line)
        for file in Run(folder).events.iterdir()
        for line in file.read_text().splitlines()
    ]
    weights = torch.cat([each.detach().flatten() for each in trainer.model.parameters()])
    return [each.sync.mode for each in events if isinstance(each, SyncChanged)], weights.tolist()


def test_a_run_changes_when_the_link_does(tmp_path: Path) -> None:
    """The figures are made up; what follows from them is not."""
    rates = [1e12, 1e2, 1e12]
    found = trained(tmp_path, 2, Auto(), function=changing_on(rates), steps=90, samples=400)
    assert found[0][0] == ["allreduce", "diloco", "allreduce"]
    assert found[0][1] == found[1][1]


class changing_on:  # a function with its rates, which ranks can be sent
    def __init__(self, rates: list[float]) -> None:
        self._rates = rates

    def __call__(self, changes: dict[str, Any]) -> tuple[list[str], list[float]]:
        return changing(changes, self._rates)


def test_what_was_chosen_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """After the first decision, which a run resumed behind it does not take again, and before the
    second."""
    decided, again = (look + auto.ANSWER_STEPS for look in (auto.FIRST_LOOK, auto.SECOND_LOOK))
    whole, resumed = whole_and_resumed(tmp_path, 2, Auto(), save_every=decided + 2, steps=again - 1)
    torch.testing.assert_close(resumed, whole, atol=0, rtol=0)


def test_alone_there_is_nothing_to_choose(tmp_path: Path) -> None:
    plain = trained(tmp_path / "plain", 1, AllReduce(), steps=20)
    found = trained(tmp_path / "auto", 1, Auto(), steps=20)
    assert found[0][1] == plain[0][1]
