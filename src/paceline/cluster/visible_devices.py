"""The devices that the environment shows to this process. No torch: read before it is loaded."""

import os

from paceline.specs import PacelineError, Placement

KIND_VARIABLE = "PACELINE_DEVICE_KIND"
"""The environment variable that names the kind of device to use instead of the one torch finds."""
OWN_DEVICE_VARIABLE = "PACELINE_OWN_DEVICE"
"""The environment variable of a worker that sees no device but its own."""

_CUDA = "CUDA_VISIBLE_DEVICES"
_VARIABLES = (_CUDA, "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


def visible_count() -> int | None:
    """Return the number of devices that the environment lets this process use; None for all."""
    lists = [_split(os.environ[name]) for name in _VARIABLES if name in os.environ]
    return min(map(len, lists)) if lists else None


def mig_instances() -> list[str]:
    """Return the UUIDs of the MIG instances in CUDA_VISIBLE_DEVICES; empty for whole GPUs."""
    names = _split(os.environ.get(_CUDA, ""))
    return names if names and all(name.startswith("MIG-") for name in names) else []


def show_own_instance(here: Placement) -> None:
    """Show this worker its own MIG instance only, because a process can use only the first.

    Call this before anything asks CUDA for devices; CUDA reads the variable once.
    """
    instances = mig_instances()
    if not instances or here.device_bound:
        return
    if here.local_rank >= len(instances):
        raise PacelineError(
            f"{here.node} has {len(instances)} MIG instances in {_CUDA}, but"
            f" {here.local_workers} workers were started on it",
            fix=f"use -n {len(instances)} (or --devices {len(instances)}), one worker each",
        )
    os.environ[_CUDA] = instances[here.local_rank]
    os.environ[OWN_DEVICE_VARIABLE] = "1"


def _split(value: str) -> list[str]:
    return [name.strip() for name in value.split(",") if name.strip()]
