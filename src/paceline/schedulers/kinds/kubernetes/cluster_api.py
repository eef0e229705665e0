"""The cluster's API, through the official client library."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

from paceline.schedulers.kinds.kubernetes.manifest import Object
from paceline.schedulers.kinds.kubernetes.manifest_file import not_installed
from paceline.schedulers.kinds.kubernetes.pod_settings import TITLE
from paceline.schedulers.site import CommandFailed, Unreachable
from paceline.specs import PacelineError

try:
    from kubernetes import client, config
    from urllib3.exceptions import HTTPError
except ImportError:
    raise not_installed() from None

_SECONDS = (5.0, 30.0)
"""To connect, and to answer."""
_KUEUE = ("kueue.x-k8s.io", "v1beta1")
_DEFAULT = "default"
_KUBECONFIG = "~/.kube/config"


@cache
def cluster_api(where: str, kubeconfig: str | None) -> "ClusterApi":
    """Return the API of a cluster; `where`: its name in messages, `kubeconfig`: the variable."""
    return ClusterApi(where, kubeconfig or _KUBECONFIG)


class ClusterApi:
    """The API of the cluster that the user's kubeconfig names."""

    def __init__(self, where: str, kubeconfig: str) -> None:
        self._where, self._kubeconfig = where, kubeconfig

    @cached_property
    def _connection(self) -> tuple[Any, str]:
        """The client, and the namespace of the user's context."""
        try:
            _, context = config.list_kube_config_contexts(self._kubeconfig)
            found = config.new_client_from_config(self._kubeconfig)
            namespace = context["context"].get("namespace", _DEFAULT)
        except (config.ConfigException, OSError) as error:
            raise Unreachable(
                f"{TITLE} is not reachable: no usable kubeconfig was found: {error}",
                fix="set KUBECONFIG to your cluster's file, as for kubectl; `kubectl get pods`"
                " must work",
            ) from None
        found.configuration.retries = False
        return client.ApiClient(found.configuration), namespace

    @property
    def namespace(self) -> str:
        """The namespace of the user's context."""
        return self._connection[1]

    def version(self) -> str:
        """Return the version of the cluster's API."""
        with self._answering("version"):
            api = client.VersionApi(self._connection[0])
            return str(api.get_code(_request_timeout=_SECONDS).git_version)

    def create(self, objects: list[Object], values: Mapping[str, str]) -> str:
        """Create a Job with what belongs to it, and return `NAMESPACE/NAME`.

        `values`: what to fill into its Secret. The cluster deletes the rest with the Job.
        """
        (job,) = (each for each in objects if each["kind"] == "Job")
        namespace = job["metadata"].get("namespace") or self.namespace
        name = job["metadata"]["name"]
        with self._answering("create job"):
            created = self._batch.create_namespaced_job(namespace, job, _request_timeout=_SECONDS)
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": name,
            "uid": created.metadata.uid,
        }
        try:
            for each in objects:
                owned = {**each, "metadata": {**each["metadata"], "ownerReferences": [owner]}}
                if each["kind"] == "Service":
                    with self._answering("create service"):
                        self._core.create_namespaced_service(
                            namespace, owned, _request_timeout=_SECONDS
                        )
                elif each["kind"] == "Secret":
                    filled = {key: values[key] for key in each["stringData"] if key in values}
                    with self._answering("create secret"):
                        self._core.create_namespaced_secret(
                            namespace, owned | {"stringData": filled}, _request_timeout=_SECONDS
                        )
        except PacelineError:
            self.delete(f"{namespace}/{name}")
            raise
        return f"{namespace}/{name}"

    def job(self, job_id: str) -> Any | None:
        """Return a Job; None if there is none."""
        namespace, _, name = job_id.partition("/")
        with self._answering("get job"):
            try:
                return self._batch.read_namespaced_job(name, namespace, _request_timeout=_SECONDS)
            except client.ApiException as error:
                if error.status != 404:
                    raise
                return None

    def pods(self, job_id: str) -> list[Any]:
        """Return a Job's pods."""
        namespace, _, name = job_id.partition("/")
        with self._answering("list pods"):
            found = self._core.list_namespaced_pod(
                namespace,
                label_selector=f"batch.kubernetes.io/job-name={name}",
                _request_timeout=_SECONDS,
            )
        return list(found.items)

    def delete(self, job_id: str) -> None:
        """Delete a Job; the cluster then deletes all that belongs to it."""
        namespace, _, name = job_id.partition("/")
        with self._answering("delete job"):
            self._batch.delete_namespaced_job(
                name, namespace, propagation_policy="Background", _request_timeout=_SECONDS
            )

    def queues(self, namespace: str) -> list[str] | None:
        """Return the names of Kueue's queues; None if the cluster does not have Kueue."""
        found = self._of_kueue("localqueues", namespace)
        return None if found is None else [each["metadata"]["name"] for each in found]

    def workloads(self, namespace: str, job_uid: str) -> list[Object]:
        """Return what Kueue says of a Job."""
        label = f"kueue.x-k8s.io/job-uid={job_uid}"
        return self._of_kueue("workloads", namespace, label_selector=label) or []

    def _of_kueue(self, kind: str, namespace: str, **selection: str) -> list[Object] | None:
        with self._answering(f"list {kind}"):
            api = client.CustomObjectsApi(self._connection[0])
            try:
                found = api.list_namespaced_custom_object(
                    *_KUEUE, namespace, kind, _request_timeout=_SECONDS, **selection
                )
            except client.ApiException as error:
                if error.status != 404:
                    raise
                return None
        return list(found["items"])

    @property
    def _batch(self) -> Any:
        return client.BatchV1Api(self._connection[0])

    @property
    def _core(self) -> Any:
        return client.CoreV1Api(self._connection[0])

    @contextmanager
    def _answering(self, what: str) -> Iterator[None]:
        try:
            yield
        except client.ApiException as error:
            raise CommandFailed(
                f"{self._where} refused `{what}`: {_message(error)}",
                fix="correct what it names; `kubectl auth can-i --list` shows your rights",
                output=str(error.body),
                code=error.status or 0,
            ) from None
        except (HTTPError, OSError) as error:
            raise Unreachable(
                f"{self._where} is not reachable: {error}",
                fix="check `kubectl get pods` with the same kubeconfig",
            ) from None


def _message(error: Any) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, TypeError, KeyError):
        return f"{error.status} {error.reason}"
