"""A Wasserstein GAN with a gradient penalty: the critic's loss differentiates the critic."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from ranks import RankFailed
from trainings import gan
from trainings.comparison import (
    LAYOUTS,
    Trained,
    killed_and_resumed,
    plain_steps,
    seeded_model,
    stacked,
    under_paceline,
)


def critic_loss(model: nn.Module, noise: Any, real: Any) -> torch.Tensor:
    """The distance of generated from real points, with slopes of about one between them."""
    assert isinstance(model, gan.Gan)
    with torch.no_grad():
        fake = model.generator(noise)
    distance: torch.Tensor = model.judged(fake).mean() - model.judged(real).mean()
    between = (0.5 * (real + fake)).requires_grad_()
    with torch.enable_grad():  # a validation computes no gradients by itself
        judged = model.judged(between).sum()
        (slope,) = torch.autograd.grad(judged, between, create_graph=True)
    penalty: torch.Tensor = (slope.norm(dim=1) - 1).square().mean()
    return distance + 10 * penalty


def generator_loss(model: nn.Module, noise: Any, real: Any) -> torch.Tensor:
    """Generate points that the critic takes for real."""
    del real
    assert isinstance(model, gan.Gan)
    return -model.judged(model.generator(noise)).mean()


def wasserstein() -> paceline.Training:
    return paceline.Training(
        model=gan.Gan,
        data=gan.circle(90, seed=3),
        phases={
            "critic": paceline.Phase(
                loss=critic_loss,
                optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
                parameters="discriminator.*",
            ),
            "generator": paceline.Phase(
                loss=generator_loss,
                optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
                parameters="generator.*",
                every=3,
            ),
        },
        batch=32,
        steps=9,
        validation=paceline.Validation(gan.HELD_OUT, every_steps=4),
    )


@pytest.fixture(scope="module")
def plain() -> Trained:
    training, losses = wasserstein(), []
    model = seeded_model(training)
    assert isinstance(model, gan.Gan)
    criticizes = torch.optim.Adam(model.discriminator.parameters(), lr=0.01)
    generates = torch.optim.Adam(model.generator.parameters(), lr=0.01)
    for step, samples in enumerate(plain_steps(training), 1):
        noise, real = stacked(samples)
        loss = critic_loss(model, noise, real)
        model.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        criticizes.step()
        losses.append(loss.item())
        if step % 3 == 0:
            model.zero_grad()
            generator_loss(model, noise, real).backward()  # type: ignore[no-untyped-call]
            generates.step()
    return Trained.of(losses, model)


@pytest.mark.parametrize("layout", ["1 worker", "2 replicas"])
def test_it_equals_a_plain_loop(layout: str, plain: Trained, tmp_path: Path) -> None:
    under_paceline(wasserstein, LAYOUTS[layout], tmp_path).check_equals(plain)


@pytest.mark.nightly  # no state of its own: test_buffers.py, test_closures.py and others have one
def test_it_resumes_after_a_kill(plain: Trained, tmp_path: Path) -> None:
    killed_and_resumed(wasserstein, LAYOUTS["2 replicas"], tmp_path, killed_after=5).check_equals(
        plain.after(4)
    )


def test_shards_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="loss differentiates the model itself"):
        under_paceline(wasserstein, LAYOUTS["2 shards"], tmp_path)
