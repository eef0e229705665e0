"""Steps of one's own, held against the same algorithms written down in one process."""

from pathlib import Path

import pytest
import torch

from paceline.sync.modes._local_steps import LocalSteps
from sync.simulated import Replicas, trained

STEPS = 23


def simulated(workers: int, sync: LocalSteps) -> torch.Tensor:
    """Local steps with an outer optimizer, the whole model at once, nothing under way for long."""
    replicas = Replicas(workers, steps=STEPS, batch=30)
    anchor = replicas.weights()[0]
    momentum = torch.zeros_like(anchor)
    adaptive = not isinstance(replicas.optimizers[0], torch.optim.SGD)
    outer_rate, outer_momentum = sync.for_optimizer(adaptive=adaptive).outer
    in_flight: tuple[int, torch.Tensor, list[torch.Tensor]] | None = None

    def land() -> None:
        nonlocal anchor, momentum, in_flight
        assert in_flight is not None
        _, change, launched = in_flight
        momentum = outer_momentum * momentum + change
        anchor = anchor - outer_rate * (change + outer_momentum * momentum)
        now = replicas.weights()
        replicas.set_weights([anchor + x - y for x, y in zip(now, launched, strict=True)])
        in_flight = None

    def launch(step: int) -> None:
        nonlocal in_flight
        now = replicas.weights()
        in_flight = (step + sync.overlap, anchor - torch.stack(now).mean(0), now)

    for step in range(1, STEPS + 1):
        replicas.gradients(step)
        replicas.update()
        if in_flight and in_flight[0] == step:
            land()
        if step % sync.every == 0:
            launch(step)
            if sync.overlap == 0:
                land()
    if in_flight:
        land()
    if STEPS % sync.every or sync.overlap:
        launch(STEPS)
        land()
    return anchor


@pytest.mark.parametrize(
    "words",
    ["local:every=4", "local:every=1", "diloco:every=5", "diloco:every=6,overlap=2"],
)
@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_local_steps_are_those_of_the_algorithm(tmp_path: Path, words: str, workers: int) -> None:
    sync = LocalSteps.parse(words)
    expected = simulated(workers, sync)
    found = trained(tmp_path, workers, sync, steps=STEPS, batch=30)
    for _, weights in found:
        torch.testing.assert_close(torch.tensor(weights), expected, atol=1e-5, rtol=1e-5)
    events = "".join(file.read_text() for file in tmp_path.rglob("events/*"))
    chosen = '"outer_momentum":0.7' in events.replace(" ", "")
    assert chosen == words.startswith("diloco"), "the momentum that the optimizer decides"
