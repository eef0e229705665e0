"""Workers that meet by the first node's address and the secret, with no folder in common."""

import os
import shutil
import socket
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from paceline.comm.rendezvous import LEADER_VARIABLE
from paceline.schedulers.task_placement import placement, run_folder
from paceline.specs import Run
from paceline.train.elastic.joined_groups import joined
from ranks import run_ranks


def _sum(port: int) -> float:
    folder, here = run_folder(), placement()
    assert folder is not None
    own = folder.with_name(f"{folder.name}-{here.rank}")
    shutil.copytree(folder, own)
    os.environ[LEADER_VARIABLE] = f"localhost:{port}"
    with joined(Run.open(own), here, torch.device("cpu"), None):
        ranks = torch.tensor([float(here.rank)])
        dist.all_reduce(ranks)
    return float(ranks)


@pytest.mark.timeout(60)
def test_workers_meet_at_an_address(tmp_path: Path) -> None:
    """Before, workers found worker 0 only by a file in the run's folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert run_ranks(_sum, 3, tmp_path, port) == [3.0] * 3
