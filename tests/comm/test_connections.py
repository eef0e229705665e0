"""A region that communicates tells a lost peer, an aborted group and the user's error apart."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.comm.group_errors import CommunicationError, drop_frames
from paceline.comm.groups import Groups
from paceline.schedulers.task_placement import placement, run_folder
from paceline.specs import Run
from paceline.train.elastic.joined_groups import joined
from ranks import run_ranks


def _joined_groups() -> Groups:
    folder = run_folder()
    assert folder is not None
    return joined(Run.open(folder), placement(), torch.device("cpu"), None).__enter__()


def _backward(model: nn.Module) -> None:
    model(torch.ones(2, 4)).sum().backward()


def _users_error() -> str:
    """Raise in a region whose groups stand, after one of them has come and gone."""
    groups = _joined_groups()
    with groups.among([groups.placement.rank]) as alone:
        assert alone is not None
    _backward(DistributedDataParallel(nn.Linear(4, 2)))
    try:
        with groups.health.communicating():
            raise RuntimeError("Connection refused")
    except RuntimeError as error:
        found = type(error).__name__
    groups.sum(torch.ones(1))  # neither leaves before the other has looked
    return found


def _keep_pipe_open_until(path: Path) -> None:
    """Leave a process behind that holds this rank's pipe, but none of its connections.

    The test's own process ends all ranks once it sees that one of them died.
    """
    if os.fork():
        return
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if entry.readlink().name.startswith("socket:"):
                os.close(int(entry.name))
    deadline = time.monotonic() + 20
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os._exit(0)


def _failure_of_a_survivor(how: str, found_file: Path) -> str:
    """The error that worker 0 gets in DDP's backward: worker 1 is killed, or it aborts itself."""
    groups = _joined_groups()
    model = DistributedDataParallel(nn.Linear(4, 2))
    _backward(model)
    if groups.placement.rank == 1:
        if how == "killed":
            _keep_pipe_open_until(found_file)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(30)
    if how == "aborted":
        groups.health.connections.shut()
    began = time.monotonic()
    with pytest.raises(CommunicationError) as found, groups.health.communicating():
        _backward(model)
    assert time.monotonic() - began < 10
    cause = found.value.__cause__
    assert type(cause) is RuntimeError
    drop_frames(found.value)
    assert found.value.__traceback__ is cause.__traceback__ is None
    return type(found.value).__name__


@pytest.mark.timeout(60)
def test_an_error_among_healthy_connections_is_the_users(tmp_path: Path) -> None:
    assert run_ranks(_users_error, 2, tmp_path) == ["RuntimeError"] * 2


def _reported(how: str, path: Path) -> None:
    found = _failure_of_a_survivor(how, path / "found")
    (path / "found").write_text(found)
    os._exit(0)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("how", "expected"), [("killed", "PeerLost"), ("aborted", "GroupAborted")])
def test_the_reducers_plain_error_gets_a_type(tmp_path: Path, how: str, expected: str) -> None:
    with pytest.raises(AssertionError):  # one rank is killed, or the other leaves without a word
        run_ranks(_reported, 2, tmp_path, how, tmp_path, seconds=30)
    assert (tmp_path / "found").read_text() == expected
