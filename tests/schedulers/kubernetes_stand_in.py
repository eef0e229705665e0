"""A small stand-in of the Kubernetes API, and of the controller of indexed Jobs behind it.

No Kubernetes can be installed where these tests run. This is not one: it has the few requests that
Paceline's client sends, checks objects against the published schemas, and starts pods from the
manifest as processes. It follows the documented rules of Jobs for what ends: backoff limit per
index, pod failure policy, success policy and replacement of failed pods.
"""

import json
import re
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

TOKEN = "paceline-stand-in-token"
VERSION = "1.37"
_MOST_BYTES = 1 << 20
_POLL_SECONDS = 0.1
_BACKOFF_SECONDS = 1.0
"""Of Kubernetes: 10 s, and twice as long each time."""
_KINDS = {"jobs": "Job", "services": "Service", "secrets": "Secret", "pods": "Pod"}
_PATH = re.compile(
    r"/apis?/(?P<api>[^/]+(?:/[^/]+)?)/namespaces/(?P<space>[^/]+)/(?P<kind>\w+)(?:/(?P<name>[^/]+))?"
)

Object = dict[str, Any]


class PodNode(Protocol):
    """A machine that starts a pod's process."""

    name: str

    def start(self, pod: "Pod") -> "subprocess.Popen[bytes]":
        """Start the first container of a pod."""

    def signal(self, pod: "Pod", number: int) -> None:
        """Send a signal to a pod's process."""

    def ended(self, pod: "Pod") -> None:
        """Clear up after a pod."""


