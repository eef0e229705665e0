"""The sbatch script, word for word."""

import os
from pathlib import Path

import pytest

from paceline.schedulers.kinds.slurm import SCHEDULER
from paceline.specs import Allocation, Container, Faults, Job, JobEnvironment, Limits, Plan, Run

GOLDEN = Path(__file__).parent / "golden"

CPU = Job(
    name="gpt",
    train=Path("/home/ann/gpt/train.py"),
    nodes=4,
    cpus_per_worker=8,
    partition="main",
    folder=Path("/home/ann/gpt"),
    python=Path("/home/ann/env/bin/python"),
)
GPU = CPU.model_copy(
    update={
        "name": "my run",
        "devices_per_node": 4,
        "gpus_per_node": 4,
        "cpus_per_worker": 16,
        "limits": Limits(minutes=90, memory_megabytes=65536),
        "folder": Path("/home/ann/my models"),
    }
)

LISTENED = CPU.model_copy(
    update={"listeners": ("tensorboard:my boards", "prometheus:eth0:9464"), "cpus_per_worker": None}
)

SITE = CPU.model_copy(
    update={
        "allocation": Allocation(
            account="phys-12",
            qos="long",
            constraint="a100&nvlink",
            reservation="course",
            gres="gpu:a100:4",
            licenses="foo:4",
            exclusive=True,
            dependency="afterok:123",
            begin="now+1hour",
            mail="ann@example.org",
            options=("--comment=trial 3", "--no-requeue"),
        ),
        "partition": "a100,h100",
        "environment": JobEnvironment(
            setup=("module load cuda/12.4", 'source "$HOME/env/bin/activate"  # the course\'s'),
            teardown=("rm -rf /scratch/$SLURM_JOB_ID",),
            variables={"NCCL_DEBUG": "INFO", "NOTE": "two words"},
            keep=("HOME", "WANDB_API_KEY"),
        ),
    }
)


OWN_VARIABLE = CPU.model_copy(
    update={"environment": JobEnvironment(variables={"NOTE": "two words"})}
)
CONTAINER = Container(
    image="/images/gpt.sif",
    runtime="apptainer",
    binds=("/scratch/my data", "/project/tokens:/data"),
)


def in_container(job: Job, **changes: object) -> Job:
    return job.model_copy(update={"container": CONTAINER.model_copy(update=changes)})


@pytest.mark.parametrize(
    ("name", "job", "faults"),
    [
        ("cpu", CPU, Faults(regroup=False)),
        ("gpu", GPU.model_copy(update={"spares": 2}), Faults()),
        ("listened", LISTENED, Faults()),
        ("site", SITE, Faults()),
        ("bucket", SITE.model_copy(update={"listeners": ("wandb",)}), Faults()),
        ("apptainer", in_container(GPU), Faults()),
        (
            "enroot",
            in_container(GPU, runtime="enroot", image="registry.example#team/torch:25.01"),
            Faults(),
        ),
        ("podman", in_container(OWN_VARIABLE, runtime="podman", image="localhost/gpt:3"), Faults()),
        (
            "podman-gpu",
            in_container(GPU, runtime="podman", image="gpt:3", options=("--userns=keep-id",)),
            Faults(),
        ),
        ("podman-hpc", in_container(GPU, runtime="podman_hpc", image="gpt:3"), Faults()),
    ],
)
def test_golden_script(name: str, job: Job, faults: Faults) -> None:
    """Renew: `PACELINE_RENEW=1 pytest tests/schedulers/test_slurm_script.py`; read the diff."""
    url = "s3://ann/gpt-20260101-120000" if name == "bucket" else None
    folder = Path(f"/home/ann/runs/{job.name}-20260101-120000")
    written = SCHEDULER.script(job, Run(folder, copied_from=url), faults)
    golden = GOLDEN / f"{name}.sbatch"
    if os.environ.get("PACELINE_RENEW"):
        golden.write_text(written)
    assert written == golden.read_text(), test_golden_script.__doc__


def test_the_secret_is_not_in_the_script(tmp_path: Path) -> None:
    run = Run.create(tmp_path, CPU, Plan())
    assert run.secret_file.read_text() not in SCHEDULER.script(CPU, run, Faults())
