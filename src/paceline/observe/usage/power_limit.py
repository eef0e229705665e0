"""A lower power limit for a GPU while it trains: a little slower, and far less hot.

Written against NVML's documentation; tried with a stand-in only.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from paceline.observe.usage.gpus import opened_nvml
from paceline.specs import PacelineError


@contextmanager
def limited_power(watts: float, gpu: int | None, node: str) -> Iterator[None]:
    """A block in which a GPU of this node draws no more than that; then it is as before.

    `gpu`: its number among those that this process sees; none where it trains on something else.
    """
    asked = f"--power-limit {watts:g}"
    nvml = opened_nvml() if gpu is not None else None
    handle = nvml.handles(gpu + 1)[gpu:] if nvml is not None and gpu is not None else []
    if nvml is None or not handle:
        raise PacelineError(
            f"{asked} was given, but this worker on {node} has no GPU whose power NVML could limit",
            fix='leave it out; where there is one, `pip install "paceline[energy]"` brings NVML',
        )
    (device,) = handle
    low, high = nvml.ask("nvmlDeviceGetPowerManagementLimitConstraints", device) or (0, None)
    before = nvml.ask("nvmlDeviceGetPowerManagementLimit", device)
    if before is None or high is None:
        raise PacelineError(
            f"{asked} was given, but GPU {gpu} of {node} has no power limit that can be set",
            fix="leave it out",
        )
    milliwatts = round(1000 * watts)
    if not low <= milliwatts <= high:
        raise PacelineError(
            f"{asked} was given, but GPU {gpu} of {node} takes {low / 1000:g} to {high / 1000:g} W",
            fix="give a limit between these",
        )
    try:
        nvml.module.nvmlDeviceSetPowerManagementLimit(device, milliwatts)
    except nvml.module.NVMLError as error:
        raise PacelineError(
            f"{asked} was given, but the limit of GPU {gpu} of {node} cannot be set: {error}",
            fix="most sites let only administrators do it: ask them (`nvidia-smi --power-limit`),"
            " or leave it out",
        ) from None
    try:
        yield
    finally:
        nvml.ask("nvmlDeviceSetPowerManagementLimit", device, before)
