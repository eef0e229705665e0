"""Why the pods of a Job do not run, in plain words."""

from typing import Any

from paceline.schedulers.kinds.kubernetes.cluster_api import ClusterApi
from paceline.schedulers.scheduler import Waiting

_REASONS = {
    "Unschedulable": "no node can take a pod",
    "SchedulingGated": "a scheduling gate holds a pod back",
    "ContainerCreating": "a node prepares a pod",
    "PodInitializing": "a node prepares a pod",
    "ErrImagePull": "a node cannot get the image",
    "ImagePullBackOff": "a node cannot get the image",
    "InvalidImageName": "the image's name is not valid, so it never starts",
    "CreateContainerConfigError": "a node lacks something that a pod names",
    "CreateContainerError": "a node cannot start a pod",
}


def waiting_of(api: ClusterApi, job: Any, job_id: str) -> Waiting | None:
    """Return why a Job waits: held by its queue, or one of its pods by a node or an image."""
    if job.spec.suspend:
        return _in_queue(api, job)
    found = [each for each in map(_of_pod, api.pods(job_id)) if each is not None]
    # What needs a user's hand goes before a pod that is being prepared.
    return max(found, key=lambda each: each.word != "ContainerCreating", default=None)


def _in_queue(api: ClusterApi, job: Any) -> Waiting:
    labels = job.metadata.labels or {}
    queue = labels.get("kueue.x-k8s.io/queue-name")
    if queue is None:
        return Waiting("it is suspended; `kubectl patch` lets it start", "Suspended")
    for workload in api.workloads(job.metadata.namespace, job.metadata.uid):
        for each in workload.get("status", {}).get("conditions", ()):
            if each["type"] == "QuotaReserved" and each["status"] == "False":
                said = f"its queue {queue} has not admitted it: {each.get('message', '')}"
                return Waiting(said.rstrip(": "), each.get("reason", "Suspended"))
    return Waiting(f"its queue {queue} has not admitted it", "Suspended")


def _of_pod(pod: Any) -> Waiting | None:
    if pod.status.phase != "Pending":
        return None
    for status in pod.status.container_statuses or ():
        if status.state and status.state.waiting:
            return _waiting(status.state.waiting.reason, status.state.waiting.message)
    for each in pod.status.conditions or ():
        if each.type == "PodScheduled" and each.status == "False":
            return _waiting(each.reason, each.message)
    return None


def _waiting(word: str, message: str | None) -> Waiting:
    plain = _REASONS.get(word, "its cluster gives the reason")
    return Waiting(f"{plain}: {message}" if message else plain, word)
