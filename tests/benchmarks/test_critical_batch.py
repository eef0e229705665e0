"""Samples to a target, and the critical batch that they follow, on made-up tasks."""

import math

import pytest
import torch
from torch.utils.data import TensorDataset

from benchmarks.learning import critical, train


def test_the_critical_batch_comes_back() -> None:
    # There was no measured critical batch beside the probed one.
    samples = {batch: 1000 * (1 + batch / 64) for batch in (16, 32, 64, 128)}
    assert critical.fitted(samples | {256: math.inf}) == pytest.approx(64)
    assert critical.fitted({16: 1000.0, 32: 990.0, 64: 980.0}) is None
    assert critical.fitted({16: 1000.0, 32: 1100.0, 64: math.inf}) is None


def test_a_target_between_two_evaluations() -> None:
    curve = [(100.0, 3.0), (200.0, 2.0), (300.0, 1.0)]
    assert critical.samples_to(1.25, curve) == 275
    assert critical.samples_to(0.5, curve) == math.inf
    assert critical.samples_to(3.0, curve[:1]) == 100
    assert critical.samples_to(3.0, []) == math.inf


def test_a_branch_reaches_the_loss_of_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    def data(task: str, *, held_out: bool) -> TensorDataset:
        inputs = torch.randn(16_384, 64, generator=torch.Generator().manual_seed(int(held_out)))
        return TensorDataset(inputs, inputs[:, :10].argmax(1))

    monkeypatch.setattr(train, "data", data)
    monkeypatch.setitem(critical.AFTER, "teacher", 5_120)
    base = critical.Branch("teacher", "adamw", 0)
    target = critical.target_of(base)
    found = critical.branched(critical.Branch("teacher", "adamw", 0, 1, target))
    assert found[1.0] == pytest.approx(5_120)
    larger = critical.branched(critical.Branch("teacher", "adamw", 0, 8, target))
    assert math.isfinite(min(larger.values()))
