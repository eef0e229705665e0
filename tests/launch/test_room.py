"""How many workers a machine has room for."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from paceline.launch import room
from paceline.specs import PacelineError, Placement
from paceline.train.worker.threads import limit_threads


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ.pop("PACELINE_DEVICE_KIND", None)
    room.accelerators.cache_clear()


def test_a_machine_without_devices_does_not_load_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_may_have_accelerators", lambda: False)
    monkeypatch.setattr(subprocess, "run", None)
    assert room.accelerators() == 0
    room.accelerators.cache_clear()
    os.environ["PACELINE_DEVICE_KIND"] = "cpu"
    assert room.accelerators() == 0


@pytest.mark.parametrize(
    ("library", "device", "found"),
    [
        ("libtorch_cuda.so", "nvidia0", True),
        ("libtorch_cuda.so", "nvidiactl", False),
        ("libtorch_cpu.so", "nvidia0", False),  # a GPU that this torch cannot use
        ("libtorch_hip.so", "kfd", True),
        ("libtorch_xpu.so", "dri/renderD128", True),
    ],
)
def test_torch_is_asked_only_if_it_may_find_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, device: str, found: bool
) -> None:
    """On stand-ins for /dev and for the folder of torch."""
    for made in (tmp_path / "torch/lib" / library, tmp_path / "dev" / device):
        made.parent.mkdir(parents=True, exist_ok=True)
        made.touch()
    spec = SimpleNamespace(origin=str(tmp_path / "torch/__init__.py"))
    monkeypatch.setattr(room, "find_spec", lambda name: spec)
    assert room._may_have_accelerators(tmp_path / "dev") == found


def test_more_workers_than_devices_are_refused() -> None:
    with pytest.raises(PacelineError, match=r"3 workers .* this machine has 2 devices") as refused:
        room.check_room(3, 2)
    assert "-n 2" in refused.value.fix
    assert room.check_room(2, 2) is None


@pytest.mark.parametrize("answer", ['{"devices": 2}', '{"problem": "no such kind", "fix": "do"}'])
def test_the_named_kind_is_asked(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """tests/comm/test_device_kind.py and tests/simulated/test_runs.py ask in another process."""
    done = SimpleNamespace(returncode=0, stdout=f"a plugin's words\n{answer}\n")
    monkeypatch.setattr(subprocess, "run", lambda *command, **options: done)
    os.environ["PACELINE_DEVICE_KIND"] = "other"
    if "devices" in answer:
        assert room.accelerators() == 2
        return
    with pytest.raises(PacelineError, match="no such kind"):
        room.accelerators()


@pytest.mark.parametrize(("cpus_per_worker", "threads"), [(None, 1), (1, 1), (8, 8)])
def test_workers_bound_to_cores_use_all_of_them(
    monkeypatch: pytest.MonkeyPatch, cpus_per_worker: int | None, threads: int
) -> None:
    """Before, a worker that the scheduler had bound to 8 cores used 8 / 8 workers = 1 of them."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    os.environ.pop("OMP_NUM_THREADS", None)
    limit_threads(Placement(local_workers=8), cpus_per_worker)
    assert os.environ["OMP_NUM_THREADS"] == str(threads)
