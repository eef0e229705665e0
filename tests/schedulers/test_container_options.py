"""Options of `submit` for containers that are refused, each with its fix."""

from pathlib import Path

import pytest

from paceline.cli.options.container_options import given_container
from paceline.schedulers.kinds.slurm import SCHEDULER
from paceline.schedulers.scheduler import Scheduler
from paceline.schedulers.submission import fit_job
from paceline.specs import Container, Job, PacelineError


def test_no_image_no_container() -> None:
    assert given_container(None, None, None, None) is None
    with pytest.raises(PacelineError, match="without an image"):
        given_container(None, None, ["/data"], None)


def test_the_only_runtime_of_the_machine_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    container = given_container("gpt.sif", None, ["/data"], ["--rocm"])
    job = Job(name="gpt", folder=Path("/"), python=Path("/python"), container=container)

    def chosen() -> Container | None:
        return fit_job(job, SCHEDULER, None, print, dry_run=True).container

    with pytest.raises(PacelineError, match="this machine has none of these"):
        chosen()
    (tmp_path / "apptainer").touch(0o755)
    assert chosen() == Container(
        image="gpt.sif", runtime="apptainer", binds=("/data",), options=("--rocm",)
    )
    (tmp_path / "podman").touch(0o755)
    with pytest.raises(PacelineError, match="this machine has apptainer and podman"):
        chosen()


@pytest.mark.parametrize(
    ("runtime", "bind", "said"),
    [
        ("docker", "/data", "unknown container runtime 'docker'"),
        ("podman", "data", "is not an absolute path without commas"),
        ("podman", "/data,b", "is not an absolute path without commas"),
    ],
)
def test_what_no_runtime_can_do_is_refused(runtime: str, bind: str, said: str) -> None:
    with pytest.raises(PacelineError, match=said):
        given_container("gpt:3", runtime, [bind], None)


def test_a_scheduler_without_containers_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    container = Container(image="gpt:3", runtime="podman")
    job = Job(name="gpt", folder=Path("/"), python=Path("/python"), container=container)
    monkeypatch.setattr(type(SCHEDULER), "runs_containers", Scheduler.runs_containers)
    with pytest.raises(PacelineError, match="does not start containers"):
        fit_job(job, SCHEDULER, None, print)
