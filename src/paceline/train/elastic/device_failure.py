"""Tell a failed device from a lost peer and from the user's own error."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from paceline.comm.device_kind import device_kind
from paceline.comm.groups import Groups
from paceline.observe.event_writer import EventWriter
from paceline.specs import DeviceFailed, Placement, SickDevice


def usable_device(placement: Placement, writer: EventWriter | None) -> torch.device:
    """Bind this worker's device, and find out whether it works before others wait for it."""
    device = device_kind().bind(placement)
    try:
        device_kind().synchronize(device)
    except RuntimeError as error:
        _raise_if_failed(device, error, placement, writer)
        raise
    return device


@contextmanager
def device_failures_told(groups: Groups, writer: EventWriter | None) -> Iterator[None]:
    """Raise `DeviceFailed`, and write the event, if an error comes from a device that has failed.

    It must be quick: the watchdog of the collectives ends this process for the same reason.
    """
    try:
        yield
    except Exception as error:
        _raise_if_failed(groups.device, error, groups.placement, writer)
        raise


def _raise_if_failed(
    device: torch.device, error: Exception, here: Placement, writer: EventWriter | None
) -> None:
    why = device_kind().failure(device, error)
    if why is None:
        return
    if writer is not None:
        writer.write(
            SickDevice(
                time=time.time(),
                node=here.node,
                generation=here.generation,
                rank=here.rank,
                device=str(device),
                why=why,
            )
        )
    raise DeviceFailed(here.node, str(device), why) from error
