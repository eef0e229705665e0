"""The objects of a run's job: an indexed Job, a headless Service, and a Secret.

Pods find each other by the names that the Service gives them, `JOB-INDEX.JOB`. A pod that is
evicted, or whose node is lost, is replaced under the same index.
"""

import os
import re
import shlex
import zlib
from typing import Any

from paceline.remote.places import SCRATCH_VARIABLE, SECRET_VARIABLE, scratch_folder
from paceline.schedulers.batch_script import port_of
from paceline.schedulers.kinds.kubernetes.pod_settings import TITLE, PodSettings
from paceline.schedulers.kinds.kubernetes.pod_task import JOB_VARIABLE, NAMESPACE_VARIABLE
from paceline.specs import Faults, Job, PacelineError, Run

Object = dict[str, Any]

RETRY_EXIT_CODE = 75
"""A pod's exit code if another pod should take its place."""
_KILLED_EXIT_CODES = [137, 143]
_LONGEST_NAME = 40
"""Of what a user names, in a label of at most 63 characters."""
_GRACE_SECONDS = 120
"""Time to save after SIGTERM."""
_KEPT_SECONDS = 7 * 24 * 3600
"""How long the cluster remembers a job that has ended."""
_HIDDEN = "(filled in by paceline submit)"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108


def job_name(run: Run, job: Job) -> str:
    """Return the name of the run's Job: another for each start by `submit` or `resume`."""
    slug = re.sub(r"[^a-z0-9]+", "-", run.name.lower())[:_LONGEST_NAME].strip("-")
    slug = slug if slug[:1].isalpha() else f"run-{slug}"
    return f"{slug}-{zlib.crc32(run.place.encode()):08x}-{job.first_generation}"


def manifest(job: Job, run: Run, faults: Faults) -> list[Object]:
    """Return the run's Job, its Service and, if it has secrets, its Secret without their values."""
    settings, name = PodSettings.of(job.allocation), job_name(run, job)
    hidden = [*([SECRET_VARIABLE] if run.url else []), *job.environment.keep]
    labels = {"app.kubernetes.io/managed-by": "paceline"}
    about = {"name": name, "labels": labels}
    if settings.namespace:
        about["namespace"] = settings.namespace
    objects = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                **about,
                "labels": labels
                | ({"kueue.x-k8s.io/queue-name": job.partition} if job.partition else {}),
                "annotations": {"paceline/run": run.place},
            },
            "spec": _job_spec(job, run, faults, settings, name, bool(hidden)),
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": about,
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {"batch.kubernetes.io/job-name": name},
                "ports": [{"name": "rendezvous", "port": _port(job, run)}],
            },
        },
    ]
    if hidden:
        secret = {"stringData": dict.fromkeys(hidden, _HIDDEN), "type": "Opaque"}
        objects.append({"apiVersion": "v1", "kind": "Secret", "metadata": about} | secret)
    return objects


def _job_spec(
    job: Job, run: Run, faults: Faults, settings: PodSettings, name: str, has_secret: bool
) -> Object:
    pods = job.nodes + job.spares
    deadline = {"activeDeadlineSeconds": job.limits.minutes * 60} if job.limits.minutes else {}
    return {
        **({"suspend": True} if job.partition else {}),  # until Kueue admits it
        "completions": pods,
        "parallelism": pods,
        "completionMode": "Indexed",
        # One pod that has seen the run's end is enough: others may still wait for a node.
        "successPolicy": {"rules": [{"succeededCount": 1}]},
        "backoffLimitPerIndex": faults.attempts,
        "maxFailedIndexes": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "operator": "NotIn",
                        "values": [RETRY_EXIT_CODE, *_KILLED_EXIT_CODES],
                    },
                },
            ]
        },
        **deadline,
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "template": {"spec": _pod_spec(job, run, settings, name, has_secret)},
    }


def _pod_spec(job: Job, run: Run, settings: PodSettings, name: str, has_secret: bool) -> Object:
    assert job.container is not None
    limits = {name: str(amount) for name, amount in settings.resources.items()}
    if job.limits.memory_megabytes:
        limits["memory"] = f"{job.limits.memory_megabytes}Mi"
    sources = [*([name] if has_secret else []), *settings.env_from]
    volumes, mounts = _volumes(run, settings)
    container = {
        "name": "worker",
        "image": job.container.image,
        "command": _command(job, run),
        "env": _variables(job, run, name),
        **({"envFrom": [{"secretRef": {"name": each}} for each in sources]} if sources else {}),
        **({"resources": {"limits": limits, "requests": limits.copy()}} if limits else {}),
        "volumeMounts": mounts,
    }
    found: Object = {
        "restartPolicy": "Never",
        "subdomain": name,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "enableServiceLinks": False,
        "automountServiceAccountToken": settings.service_account is not None,
        "serviceAccountName": settings.service_account,
        "priorityClassName": settings.priority_class,
        "nodeSelector": settings.selector,
        "tolerations": list(settings.tolerations),
        "imagePullSecrets": [{"name": each} for each in settings.pull_secrets],
        # Files in a shared folder belong to the user who submits.
        "securityContext": None if run.url else _user(),
        "containers": [container],
        "volumes": volumes,
    }
    return {key: value for key, value in found.items() if value not in (None, {}, [])}


def _user() -> Object:
    user, group = os.geteuid(), os.getegid()
    return {"runAsUser": user, "runAsGroup": group}


def _command(job: Job, run: Run) -> list[str]:
    assert job.container is not None
    python = [job.container.python, "-m", "paceline.schedulers.kinds.kubernetes.pod", run.place]
    if not job.environment.setup:
        return [_literal(word) for word in python]
    lines = [f"{line}\n(($? == 0)) || exit" for line in job.environment.setup]
    return ["bash", "-c", _literal("\n".join([*lines, f"exec {shlex.join(python)}"]))]


def _variables(job: Job, run: Run, name: str) -> list[Object]:
    own = {
        "PACELINE_LEADER": f"{name}-{{node}}.{name}:{_port(job, run)}",
        SCRATCH_VARIABLE: str(scratch_folder()),
        JOB_VARIABLE: name,
        "PYTHONUNBUFFERED": "1",
    }
    found = {each: _literal(value) for each, value in job.environment.variables.items()} | own
    namespace = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    return [
        *({"name": each, "value": value} for each, value in found.items()),
        {"name": NAMESPACE_VARIABLE, "valueFrom": namespace},
    ]


def _literal(text: str) -> str:
    """Keep Kubernetes from replacing `$(NAME)`, which the shell should read."""
    return text.replace("$(", "$$(")


def _volumes(run: Run, settings: PodSettings) -> tuple[list[Object], list[Object]]:
    places = {"scratch": str(scratch_folder()), "shared-memory": _SHARED_MEMORY}
    volumes: list[Object] = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
    ]
    for number, (path, claim) in enumerate(settings.claims.items()):
        places[f"claim-{number}"] = path
        source = {"persistentVolumeClaim": {"claimName": claim}}
        volumes.append({"name": f"claim-{number}"} | source)
    if not run.url and not any(run.path.is_relative_to(path) for path in settings.claims):
        raise PacelineError(
            f"the run's folder would be {run.path}, which pods of {TITLE} do not see",
            fix="keep runs in an object store (--runs s3://BUCKET), or in a volume: add"
            ' --scheduler-option "--claim=NAME:/PATH", with --runs below /PATH',
        )
    return volumes, [{"name": name, "mountPath": path} for name, path in places.items()]


def _port(job: Job, run: Run) -> int:
    return job.port or port_of(run.name)
