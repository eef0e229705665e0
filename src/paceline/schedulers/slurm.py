"""Runs under Slurm: write the sbatch script, check it against the cluster, submit it."""

import re
import shlex
import time
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from paceline.cluster.shared_folders import LOCAL, MEMORY, file_system
from paceline.observe.event_writer import EventWriter
from paceline.schedulers.slurm_client import ENDED_STATES, Node, Partition, Slurm
from paceline.specs import (
    BATCH_ALIVE_SECONDS,
    STOPPED_EXIT_CODE,
    Ended,
    Faults,
    Job,
    PacelineError,
    Run,
)


def script(job: Job, run: Run, faults: Faults) -> str:
    """The sbatch script of a run, for people to read."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_on_one_line,
        autoescape=False,  # noqa: S701 -- a shell script; every value is quoted for the shell
    )
    environment.filters["quoted"] = lambda value: shlex.quote(str(value))
    return environment.get_template("job.sbatch.jinja").render(
        job=job,
        run=run,
        goes_on=faults.regroup and not job.probe,
        alive_seconds=BATCH_ALIVE_SECONDS,
        stopped_code=STOPPED_EXIT_CODE,
    )


def _on_one_line(value: object) -> object:
    """Refuse what would go on behind the end of a comment, where quotes mean nothing."""
    if isinstance(value, str) and not value.isprintable():
        raise PacelineError(
            f"{value!r} would stand in the job's script, but has characters that cannot be shown",
            fix="give the run, its folder and its partition names without line breaks and the like",
        )
    return value


def fitted(job: Job, slurm: Slurm, devices: int | None) -> tuple[Job, list[str]]:
    """The job with what the cluster decides filled in, and what the user should know.

    Raises where the partition cannot carry it, before anything is queued.
    """
    partition = _partition(job.partition, slurm.partitions())
    nodes = [node for node in slurm.nodes() if partition.name in node.partitions]
    _check_nodes(job, partition, nodes)
    wanted = job.nodes + job.spares
    fitting = sorted(nodes, key=lambda node: (node.gpus, node.cpus), reverse=True)[:wanted]
    gpus = min(node.gpus for node in fitting)
    cpus = min(node.cpus for node in fitting)
    devices = devices or max(1, gpus)
    if gpus and devices > gpus:
        raise PacelineError(
            f"--devices {devices} asks for {devices} GPUs per node, but the nodes of"
            f" {partition.name} have {gpus}",
            fix=f"use --devices {gpus}, or more --nodes",
        )
    if devices > cpus:
        raise PacelineError(
            f"--devices {devices} asks for {devices} workers per node, but the nodes of"
            f" {partition.name} have {cpus} CPUs",
            fix=f"use --devices {cpus} at the most, or more --nodes",
        )
    _check_limits(job, partition, fitting)
    job = job.model_copy(
        update={
            "partition": partition.name,
            "devices_per_node": devices,
            "gpus_per_node": devices if gpus else 0,
            "cpus_per_worker": cpus // devices,
        }
    )
    away = [node.name for node in nodes if not node.usable]
    warnings = []
    if len(nodes) - len(away) < wanted:
        warnings.append(
            f"{', '.join(away)} of {partition.name} cannot take jobs now: this one waits until"
            f" {wanted} nodes can"
        )
    return job, warnings


def check_shared(paths: list[Path], slurm: Slurm) -> None:
    """Refuse files that the nodes of the cluster cannot see."""
    for path in paths:
        kind = file_system(path)
        if kind in MEMORY or (kind in LOCAL and not slurm.shares_files):
            raise PacelineError(
                f"{path} is on a {kind} file system of this machine, which the nodes of the"
                " cluster do not see",
                fix="move it to a folder that all nodes share, such as your home or project"
                " folder (--runs DIR for the run's folder); if this disk is exported to the"
                " nodes, say so with --assume-shared",
            )


def submit(run: Run, slurm: Slurm) -> int:
    """Write the script, have Slurm itself test it, submit it; the number of the job."""
    run.script_file.write_text(script(run.job, run, run.plan.faults))
    slurm.call("sbatch", "--test-only", str(run.script_file))
    said = slurm.call("sbatch", "--parsable", str(run.script_file))
    match = re.search(r"^(\d+)", said, re.MULTILINE)
    if match is None:
        raise PacelineError(
            f"sbatch did not say a job number but {said.strip()!r}", fix="look at `squeue --me`"
        )
    run.slurm_job_file.write_text(match[1])
    return int(match[1])


def check_over(run: Run, slurm: Slurm) -> None:
    """Refuse a run whose job is still in the queue or running."""
    if not run.slurm_job_file.exists():
        return
    job_id = int(run.slurm_job_file.read_text())
    state = slurm.job_state(job_id)
    if state is not None and state not in ENDED_STATES:
        raise PacelineError(
            f"the run's job {job_id} is still {state} on {slurm.name}",
            fix=f"wait for it, or end it with `scancel {job_id}`",
        )


def note_cut_off(run: Run, generation: int, job_state: str | None) -> None:
    """Say in the run's events that its job is over, when the batch script could not."""
    EventWriter(run.events, "submit").write(
        Ended(
            time=time.time(),
            node="submit",
            generation=generation,
            exit_code=0 if job_state == "COMPLETED" else 1,
        )
    )


def _partition(name: str | None, partitions: list[Partition]) -> Partition:
    for partition in partitions:
        if partition.name == name or (name is None and partition.default):
            return partition
    there = ", ".join(partition.name for partition in partitions)
    if name is None:
        raise PacelineError(
            "this cluster has no default partition", fix=f"give --partition, one of: {there}"
        )
    raise PacelineError(
        f"there is no partition {name} on this cluster", fix=f"use --partition with one of: {there}"
    )


def _check_nodes(job: Job, partition: Partition, nodes: list[Node]) -> None:
    if job.nodes > len(nodes):
        raise PacelineError(
            f"--nodes {job.nodes} asks for more than the {len(nodes)} nodes of the partition"
            f" {partition.name}",
            fix=f"use --nodes {len(nodes)} at the most, or another --partition",
        )
    if job.nodes + job.spares > len(nodes):
        raise PacelineError(
            f"--nodes {job.nodes} and --spares {job.spares} together ask for more than the"
            f" {len(nodes)} nodes of the partition {partition.name}",
            fix=f"use --spares {len(nodes) - job.nodes} at the most, fewer --nodes, or another"
            " --partition",
        )


def _check_limits(job: Job, partition: Partition, nodes: list[Node]) -> None:
    minutes, memory = job.limits.minutes, job.limits.memory_megabytes
    if minutes and partition.max_minutes and minutes > partition.max_minutes:
        raise PacelineError(
            f"--time asks for {minutes} minutes, but the partition {partition.name} allows"
            f" {partition.max_minutes}",
            fix=f"use --time {partition.max_minutes} at the most, or another --partition",
        )
    allowed = min(
        limit
        for limit in (partition.max_memory_megabytes, *(node.memory_megabytes for node in nodes))
        if limit
    )
    if memory and memory > allowed:
        raise PacelineError(
            f"--memory asks for {memory} MB per node, but the partition {partition.name} allows"
            f" {allowed} MB",
            fix=f"use --memory {allowed}M at the most, more --nodes, or another --partition",
        )
