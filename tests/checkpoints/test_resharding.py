"""What one layout saved, another takes up: the same weights, and the same training after it."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import paceline
from layouts import models
from paceline.specs import Layout, Saving
from ranks import go_on, new_run, run_ranks

pytestmark = pytest.mark.slow

STEPS = 4


OPTIMIZERS: dict[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
    "momentum": partial(torch.optim.SGD, lr=0.05, momentum=0.9),
    "adam": partial(torch.optim.AdamW, lr=1e-2),
}


def trained(steps: int, optimizer: str, exported: str) -> list[float]:
    """Train until `steps`, from where the checkpoints have come to; the losses on the way."""
    losses = []
    training = models.training_of("gpt", steps=steps, optimizer=OPTIMIZERS[optimizer])
    with paceline.start(training) as trainer:
        for batch in trainer:
            trainer.step(batch)
            trainer.save()
            losses.append(trainer.progress.loss)
        trainer.export(exported)
    return losses


class RunHistory:
    """A run that is started again and again, each time in another layout."""

    def __init__(self, folder: Path, optimizer: str) -> None:
        self._folder, self._optimizer, self._starts = folder, optimizer, 0
        folder.mkdir()
        self._run = new_run(folder, 1, saving=Saving(every_steps=100))

    def train(self, steps: int, layout: Layout) -> tuple[list[float], dict[str, torch.Tensor]]:
        """Go on until `steps`: the losses on the way, and the weights at the end."""
        go_on(self._run, self._starts, layout=layout)
        self._starts += 1
        exported = self._folder / f"{self._starts}.safetensors"
        losses = run_ranks(
            trained,
            layout.workers,
            self._folder,
            steps,
            self._optimizer,
            str(exported),
            run=self._run,
        )[0]
        return losses, safetensors.torch.load_file(exported)


def _named(layout: Layout) -> str:
    return ", ".join(
        f"{key}={value}" for key, value in layout.model_dump(exclude_defaults=True).items()
    )


@pytest.mark.parametrize(
    "after",
    [
        Layout(shards=3),
        pytest.param(Layout(), marks=pytest.mark.nightly),
        pytest.param(Layout(replicas=2), marks=pytest.mark.nightly),
        pytest.param(Layout(replicas=3), marks=pytest.mark.nightly),
        pytest.param(Layout(tensor=2), marks=pytest.mark.nightly),
        pytest.param(Layout(pipeline=2), marks=pytest.mark.nightly),
        pytest.param(Layout(pipeline=2, schedule="interleaved"), marks=pytest.mark.nightly),
    ],
    ids=_named,
)
def test_shards_of_slices_anywhere_else(after: Layout, tmp_path: Path) -> None:
    story, alone = (
        RunHistory(tmp_path / "story", "momentum"),
        RunHistory(tmp_path / "alone", "momentum"),
    )
    _, saved = story.train(STEPS, Layout(shards=2, tensor=2))
    again, same = story.train(STEPS, after)
    assert again == []  # nothing was left to do
    assert saved.keys() == same.keys()
    assert all(torch.equal(saved[name], same[name]) for name in saved)
    went_on, final = story.train(2 * STEPS, after)
    losses, expected = alone.train(2 * STEPS, Layout())
    assert went_on == pytest.approx(losses[STEPS:], rel=1e-4)
    for name, tensor in expected.items():
        torch.testing.assert_close(final[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "before",
    [
        Layout(pipeline=2, schedule="interleaved", shards=2),
        pytest.param(Layout(replicas=2, pipeline=2), marks=pytest.mark.nightly),
        pytest.param(Layout(replicas=2, shards=2), marks=pytest.mark.nightly),
        pytest.param(Layout(pipeline=2, tensor=2), marks=pytest.mark.nightly),
    ],
    ids=_named,
)
def test_anything_on_one_worker(before: Layout, tmp_path: Path) -> None:
    story, alone = RunHistory(tmp_path / "story", "adam"), RunHistory(tmp_path / "alone", "adam")
    _, saved = story.train(STEPS, before)
    _, same = story.train(STEPS, Layout())
    assert all(torch.equal(saved[name], same[name]) for name in saved)
    went_on, _ = story.train(2 * STEPS, Layout())
    losses, _ = alone.train(2 * STEPS, Layout())
    assert went_on == pytest.approx(losses[STEPS:], rel=1e-4)
