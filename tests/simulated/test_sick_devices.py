"""A device that has failed is told from a lost peer and from the user's own error.

Before, an error of the device ended the whole run as the user's would, or led into a regroup on the
same device, if the others had left meanwhile.
"""

from pathlib import Path
from unittest import mock

import pytest
import torch

from simulated_devices import on_sim

_ASSERT = 710


def _error(device: torch.device) -> RuntimeError:
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.ones(1, device=device).cpu()
    return raised.value


@on_sim()
def test_only_a_device_that_stays_failed_is_sick() -> None:
    from paceline_simulated import core
    from paceline_simulated.kind import DEVICE as kind

    device = torch.device("sim", 0)
    core.sicken(0)
    error = _error(device)
    assert "ECC" in (kind.failure(device, error) or "")
    wrapped = ValueError("the user's own, around it")
    wrapped.__cause__ = error
    assert kind.failure(device, wrapped)
    assert kind.failure(device, ValueError("the user's own, while the device is sick")) is None
    core.heal(0)
    assert kind.failure(device, error) is None  # a call was refused, and the device works
    core.sicken(0, "device-side assert triggered", _ASSERT)
    assert kind.failure(device, _error(device)) is None


@on_sim()
def test_no_memory_is_not_a_sick_device() -> None:
    from paceline_simulated import core
    from paceline_simulated.kind import DEVICE as kind

    device = torch.device("sim", 0)
    core.set_limit(1 << 20)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        torch.ones(1 << 20, device=device)
    assert kind.failure(device, raised.value) is None


@on_sim()
def test_an_ended_generation_does_not_hide_a_sick_device() -> None:
    from paceline.comm.connections import Connections
    from paceline.comm.health import GroupHealth
    from paceline_simulated import core

    device = torch.device("sim", 0)
    health = GroupHealth(Connections(), ended=lambda: True)
    health.end_update(device)
    core.sicken(0)
    health.begin_abort()  # by another thread, which an error would end
    assert health.state_is_spoiled
    with pytest.raises(torch.AcceleratorError), health.communicating():
        torch.ones(1, device=device)


@on_sim(devices=2)
def test_a_process_finds_its_device_sick_at_its_start() -> None:
    """One that the watchdog aborted could not say why; the one that replaces it can."""
    import tempfile

    from paceline.observe.event_writer import EventWriter
    from paceline.specs import DeviceFailed, Placement
    from paceline.train.elastic import device_failure
    from paceline_simulated import core
    from paceline_simulated.kind import DEVICE

    core.sicken(1)
    here = Placement(rank=1, workers=2, local_rank=1, local_workers=2, node="node-a")
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(device_failure, "device_kind", return_value=DEVICE),
    ):
        with pytest.raises(DeviceFailed, match=r"sim:1 of node-a failed: .*ECC"):
            device_failure.usable_device(here, EventWriter(Path(folder), "node-a"))
        (events,) = Path(folder).iterdir()
        assert '"kind":"sick_device"' in events.read_text()
