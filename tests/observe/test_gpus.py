"""GPUs by NVML. There is none here: a stand-in, clearly named, is held against the real module."""

import inspect
import sys

import pynvml
import pytest

from observe.nvml_stand_in import StandInDevice, StandInNvml
from paceline.observe.usage.gpus import gpus_of_node, visible_devices


def _use(monkeypatch: pytest.MonkeyPatch, nvml: StandInNvml, visible: str | None = None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)


def test_the_stand_in_is_called_as_nvml_is() -> None:
    for name, function in inspect.getmembers(StandInNvml, inspect.isfunction):
        if name.startswith("nvml"):
            real = inspect.signature(getattr(pynvml, name)).parameters.values()
            needed = [each for each in real if each.default is each.empty and each.kind <= 1]
            mine = list(inspect.signature(function).parameters)[1:]
            wrapped = any(each.kind is each.VAR_POSITIONAL for each in real)
            assert wrapped or len(needed) == len(mine), name


def test_without_a_driver_the_real_module_has_no_gpus() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        assert gpus_of_node(2) == []
    else:
        pytest.skip("this machine has NVIDIA's driver")


def test_a_gpu_says_how_busy_it_is_and_what_it_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    device = StandInDevice()
    _use(monkeypatch, StandInNvml(device, StandInDevice(), StandInDevice()))
    gpu, _ = gpus_of_node(2)
    gpu.read(0.0)
    device.busy_percent, device.used_bytes, device.milliwatts = 50, 30_000_000_000, 200_000
    device.millijoules += 1_500_000
    gpu.read(1.0)
    assert gpu.take_joules() == pytest.approx(1500)  # by its counter, not by its watts
    seen = gpu.take()
    assert seen.name == "Stand-in GPU"
    assert seen.busy == pytest.approx(0.7)
    assert seen.watts == pytest.approx(300)
    assert (seen.memory_bytes, seen.memory_total_bytes) == (30_000_000_000, 80_000_000_000)
    assert gpu.take().busy is None  # nothing was read since


def test_without_a_counter_joules_are_the_integral_of_watts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = StandInDevice(counts_energy=False)
    _use(monkeypatch, StandInNvml(device))
    (gpu,) = gpus_of_node(1)
    gpu.read(10.0)
    device.milliwatts = 200_000
    gpu.read(12.0)
    assert gpu.take_joules() == pytest.approx(600)


def test_a_gpu_that_is_lost_says_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    device = StandInDevice()
    _use(monkeypatch, StandInNvml(device))
    (gpu,) = gpus_of_node(1)
    device.answers = False
    gpu.read(1.0)
    seen = gpu.take()
    assert (seen.busy, seen.memory_bytes, seen.watts) == (None, None, None)
    with pytest.raises(OSError, match="no longer answers"):
        gpu.take_joules()


def test_only_visible_devices_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [StandInDevice(name=f"number {index}", uuid=f"GPU-{index}") for index in range(4)]
    nvml = StandInNvml(*devices)
    for visible, expected in [
        (None, ["number 0", "number 1"]),
        ("2,3,0", ["number 2", "number 3"]),
        ("GPU-3", ["number 3"]),
        ("MIG-1,1", ["number 1"]),
        ("7", []),
        ("", []),
    ]:
        _use(monkeypatch, nvml, visible)
        assert [gpu.name for gpu in gpus_of_node(2)] == expected
    assert list(visible_devices("0, 2", 8)) == [0, 2]


def test_no_driver_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, StandInNvml(driver=False))
    assert gpus_of_node(1) == []
