"""Groups of some workers for a while."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from paceline.specs import Run
from paceline.train.joining import joined
from paceline.train.place import place, run_folder
from ranks import run_ranks


def _sums() -> list[float]:
    """Of the ranks in pairs, in fours, and of all; the last worker is left over twice."""
    folder = run_folder()
    assert folder is not None
    here, found = place(), []
    with joined(Run.open(folder), here, torch.device("cpu"), None) as groups:
        for size in (2, 4, 5):
            first = here.rank - here.rank % size
            members = list(range(first, first + size)) if first + size <= 5 else [here.rank]
            with groups.among(members) as group:
                own = torch.tensor([float(here.rank)])
                dist.all_reduce(own, group=group)
                found.append(float(own))
        for about in ("names", "other names"):
            assert groups.collected(about, f"{about} {here.rank}") == (
                [f"{about} {rank}" for rank in range(5)] if here.rank == 0 else []
            )
    return found


@pytest.mark.timeout(60)
def test_groups_come_and_go_and_all_are_heard(tmp_path: Path) -> None:
    found = run_ranks(_sums, 5, tmp_path)
    assert found == [[1, 6, 10], [1, 6, 10], [5, 6, 10], [5, 6, 10], [4, 4, 10]]
