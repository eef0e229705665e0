"""Graphs to mix on: shares that add up, and nobody cut off."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.sync.modes.gossip.graphs import matrix, peers

GRAPHS = ("ring", "exponential", "random")
graphs = st.sampled_from(GRAPHS)
workers_ = st.integers(1, 12)
steps = st.integers(0, 10_000)
quick = settings(max_examples=60, deadline=None)


def mixing(graph: str, workers: int, step: int) -> torch.Tensor:
    return torch.tensor(matrix(graph, workers, step), dtype=torch.float64)


@quick
@given(graphs, workers_, steps)
def test_shares_add_up(graph: str, workers: int, step: int) -> None:
    found = mixing(graph, workers, step)
    ones = torch.ones(workers, dtype=torch.float64)
    assert (found >= 0).all()
    torch.testing.assert_close(found.sum(0), ones)  # all of what is sent arrives
    torch.testing.assert_close(found.sum(1), ones)  # and it is a mean: push-sum's weight stays 1


@quick
@given(graphs, workers_, steps)
def test_peers_are_others_and_everybody_sends_as_much_as_it_receives(
    graph: str, workers: int, step: int
) -> None:
    found = peers(graph, workers, step)
    for rank, receivers in enumerate(found):
        assert rank not in receivers
        assert len(set(receivers)) == len(receivers)
        assert set(receivers) <= set(range(workers))
        assert len(receivers) == sum(rank in others for others in found)
        assert receivers or workers == 1


@quick
@given(graphs, workers_, steps)
def test_what_one_has_comes_to_all(graph: str, workers: int, step: int) -> None:
    product = torch.eye(workers, dtype=torch.float64)
    for number in range(step, step + max(1, workers - 1)):
        product = mixing(graph, workers, number) @ product
    assert (product > 0).all()


@quick
@given(workers_, steps)
def test_exponential_comes_to_all_in_a_period(workers: int, step: int) -> None:
    period = math.ceil(math.log2(workers))
    product = torch.eye(workers, dtype=torch.float64)
    for number in range(step, step + period):
        product = mixing("exponential", workers, number) @ product
    assert (product > 0).all()
    if workers == 2**period:
        torch.testing.assert_close(product, torch.full_like(product, 1 / workers))


@pytest.mark.parametrize("workers", range(3, 13))
def test_a_ring_forgets_differences_as_fast_as_its_spectrum_says(workers: int) -> None:
    apart = mixing("ring", workers, 0) - 1 / workers
    slowest = torch.linalg.eigvalsh(apart).abs().max().item()
    cosines = [math.cos(2 * math.pi * number / workers) for number in range(1, workers)]
    assert slowest == pytest.approx(max(abs(1 + 2 * each) / 3 for each in cosines), abs=1e-12)


@pytest.mark.parametrize("workers", range(2, 13))
def test_a_random_circle_shrinks_squared_distances_by_a_known_factor(workers: int) -> None:
    """A circle takes each pair of neighbours with the same chance: (n - 2) / 2 (n - 1) are left."""
    draws = 2000
    squares = torch.stack(
        [
            mixing("random", workers, step).T @ mixing("random", workers, step)
            for step in range(draws)
        ]
    )
    mean = squares.mean(0) - 1 / workers
    expected = (workers - 2) / (2 * (workers - 1))
    assert mean.trace().item() / (workers - 1) == pytest.approx(expected, abs=1e-12)
    # Not only on average over all directions: in each of them, as far as 2000 draws can tell.
    others = torch.linalg.eigvalsh(mean)[1:] if workers > 2 else torch.zeros(1)
    assert others.min().item() == pytest.approx(expected, abs=0.1)
    assert others.max().item() == pytest.approx(expected, abs=0.1)


def test_circles_differ_from_step_to_step() -> None:
    found = {tuple(peers("random", 8, step)) for step in range(100)}
    assert len(found) > 90
