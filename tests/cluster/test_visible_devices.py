"""What the environment shows of devices. Read, not run: no GPU is here."""

import os

import pytest

from paceline.cluster.visible_devices import mig_instances, show_own_instance, visible_count
from paceline.schedulers.kinds.slurm.slurm import Slurm
from paceline.schedulers.task_placement import placement
from paceline.specs import PacelineError, Placement

MIG = "MIG-aaaa,MIG-bbbb"
TASK = {
    "SLURM_STEP_ID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "3",
    "SLURM_GPUS_ON_NODE": "4",
}


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"]})


def test_each_worker_is_shown_its_own_mig_instance() -> None:
    """Before, the second worker asked for `cuda:1`, which CUDA shows to no process."""
    os.environ["CUDA_VISIBLE_DEVICES"] = MIG
    assert len(mig_instances()) == 2
    show_own_instance(Placement(rank=1, local_rank=1, local_workers=2, workers=2))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "MIG-bbbb"
    os.environ |= {"PACELINE_RUN": "run", "PACELINE_RANK": "1", "PACELINE_WORKERS": "2"}
    assert placement().device_bound


def test_more_workers_than_mig_instances_are_refused() -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = MIG
    here = Placement(rank=2, local_rank=2, local_workers=3, workers=3, node="n1")
    with pytest.raises(PacelineError, match=r"n1 has 2 MIG instances .* 3 workers were started"):
        show_own_instance(here)


def test_an_instance_that_the_scheduler_shows_is_left() -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "MIG-cccc"
    show_own_instance(Placement(local_rank=3, local_workers=4, device_bound=True))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "MIG-cccc"


@pytest.mark.parametrize("value", ["0,1", "GPU-aaaa", ""])
def test_whole_gpus_stay_as_they_are(value: str) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    show_own_instance(Placement())
    assert os.environ["CUDA_VISIBLE_DEVICES"] == value


@pytest.mark.parametrize(
    ("variables", "bound"),
    [
        ({"SLURM_GPUS_PER_TASK": "1", "CUDA_VISIBLE_DEVICES": "0"}, True),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, False),
        ({}, False),
        ({"CUDA_VISIBLE_DEVICES": "3"}, True),  # by --gpu-bind, or a wrapper of the site
        ({"ROCR_VISIBLE_DEVICES": "3"}, True),
        ({"ROCR_VISIBLE_DEVICES": "0,1,2,3", "HIP_VISIBLE_DEVICES": "3"}, True),
        ({"ZE_AFFINITY_MASK": "3"}, True),
    ],
)
def test_tasks_that_see_only_their_own_device(variables: dict[str, str], bound: bool) -> None:
    """Before, tasks that a wrapper or --gpu-bind had given one device were refused."""
    os.environ |= TASK | variables
    task = Slurm().task()
    assert task is not None
    assert task.device_bound == bound


def test_an_empty_list_shows_nothing() -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    assert visible_count() == 0
