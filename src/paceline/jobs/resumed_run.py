"""Resumed runs, on this machine or on a cluster."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.checkpoints.storage_place import folder_at
from paceline.jobs.cluster_run import ClusterRequest
from paceline.jobs.code_snapshot import has_changed, with_snapshot
from paceline.jobs.local_run import train_here
from paceline.jobs.plan_choice import another_layout
from paceline.jobs.run_lease import lease_held, submitting
from paceline.jobs.user_messages import SILENT, Messages, short_place
from paceline.launch import room
from paceline.remote.mirror import mirrored
from paceline.remote.places import open_run
from paceline.report import RunReader, RunState
from paceline.schedulers.submission import SubmittedJob, fit_job
from paceline.specs import Job, PacelineError, Plan, Run
from paceline.specs.owned_files import check_owned_folder

AS_BEFORE = ClusterRequest()


def resume(
    place: str | Path,
    *,
    workers: int | None = None,
    cluster: ClusterRequest = AS_BEFORE,
    layout: Mapping[str, Any] | None = None,
    asked: Mapping[str, Any] | None = None,
    new_code: bool = False,
    messages: Messages = SILENT,
) -> Run | SubmittedJob:
    """Resume a run from its last good checkpoint.

    With `workers`, or if the run was never submitted: train on this machine and return the run once
    it has ended. Otherwise submit it to a cluster, by default as before, and return its job.
    `layout`: fields of the layout, `sync` and `faults` to change. `asked`: fields of the job's
    allocation, and its `partition`, to change. `new_code`: run the user's code
    as it is now, instead of the copy that the run was started with.
    """
    run = open_run(place, deep=True)
    check_checkpoints_owned(run)
    state = RunReader(run).refresh()
    if workers is not None and cluster.nodes is not None:
        raise PacelineError(
            f"-n {workers} and --nodes {cluster.nodes} were given: the first means this machine,"
            " the second the cluster",
            fix="give one of them",
        )
    if state.status == "finished":
        raise PacelineError(
            f"{short_place(run)} has {_end(state)}",
            fix="to train longer, start a new run with more steps or epochs",
        )
    job = _next_job(run.job, state, asked or {})
    if not new_code and has_changed(run, job):
        messages.note(
            f"{short_place(run)} goes on with the code that it was started with;"
            " --new-code takes your changes since"
        )
    if cluster.nodes is None and (workers is not None or not run.job_id_file.exists()):
        if asked:
            raise PacelineError(
                f"--{next(iter(asked)).replace('options', 'scheduler-option')} is for a job of a"
                " cluster, but the run goes on on this machine",
                fix="leave it out, or give --nodes N in place of -n",
            )
        plan = another_layout(run.plan, workers, layout or {})
        with mirrored(run):
            _resume_here(run, job, plan, messages, new_code=new_code)
        return run
    with mirrored(run):
        return _resume_there(run, job, cluster, layout or {}, messages, new_code=new_code)


def _next_job(job: Job, state: RunState, asked: Mapping[str, Any]) -> Job:
    """Return the job that continues a run, as the one before with what is asked otherwise."""
    allocation = job.allocation.for_another_job()
    fields = {name: value for name, value in asked.items() if name != "partition"}
    return job.model_copy(
        update={
            "first_generation": state.generation + 1,
            "allocation": allocation.model_copy(update=fields),
            "partition": asked.get("partition", job.partition),
        }
    )


def _end(state: RunState) -> str:
    """Say how a run has finished."""
    early = state.finished.reason if state.finished else None
    return f"finished early: {early}" if early else f"taken all its {state.planned_steps} steps"


def check_checkpoints_owned(run: Run) -> None:
    """Refuse checkpoints in a folder outside the run's if another user owns or can write them."""
    folder = folder_at(run.checkpoint_place)
    if folder is not None and (path := run.job.folder / folder).exists():
        check_owned_folder(path, deep=True)


def _resume_here(run: Run, job: Job, plan: Plan, messages: Messages, *, new_code: bool) -> None:
    job = job.model_copy(
        update={"nodes": 1, "devices_per_node": plan.layout.workers, "scheduler": None}
    )
    if warning := room.check_room(plan.layout.workers, room.accelerators()):
        messages.note(warning)
    with lease_held(run) as lease:
        run.write_plan(plan)
        run.write_job(with_snapshot(run, job) if new_code else job)
        train_here(run, lease, messages)


def _resume_there(
    run: Run,
    job: Job,
    cluster: ClusterRequest,
    layout: Mapping[str, Any],
    messages: Messages,
    *,
    new_code: bool,
) -> SubmittedJob:
    if not (cluster.scheduler or cluster.testbed):
        cluster = replace(cluster, scheduler=job.scheduler)
    scheduler = cluster.chosen_scheduler(messages)
    devices = job.devices_per_node
    job = job.model_copy(update={"nodes": cluster.nodes or job.nodes})
    with submitting(run) as lease:
        job = fit_job(job, scheduler, devices, messages.warn)
        run.write_plan(another_layout(run.plan, job.workers, layout))
        run.write_job(with_snapshot(run, job) if new_code else job)
        return SubmittedJob.submit(run, scheduler, lease)
