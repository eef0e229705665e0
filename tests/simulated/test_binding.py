"""Which device and cores a worker uses, on simulated devices."""

import os
from pathlib import Path

import pytest
import torch

from made_sysfs import MadeDevice, made_sysfs
from paceline.specs import PacelineError, Placement
from ranks import run_ranks
from simulated_devices import on_sim


@on_sim(devices=2)
def test_devices_by_local_rank_or_as_the_scheduler_shows_them() -> None:
    from paceline_simulated.kind import DEVICE

    def index(rank: int, bound: bool) -> int:
        here = Placement(local_rank=rank, local_workers=4, device_bound=bound, node="n1")
        device = DEVICE.bind(here)
        assert torch.accelerator.current_device_index() == device.index
        return int(device.index)

    assert [index(rank, bound=False) for rank in (0, 1)] == [0, 1]
    # Two devices for each task: before, local rank 2 was refused.
    assert [index(rank, bound=True) for rank in (0, 1, 2, 3)] == [0, 1, 0, 1]
    with pytest.raises(PacelineError, match="n1 has 2 sim devices, but 4 workers were started"):
        index(2, bound=False)


def test_a_worker_stays_on_the_cores_near_its_device(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs two cores")
    devices = [
        MadeDevice("ffff:01:00.0", "a", 0, str(cores[0])),
        MadeDevice("ffff:02:00.0", "b", 1, str(cores[-1])),
    ]
    adapters = {"mlx5_0": MadeDevice("ffff:03:00.0", "a", 0, str(cores[0]))}
    sysfs = made_sysfs(tmp_path / "sys", devices, adapters, "infiniband")
    (found,) = run_ranks(_bound, 1, tmp_path, sysfs)
    near, far, rows = found
    assert near == [{cores[0]}]
    assert far == {cores[0]}, "a core that the scheduler does not allow is not taken"
    assert [row[1] for row in rows] == ["sim:0", "sim:1"]
    assert rows[0][3:] == ("SIM-0", "ffff:01:00.0", "0", str(cores[0]), "mlx5_0")
    assert rows[1][3:6] == ("SIM-1", "ffff:02:00.0", "1")


def _bound(sysfs: Path) -> tuple[list[set[int]], set[int], list[tuple[str, ...]]]:
    os.environ |= {"PACELINE_SIM_DEVICES": "2", "PACELINE_DEVICE_KIND": "sim"}
    from paceline.comm.binding.device_table import rows
    from paceline.comm.binding.near_cores import use_near_cores
    from paceline.comm.device_kind import DEVICES
    from paceline_simulated.kind import DEVICE

    DEVICES._loaded["sim"] = DEVICE  # the package is not installed here
    DEVICES.outside["sim"] = None  # type: ignore[assignment]
    use_near_cores(DEVICE, torch.device("sim:0"), sysfs)
    threads = [int(each.name) for each in Path("/proc/self/task").iterdir()]
    near = {frozenset(os.sched_getaffinity(each)) for each in threads}
    use_near_cores(DEVICE, torch.device("sim:1"), sysfs)
    table = [row.cells for row in rows(sysfs)]
    return [set(each) for each in near], os.sched_getaffinity(0), table


@on_sim()
def test_the_check_before_a_run_uses_the_device_unless_the_script_has() -> None:
    """Before, it asked CUDA alone whether the script had used it, and failed on other kinds."""
    from paceline.parallel.check import forked_check
    from paceline.specs import Layout
    from paceline_simulated.kind import DEVICE
    from train.trainings import classification

    vars(forked_check)["device_kind"] = lambda: DEVICE

    def notes() -> list[str]:
        def bind() -> tuple[torch.device, int]:
            return DEVICE.bind(Placement()), 2**30

        found = forked_check.refuse_differences(classification(), Layout(replicas=2), bind)
        return [each.text for each in found]

    assert notes() == []
    torch.ones(1, device="sim")
    assert notes() == ["skipped, because the script has used sim devices already"]
