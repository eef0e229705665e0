"""What is near a device, on stand-ins for sysfs."""

from pathlib import Path

from made_sysfs import MadeDevice, made_sysfs
from paceline.cluster.pci import Surroundings, core_ranges, surroundings

NEAR, FAR = "0-3,8-11", "4-7,12-15"
GPUS = [
    MadeDevice("0000:11:00.0", "0000:10:00.0", 0, NEAR),
    MadeDevice("0000:21:00.0", "0000:20:00.0", 0, NEAR),
    MadeDevice("0000:91:00.0", "0000:90:00.0", 1, FAR),
]


def test_the_adapter_behind_the_same_switch_is_nearest(tmp_path: Path) -> None:
    adapters = {
        "mlx5_0": MadeDevice("0000:12:00.0", "0000:10:00.0", 0, NEAR),
        "mlx5_1": MadeDevice("0000:22:00.0", "0000:20:00.0", 0, NEAR),
    }
    sysfs = made_sysfs(tmp_path, GPUS, adapters, "infiniband")
    first, second = (surroundings(gpu.address, sysfs) for gpu in GPUS[:2])
    assert (first.adapters, second.adapters) == (("mlx5_0",), ("mlx5_1",))
    assert (first.numa_node, core_ranges(first.cores)) == (0, NEAR)


def test_without_a_common_switch_the_numa_node_counts(tmp_path: Path) -> None:
    adapters = {
        "eth0": MadeDevice("0000:31:00.0", "0000:30:00.0", 0, NEAR),
        "eth1": MadeDevice("0000:a1:00.0", "0000:a0:00.0", 1, FAR),
    }
    sysfs = made_sysfs(tmp_path, GPUS, adapters, "net")
    assert surroundings(GPUS[0].address, sysfs).adapters == ("eth0",)
    assert surroundings(GPUS[2].address, sysfs).adapters == ("eth1",)


def test_equally_near_adapters_are_all_named(tmp_path: Path) -> None:
    adapters = {
        f"mlx5_{number}": MadeDevice(f"0000:12:0{number}.0", "0000:10:00.0", 0, NEAR)
        for number in range(2)
    }
    sysfs = made_sysfs(tmp_path, GPUS, adapters, "infiniband")
    assert surroundings(GPUS[0].address, sysfs).adapters == ("mlx5_0", "mlx5_1")


def test_an_unknown_numa_node_has_no_cores(tmp_path: Path) -> None:
    """Linux writes -1, and then lists all cores of the machine."""
    sysfs = made_sysfs(tmp_path, [MadeDevice("0000:11:00.0", "x", -1, "0-15")], {}, "net")
    assert surroundings("0000:11:00.0", sysfs) == Surroundings(None, frozenset(), ())


def test_a_machine_that_hides_its_devices(tmp_path: Path) -> None:
    assert surroundings("0000:11:00.0", tmp_path) == Surroundings(None, frozenset(), ())
