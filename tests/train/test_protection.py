"""A run whose peer copies fail for a while, and continue."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from command import PACELINE, write_training
from paceline.report import RunReader, RunState
from paceline.specs import Run

UNREACHABLE = """
import socket
import time
from paceline.peers import memory_client

class Network:
    def __getattr__(self, name):
        return getattr(socket, name)

    def create_connection(self, *words):
        if Path("cut").exists():
            raise OSError("the network is cut")
        return socket.create_connection(*words)

from pathlib import Path
memory_client.socket = Network()
whole = training

def training():
    found = whole()
    loss = found.loss
    def paced(*words):
        time.sleep(0.02)
        return loss(*words)
    return paceline.Training(
        model=found.model, loss=paced, data=found.data, optimizer=found.optimizer, batch=32,
        steps=100_000,
    )
"""


def until(reader: RunReader, copies_are_off: bool) -> RunState:
    deadline = time.monotonic() + 60
    while bool((state := reader.refresh()).off) != copies_are_off or not state.step:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return state


@pytest.mark.slow
def test_copies_that_fail_are_told_and_so_is_their_return(tmp_path: Path) -> None:
    write_training(tmp_path, UNREACHABLE)
    words = ("run", "train.py", "-n", "2", "--faults", "copy_every=2", "--save-every", "0", "-q")
    process = subprocess.Popen(
        [*PACELINE, *words], cwd=tmp_path, env=os.environ, stderr=subprocess.DEVNULL
    )
    try:
        while not (found := list((tmp_path / "runs").glob("*/events/*.jsonl"))):
            assert process.poll() is None
            time.sleep(0.05)
        reader = RunReader(Run.open_to_read(found[0].parent.parent))
        until(reader, copies_are_off=False)
        (tmp_path / "cut").touch()
        off = until(reader, copies_are_off=True).off
        assert {each.protection for each in off} == {"peer copies"}
        assert "the network is cut" in off[0].why
        reached = reader.refresh().step[-1]
        while reader.refresh().step[-1] < reached + 40:  # 20 more copies fail
            assert process.poll() is None
            time.sleep(0.05)
        (tmp_path / "cut").unlink()
        lapses = until(reader, copies_are_off=False).lapses
        assert sorted(each.began.rank or 0 for each in lapses) == [0, 1]  # once each
    finally:
        process.terminate()
        process.wait(30)
