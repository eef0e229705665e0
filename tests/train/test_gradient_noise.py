"""Every layout measures the gradient noise that one process finds from the parts' gradients."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import paceline
from layouts.models import training_of
from paceline.learning.noise_scale import variance_and_signal
from paceline.schedulers.task_placement import run_folder
from paceline.specs import Layout, Noise, Run, SyncSettings, event_adapter
from paceline.sync.modes.canonical import Canonical
from paceline.user.parameters import Parameters
from ranks import new_run, run_ranks
from trainings.comparison import plain_steps, seeded_model, stacked

STEPS = 2
"""The third batch of the data is smaller."""
Measured = list[tuple[int, float, float, float]]
"""Step, samples, variance and signal of each measured step."""


def _training(changes: dict[str, Any]) -> paceline.Training:
    settings: dict[str, Any] = {"steps": STEPS, "noise_every": 1, "clip": 0.1}
    return training_of("encoder-decoder", **settings | changes)


def _events(changes: dict[str, Any]) -> list[Noise]:
    with paceline.start(_training(changes)) as trainer:
        for batch in trainer:
            trainer.step(batch)
    folder = run_folder()
    assert folder is not None
    lines = [
        line for file in Run(folder).events.iterdir() for line in file.read_text().splitlines()
    ]
    return [each for each in map(event_adapter.validate_json, lines) if isinstance(each, Noise)]


def _measured(changes: dict[str, Any]) -> Measured:
    found: Measured = []
    for event in _events(changes):
        found += zip(event.steps, event.samples, event.variance, event.signal, strict=True)
    return found


def _on_workers(
    layout: Layout, folder: Path, sync: SyncSettings | None = None, **changes: Any
) -> Measured:
    run = new_run(folder, layout.workers, layout, sync=sync)
    found: Measured = run_ranks(_measured, layout.workers, folder, changes, run=run)[0]
    return found


def _by_hand(sizes: list[int]) -> Measured:
    """Train plainly; measure from the gradients of the parts of each batch, one after another."""
    training = _training({})
    model = seeded_model(training)
    optimizer = training.optimizer(Parameters(model.named_parameters()))
    found: Measured = []
    for step, samples in enumerate(plain_steps(training), start=1):
        text, target = stacked(samples)
        gradients = []
        for part in torch.split(torch.arange(len(text)), sizes):
            model.zero_grad()
            torch.autograd.backward(training.loss(model(text[part], text[part]), target[part]))
            gradients.append(
                torch.cat(
                    [each.grad.flatten() for each in model.parameters() if each.grad is not None]
                )
            )
        shares = torch.tensor(sizes) / len(text)
        whole = sum(share * each for share, each in zip(shares, gradients, strict=True))
        assert isinstance(whole, torch.Tensor)
        mean_square = sum(float(s * (g @ g)) for s, g in zip(shares, gradients, strict=True))
        norms = variance_and_signal(mean_square, float(whole @ whole), len(sizes), len(text))
        found.append((step, len(text), *norms))
        model.zero_grad()
        torch.autograd.backward(training.loss(model(text, text), target))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    return found


def _check_equal(found: Measured, expected: Measured) -> None:
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    for (*_, variance, signal), (*_, wanted, wanted_signal) in zip(found, expected, strict=True):
        assert variance == pytest.approx(wanted, rel=1e-3)
        assert signal == pytest.approx(wanted_signal, rel=1e-3, abs=1e-3 * wanted)


CASES = [
    pytest.param(Layout(micro_batch=6), [6] * 4, id="micro-batches"),
    pytest.param(Layout(replicas=2), [12] * 2, id="2 replicas"),
    pytest.param(Layout(replicas=2, speeds=(1.0, 2.0)), [8, 16], id="unequal parts"),
    pytest.param(Layout(shards=2), [12] * 2, id="2 shards"),
    pytest.param(Layout(shards=2, micro_batch=4), [12] * 2, id="2 shards, micro-batches"),
    pytest.param(Layout(tensor=2, micro_batch=12), [12] * 2, id="2 slices"),
    pytest.param(Layout(pipeline=2, micro_batch=6), [6] * 4, id="2 stages"),
    pytest.param(
        Layout(replicas=2, micro_batch=6),
        [6] * 4,
        id="2 replicas, micro-batches",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        Layout(replicas=2, shards=2), [6] * 4, id="2 x 2 shards", marks=pytest.mark.nightly
    ),
    # Shards of slices and of stages were not measured.
    pytest.param(Layout(shards=2, tensor=2), [12] * 2, id="2 shards x 2 slices"),
    pytest.param(
        Layout(shards=2, pipeline=2, micro_batch=6),
        [12] * 2,
        id="2 shards x 2 stages",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        Layout(shards=2, tensor=2, pipeline=2, micro_batch=6),
        [12] * 2,
        id="2 shards x 2 slices x 2 stages",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        Layout(pipeline=2, tensor=2, micro_batch=6),
        [6] * 4,
        id="2 stages x 2 slices",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        Layout(pipeline=2, replicas=2, micro_batch=6),
        [6] * 4,
        id="2 stages x 2 replicas",
        marks=pytest.mark.nightly,
    ),
]


@pytest.mark.parametrize(("layout", "sizes"), CASES)
def test_a_layout_measures_what_one_process_does(
    layout: Layout, sizes: list[int], tmp_path: Path
) -> None:
    _check_equal(_on_workers(layout, tmp_path), _by_hand(sizes))


def test_canonical_parts_measure_the_same_on_any_workers(tmp_path: Path) -> None:
    sync = Canonical(parts=4)
    one = _on_workers(Layout(), tmp_path / "1", sync)
    two = _on_workers(Layout(replicas=2), tmp_path / "2", sync)
    assert one == two
    _check_equal(one, _by_hand([6] * 4))


def test_a_training_without_parts_or_with_batch_norm_is_not_measured(tmp_path: Path) -> None:
    assert not _on_workers(Layout(), tmp_path / "one part")
    assert not _on_workers(Layout(replicas=2), tmp_path / "off", noise_every=0)


ADAM: dict[str, Any] = {
    "optimizer": partial(torch.optim.AdamW, lr=1e-3, betas=(0.9, 0.99)),
    "steps": STEPS,
    "clip": None,
}
Weighted = list[tuple[float | None, float | None]]
"""Variance and signal of each measured step."""


def _weighted(changes: dict[str, Any]) -> Weighted:
    found: Weighted = []
    for event in _events(changes):
        found += zip(event.weighted_variance, event.weighted_signal, strict=True)
    return found


def _weighted_by_hand(parts: int) -> tuple[float, float]:
    """Take a plain step; weigh the parts' gradients of the second by Adam's mean square of it."""
    training = _training(ADAM)
    model = seeded_model(training)
    optimizer = training.optimizer(Parameters(model.named_parameters()))
    first, second = map(stacked, plain_steps(training))

    def gradient(text: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        torch.autograd.backward(training.loss(model(text, text), target))
        return torch.cat([_flat(each) for each in model.parameters()])

    root = gradient(*first).abs()
    weights = 1 / (root + 0.1 * root.square().mean().sqrt())
    optimizer.step()
    divided = zip(*(each.chunk(parts) for each in second), strict=True)
    squares = [float(weights @ gradient(*part).square()) for part in divided]
    whole = float(weights @ gradient(*second).square())
    return variance_and_signal(sum(squares) / parts, whole, parts, len(second[0]))


def _flat(parameter: torch.nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad.flatten().clone()


@pytest.mark.parametrize(
    ("layout", "sync", "parts"),
    [
        pytest.param(Layout(micro_batch=1), None, 24, id="samples"),
        pytest.param(Layout(replicas=2), None, 2, id="2 replicas"),
        pytest.param(Layout(replicas=2), Canonical(parts=4), 4, id="canonical"),
    ],
)
def test_adam_weighs_the_coordinates(
    layout: Layout, sync: SyncSettings | None, parts: int, tmp_path: Path
) -> None:
    # Only the plain noise was measured, which understates Adam's critical batch.
    run = new_run(tmp_path, layout.workers, layout, sync=sync)
    before, found = run_ranks(_weighted, layout.workers, tmp_path, ADAM, run=run)[0]
    assert before == (None, None)  # Adam has no state yet
    variance, signal = _weighted_by_hand(parts)
    assert found[0] == pytest.approx(variance, rel=1e-3)
    assert found[1] == pytest.approx(signal, rel=1e-3, abs=1e-3 * variance)


def test_sgd_and_shards_have_no_weighted_noise(tmp_path: Path) -> None:
    cases: list[tuple[Layout, dict[str, Any]]] = [(Layout(micro_batch=6), {})]
    cases.append((Layout(shards=2), ADAM))
    for number, (layout, changes) in enumerate(cases):
        folder = tmp_path / str(number)
        run = new_run(folder, layout.workers, layout)
        found = run_ranks(_weighted, layout.workers, folder, changes, run=run)[0]
        assert found == [(None, None)] * STEPS
