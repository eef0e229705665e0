"""What is left of a run whose job the scheduler refuses."""

import sys
from pathlib import Path

import pytest

from paceline.jobs.resumed_run import resume
from paceline.jobs.run_lease import removed_if_refused, submitting
from paceline.remote.mirror import mirrored
from paceline.remote.object_store import ObjectStore
from paceline.remote.places import create_run
from paceline.schedulers.scheduler import SCHEDULERS
from paceline.schedulers.site import CommandFailed, Site, Unreachable
from paceline.schedulers.submission import SubmittedJob
from paceline.specs import Allocation, Job, PacelineError, Plan, Run
from ranks import new_run


@pytest.fixture(params=["folder", "bucket"])
def parent(
    request: pytest.FixtureRequest, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    monkeypatch.setenv("PACELINE_SCRATCH", str(tmp_path / "scratch"))
    return str(tmp_path / "runs") if request.param == "folder" else bucket


def submitted(parent: str, *prefix: str) -> Run:
    """Create a run and submit it with a Slurm whose commands begin with a prefix."""
    slurm = SCHEDULERS.get("slurm").at(Site(prefix=prefix))
    job = Job(name="a", folder=Path("/"), python=Path(sys.executable), scheduler="slurm")
    run = create_run(parent, job, Plan())
    with removed_if_refused(run), mirrored(run), submitting(run) as lease:
        SubmittedJob.submit(run, slurm, lease)
    return run


def left(parent: str) -> list[str]:
    """Names of the runs in a folder or a store."""
    if "://" in parent:
        return ObjectStore(parent).top()[1]
    return [path.name for path in Path(parent).iterdir()]


def test_the_run_is_removed(parent: str) -> None:
    """Its folder stayed, and looked like a run that waits."""
    with pytest.raises(CommandFailed, match="refused `sbatch`"):
        submitted(parent, "sh", "-c", "test $0 != sbatch")  # a stand-in that refuses jobs
    assert not left(parent)


def test_the_run_stays_if_its_job_may_be_there(parent: str) -> None:
    with pytest.raises(Unreachable):
        submitted(parent, "no-such-command")
    assert len(left(parent)) == 1


def test_a_folder_by_its_url(tmp_path: Path) -> None:
    """It was taken for a bucket that does not exist."""
    job = Job(name="a", folder=Path("/"), python=Path(sys.executable))
    with pytest.raises(PacelineError, match="is the URL of a folder") as refused:
        create_run(f"file://{tmp_path}", job, Plan())
    assert refused.value.fix == f"give the folder's path: --runs {tmp_path}"


def test_a_resumed_job_may_name_another_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`resume` could only ask for what the first job had."""
    run = new_run(tmp_path, 1)
    first = Allocation(account="physics", qos="long", begin="now+1hour")
    run.write_job(run.job.model_copy(update={"allocation": first, "scheduler": "slurm"}))
    with pytest.raises(PacelineError, match="--qos is for a job of a cluster"):
        resume(run.path, workers=1, asked={"qos": "short"})
    run.job_id_file.write_text("7")
    run.job_id_file.chmod(0o600)
    wanted: list[Job] = []

    def fit(job: Job, *_: object) -> Job:
        wanted.append(job)
        raise CommandFailed("enough", fix="", output="", code=1)

    monkeypatch.setattr("paceline.jobs.resumed_run.fit_job", fit)
    monkeypatch.setattr(
        "paceline.jobs.cluster_run.ClusterRequest.chosen_scheduler", lambda *_: None
    )
    with pytest.raises(CommandFailed):
        resume(run.path, asked={"account": "biology", "partition": "short"})
    assert wanted[0].allocation == Allocation(account="biology", qos="long")
    assert wanted[0].partition == "short"
    assert run.path.exists()
