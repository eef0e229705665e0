"""Limiting a GPU's power, by a stand-in for NVML: there is no GPU here."""

import sys
from pathlib import Path

import pytest

from command import paceline, write_training
from observe.nvml_stand_in import StandInDevice, StandInNvml
from paceline.observe.usage.power_limit import limited_power
from paceline.specs import PacelineError


def _use(monkeypatch: pytest.MonkeyPatch, *devices: StandInDevice) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", StandInNvml(*devices))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_the_limit_holds_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = StandInDevice(limit_milliwatts=650_000), StandInDevice()
    _use(monkeypatch, first, second)
    with limited_power(400, 0, "n1"):
        assert (first.limit_milliwatts, second.limit_milliwatts) == (400_000, 700_000)
    assert first.limit_milliwatts == 650_000
    with pytest.raises(ValueError, match="on purpose"), limited_power(300, 1, "n1"):
        raise ValueError("on purpose")
    assert second.limit_milliwatts == 700_000


@pytest.mark.parametrize(
    ("device", "watts", "gpu", "message"),
    [
        (StandInDevice(), 400, None, "this worker on n1 has no GPU whose power NVML could limit"),
        (StandInDevice(), 400, 3, "this worker on n1 has no GPU whose power NVML could limit"),
        (StandInDevice(), 100, 0, "GPU 0 of n1 takes 200 to 700 W"),
        (StandInDevice(answers=False), 400, 0, "GPU 0 of n1 has no power limit that can be set"),
        (StandInDevice(may_limit=False), 400, 0, "cannot be set: Insufficient Permissions"),
    ],
)
def test_what_cannot_be_limited_is_said(
    monkeypatch: pytest.MonkeyPatch,
    device: StandInDevice,
    watts: float,
    gpu: int | None,
    message: str,
) -> None:
    _use(monkeypatch, device)
    with pytest.raises(PacelineError) as caught, limited_power(watts, gpu, "n1"):
        pass
    assert message in str(caught.value)
    assert f"--power-limit {watts} was given" in str(caught.value)
    assert "leave it out" in str(caught.value) or "give a limit in this range" in str(caught.value)
    assert device.limit_milliwatts == 700_000


def test_a_run_on_cpus_says_that_nothing_can_be_limited(tmp_path: Path) -> None:
    write_training(tmp_path)
    said = paceline("run", "train.py", "--power-limit", "300", folder=tmp_path, expect=2).stderr
    assert "--power-limit 300 was given, but this worker on" in said
    assert "Traceback" not in said
