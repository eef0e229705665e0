"""A worker's placement, from the variables of its scheduler."""

import os

import pytest

from paceline.schedulers.task_placement import placement
from paceline.specs import PacelineError


def slurm_task(
    monkeypatch: pytest.MonkeyPatch, rank: int, local_rank: int, tasks: int, nodes: int
) -> None:
    variables = {
        "PACELINE_RUN": "run",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local_rank),
        "SLURM_NTASKS": str(tasks),
        "SLURM_NNODES": str(nodes),
    }
    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"]} | variables)


def test_ranks_are_consecutive_on_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(6):
        slurm_task(monkeypatch, rank, rank % 3, tasks=6, nodes=2)
        assert placement().node_ranks == ([0, 1, 2] if rank < 3 else [3, 4, 5])


@pytest.mark.parametrize(
    ("rank", "local_rank", "tasks"),
    [
        pytest.param(1, 0, 4, id="cyclic"),
        pytest.param(3, 0, 5, id="three and two"),
        pytest.param(2, 0, 3, id="two and one"),
    ],
)
def test_other_distributions_are_refused_at_once(
    rank: int, local_rank: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers looked for the first one of their node on another, for five minutes."""
    slurm_task(monkeypatch, rank, local_rank, tasks, nodes=2)
    with pytest.raises(PacelineError, match="needs an equal number of tasks") as error:
        placement()
    assert "in equal blocks" in error.value.fix
