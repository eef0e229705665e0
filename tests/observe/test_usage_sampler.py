"""What a node's workers use, seen by the real psutil on this machine."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from command import paceline_json, write_training
from observe.nvml_stand_in import StandInDevice, StandInNvml
from paceline.observe.event_writer import EventWriter
from paceline.observe.usage import usage_sampler
from paceline.observe.usage.energy_counters import Counter
from paceline.observe.usage.gpus import gpus_of_node
from paceline.observe.usage.usage_sampler import NodeWatch, Processes, usage_written
from paceline.specs import Degraded, Usage, event_adapter
from paceline.train import fit
from train.trainings import classification

pytestmark = pytest.mark.alone


def _written(folder: Path) -> list[Usage]:
    events = [
        event_adapter.validate_json(line)
        for file in folder.glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    return [event for event in events if isinstance(event, Usage)]


def _watching(folder: Path, done: Callable[[], bool]) -> list[Usage]:
    """What is written of a block that lasts until something is done."""
    with usage_written(
        EventWriter(folder, "n1"), node="n1", generation=2, workers=1, interface="lo", gpus=False
    ):
        end = time.monotonic() + 10
        while not done():
            assert time.monotonic() < end
            time.sleep(0.01)
    assert "usage" not in {thread.name for thread in threading.enumerate()}
    return _written(folder)


def test_a_short_block_is_covered_by_one_event(tmp_path: Path) -> None:
    begin = time.monotonic()
    (event,) = _watching(tmp_path, lambda: time.monotonic() - begin > 0.3)
    assert event.seconds == pytest.approx(time.monotonic() - begin, abs=0.3)
    assert (event.node, event.generation, event.workers) == ("n1", 2, 1)
    assert 1 <= event.cores <= len(os.sched_getaffinity(0))
    assert 0 <= event.cpu_share <= 1
    assert 10_000_000 < event.memory_bytes < event.memory_total_bytes
    assert "lo" in event.network  # also when nothing passed
    assert event.gpus == []


def test_a_long_block_is_covered_without_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_sampler, "EVENT_SECONDS", 0.1)
    begin = time.monotonic()
    events = _watching(tmp_path, lambda: len(_written(tmp_path)) >= 4)
    took = time.monotonic() - begin
    assert sum(event.seconds for event in events) == pytest.approx(took, abs=0.3)


def test_a_failing_block_is_covered_too(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="on purpose"),
        usage_written(
            EventWriter(tmp_path, "n1"),
            node="n1",
            generation=0,
            workers=1,
            interface=None,
            gpus=False,
        ),
    ):
        raise ValueError("on purpose")
    assert len(_written(tmp_path)) == 1


def test_what_passes_an_interface_is_counted() -> None:
    watch = NodeWatch(1, "lo", [], [])
    sent = 3_000_000
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as end,
    ):
        threading.Thread(target=client.sendall, args=[b"x" * sent]).start()
        left = sent
        while left:
            left -= len(end.recv(1 << 20))
    assert watch.taken("n1", 0).network["lo"].received_bytes >= sent


def test_a_busy_core_is_seen() -> None:
    watch = NodeWatch(1, None, [], [])
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        pass
    event = watch.taken("n1", 0)
    assert event.cpu_share * event.cores > 0.5


def test_processes_of_siblings_and_children_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher starts a process that looks, and another one that holds 60 MB."""
    program = """
import subprocess, sys
hold = "x = bytearray(60_000_000); print(1, flush=True); input()"
look = "from paceline.observe.usage import usage_sampler as u; print(u.Processes().memory_bytes())"
def memory():
    return int(subprocess.run([sys.executable, "-c", look], capture_output=True, check=True).stdout)
alone = memory()
with subprocess.Popen([sys.executable, "-c", hold], stdin=-1, stdout=-1) as sibling:
    sibling.stdout.readline()
    print(memory() - alone)
    sibling.communicate(b"\\n")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert 50e6 < int(done.stdout) < 120e6


def test_looking_for_processes_takes_little_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    class SlowProcess:
        """Stands for a node on which so much runs that a look takes 20 ms."""

        def __init__(self, pid: int | None = None) -> None:
            pass

        def children(self, recursive: bool) -> list[object]:
            looks.append(time.monotonic())
            time.sleep(0.02)
            return []

    monkeypatch.setattr(usage_sampler, "EVENT_SECONDS", 0.0)
    monkeypatch.setattr(psutil, "Process", SlowProcess)
    processes = Processes()
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        processes.memory_bytes()
    assert len(looks) == 1


def test_joules_of_counters_and_gpus_stand_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs by a stand-in for NVML."""
    device = StandInDevice()
    monkeypatch.setitem(sys.modules, "pynvml", StandInNvml(device))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    shown = iter([100.0, 160.0])  # and then it fails: the file is gone
    watch = NodeWatch(1, None, gpus_of_node(1), [Counter("package-0", lambda: next(shown))])
    device.millijoules += 2_000_000
    event = watch.taken("n1", 0)
    assert event.joules == {"package-0": 60.0, "gpu-0": 2000.0}
    assert event.gpus[0].busy == pytest.approx(0.9)
    device.millijoules += 1_000
    assert watch.taken("n1", 0).joules == {"gpu-0": 1.0}


def test_energy_that_cannot_be_read_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([100.0, 160.0])

    def read() -> float:
        try:
            return next(readings)
        except StopIteration:
            raise OSError(5, "Input/output error") from None

    monkeypatch.setattr(usage_sampler, "EVENT_SECONDS", 0.05)
    monkeypatch.setattr(usage_sampler, "processor_counters", lambda: [Counter("package-0", read)])
    events = _watching(tmp_path, lambda: len(_written(tmp_path)) >= 4)
    assert [bool(event.joules) for event in events[:3]] == [True, False, False]
    told = [
        event_adapter.validate_json(line)
        for line in (tmp_path / "n1.jsonl").read_text().splitlines()
        if '"degraded"' in line
    ]
    assert [each.why for each in told if isinstance(each, Degraded)] == [
        "package-0: [Errno 5] Input/output error"
    ]


def test_a_run_writes_what_its_node_used(tmp_path: Path) -> None:
    write_training(tmp_path)
    result = paceline_json("run", "train.py", "-n", "2", folder=tmp_path)
    (run,) = (tmp_path / "runs").iterdir()
    events = _written(run / "events")
    assert events
    assert {event.workers for event in events} == {2}
    used = result["usage"]
    (node,) = used["nodes"]
    assert node["seconds"] >= result["seconds"]
    assert node["peak_memory_bytes"] > 200_000_000  # two processes with torch
    assert node["sent_bytes_per_step"] > 0
    assert used["device_hours"] == pytest.approx(2 * node["seconds"] / 3600)


def test_without_a_run_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_RUN", raising=False)
    monkeypatch.setattr(fit, "usage_written", None)  # whoever called it would fail
    assert fit.fit(classification(steps=3)).steps == 3
