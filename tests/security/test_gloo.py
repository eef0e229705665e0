"""Strangers at the listeners that torch itself opens in every worker."""

import os
import socket
from pathlib import Path

import psutil

from ranks import run_ranks


def sum_among_strangers() -> float:
    """Send garbage to all of this worker's listeners; then, whether the workers still add up."""
    import torch

    from paceline.schedulers.task_placement import placement, run_folder
    from paceline.specs import Run
    from paceline.train.elastic.joined_groups import joined

    folder = run_folder()
    assert folder is not None
    with joined(Run(folder), placement(), torch.device("cpu"), None) as groups:
        groups.sum(torch.ones(1))
        listening = [
            each.laddr
            for each in psutil.Process().net_connections("inet")
            if each.status == psutil.CONN_LISTEN
        ]
        assert listening
        assert {address.ip for address in listening} == {"127.0.0.1"}
        for address in listening:
            for garbage in (b"", b"\x01", bytes(4096), b"\xff" * 4096, os.urandom(4096)) * 4:
                with socket.create_connection(address, timeout=5) as stranger:
                    stranger.sendall(garbage)
        return float(groups.sum(torch.tensor([float(groups.placement.rank + 1)])))


def test_garbage_to_every_listener_of_a_worker(tmp_path: Path) -> None:
    assert run_ranks(sum_among_strangers, 2, tmp_path) == [3.0, 3.0]
