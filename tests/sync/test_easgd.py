"""Elastic averaging, held against its formula in one process and against a closed form."""

from functools import partial
from pathlib import Path

import pytest
import torch

from paceline.specs import Layout, PacelineError
from paceline.sync.modes.easgd import ElasticAveraging
from sync.simulated import Replicas
from sync.stepwise import moved, steps_on_ranks, whole_and_resumed

STEPS = 12


def simulated(workers: int, sync: ElasticAveraging) -> torch.Tensor:
    """The weights after every step, and at the end the centre."""
    replicas = Replicas(workers, steps=STEPS, batch=30)
    centre = replicas.weights()[0]
    found = []
    for step in range(1, STEPS + 1):
        before = replicas.weights()
        replicas.gradients(step)
        replicas.update()
        if step % sync.every == 0:
            pulls = [sync.pull * (row - centre) for row in before]
            after = replicas.weights()
            replicas.set_weights([row - pull for row, pull in zip(after, pulls, strict=True)])
            centre = centre + sum(pulls)
        found.append(torch.stack(replicas.weights()))
    return torch.stack([*found, centre.expand_as(found[-1])])


@pytest.mark.parametrize(
    ("workers", "words"),
    [
        (3, "easgd:every=1,pull=0.3"),
        pytest.param(2, "easgd", marks=pytest.mark.nightly),
        pytest.param(4, "easgd:every=5", marks=pytest.mark.nightly),
    ],
)
def test_steps_are_those_of_the_formula(tmp_path: Path, workers: int, words: str) -> None:
    sync = ElasticAveraging.parse(words)
    found = steps_on_ranks(tmp_path, workers, sync, steps=STEPS, batch=30)
    torch.testing.assert_close(found, simulated(workers, sync), atol=1e-5, rtol=1e-5)


def test_without_learning_all_come_to_a_known_place_at_a_known_rate(tmp_path: Path) -> None:
    """Differences between workers shrink by 1 - pull, that of their mean and the centre by 1 -
    (workers + 1) x pull, and the sum of workers and centre stays what it is."""
    workers, pull, steps = 3, 0.15, 10
    sync = ElasticAveraging.parse(f"easgd:every=1,pull={pull}")
    still = partial(torch.optim.SGD, lr=0.0)
    found = steps_on_ranks(tmp_path, workers, sync, 0.5, steps=steps, batch=30, optimizer=still)
    centre = Replicas(1, steps=1, batch=30).weights()[0]
    begin = torch.stack([moved(centre, rank, 0.5) for rank in range(workers)])
    mean = begin.mean(0)
    rest = (workers * mean + centre) / (workers + 1)
    for step in range(1, steps + 1):
        left = (1 - (workers + 1) * pull) ** step
        expected = rest + (mean - rest) * left + (begin - mean) * (1 - pull) ** step
        torch.testing.assert_close(found[step - 1], expected, atol=1e-6, rtol=1e-5)
    expected = rest + (centre - rest) * left
    torch.testing.assert_close(found[-1], expected.expand(workers, -1), atol=1e-6, rtol=1e-5)


def test_resumed_it_goes_on_as_it_would_have_and_twice_the_same(tmp_path: Path) -> None:
    sync = ElasticAveraging.parse("easgd:every=3")
    whole, resumed = whole_and_resumed(tmp_path, 3, sync, steps=STEPS, batch=30)
    assert torch.equal(whole, resumed)


def test_a_pull_under_which_the_centre_would_never_rest_is_refused() -> None:
    ElasticAveraging.parse("easgd:pull=0.39").check(Layout(replicas=4))
    with pytest.raises(PacelineError, match=r"pull=0\.4 was given for 4 replicas"):
        ElasticAveraging.parse("easgd:pull=0.4").check(Layout(replicas=4))
