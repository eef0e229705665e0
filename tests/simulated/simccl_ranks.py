"""What the tests of the collectives share: joining a group, and a peer that never comes."""

import importlib
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def join(folder: Path, *, eager: bool = True, seconds: float = 60.0) -> int:
    """Join this rank to a `simccl` group of all ranks; return its number."""
    importlib.import_module("paceline_simulated.device")
    importlib.import_module("paceline_simulated.collectives")
    rank = int(os.environ["PACELINE_RANK"])
    dist.init_process_group(
        "simccl",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=int(os.environ["PACELINE_WORKERS"]),
        timeout=timedelta(seconds=seconds),
        device_id=torch.device("sim", 0) if eager else None,
    )
    return rank


def ends(done: Callable[[], bool], within: float = 20.0) -> bool:
    """Return whether something becomes true in time."""
    deadline = time.monotonic() + within
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def stays_open(work: "dist.Work", seconds: float = 0.3) -> bool:
    """Return whether a collective does not end for a while."""
    return not ends(work.is_completed, seconds)
