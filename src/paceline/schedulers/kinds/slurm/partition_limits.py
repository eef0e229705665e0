"""The limits of Slurm's partitions, checked before a job is queued."""

from paceline.schedulers.kinds.slurm.accounting import Accounting
from paceline.schedulers.kinds.slurm.controller import Controller, Node, Partition
from paceline.schedulers.kinds.slurm.entitlement import check_entitlement, quality_flags
from paceline.schedulers.kinds.slurm.site_names import check_names
from paceline.specs import Job, PacelineError


def fit(job: Job, controller: Controller, devices: int | None) -> tuple[Job, list[str]]:
    """Return the job with partitions, devices and CPUs filled in, and warnings for the user.

    Of several partitions, the first that allows the job decides its workers per node; others that
    do not allow the same are left out. Raise if no partition allows the job.
    """
    named = _partitions(job.partition, controller.partitions())
    nodes, accounting = controller.nodes(), Accounting.read(controller)
    fitted: list[Job] = []
    warnings: list[str] = []
    problems: list[PacelineError] = []
    for partition in named:
        of_partition = [node for node in nodes if partition.name in node.partitions]
        try:
            one = _fit_one(job, partition, of_partition, devices, accounting)
            check_names(job.allocation, of_partition, controller)
            check_entitlement(one, partition, accounting, controller)
            _check_same_devices(one, fitted)
        except PacelineError as problem:
            problems.append(problem)
            warnings.append(f"the partition {partition.name} is left out: {problem.problem}")
            continue
        devices = one.devices_per_node
        fitted.append(one)
        warnings += _waiting(one, partition, of_partition)
    if not fitted:
        raise problems[0]
    cpus = min(each.cpus_per_worker or 1 for each in fitted)
    names = ",".join(str(each.partition) for each in fitted)
    return fitted[0].model_copy(update={"partition": names, "cpus_per_worker": cpus}), warnings


def _fit_one(
    job: Job,
    partition: Partition,
    nodes: list[Node],
    devices: int | None,
    accounting: Accounting,
) -> Job:
    lifted = quality_flags(job, accounting)
    _check_nodes(job, partition, nodes, lifted)
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
    _check_limits(job, partition, fitting, lifted)
    return job.model_copy(
        update={
            "partition": partition.name,
            "devices_per_node": devices,
            "gpus_per_node": devices if gpus else 0,
            "cpus_per_worker": cpus // devices,
        }
    )


def _check_same_devices(job: Job, earlier: list[Job]) -> None:
    if earlier and job.gpus_per_node != earlier[0].gpus_per_node:
        raise PacelineError(
            f"its nodes give the job {job.gpus_per_node} GPUs each, and those of"
            f" {earlier[0].partition} {earlier[0].gpus_per_node}",
            fix="name partitions with the same devices, or give --devices",
        )


def _waiting(job: Job, partition: Partition, nodes: list[Node]) -> list[str]:
    unusable = [node.name for node in nodes if not node.usable]
    wanted = job.nodes + job.spares
    if len(nodes) - len(unusable) >= wanted:
        return []
    return [
        f"{', '.join(unusable)} of {partition.name} cannot take jobs now: this job waits"
        f" until {wanted} nodes can"
    ]


def _partitions(names: str | None, partitions: list[Partition]) -> list[Partition]:
    by_name = {partition.name: partition for partition in partitions}
    there = ", ".join(by_name)
    if names is None:
        defaults = [partition for partition in partitions if partition.default]
        if not defaults:
            raise PacelineError(
                "this cluster has no default partition", fix=f"give --partition, one of: {there}"
            )
        return defaults
    for name in names.split(","):
        if name not in by_name:
            raise PacelineError(
                f"there is no partition {name} on this cluster",
                fix=f"use --partition with one of: {there}",
            )
    return [by_name[name] for name in dict.fromkeys(names.split(","))]


def _check_nodes(job: Job, partition: Partition, nodes: list[Node], lifted: frozenset[str]) -> None:
    wanted, most = job.nodes + job.spares, partition.max_nodes
    if most and wanted > most and "PartitionMaxNodes" not in lifted:
        raise PacelineError(
            f"--nodes {job.nodes}{f' and --spares {job.spares}' if job.spares else ''} asks for"
            f" {wanted} nodes, but the partition {partition.name} allows {most} per job",
            fix=f"use {most} nodes at most, or another --partition",
        )
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


def _check_limits(
    job: Job, partition: Partition, nodes: list[Node], lifted: frozenset[str]
) -> None:
    minutes, memory = job.limits.minutes, job.limits.memory_megabytes
    most = None if "PartitionTimeLimit" in lifted else partition.max_minutes
    if minutes and most and minutes > most:
        raise PacelineError(
            f"--time asks for {minutes} minutes, but the partition {partition.name} allows {most}",
            fix=f"use --time {most} at most, or another --partition",
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
