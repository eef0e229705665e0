"""The manifest of a run on Kubernetes: word for word, and valid by the published schemas."""

import os
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from paceline.schedulers.kinds.kubernetes import SCHEDULER
from paceline.schedulers.kinds.kubernetes.manifest import job_name
from paceline.specs import (
    Allocation,
    Container,
    Faults,
    Job,
    JobEnvironment,
    Limits,
    PacelineError,
    Run,
)

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = ("1.31", "1.34", "1.37")

PLAIN = Job(
    name="gpt",
    train=Path("/home/ann/gpt/train.py"),
    nodes=4,
    folder=Path("/home/ann/gpt"),
    python=Path("/home/ann/env/bin/python"),
    container=Container(image="images.example/gpt:3"),
)
ASKED = PLAIN.model_copy(
    update={
        "name": "My Run",
        "spares": 1,
        "partition": "team-a",
        "limits": Limits(minutes=90, memory_megabytes=65536),
        "allocation": Allocation(
            qos="low",
            constraint="pool=a100&zone=b",
            gres="nvidia.com/gpu:8,cpu:64",
            options=(
                "--namespace=research",
                "--toleration=nvidia.com/gpu:NoSchedule",
                "--toleration=spot=true",
                "--service-account=trainer",
                "--pull-secret=images",
                "--env-from=bucket-keys",
            ),
        ),
        "environment": JobEnvironment(
            setup=("source /opt/env", "ulimit -l $(cat /limit)"),
            variables={"NCCL_DEBUG": "INFO", "NOTE": "$(date)"},
            keep=("WANDB_API_KEY",),
        ),
        "first_generation": 2,
    }
)
CLAIMED = PLAIN.model_copy(
    update={"allocation": Allocation(options=("--claim=team-files:/mnt/team",))}
)
URL = "s3://ann/{}-20260101-120000"


@pytest.fixture(autouse=True)
def the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_SCRATCH", "/scratch")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("os.getegid", lambda: 1000)


@pytest.mark.parametrize(
    ("name", "job", "faults"),
    [
        ("bucket", PLAIN, Faults()),
        ("asked", ASKED, Faults(attempts=4)),
        ("claim", CLAIMED, Faults(regroup=False)),
    ],
)
def test_golden_manifest(name: str, job: Job, faults: Faults) -> None:
    """Renew: `PACELINE_RENEW=1 pytest tests/schedulers/test_kubernetes_manifest.py`."""
    folder = Path(f"/mnt/team/runs/{job.name}-20260101-120000")
    run = Run(folder, copied_from=None if name == "claim" else URL.format(job.name))
    fitted = job if job.partition else SCHEDULER.fit(job, None)[0]
    written = SCHEDULER.script(fitted, run, faults)
    golden = GOLDEN / f"kubernetes-{name}.yaml"
    if os.environ.get("PACELINE_RENEW"):
        golden.write_text(written)
    assert written == golden.read_text(), test_golden_manifest.__doc__


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["bucket", "asked", "claim"])
def test_the_schemas_of_three_versions_accept_it(name: str, version: str) -> None:
    """Strict: a misspelt field would be ignored by a cluster, and is refused here."""
    for each in _objects(name):
        kubernetes_validate.validate(each, version, strict=True)
    each["spec"] = {"unknown": 1}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(each, version, strict=True)


def test_names_that_kubernetes_takes() -> None:
    for name in ("GPT 3_b", "3d", "ü", "x" * 200):
        found = job_name(Run(Path("/runs") / name), PLAIN)
        assert found.isascii()
        assert found[0].isalpha()
        assert len(f"{found}-9999") <= 63
        assert found.replace("-", "").isalnum()
        assert found == found.lower()
    assert job_name(Run(Path("/a/x")), PLAIN) != job_name(Run(Path("/b/x")), PLAIN)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"container": None}, r"runs images(.|\n)*--container IMAGE"),
        ({"container": Container(image="a", runtime="podman")}, "starts containers itself"),
        ({"container": Container(image="a", binds=("/data",))}, "starts containers itself"),
        ({"listeners": ("wandb",)}, r"forward nothing(.|\n)*paceline watch"),
        ({"allocation": Allocation(account="bio")}, r"--account was given(.|\n)*--qos"),
        ({"allocation": Allocation(gres="gpu")}, "--gres gpu names no resources"),
        ({"allocation": Allocation(constraint="a100")}, "--constraint a100 names no labels"),
        ({"allocation": Allocation(options=("--node=1",))}, r"--node=1 is not(.|\n)*--claim"),
        ({"allocation": Allocation(options=("--toleration=a:b",))}, "NoSchedule"),
        ({"allocation": Allocation(options=("--claim=files",))}, "names no claim and folder"),
    ],
)
def test_what_kubernetes_cannot_do_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(PacelineError, match=said):
        SCHEDULER.fit(PLAIN.model_copy(update=changes), None)


def test_a_folder_that_no_pod_sees_is_refused() -> None:
    with pytest.raises(PacelineError, match=r"do not see(.|\n)*--runs s3://"):
        SCHEDULER.script(PLAIN, Run(Path("/home/ann/runs/gpt-1")), Faults())


def test_devices_are_those_of_the_pod() -> None:
    gpus = Allocation(gres="nvidia.com/gpu:8,cpu:64")
    fitted, warnings = SCHEDULER.fit(PLAIN.model_copy(update={"allocation": gpus}), None)
    assert (fitted.devices_per_node, fitted.gpus_per_node, fitted.cpus_per_worker) == (8, 8, 8)
    assert warnings == []


def _objects(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((GOLDEN / f"kubernetes-{name}.yaml").read_text()))
