"""The limits of Slurm's partitions, checked before a job is queued."""

from paceline.schedulers.kinds.slurm.controller import Controller, Node, Partition
from paceline.specs import Job, PacelineError


def fit(job: Job, controller: Controller, devices: int | None) -> tuple[Job, list[str]]:
    """Return the job with partition, devices and CPUs filled in, and warnings for the user.

    Raise if the partition does not allow the job.
    """
    partition = _partition(job.partition, controller.partitions())
    nodes = [node for node in controller.nodes() if partition.name in node.partitions]
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
            fix=f"use --devices {cpus} at most, or more --nodes",
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
    unusable = [node.name for node in nodes if not node.usable]
    warnings = []
    if len(nodes) - len(unusable) < wanted:
        warnings.append(
            f"{', '.join(unusable)} of {partition.name} cannot take jobs now: this job waits"
            f" until {wanted} nodes can"
        )
    return job, warnings


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
            fix=f"use --nodes {len(nodes)} at most, or another --partition",
        )
    if job.nodes + job.spares > len(nodes):
        raise PacelineError(
            f"--nodes {job.nodes} and --spares {job.spares} together ask for more than the"
            f" {len(nodes)} nodes of the partition {partition.name}",
            fix=f"use --spares {len(nodes) - job.nodes} at most, fewer --nodes, or another"
            " --partition",
        )


def _check_limits(job: Job, partition: Partition, nodes: list[Node]) -> None:
    minutes, memory = job.limits.minutes, job.limits.memory_megabytes
    if minutes and partition.max_minutes and minutes > partition.max_minutes:
        raise PacelineError(
            f"--time asks for {minutes} minutes, but the partition {partition.name} allows"
            f" {partition.max_minutes}",
            fix=f"use --time {partition.max_minutes} at most, or another --partition",
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
            fix=f"use --memory {allowed}M at most, more --nodes, or another --partition",
        )
