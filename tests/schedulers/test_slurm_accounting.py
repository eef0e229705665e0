"""Jobs that Slurm would refuse without a list, or accept and never start."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from paceline.schedulers.kinds.slurm.controller import Controller
from paceline.schedulers.kinds.slurm.partition_limits import fit
from paceline.schedulers.kinds.slurm.sbatch_variables import with_variables
from paceline.schedulers.kinds.slurm.site_choices import choices
from paceline.schedulers.kinds.slurm.slurm import Slurm
from paceline.schedulers.site import CommandFailed
from paceline.specs import Allocation, Job, Limits, PacelineError

NODE = "NodeName={} CPUTot=64 Gres=gpu:a100:4(S:0-1) RealMemory=515000 State=IDLE Partitions={}"
ANSWERS = {
    "node": "\n".join(
        [*(NODE.format(f"g{number}", "gpu,long") for number in range(8)), NODE.format("v1", "old")]
    ),
    "partition": "PartitionName=gpu Default=YES MaxTime=60 AllowQos=ALL MaxNodes=6\n"
    "PartitionName=long MaxTime=2880 AllowAccounts=ALL AllowQos=wide,far QoS=parted\n"
    "PartitionName=old MaxTime=60 DenyAccounts=chem\n",
    "config": "AccountingStorageType = accounting_storage/slurmdbd\n"
    "AccountingStorageEnforce = associations,limits,qos\nClusterName = big\n",
    "user": "ann|chem\n",
    "qos": "normal||||||\nwide||DenyOnLimit|node=4|||\nfar|2-00:00:00|PartitionTimeLimit||||\n"
    "parted||||gres/gpu=8||\n",
    "assoc": "chem||normal,wide,far|normal|1-00:00:00||\nart|old|normal||||node=1\n",
    "groups": "node=6\n",
}


@dataclass(frozen=True)
class Recorded(Controller):
    """Answers as sacctmgr does: partition QOS, GPUs and rights by partition are not in a testbed's
    site."""

    answers: dict[str, str] = field(default_factory=lambda: ANSWERS)

    def user(self) -> str:
        return "ann"

    def call(self, *command: str, seconds: float = 0.0) -> str:
        kind = command[2] if command[0] == "scontrol" else command[4]
        kind = "groups" if "user=" in command else kind
        if kind not in self.answers:
            raise CommandFailed("no answer", fix="", output="", code=1)
        return self.answers[kind]


def job(nodes: int = 1, minutes: int | None = None, **asked: str) -> Job:
    return Job(
        name="a",
        folder=Path("/"),
        python=Path("/bin/python"),
        nodes=nodes,
        partition=asked.pop("partition", None),
        limits=Limits(minutes=minutes),
        allocation=Allocation(**asked),
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (job(account="bio"), "bio is not an account of the user ann(.|\n)*one of: art, chem"),
        (job(account="art"), "art may not use the partition gpu(.|\n)*one of: old"),
        (job(partition="old"), "old does not take jobs of the account chem(.|\n)*one of: art"),
        (job(qos="best"), "no QOS best on this cluster(.|\n)*one of: normal, wide, far"),
        (job(qos="parted"), "account chem may not use the QOS parted(.|\n)*normal, wide, far"),
        (job(partition="long"), "does not take jobs of the QOS normal(.|\n)*one of: wide, far"),
        (job(5, qos="wide"), "--nodes 5 asks for 5 nodes, but the QOS wide allows 4"),
        (job(7), "7 nodes, but the partition gpu allows 6 per job"),
        (job(3, qos="far", partition="long"), "12 GPUs, but the partition long's QOS parted allow"),
        (job(minutes=90), "90 minutes, but the partition gpu allows 60"),
        (job(minutes=4000, qos="far"), "4000 minutes, but the QOS far allows 2880"),
    ],
)
def test_a_refusal_lists_what_is_allowed(asked: Job, said: str) -> None:
    with pytest.raises(PacelineError, match=said):
        fit(asked, Recorded(), None)


def test_limits_of_a_whole_account_hold_for_one_job() -> None:
    without = ANSWERS | {"partition": ANSWERS["partition"].replace(" MaxNodes=6", "")}
    assert fit(job(6), Recorded(answers=without), None)[0].nodes == 6
    with pytest.raises(PacelineError, match="7 nodes, but the account chem allows 6"):
        fit(job(7), Recorded(answers=without), None)


def test_a_qos_lifts_the_time_of_its_partition() -> None:
    fitted, _ = fit(job(minutes=1500, qos="far"), Recorded(), None)
    assert fitted.limits.minutes == 1500


@pytest.mark.parametrize("lost", ["assoc", "qos", "groups"])
def test_a_silent_accounting_refuses_nothing(lost: str) -> None:
    answers = {name: text for name, text in ANSWERS.items() if name != lost}
    assert fit(job(6), Recorded(answers=answers), None)[0].partition == "gpu"


def test_options_of_the_users_own_are_left_to_slurm() -> None:
    """They are stronger than ours: a check of ours would refuse what nobody asked for."""
    asked = job(6, account="bio")
    allocation = asked.allocation.model_copy(update={"options": ("--account=chem",)})
    asked = asked.model_copy(update={"allocation": allocation})
    assert fit(asked, Recorded(), None)[0].nodes == 6


def test_without_a_default_the_only_qos_is_taken() -> None:
    only = ANSWERS | {"assoc": "chem||wide||||\n"}
    with pytest.raises(PacelineError, match="5 nodes, but the QOS wide allows 4"):
        fit(job(5), Recorded(answers=only), None)
    several = ANSWERS | {"assoc": "chem||wide,far||||\n"}
    with pytest.raises(PacelineError, match=r"long asks for a QOS(.|\n)*one of: wide, far"):
        fit(job(partition="long"), Recorded(answers=several), None)


def test_no_account_at_all() -> None:
    with pytest.raises(PacelineError, match="ann has no account on the cluster big"):
        fit(job(), Recorded(answers=ANSWERS | {"assoc": ""}), None)


def test_of_several_partitions_those_that_fit_are_kept() -> None:
    asked = job(minutes=30, partition="gpu,old,long", qos="wide")
    fitted, warnings = fit(asked, Recorded(), None)
    assert (fitted.partition, fitted.devices_per_node) == ("gpu,long", 4)
    assert warnings == [
        "the partition old is left out: the partition old does not take jobs of the account chem"
    ]
    with pytest.raises(PacelineError, match="there is no partition gpus"):
        fit(job(partition="gpu,gpus"), Recorded(), None)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"constraint": "[rack1*2&rack2]"}, "--constraint names rack2(.|\n)*with: ib, rack1"),
        ({"gres": "gpu:h100:4"}, "--gres names gpu:h100(.|\n)*with: gpu:a100:4"),
        ({"licenses": "solver:2,mesh@far:1"}, "--licenses names mesh@far(.|\n)*with: solver"),
        ({"reservation": "school"}, "--reservation names school(.|\n)*with: course, maintenance"),
    ],
)
def test_names_that_the_site_does_not_have(asked: dict[str, str], said: str) -> None:
    answers = ANSWERS | {
        "node": ANSWERS["node"].replace("State", "AvailableFeatures=rack1,ib State"),
        "licenses": "LicenseName=solver Total=2 Used=0 Free=2 Remote=no\n",
        "reservation": "ReservationName=course\nReservationName=maintenance\n",
    }
    with pytest.raises(PacelineError, match=said):
        fit(job(**asked), Recorded(answers=answers), None)  # type: ignore[arg-type]


def test_what_a_user_can_choose_from() -> None:
    found = {each.option: each for each in choices(Recorded())}
    assert found["account"].names == ("art", "chem")
    assert found["account"].default == "chem"
    assert found["account"].needed
    assert found["partition"].default == "gpu"
    assert found["qos"].names == ("far", "normal", "wide")
    assert found["gres"].names == ("gpu:a100:4",)
    assert "constraint" not in found
    alone = {each.option for each in choices(Recorded(answers=ANSWERS | {"config": ""}))}
    assert alone == {"partition", "gres"}


def test_variables_of_sbatch_are_taken_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They beat the lines of a script: before, SBATCH_ACCOUNT won over --account."""
    monkeypatch.setenv("SBATCH_ACCOUNT", "bio")
    monkeypatch.setenv("SBATCH_QOS", "wide")
    asked = with_variables(job(account="chem"))
    assert (asked.allocation.account, asked.allocation.qos) == ("chem", "wide")
    sbatch = tmp_path / "sbatch"
    sbatch.write_text('#!/bin/sh\n[ -z "$SBATCH_ACCOUNT$SBATCH_QOS" ] && echo 42\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert Slurm().submit(tmp_path / "job.sbatch") == "42"
