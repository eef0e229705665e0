"""Reasons why a model has no layout on some devices, one class each."""

from paceline.plan.search.degrees import divisors
from paceline.specs.errors import PacelineError
from paceline.specs.units import count


class Infeasible(PacelineError):
    """No layout of a model with its batch can run on some devices."""


class BatchIndivisible(Infeasible):
    """No parallelism degrees divide both the batch and the devices."""

    def __init__(self, batch: int, devices: int) -> None:
        prime = ", a prime number," if len(divisors(batch)) == 2 else ""
        super().__init__(
            f"a batch of {batch}{prime} cannot be divided over {count(devices, 'device')}",
            fix="give a batch that is a multiple of the devices",
        )


class DoesNotFit(Infeasible):
    """Every layout needs more memory than a device has."""

    def __init__(
        self, model: str, devices: int, needed_bytes: float, at_most: float, device_bytes: int
    ) -> None:
        super().__init__(
            f"{model} does not fit on {count(devices, 'device')}: the smallest layout needs"
            f" {needed_bytes / 1e9:,.1f} GB, at the 95 % bound {at_most / 1e9:,.1f} GB, of"
            f" {device_bytes / 1e9:,.1f} GB on a device",
            fix="use more nodes or a smaller model",
        )


class ModeRefused(Infeasible):
    """The synchronization mode accepts no layout."""

    def __init__(self, refusal: PacelineError) -> None:
        super().__init__(refusal.problem, fix=refusal.fix, about=refusal.topic)
