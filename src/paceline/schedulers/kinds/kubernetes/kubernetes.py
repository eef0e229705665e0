"""Kubernetes as a scheduler: a run's job is an indexed Job with one pod per node."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from paceline.schedulers.kinds.kubernetes.pod_settings import TITLE, PodSettings
from paceline.schedulers.kinds.kubernetes.pod_task import own_job, own_task
from paceline.schedulers.scheduler import JobState, Scheduler, Task, Waiting
from paceline.schedulers.site import Unreachable
from paceline.specs import Allocation, Container, Faults, Job, PacelineError, Run

if TYPE_CHECKING:
    from paceline.schedulers.kinds.kubernetes.cluster_api import ClusterApi


@dataclass(frozen=True)
class Kubernetes(Scheduler):
    """Kubernetes 1.31 and later."""

    name: ClassVar[str] = "kubernetes"
    title: ClassVar[str] = TITLE
    script_name: ClassVar[str] = "job.yaml"
    runs_containers: ClassVar[bool] = True
    needs_shared_files: ClassVar[bool] = False
    needs_runtime: ClassVar[bool] = False
    only_by_name: ClassVar[bool] = True

    @property
    def _api(self) -> "ClusterApi":
        # Workers ask every scheduler for their rank: the client takes a second to import.
        from paceline.schedulers.kinds.kubernetes.cluster_api import cluster_api  # noqa: PLC0415

        return cluster_api(self.where, os.environ.get("KUBECONFIG"))

    # On a login node

    def ping(self) -> None:
        """Raise `Unreachable` unless the cluster answers."""
        self._api.version()

    def summary(self) -> str:
        """Return the cluster's version, and the namespace that jobs go to."""
        api = self._api
        return f"{TITLE} {api.version()}; namespace: {api.namespace}"

    def fit(self, job: Job, devices: int | None) -> tuple[Job, list[str]]:
        """Fill in devices and CPUs; check the image, the settings and the queue."""
        settings, container = PodSettings.of(job.allocation), job.container
        if container is None:
            raise PacelineError(
                f"{TITLE} runs images, but none was given",
                fix="add --container IMAGE, with Paceline installed (docs/containers.md)",
            )
        _check_container(container)
        if job.listeners:
            raise PacelineError(
                f"--to {job.listeners[0]} was given, but pods of {TITLE} forward nothing",
                fix="leave it out, and run `paceline watch RUN --to …` on any machine",
            )
        workers = devices or settings.devices or 1
        cpus = settings.resources.get("cpu", 0) // workers
        fitted = job.model_copy(
            update={
                "devices_per_node": workers,
                "gpus_per_node": settings.devices,
                "cpus_per_worker": cpus or None,
            }
        )
        if not job.partition:
            return fitted, []
        try:
            self._check_queue(job.partition, settings)
        except Unreachable as error:
            return fitted, [f"{error.problem}; the queue {job.partition} is not checked"]
        return fitted, []

    def options(self, allocation: Allocation) -> list[str]:
        """Refuse what Kubernetes has nothing for; the manifest has the rest."""
        PodSettings.of(allocation)
        return []

    def script(self, job: Job, run: Run, faults: Faults) -> str:
        """Return the manifest: Job, Service and Secret, the latter without its values."""
        from paceline.schedulers.kinds.kubernetes.manifest import manifest  # noqa: PLC0415
        from paceline.schedulers.kinds.kubernetes.manifest_file import written  # noqa: PLC0415

        return written(run.name, manifest(job, run, faults))

    def submit(self, script: Path) -> str:
        """Create the manifest's objects, the Secret with its values; return the Job's name."""
        from paceline.schedulers.kinds.kubernetes.manifest_file import read  # noqa: PLC0415

        return self._api.create(read(script), os.environ | dict(self.site.environment))

    # About a job

    def state(self, job_id: str) -> JobState:
        """Return the state of a Job."""
        job = self._api.job(job_id)
        if job is None:
            return JobState.UNKNOWN
        ended = {each.type for each in job.status.conditions or () if each.status == "True"}
        if "Complete" in ended:
            return JobState.COMPLETED
        if "Failed" in ended:
            return JobState.FAILED
        return JobState.RUNNING if job.status.ready else JobState.PENDING

    def waiting(self, job_id: str) -> Waiting | None:
        """Return why a Job's pods do not run; None if they do."""
        from paceline.schedulers.kinds.kubernetes.waiting_pods import waiting_of  # noqa: PLC0415

        api = self._api
        job = api.job(job_id)
        return None if job is None or job.status.ready else waiting_of(api, job, job_id)

    def nodes(self, job_id: str) -> list[str]:
        """Return the nodes of a Job's pods."""
        return sorted({pod.spec.node_name for pod in self._api.pods(job_id) if pod.spec.node_name})

    def is_preempted(self, job_id: str) -> bool:
        """Return False: Kubernetes tells a pod only that it ends; `pod` decides what that means."""
        del job_id
        return False

    def cancel(self, job_id: str) -> None:
        """Delete a Job, with its pods, its Service and its Secret."""
        self._api.delete(job_id)

    def cancel_command(self, job_id: str) -> str:
        """Return the command that deletes a Job."""
        namespace, _, name = job_id.partition("/")
        return f"kubectl delete job {name} --namespace {namespace} --cascade=foreground"

    def requeue(self, job_id: str, run: Run) -> None:
        """Raise an error: Kubernetes itself replaces pods."""
        del run
        raise PacelineError(
            f"{TITLE} replaces the pods of {job_id} itself", fix="use `paceline resume`"
        )

    # Inside a job

    def own_job(self) -> str | None:
        """Return the Job that this process is part of."""
        return own_job()

    def task(self) -> Task | None:
        """Return this process's place in its pod."""
        return own_task()

    def end_tasks(self) -> None:
        """Raise an error: pods have no access to the cluster's API."""
        raise PacelineError(
            f"pods of {TITLE} cannot end each other", fix="the others end by the run's outcome"
        )

    def _check_queue(self, queue: str, settings: PodSettings) -> None:
        api = self._api
        namespace = settings.namespace or api.namespace
        queues = api.queues(namespace)
        if queues is None:
            raise PacelineError(
                f"--partition {queue} names a queue of Kueue, which this cluster does not have",
                fix="leave it out",
            )
        if queue not in queues:
            raise PacelineError(
                f"the namespace {namespace} has no queue {queue}",
                fix=f"use one of: {', '.join(queues)}" if queues else "leave --partition out",
            )


def _check_container(container: Container) -> None:
    for option, given in {
        "--container-runtime": container.runtime,
        "--container-bind": container.binds,
        "--container-option": container.options,
    }.items():
        if given:
            raise PacelineError(
                f"{option} was given, but {TITLE} starts containers itself",
                fix='leave it out; a volume is --scheduler-option "--claim=NAME:/PATH"',
            )
