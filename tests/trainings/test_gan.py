"""A GAN: two optimizers, one of them in every second step, against a plain loop."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import ExponentialLR

from command import paceline
from paceline import fit
from paceline.checkpoints.ledger import read_ledger
from paceline.report import RunReader
from paceline.schedulers.task_placement import run_folder
from paceline.specs import Layout, Regrouped, Run, event_adapter
from ranks import RankFailed, run_ranks
from trainings import gan
from trainings.comparison import (
    LAYOUTS,
    TOLERANCE,
    Trained,
    killed_and_resumed,
    plain_steps,
    seeded_model,
    stacked,
    under_paceline,
)


def plain_gan() -> Iterator[tuple[gan.Gan, float]]:
    """Train in plain PyTorch; yield the model and the discriminator's loss after every step."""
    training = gan.training()
    model = seeded_model(training)
    assert isinstance(model, gan.Gan)
    discriminates = torch.optim.Adam(model.discriminator.parameters(), lr=0.01)
    generates = torch.optim.SGD(model.generator.parameters(), lr=0.5, momentum=0.9)
    rate = ExponentialLR(generates, 0.9)
    for step, samples in enumerate(plain_steps(training), 1):
        noise, real = stacked(samples)
        loss = gan.discriminator_loss(model, noise, real)
        model.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(model.discriminator.parameters(), 0.5)
        discriminates.step()
        if step % 2 == 0:
            model.zero_grad()
            gan.generator_loss(model, noise, real).backward()  # type: ignore[no-untyped-call]
            generates.step()
            rate.step()
        yield model, loss.item()


@pytest.fixture(scope="module")
def plain() -> Trained:
    steps = list(plain_gan())
    return Trained.of([loss for _, loss in steps], steps[-1][0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_equals_a_plain_loop(layout: str, plain: Trained, tmp_path: Path) -> None:
    under_paceline(gan.training, LAYOUTS[layout], tmp_path).check_equals(plain)


@pytest.mark.parametrize(
    "layout",
    [Layout(replicas=2, micro_batch=5), Layout(shards=2, micro_batch=5)],
    ids=["replicas", "shards"],
)
def test_it_accumulates_gradients(layout: Layout, plain: Trained, tmp_path: Path) -> None:
    under_paceline(gan.training, layout, tmp_path).check_equals(plain)


@pytest.mark.parametrize(
    "layout", [pytest.param("2 replicas", marks=pytest.mark.nightly), "2 shards"]
)
def test_it_resumes_after_a_kill(layout: str, plain: Trained, tmp_path: Path) -> None:
    killed_and_resumed(gan.training, LAYOUTS[layout], tmp_path, killed_after=6).check_equals(
        plain.after(5)
    )


def validate() -> dict[str, list[float]]:
    """Train with a validation, and return the metrics that the run's folder has."""
    done = fit(gan.validated())
    folder = run_folder()
    assert folder is not None
    assert done.steps == gan.STEPS
    assert (folder / "best.safetensors").exists()
    return {
        name: series.value
        for name, series in RunReader(Run(folder)).refresh().metrics.items()
        if name.startswith("validation/")
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_validates_as_a_plain_loop(layout: str, tmp_path: Path) -> None:
    noise, real = gan.HELD_OUT.tensors
    losses, distances = [], []
    for step, (model, _) in enumerate(plain_gan(), 1):
        if step % gan.VALIDATED_EVERY == 0:
            losses.append(gan.discriminator_loss(model, noise, real).item())
            distances.append(gan.distance(model.generator(noise), real).item())
    found = run_ranks(validate, LAYOUTS[layout].workers, tmp_path, layout=LAYOUTS[layout])[0]
    assert found["validation/loss"] == pytest.approx(losses, rel=TOLERANCE)
    assert found["validation/distance"] == pytest.approx(distances, rel=TOLERANCE)


def fit_without_forward() -> None:
    fit(gan.validated().replace(model=gan.Gan))


def test_metrics_need_a_forward(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="forward, but Gan has none"):
        run_ranks(fit_without_forward, 1, tmp_path)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("victim", [0, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_worker_dies_between_two_phases(plain: Trained, tmp_path: Path, victim: int) -> None:
    train = Path(gan.__file__)
    words = ("run", f"{train}:struck", "-n", "3", "--ledger", "--save-every", "0", "--quiet")
    paceline(*words, folder=tmp_path, VICTIM=str(victim))
    for name, weight in load_file(tmp_path / "weights.safetensors").items():
        expected = pytest.approx(plain.weights[name], rel=10 * TOLERANCE, abs=TOLERANCE)
        assert weight.flatten().tolist() == expected, name
    (folder,) = (tmp_path / "runs").iterdir()
    run = Run.open(folder)
    lines = [line for file in run.events.iterdir() for line in file.read_text().splitlines()]
    events = [event_adapter.validate_json(line) for line in lines]
    first = next(each for each in events if isinstance(each, Regrouped))
    assert (first.workers, first.lost, first.source) == (2, [victim], "members")
    assert (first.step, first.steps_again) == (gan.KILLED_IN_STEP - 1, 0)
    state = RunReader(run).refresh()
    assert state.status == "finished"
    assert state.step == list(range(1, gan.STEPS + 1))
    *whole, last = read_ledger(run.ledger)
    assert all(epoch.exact for epoch in whole)
    assert not last.repeated
    assert not last.incomplete_steps
