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
from ranks import run_ranks

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


def _train(
    steps: int, layout: Layout, folder: Path, place: str, optimizer: str = "momentum"
) -> tuple[list[float], dict[str, torch.Tensor]]:
    exported = folder / f"{layout.workers}-{steps}.safetensors"
    losses = run_ranks(
        trained,
        layout.workers,
        folder,
        steps,
        optimizer,
        str(exported),
        layout=layout,
        saving=Saving(every_steps=100, folder=place),
    )[0]
    return losses, safetensors.torch.load_file(exported)


def _named(layout: Layout) -> str:
    return ", ".join(
        f"{key}={value}" for key, value in layout.model_dump(exclude_defaults=True).items()
    )


@pytest.mark.parametrize(
    "after",
    [
        Layout(),
        Layout(replicas=2),
        Layout(replicas=3),
        Layout(shards=3),
        Layout(tensor=2),
        Layout(pipeline=2),
        Layout(pipeline=2, schedule="interleaved"),
    ],
    ids=_named,
)
def test_shards_of_slices_anywhere_else(after: Layout, tmp_path: Path) -> None:
    place = str(tmp_path / "checkpoints")
    _, saved = _train(STEPS, Layout(shards=2, tensor=2), tmp_path, place)
    again, same = _train(STEPS, after, tmp_path / "same", place)
    assert again == []  # nothing was left to do
    assert saved.keys() == same.keys()
    assert all(torch.equal(saved[name], same[name]) for name in saved)
    went_on, final = _train(2 * STEPS, after, tmp_path / "on", place)
    alone, expected = _train(2 * STEPS, Layout(), tmp_path / "alone", str(tmp_path / "none"))
    assert went_on == pytest.approx(alone[STEPS:], rel=1e-4)
    for name, tensor in expected.items():
        torch.testing.assert_close(final[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "before",
    [
        Layout(pipeline=2, schedule="interleaved", shards=2),
        Layout(replicas=2, pipeline=2),
        Layout(replicas=2, shards=2),
        Layout(pipeline=2, tensor=2),
    ],
    ids=_named,
)
def test_anything_on_one_worker(before: Layout, tmp_path: Path) -> None:
    place = str(tmp_path / "checkpoints")
    _, saved = _train(STEPS, before, tmp_path, place, "adam")
    _, same = _train(STEPS, Layout(), tmp_path / "same", place, "adam")
    assert all(torch.equal(saved[name], same[name]) for name in saved)
    went_on, _ = _train(2 * STEPS, Layout(), tmp_path / "on", place, "adam")
    nowhere = str(tmp_path / "none")
    alone, _ = _train(2 * STEPS, Layout(), tmp_path / "alone", nowhere, "adam")
    assert went_on == pytest.approx(alone[STEPS:], rel=1e-4)
