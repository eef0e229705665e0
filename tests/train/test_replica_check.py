"""Replicas that hold something else are found, and repaired by the majority."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import paceline
from paceline.comm.dtensor import local_tensor
from paceline.specs import Layout, PacelineError
from paceline.sync.modes.allreduce import AllReduce
from paceline.sync.modes.local import Local
from paceline.train.monitor import replica_check
from paceline.train.monitor.replica_check import (
    check_comparable,
    common_tensors,
    digest,
    odd_ones_out,
)
from ranks import PATIENT, RankFailed, run_ranks
from train.trainings import classification
from train.watched import found, rank, watched_run

CPU = torch.device("cpu")
CHECK_EVERY, STEPS = 4, 6
BIT = 10
"""So low that no loss would show it, and not so low that the next step rounds it away."""


def train(flipped_on: int | None, flipped_in: int, what: str) -> list[int]:
    """Train, with a bit that flips in the update of a step on a worker; what it holds afterwards,
    in bits."""
    step = 0

    def flip(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if step == flipped_in and rank() == flipped_on:
            weight = optimizer.param_groups[0]["params"][0]
            whole = weight if what == "weight" else optimizer.state[weight][what]
            local_tensor(whole).detach().view(-1).view(torch.int32)[3].bitwise_xor_(1 << BIT)

    training = classification(
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.01), steps=STEPS
    )
    with paceline.start(training) as trainer:
        trainer.optimizer.register_step_post_hook(flip)
        for batch in trainer:
            step += 1
            trainer.step(batch)
        parallel_model = trainer._stepper.parallel_model
        assert parallel_model is not None
        all_held = common_tensors(parallel_model, [trainer.optimizer])
        return [bits for each in all_held for bits in each.flatten().view(torch.int32).tolist()]


def checked_run(folder: Path, layout: Layout) -> Any:
    faults = PATIENT.model_copy(update={"check_every": CHECK_EVERY})
    return watched_run(folder, layout, faults=faults)


@pytest.mark.parametrize(
    ("layout", "what"),
    [
        (Layout(replicas=3), "weight"),
        pytest.param(Layout(replicas=3, shards=2), "exp_avg", marks=pytest.mark.nightly),
    ],
    ids=["copied weight", "sharded optimizer"],
)
def test_a_flipped_bit_in_one_of_three_replicas_is_repaired(
    tmp_path: Path, layout: Layout, what: str
) -> None:
    runs = [checked_run(tmp_path / name, layout) for name in ("undisturbed", "flipped")]
    undisturbed, flipped = (
        run_ranks(train, layout.workers, tmp_path, where, CHECK_EVERY, what, run=run)
        for where, run in zip((None, 2), runs, strict=True)
    )
    assert flipped == undisturbed
    assert found(runs[0]) == []
    (event,) = found(runs[1])
    assert (event.kind, event.what) == ("refused", "corrupt")
    assert (event.step, event.ranks) == (CHECK_EVERY, [2])


def test_steps_between_the_flip_and_the_check_are_the_same_on_all(tmp_path: Path) -> None:
    run = checked_run(tmp_path, Layout(replicas=3))
    first, second, third = run_ranks(train, 3, tmp_path, 0, CHECK_EVERY - 2, "weight", run=run)
    assert first == second == third
    (event,) = found(run)
    assert (event.step, event.ranks) == (CHECK_EVERY, [0])


def test_two_replicas_that_differ_end_the_training(tmp_path: Path) -> None:
    run = checked_run(tmp_path, Layout(replicas=2))
    with pytest.raises(RankFailed, match=r"after step 4 .* of workers 0, 1 differ") as error:
        run_ranks(train, 2, tmp_path, 1, 3, "weight", run=run)
    assert "with 3 replicas or more" in str(error.value)


def test_replicas_that_differ_by_design_are_not_compared() -> None:
    check_comparable(0, Local())
    check_comparable(5, AllReduce())
    with pytest.raises(PacelineError, match="check_every=5 was given together with mode=local"):
        check_comparable(5, Local())


@given(
    st.integers(1, 33),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    st.integers(0, 1 << 20),
    st.sampled_from([1, 16, 100, 1 << 18]),
)
def test_any_one_flipped_bit_shows(
    size: int, dtype: torch.dtype, number: int, stretch_bytes: int
) -> None:
    whole = torch.arange(size + 1).to(dtype)
    tensors = [torch.ones(3), whole[1:], torch.tensor(4.0)]
    image = whole[1:].view(torch.uint8)
    byte, bit = number // 8 % len(image), number % 8
    with mock.patch.object(replica_check, "_STRETCH_BYTES", stretch_bytes):
        before = digest(tensors, CPU)
        image[byte] ^= 1 << bit
        assert digest(tensors, CPU) != before
        image[byte] ^= 1 << bit
        assert digest(tensors, CPU) == before


@pytest.mark.parametrize(
    ("digests", "odd"),
    [
        ([5, 5, 5], []),
        ([5, 7, 5], [1]),
        ([7, 5, 5, 9, 5], [0, 3]),
        ([5, 7], None),
        ([5, 5, 7, 7], None),
        ([5, 7, 9], None),
    ],
)
def test_the_majority_decides(digests: list[int], odd: list[int] | None) -> None:
    assert odd_ones_out(digests) == odd
