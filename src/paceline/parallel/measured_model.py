"""Measure a training's model on a device of this machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from paceline.data.loader import collated
from paceline.parallel.parallel_model import autocast
from paceline.parallel.step.model_calls import call, checked_loss
from paceline.profile.counting import Forward
from paceline.profile.timing import model_times
from paceline.profile.uncounted import (
    DeviceRates,
    UncountedTimes,
    device_rates,
    uncounted_times,
)
from paceline.specs import Layout, ModelTimes
from paceline.user.parameters import Parameters
from paceline.user.training import Training

LARGEST_MICRO_BATCH = 64


def measured(
    training: Training,
    layout: Layout,
    *,
    device: torch.device,
    threads: int | None = None,
    budget_seconds: float,
) -> ModelTimes:
    """Time the model and the optimizer step in a layout's precision."""
    with _threads(threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        model, forward = _on_device(training, layout, device)
        optimizer = training.optimizer(Parameters(model.named_parameters()))

        def step() -> None:
            optimizer.step()
            optimizer.zero_grad()

        return model_times(
            model,
            forward,
            step,
            device=device,
            sizes=_sizes(min(training.largest_batch, LARGEST_MICRO_BATCH)),
            budget_seconds=budget_seconds,
        )


def uncounted_measured(
    training: Training, layout: Layout, *, device: torch.device, budget_seconds: float
) -> tuple[UncountedTimes, DeviceRates]:
    """Time the model's uncounted operators, and measure what they are compared with."""
    precision = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        times = uncounted_times(
            *_on_device(training, layout, device),
            device=device,
            sizes=_sizes(min(training.largest_batch, LARGEST_MICRO_BATCH)),
            budget_seconds=budget_seconds,
        )
        return times, device_rates(device, precision[layout.precision])


def _on_device(
    training: Training, layout: Layout, device: torch.device
) -> tuple[nn.Module, Forward]:
    """Return the model on a device, and a function that prepares its forward and loss."""
    model = training.model().to(device)

    def forward(samples: int) -> tuple[Callable[[], Any], Callable[[Any], torch.Tensor]]:
        batch = collated(training.first(samples), device, training.form)

        def output() -> Any:
            with autocast(layout, device):
                return call(model, batch.inputs)

        def loss(output: Any) -> torch.Tensor:
            with autocast(layout, device):
                return checked_loss(training.loss(output, batch.target))

        return output, loss

    return model, forward


def _sizes(largest: int) -> list[int]:
    powers = [2**power for power in range(largest.bit_length()) if 2**power < largest]
    return [*powers, largest]


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Compute on this many CPU threads inside the block, as a worker would."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
