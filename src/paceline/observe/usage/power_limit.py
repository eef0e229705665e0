"""Lower a GPU's power limit while it trains: slightly slower, but with far less heat.

Written against NVML's documentation; tested only with a fake.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from paceline.observe.usage.gpus import opened_nvml
from paceline.specs import PacelineError


@contextmanager
def limited_power(watts: float, gpu: int | None, node: str) -> Iterator[None]:
    """Limit the power of a GPU of this node within the block, then restore the old limit.

    `gpu`: its index among the GPUs that this process sees; None if it trains on another device.
    """
    asked = f"--power-limit {watts:g}"
    nvml = opened_nvml() if gpu is not None else None
    handle = nvml.handles(gpu + 1)[gpu:] if nvml is not None and gpu is not None else []
    if nvml is None or not handle:
        raise PacelineError(
            f"{asked} was given, but this worker on {node} has no GPU whose power NVML could limit",
            fix='leave it out; if there is one, install NVML: pip install "paceline[energy]"',
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
            fix="give a limit in this range",
        )
    try:
        nvml.module.nvmlDeviceSetPowerManagementLimit(device, milliwatts)
    except nvml.module.NVMLError as error:
        raise PacelineError(
            f"{asked} was given, but the limit of GPU {gpu} of {node} cannot be set: {error}",
            fix="most sites allow only administrators to: ask them (`nvidia-smi --power-limit`),"
            " or leave it out",
        ) from None
    try:
        yield
    finally:
        nvml.ask("nvmlDeviceSetPowerManagementLimit", device, before)
