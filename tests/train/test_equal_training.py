"""The same training on any number of workers."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ranks import run_ranks
from train.trainings import fit_and_read


def trained(workers: int, folder: Path, **changes: Any) -> tuple[list[float], list[float]]:
    losses, weights = run_ranks(fit_and_read, workers, folder, changes)[0]
    return losses, weights


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[float], list[float]]:
    return trained(1, tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.nightly), 4])
def test_losses_and_weights_agree_with_one_worker(
    workers: int, alone: tuple[list[float], list[float]], tmp_path: Path
) -> None:
    losses, weights = trained(workers, tmp_path)
    assert len(losses) == 50
    assert losses == pytest.approx(alone[0], rel=1e-5)
    assert weights == pytest.approx(alone[1], rel=1e-4, abs=1e-5)
    assert losses[-1] < losses[0] / 2


def test_same_seed_and_workers_give_the_same_losses_to_the_bit(tmp_path: Path) -> None:
    first, second = (trained(2, tmp_path / name) for name in ("first", "second"))
    assert first == second


def test_another_seed_gives_other_losses(
    alone: tuple[list[float], list[float]], tmp_path: Path
) -> None:
    assert trained(1, tmp_path, seed=1)[0] != alone[0]


def test_a_last_batch_smaller_than_the_number_of_workers_counts_each_sample_once(
    tmp_path: Path,
) -> None:
    changes = {"samples": 97, "batch": 32, "steps": 12}  # the fourth batch holds one sample
    one = trained(1, tmp_path / "one", **changes)
    three = trained(3, tmp_path / "three", **changes)
    assert three[0] == pytest.approx(one[0], rel=1e-5)
    assert three[1] == pytest.approx(one[1], rel=1e-4, abs=1e-5)


def weighted(changes: dict[str, Any]) -> tuple[list[float], list[float]]:
    """A loss that is a mean over some of the samples: those of the classes 0 to 2."""

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        counted = target < 3
        each = torch.nn.functional.cross_entropy(output, target, reduction="none")
        return (each * counted).sum() / counted.sum().clamp(min=1)

    return fit_and_read(
        changes
        | {
            "loss": loss,
            "weight": lambda target: (target < 3).sum(),
            # gentle enough that rounding does not grow: eight samples make a noisy batch
            "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.05),
        }
    )


def test_a_loss_weighted_by_something_else_than_samples(tmp_path: Path) -> None:
    one = run_ranks(weighted, 1, tmp_path / "one", {"batch": 8})[0]
    three = run_ranks(weighted, 3, tmp_path / "three", {"batch": 8})[0]
    assert three[0] == pytest.approx(one[0], rel=1e-5)


def clipped(changes: dict[str, Any]) -> tuple[list[float], list[float]]:
    return fit_and_read(
        changes
        | {
            "clip": 0.1,
            "schedule": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5),
        }
    )


def test_clipping_and_schedule_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    one = run_ranks(clipped, 1, tmp_path / "one", {})[0]
    two = run_ranks(clipped, 2, tmp_path / "two", {})[0]
    assert two[0] == pytest.approx(one[0], rel=1e-5)
