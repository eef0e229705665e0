"""Reading what Slurm prints, and refusing what a partition does not carry."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.file_systems import file_system
from paceline.schedulers.kinds.slurm.controller import Controller, Node, Partition
from paceline.schedulers.kinds.slurm.partition_limits import fit as fit_partition
from paceline.schedulers.kinds.slurm.slurm import Slurm
from paceline.schedulers.kinds.slurm.waiting_reasons import waiting_of
from paceline.schedulers.quantities import megabytes_of, minutes_of
from paceline.schedulers.scheduler import JobState
from paceline.schedulers.site import CommandFailed, Site
from paceline.schedulers.submission import SubmittedJob, check_shared
from paceline.specs import Job, Limits, PacelineError, Run


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("5:30", 6),
        ("1:30:00", 90),
        ("2-12", 3600),
        ("1-00:00:00", 1440),
        ("1-2:3:4", 1564),
        ("UNLIMITED", None),
    ],
)
def test_times(text: str, minutes: int | None) -> None:
    assert minutes_of(text) == minutes


@given(days=st.integers(0, 99), hours=st.integers(0, 23), minutes=st.integers(0, 59))
def test_times_as_slurm_writes_them(days: int, hours: int, minutes: int) -> None:
    expected = days * 1440 + hours * 60 + minutes
    assert minutes_of(f"{days}-{hours:02}:{minutes:02}:00") == expected


@pytest.mark.parametrize(
    ("text", "megabytes"), [("512", 512), ("512M", 512), ("4G", 4096), ("1T", 2**20), ("8gb", 8192)]
)
def test_sizes(text: str, megabytes: int) -> None:
    assert megabytes_of(text) == megabytes


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-5"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(PacelineError, match="is not a time"):
        minutes_of(text)


@pytest.mark.parametrize("text", ["", "lots", "-1G", "0"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(PacelineError, match="is not an amount of memory"):
        megabytes_of(text)


NODES = (
    "NodeName=g1 Arch=x86_64 CPUTot=64 Gres=gpu:a100:4(S:0-1) RealMemory=515000 State=IDLE"
    " AvailableFeatures=nvlink,ib Partitions=gpu,all OS=Linux 6.1\n"
    "NodeName=c1 CPUTot=128 Gres=(null) RealMemory=257000 State=DOWN*+DRAIN Partitions=cpu,all\n"
)
PARTITIONS = (
    "PartitionName=gpu Default=YES MaxTime=2-00:00:00 MaxMemPerNode=500000 TotalNodes=1\n"
    "PartitionName=cpu Default=NO MaxTime=UNLIMITED MaxMemPerNode=UNLIMITED TotalNodes=1\n"
)


@dataclass(frozen=True)
class Recorded(Controller):
    """Answers with what a GPU cluster printed: no GPU can be had in these tests."""

    answers: dict[str, str] = field(
        default_factory=lambda: {"node": NODES, "partition": PARTITIONS, "config": ""}
    )

    def call(self, *command: str, seconds: float = 0.0) -> str:
        return self.answers[command[2]]


def test_nodes_and_partitions() -> None:
    gpu, cpu = Recorded().nodes()
    kept = (frozenset({"gpu", "all"}), "IDLE", frozenset({"nvlink", "ib"}), ("gpu:a100:4",))
    assert gpu == Node("g1", 64, 515000, 4, *kept)
    assert (gpu.usable, cpu.usable, cpu.gpus) == (True, False, 0)
    assert Recorded().partitions()[0] == Partition("gpu", True, 2880, 500000)
    assert Recorded().partitions()[1].max_minutes is None


def job(**changes: object) -> Job:
    base = Job(name="a", train=Path("/a.py"), folder=Path("/"), python=Path("/bin/python"))
    return base.model_copy(update=changes)


def test_a_gpu_node_gives_a_worker_to_each_gpu() -> None:
    fit, warnings = fit_partition(job(), Recorded(), None)
    assert (fit.devices_per_node, fit.gpus_per_node, fit.cpus_per_worker) == (4, 4, 16)
    assert fit.partition == "gpu"
    assert not warnings


def test_a_node_that_is_away_is_said() -> None:
    _, warnings = fit_partition(job(partition="cpu"), Recorded(), None)
    assert "c1 of cpu cannot take jobs now" in warnings[0]


@pytest.mark.parametrize(
    ("changes", "devices", "said"),
    [
        ({"partition": "gpus"}, None, "no partition gpus on this cluster(.|\n)*gpu, cpu"),
        ({"nodes": 9}, None, "more than the 1 nodes of the partition gpu"),
        ({}, 8, "--devices 8 asks for 8 GPUs per node, but the nodes of gpu have 4"),
        ({"partition": "cpu"}, 200, "200 workers per node, but the nodes of cpu have 128 CPUs"),
        ({"limits": Limits(minutes=3000)}, None, "3000 minutes, but the partition gpu allows 2880"),
        (
            {"limits": Limits(memory_megabytes=510_000)},
            None,
            "510000 MB per node, but the partition gpu allows 500000 MB",
        ),
    ],
)
def test_what_a_partition_does_not_carry(
    changes: dict[str, object], devices: int | None, said: str
) -> None:
    with pytest.raises(PacelineError, match=said):
        fit_partition(job(**changes), Recorded(), devices)


def test_no_slurm_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PacelineError, match="there is no command scontrol") as error:
        Slurm().ping()
    assert "paceline testbed up" in str(error.value)


@pytest.fixture
def broken_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Slurm whose `scontrol show job` fails; `squeue` prints what is in the file `jobs`."""
    for name, words in {
        "scontrol": '[ "$1" = ping ] || { echo Zero Bytes were transmitted >&2; exit 1; }',
        "squeue": f"cat {tmp_path}/jobs",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{words}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "jobs"


def test_a_failed_command_does_not_end_a_job(broken_slurm: Path, tmp_path: Path) -> None:
    submitted = SubmittedJob(Run(tmp_path), Slurm(), "42")
    with pytest.raises(CommandFailed):  # squeue fails, too
        Slurm().state("42")
    assert not submitted.is_over(lambda: False)
    broken_slurm.write_text("7\n42\n")
    with pytest.raises(CommandFailed, match="Zero Bytes"):
        Slurm().state("42")
    broken_slurm.write_text("7\n")
    assert Slurm().state("42") is JobState.UNKNOWN


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Resources", "the job waits: other jobs use the nodes (Slurm: Resources)"),
        ("QOSMaxNodePerJobLimit", "it asks for more than its QOS allows one job, so it never"),
        ("AssocGrpNodeLimit", "a limit of its account is reached (Slurm: AssocGrpNodeLimit)"),
        ("ReqNodeNotAvail,_UnavailableNodes:n3", "is down or reserved (Slurm: ReqNodeNotAvail)"),
        ("FrontEndDown", "its scheduler gives the reason (Slurm: FrontEndDown)"),
    ],
)
def test_why_a_job_waits(reason: str, said: str) -> None:
    waiting = waiting_of({"JobState": "PENDING", "Reason": reason, "StartTime": "Unknown"})
    assert waiting is not None
    assert said in waiting.sentence("Slurm")
    assert waiting_of({"JobState": "RUNNING", "Reason": "None"}) is None


def test_when_a_waiting_job_starts() -> None:
    row = {"JobState": "PENDING", "Reason": "Priority", "StartTime": "2031-02-03T04:05:00"}
    waiting = waiting_of(row)
    assert waiting is not None
    assert waiting.sentence("Slurm").endswith("(Slurm: Priority); estimated start 2031-02-03 04:05")


def test_folders_that_nodes_do_not_see(tmp_path: Path) -> None:
    assert file_system(Path("/dev/shm/anything")) == "tmpfs"
    with pytest.raises(PacelineError, match="tmpfs file system of this machine") as error:
        check_shared([Path("/dev/shm/train.py")], Site(shares_files=True))
    assert "--runs DIR" in str(error.value)
    kind = file_system(tmp_path)
    if kind in ("ext4", "xfs", "btrfs"):
        check_shared([tmp_path], Site(shares_files=True))
        with pytest.raises(PacelineError, match=f"{kind} file system"):
            check_shared([tmp_path], Site())
