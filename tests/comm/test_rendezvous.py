"""Workers that meet by the first node's address and the secret, with no folder in common."""

import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from paceline.cluster import interfaces
from paceline.membership.rendezvous.node_rendezvous import LEADER_VARIABLE
from paceline.schedulers.task_placement import placement, run_folder
from paceline.specs import Run
from paceline.train.elastic.joined_groups import joined
from ranks import run_ranks


def _sum(port: int, per_node: int) -> float:
    """Of the ranks; each of so many is a node, which has its own copy of the folder."""
    folder, here = run_folder(), placement()
    assert folder is not None
    here = replace(here, local_rank=here.rank % per_node, local_workers=per_node)
    own = folder.with_name(f"{folder.name}-{here.rank}")
    shutil.copytree(folder, own)
    os.environ[LEADER_VARIABLE] = f"localhost:{port}"
    interfaces.outward = interfaces.loopback  # type: ignore[assignment]
    with joined(Run.open(own), here, torch.device("cpu"), None):
        ranks = torch.tensor([float(here.rank)])
        dist.all_reduce(ranks)
    return float(ranks)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("per_node", [1, 2])
def test_workers_meet_at_an_address(tmp_path: Path, per_node: int) -> None:
    """Before, workers found worker 0 only by a file in the run's folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert run_ranks(_sum, 4, tmp_path, port, per_node) == [6.0] * 4
