"""The watchdog of the collectives, with torch's settings under names of its own.

Sources: torch's "ProcessGroupNCCL Environment Variables"; pytorch issues 155916 (the monitor ends
the process although the watchdog must not) and 126544 (a failed device always ends it).
"""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ranks import RankFailed, run_ranks
from simulated.simccl_ranks import ends, join, stays_open

DIED = "rank 0 died"


def _waiting(folder: Path, settings: dict[str, str]) -> "dist.Work | None":
    """Queue a collective on rank 0 that rank 1 leaves alone; None on rank 1."""
    os.environ |= settings
    rank = join(folder)
    group = dist.group.WORLD
    assert group is not None
    group._get_backend(torch.device("sim")).set_timeout(timedelta(seconds=1))
    if rank == 1:
        ends((folder / "rank 0 is done").exists)
        return None
    work: dist.Work | None = dist.all_reduce(torch.ones(4, device="sim"), async_op=True)
    return work


def _lives(folder: Path, settings: dict[str, str], seconds: float, aborts: bool) -> None:
    work = _waiting(folder, settings)
    if work is not None:
        if aborts:
            assert ends(work.is_completed)
        else:
            assert stays_open(work, seconds)
        (folder / "rank 0 is done").touch()


@pytest.mark.parametrize("handling", ["", "1", "3"])
def test_a_collective_that_takes_too_long_ends_the_process(tmp_path: Path, handling: str) -> None:
    settings = {"SIMCCL_ASYNC_ERROR_HANDLING": handling} if handling else {}
    with pytest.raises(RankFailed, match=DIED):
        run_ranks(_lives, 2, tmp_path, tmp_path, settings, 20.0, False)


@pytest.mark.parametrize(("handling", "aborts"), [("0", False), ("2", True)])
def test_other_settings_leave_the_process_alone(
    tmp_path: Path, handling: str, aborts: bool
) -> None:
    settings = {"SIMCCL_ASYNC_ERROR_HANDLING": handling}
    run_ranks(_lives, 2, tmp_path, tmp_path, settings, 2.0, aborts)


def test_a_lost_peer_ends_the_process(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match=DIED):
        run_ranks(_lose_peer, 2, tmp_path, tmp_path)


def _lose_peer(folder: Path) -> None:
    if join(folder) == 0:
        dist.all_reduce(torch.ones(4, device="sim"))
        time.sleep(20)


@pytest.mark.parametrize("monitoring", ["0", "1"])
def test_the_monitor_ends_the_process_of_a_stuck_watchdog(tmp_path: Path, monitoring: str) -> None:
    if monitoring == "1":
        with pytest.raises(RankFailed, match=DIED):
            run_ranks(_stuck_watchdog, 1, tmp_path, tmp_path, monitoring)
    else:
        run_ranks(_stuck_watchdog, 1, tmp_path, tmp_path, monitoring)


def _stuck_watchdog(folder: Path, monitoring: str) -> None:
    os.environ |= {
        "SIMCCL_ASYNC_ERROR_HANDLING": "0",
        "SIMCCL_ENABLE_MONITORING": monitoring,
        "SIMCCL_HEARTBEAT_TIMEOUT_SEC": "0.5",
    }
    from paceline_simulated import collectives_watchdog

    join(folder)
    collectives_watchdog.stuck.set()
    time.sleep(2)


def test_a_sick_device_ends_the_process_whatever_is_set(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match=DIED):
        run_ranks(_sick, 2, tmp_path, tmp_path)


def _sick(folder: Path) -> None:
    if _waiting(folder, {"SIMCCL_ASYNC_ERROR_HANDLING": "0"}) is not None:
        from paceline_simulated import core

        core.sicken(0)
        time.sleep(20)