@dataclass
class Pod:
    """A pod: its manifest's template, and its process."""

    job: Object
    index: int
    secrets: dict[str, Object]
    node: PodNode | None = None
    process: "subprocess.Popen[bytes] | None" = None
    evicted: bool = False
    told_at: float | None = None
    phase: str = "Pending"
    identity: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def hostname(self) -> str:
        return f"{self.job['metadata']['name']}-{self.index}"

    @property
    def spec(self) -> Object:
        found: Object = self.job["spec"]["template"]["spec"]
        return found

    def variables(self) -> dict[str, str]:
        """The container's environment."""
        container = self.spec["containers"][0]
        found: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            found |= self.secrets[source["secretRef"]["name"]]["stringData"]
        for each in container["env"]:
            if "value" in each:
                found[each["name"]] = each["value"].replace("$$(", "$(")
            else:
                assert each["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
                found[each["name"]] = self.job["metadata"]["namespace"]
        return found | {"JOB_COMPLETION_INDEX": str(self.index)}

    def command(self) -> list[str]:
        return [word.replace("$$(", "$(") for word in self.spec["containers"][0]["command"]]

    def to_object(self) -> Object:
        scheduled: Object = {"type": "PodScheduled", "status": "True"}
        if self.node is None:
            why = "0/4 nodes are available: 4 Insufficient cpu."
            scheduled |= {"status": "False", "reason": "Unschedulable", "message": why}
        name = self.job["metadata"]["name"]
        return {
            "metadata": {
                "name": f"{self.hostname}-{self.identity[:5]}",
                "namespace": self.job["metadata"]["namespace"],
                "labels": {"batch.kubernetes.io/job-name": name},
                "annotations": {"batch.kubernetes.io/job-completion-index": str(self.index)},
            },
            "spec": self.spec | ({"nodeName": self.node.name} if self.node else {}),
            "status": {"phase": self.phase, "conditions": [scheduled]},
        }


class StandIn:
    """The objects of a cluster, and the processes of their pods."""

    def __init__(self, nodes: list[PodNode]) -> None:
        self.nodes = nodes
        self.cordoned: set[str] = set()
        self.queues: list[str] | None = None
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.pods: list[Pod] = []
        self.failures: dict[tuple[str, int], int] = {}
        self.history: list[tuple[int, str]] = []
        """Index and node of every pod that was started."""
        self._ready_at: dict[tuple[str, int], float] = {}
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for pod in self.pods:
            if pod.process is not None and pod.node is not None and pod.process.poll() is None:
                pod.node.signal(pod, signal.SIGKILL)
                pod.process.wait()
                pod.node.ended(pod)

    def evict(self, index: int) -> str:
        """Evict a running pod, and keep others off its node; return the node's name."""
        with self._lock:
            (pod,) = (each for each in self.pods if each.index == index and each.told_at is None)
            assert pod.node is not None
            pod.evicted = True
            self.cordoned.add(pod.node.name)
            self._tell(pod)
            return pod.node.name

    # Requests

    def create(self, kind: str, space: str, body: Object) -> tuple[int, Object]:
        try:
            kubernetes_validate.validate(body, VERSION, strict=True)
        except kubernetes_validate.ValidationError as error:
            return 422, _status(422, f"{kind} is invalid: {error.message}")
        key = (kind, space, body["metadata"]["name"])
        if key in self.objects:
            return 409, _status(409, f'{kind.lower()}s "{key[2]}" already exists')
        about = body["metadata"] | {"namespace": space, "uid": str(uuid.uuid4())}
        self.objects[key] = body | {"metadata": about}
        if kind == "Job":
            self.objects[key]["status"] = {}
        return 201, self.objects[key]

    def get(self, kind: str, space: str, name: str) -> tuple[int, Object]:
        found = self.objects.get((kind, space, name))
        if found is None:
            return 404, _status(404, f'{kind.lower()}s "{name}" not found')
        return 200, found

    def list_pods(self, space: str, selector: str) -> Object:
        label, _, value = selector.partition("=")
        found = [pod.to_object() for pod in self.pods]
        found = [
            each
            for each in found
            if each["metadata"]["labels"].get(label) == value
            and each["metadata"]["namespace"] == space
        ]
        return {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": found}

    def delete(self, kind: str, space: str, name: str) -> tuple[int, Object]:
        code, found = self.get(kind, space, name)
        if code == 200:
            uid = found["metadata"]["uid"]
            for pod in self._pods_of(found):
                self._tell(pod)
            for key, each in list(self.objects.items()):
                owners = each["metadata"].get("ownerReferences", ())
                if each is found or any(owner["uid"] == uid for owner in owners):
                    del self.objects[key]
            found = {"apiVersion": "v1", "kind": "Status", "status": "Success"}
        return code, found

    # The controller of Jobs

    def _work(self) -> None:
        while not self._over.wait(_POLL_SECONDS):
            with self._lock:
                for pod in list(self.pods):
                    self._look_at(pod)
                for (kind, _, _), job in list(self.objects.items()):
                    if kind == "Job" and not job["status"].get("conditions"):
                        self._start_pods(job)

    def _look_at(self, pod: Pod) -> None:
        grace = pod.spec["terminationGracePeriodSeconds"]
        if pod.process is None or pod.node is None:
            if pod.told_at is not None:
                self.pods.remove(pod)
            return
        code = pod.process.poll()
        if code is None:
            if pod.told_at is not None and time.monotonic() - pod.told_at > grace:
                pod.node.signal(pod, signal.SIGKILL)
            return
        self.pods.remove(pod)
        pod.node.ended(pod)
        is_deleted = all(each is not pod.job for each in self.objects.values())
        if not is_deleted and not pod.job["status"].get("conditions"):
            self._ended(pod.job, pod, 128 - code if code < 0 else code)
        pod.job["status"]["ready"] = sum(each.phase == "Running" for each in self._pods_of(pod.job))

    def _ended(self, job: Object, pod: Pod, code: int) -> None:
        spec, key = job["spec"], (job["metadata"]["uid"], pod.index)
        if code == 0:
            job["status"]["succeeded"] = job["status"].get("succeeded", 0) + 1
            wanted = spec["successPolicy"]["rules"][0]["succeededCount"]
            if job["status"]["succeeded"] >= wanted:
                self._conclude(job, "Complete", "SuccessPolicy")
            return
        for rule in spec["podFailurePolicy"]["rules"]:
            codes = rule.get("onExitCodes", {})
            conditions = [each["type"] for each in rule.get("onPodConditions", ())]
            if pod.evicted and "DisruptionTarget" in conditions:
                return  # ignored: it does not count
            if codes and code not in codes["values"]:
                self._conclude(job, "Failed", "PodFailurePolicy")
                return
        self.failures[key] = self.failures.get(key, 0) + 1
        self._ready_at[key] = time.monotonic() + _BACKOFF_SECONDS * 2 ** (self.failures[key] - 1)
        if self.failures[key] > spec["backoffLimitPerIndex"]:
            self._conclude(job, "Failed", "MaxFailedIndexesExceeded")

    def _conclude(self, job: Object, kind: str, reason: str) -> None:
        job["status"]["conditions"] = [{"type": kind, "status": "True", "reason": reason}]
        for pod in self._pods_of(job):
            self._tell(pod)

    def _start_pods(self, job: Object) -> None:
        if job["spec"].get("suspend"):
            return
        space, uid = job["metadata"]["namespace"], job["metadata"]["uid"]
        there = {pod.index for pod in self._pods_of(job)}
        secrets = {
            n: each for (k, s, n), each in self.objects.items() if (k, s) == ("Secret", space)
        }
        for index in range(job["spec"]["completions"]):
            if index not in there and time.monotonic() >= self._ready_at.get((uid, index), 0):
                self.pods.append(Pod(job, index, secrets))
        for pod in self._pods_of(job):
            sources = pod.spec["containers"][0].get("envFrom", ())
            named = [each["secretRef"]["name"] for each in sources]
            pod.secrets = secrets
            if pod.process is None and all(name in secrets for name in named):
                self._start(pod)
        job["status"]["ready"] = sum(pod.phase == "Running" for pod in self._pods_of(job))
        job["status"]["active"] = len(self._pods_of(job))

    def _start(self, pod: Pod) -> None:
        busy = {each.node.name for each in self.pods if each.node} | self.cordoned
        free = [node for node in self.nodes if node.name not in busy]
        if free:
            pod.node, pod.phase = free[0], "Running"
            pod.process = free[0].start(pod)
            self.history.append((pod.index, free[0].name))

    def _pods_of(self, job: Object) -> list[Pod]:
        uid = job["metadata"]["uid"]
        return [pod for pod in self.pods if pod.job["metadata"]["uid"] == uid]

    def _tell(self, pod: Pod) -> None:
        if pod.told_at is None:
            pod.told_at = time.monotonic()
            if pod.node is not None and pod.process is not None and pod.process.poll() is None:
                pod.node.signal(pod, signal.SIGTERM)

    @property
    def lock(self) -> threading.RLock:
        return self._lock


def _status(code: int, message: str) -> Object:
    return {"apiVersion": "v1", "kind": "Status", "code": code, "message": message}


class _Requests(BaseHTTPRequestHandler):
    cluster: StandIn

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size <= _MOST_BYTES else b""
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            code, said = 401, _status(401, "Unauthorized")
        elif size > _MOST_BYTES:
            code, said = 413, _status(413, "too large")
        else:
            with self.cluster.lock:
                code, said = self._done(json.loads(body) if body else {})
        text = json.dumps(said).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _done(self, body: Object) -> tuple[int, Object]:
        url = urlsplit(self.path)
        if url.path == "/version/":
            return 200, _version()
        match = _PATH.fullmatch(url.path)
        if match is None:
            return 404, _status(404, "the server could not find the requested resource")
        space, plural, name = match["space"], match["kind"], match["name"]
        if match["api"].startswith("kueue"):
            return self._of_kueue(plural)
        kind = _KINDS[plural]
        if self.command == "POST":
            return self.cluster.create(kind, space, body)
        if self.command == "DELETE":
            return self.cluster.delete(kind, space, name)
        if kind == "Pod":
            return 200, self.cluster.list_pods(space, parse_qs(url.query)["labelSelector"][0])
        return self.cluster.get(kind, space, name)

    def _of_kueue(self, plural: str) -> tuple[int, Object]:
        if self.cluster.queues is None:
            return 404, _status(404, "the server could not find the requested resource")
        waits = {
            "type": "QuotaReserved",
            "status": "False",
            "reason": "Pending",
            "message": "couldn't assign flavors to pod set main: insufficient quota for cpu",
        }
        items: list[Object] = [{"metadata": {"name": each}} for each in self.cluster.queues]
        if plural == "workloads":
            items = [{"metadata": {"name": "job-1"}, "status": {"conditions": [waits]}}]
        return 200, {"items": items}

    def log_message(self, format: str, *args: object) -> None:
        pass


def _version() -> Object:
    words = ("buildDate", "compiler", "gitCommit", "gitTreeState", "goVersion", "platform")
    return dict.fromkeys(words, "stand-in") | {
        "major": "1",
        "minor": "37",
        "gitVersion": f"v{VERSION}.0-stand-in",
    }


@contextmanager
def serving(
    nodes: list[PodNode], kubeconfig: Path, listener: socket.socket | None = None
) -> Iterator[StandIn]:
    """Serve a stand-in on loopback, and write the kubeconfig of its only user."""
    cluster = StandIn(nodes)
    handler = type("Requests", (_Requests,), {"cluster": cluster})
    listener = listener or socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = ThreadingHTTPServer(("127.0.0.1", port), handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    write_kubeconfig(kubeconfig, port)
    try:
        yield cluster
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        cluster.close()


def write_kubeconfig(file: Path, port: int, token: str = TOKEN) -> None:
    """Write a kubeconfig, which is YAML and may be JSON."""
    cluster = {"server": f"http://127.0.0.1:{port}"}
    context = {"cluster": "stand-in", "user": "ann", "namespace": "team-a"}
    found = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "stand-in", "cluster": cluster}],
        "users": [{"name": "ann", "user": {"token": token}}],
        "contexts": [{"name": "ann", "context": context}],
        "current-context": "ann",
    }
    file.touch(0o600)
    file.write_text(json.dumps(found))
